//! Maps the references in the journal's current dictionary to series in the head.
//!
//! A definition becomes a series only if [`super::demand`] finds that the series is needed.

use model::{SeriesRef, TenantId};
use std::collections::HashMap;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};

/// Memory of a tenant, excluding its slots.
const TENANT_BYTES: u64 = 256;

#[derive(Debug)]
pub(super) struct References {
    tenants: HashMap<TenantId, Slots>,
    memory: Reservation,
}

/// The references of one tenant, used as an index. They are dense, so this takes less memory than a map.
#[derive(Debug, Default)]
pub(super) struct Slots(Vec<Slot>);

/// What is known of a reference: either its series in the head, or the record with its last definition that is in
/// tables.
///
/// ```text
///   0 series (31 bits)                            the series in the head
///   1 NEEDED FRESH record in the dictionary (29)  no series so far
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

const NO_SERIES: u32 = 1 << 31;
/// Set if data that is not in tables uses a definition in a record that is in tables.
const NEEDED: u32 = 1 << 30;
/// Set if a record that is not in tables defines the reference. Later uses then need no earlier definition.
const FRESH: u32 = 1 << 29;
const NUMBER: u32 = FRESH - 1;

impl Slot {
    const UNDEFINED: Self = Self(NO_SERIES | NUMBER);

    const fn series(self) -> Option<SeriesRef> {
        if self.0 & NO_SERIES == 0 { Some(SeriesRef(self.0)) } else { None }
    }

    const fn is_needed(self) -> bool {
        self.0 & (NO_SERIES | NEEDED) == NO_SERIES | NEEDED
    }
}

impl References {
    pub(super) fn new(memory: Reservation) -> Self {
        Self { tenants: HashMap::new(), memory }
    }

    pub(super) fn clear(&mut self) {
        self.tenants = HashMap::new();
        self.memory.resize(0).expect("BUG: a reservation cannot shrink");
    }

    pub(super) fn of(&mut self, tenant: &TenantId) -> Result<(&mut Slots, &mut Reservation), Exhausted> {
        if !self.tenants.contains_key(tenant) {
            self.memory.resize(self.memory.bytes() + TENANT_BYTES)?;
            self.tenants.insert(tenant.clone(), Slots::default());
        }
        let slots = self.tenants.get_mut(tenant).expect("BUG: the tenant was not added");
        Ok((slots, &mut self.memory))
    }

    pub(super) fn forget(&mut self, tenant: &TenantId) {
        if let Some(slots) = self.tenants.get_mut(tenant) {
            slots.retain(|_, _| false);
        }
    }

    pub(super) fn tenants_mut(&mut self) -> impl Iterator<Item = (&TenantId, &mut Slots)> {
        self.tenants.iter_mut()
    }

    /// True if the surveyed records use a definition of an earlier record.
    pub(super) fn is_needed(&self, tenant: &TenantId, given: SeriesRef) -> bool {
        self.tenants.get(tenant).is_some_and(|slots| slots.get(given).is_needed())
    }
}

impl Slots {
    fn get(&self, given: SeriesRef) -> Slot {
        self.0.get(given.index()).copied().unwrap_or(Slot::UNDEFINED)
    }

    fn slot(&mut self, given: SeriesRef, memory: &mut Reservation) -> Result<&mut Slot, Exhausted> {
        let (len, wanted) = (self.0.len(), given.index() + 1);
        if len < wanted {
            IncrementalReservation::new(memory).room(&mut self.0, wanted - len)?;
            self.0.resize(wanted, Slot::UNDEFINED);
        }
        Ok(&mut self.0[given.index()])
    }

    #[inline]
    pub(super) fn series(&self, given: SeriesRef) -> Option<SeriesRef> {
        self.0.get(given.index()).and_then(|slot| slot.series())
    }

    pub(super) fn set(
        &mut self,
        given: SeriesRef,
        series: SeriesRef,
        memory: &mut Reservation,
    ) -> Result<(), Exhausted> {
        assert!(series.0 & NO_SERIES == 0, "BUG: a series reference exceeds 31 bits");
        self.slot(given, memory)?.0 = series.0;
        Ok(())
    }

