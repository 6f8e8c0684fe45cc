use super::quarantine::Quarantine;
use super::scan::{Hole, Scanner, Step};
use super::segment::{self, HEADER_COPIES, Headers, RECORDS_START};
use super::window::Window;
use crate::disk::Disk;
use crate::{Damage, DictionaryId, Entry, Item, JournalError, Offset, Reader};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Reads the records of all segments in order. Segments that are created later are not read.
#[derive(Debug)]
pub(super) struct SegmentsReader {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) partition: u32,
    pub(super) from: u64,
    /// The offsets of the records in each segment that was not read yet.
    pub(super) segments: VecDeque<Range<u64>>,
    pub(super) quarantine: Arc<Quarantine>,
    pub(super) current: Option<Current>,
}

#[derive(Debug)]
pub(super) struct Current {
    first: u64,
    scanner: Scanner,
    dictionary: DictionaryId,
    /// Positions of damaged copies of the segment's header that were not reported yet.
    damaged_headers: Vec<u64>,
}

impl Reader for SegmentsReader {
    fn next(&mut self) -> Result<Option<Item<'_>>, JournalError> {
        let (offset, dictionary) = loop {
            let Some(current) = &mut self.current else {
                let Some(segment) = self.segments.pop_front() else { return Ok(None) };
                if let Some(damage) = self.open(segment)? {
                    return Ok(Some(Item::Damage(damage)));
                }
                continue;
            };
            if let Some(at) = current.damaged_headers.pop() {
                let hole = Hole {
                    bytes: at..at + RECORDS_START / HEADER_COPIES.len() as u64,
                    lost: 0..0,
                    acknowledged: false,
                    repaired: false,
                    what: "a damaged copy of the segment's header",
                };
                let damage = self.quarantine.put(current.scanner.window(), hole);
                return Ok(Some(Item::Damage(damage)));
            }
            match current.scanner.step()? {
                Step::Record { offset } if offset >= self.from => break (offset, current.dictionary),
                Step::Record { .. } => {}
                Step::Damage(hole) => {
                    let damage = self.quarantine.put(current.scanner.window(), hole);
                    return Ok(Some(Item::Damage(damage)));
                }
                Step::End { .. } => self.current = None,
            }
        };
        let current = self.current.as_mut().expect("BUG: a record was read without a segment");
        let payload = current.scanner.payload()?;
        Ok(Some(Item::Entry(Entry { offset: Offset(offset), dictionary, payload })))
    }

    fn quarantine(&mut self, what: &'static str) -> Damage {
        let current = self.current.as_mut().expect("BUG: the last item was not a record");
        let hole = current.scanner.unreadable(what);
        self.quarantine.keep(current.first);
        self.quarantine.put(current.scanner.window(), hole)
    }
}

impl SegmentsReader {
    /// Opens a segment. Returns damage if nothing in it can be read.
    fn open(&mut self, segment: Range<u64>) -> Result<Option<Damage>, JournalError> {
        let path = segment::path(&self.dir, segment.start);
        let mut window = match Window::open(&*self.disk, &path) {
            Ok(window) => window,
            Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                // the file was either dropped by the journal since this reader was created, or lost
                let damage = self.quarantine.missing(&path, segment);
                return Ok(damage);
            }
            Err(e) => return Err(e),
        };
        let headers = Headers::read(&mut window, self.partition, segment.start)?;
        match headers.header {
            Some(header) => {
                let dictionary = DictionaryId(header.salt);
                let scanner = Scanner::new(window, header.salt, segment.start, Some(segment.end));
                self.current = Some(Current {
                    first: segment.start,
                    scanner,
                    dictionary,
                    damaged_headers: headers.damaged,
                });
                Ok(None)
            }
            None if segment.is_empty() => Ok(None),
            None => {
                let what = "a segment with two damaged copies of its header";
                let hole =
                    Hole { bytes: 0..window.len(), lost: segment, acknowledged: true, repaired: false, what };
                Ok(Some(self.quarantine.put(&mut window, hole)))
            }
        }
    }
}
