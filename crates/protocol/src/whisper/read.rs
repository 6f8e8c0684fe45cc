//! Reads Whisper files.

use super::{
    ARCHIVE_BYTES, ARCHIVES_MAX, Archive, COMPRESSED_MAGIC, HEADER_BYTES, Header, METHODS, POINT_BYTES,
    WhisperError,
};

/// A file in memory.
#[derive(Debug)]
pub struct File<'a> {
    pub header: Header,
    archives: Vec<Ring<'a>>,
}

/// The points of an archive.
#[derive(Debug)]
struct Ring<'a> {
    archive: Archive,
    points: &'a [[u8; POINT_BYTES]],
    /// The time of the first point. None if the archive is empty.
    base_s: Option<i64>,
}

impl<'a> File<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WhisperError> {
        let short = |needs: usize| WhisperError::Short { bytes: bytes.len() as u64, needs: needs as u64 };
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(short(HEADER_BYTES));
        };
        if bytes.starts_with(COMPRESSED_MAGIC) {
            return Err(WhisperError::Compressed);
        }
        let [method, _, factor, count] = words(head);
        if !METHODS.contains(&method) {
            return Err(WhisperError::Method(method));
        }
        let x_files_factor = f32::from_bits(factor);
        if !(0.0..=1.0).contains(&x_files_factor) {
            return Err(WhisperError::XFilesFactor);
        }
        if count == 0 || count as usize > ARCHIVES_MAX {
            return Err(WhisperError::Archives(count));
        }
        let infos = rest.as_chunks::<ARCHIVE_BYTES>().0.get(..count as usize);
        let infos = infos.ok_or_else(|| short(HEADER_BYTES + count as usize * ARCHIVE_BYTES))?;
        let mut archives = Vec::with_capacity(infos.len());
        for (number, info) in infos.iter().enumerate() {
            archives.push(Ring::find(bytes, number, words(info))?);
        }
        let header =
            Header { method, x_files_factor, archives: archives.iter().map(|ring| ring.archive).collect() };
        header.check()?;
        Ok(Self { header, archives })
    }

    /// The time of the latest point that is not after `now_s`.
    #[must_use]
    pub fn latest_s(&self, now_s: i64) -> Option<i64> {
        self.archives.iter().filter_map(|ring| ring.latest_s(now_s)).max()
    }

    /// Number of points whose time is after `now_s`.
    #[must_use]
    pub fn points_after(&self, now_s: i64) -> u64 {
        let times = self.archives.iter().flat_map(|ring| ring.points.iter().map(time_s));
        times.filter(|time_s| *time_s > now_s).count() as u64
    }

    /// Calls `each` with the finest value of each time, in the order of time: the place of its archive in the header, its time,
    /// and the value. This is what Whisper shows if the latest point not after `now_s` was just written: values of an archive
    /// that the next finer archive no longer covers.
    ///
    /// A coarser value whose slot is in part covered by finer ones replaces these. A coarser value is also used where
    /// finer values are missing.
    pub fn each(&self, now_s: i64, mut each: impl FnMut(usize, i64, f64)) {
        let Some(latest_s) = self.latest_s(now_s) else { return };
        let Some(coarsest) = self.archives.last() else { return };
        let walk = Walk { archives: &self.archives, latest_s };
        let step_s = i64::from(coarsest.archive.step_s);
        // an archive has as many slots as points, whatever the times of the file are
        let last_s = latest_s.div_euclid(step_s) * step_s;
        for back in (0..i64::from(coarsest.archive.points)).rev() {
            walk.slot(self.archives.len() - 1, last_s - back * step_s, &mut each);
        }
    }
}

struct Walk<'a> {
    /// The finest first.
    archives: &'a [Ring<'a>],
    latest_s: i64,
}

