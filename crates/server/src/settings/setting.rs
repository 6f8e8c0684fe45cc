//! Declaration of a setting. Its flag, variable, key, checks, help and row in the reference follow from it.

use stdx::units::bytes_text;

#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Key in the configuration file, such as `seal_after`.
    pub key: &'static str,
    /// Heading in the help and in the reference.
    pub group: &'static str,
    pub takes: Takes,
    pub default: DefaultValue,
    /// Description in one phrase, for the help and the reference.
    pub about: &'static str,
    /// Further sentences for the reference, in Markdown.
    pub why: &'static str,
    /// True if the short help lists it.
    pub is_common: bool,
    /// True if the setting is allowed in `[tenant.NAME]` and `[class.NAME]`.
    pub is_per_tenant: bool,
    pub(super) is_secret: bool,
    pub(super) bounds: Option<(u64, u64)>,
    /// Word that stands for no value, if the setting is optional.
    pub(super) none: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// A fixed text, parsed like a given value.
    Fixed(&'static str),
    /// A value derived from the machine or from other settings, with an explanation.
    Derived(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Directory,
    File,
    Address,
    Url,
    /// Size in bytes, such as `2GiB`.
    Size,
    /// Duration, such as `1h30m`.
    Duration,
    Count,
    Label,
    Tenant,
    /// Names, separated by commas; an array in the file.
    Names,
    /// Durations, separated by commas; an array in the file.
    Durations,
    /// One of these words, each given with its meaning.
    Word(&'static [(&'static str, &'static str)]),
}

impl Takes {
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

    /// Permitted words with their meanings; empty unless the value is a word.
    pub const fn words(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Word(words) => words,
            _ => &[],
        }
    }
}

impl Setting {
    pub fn flag(&self) -> String {
        format!("--{}", self.key.replace('_', "-"))
    }

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

    /// Checks that `number` is within bounds. The error states the bounds.
    pub(super) fn check(&self, number: u64) -> Result<(), String> {
        let is_in = self.bounds.is_none_or(|(least, most)| (least..=most).contains(&number));
        if is_in { Ok(()) } else { Err(format!("must be {}", self.bounds_text().unwrap_or_default())) }
    }
}
