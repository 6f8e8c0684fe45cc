/// What becomes of metrics and attributes. The defaults are those of Prometheus' receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    pub naming: Naming,
    pub promoted: Promoted,
    /// Whether `target_info` also has the attributes that `job` and `instance` are made of.
    pub keeps_identifying: bool,
    /// Whether each resource gets a series `target_info` with its attributes.
    pub has_target_info: bool,
    /// Whether each series gets labels with name, version, schema and attributes of its scope.
    pub has_scope_labels: bool,
    pub delta: Delta,
    /// Exponential histograms become classic ones with 2 to the power of this many buckets per power of two. At most
    /// [`Self::SCALE_MAX`].
    pub scale: i32,
}

/// How metrics and attributes are named. These are the strategies of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// `UnderscoreEscapingWithSuffixes`: in metrics, runs of characters other than ASCII letters, digits and `:` become
    /// one `_`; in attributes, each character other than ASCII letters and digits becomes `_`; metrics get suffixes for
    /// their unit and type.
    EscapedWithSuffixes,
    /// `UnderscoreEscapingWithoutSuffixes`: the same, but metrics keep their underscores and get no suffixes.
    Escaped,
    /// `NoUTF8EscapingWithSuffixes`.
    WithSuffixes,
    /// `NoTranslation`: all names stay as they are.
    Unchanged,
}

impl Naming {
    pub(super) const fn escapes(self) -> bool {
        matches!(self, Self::EscapedWithSuffixes | Self::Escaped)
    }
}

/// Attributes of resources that become labels of each series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Promoted {
    All,
    These(Vec<Box<str>>),
}

impl Promoted {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::These(keys) => keys.iter().any(|promoted| promoted.as_bytes() == key),
        }
    }
}

/// What becomes of sums and histograms whose points are differences to the previous point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta {
    /// They are added up, so that each series has the values of a cumulative one.
    Accumulated,
    Refused,
    /// They are stored as they are sent.
    Kept,
}

impl Translation {
    pub const SCALE_MAX: i32 = model::exponential::SCALE_MAX;
}

impl Default for Translation {
    fn default() -> Self {
        Self {
            naming: Naming::EscapedWithSuffixes,
            promoted: Promoted::These(Vec::new()),
            keeps_identifying: false,
            has_target_info: true,
            has_scope_labels: false,
            delta: Delta::Accumulated,
            scale: 1,
        }
    }
}
