//! Remembers how names of metrics were translated, because each request has the same metrics as the one before.

use super::names::{NameKind, put_metric_name};
use super::translation::Naming;
use crate::DecodeError;
use model::{SeriesHasher, SeriesKey};
use std::ops::Range;
use stdx::budget::IncrementalReservation;

/// Number of names that are remembered. A name replaces another one whose hash selects the same slot.
const SLOTS: usize = 2048;

/// Limit on the texts of all names. When it is reached, all names are forgotten.
const TEXTS_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Default)]
pub(super) struct NameCache {
    slots: Vec<Slot>,
    texts: Vec<u8>,
    /// Number of the request. It tells whether a metric has occurred in this request.
    request: u32,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    /// Hash of everything that determines the name.
    key: u128,
    text: Range<u32>,
    /// The latest request that had the metric. 0 if the slot is empty.
    request: u32,
}

/// A metric as it was sent. Name and unit have at most as many bytes as a label's value may have.
pub(super) struct Sent<'a> {
    pub(super) name: &'a [u8],
    pub(super) unit: &'a [u8],
    /// The bytes that identify the metric together with its type: name, unit and description.
    pub(super) identity: &'a [u8],
    pub(super) kind: NameKind,
    /// Distinguishes types of metrics that are named alike.
    pub(super) variant: u8,
}

/// A translated name, which is part of [`NameCache::texts`].
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) text: Range<u32>,
    /// True if the metric has not occurred in this request yet.
    pub(super) is_first: bool,
}

impl NameCache {
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.texts.capacity()
    }

    pub(super) fn begin_request(
        &mut self,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        if self.slots.is_empty() {
            reservation.room(&mut self.slots, SLOTS)?;
            self.slots.resize(SLOTS, Slot::default());
        }
        self.request = self.request.checked_add(1).unwrap_or_else(|| {
            self.slots.fill(Slot::default());
            1
        });
        Ok(())
    }

    pub(super) fn text(&self, text: &Range<u32>) -> &[u8] {
        &self.texts[text.start as usize..text.end as usize]
    }

    /// Translates a name. The result is valid until the next call.
    pub(super) fn name(
        &mut self,
        sent: &Sent<'_>,
        naming: Naming,
        hasher: &SeriesHasher,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<Named, DecodeError> {
        let SeriesKey(hash) = hasher.key(sent.identity);
        // other bytes have a hash that differs in more than these bits
        let key = hash ^ u128::from(naming as u8) << 8 ^ u128::from(sent.variant);
        let request = self.request;
        let place = (hash >> 64) as usize % SLOTS;
        let slot = &mut self.slots[place];
        if slot.key == key && slot.request != 0 {
            let is_first = slot.request != request;
            slot.request = request;
            return Ok(Named { text: slot.text.clone(), is_first });
        }
        // with suffixes, a name grows by less than this, even if all bytes of the unit have to be replaced
        let room = sent.name.len() + 6 * sent.unit.len() + 64;
        if self.texts.len() + room > TEXTS_BYTES_MAX {
            self.slots.fill(Slot::default());
            self.texts.clear();
        }
        reservation.room(&mut self.texts, room)?;
        let start = self.texts.len() as u32;
        put_metric_name(&mut self.texts, sent.name, sent.unit, sent.kind, naming);
        let text = start..self.texts.len() as u32;
        self.slots[place] = Slot { key, text: text.clone(), request };
        Ok(Named { text, is_first: true })
    }
}
