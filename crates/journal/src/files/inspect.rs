//! Inspects segment files for `floodmark inspect` and `floodmark import`. A server may be writing them at the same time.

use super::identity::IdentityFile;
use super::scan::{Scanner, Step};
use super::segment::{self, Headers, RECORDS_START};
use super::window::Window;
use crate::disk::{Disk, Os};
use crate::record::Record;
use crate::{DictionaryId, JournalError, JournalId, Offset};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Damaged ranges beyond this number are counted, but not listed.
pub const DAMAGE_LISTED_MAX: usize = 100;

const SEGMENTS_MAX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    pub path: PathBuf,
    pub offsets: Range<u64>,
    /// Dictionary of the records. `None` if both copies of the segment's header are damaged.
    pub dictionary: Option<DictionaryId>,
    pub records: u64,
    pub series: u64,
    pub samples: u64,
    /// Records whose checksums are right, but which this version cannot decode.
    pub unreadable: u64,
    /// Length up to the end of the last record. The file may be longer, because space is allocated ahead.
    pub bytes: u64,
    pub file_bytes: u64,
    pub damaged: u64,
    /// The first damaged ranges: their bytes, the offsets of the lost records, and what is damaged.
    pub damage: Vec<(Range<u64>, Range<u64>, &'static str)>,
}

pub fn partitions(dir: &Path) -> Result<Vec<u32>, JournalError> {
    let in_dir = |e| JournalError::io("list", dir, e);
    let mut partitions = Vec::new();
    for entry in Os.list(dir, SEGMENTS_MAX).map_err(in_dir)? {
        partitions.extend(entry.name.parse::<u32>().ok());
    }
    partitions.sort_unstable();
    Ok(partitions)
}

pub fn inspect(dir: &Path, partition: u32, mut each: impl FnMut(SegmentReport)) -> Result<(), JournalError> {
    each_segment(dir, partition, |dir, first, end| {
        each(report(dir, partition, first, end)?);
        Ok(())
    })
}

/// The identity of a partition's journal. `None` if it cannot be read.
pub fn id(dir: &Path, partition: u32) -> Result<Option<JournalId>, JournalError> {
    let number = IdentityFile::find(&Os, &segment::partition_dir(dir, partition))?;
    Ok(number.map(|number| JournalId { number, partition }))
}

/// Calls `each` with the records of a partition, their offsets and their dictionaries, in the order of the journal. What is
/// damaged or cannot be decoded is left out.
pub fn records(
    dir: &Path,
    partition: u32,
    mut each: impl FnMut(Offset, DictionaryId, &Record),
) -> Result<(), JournalError> {
    let mut record = Record::new();
    each_segment(dir, partition, |dir, first, end| {
        let mut window = Window::open(&Os, &segment::path(dir, first))?;
        let Some(header) = Headers::read(&mut window, partition, first)?.header else { return Ok(()) };
        let mut scanner = Scanner::new(window, header.salt, first, end);
        loop {
            match scanner.step()? {
                Step::Record { offset } => {
                    if record.decode(scanner.payload()?).is_ok() {
                        each(Offset(offset), DictionaryId(header.salt), &record);
                    }
                }
                Step::Damage(_) => {}
                Step::End { .. } => return Ok(()),
            }
        }
    })
}

/// Calls `each` for each segment of a partition: with the partition's directory, the segment's first offset, and the first offset of the
/// next segment, if there is one. Segments that the server deletes meanwhile are skipped.
fn each_segment(
    dir: &Path,
    partition: u32,
    mut each: impl FnMut(&Path, u64, Option<u64>) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let dir = segment::partition_dir(dir, partition);
    let in_dir = |e| JournalError::io("list", &dir, e);
    let mut firsts = Vec::new();
    for entry in Os.list(&dir, SEGMENTS_MAX).map_err(in_dir)? {
        firsts.extend(segment::first_of(&entry.name).map(|first| first.0));
    }
    firsts.sort_unstable();
    for (i, first) in firsts.iter().enumerate() {
        match each(&dir, *first, firsts.get(i + 1).copied()) {
            // the server has dropped this segment since the directory was listed
            Err(JournalError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

fn report(dir: &Path, partition: u32, first: u64, end: Option<u64>) -> Result<SegmentReport, JournalError> {
    let path = segment::path(dir, first);
    let mut window = Window::open(&Os, &path)?;
    let headers = Headers::read(&mut window, partition, first)?;
    let mut report = SegmentReport {
        path,
        offsets: first..end.unwrap_or(first),
        dictionary: headers.header.map(|h| DictionaryId(h.salt)),
        records: 0,
        series: 0,
        samples: 0,
        unreadable: 0,
        bytes: RECORDS_START.min(window.len()),
        file_bytes: window.len(),
        damaged: headers.damaged.len() as u64,
        damage: Vec::new(),
    };
    report.damage.extend(
        headers
            .damaged
            .iter()
            .map(|at| (*at..*at + RECORDS_START / 2, 0..0, "a damaged copy of the segment's header")),
    );
    let Some(header) = headers.header else { return Ok(report) };
    let mut scanner = Scanner::new(window, header.salt, first, end);
    let mut record = Record::new();
    loop {
        match scanner.step()? {
            Step::Record { .. } => {
                report.records += 1;
                match record.decode(scanner.payload()?) {
                    Ok(()) => {
                        report.series += record.definitions.len() as u64;
                        report.samples += record.timestamps.len() as u64;
                    }
                    Err(_) => report.unreadable += 1,
                }
            }
            Step::Damage(hole) => {
                report.damaged += 1;
                if report.damage.len() < DAMAGE_LISTED_MAX {
                    report.damage.push((hole.bytes, hole.lost, hole.what));
                }
            }
            Step::End { at } => {
                report.bytes = at;
                report.offsets.end = scanner.next_offset();
                return Ok(report);
            }
        }
    }
}
