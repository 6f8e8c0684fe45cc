//! Rebuilds the label bytes of series from references to symbols.
//!
//! Neighboring series, such as those of one scrape, share most of their labels. So the references of a series
//! are compared with those of the previous series, and the label bytes of their common end are copied in one
//! piece:
//!
//! ```text
//!                    references                      label bytes
//!   previous series  [ name m1 ][ job a ][ pod b ]   {name=m1}{job=a}{pod=b}
//!   next series      [ name m2 ][ job a ][ pod b ]   {name=m2} + copy of {job=a}{pod=b}
//! ```
//!
//! A name and value that occurred earlier in the batch are also copied in one piece.

use super::Stop;
use super::symbols::{Symbols, read_ref};
use crate::wire::Reader;
use model::SeriesRefusal;
use model::caps::{
    BODY_BYTES_MAX, LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX,
};
use model::labels::put_label;
use stdx::budget::{Exhausted, IncrementalReservation};

/// Limit on the label bytes that all series of a request have after rebuilding. It is needed because a
/// reference of two bytes can stand for a text of 16 KiB.
pub(super) const REBUILT_BYTES_MAX: usize = BODY_BYTES_MAX;

const _: () = assert!(REBUILT_BYTES_MAX + SERIES_LABEL_BYTES_MAX < u32::MAX as usize);

#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// For each label of the previous series, the part of the series that begins with this label. The first
    /// entry is therefore the whole series. The last entry, after those of the labels, is empty.
    tails: Vec<Tail>,
    /// Like `tails`, but for the series whose labels are being rebuilt, and only for its labels before the
    /// part that it shares with the previous series.
    heads: Vec<Tail>,
    /// For each reference to a label's value, the position in the batch of the latest label with this value.
    pair_positions: Vec<PairPosition>,
    /// Only the entries of `pair_positions` with this generation are valid. It increases for each request,
    /// and if labels are removed from the batch.
    generation: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct PairPosition {
    generation: u32,
    name: u32,
    start: u32,
    len: u32,
}

/// Limit on the length of `pair_positions`, whose entries take 16 bytes. Labels whose values have larger
/// references are not remembered.
const PAIR_POSITIONS_MAX: usize = 16 << 10;

impl Scratch {
    pub(super) const fn memory_bytes(&self) -> usize {
        (self.tails.capacity() + self.heads.capacity()) * size_of::<Tail>()
            + self.pair_positions.capacity() * size_of::<PairPosition>()
    }

    pub(super) fn prepare(
        &mut self,
        symbols: usize,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        let more = symbols.min(PAIR_POSITIONS_MAX).saturating_sub(self.pair_positions.len());
        reservation.room(&mut self.pair_positions, more)?;
        self.pair_positions.resize(self.pair_positions.len() + more, PairPosition::default());
        Ok(())
    }

    fn forget(&mut self) {
        self.tails.clear();
        self.tails.push(Tail::default());
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            self.pair_positions.fill(PairPosition::default());
            1
        });
    }
}

/// The part of a series from one of its labels to the end, measured in bytes of references and in bytes of
/// labels.
#[derive(Debug, Clone, Copy, Default)]
struct Tail {
    refs: u32,
    labels: u32,
}

pub(super) struct LastSeries<'a> {
    /// The packed references of the previous series. Its tails are in `scratch.tails`.
    refs: &'a [u8],
    labels_end: usize,
    scratch: &'a mut Scratch,
}

impl<'a> LastSeries<'a> {
    pub(super) fn new(scratch: &'a mut Scratch) -> Self {
        let mut last = Self { refs: &[], labels_end: 0, scratch };
        last.forget();
        last
    }

    /// Forgets the previous series. This is necessary if its labels are removed from the batch.
    pub(super) fn forget(&mut self) {
        self.refs = &[];
        self.labels_end = 0;
        self.scratch.forget();
    }

    /// Appends the label bytes of a series, in the order in which its references were sent. After an error,
    /// some of these bytes may already be in the batch.
    #[inline(always)]
    pub(super) fn put_labels(
        &mut self,
        refs: Reader<'a>,
        symbols: Symbols<'_>,
        arena: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.put(refs, symbols, arena)?;
        self.refs = refs.rest();
        Ok(())
    }

    /// Like [`Self::put_labels`], but the next series is not compared with these references.
    #[cold]
    pub(super) fn put_labels_once(
        &mut self,
        refs: Reader<'_>,
        symbols: Symbols<'_>,
        arena: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.forget();
        let put = self.put(refs, symbols, arena);
        self.forget();
        put
    }

