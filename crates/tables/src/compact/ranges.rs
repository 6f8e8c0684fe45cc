//! Divides a large day into ranges of metric names, which are merged separately.
//!
//! ```text
//!   names         a        f        m        s        z
//!   large files   [=======][=======][=======][=======]    made by one job, side by side
//!   cuts                   ▲        ▲        ▲
//!   narrow files  [-------][-------][-------][-------]    made by jobs that were cut there
//!   wide files    [----------------------------------]    as sealed, or merged before there were cuts
//! ```
//!
//! Cuts are not stored: they follow from the live files. A small day is one range. Cuts only divide work; names and
//! order decide whether files may be merged.

use crate::live_file::LiveFile;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// The file is within the range with this index.
    In(usize),
    /// The file spans more than one range.
    Wide,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// First name of each range, except for the first range.
    pub(super) cuts: Vec<String>,
}

impl Ranges {
    /// Makes a range for each file of at least `large_bytes`. Of files that overlap, only one gets a range.
    pub(super) fn of(day: &[LiveFile], large_bytes: u64) -> Self {
        let large = day.iter().filter(|f| f.bytes >= large_bytes);
        let mut large: Vec<(&str, &str)> = large.filter_map(names).collect();
        // taking the file that ends first leaves room for the largest number of other files
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

    /// Returns all placements. The wide one comes first, because files written before a wide file cannot be merged with
    /// files written after it.
    pub(super) fn places(&self) -> impl Iterator<Item = Placement> + use<> {
        std::iter::once(Placement::Wide).chain((0..=self.cuts.len()).map(Placement::In))
    }

    /// A file whose names are unknown may hold any name, so it is wide if there is more than one range.
    pub(super) fn place(&self, file: &LiveFile) -> Placement {
        let range = |name: &str| self.cuts.partition_point(|cut| cut.as_str() <= name);
        match names(file) {
            Some((first, last)) if range(first) == range(last) => Placement::In(range(first)),
            None if self.cuts.is_empty() => Placement::In(0),
            _ => Placement::Wide,
        }
    }
}

/// First and last metric name of several files, or `None` if one file's names are unknown: it may then hold any name.
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

    pub(super) fn overlaps(&self, file: &LiveFile) -> bool {
        self.0.zip(names(file)).is_none_or(|((first, last), (f, l))| first <= l && f <= last)
    }
}

fn names(file: &LiveFile) -> Option<(&str, &str)> {
    file.names.as_ref().map(|(first, last)| (first.as_str(), last.as_str()))
}
