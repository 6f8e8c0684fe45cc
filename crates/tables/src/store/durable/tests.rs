use super::*;
use crate::date::Date;
use crate::delta::{Outcome, StagedBlock, Table};
use crate::error::TableError;
use crate::kind::metrics::METRICS;
use crate::store::FileStem;
use crate::store::Location;
use crate::write::FileWriter;
use crate::write::Stretch;
use model::{Labels, SeriesKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tempfile::TempDir;
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn location(dir: &TempDir, runtime: &Runtime, files: DurableFiles) -> Location {
    let url = format!("file://{}/tables/tenant/metrics", dir.path().display());
    Location::open(&url, [], runtime.handle().clone()).unwrap().on(files)
}

fn block(table: &Table, name: &str) -> StagedBlock {
    try_block(table, name).unwrap()
}

fn try_block(table: &Table, name: &str) -> Result<StagedBlock, TableError> {
    let labels = Labels::from_pairs(&[("__name__", "up")]);
    let key = SeriesKey::of(labels.as_bytes(), 7);
    let stretch = Stretch { labels: labels.as_ref(), key, timestamps: &[5], values: &[1.0] };
    let date = Date::of(5);
    let mut writer =
        FileWriter::new(&METRICS, date, table.upload(date, &FileStem::imported(name, 0), 1)?, 1 << 20)?;
    writer.push(&stretch)?;
    let (summary, upload) = writer.finish()?;
    let files = vec![table.staged(summary, upload)?];
    Ok(StagedBlock { source: "j".into(), after: None, upto: 9, through: None, files })
}

#[test]
fn a_commit_whose_folder_cannot_be_synced_is_in_doubt_until_it_can() {
    let (dir, runtime, broken) = (TempDir::new().unwrap(), runtime(), Arc::new(AtomicBool::new(false)));
    let is_broken = Arc::clone(&broken);
    let files = DurableFiles::with_sync(move |folder| {
        match is_broken.load(Ordering::SeqCst) && folder.ends_with("_delta_log") {
            true => Err(io::Error::other("injected")),
            false => Ok(()),
        }
    });
    let location = location(&dir, &runtime, files);
    let table = Table::open_or_create(&METRICS, location.clone()).unwrap();
    let block = [block(&table, "a")];
    broken.store(true, Ordering::SeqCst);
    let in_doubt = table.commit(&block, 0);
    assert!(matches!(in_doubt, Err(TableError::Store(_))), "{in_doubt:?}");
    let entry = dir.path().join("tables/tenant/metrics/_delta_log/00000000000000000001.json");
    assert!(entry.exists(), "the entry exists, but a power loss may remove it");
    assert!(table.fence().is_err());
    assert!(Table::open(&METRICS, location).is_err(), "other readers must not see the entry, either");
    assert!(table.floodmarks(["j"]).unwrap().is_empty());
    broken.store(false, Ordering::SeqCst);
    assert_eq!(table.commit(&block, 0).unwrap(), [Outcome::Already { floodmark: 9 }]);
}

/// For each folder, the names that it had when it was last synced.
type Durable = Arc<Mutex<BTreeMap<PathBuf, BTreeSet<PathBuf>>>>;

fn noted(durable: &Durable) -> DurableFiles {
    DurableFiles::with_sync(noting(durable))
}

fn noting(durable: &Durable) -> impl Fn(&FilePath) -> io::Result<()> + Send + Sync + 'static {
    let durable = Arc::clone(durable);
    move |folder| {
        let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        durable.lock().unwrap().insert(folder.into(), names);
        Ok(())
    }
}

/// Checks that a path and its parents survive a power loss.
fn check(durable: &Durable, root: &FilePath, path: &FilePath) {
    let durable = durable.lock().unwrap();
    for path in path.ancestors().take_while(|path| *path != root) {
        let names = durable.get(path.parent().unwrap());
        assert!(names.is_some_and(|names| names.contains(path)), "{} is not durable", path.display());
    }
}

