//! Ranges of metric names that a large day is divided into, so that each can be merged separately.
//!
//! ```text
//!   names         a        f        m        s        z
//!   large files   [=======][=======][=======][=======]    made by one job, side by side
//!   cuts                   ▲        ▲        ▲
//!   narrow files  [-------][-------][-------][-------]    made by jobs that were cut there
//!   wide files    [----------------------------------]    as sealed, or merged before there were cuts
//! ```
//!
//! Cuts are not stored: they follow from the live files. A small day has no cuts and is one range. Cuts only decide how work is
//! divided; whether files may be merged depends only on names and order.

use crate::live_file::LiveFile;

/// Position of a file among the ranges of its day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// The file is within one range.
    In(usize),
    /// The file spans more than one range.
    Wide,
}

/// The ranges of a day.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Names at which the ranges begin, except for the first.
    pub(super) cuts: Vec<String>,
}

impl Ranges {
    /// Cuts a day into as many ranges as it has files of at least `large_bytes` that do not overlap.
    pub(super) fn of(day: &[LiveFile], large_bytes: u64) -> Self {
        let large = day.iter().filter(|f| f.bytes >= large_bytes);
        let mut large: Vec<(&str, &str)> = large.filter_map(names).collect();
        // taking the file that ends first yields the most files that do not overlap
        large.sort_unstable_by_key(|(_, last)| *last);
        let (mut cuts, mut end) = (Vec::new(), None);
        for (first, last) in &large {
            if let Some(end) = end {
                if *first <= end {
                    continue;
                }
                let begins = large.iter().map(|(first, _)| *first).filter(|first| *first > end).min();
                cuts.push(begins.expect("BUG: no file begins the next range").into());
            }
            end = Some(*last);
        }
        Self { cuts }
    }

    /// All places. The place of wide files comes first, because the other places wait for it.
    pub(super) fn places(&self) -> impl Iterator<Item = Placement> + use<> {
        std::iter::once(Placement::Wide).chain((0..=self.cuts.len()).map(Placement::In))
    }

    /// Position of a file. A file without known names may hold any name.
    pub(super) fn place(&self, file: &LiveFile) -> Placement {
        let range = |name: &str| self.cuts.partition_point(|cut| cut.as_str() <= name);
        match names(file) {
            Some((first, last)) if range(first) == range(last) => Placement::In(range(first)),
            None if self.cuts.is_empty() => Placement::In(0),
            _ => Placement::Wide,
        }
    }
}

/// First and last name of a set of files; `None` if they may have any name.
pub(super) struct NameRange<'a>(Option<(&'a str, &'a str)>);

impl<'a> NameRange<'a> {
    pub(super) fn of(files: &[&'a LiveFile]) -> Self {
        let mut all = files.iter().map(|file| names(file));
        let first = all.next().flatten();
        let wider = |(first, last): (&'a str, &'a str), other: Option<(&'a str, &'a str)>| {
            other.map(|(f, l)| (first.min(f), last.max(l)))
        };
        Self(first.and_then(|first| all.try_fold(first, wider)))
    }

    /// True if a file may have one of the names.
    pub(super) fn overlaps(&self, file: &LiveFile) -> bool {
        self.0.zip(names(file)).is_none_or(|((first, last), (f, l))| first <= l && f <= last)
    }
}

fn names(file: &LiveFile) -> Option<(&str, &str)> {
    file.names.as_ref().map(|(first, last)| (first.as_str(), last.as_str()))
}
