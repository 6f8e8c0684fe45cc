//! Lets file operations fail, and checks that the journal still agrees with the model of the conformance
//! suite.

use crate::bad_disk::{BadDisk, FileFault, FileFaults};
use crate::conform::{scratch, small_segments};
use journal::conformance::{self, Place};
use journal::{Durability, Files, Item, Journal, JournalError, Offset, Options};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use stdx::rng::Rng;

#[derive(Debug)]
struct Random(Mutex<Rng>);

impl FileFaults for Random {
    fn before(&self, _operation: &'static str, bytes: usize, _path: &Path) -> Result<(), FileFault> {
        let mut rng = self.0.lock().unwrap();
        if !rng.chance(0.05) {
            return Ok(());
        }
        // the error numbers for an input/output error, a full disk and an exceeded quota
        let code = [5, 28, 122][rng.below(3) as usize];
        Err(FileFault {
            error: io::Error::from_raw_os_error(code),
            done: rng.below(bytes as u64 + 1) as usize,
        })
    }
}

struct OnBadDisk(tempfile::TempDir, Options);

impl Place for OnBadDisk {
    fn open(&mut self) -> Box<dyn Journal> {
        Box::new(Files::open(self.0.path(), 0, self.1.clone()).unwrap())
    }
}

#[test]
fn any_operation_may_fail() {
    for seed in 0..20 {
        let disk = Arc::new(BadDisk(Arc::new(Random(Mutex::new(Rng::new(seed))))));
        let durability = if seed < 2 { Durability::Fsync } else { Durability::Os };
        let options = Options { durability, disk, seed, ..small_segments() };
        let mut place = OnBadDisk(scratch(), options);
        conformance::agrees_with_a_model(&mut place, seed);
    }
}

#[derive(Debug)]
struct FreeBytes(AtomicI64);

impl FileFaults for FreeBytes {
    fn before(&self, operation: &'static str, bytes: usize, _path: &Path) -> Result<(), FileFault> {
        let takes = if operation == "fallocate" { bytes as i64 } else { 0 };
        if self.0.load(Ordering::SeqCst) < takes {
            return Err(FileFault { error: io::Error::from(rustix::io::Errno::NOSPC), done: 0 });
        }
        self.0.fetch_sub(takes, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_full_disk_refuses_until_there_is_room() {
    let left = Arc::new(FreeBytes(AtomicI64::new(10 << 20)));
    let disk = Arc::new(BadDisk(Arc::clone(&left) as Arc<dyn FileFaults>));
    let dir = scratch();
    let options = Options { durability: Durability::Os, disk, ..Options::default() };
    let mut journal = Files::open(dir.path(), 0, options).unwrap();
    let record = vec![7; 500_000];
    let group = |journal: &mut Files| -> Result<Offset, JournalError> {
        journal.begin()?;
        journal.append(&record)?;
        journal.sync()
    };
    let mut kept = 0;
    let refused = loop {
        match group(&mut journal) {
            Ok(end) => kept = end.0,
            Err(e) => break e,
        }
    };
    // preallocation of 16 MiB fails, but the journal can use all of the 10 MiB except the headroom
    assert!((17..=20).contains(&kept), "{kept}");
    assert!(matches!(refused, JournalError::Full { .. }));
    assert_eq!(refused.kind(), model::ErrorKind::Unavailable);
    for _ in 0..5 {
        assert!(matches!(group(&mut journal), Err(JournalError::Full { .. })), "the disk is still full");
    }
    assert_eq!(journal.durable_end(), Offset(kept));

    let mut reader = journal.read(Offset(0)).unwrap();
    let mut read = 0;
    while let Some(Item::Entry(_)) = reader.next().unwrap() {
        read += 1;
    }
    assert_eq!(read, kept);

    // once there is room, writing goes on without a restart
    left.0.store(50 << 20, Ordering::SeqCst);
    assert_eq!(group(&mut journal).unwrap(), Offset(kept + 1));
    assert!(journal.stats().dictionaries <= 2, "failed groups leave no segments behind");
}

/// Lets one `fdatasync` fail, and records which operations on the same file follow.
#[derive(Debug)]
struct OneBadSync {
    /// The sync after this many successful ones fails.
    left: AtomicI64,
    failed: Mutex<Option<PathBuf>>,
    touched: Mutex<Vec<&'static str>>,
}

impl FileFaults for OneBadSync {
    fn before(&self, operation: &'static str, _bytes: usize, path: &Path) -> Result<(), FileFault> {
        let mut failed = self.failed.lock().unwrap();
        if failed.as_deref() == Some(path) {
            self.touched.lock().unwrap().push(operation);
        }
        if operation == "fdatasync" && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            *failed = Some(path.into());
            return Err(FileFault { error: io::Error::from_raw_os_error(5), done: 0 });
        }
        Ok(())
    }
}

#[test]
fn a_failed_sync_is_never_tried_again_on_the_same_file() {
    let dir = scratch();
    let faults =
        Arc::new(OneBadSync { left: AtomicI64::new(2), failed: Mutex::default(), touched: Mutex::default() });
    let disk = Arc::new(BadDisk(Arc::clone(&faults) as Arc<dyn FileFaults>));
    let options = Options { disk, ..Options::default() };
    let mut journal = Files::open(dir.path(), 0, options.clone()).unwrap();
    let first = journal.begin().unwrap();
    journal.append(b"kept").unwrap();
    journal.sync().unwrap();
    journal.append(b"void").unwrap();
    let failed = journal.sync().unwrap_err().to_string();
    assert!(
        failed.starts_with("cannot fdatasync ") && failed.contains("00000000000000000000.journal: "),
        "{failed}"
    );
    assert!(matches!(journal.sync(), Err(JournalError::Void)));
    assert_ne!(journal.begin().unwrap(), first);
    assert_eq!(journal.append(b"next").unwrap(), Offset(1));
    journal.sync().unwrap();
    drop(journal);
    // Syncing the file again might succeed although the kernel has dropped its unwritten pages, so the
    // journal must not touch the file anymore.
    assert!(faults.failed.lock().unwrap().is_some());
    assert_eq!(*faults.touched.lock().unwrap(), [""; 0]);

    let journal = Files::open(dir.path(), 0, options).unwrap();
    let mut reader = journal.read(Offset(0)).unwrap();
    let mut payloads = Vec::new();
    while let Some(Item::Entry(entry)) = reader.next().unwrap() {
        payloads.push(entry.payload.to_vec());
    }
    assert_eq!(payloads, [b"kept", b"next"]);
}
