//! The bytes of a file of events: a line for the header, then a line for each event in the order of arrival.
//!
//! ```text
//!   3c1f0a77 {"version":1,"next_id":1}
//!   90b2e6d1 {"id":1,"when_ms":1795284000000,"what":"deploy","tags":"web eu","data":""}
//!   └ CRC-32C of the JSON after it
//! ```
//!
//! A line that is not valid is damaged, and is skipped. Only the last line may be unfinished, without a `\n`: its write
//! was interrupted before it was acknowledged.

use super::EventsError;
use journal::disk::DiskFile;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

pub(super) const VERSION: u64 = 1;

pub(super) const EXTENSION: &str = "events";

/// Longest line. Text in JSON takes at most twice the bytes of the request, unless a request writes numbers in an unusual
/// way.
pub(super) const RECORD_BYTES_MAX: usize = 2 * super::BODY_BYTES_MAX;

/// A full file has room for a new event after a quarter of it was removed.
const _: () = assert!(4 * RECORD_BYTES_MAX as u64 <= 2 * super::FILE_BYTES_MIN);

/// Length of the shortest line of an event.
pub(super) const LINE_BYTES_MIN: u64 = 60;

/// No file gets that many ids. A larger one in a damaged header is not believed.
const DAMAGED_ID_MAX: u64 = 1 << 53;

/// The end of the year 9999.
pub(crate) const WHEN_MS_MAX: i64 = 253_402_300_799_999;

const READ_BYTES: usize = 64 << 10;

/// Hexadecimal digits of the checksum.
const CHECK_BYTES: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u64,
    /// Ids below were given to events, which may have been removed.
    next_id: u64,
}

/// An event as it is stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record<'a> {
    pub(crate) id: u64,
    pub(crate) when_ms: i64,
    #[serde(borrow)]
    pub(crate) what: Cow<'a, str>,
    /// Separated by spaces.
    #[serde(borrow)]
    pub(crate) tags: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) data: Cow<'a, str>,
}

/// Where an event is in its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(super) at: u64,
    pub(super) bytes: u32,
}

/// A line that has an event.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) place: Place,
    pub(super) text: &'a [u8],
    pub(super) record: Record<'a>,
}

/// What is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contents {
    /// Larger than all ids that were used, also those of lost events as far as it can be known.
    pub(super) next_id: u64,
    /// End of the last valid line. 0 if the file has no valid line.
    pub(super) end_bytes: u64,
    /// Number of damaged lines.
    pub(super) damaged: u64,
    /// Length of a last line that is unfinished.
    pub(super) unfinished_bytes: u64,
    /// Time of the oldest event.
    pub(super) oldest_ms: i64,
}

impl Default for Contents {
    fn default() -> Self {
        Self { next_id: 1, end_bytes: 0, damaged: 0, unfinished_bytes: 0, oldest_ms: i64::MAX }
    }
}

pub(super) fn header(next_id: u64) -> Vec<u8> {
    line_of(&Header { version: VERSION, next_id })
}

pub(super) fn encode(record: &Record<'_>) -> Vec<u8> {
    line_of(record)
}

fn line_of(content: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(content).expect("BUG: numbers and texts are always JSON");
    let mut line = format!("{:08x} ", crc32c::crc32c(&json)).into_bytes();
    line.extend_from_slice(&json);
    line.push(b'\n');
    line
}

/// The JSON of a line, if its checksum is right.
fn checked(line: &[u8]) -> Option<&[u8]> {
    checked_without_end(line.strip_suffix(b"\n")?)
}

fn checked_without_end(line: &[u8]) -> Option<&[u8]> {
    let (check, rest) = line.split_at_checked(CHECK_BYTES)?;
    let json = rest.strip_prefix(b" ")?;
    let check = u32::from_str_radix(std::str::from_utf8(check).ok()?, 16).ok()?;
    (check == crc32c::crc32c(json)).then_some(json)
}

fn record_of(line: &[u8]) -> Option<Record<'_>> {
    let record: Record<'_> = serde_json::from_slice(checked(line)?).ok()?;
    let is_valid = (0..=WHEN_MS_MAX).contains(&record.when_ms) && i64::try_from(record.id).is_ok();
    is_valid.then_some(record)
}

