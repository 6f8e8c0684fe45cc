//! Names of data files. A name shows which program wrote the file, whether the file may be swept, and its place in the
//! order of writes ([`is_own`], [`is_early`]).
//!
//! ```text
//!   sealed                 32 hexadecimal digits  -N.parquet
//!   merged or rolled up    16 hexadecimal digits  -N.parquet
//!   imported               import-SOURCE-ATTEMPT  -N.parquet
//!   merged from early      early- and as above    -N.parquet
//!   without deleted rows   applied-SEQUENCE- and a stem of 16 digits; for early files, early- comes first
//! ```
//!
//! Other engines' names begin with `part-`, or with a UUID or a time and several numbers.

use std::fmt;

const IMPORT: &str = "import-";

/// Prefix of files merged only from early files.
const EARLY: &str = "early-";

/// Prefix of files without deleted rows. The sequence of the last applied tombstone follows, in hexadecimal digits.
const APPLIED: &str = "applied-";

const SUFFIX: &str = ".parquet";

/// Number of digits at the start of a sealed file's name.
const SEALED_DIGITS: usize = 32;
/// Number of digits at the start of a merged file's name.
const REWRITTEN_DIGITS: usize = 16;

/// Common beginning of the names of all files that one attempt writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStem(String);

impl FileStem {
    /// Stem of a block's files. `attempt` must be new.
    pub fn sealed(attempt: u128) -> Self {
        Self(format!("{attempt:0SEALED_DIGITS$x}"))
    }

    /// Stem of files of a merge or rollup. `attempt` must be new.
    pub fn rewritten(attempt: u64) -> Self {
        Self(format!("{attempt:0REWRITTEN_DIGITS$x}"))
    }

    /// Stem of an import's files. `attempt` must be new.
    pub fn imported(source: &str, attempt: u64) -> Self {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        assert!(source.bytes().all(is_plain), "BUG: a source's name has a character that paths encode");
        Self(format!("{IMPORT}{source}-{attempt:016x}"))
    }

    /// Stem of files that are the result of merging only early files.
    #[must_use]
    pub(crate) fn early(&self) -> Self {
        Self(format!("{EARLY}{self}"))
    }

    /// Stem of files to which tombstones up to `sequence` were applied.
    #[must_use]
    pub(crate) fn applied(&self, sequence: i64) -> Self {
        Self(format!("{APPLIED}{sequence:0REWRITTEN_DIGITS$x}-{self}"))
    }

    pub(crate) fn file(&self, number: u32) -> String {
        format!("{self}-{number}{SUFFIX}")
    }

    /// True if the file's name consists of `stem`, a hyphen, and more.
    pub(crate) fn covers(stem: &str, name: &str) -> bool {
        name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-'))
    }
}

