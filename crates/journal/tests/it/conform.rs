use journal::conformance::{self, DICTIONARY_RECORDS_MAX, Place, RECORD_BYTES};
use journal::faulty::{Faults, Faulty};
use journal::{Durability, Journal, JournalId, Memory, Options, Settings};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Options for segments that are full before the suite's limit on records is reached.
pub(crate) fn small_segments() -> Options {
    let segment_bytes = 1024 + (DICTIONARY_RECORDS_MAX * RECORD_BYTES / 2) as u64;
    Options { segment_bytes, durability: Durability::Os, ..Options::default() }
}

struct Opened {
    settings: Settings,
    _dir: Option<TempDir>,
}

impl Opened {
    fn memory(dictionary_records_max: usize) -> Self {
        let id = JournalId { number: fresh(), partition: 3 };
        Self { settings: Settings::Memory(Memory::new(id, dictionary_records_max)), _dir: None }
    }

    fn files(dir: TempDir, options: Options) -> Self {
        Self { settings: Settings::Files { dir: dir.path().into(), options }, _dir: Some(dir) }
    }
}

impl Place for Opened {
    fn open(&mut self) -> Box<dyn Journal> {
        if let Settings::Files { options, .. } = &mut self.settings {
            options.fresh_id = fresh();
        }
        journal::open(&self.settings, 3).unwrap()
    }
}

fn fresh() -> u64 {
    static USED: AtomicU64 = AtomicU64::new(0);
    USED.fetch_add(1, Ordering::Relaxed)
}

/// A place in which each opened journal has faults of its own.
struct WithFaults(Opened, Faults, u64);

impl Place for WithFaults {
    fn open(&mut self) -> Box<dyn Journal> {
        self.2 += 1;
        Box::new(Faulty::new(self.0.open(), self.1, self.2))
    }
}

#[test]
fn memory() {
    conformance::all(&mut || Box::new(Opened::memory(DICTIONARY_RECORDS_MAX / 2)));
}

#[test]
fn files() {
    conformance::all(&mut || Box::new(Opened::files(scratch(), small_segments())));
}

#[test]
fn files_with_fsync() {
    let options = Options { durability: Durability::Fsync, ..small_segments() };
    conformance::agrees_with_a_model(&mut Opened::files(tempfile::tempdir().unwrap(), options), 1);
}

#[test]
fn faulty_without_faults() {
    let make = || WithFaults(Opened::memory(20), Faults::default(), 0);
    conformance::all(&mut || Box::new(make()));
}

#[test]
fn faulty_with_faults() {
    let faults = Faults { append_error: 0.02, sync_error: 0.05, full: 0.01, full_calls: 7 };
    for seed in 0..20 {
        let mut place = WithFaults(Opened::memory(20), faults, seed);
        conformance::agrees_with_a_model(&mut place, seed);
        let mut place = WithFaults(Opened::files(scratch(), small_segments()), faults, seed);
        conformance::agrees_with_a_model(&mut place, seed);
    }
}
