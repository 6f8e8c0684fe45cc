//! A setting, declared once. Its flag, its environment variable, its key in the file, its checks, its help and its row in the
//! reference follow from the declaration.

use stdx::units::bytes_text;

/// The declaration of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Key in the configuration file. `seal_after` is also `--seal-after` and `FLOODMARK_SEAL_AFTER`.
    pub key: &'static str,
    /// Heading in the help and in the reference.
    pub group: &'static str,
    /// Kind of value.
    pub takes: Takes,
    pub default: DefaultValue,
    /// One phrase, for the help and the reference.
    pub about: &'static str,
    /// Sentences for the reference alone, in Markdown.
    pub why: &'static str,
    /// True if the short help lists it.
    pub is_common: bool,
    /// True if it is allowed in `[tenant.NAME]`.
    pub is_per_tenant: bool,
    /// True if a value may contain a password.
    pub(super) is_secret: bool,
    /// Least and greatest number.
    pub(super) bounds: Option<(u64, u64)>,
    /// The word for no value, where there may be none.
    pub(super) none: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// A fixed text, read like any that is given.
    Fixed(&'static str),
    /// A value that follows from the machine or from other settings, in this way.
    Derived(&'static str),
}

/// Kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// A path of a directory.
    Directory,
    /// A path of a file.
    File,
    /// An address and a port.
    Address,
    Url,
    /// Bytes: `2GiB`.
    Size,
    /// A time span: `1h30m`.
    Duration,
    /// A whole number.
    Count,
    /// The name of a label.
    Label,
    /// The name of a tenant.
    Tenant,
    /// Names, separated by commas; an array in the file.
    Names,
    /// Durations, likewise.
    Durations,
    /// One of a few words, each with what it means.
    Word(&'static [(&'static str, &'static str)]),
}

impl Takes {
    /// Placeholder of the value in usage: `DURATION`.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Directory => "DIR",
            Self::File => "FILE",
            Self::Address => "ADDR",
            Self::Url => "URL",
            Self::Size => "SIZE",
            Self::Duration => "DURATION",
            Self::Count => "COUNT",
            Self::Label => "LABEL",
            Self::Tenant => "TENANT",
            Self::Names => "NAMES",
            Self::Durations => "DURATIONS",
            Self::Word(_) => "WORD",
        }
    }

    /// The possible words, or none.
    pub const fn words(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Word(words) => words,
            _ => &[],
        }
    }
}

impl Setting {
    /// `--seal-after`
    pub fn flag(&self) -> String {
        format!("--{}", self.key.replace('_', "-"))
    }

    /// `FLOODMARK_SEAL_AFTER`
    pub fn variable(&self) -> String {
        format!("FLOODMARK_{}", self.key.to_ascii_uppercase())
    }

    /// Bounds of a number, such as `1 to 1024` or `at least 64MiB`.
    pub fn bounds_text(&self) -> Option<String> {
        let text = |number: u64| match self.takes {
            Takes::Size => bytes_text(number),
            _ => number.to_string(),
        };
        self.bounds.map(|(least, most)| match most {
            u64::MAX => format!("at least {}", text(least)),
            most => format!("{} to {}", text(least), text(most)),
        })
    }

    /// The reason why `number` is out of bounds, if it is.
    pub(super) fn check(&self, number: u64) -> Result<(), String> {
        let is_in = self.bounds.is_none_or(|(least, most)| (least..=most).contains(&number));
        if is_in { Ok(()) } else { Err(format!("must be {}", self.bounds_text().unwrap_or_default())) }
    }
}
