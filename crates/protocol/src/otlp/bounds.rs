//! Labels `le` of the buckets of histograms. Neighboring points have the same bounds, so their labels are remembered.

use model::labels::put_label;
use std::io::Write;
use stdx::budget::{Exhausted, IncrementalReservation};

/// Limit on the lists of bounds that are remembered. One replaces another in turn.
const LISTS_MAX: usize = 8;

/// A label of a bound takes at most this many bytes. A number takes at most 326, with a sign, a point and 324 digits.
const LABEL_BYTES_MAX: usize = 350;

/// The label of the last bucket.
pub(super) const INFINITY: &[u8] = b"\x0a\x0a\x0a\x02le\x12\x04+Inf";

#[derive(Debug, Default)]
pub(super) struct BoundsCache {
    lists: Vec<Bounds>,
    latest: usize,
}

/// The bounds of a histogram's buckets, except for infinity.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// The bounds, as doubles of 8 bytes.
    sent: Vec<u8>,
    /// The label of each bound.
    labels: Vec<u8>,
    ends: Vec<u32>,
}

impl BoundsCache {
    pub(super) fn memory_bytes(&self) -> usize {
        let bytes = |list: &Bounds| {
            list.sent.capacity() + list.labels.capacity() + list.ends.capacity() * size_of::<u32>()
        };
        self.lists.capacity() * size_of::<Bounds>() + self.lists.iter().map(bytes).sum::<usize>()
    }

    /// Selects a list of bounds, which are doubles of 8 bytes.
    pub(super) fn select(
        &mut self,
        sent: &[u8],
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), Exhausted> {
        if self.lists.get(self.latest).is_none_or(|list| list.sent != sent) {
            match self.lists.iter().position(|list| list.sent == sent) {
                Some(known) => self.latest = known,
                None => self.add(sent, reservation)?,
            }
        }
        Ok(())
    }

    /// The list that was selected last.
    pub(super) fn selected(&self) -> &Bounds {
        &self.lists[self.latest]
    }

    fn add(&mut self, sent: &[u8], reservation: &mut IncrementalReservation<'_>) -> Result<(), Exhausted> {
        self.latest = (self.latest + 1) % LISTS_MAX;
        if self.latest >= self.lists.len() {
            reservation.push(&mut self.lists, Bounds::default())?;
            self.latest = self.lists.len() - 1;
        }
        let list = &mut self.lists[self.latest];
        let set = list.set(sent, reservation);
        if set.is_err() {
            // half a list would be found as the list of a histogram without bounds
            list.clear();
        }
        set
    }
}

impl Bounds {
    fn clear(&mut self) {
        self.sent.clear();
        self.labels.clear();
        self.ends.clear();
    }

    fn set(&mut self, sent: &[u8], reservation: &mut IncrementalReservation<'_>) -> Result<(), Exhausted> {
        self.clear();
        for bound in doubles(sent) {
            reservation.room(&mut self.labels, LABEL_BYTES_MAX)?;
            put_bound(&mut self.labels, "le", bound);
            reservation.push(&mut self.ends, self.labels.len() as u32)?;
        }
        reservation.extend(&mut self.sent, sent)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The length of all labels.
    pub(super) fn bytes(&self) -> usize {
        self.labels.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        doubles(&self.sent)
    }

    pub(super) fn label(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.labels[start..self.ends[number] as usize]
    }
}

/// The doubles in a packed field, whose length must be a multiple of 8.
pub(super) fn doubles(packed: &[u8]) -> impl Iterator<Item = f64> {
    integers(packed).map(f64::from_bits)
}

pub(super) fn integers(packed: &[u8]) -> impl Iterator<Item = u64> {
    packed
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("BUG: a chunk has 8 bytes")))
}

/// Appends the label of a bound or of a quantile: the shortest decimal with the same bits, without an exponent.
pub(super) fn put_bound(out: &mut Vec<u8>, name: &str, bound: f64) {
    let mut text = [0; LABEL_BYTES_MAX];
    let mut rest = &mut text[..];
    match bound {
        f64::INFINITY => rest.write_all(b"+Inf"),
        f64::NEG_INFINITY => rest.write_all(b"-Inf"),
        _ if bound.is_nan() => rest.write_all(b"NaN"),
        _ => write!(rest, "{bound}"),
    }
    .expect("BUG: a number takes more text than any number can");
    let len = LABEL_BYTES_MAX - rest.len();
    put_label(out, name.as_bytes(), &text[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;
    use stdx::budget::Account;

    fn label(name: &str, bound: f64) -> String {
        let mut label = Vec::new();
        put_bound(&mut label, name, bound);
        assert!(label.len() <= LABEL_BYTES_MAX, "{bound}");
        let labels = model::LabelsRef::from_canonical(&label);
        labels.get(name).unwrap().to_owned()
    }

    /// The expected texts are those of Go's `strconv.FormatFloat(bound, 'f', -1, 64)`.
    #[test]
    fn bounds_are_decimals() {
        for (bound, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (5.0, "5"),
            (0.005, "0.005"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e21, "1000000000000000000000"),
            (1e-7, "0.0000001"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(label("le", bound), expected);
            assert_eq!(label("quantile", bound), expected);
        }
        for bound in [f64::MAX, f64::MIN, f64::MIN_POSITIVE, -f64::from_bits(1), -1.797e-308] {
            assert_eq!(label("le", bound).parse(), Ok(bound));
        }
        let expected = Labels::from_pairs(&[("le", "+Inf")]);
        assert_eq!(INFINITY, expected.as_bytes());
    }

    #[test]
    fn lists_are_found_again_and_bounded() {
        let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
        let mut reservation = IncrementalReservation::new(&mut memory);
        let mut cache = BoundsCache::default();
        for round in 0..3 {
            for list in 0..LISTS_MAX + 3 {
                let bounds: Vec<f64> = (0..=list).map(|n| n as f64 + 0.5).collect();
                let sent: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
                for _ in 0..2 {
                    cache.select(&sent, &mut reservation).unwrap();
                    let found = cache.selected();
                    assert_eq!(found.len(), bounds.len(), "round {round}");
                    for (number, bound) in bounds.iter().enumerate() {
                        let expected = Labels::from_pairs(&[("le", &bound.to_string())]);
                        assert_eq!(found.label(number), expected.as_bytes());
                    }
                }
                assert!(cache.lists.len() <= LISTS_MAX);
            }
        }
        cache.select(&[], &mut reservation).unwrap();
        assert_eq!((cache.selected().len(), cache.selected().values().count()), (0, 0));
    }

    #[test]
    fn a_list_that_memory_was_too_short_for_is_not_found() {
        let sent: Vec<u8> = (0..2000).flat_map(|n| f64::from(n).to_le_bytes()).collect();
        let (mut failures, mut limit) = (0, 1 << 10);
        loop {
            let mut memory = Account::new("test", limit).reserve(0).unwrap();
            let mut cache = BoundsCache::default();
            let selected = cache.select(&sent, &mut IncrementalReservation::new(&mut memory));
            let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
            let mut reservation = IncrementalReservation::new(&mut memory);
            for again in [&[][..], &sent, &[]] {
                cache.select(again, &mut reservation).unwrap();
                let found = cache.selected();
                assert_eq!((found.len(), found.values().count()), (again.len() / 8, again.len() / 8));
            }
            match selected {
                Ok(()) => break,
                Err(_) => failures += 1,
            }
            limit += 1 << 10;
        }
        assert!(failures > 10, "memory was short only {failures} times");
    }
}
