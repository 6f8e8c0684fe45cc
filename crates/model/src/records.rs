//! Records: rows that are not samples, such as log lines, events and spans.
//!
//! ```text
//!   {"level":"info","http":{"status":200}}          times       [t0, t1]
//!   {"level":"warn","user":"ada"}             ──▶   level       text  rows [0, 1]  ["info", "warn"]
//!                                                   http.status int   rows [0]     [200]
//!                                                   user        text  rows [1]     ["ada"]
//! ```
//!
//! Records of one batch may have any attributes. The batch holds them in columns, so that each path is there once, and not
//! once for each record. The path of an attribute in a nested object is that of the object, a dot, and its key; a dot in a key
//! is no different. Values of one path that have different types are different [`Attribute`]s.

mod batch_id;
mod builder;
mod path_index;

pub use batch_id::BatchId;
pub use builder::{PutError, RecordsBuilder, TooManyAttributes};

use stdx::budget::{Exhausted, IncrementalReservation};

/// The records of one batch, in the order in which they arrived.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    /// Microseconds since the Unix epoch, one for each record.
    pub times_us: Vec<i64>,
    pub attributes: Vec<Attribute>,
}

/// The values of one path that have one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    pub path: Box<str>,
    /// The records that have a value, ascending.
    pub rows: Vec<u32>,
    /// A value for each of `rows`.
    pub values: AttributeValues,
}

/// Type of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AttributeKind {
    Bool = 0,
    Int = 1,
    Float = 2,
    Text = 3,
    /// JSON text of whatever is none of the others: lists, empty objects, numbers that are beyond 64 bits.
    Json = 4,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValues {
    Bools(Vec<bool>),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Texts(Texts),
    /// Each text is valid JSON.
    Json(Texts),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AttributeValue<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    Json(&'a str),
}

/// Texts in one piece of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    text: String,
    /// The end of each text in `text`.
    ends: Vec<u32>,
}

impl Records {
    pub const fn len(&self) -> usize {
        self.times_us.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.times_us.is_empty()
    }

    pub fn memory_bytes(&self) -> usize {
        let attributes: usize = self.attributes.iter().map(Attribute::memory_bytes).sum();
        self.times_us.capacity() * size_of::<i64>()
            + (self.attributes.capacity() - self.attributes.len()) * size_of::<Attribute>()
            + attributes
    }
}

impl Attribute {
    pub fn new(path: &str, kind: AttributeKind) -> Self {
        Self { path: path.into(), rows: Vec::new(), values: AttributeValues::new(kind) }
    }

    pub const fn kind(&self) -> AttributeKind {
        self.values.kind()
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.path.len()
            + self.rows.capacity() * size_of::<u32>()
            + self.values.memory_bytes()
    }
}

impl AttributeKind {
    pub const ALL: [Self; 5] = [Self::Bool, Self::Int, Self::Float, Self::Text, Self::Json];

    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Suffix of a column with the values of this type, if a path has values of several types.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

impl AttributeValues {
    pub fn new(kind: AttributeKind) -> Self {
        match kind {
            AttributeKind::Bool => Self::Bools(Vec::new()),
            AttributeKind::Int => Self::Ints(Vec::new()),
            AttributeKind::Float => Self::Floats(Vec::new()),
            AttributeKind::Text => Self::Texts(Texts::default()),
            AttributeKind::Json => Self::Json(Texts::default()),
        }
    }

    pub const fn kind(&self) -> AttributeKind {
        match self {
            Self::Bools(_) => AttributeKind::Bool,
            Self::Ints(_) => AttributeKind::Int,
            Self::Floats(_) => AttributeKind::Float,
            Self::Texts(_) => AttributeKind::Text,
            Self::Json(_) => AttributeKind::Json,
        }
    }

    pub const fn len(&self) -> usize {
        match self {
            Self::Bools(values) => values.len(),
            Self::Ints(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Texts(texts) | Self::Json(texts) => texts.len(),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> AttributeValue<'_> {
        match self {
            Self::Bools(values) => AttributeValue::Bool(values[at]),
            Self::Ints(values) => AttributeValue::Int(values[at]),
            Self::Floats(values) => AttributeValue::Float(values[at]),
            Self::Texts(texts) => AttributeValue::Text(texts.get(at)),
            Self::Json(texts) => AttributeValue::Json(texts.get(at)),
        }
    }

    /// Appends a value of the same type. Another type is a bug.
    #[inline]
    pub fn push(&mut self, value: AttributeValue<'_>) {
        match (self, value) {
            (Self::Texts(texts), AttributeValue::Text(text))
            | (Self::Json(texts), AttributeValue::Json(text)) => {
                texts.push(text);
            }
            (Self::Ints(values), AttributeValue::Int(value)) => values.push(value),
            (Self::Floats(values), AttributeValue::Float(value)) => values.push(value),
            (Self::Bools(values), AttributeValue::Bool(value)) => values.push(value),
            (values, value) => panic!("BUG: {value:?} was added to values of type {}", values.kind().name()),
        }
    }

    /// Reserves memory for one more value of the same type.
    #[inline(always)]
    fn room(
        &mut self,
        value: AttributeValue<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        match self {
            Self::Bools(values) => memory.room(values, 1),
            Self::Ints(values) => memory.room(values, 1),
            Self::Floats(values) => memory.room(values, 1),
            Self::Texts(texts) | Self::Json(texts) => {
                let (AttributeValue::Text(text) | AttributeValue::Json(text)) = value else { return Ok(()) };
                memory.room(&mut texts.ends, 1)?;
                memory.room(&mut texts.text, text.len())
            }
        }
    }

    pub fn truncate(&mut self, len: usize) {
        match self {
            Self::Bools(values) => values.truncate(len),
            Self::Ints(values) => values.truncate(len),
            Self::Floats(values) => values.truncate(len),
            Self::Texts(texts) | Self::Json(texts) => texts.truncate(len),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Bools(values) => values.capacity(),
            Self::Ints(values) => values.capacity() * size_of::<i64>(),
            Self::Floats(values) => values.capacity() * size_of::<f64>(),
            Self::Texts(texts) | Self::Json(texts) => {
                texts.text.capacity() + texts.ends.capacity() * size_of::<u32>()
            }
        }
    }
}

impl AttributeValue<'_> {
    pub const fn kind(&self) -> AttributeKind {
        match self {
            Self::Bool(_) => AttributeKind::Bool,
            Self::Int(_) => AttributeKind::Int,
            Self::Float(_) => AttributeKind::Float,
            Self::Text(_) => AttributeKind::Text,
            Self::Json(_) => AttributeKind::Json,
        }
    }
}

impl Texts {
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(&self, at: usize) -> &str {
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[from as usize..self.ends[at] as usize]
    }

    /// The texts of a batch have less than 4 GiB, because a body has.
    #[inline]
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(u32::try_from(self.text.len()).expect("BUG: the texts of a batch exceed 4 GiB"));
    }

    fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.text.truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// All texts, one after the other.
    pub fn joined(&self) -> &str {
        &self.text
    }

    /// The end of each text in [`Self::joined`].
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Divides `text` at `ends`. `None` if they do not ascend to the end of the text, or cut a character.
    pub fn of(text: String, ends: Vec<u32>) -> Option<Self> {
        let is_end = |end: &u32| text.is_char_boundary(*end as usize);
        let is_whole = ends.last().map_or(0, |end| *end as usize) == text.len();
        (is_whole && ends.is_sorted() && ends.iter().all(is_end)).then_some(Self { text, ends })
    }
}
