//! Checks that each block is committed exactly once, whichever process commits it, and however often.

use crate::fleet::{Series, date, fleet, stem};
use model::{ErrorKind, Samples};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use tables::DAY_MS;
use tables::METRICS;
use tables::delta::{COMMIT_FILES_MAX, Outcome, StagedBlock, StagedFile, Table};
use tables::store::Location;
use tables::write::FileWriter;
use tables::{BlockStager, Cache, Date, Scan, ScanLimits, Select, TableError, WriteLimits};
use tempfile::TempDir;

const NOW: i64 = 1_795_276_800_000;

pub(crate) fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    })
}

pub(crate) fn location(folder: &TempDir) -> Location {
    let url = format!("file://{}/tenant", folder.path().display());
    Location::open(&url, [], runtime().handle().clone()).unwrap()
}

pub(crate) fn open(folder: &TempDir) -> Arc<Table> {
    Arc::new(Table::open_or_create(&METRICS, location(folder)).unwrap())
}

fn log(folder: &TempDir, version: u64) -> PathBuf {
    folder.path().join(format!("tenant/_delta_log/{version:020}.json"))
}

/// A process that was killed while it created the table has left an unfinished file.
#[test]
fn a_table_whose_creation_was_killed_does_not_exist_and_can_be_created() {
    let folder = tempfile::tempdir().unwrap();
    let log_folder = folder.path().join("tenant/_delta_log");
    fs::create_dir_all(&log_folder).unwrap();
    fs::write(log_folder.join(".aside-1-0"), "{").unwrap();
    assert!(Table::open(&METRICS, location(&folder)).unwrap().is_none());
    assert_eq!(open(&folder).version(), 0);
    fs::remove_file(log(&folder, 0)).unwrap();
    fs::write(log_folder.join("_last_checkpoint"), "{}").unwrap();
    let error = Table::open(&METRICS, location(&folder)).unwrap_err().to_string();
    assert!(error.contains("00000000000000000000.json is missing"), "{error}");
}

/// Writes a file, which is not committed.
pub(crate) fn try_stage(table: &Table, name: &str, series: &[Series]) -> Result<StagedFile, TableError> {
    let mut writer = FileWriter::new(table.kind(), date(), table.upload(date(), &stem(name), 1)?, 1 << 20)?;
    series.iter().try_for_each(|one| writer.push(&one.stretch()))?;
    let (summary, upload) = writer.finish()?;
    table.staged(summary, upload)
}

pub(crate) fn stage(table: &Table, name: &str, series: &[Series]) -> StagedFile {
    try_stage(table, name, series).unwrap()
}

fn block(table: &Table, source: &str, after: Option<u64>, upto: u64) -> StagedBlock {
    let name = format!("{source}-{upto}-{:x}", stdx::rng::Rng::fresh_seed());
    // each block has its own samples
    static BLOCKS: AtomicI64 = AtomicI64::new(0);
    let shift = BLOCKS.fetch_add(1, Ordering::Relaxed) % 500 * 150_000;
    let mut series = fleet(2, 3, 10);
    series.iter_mut().for_each(|s| s.timestamps.iter_mut().for_each(|t| *t += shift));
    let files = vec![stage(table, &name, &series)];
    StagedBlock { source: source.into(), after, upto, through: None, files }
}

/// Number of samples that a scan finds. The scan must have no warnings.
fn samples(table: &Table) -> Result<u64, TableError> {
    let cache = Arc::new(Cache::new(1 << 20));
    let mut scan = Scan::open(table, &cache, &Select::ALL, &ScanLimits::default())?;
    let mut found = Samples::default();
    let mut count = 0;
    while scan.next_series()? {
        found.clear();
        scan.read(&mut found)?;
        count += found.len() as u64;
    }
    match scan.warnings().next() {
        Some(reason) => Err(TableError::Damaged { file: String::new(), reason }),
        None => Ok(count),
    }
}

