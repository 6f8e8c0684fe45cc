//! Environment of a node: time, files, object store and randomness. A simulation provides its own.

use crate::machine::private_bytes;
use journal::Disk;
use journal::disk::Os;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stdx::clock::Clock;
use stdx::rng::Rng;
use tables::store::DynObjectStore;

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) disk: Arc<dyn Disk>,
    /// Object store for the tables. If `None`, the settings say which store is used.
    pub(crate) store: Option<Arc<DynObjectStore>>,
    pub(crate) random: RandomSource,
    pub(crate) pause: Arc<dyn Pause>,
    /// Measures the memory of the process. `None` if the process may have more than one node.
    pub(crate) resident: Option<Arc<dyn Resident>>,
}

impl World {
    /// The real environment, in a process that may have several nodes.
    pub(crate) fn real(clock: Arc<dyn Clock>) -> Self {
        let pause = Arc::new(Sleep(Arc::clone(&clock)));
        Self {
            clock,
            disk: Arc::new(Os),
            store: None,
            random: RandomSource::default(),
            pause,
            resident: None,
        }
    }

    /// The real environment, in a process that has only this node.
    pub(crate) fn of_own_process(clock: Arc<dyn Clock>) -> Self {
        Self { resident: Some(Arc::new(OwnProcess)), ..Self::real(clock) }
    }
}

pub(crate) trait Pause: std::fmt::Debug + Send + Sync {
    fn pause(&self, time: Duration);
}

pub(crate) trait Resident: std::fmt::Debug + Send + Sync {
    fn bytes(&self) -> u64;
}

#[derive(Debug)]
struct OwnProcess;

impl Resident for OwnProcess {
    fn bytes(&self) -> u64 {
        private_bytes()
    }
}

#[derive(Debug)]
struct Sleep(Arc<dyn Clock>);

impl Pause for Sleep {
    fn pause(&self, time: Duration) {
        self.0.sleep(time);
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RandomSource(Option<Arc<Mutex<Rng>>>);

impl RandomSource {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Some(Arc::new(Mutex::new(Rng::new(seed)))))
    }

    pub(crate) fn fresh(&self) -> u64 {
        self.0.as_ref().map_or_else(Rng::fresh_seed, |rng| rng.lock().next_u64())
    }
}