    #[inline(always)]
    fn put(&mut self, refs: Reader<'_>, symbols: Symbols<'_>, arena: &mut Vec<u8>) -> Result<(), Stop> {
        let bytes = refs.rest();
        let (kept, tail) = self.common_tail(bytes);
        let start = arena.len();
        let Scratch { tails, heads, pair_positions, generation } = &mut *self.scratch;
        heads.clear();
        let mut front = refs.without_tail(tail.refs as usize);
        while !front.is_empty() {
            heads.push(Tail { refs: front.rest().len() as u32 + tail.refs, labels: arena.len() as u32 });
            let name = read_ref(&mut front)?;
            if front.is_empty() {
                return Err(refusal(refs, symbols));
            }
            let value = read_ref(&mut front)?;
            let mut before = pair_positions.get_mut(value as usize);
            if let Some(pair) = &before
                && (pair.generation, pair.name) == (*generation, name)
                && arena.len() - start + pair.len as usize <= SERIES_LABEL_BYTES_MAX
            {
                arena.extend_from_within(pair.start as usize..(pair.start + pair.len) as usize);
                continue;
            }
            let (Some(name_text), Some(text)) = (symbols.get(name), symbols.get(value)) else {
                return Err(refusal(refs, symbols));
            };
            if arena.len() - start + name_text.len() + text.len() > SERIES_LABEL_BYTES_MAX {
                return Err(refusal(refs, symbols));
            }
            let pair_start = arena.len();
            put_label(arena, name_text, text);
            if let Some(before) = &mut before {
                let len = (arena.len() - pair_start) as u32;
                **before = PairPosition { generation: *generation, name, start: pair_start as u32, len };
            }
        }
        assert!(self.labels_end <= start, "BUG: the previous series is no longer in the arena");
        let old_tail = self.labels_end - tail.labels as usize..self.labels_end;
        arena.extend_from_within(old_tail);
        let tails_kept = tails.len() - 1 - kept;
        if heads.len() + tails_kept > SERIES_LABELS_MAX || arena.len() - start > SERIES_LABEL_BYTES_MAX {
            return Err(refusal(refs, symbols));
        }

        self.labels_end = arena.len();
        for head in heads.iter_mut() {
            head.labels = (self.labels_end - head.labels as usize) as u32;
        }
        if heads.len() == kept {
            tails[..kept].copy_from_slice(heads);
        } else {
            tails.splice(..kept, heads.iter().copied());
        }
        Ok(())
    }

    /// Finds the longest end that `refs` and the previous series have in common. Returns its index in
    /// `tails`, and its lengths.
    #[inline(always)]
    fn common_tail(&self, refs: &[u8]) -> (usize, Tail) {
        let common = common_suffix(refs, self.refs);
        // the common bytes may start in the middle of a reference, which does not count
        let whole = |n: usize| n == refs.len() || refs[refs.len() - n - 1] < 0x80;
        let tails = &self.scratch.tails;
        let starts = |tail: &Tail| tail.refs as usize <= common && whole(tail.refs as usize);
        let at = tails.iter().position(starts).unwrap_or(tails.len() - 1);
        (at, tails[at])
    }
}

#[inline(always)]
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let mut common = 0;
    loop {
        let (a, b) = (&a[..a.len() - common], &b[..b.len() - common]);
        let (Some(x), Some(y)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) else {
            let same = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y);
            return common + same.count();
        };
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return common + differing.leading_zeros() as usize / 8;
        }
        common += 8;
    }
}

/// Finds out why a series' references do not result in valid labels. It reads all of the references again,
/// even after the first fault, because the error may show their total number or length.
#[cold]
fn refusal(mut refs: Reader<'_>, symbols: Symbols<'_>) -> Stop {
    let (mut count, mut text_bytes) = (0, 0);
    let (mut out_of_range, mut too_long) = (None, None);
    let mut name: Option<&[u8]> = None;
    while !refs.is_empty() {
        let reference = match read_ref(&mut refs) {
            Ok(reference) => reference,
            Err(e) => return Stop::Request(e.into()),
        };
        count += 1;
        match symbols.get(reference) {
            Some(symbol) => {
                text_bytes += symbol.len();
                too_long = too_long.or_else(|| text_too_long(name, symbol));
                name = if name.is_none() { Some(symbol) } else { None };
            }
            None => out_of_range = out_of_range.or(Some(symbols.missing(reference))),
        }
    }
    Stop::Series(match out_of_range {
        _ if count % 2 != 0 => SeriesRefusal::OddLabelRefs(count),
        Some(error) => error,
        None if count > 2 * SERIES_LABELS_MAX => SeriesRefusal::TooManyLabels(count / 2),
        None => too_long.unwrap_or(SeriesRefusal::LabelsTooLong(text_bytes)),
    })
}

/// Returns the error for a text that is too long. With a `name`, the text is that label's value, otherwise it
/// is a label name.
fn text_too_long(name: Option<&[u8]>, text: &[u8]) -> Option<SeriesRefusal> {
    match name {
        None if text.len() > LABEL_NAME_BYTES_MAX => Some(SeriesRefusal::LabelNameTooLong(text.len())),
        Some(name) if text.len() > LABEL_VALUE_BYTES_MAX => {
            let name = &name[..name.len().min(LABEL_NAME_BYTES_MAX)];
            Some(SeriesRefusal::LabelValueTooLong(String::from_utf8_lossy(name).into(), text.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_suffixes() {
        let check = |a: &str, b: &str, expected| {
            assert_eq!(common_suffix(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
            assert_eq!(common_suffix(b.as_bytes(), a.as_bytes()), expected, "{b} {a}");
        };
        check("", "", 0);
        check("", "abc", 0);
        check("abc", "bc", 2);
        check("x0123456789", "y0123456789", 10);
        check("0123456789abcdef", "0123456789abcdef", 16);
        check("x123456789abcdef", "0123456789abcdef", 15);
        check("01234567x9abcdef", "0123456789abcdef", 7);
        check("z0123456789abcdef", "0123456789abcdef", 16);
    }
}