#[test]
fn commits_are_visible_to_other_processes() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    assert_eq!((table.version(), samples(&table).unwrap()), (0, 0));
    let blocks =
        [block(&table, "j-0", None, 10), block(&table, "j-1", None, 7), block(&table, "j-0", Some(10), 20)];
    let outcomes = table.commit(&blocks, NOW).unwrap();
    assert_eq!(outcomes, [Outcome::Committed { version: 1 }; 3], "one commit has all blocks");
    for table in [&table, &open(&folder)] {
        let floodmarks = table.floodmarks(["j-0", "j-1", "j-2"]).unwrap();
        assert_eq!(floodmarks.into_iter().collect::<Vec<_>>(), [("j-0".into(), 20), ("j-1".into(), 7)]);
        assert_eq!(samples(table).unwrap(), 180);
        let files = table.files().unwrap();
        let summary = &blocks[0].files[0].summary;
        let one = files.all().iter().find(|f| f.path == blocks[0].files[0].path).unwrap();
        assert_eq!((one.rows, one.bytes, one.date), (summary.rows, summary.bytes, date()));
        assert_eq!(one.names, Some(("metric_0000".into(), "metric_0001".into())));
        assert_eq!(one.range.start_ms, summary.range.start_ms);
        assert_eq!(one.range.end_ms, summary.range.end_ms + 1);
    }
}

#[test]
fn a_block_is_committed_once() {
    let folder = TempDir::new().unwrap();
    let (table, other) = (open(&folder), open(&folder));
    let one = block(&table, "j", None, 10);
    assert_eq!(table.commit(std::slice::from_ref(&one), NOW).unwrap(), [Outcome::Committed { version: 1 }]);
    // committed again by the same writer, and by a writer that has not seen the first commit
    for table in [&table, &other] {
        assert_eq!(
            table.commit(std::slice::from_ref(&one), NOW).unwrap(),
            [Outcome::Already { floodmark: 10 }]
        );
    }
    let replayed =
        [block(&other, "j", None, 8), block(&other, "j", None, 15), block(&other, "j", Some(12), 15)];
    let mismatch = Outcome::FloodmarkMismatch { floodmark: Some(10) };
    assert_eq!(
        other.commit(&replayed, NOW).unwrap(),
        [Outcome::Already { floodmark: 10 }, mismatch, mismatch]
    );
    assert_eq!(
        other.commit(&[block(&other, "k", Some(3), 5)], NOW).unwrap(),
        [Outcome::FloodmarkMismatch { floodmark: None }]
    );
    assert_eq!(samples(&open(&folder)).unwrap(), 60);
    assert_eq!(other.version(), 1);
}

#[test]
fn two_writers_commit_each_block_once() {
    let folder = TempDir::new().unwrap();
    open(&folder);
    let committed: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let table = open(&folder);
                    let mut committed = 0;
                    for n in 0..12u64 {
                        let one = block(&table, "j", n.checked_sub(1), n);
                        let outcomes = table.commit(&[one], NOW).unwrap();
                        committed += usize::from(matches!(outcomes[0], Outcome::Committed { .. }));
                    }
                    committed
                })
            })
            .collect();
        writers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    let table = open(&folder);
    assert_eq!(committed, 12);
    assert_eq!(table.version(), 12);
    assert_eq!(table.files().unwrap().all().len(), 12);
    assert_eq!(samples(&table).unwrap(), 12 * 60);
}

/// An index of what a table has needs only the changes of other processes, if this process tells it of its own.
#[test]
fn lists_of_files_tell_changes_of_this_process_from_those_of_others() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mark = |table: &Table| table.files().unwrap().mark();
    let created = mark(&table);
    assert!(created.continues(None));
    for (after, upto) in [(None, 10), (Some(10), 20)] {
        table.commit(&[block(&table, "j-0", after, upto)], NOW).unwrap();
        table.refresh().unwrap();
        assert!(mark(&table).continues(Some(created)) && mark(&table).continues(None));
    }
    let own = mark(&table);
    let other = open(&folder);
    assert!(mark(&other).continues(Some(own)), "a table that is opened again has not changed");
    assert!(!mark(&other).continues(None) && !mark(&other).continues(Some(created)));
    other.commit(&[block(&other, "import-x", None, 1)], NOW).unwrap();
    assert!(mark(&table).continues(Some(own)), "the table has not seen the change yet");
    table.refresh().unwrap();
    let seen = mark(&table);
    assert!(!seen.continues(Some(own)) && !seen.continues(Some(created)) && seen.continues(Some(seen)));
    table.commit(&[block(&table, "j-0", Some(20), 30)], NOW).unwrap();
    assert!(mark(&table).continues(Some(seen)) && !mark(&table).continues(Some(own)));
}