/// True if all bytes of a line that is not valid were written, so that they are damaged.
fn is_finished(line: &[u8]) -> bool {
    let ends = line.ends_with(b"\n") || line.len() >= RECORD_BYTES_MAX;
    ends || line.split_last().is_some_and(|(_, without_end)| checked_without_end(without_end).is_some())
}

/// The first free id according to a header that is not valid.
fn damaged_next_id(line: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"next_id\":";
    let at = line.windows(KEY.len()).position(|bytes| bytes == KEY)?;
    let digits = line[at + KEY.len()..].split(|byte| !byte.is_ascii_digit()).next()?;
    let next_id = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (next_id <= DAMAGED_ID_MAX).then_some(next_id)
}

/// Lines that are not valid and follow each other.
#[derive(Debug, Default)]
struct Invalid {
    lines: u64,
    is_finished: bool,
}

/// Reads a file from its begin, and passes each event to `each`.
pub(super) fn scan(
    file: &dyn DiskFile,
    path: &Path,
    each: impl FnMut(Line<'_>) -> Result<(), EventsError>,
) -> Result<Contents, EventsError> {
    scan_all(file, path, each, |_| Ok(()))
}

/// Like [`scan`], and passes each line that is not valid to `lost`.
pub(super) fn scan_all(
    file: &dyn DiskFile,
    path: &Path,
    mut each: impl FnMut(Line<'_>) -> Result<(), EventsError>,
    mut lost: impl FnMut(&[u8]) -> Result<(), EventsError>,
) -> Result<Contents, EventsError> {
    let mut reader = BufReader::with_capacity(READ_BYTES, Sequential { file, at: 0 });
    let (mut contents, mut text, mut at, mut invalid) =
        (Contents::default(), Vec::new(), 0, Invalid::default());
    loop {
        text.clear();
        let read = (&mut reader).take(RECORD_BYTES_MAX as u64).read_until(b'\n', &mut text);
        let read = read.map_err(|source| EventsError::Io { path: path.into(), source })?;
        if read == 0 {
            break;
        }
        if let Some(record) = record_of(&text) {
            contents.next_id = contents.next_id.max(record.id + 1);
            contents.oldest_ms = contents.oldest_ms.min(record.when_ms);
            each(Line { place: Place { at, bytes: read as u32 }, text: &text, record })?;
        } else if at == 0
            && let Some(Header { version, next_id }) =
                checked(&text).and_then(|json| serde_json::from_slice(json).ok())
        {
            if version != VERSION {
                return Err(EventsError::Version { path: path.into(), version });
            }
            contents.next_id = next_id.min(i64::MAX as u64);
        } else {
            if at == 0 {
                contents.next_id = damaged_next_id(&text).unwrap_or(0).max(contents.next_id);
            }
            invalid.lines += 1;
            invalid.is_finished |= is_finished(&text);
            lost(&text)?;
            at += read as u64;
            continue;
        }
        contents.damaged += std::mem::take(&mut invalid).lines;
        at += read as u64;
        contents.end_bytes = at;
    }
    let end_bytes = at - contents.end_bytes;
    if invalid.is_finished {
        contents.damaged += invalid.lines;
        // without damage, the events of these lines would have the ids that follow
        contents.next_id += end_bytes.div_ceil(LINE_BYTES_MIN);
    } else {
        contents.unfinished_bytes = end_bytes;
    }
    Ok(contents)
}

/// Reads one event. `None` if the place has no valid one.
pub(super) fn read<'b>(
    file: &dyn DiskFile,
    place: Place,
    buffer: &'b mut Vec<u8>,
) -> io::Result<Option<Record<'b>>> {
    buffer.clear();
    let from = Sequential { file, at: place.at };
    from.take(place.bytes.into()).read_to_end(buffer)?;
    Ok(record_of(buffer))
}

/// A file that is read from one place on.
struct Sequential<'f> {
    file: &'f dyn DiskFile,
    at: u64,
}

impl Read for Sequential<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
