//! Runs writers and sweepers concurrently, and checks that no commit names a file that was deleted.

use crate::faults::{Failing, Faults, Put};
use crate::fleet::{DAY, Series, date, fleet, stem};
use crate::other;
use crate::table::{location, open, stage};
use crate::upkeep::contents;
use model::Samples;
use object_store::path::Path;
use object_store::{PutOptions, PutPayload};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use stdx::rng::Rng;
use tables::METRICS;
use tables::delta::{LEASE_MS, Lease, StagedBlock, StagedFile, Sweeper};
use tables::live_file::LiveFile;
use tables::write::FileWriter;
use tables::{Cache, Outcome, Scan, ScanLimits, Select, Table, TableError};
use tempfile::TempDir;

const GRACE_MS: i64 = 100;

fn block(files: Vec<StagedFile>) -> StagedBlock {
    StagedBlock { source: "import/x".into(), after: None, upto: 1, through: None, files }
}

fn stage_leased(table: &Table, lease: &Lease, number: u32, series: &[Series]) -> StagedFile {
    let upload = table.upload_leased(lease, date(), number).unwrap();
    let mut writer = FileWriter::new(&METRICS, date(), upload, 1 << 20).unwrap();
    series.iter().for_each(|one| writer.push(&one.stretch()).unwrap());
    let (summary, upload) = writer.finish().unwrap();
    table.staged(summary, upload).unwrap()
}

fn exists(folder: &TempDir, file: &StagedFile) -> bool {
    folder.path().join("tenant").join(&file.path).exists()
}

/// Number of objects in the `_floodmark` folder.
fn beside(folder: &TempDir) -> usize {
    std::fs::read_dir(folder.path().join("tenant/_floodmark")).map_or(0, Iterator::count)
}

/// Sweeps the table at several times, as another process would, until everything that may be swept is deleted. Returns
/// the number of deleted files.
fn sweep_all(folder: &TempDir) -> u64 {
    let (table, mut sweeper) = (open(folder), Sweeper::default());
    let times = [0, GRACE_MS, LEASE_MS, LEASE_MS + GRACE_MS];
    times.into_iter().map(|now_ms| sweeper.sweep(&table, now_ms, GRACE_MS).unwrap().files).sum()
}

#[test]
fn swept_files_are_never_committed() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let series = fleet(2, 2, 10);
    let file = stage(&table, "slow", &series);
    assert_eq!(sweep_all(&folder), 1);
    assert!(!exists(&folder, &file));
    let refused = table.commit(&[block(vec![file])], DAY);
    assert!(matches!(refused, Err(TableError::Lapsed { .. })), "{refused:?}");
    assert_eq!(contents(&open(&folder)).unwrap().len(), 0, "nothing was committed");
    table.refresh().unwrap();
    let again = block(vec![stage(&table, "again", &series)]);
    assert!(matches!(table.commit(&[again], DAY).unwrap()[..], [Outcome::Committed { .. }]));
    assert_eq!(contents(&open(&folder)).unwrap().len(), 40);
}

#[test]
fn swept_files_replace_nothing() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let series = fleet(2, 2, 10);
    table.commit(&[block(vec![stage(&table, "live", &series)])], DAY).unwrap();
    let before = contents(&table).unwrap();
    let merged = stage(&table, "merged", &series);
    assert_eq!(sweep_all(&folder), 1);
    let refused = table.replace(table.files().unwrap().all(), &[merged]);
    assert!(matches!(refused, Err(TableError::Lapsed { .. })), "{refused:?}");
    assert_eq!(contents(&open(&folder)).unwrap(), before);
}

#[test]
fn a_renewed_lease_protects_files_beyond_the_grace_period() {
    let folder = TempDir::new().unwrap();
    let (table, server) = (open(&folder), open(&folder));
    let mut lease = table.lease(stem("x"), 7).unwrap();
    let files: Vec<_> = fleet(3, 1, 5)
        .chunks(1)
        .zip(0..)
        .map(|(series, n)| stage_leased(&table, &lease, n, series))
        .collect();
    let left_behind = stage(&table, "xy", &fleet(1, 1, 1));
    let mut sweeper = Sweeper::default();
    for minute in 0..300 {
        lease.keep(7 + minute * 60_000).unwrap();
        sweeper.sweep(&server, minute * 60_000, GRACE_MS).unwrap();
    }
    assert!(!exists(&folder, &left_behind), "a file without a lease must be swept");
    assert!(files.iter().all(|file| exists(&folder, file)));
    let outcomes = table.commit(&[block(files)], DAY).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Committed { .. }]));
    lease.release().unwrap();
    assert_eq!((contents(&open(&folder)).unwrap().len(), beside(&folder)), (15, 0));
}