#[test]
fn commits_hold_at_most_a_thousand_files() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let file = stage(&table, "one", &fleet(1, 1, 1));
    // the log does not check that files exist, so one file with many names suffices
    let files = |from: usize, n: usize| -> Vec<StagedFile> {
        (from..from + n).map(|i| StagedFile { path: format!("{}-{i}", file.path), ..file.clone() }).collect()
    };
    let one = |i: u64, n: usize| StagedBlock {
        source: format!("j-{i}"),
        after: None,
        upto: 1,
        through: None,
        files: files(i as usize * 1000, n),
    };
    let outcomes = table.commit(&[one(0, 600), one(1, 400), one(2, 1), one(3, 999)], NOW).unwrap();
    let versions = [1, 1, 2, 2].map(|version| Outcome::Committed { version });
    assert_eq!(outcomes, versions);
    let error = table.commit(&[one(4, COMMIT_FILES_MAX + 1)], NOW).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(table.files().unwrap().all().len(), 2000);
}

#[test]
fn files_are_replaced_at_once_or_not_at_all() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    table.commit(&[block(&table, "j", None, 1), block(&table, "j", Some(1), 2)], NOW).unwrap();
    let old = table.files().unwrap();
    let new = stage(&table, "new", &fleet(4, 3, 10));
    assert!(table.replace(old.all(), std::slice::from_ref(&new)).unwrap());
    let live = table.files().unwrap();
    assert_eq!(live.all().iter().map(|f| &f.path).collect::<Vec<_>>(), [&new.path]);
    assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 2, "floodmarks stay");
    assert!(!table.replace(old.all(), &[stage(&table, "newer", &fleet(4, 3, 10))]).unwrap());
    assert_eq!(open(&folder).files().unwrap().all(), live.all());
}

#[test]
fn a_checkpoint_holds_files_and_floodmarks() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    for n in 0..5u64 {
        table.commit(&[block(&table, "j", n.checked_sub(1), n)], NOW).unwrap();
    }
    table.checkpoint().unwrap();
    table.checkpoint().unwrap();
    // entries before the checkpoint are not needed
    for version in 0..5 {
        fs::remove_file(log(&folder, version)).unwrap();
    }
    let table = open(&folder);
    assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 4);
    assert_eq!(samples(&table).unwrap(), 300);
    table.commit(&[block(&table, "j", Some(4), 5)], NOW).unwrap();
    assert_eq!(samples(&open(&folder)).unwrap(), 360);
}

#[test]
fn staged_files_that_were_never_committed_are_not_read() {
    let folder = TempDir::new().unwrap();
    {
        let table = open(&folder);
        // the process stages the block's files, and dies before the commit
        block(&table, "j", None, 10);
    }
    let table = open(&folder);
    assert_eq!((table.version(), samples(&table).unwrap()), (0, 0));
    assert!(table.floodmarks(["j"]).unwrap().is_empty());
    assert_eq!(
        table.commit(&[block(&table, "j", None, 10)], NOW).unwrap(),
        [Outcome::Committed { version: 1 }]
    );
    assert_eq!(samples(&table).unwrap(), 60);
}

#[test]
fn a_file_name_is_never_overwritten() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let one = stage(&table, "same", &fleet(1, 1, 1));
    let path = folder.path().join("tenant").join(&one.path);
    let before = fs::read(&path).unwrap();
    let mut again = table.upload(date(), &stem("same"), 1).unwrap();
    again.write_all(&vec![0; before.len()]).unwrap();
    let again = table.staged(one.summary.clone(), again);
    assert!(matches!(again, Err(TableError::Store(object_store::Error::AlreadyExists { .. }))), "{again:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(names, 1, "no temporary file is left");
}

