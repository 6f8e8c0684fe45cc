//! Named places in the code at which a test can let a round fail, or stop it as if the process had died. Builds
//! without tests have no such places.

/// The places that every round passes, in this order.
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

/// Places that only some rounds pass, or none.
#[cfg(test)]
const OTHERS: [&str; 1] = ["asked"];

/// Fails if a test wants this place to fail.
#[cfg(not(test))]
#[inline]
pub(crate) fn point(_place: &'static str, _faults: &Faults) -> Result<(), super::error::SealError> {
    Ok(())
}

#[derive(Default)]
pub(crate) struct Faults {
    #[cfg(test)]
    pub(crate) at: parking_lot::Mutex<Option<&'static str>>,
    /// Sealing stops, as if the process had died, when it comes to this place for the `n`th time.
    #[cfg(test)]
    dies_at: parking_lot::Mutex<Option<(u32, &'static str)>>,
    #[cfg(test)]
    pub(crate) hook: parking_lot::Mutex<Option<(&'static str, Hook)>>,
}

#[cfg(test)]
pub(crate) type Hook = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

#[cfg(test)]
impl Faults {
    pub(crate) fn die_at(&self, place: &'static str) {
        self.die_at_the(1, place);
    }

    pub(crate) fn die_at_the(&self, n: u32, place: &'static str) {
        *self.dies_at.lock() = Some((n, place));
    }
}

#[cfg(test)]
pub(crate) fn point(place: &'static str, faults: &Faults) -> Result<(), super::error::SealError> {
    debug_assert!(PLACES.contains(&place) || OTHERS.contains(&place), "BUG: {place} is not listed");
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