#[test]
fn a_lease_without_a_pulse_is_broken_for_good() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut lease = table.lease(stem("x"), 0).unwrap();
    let file = stage_leased(&table, &lease, 1, &fleet(1, 1, 5));
    let (server, mut sweeper) = (open(&folder), Sweeper::default());
    for now_ms in [0, LEASE_MS - 1] {
        assert_eq!(sweeper.sweep(&server, now_ms, GRACE_MS).unwrap().waiting, 1);
    }
    assert_eq!(sweeper.sweep(&server, LEASE_MS, GRACE_MS).unwrap().files, 1);
    assert_eq!(beside(&folder), 0);
    // a late pulse does not restore the lease
    lease.keep(i64::MAX).unwrap();
    let refused = table.commit(&[block(vec![file])], DAY);
    assert!(matches!(refused, Err(TableError::Lapsed { .. })), "{refused:?}");
    for now_ms in [2 * LEASE_MS, 3 * LEASE_MS] {
        sweeper.sweep(&server, now_ms, GRACE_MS).unwrap();
    }
    assert_eq!(beside(&folder), 0, "the late pulse must be deleted, too");
}

/// A store that runs a closure before it puts the first log entry.
struct BeforeCommit {
    done: AtomicBool,
    what: Mutex<Box<dyn FnMut() + Send>>,
}

impl std::fmt::Debug for BeforeCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeCommit")
    }
}

impl Faults for BeforeCommit {
    fn put(&self, path: &Path, _: &PutPayload, _: &PutOptions) -> Put {
        let is_entry = path.as_ref().contains("_delta_log") && path.as_ref().ends_with(".json");
        if is_entry && !self.done.swap(true, Ordering::SeqCst) {
            // the closure makes requests and waits for them, which must not happen on a thread of the runtime
            std::thread::scope(|threads| threads.spawn(|| (self.what.lock().unwrap())()).join().unwrap());
        }
        Put::Done
    }
}

/// A table whose first commit is preceded by a sweep, after the writer has checked that its files were not swept.
fn swept_before_the_put(folder: &Arc<TempDir>) -> Table {
    drop(open(folder));
    let there = Arc::clone(folder);
    let what = Mutex::new(Box::new(move || _ = sweep_all(&there)) as Box<dyn FnMut() + Send>);
    let faults = BeforeCommit { done: AtomicBool::new(false), what };
    let location = location(folder).with_store(|store| Arc::new(Failing { store, faults }));
    Table::open(&METRICS, location).unwrap().unwrap()
}

#[test]
fn a_sweep_between_check_and_commit_stops_the_commit() {
    for leased in [false, true] {
        let folder = Arc::new(TempDir::new().unwrap());
        let table = swept_before_the_put(&folder);
        let lease = table.lease(stem("x"), 0).unwrap();
        let series = fleet(1, 1, 5);
        let file =
            if leased { stage_leased(&table, &lease, 1, &series) } else { stage(&table, "1", &series) };
        let refused = table.commit(&[block(vec![file.clone()])], DAY);
        assert!(!exists(&folder, &file));
        assert!(matches!(refused, Err(TableError::Lapsed { .. })), "leased {leased}: {refused:?}");
        assert_eq!(contents(&open(&folder)).unwrap().len(), 0);
    }
}

/// Sweeps the table when the monotonic clock shows `now_ms`. Returns the number of deleted files.
fn sweep_at(sweeper: &mut Sweeper, folder: &TempDir, now_ms: i64) -> u64 {
    sweeper.sweep(&open(folder), now_ms, GRACE_MS).unwrap().files
}