#[test]
fn damaged_files_are_reported() {
    let check = |damage: &dyn Fn(&PathBuf)| {
        let folder = TempDir::new().unwrap();
        let table = open(&folder);
        let one = block(&table, "j", None, 1);
        let path = folder.path().join("tenant").join(&one.files[0].path);
        table.commit(&[one], NOW).unwrap();
        damage(&path);
        let error = samples(&open(&folder)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(error.to_string().contains(path.file_name().unwrap().to_str().unwrap()), "{error}");
    };
    check(&|path| fs::remove_file(path).unwrap());
    check(&|path| fs::write(path, b"").unwrap());
    check(&|path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });
}

#[test]
fn damaged_log_is_reported() {
    let check = |version: u64, damage: &dyn Fn(&PathBuf)| {
        let folder = TempDir::new().unwrap();
        let table = open(&folder);
        for n in 0..3u64 {
            table.commit(&[block(&table, "j", n.checked_sub(1), n)], NOW).unwrap();
        }
        damage(&log(&folder, version));
        let opened = Table::open_or_create(&METRICS, location(&folder));
        let error = match opened.map(|table| samples(&table)) {
            Err(error) | Ok(Err(error)) => error,
            Ok(Ok(samples)) => panic!("{samples} samples of a damaged log"),
        };
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(error.to_string().contains("log of table"), "{error}");
    };
    let cut = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 40]).unwrap();
    };
    check(0, &|path| fs::write(path, b"").unwrap());
    check(0, &cut);
    check(2, &cut);
    check(2, &|path| fs::write(path, b"").unwrap());
    check(1, &|path| fs::remove_file(path).unwrap());
}

/// Each series begins earlier than the one before, so it moves the end of the pass back.
#[test]
fn a_block_of_many_days_goes_in_passes() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let series = |i: i64| {
        let days = (0..40).map(|day| ((300 - 7 * i + day) * DAY_MS + i, i as f64));
        Series::new(&[("__name__", &format!("m{i:02}"))], &days.collect::<Vec<_>>())
    };
    let all: Vec<_> = (0..20).map(series).collect();
    let limits = WriteLimits { open_bytes: 160 << 10, ..WriteLimits::default() };
    let (mut after, mut passes, mut days) = (None, 0, BTreeSet::new());
    loop {
        let mut stager = BlockStager::new(&table, stem(&format!("pass-{passes}")), limits, after);
        all.iter().for_each(|one| stager.push(&one.stretch()).unwrap());
        let staged = stager.finish().unwrap();
        let dates: BTreeSet<_> = staged.files.iter().map(|file| file.summary.date).collect();
        assert!((1..=10).contains(&dates.len()), "{} days", dates.len());
        assert!(dates.iter().all(|day| after < Some(*day) && days.insert(*day)), "a day is in two passes");
        let through = staged.through;
        let block = StagedBlock { source: "j".into(), after: None, upto: 7, through, files: staged.files };
        passes += 1;
        assert_eq!(
            table.commit(std::slice::from_ref(&block), NOW).unwrap(),
            [Outcome::Committed { version: passes }]
        );
        assert_eq!(table.commit(&[block], NOW).unwrap(), [Outcome::Already { floodmark: 7 }]);
        let Some(through) = through else { break };
        // a process that starts now sees the progress in the log
        let progress = open(&folder).progress("j").unwrap().unwrap();
        assert_eq!((progress.upto, progress.end()), (0, 7));
        assert!(progress.covers(6, through) && !progress.covers(7, through));
        assert!(!progress.covers(6, Date(through.0 + 1)));
        after = Some(through);
    }
    assert!(passes > 10, "{passes}");
    assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 7);
    assert_eq!(samples(&table).unwrap(), 20 * 40);
    let files = table.files().unwrap();
    assert_eq!(files.all().iter().map(|file| file.date).collect::<BTreeSet<_>>(), days);
}
