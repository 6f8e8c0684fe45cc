//! Declaration of a setting. Its flag, variable, key, checks, help and row in the reference follow from it.

use stdx::units::bytes_text;

#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Name of the setting in the configuration file, such as `seal_after`.
    pub key: &'static str,
    /// Heading under which the help and the reference list the setting.
    pub group: &'static str,
    pub takes: Takes,
    pub default: DefaultValue,
    /// Describes the setting in one phrase, for the help and the reference.
    pub about: &'static str,
    /// Further explanation for the reference, in Markdown.
    pub why: &'static str,
    pub is_common: bool,
    /// True if the setting may be given for single tenants or classes, in `[tenant.NAME]` or `[class.NAME]`.
    pub is_per_tenant: bool,
    pub(super) is_secret: bool,
    pub(crate) bounds: Option<(u64, u64)>,
    /// The word for having no value, if the setting is optional.
    pub(super) none: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// The default is this text, which is parsed like a value that the user has set.
    Fixed(&'static str),
    /// The value depends on the machine or on other settings, as the text explains.
    Derived(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Directory,
    File,
    Address,
    Url,
    Size,
    Duration,
    Count,
    Label,
    Tenant,
    /// Names separated by commas. In the file, they are an array.
    Names,
    /// Durations separated by commas. In the file, they are an array.
    Durations,
    /// Addresses and networks, separated by commas. In the file, they are an array.
    Networks,
    /// Addresses with the tenant of each, separated by commas. In the file, they are an array.
    TenantAddresses,
    /// One of these words. The second text explains the word.
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
            Self::Networks => "NETWORKS",
            Self::TenantAddresses => "ADDR=TENANT",
            Self::Word(_) => "WORD",
        }
    }

    /// Returns the permitted words with their meanings, or nothing if the setting takes other values.
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

    /// Writes the bounds of a number, such as `1 to 1024` or `at least 64MiB`.
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

    pub(super) fn check(&self, number: u64) -> Result<(), String> {
        let is_in = self.bounds.is_none_or(|(least, most)| (least..=most).contains(&number));
        if is_in { Ok(()) } else { Err(format!("must be {}", self.bounds_text().unwrap_or_default())) }
    }
}
