//! References of the dictionary being replayed.
//!
//! A definition in the journal is only text. [`super::demand`] determines which definitions must become series, and
//! records them here. The record of a reference takes 4 bytes, which later hold the series.

use model::{SeriesRef, TenantId};
use std::collections::HashMap;
use stdx::budget::{Exhausted, IncrementalReservation, Reservation};

/// Memory of a tenant without its slots: its name and its entry in the map.
const TENANT_BYTES: u64 = 256;

/// References of one dictionary, by tenant, in reserved memory.
#[derive(Debug)]
pub(super) struct References {
    tenants: HashMap<TenantId, Slots>,
    memory: Reservation,
}

/// One tenant's references, in a table, which is smaller than a map because references are dense.
#[derive(Debug, Default)]
pub(super) struct Slots(Vec<Slot>);

/// State of a reference: its series; or, if there is none, the last definition in tables and whether the definition is
/// needed.
///
/// ```text
///   0 series (31 bits)                            the series in the head
///   1 NEEDED FRESH record in the dictionary (29)  no series so far
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

const NO_SERIES: u32 = 1 << 31;
/// Set if a sample that is not in tables, or an exemplar, uses a definition from a record that is in tables.
const NEEDED: u32 = 1 << 30;
/// Set if a record that is not in tables defines the reference: uses from there on need no earlier definition.
const FRESH: u32 = 1 << 29;
const NUMBER: u32 = FRESH - 1;

impl Slot {
    /// No definition was found so far.
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

    /// Forgets all references: another dictionary begins.
    pub(super) fn clear(&mut self) {
        self.tenants = HashMap::new();
        self.memory.resize(0).expect("BUG: a reservation cannot shrink");
    }

    /// A tenant's references, and the memory for more of them.
    pub(super) fn of(&mut self, tenant: &TenantId) -> Result<(&mut Slots, &mut Reservation), Exhausted> {
        if !self.tenants.contains_key(tenant) {
            self.memory.resize(self.memory.bytes() + TENANT_BYTES)?;
            self.tenants.insert(tenant.clone(), Slots::default());
        }
        let slots = self.tenants.get_mut(tenant).expect("BUG: the tenant was not added");
        Ok((slots, &mut self.memory))
    }

    /// Forgets the series of a tenant's references: they are no longer in the head.
    pub(super) fn forget(&mut self, tenant: &TenantId) {
        if let Some(slots) = self.tenants.get_mut(tenant) {
            slots.retain(|_, _| false);
        }
    }

    /// All tenants and the slots of their references.
    pub(super) fn tenants_mut(&mut self) -> impl Iterator<Item = (&TenantId, &mut Slots)> {
        self.tenants.iter_mut()
    }

    /// True if a reference defined before the surveyed records is needed.
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

    /// Series of a reference.
    #[inline]
    pub(super) fn series(&self, given: SeriesRef) -> Option<SeriesRef> {
        self.0.get(given.index()).and_then(|slot| slot.series())
    }

    /// Maps a reference to a series.
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

    /// Removes references for which `keeps` is false: they are not used any more.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(SeriesRef, SeriesRef) -> bool) {
        for (given, slot) in self.0.iter_mut().enumerate() {
            if let Some(series) = slot.series()
                && !keeps(SeriesRef(given as u32), series)
            {
                *slot = Slot::UNDEFINED;
            }
        }
    }

    /// Series of all references.
    pub(super) fn all(&self) -> impl Iterator<Item = SeriesRef> {
        self.0.iter().filter_map(|slot| slot.series())
    }

    /// Notes a definition by a record that is in tables, with this number in the dictionary.
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

    /// Notes a definition by a record that is not in tables.
    pub(super) fn note_fresh(&mut self, given: SeriesRef, memory: &mut Reservation) -> Result<(), Exhausted> {
        self.slot(given, memory)?.0 |= FRESH;
        Ok(())
    }

    /// Notes a use by data that is not in tables.
    pub(super) fn note_use(&mut self, given: SeriesRef, memory: &mut Reservation) -> Result<(), Exhausted> {
        let slot = self.slot(given, memory)?;
        slot.0 |= if slot.0 & FRESH == 0 { NEEDED } else { 0 };
        Ok(())
    }

    /// Last record in tables that defined the reference.
    pub(super) fn definition(&self, given: SeriesRef) -> u32 {
        self.get(given).0 & NUMBER
    }

    /// True if the reference's definition in this record, which is in tables, must become a series.
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
