//! Reads the records of one segment one by one, and finds the next record after damage.

use super::frame::{self, FRAME_HEADER_BYTES, FrameHeader};
use super::segment::RECORDS_START;
use super::window::{WINDOW_BYTES, Window};
use crate::JournalError;
use std::ops::Range;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An intact or repaired record. [`Scanner::payload`] returns its content.
    Record {
        offset: u64,
    },
    /// The bytes in this hole are not what was written.
    Damage(Hole),
    End {
        at: u64,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) bytes: Range<u64>,
    pub(super) lost: Range<u64>,
    /// See [`crate::Damage::acknowledged`].
    pub(super) acknowledged: bool,
    /// True if the record was repaired. The next item is then the repaired record.
    pub(super) repaired: bool,
    pub(super) what: &'static str,
}

#[derive(Debug)]
pub(super) struct Scanner {
    window: Window,
    seed: u32,
    at: u64,
    next: u64,
    /// All offsets in this segment are lower than this one, which is the first offset of the next segment or
    /// the durable end. `None` while the newest segment is recovered, because its end is not known yet.
    bound: Option<u64>,
    payload: Payload,
    frame: Range<u64>,
    /// A repaired record that will be the next item. Its damage has already been reported.
    repaired: Option<(FrameHeader, Vec<u8>)>,
}

#[derive(Debug)]
enum Payload {
    File { at: u64, len: usize },
    Repaired(Vec<u8>),
}

enum Found {
    Whole(FrameHeader),
    Header(FrameHeader),
    Nothing,
}

impl Scanner {
    pub(super) fn new(window: Window, salt: u64, first: u64, bound: Option<u64>) -> Self {
        let seed = frame::crc_seed(salt);
        let payload = Payload::Repaired(Vec::new());
        Self { window, seed, at: RECORDS_START, next: first, bound, payload, frame: 0..0, repaired: None }
    }

    pub(super) fn next_offset(&self) -> u64 {
        self.next
    }

    pub(super) fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    pub(super) fn payload(&mut self) -> Result<&[u8], JournalError> {
        match &self.payload {
            Payload::File { at, len } => self.window.get(*at, *len),
            Payload::Repaired(bytes) => Ok(bytes),
        }
    }

    /// Reports the latest record as damaged, because its bytes are intact but cannot be decoded.
    pub(super) fn unreadable(&self, what: &'static str) -> Hole {
        let lost = self.next - 1..self.next;
        Hole { bytes: self.frame.clone(), lost, acknowledged: true, repaired: false, what }
    }

    pub(super) fn step(&mut self) -> Result<Step, JournalError> {
        if let Some((header, payload)) = self.repaired.take() {
            return Ok(self.take(header, Payload::Repaired(payload)));
        }
        if self.bound.is_some_and(|bound| self.next >= bound) {
            return Ok(Step::End { at: self.at });
        }
        match self.look(self.at)? {
            Found::Whole(header) if header.offset == self.next => {
                let at = self.at + FRAME_HEADER_BYTES as u64;
                Ok(self.take(header, Payload::File { at, len: header.len as usize }))
            }
            Found::Header(header) if header.offset == self.next => {
                self.damage(self.end_of(&header), "a record that fails its checksum")
            }
            _ => self.damage(self.at + 1, "no record header"),
        }
    }

    /// Repairs the damaged record if possible. Otherwise, continues with the next intact record at or behind
    /// the position `search_from`.
    fn damage(&mut self, search_from: u64, what: &'static str) -> Result<Step, JournalError> {
        self.repaired = self.repair()?;
        if let Some((header, _)) = &self.repaired {
            let (bytes, lost) = (self.at..self.end_of(header), self.next..self.next);
            let what = "a record with one wrong byte, repaired";
            return Ok(Step::Damage(Hole { bytes, lost, acknowledged: false, repaired: true, what }));
        }
        match (self.search(search_from)?, self.bound) {
            (Some((at, offset)), _) => {
                let acknowledged = self.is_proven(self.next, at)?;
                Ok(self.skip(at, offset, acknowledged, what))
            }
            // this is the end of the newest segment, even if the last write was cut off
            (None, None) => Ok(Step::End { at: self.at }),
            // the first offset of the next segment proves that the missing records existed
            (None, Some(bound)) => Ok(self.skip(self.window.len().max(self.at), bound, true, what)),
        }
    }