#[test]
fn sweep_leaves_staged_files_of_other_engines() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    table.commit(&[block(vec![stage(&table, "sealed", &fleet(2, 2, 10))])], DAY).unwrap();
    let (original, before) = (table.files().unwrap().all()[0].clone(), contents(&table).unwrap());
    let rewritten = other::stage_copy(&folder, &original, "part-00000-x");
    let left_behind = other::stage_copy(&folder, &original, "part-00001-x");
    let is_there = |file: &LiveFile| folder.path().join("tenant").join(&file.path).exists();
    let mut sweeper = Sweeper::default();
    for now_ms in [0, GRACE_MS, 10 * GRACE_MS] {
        assert_eq!(sweep_at(&mut sweeper, &folder, now_ms), 0);
    }
    assert!(is_there(&rewritten) && is_there(&left_behind));
    other::replace(&folder, table.version() + 1, &original, &rewritten, DAY);
    let swept: u64 = [11, 12, 13].into_iter().map(|n| sweep_at(&mut sweeper, &folder, n * GRACE_MS)).sum();
    assert_eq!((swept, is_there(&original)), (1, false));
    assert_eq!(contents(&open(&folder)).unwrap(), before);
    assert!(is_there(&left_behind), "the engine's VACUUM deletes its staged files");
}

#[test]
fn sweep_deletes_removed_files_of_other_engines() {
    for is_checkpointed in [false, true] {
        let folder = TempDir::new().unwrap();
        let table = open(&folder);
        table.commit(&[block(vec![stage(&table, "sealed", &fleet(2, 2, 10))])], DAY).unwrap();
        let original = table.files().unwrap().all()[0].clone();
        let rewritten = other::stage_copy(&folder, &original, "part-00000-x");
        other::replace(&folder, table.version() + 1, &original, &rewritten, DAY);
        table.refresh().unwrap();
        assert_eq!(table.expire(i64::MAX).unwrap(), 1);
        if is_checkpointed {
            table.checkpoint().unwrap();
            // only the checkpoint records the removal
            std::fs::remove_file(
                folder.path().join(format!("tenant/_delta_log/{:020}.json", table.version())),
            )
            .unwrap();
        }
        // this process starts after the removal, so it never saw the file live
        let mut sweeper = Sweeper::default();
        let swept: u64 =
            [0, GRACE_MS].into_iter().map(|now_ms| sweep_at(&mut sweeper, &folder, now_ms)).sum();
        assert_eq!(swept, 2, "the original and the copy are swept; checkpointed: {is_checkpointed}");
        assert!(!folder.path().join("tenant").join(&rewritten.path).exists());
    }
}

/// Begins to scan a table whose only file is larger than a window of the scan, so that the rest is still to be
/// fetched.
fn scan_begun(folder: &TempDir) -> (Arc<Table>, Scan, usize) {
    let table = open(folder);
    let mut rng = Rng::new(3);
    let mut series = fleet(10, 20, 600);
    series.iter_mut().flat_map(|s| &mut s.values).for_each(|value| *value = rng.unit());
    table.commit(&[block(vec![stage(&table, "read", &series)])], DAY).unwrap();
    let limits = ScanLimits { bytes: 0, ..ScanLimits::default() };
    let mut scan = Scan::open(&table, &Arc::new(Cache::new(0)), &Select::ALL, &limits).unwrap();
    assert!(scan.next_series().unwrap());
    (table, scan, series.len() * 600)
}

/// Number of samples in the current series and all later ones.
fn rest(scan: &mut Scan) -> usize {
    let mut samples = Samples::default();
    scan.read(&mut samples).unwrap();
    while scan.next_series().unwrap() {
        scan.read(&mut samples).unwrap();
    }
    samples.len()
}

#[test]
fn a_file_that_is_read_is_not_swept_however_long_it_takes() {
    let folder = TempDir::new().unwrap();
    let (table, mut scan, all) = scan_begun(&folder);
    assert_eq!(table.expire(i64::MAX).unwrap(), 1);
    let mut sweeper = Sweeper::default();
    for hour in 0..100 {
        // opens the table anew, as a server does after it closed an idle table
        let same = Table::open(&METRICS, table.location().clone()).unwrap().unwrap();
        let swept = sweeper.sweep(&same, hour * 3_600_000, GRACE_MS).unwrap();
        assert_eq!((swept.files, swept.waiting), (0, 1));
    }
    assert_eq!((rest(&mut scan), scan.has_lost_files()), (all, false));
    drop(scan);
    assert_eq!(sweeper.sweep(&table, 101 * 3_600_000, GRACE_MS).unwrap().files, 1);
}

#[test]
fn file_deleted_during_a_read_is_missing_not_damaged() {
    let folder = TempDir::new().unwrap();
    let (table, mut scan, all) = scan_begun(&folder);
    let path = table.files().unwrap().all()[0].path.clone();
    std::fs::remove_file(folder.path().join("tenant").join(path)).unwrap();
    assert!(rest(&mut scan) < all && scan.has_lost_files());
    assert_eq!(scan.warnings().count(), 1);
}
