use journal::conformance::{self, DICTIONARY_RECORDS_MAX, Place, RECORD_BYTES};
use journal::faulty::{Faults, Faulty};
use journal::{Durability, Files, Journal, Memory, Options};
use tempfile::TempDir;

/// A directory in memory where there is such a thing: what a disk does is simulated here.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Full with fewer than the suite's records.
pub(crate) fn small_segments() -> Options {
    let segment_bytes = 1024 + (DICTIONARY_RECORDS_MAX * RECORD_BYTES / 2) as u64;
    Options { segment_bytes, durability: Durability::Os, ..Options::default() }
}

struct InMemory(Memory);

impl Place for InMemory {
    fn open(&mut self) -> Box<dyn Journal> {
        Box::new(self.0.reopen())
    }
}

struct OnDisk(TempDir, Options);

impl OnDisk {
    fn new(options: Options) -> Self {
        Self(scratch(), options)
    }
}

impl Place for OnDisk {
    fn open(&mut self) -> Box<dyn Journal> {
        Box::new(Files::open(self.0.path(), 3, self.1.clone()).unwrap())
    }
}

/// Opened again and again with other faults.
struct WithFaults<P>(P, Faults, u64);

trait Inner {
    type Journal: Journal + 'static;
    fn open(&mut self) -> Self::Journal;
}

impl Inner for InMemory {
    type Journal = Memory;
    fn open(&mut self) -> Memory {
        self.0.reopen()
    }
}

impl Inner for OnDisk {
    type Journal = Files;
    fn open(&mut self) -> Files {
        Files::open(self.0.path(), 0, self.1.clone()).unwrap()
    }
}

impl<P: Inner> Place for WithFaults<P> {
    fn open(&mut self) -> Box<dyn Journal> {
        self.2 += 1;
        Box::new(Faulty::new(self.0.open(), self.1, self.2))
    }
}

#[test]
fn memory() {
    conformance::all(&mut || Box::new(InMemory(Memory::new(DICTIONARY_RECORDS_MAX / 2))));
}

#[test]
fn files() {
    conformance::all(&mut || Box::new(OnDisk::new(small_segments())));
}

#[test]
fn files_with_fsync() {
    let options = Options { durability: Durability::Fsync, ..small_segments() };
    conformance::agrees_with_a_model(&mut OnDisk(tempfile::tempdir().unwrap(), options), 1);
}

#[test]
fn faulty_without_faults() {
    let make = || WithFaults(InMemory(Memory::new(20)), Faults::default(), 0);
    conformance::all(&mut || Box::new(make()));
}

#[test]
fn faulty_with_faults() {
    let faults = Faults { append_error: 0.02, sync_error: 0.05, full: 0.01, full_calls: 7 };
    for seed in 0..20 {
        let mut place = WithFaults(InMemory(Memory::new(20)), faults, seed);
        conformance::agrees_with_a_model(&mut place, seed);
        let mut place = WithFaults(OnDisk::new(small_segments()), faults, seed);
        conformance::agrees_with_a_model(&mut place, seed);
    }
}