    /// Repairs the record at the current position. `None` if the header or the payload has more than one
    /// wrong byte.
    fn repair(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>, JournalError> {
        let (seed, at) = (self.seed, self.at);
        let header = self.window.get(at, FRAME_HEADER_BYTES)?.first_chunk().and_then(|bytes| {
            FrameHeader::parse(seed, at, bytes).or_else(|| FrameHeader::parse_repaired(seed, at, bytes))
        });
        let Some(header) = header.filter(|header| header.offset == self.next) else { return Ok(None) };
        if self.end_of(&header) > self.window.len() {
            return Ok(None);
        }
        let mut payload = self.window.get(at + FRAME_HEADER_BYTES as u64, header.len as usize)?.to_vec();
        Ok(header.repair(&mut payload).then_some((header, payload)))
    }

    /// True if a record at or behind position `at` proves that the record at `offset` was durable.
    fn is_proven(&mut self, offset: u64, mut at: u64) -> Result<bool, JournalError> {
        // A record of the same group proves nothing, because it may have been written before the record at
        // `offset` was durable.
        while let Found::Whole(header) = self.look(at)? {
            if header.group() > offset {
                return Ok(true);
            }
            at += FRAME_HEADER_BYTES as u64 + u64::from(header.len);
        }
        Ok(false)
    }

    fn take(&mut self, header: FrameHeader, payload: Payload) -> Step {
        self.payload = payload;
        self.frame = self.at..self.end_of(&header);
        self.at = self.frame.end;
        self.next = header.offset + 1;
        Step::Record { offset: header.offset }
    }

    fn skip(&mut self, at: u64, next: u64, acknowledged: bool, what: &'static str) -> Step {
        let (bytes, lost) = (self.at..at, self.next..next);
        (self.at, self.next) = (at, next);
        let acknowledged = acknowledged && !lost.is_empty();
        Step::Damage(Hole { bytes, lost, acknowledged, repaired: false, what })
    }

    const fn end_of(&self, header: &FrameHeader) -> u64 {
        self.at + FRAME_HEADER_BYTES as u64 + header.len as u64
    }

    fn look(&mut self, at: u64) -> Result<Found, JournalError> {
        let seed = self.seed;
        let bytes = self.window.get(at, FRAME_HEADER_BYTES)?;
        let header = bytes.first_chunk().and_then(|bytes| FrameHeader::parse(seed, at, bytes));
        let Some(header) = header else { return Ok(Found::Nothing) };
        let end = at + FRAME_HEADER_BYTES as u64 + u64::from(header.len);
        if end > self.window.len() {
            return Ok(Found::Header(header));
        }
        // reads both at once, so that the buffer still has the header when the payload is read
        let frame = self.window.get(at, FRAME_HEADER_BYTES + header.len as usize)?;
        let whole = frame.get(FRAME_HEADER_BYTES..).is_some_and(|payload| header.matches(payload));
        Ok(if whole { Found::Whole(header) } else { Found::Header(header) })
    }

    /// Finds the first intact record with a plausible offset, at or behind byte `from`. Returns its position
    /// and offset.
    ///
    /// Because the offset is checked before any checksum, this takes only about a nanosecond per byte.
    fn search(&mut self, from: u64) -> Result<Option<(u64, u64)>, JournalError> {
        // no more records can be missing than fit into the rest of the file
        let fit = self.window.len().saturating_sub(from) / FRAME_HEADER_BYTES as u64;
        let missing_max = self.window.len().saturating_sub(self.at) / FRAME_HEADER_BYTES as u64;
        let end = self.bound.unwrap_or(u64::MAX).min(self.next.saturating_add(missing_max + fit + 1));
        let offsets = self.next..end;
        let mut at = from;
        loop {
            let bytes = self.window.get(at, WINDOW_BYTES)?;
            if bytes.len() < FRAME_HEADER_BYTES {
                return Ok(None);
            }
            let seen = bytes.len() - (FRAME_HEADER_BYTES - 1);
            let seed = self.seed;
            let candidate = bytes.windows(FRAME_HEADER_BYTES).zip(at..).position(|(header, at)| {
                header.first_chunk().is_some_and(|header| {
                    offsets.contains(&frame::offset_of(header))
                        && FrameHeader::parse(seed, at, header).is_some()
                })
            });
            let Some(candidate) = candidate else {
                at += seen as u64;
                continue;
            };
            at += candidate as u64;
            if let Found::Whole(header) = self.look(at)? {
                return Ok(Some((at, header.offset)));
            }
            at += 1;
        }
    }
}
