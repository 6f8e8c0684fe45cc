//! Columns of a records table for frequent attributes. Unlike those of a [`Kind`], they differ from table to table.
//!
//! ```text
//!   what arrives             columns                        in the log, with each column's metadata
//!   status  int   97 %  ──▶  status       BIGINT   (new)    floodmark.path: status, floodmark.type: int
//!   status  text   2 %  ──▶  (none, as it is rare)
//!   level   text  60 %  ──▶  level        STRING   (known)  floodmark.path: level, floodmark.type: text
//!   time    text  15 %  ──▶  time_text    STRING   (new)    floodmark.path: time, floodmark.type: text
//! ```
//!
//! A column is never removed, and its type never changes. A file has only the columns for which it has values. The Delta
//! table gets a new column with the first file that holds it, and older files have nulls there.

use super::records::RECORDS;
use super::{DATE, Type};
use model::AttributeKind;
use std::collections::{HashMap, HashSet};

/// Limit on the attributes of a table that have columns. Each takes space in every snapshot of the table and memory in
/// every encoder.
pub const MAX: usize = 200;

/// An attribute gets a column if at least one record in so many has it.
const SHARE: u64 = 10;

/// Attributes with a longer path have no column.
const PATH_BYTES_MAX: usize = 120;

/// Keys of a column's metadata in the Delta schema.
pub(crate) const PATH_KEY: &str = "floodmark.path";
pub(crate) const TYPE_KEY: &str = "floodmark.type";

/// A column with the values of one attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeColumn {
    pub name: Box<str>,
    pub path: Box<str>,
    pub kind: AttributeKind,
}

/// An attribute of records that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<'a> {
    pub path: &'a str,
    pub kind: AttributeKind,
    /// The records that have the attribute.
    pub records: u64,
}

/// The attributes of a table that have columns, in the order in which the columns were added.
#[derive(Debug, Clone)]
pub struct AttributeColumns {
    list: Vec<AttributeColumn>,
    /// Names of all columns of the table in lower case, because some engines ignore the case of names.
    taken: HashSet<String>,
    /// Positions in `list` by path and type.
    known: HashMap<Box<str>, [Option<u16>; AttributeKind::ALL.len()]>,
}

impl Default for AttributeColumns {
    fn default() -> Self {
        Self::new()
    }
}

impl AttributeColumns {
    pub fn new() -> Self {
        let fixed = RECORDS.columns.iter().map(|column| column.name).chain([DATE]);
        Self { list: Vec::new(), taken: fixed.map(str::to_lowercase).collect(), known: HashMap::new() }
    }

    pub fn list(&self) -> &[AttributeColumn] {
        &self.list
    }

    /// Position of an attribute's column in [`Self::list`].
    pub fn find(&self, path: &str, kind: AttributeKind) -> Option<usize> {
        self.known.get(path)?[kind as usize].map(usize::from)
    }

    /// Reserves the name of a column that is no attribute's.
    pub(crate) fn reserve(&mut self, name: &str) {
        self.taken.insert(name.to_lowercase());
    }

    /// Adds a column. Returns `false` without a change if this contradicts the others, or if there are too many.
    pub(crate) fn add(&mut self, column: &AttributeColumn) -> bool {
        if let Some(known) = self.find(&column.path, column.kind) {
            return self.list[known].name == column.name;
        }
        let is_free = self.list.len() < MAX && self.taken.insert(column.name.to_lowercase());
        if is_free {
            let places = self.known.entry(column.path.clone()).or_default();
            places[column.kind as usize] = Some(self.list.len() as u16);
            self.list.push(column.clone());
        }
        is_free
    }

    /// Adds columns for frequent attributes of `records` records, the most frequent first. At most half of the free
    /// columns are taken, so that there are some for attributes that arrive later.
    pub fn choose(&mut self, seen: &[Seen<'_>], records: u64) {
        let is_frequent = |seen: &&Seen<'_>| {
            seen.records >= records.div_ceil(SHARE)
                && seen.records > 0
                && self.find(seen.path, seen.kind).is_none()
        };
        let mut frequent: Vec<&Seen<'_>> =
            seen.iter().filter(|seen| is_plain(seen.path)).filter(is_frequent).collect();
        frequent.sort_unstable_by_key(|seen| (std::cmp::Reverse(seen.records), seen.path, seen.kind));
        let mut room = (MAX - self.list.len()).div_ceil(2);
        for seen in frequent {
            if room == 0 {
                break;
            }
            let typed = format!("{}_{}", seen.path, seen.kind.name());
            for name in [seen.path, &typed] {
                let column = AttributeColumn { name: name.into(), path: seen.path.into(), kind: seen.kind };
                if self.add(&column) {
                    room -= 1;
                    break;
                }
            }
        }
    }
}