impl Walk<'_> {
    /// Visits the values of a slot of an archive: its own, or those of finer archives. Returns false if there are none.
    fn slot(&self, number: usize, at_s: i64, each: &mut dyn FnMut(usize, i64, f64)) -> bool {
        let ring = &self.archives[number];
        let emit_own = |each: &mut dyn FnMut(usize, i64, f64)| {
            let own = ring.value(at_s).filter(|_| at_s > self.oldest_s(number));
            if let Some(value) = own {
                each(number, at_s, value);
            }
            own.is_some()
        };
        let Some(finer) = number.checked_sub(1) else { return emit_own(each) };
        let is_older = at_s <= self.oldest_s(finer);
        if is_older && emit_own(each) {
            return true;
        }
        let (step_s, end_s) = (i64::from(self.archives[finer].archive.step_s), at_s + ring.step_s());
        let mut any = false;
        if end_s > self.oldest_s(finer) {
            // slots that the finer archive does not cover are left out, because there may be very many of them
            let first_s = at_s.max((self.oldest_s(finer) + 1).div_euclid(step_s) * step_s);
            for slot_s in (first_s..end_s.min(self.latest_s + 1)).step_by(step_s as usize) {
                any |= self.slot(finer, slot_s, each);
            }
        }
        any || !is_older && emit_own(each)
    }

    /// An archive covers the times after this.
    fn oldest_s(&self, number: usize) -> i64 {
        self.latest_s - self.archives[number].archive.retention_s()
    }
}

impl<'a> Ring<'a> {
    fn find(file: &'a [u8], number: usize, [offset, step_s, points]: [u32; 3]) -> Result<Self, WhisperError> {
        let archive = Archive { step_s, points };
        if step_s == 0 || points == 0 {
            return Err(WhisperError::Empty(number));
        }
        let start = offset as usize;
        let end = start.checked_add(usize::try_from(archive.bytes()).unwrap_or(usize::MAX));
        let bytes = end.and_then(|end| file.get(start..end)).ok_or(WhisperError::Outside(number))?;
        let points = bytes.as_chunks().0;
        let base_s = points.first().map(time_s).filter(|base_s| *base_s > 0);
        Ok(Self { archive, points, base_s })
    }

    fn step_s(&self) -> i64 {
        i64::from(self.archive.step_s)
    }

    /// The place of a time in the ring.
    fn place(&self, at_s: i64) -> Option<usize> {
        let slots = (at_s - self.base_s?).div_euclid(self.step_s());
        Some(slots.rem_euclid(self.points.len() as i64) as usize)
    }

    /// The value of a time that is a multiple of the step.
    fn value(&self, at_s: i64) -> Option<f64> {
        let point = &self.points[self.place(at_s)?];
        let [.., a, b, c, d, e, f, g, h] = *point;
        // a point that was never written has the time 0
        (at_s > 0 && time_s(point) == at_s)
            .then(|| f64::from_be_bytes([a, b, c, d, e, f, g, h]))
            .filter(|value| !value.is_nan())
    }

    fn latest_s(&self, now_s: i64) -> Option<i64> {
        let is_current = |(place, point): (usize, &[u8; POINT_BYTES])| {
            let at_s = time_s(point);
            let fits = at_s > 0 && at_s <= now_s && at_s.rem_euclid(self.step_s()) == 0;
            (fits && self.place(at_s) == Some(place)).then_some(at_s)
        };
        self.points.iter().enumerate().filter_map(is_current).max()
    }
}

fn time_s(point: &[u8; POINT_BYTES]) -> i64 {
    let [a, b, c, d, ..] = *point;
    i64::from(u32::from_be_bytes([a, b, c, d]))
}

/// Splits bytes into big-endian numbers.
fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    const { assert!(BYTES == 4 * WORDS) }
    std::array::from_fn(|at| {
        let word = &bytes[4 * at..4 * at + 4];
        u32::from_be_bytes([word[0], word[1], word[2], word[3]])
    })
}

impl Header {
    /// Checks that slots of a coarser archive consist of whole slots of the finer one, and that it goes back further.
    pub(super) fn check(&self) -> Result<(), WhisperError> {
        for (number, pair) in self.archives.windows(2).enumerate() {
            let (fine, coarse) = (pair[0], pair[1]);
            let nests = coarse.step_s > fine.step_s && coarse.step_s.is_multiple_of(fine.step_s);
            if !nests || coarse.retention_s() <= fine.retention_s() {
                return Err(WhisperError::Order(number + 1));
            }
        }
        Ok(())
    }
}
