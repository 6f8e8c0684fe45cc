//! Named places where a test lets a round be cut short, as if the process had died there or the store had failed.
//!
//! Outside of this crate's tests a place is nothing at all.

/// Every place, in the order in which a round comes by.
#[cfg(test)]
pub(crate) const PLACES: [&str; 9] = [
    "frozen",
    "staging",
    "staged",
    "attempt_noted",
    "before_commit",
    "after_commit",
    "committed",
    "floodmark_noted",
    "released",
];

/// Fails if a test asked for it.
#[cfg(not(test))]
#[inline]
pub(crate) fn point(_place: &'static str, _faults: &Faults) -> Result<(), super::error::SealError> {
    Ok(())
}

/// What a test asks for.
#[derive(Default)]
pub(crate) struct Faults {
    /// Where to fail once.
    #[cfg(test)]
    pub(crate) at: parking_lot::Mutex<Option<&'static str>>,
    /// Where to end, as if the process had died.
    #[cfg(test)]
    dies_at: parking_lot::Mutex<Option<(u32, &'static str)>>,
    /// What to do once at a place before going on.
    #[cfg(test)]
    pub(crate) hook: parking_lot::Mutex<Option<(&'static str, Hook)>>,
}

/// Something that happens beside a round.
#[cfg(test)]
pub(crate) type Hook = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

#[cfg(test)]
impl Faults {
    /// From that place on sealing goes no further.
    pub(crate) fn die_at(&self, place: &'static str) {
        self.die_at_the(1, place);
    }

    /// The same, when it comes by for the `n`th time.
    pub(crate) fn die_at_the(&self, n: u32, place: &'static str) {
        *self.dies_at.lock() = Some((n, place));
    }
}

/// Fails if a test asked for it.
#[cfg(test)]
pub(crate) fn point(place: &'static str, faults: &Faults) -> Result<(), super::error::SealError> {
    debug_assert!(PLACES.contains(&place), "BUG: {place} is not listed");
    if let Some((left, at)) = &mut *faults.dies_at.lock()
        && *at == place
    {
        *left = left.saturating_sub(1);
        if *left == 0 {
            return Err(super::error::SealError::Stopping);
        }
    }
    let hook = faults.hook.lock().take_if(|(at, _)| *at == place);
    if let Some((_, hook)) = hook {
        hook();
    }
    match faults.at.lock().take_if(|at| *at == place) {
        Some(_) => Err(super::error::SealError::Injected(place)),
        None => Ok(()),
    }
}