/// True if every engine accepts the path as a column's name.
fn is_plain(path: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_.-@:/$".contains(&b);
    (1..=PATH_BYTES_MAX).contains(&path.len()) && path.bytes().all(is_plain)
}

impl AttributeColumn {
    pub const fn data_type(&self) -> Type {
        match self.kind {
            AttributeKind::Bool => Type::Bool,
            AttributeKind::Int => Type::Long,
            AttributeKind::Float => Type::Double,
            AttributeKind::Text | AttributeKind::Json => Type::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AttributeKind::{Bool, Float, Int, Json, Text};

    fn names(columns: &AttributeColumns) -> Vec<&str> {
        columns.list().iter().map(|column| &*column.name).collect()
    }

    const fn seen(path: &str, kind: AttributeKind, records: u64) -> Seen<'_> {
        Seen { path, kind, records }
    }

    #[test]
    fn frequent_attributes_get_columns_whose_names_never_collide() {
        let check = |seen: &[Seen<'_>], records, expected: &[&str]| {
            let mut columns = AttributeColumns::new();
            columns.choose(seen, records);
            assert_eq!(names(&columns), expected);
        };
        check(&[], 0, &[]);
        check(&[seen("a", Int, 10), seen("b", Int, 9), seen("c", Int, 100)], 100, &["c", "a"]);
        check(&[seen("a", Int, 1)], 1, &["a"]);
        check(&[seen("a", Int, 1)], 11, &[]);
        check(&[seen("a.b", Int, 5), seen("x/y:z@$-_", Json, 5)], 9, &["a.b", "x/y:z@$-_"]);
        for bad in
            ["", "a b", "a,b", "a;b", "{", "}", "(", ")", "a\nb", "a\tb", "a=b", "\"", "'", "`", "\0", "ü"]
        {
            check(&[seen(bad, Int, 5)], 5, &[]);
        }
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        check(&[seen(&long, Int, 5), seen(&long[1..], Int, 5)], 5, &[&long[1..]]);
        // types of one path
        check(&[seen("s", Text, 4), seen("s", Int, 6), seen("s", Bool, 4)], 10, &["s", "s_bool", "s_text"]);
        // fixed columns
        let fixed = ["date", "Stream", "TIME", "arrival", "id", "attributes"].map(|path| seen(path, Text, 1));
        check(
            &fixed,
            1,
            &["Stream_text", "TIME_text", "arrival_text", "attributes_text", "date_text", "id_text"],
        );
        // the second name may be taken as well
        check(
            &[seen("S", Int, 3), seen("s", Int, 2), seen("s_int", Bool, 1)],
            3,
            &["S", "s_int", "s_int_bool"],
        );
        check(&[seen("S", Int, 3), seen("s_int", Int, 2), seen("s", Int, 1)], 3, &["S", "s_int"]);
    }

    #[test]
    fn columns_stay_and_leave_room_for_others() {
        let mut columns = AttributeColumns::new();
        columns.choose(&[seen("a", Int, 1)], 1);
        columns.choose(&[seen("a", Float, 1)], 1);
        columns.choose(&[seen("a", Int, 1)], 1_000_000);
        assert_eq!(names(&columns), ["a", "a_float"]);
        assert_eq!(
            (columns.find("a", Int), columns.find("a", Float), columns.find("a", Text)),
            (Some(0), Some(1), None)
        );
        let many: Vec<String> = (0..5 * MAX).map(|n| format!("p{n:04}")).collect();
        let mut lens = Vec::new();
        for _ in 0..12 {
            let seen: Vec<_> = many.iter().map(|path| seen(path, Text, 7)).collect();
            columns.choose(&seen, 7);
            lens.push(columns.list().len());
        }
        assert_eq!(lens, [101, 151, 176, 188, 194, 197, 199, 200, 200, 200, 200, 200]);
        assert_eq!(columns.list()[2].path, "p0000".into());
    }

    #[test]
    fn a_contradicting_column_is_refused() {
        let column =
            |name: &str, path: &str, kind| AttributeColumn { name: name.into(), path: path.into(), kind };
        let mut columns = AttributeColumns::new();
        columns.reserve("Theirs");
        assert!(columns.add(&column("a", "a", Int)) && columns.add(&column("a", "a", Int)));
        for other in
            [column("a", "a", Text), column("A", "A", Int), column("b", "a", Int), column("theirs", "t", Int)]
        {
            assert!(!columns.add(&other), "{other:?}");
        }
        assert_eq!(names(&columns), ["a"]);
    }
}
