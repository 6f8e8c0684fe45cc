//! Work that can wait lets requests go first.
//!
//! A thread that seals or compacts always has something to do. Its lower priority alone does not keep it out of the way:
//! a kernel lets whoever runs finish a slice of some milliseconds first, several times in the life of a request, which
//! wakes one thread after the other. So such a thread steps aside by itself, and only between two locks: nobody ever
//! waits for a lock whose holder waits for a processor.

use crate::node::Shared;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long it is worked before it is looked who else wants the processor.
const TURN: Duration = Duration::from_micros(50);

/// For how many times as long as it was worked others may be let pass, so that under steady load a third of the time is
/// left; and how much of that is saved up.
const WAIT_FACTOR: u32 = 2;
const WAIT_MAX: Duration = Duration::from_millis(50);

/// A turn that took longer than this was somebody else's turn too.
const WORKED_MAX: Duration = Duration::from_millis(1);

/// How often it is looked whether the requests are gone.
const POLL: Duration = Duration::from_micros(200);

/// The head's fill, in percent, from which on nobody is let pass: then to seal is what those who write need most.
const URGENT_PERCENT: u64 = 60;

/// Write requests that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct Traffic(AtomicUsize);

/// One of them.
#[derive(Debug)]
pub(crate) struct Passing<'a>(&'a Traffic);

impl Traffic {
    /// A request is being worked on until what is returned is dropped.
    pub(crate) fn enter(&self) -> Passing<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Passing(self)
    }

    /// True where there is no request.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How a thread with work that can wait behaves.
#[derive(Debug)]
pub(crate) struct Courtesy {
    /// Since when it works.
    since: Instant,
    /// How long others may still be let pass.
    patience: Duration,
}

impl Courtesy {
    /// Of a thread that begins to work.
    pub(crate) fn new(node: &Shared) -> Self {
        Self { since: node.clock.instant(), patience: Duration::ZERO }
    }

    /// Lets others pass, where some time was worked. To be called often, and where no lock is held.
    pub(crate) fn let_pass(&mut self, node: &Shared) {
        let clock = &node.clock;
        let worked = clock.instant().saturating_duration_since(self.since);
        if worked < TURN {
            return;
        }
        // whoever was woken for this processor need not wait for the end of a slice
        std::thread::yield_now();
        self.patience = (self.patience + worked.min(WORKED_MAX) * WAIT_FACTOR).min(WAIT_MAX);
        let mut now = clock.instant();
        while !self.patience.is_zero() && !node.traffic.is_quiet() && !is_urgent(node) {
            clock.sleep(POLL);
            let woken = clock.instant();
            self.patience = self.patience.saturating_sub(woken.saturating_duration_since(now).max(POLL));
            now = woken;
        }
        self.since = now;
    }
}

fn is_urgent(node: &Shared) -> bool {
    node.head_bytes() >= node.settings.budget.head_bytes / 100 * URGENT_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::tests::small_node;

    #[test]
    fn requests_go_first_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        let shared = node.shared();
        let mut courtesy = Courtesy::new(shared);
        let worked = |courtesy: &mut Courtesy, time: Duration| {
            courtesy.since =
                courtesy.since.checked_sub(time).expect("the machine is up for longer than that");
            courtesy.let_pass(shared);
        };
        worked(&mut courtesy, WORKED_MAX);
        let saved = courtesy.patience;
        assert!(saved >= WORKED_MAX * WAIT_FACTOR, "nobody came: {saved:?}");
        let passing = shared.traffic.enter();
        assert!(!shared.traffic.is_quiet());
        worked(&mut courtesy, TURN);
        assert_eq!(courtesy.patience, Duration::ZERO, "all that was saved, and no more");
        drop(passing);
        assert!(shared.traffic.is_quiet());
        for _ in 0..1000 {
            worked(&mut courtesy, Duration::from_secs(1));
        }
        assert_eq!(courtesy.patience, WAIT_MAX);
        node.stop();
    }
}