impl fmt::Display for FileStem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) fn is_data(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// True for all names that this version, or an earlier one, gives to files.
pub(crate) fn is_own(name: &str) -> bool {
    let Some((stem, number)) = name.strip_suffix(SUFFIX).and_then(|name| name.rsplit_once('-')) else {
        return false;
    };
    let stem = stem.strip_prefix(EARLY).unwrap_or(stem);
    let stem = split_applied(stem).map_or(stem, |(_, stem)| stem);
    let is_stem = stem.starts_with(IMPORT)
        || matches!(stem.len(), SEALED_DIGITS | REWRITTEN_DIGITS) && stem.bytes().all(is_hex);
    is_stem && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

/// True if a file counts as written before all files that are not early: another engine wrote it, or it was merged from
/// early files.
pub(crate) fn is_early(path: &str) -> bool {
    let name = file_name(path);
    name.starts_with(EARLY) || !is_own(name)
}

/// Sequence of the last applied tombstone according to the file's name, or 0.
pub(crate) fn applied(path: &str) -> i64 {
    let name = file_name(path);
    if !is_own(name) {
        return 0;
    }
    split_applied(name.strip_prefix(EARLY).unwrap_or(name)).map_or(0, |(sequence, _)| sequence)
}

/// The stem and the number of a file of our own. An attempt numbers its files in the order in which it begins them.
pub(crate) fn numbered(path: &str) -> (&str, u32) {
    let name = file_name(path);
    let (stem, number) =
        name.strip_suffix(SUFFIX).and_then(|name| name.rsplit_once('-')).unwrap_or((name, ""));
    (stem, number.parse().unwrap_or(0))
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Splits a name that begins with [`APPLIED`] into the sequence of the last applied tombstone and the rest of the
/// name. `None` for other names.
fn split_applied(name: &str) -> Option<(i64, &str)> {
    let (digits, rest) = name.strip_prefix(APPLIED)?.split_at_checked(REWRITTEN_DIGITS)?;
    let rest = rest.strip_prefix('-')?;
    let sequence = i64::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(is_hex))?;
    Some((sequence, rest))
}

const fn is_hex(b: u8) -> bool {
    b.is_ascii_digit() || matches!(b, b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stem_gives_names_of_our_own() {
        let stems = [
            FileStem::sealed(0),
            FileStem::sealed(u128::MAX),
            FileStem::rewritten(0),
            FileStem::rewritten(u64::MAX),
            FileStem::imported("01JDBXQ5E8", 7),
            FileStem::imported("9f86d081884c7d659a2feaa0c55ad015", u64::MAX),
        ];
        for stem in stems {
            for number in [0, 1, u32::MAX] {
                let name = stem.file(number);
                assert!(
                    is_own(&name) && is_data(&name) && FileStem::covers(&stem.to_string(), &name),
                    "{name}"
                );
                assert_eq!(numbered(&format!("date=2026-11-21/{name}")), (stem.to_string().as_str(), number));
                let early = stem.early().file(number);
                assert!(is_own(&early) && is_early(&early) && !is_early(&format!("date=2026-11-21/{name}")));
                assert_eq!((applied(&name), applied(&early)), (0, 0));
                for sequence in [0, 1_777_000_000_000, i64::MAX] {
                    let name = stem.applied(sequence).file(number);
                    assert!(is_own(&name) && !is_early(&name), "{name}");
                    assert_eq!(applied(&format!("date=2026-11-21/{name}")), sequence);
                    let early = stem.applied(sequence).early().file(number);
                    assert!(is_own(&early) && is_early(&early) && applied(&early) == sequence, "{early}");
                }
            }
        }
        // names in the form of earlier imports
        assert!(is_own("import-01JDBXQ5E8-00000000000000ff-0-12.parquet"));
    }

    #[test]
    fn names_that_other_engines_give_are_not_our_own() {
        let others = [
            // Spark, deltalake, the Delta kernel, DuckDB, Trino
            "part-00000-5f6ab1c8-0b1e-4d8e-9f0c-2f3a4b5c6d7e.c000.snappy.parquet",
            "part-00000-5f6ab1c8-0b1e-4d8e-9f0c-2f3a4b5c6d7e-c000.zstd.parquet",
            "5f6ab1c8-0b1e-4d8e-9f0c-2f3a4b5c6d7e.parquet",
            "duckdb-5f6ab1c8-0b1e-4d8e-9f0c-2f3a4b5c6d7e.parquet",
            "20261121_101112_00004_abcde_5f6ab1c8-0b1e-4d8e-9f0c-2f3a4b5c6d7e.parquet",
            // names that are nearly ours
            "0123456789abcdef.parquet",
            "0123456789abcdef-.parquet",
            "0123456789abcdef-x.parquet",
            "0123456789ABCDEF-1.parquet",
            "0123456789abcde-1.parquet",
            "0123456789abcdef-1.orc",
            "applied-0123456789abcde-0123456789abcdef-1.parquet",
            "applied-0123456789abcdef-1.parquet",
            "applied-ffffffffffffffff-0123456789abcdef-1.parquet",
            "applied-+123456789abcdef-0123456789abcdef-1.parquet",
            "-1.parquet",
            "",
        ];
        for name in others {
            assert!(!is_own(name) && is_early(name) && applied(name) == 0, "{name}");
        }
    }
}
