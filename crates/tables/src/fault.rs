//! A test can end upkeep at these places, as if the process had died there. They cost nothing outside of this crate's
//! tests.

use crate::error::TableError;

/// Names of all places, in the order in which upkeep reaches them.
#[cfg(test)]
pub(crate) const PLACES: [&str; 13] = [
    "expired",
    "compaction_opened",
    "compaction_file_staged",
    "compacting",
    "compaction_staged",
    "compaction_committed",
    "deletes_ended",
    "checkpointed",
    "log_listed",
    "log_entry_deleted",
    "sweep_listed",
    "sweep_noted",
    "swept_file",
];

#[cfg(not(test))]
#[inline]
pub(crate) fn point(_place: &'static str) -> Result<(), TableError> {
    Ok(())
}

#[cfg(test)]
thread_local! {
    static DIES_AT: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Makes the current thread's operation fail once at `place`.
#[cfg(test)]
pub(crate) fn die_at(place: &'static str) {
    DIES_AT.set(Some(place));
}

/// True if the operation did not reach the place given to [`die_at`].
#[cfg(test)]
pub(crate) fn is_alive() -> bool {
    DIES_AT.get().is_some()
}

/// Fails if a test chose this place with [`die_at`].
#[cfg(test)]
pub(crate) fn point(place: &'static str) -> Result<(), TableError> {
    debug_assert!(PLACES.contains(&place), "BUG: {place} is not listed");
    if DIES_AT.get() != Some(place) {
        return Ok(());
    }
    DIES_AT.set(None);
    let source = format!("injected at {place}").into();
    Err(object_store::Error::Generic { store: "fault", source }.into())
}