    pub(super) fn retain(&mut self, mut keeps: impl FnMut(SeriesRef, SeriesRef) -> bool) {
        for (given, slot) in self.0.iter_mut().enumerate() {
            if let Some(series) = slot.series()
                && !keeps(SeriesRef(given as u32), series)
            {
                *slot = Slot::UNDEFINED;
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = SeriesRef> {
        self.0.iter().filter_map(|slot| slot.series())
    }

    /// Notes that a record in tables defines the reference. `number` is the position of this record in the
    /// dictionary.
    pub(super) fn note_sealed(
        &mut self,
        given: SeriesRef,
        number: u32,
        memory: &mut Reservation,
    ) -> Result<(), Exhausted> {
        let slot = self.slot(given, memory)?;
        slot.0 = slot.0 & !NUMBER | number.min(NUMBER);
        Ok(())
    }

    pub(super) fn note_fresh(&mut self, given: SeriesRef, memory: &mut Reservation) -> Result<(), Exhausted> {
        self.slot(given, memory)?.0 |= FRESH;
        Ok(())
    }

    pub(super) fn note_use(&mut self, given: SeriesRef, memory: &mut Reservation) -> Result<(), Exhausted> {
        let slot = self.slot(given, memory)?;
        slot.0 |= if slot.0 & FRESH == 0 { NEEDED } else { 0 };
        Ok(())
    }

    /// Position in the dictionary of the last record in tables that defined the reference.
    pub(super) fn definition(&self, given: SeriesRef) -> u32 {
        self.get(given).0 & NUMBER
    }

    /// True if the definition in record `number`, which is in tables, must become a series.
    pub(super) fn wants(&self, given: SeriesRef, number: u32) -> bool {
        let slot = self.get(given);
        slot.is_needed() && slot.0 & NUMBER == number.min(NUMBER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::budget::Account;

    fn references(bytes: u64) -> References {
        References::new(Account::new("replay", bytes).reserve(0).unwrap())
    }

    #[test]
    fn only_the_last_definition_before_a_use_becomes_a_series() {
        let (mut references, tenant) = (references(1 << 20), TenantId::anonymous());
        let (slots, memory) = references.of(&tenant).unwrap();
        let [twice, unused, fresh] = [0, 1, 2].map(SeriesRef);
        for (given, number) in [(twice, 0), (unused, 1), (fresh, 2), (twice, 3)] {
            slots.note_sealed(given, number, memory).unwrap();
        }
        slots.note_fresh(fresh, memory).unwrap();
        for given in [twice, fresh] {
            slots.note_use(given, memory).unwrap();
        }
        let wanted =
            |slots: &Slots| [(twice, 0), (unused, 1), (fresh, 2), (twice, 3)].map(|(g, n)| slots.wants(g, n));
        assert_eq!(wanted(slots), [false, false, false, true]);
        slots.set(twice, SeriesRef(7), memory).unwrap();
        assert_eq!(wanted(slots), [false; 4], "the definition is a series already");
        assert_eq!([twice, unused, SeriesRef(99)].map(|g| slots.series(g)), [Some(SeriesRef(7)), None, None]);
        slots.retain(|given, series| (given, series) != (twice, SeriesRef(7)));
        assert_eq!(slots.all().count(), 0);
    }

    #[test]
    fn references_take_no_more_memory_than_there_is() {
        let mut references = references(64 << 10);
        let (slots, memory) = references.of(&TenantId::anonymous()).unwrap();
        assert!(slots.set(SeriesRef(u32::MAX - 1), SeriesRef(0), memory).is_err());
        assert!(slots.set(SeriesRef(5_000), SeriesRef(0), memory).is_ok());
        assert!(memory.bytes() >= slots.0.capacity() as u64 * 4);
        references.clear();
        assert_eq!(references.memory.bytes(), 0);
    }
}