#[test]
fn a_new_table_is_durable_with_all_folders_above_it() {
    let (dir, runtime, durable) = (TempDir::new().unwrap(), runtime(), Durable::default());
    let table = Table::open_or_create(&METRICS, location(&dir, &runtime, noted(&durable))).unwrap();
    let folder = dir.path().join("tables/tenant/metrics");
    check(&durable, dir.path(), &folder.join("_delta_log/00000000000000000000.json"));
    let block = [block(&table, "a")];
    check(&durable, dir.path(), &folder.join(&block[0].files[0].path));
    table.commit(&block, 0).unwrap();
    check(&durable, dir.path(), &folder.join("_delta_log/00000000000000000001.json"));
}

/// A flush of new tenants creates hundreds of tables, and each sync of a folder takes time, so folders are not synced
/// more often than needed.
#[test]
fn a_new_table_syncs_each_folder_once_for_each_name_in_it() {
    let (dir, runtime, synced) = (TempDir::new().unwrap(), runtime(), Arc::new(Mutex::new(Vec::new())));
    let note = Arc::clone(&synced);
    let files = DurableFiles::with_sync(move |folder| {
        // a missing folder cannot be synced
        fs::metadata(folder)?;
        // the root of the file system has no name
        let name = folder.file_name().unwrap_or_default();
        note.lock().unwrap().push(name.to_string_lossy().into_owned());
        Ok(())
    });
    let taken = || std::mem::take(&mut *synced.lock().unwrap());
    let url = format!("file://{}/tables", dir.path().display());
    let root = Location::open(&url, [], runtime.handle().clone()).unwrap().on(files);
    root.check_exclusive().unwrap(); // once for all tables
    taken();
    let table = Table::open_or_create(&METRICS, root.folder(&["tenant", "metrics"]).unwrap()).unwrap();
    assert_eq!(taken(), ["tables", "tenant", "metrics", "_delta_log"]);
    let block = [block(&table, "a")];
    assert_eq!(taken(), ["metrics", "date=1970-01-01"]);
    table.commit(&block, 0).unwrap();
    assert_eq!(taken(), ["_delta_log"]);
}

/// An earlier process created the table, and died before it synced the folders.
#[test]
fn opening_a_table_syncs_what_it_reads() {
    let (dir, runtime) = (TempDir::new().unwrap(), runtime());
    let table =
        Table::open_or_create(&METRICS, location(&dir, &runtime, DurableFiles::with_sync(|_| Ok(()))))
            .unwrap();
    table.commit(&[block(&table, "a")], 0).unwrap();
    let durable = Durable::default();
    let table = Table::open(&METRICS, location(&dir, &runtime, noted(&durable))).unwrap().unwrap();
    assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 9);
    let folder = dir.path().join("tables/tenant/metrics");
    check(&durable, dir.path(), &folder.join("_delta_log/00000000000000000001.json"));
}

#[test]
fn a_folder_above_that_could_not_be_synced_is_synced_by_the_next_attempt() {
    let runtime = runtime();
    for failing in 0..12 {
        let (dir, durable, left) = (TempDir::new().unwrap(), Durable::default(), AtomicI64::new(failing));
        let (inside, root, note) = (dir.path().to_path_buf(), dir.path().to_path_buf(), noting(&durable));
        let files = DurableFiles::with_sync(move |folder| {
            if folder.starts_with(&inside) && left.fetch_sub(1, Ordering::SeqCst) == 0 {
                return Err(io::Error::other("injected"));
            }
            note(folder)
        });
        let location = location(&dir, &runtime, files);
        let made = Table::open_or_create(&METRICS, location.clone())
            .and_then(|table| table.commit(&[try_block(&table, "a")?], 0));
        if made.is_err() {
            let table = Table::open_or_create(&METRICS, location).unwrap();
            table.commit(&[block(&table, "b")], 0).unwrap();
        }
        check(&durable, &root, &root.join("tables/tenant/metrics/_delta_log/00000000000000000001.json"));
    }
}
