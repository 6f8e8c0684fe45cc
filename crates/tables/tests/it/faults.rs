//! A store that fails, before or after it did what it was asked: nothing is lost, nothing is there twice.

use crate::fleet::{DAY, Series};
use crate::table::{location, open, runtime, stage};
use crate::upkeep::contents;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, DynObjectStore, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use tables::delta::StagedBlock;
use tables::{Location, Outcome, Table};
use tempfile::TempDir;

/// When a put fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    Before,
    After,
}

/// Fails the put whose turn it is; earlier and later ones work.
#[derive(Debug)]
struct Faulty {
    store: Arc<DynObjectStore>,
    when: When,
    left: Arc<AtomicI64>,
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let fails = self.left.fetch_sub(1, Ordering::SeqCst) == 0;
        let failed = || Error::Generic { store: "Faulty", source: "timed out".into() };
        if fails && self.when == When::Before {
            return Err(failed());
        }
        let done = self.store.put_opts(location, payload, options).await;
        if fails { done.and(Err(failed())) } else { done }
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

fn series(n: u64) -> [Series; 1] {
    [Series::new(&[("__name__", "m"), ("n", &n.to_string())], &[(DAY + n as i64, n as f64)])]
}

/// Seals three blocks one after the other through `table`, again and again until each is there.
fn seal_all(table: &Table, attempt: &mut u32) {
    for n in 0..3u64 {
        loop {
            *attempt += 1;
            assert!(*attempt < 50, "it never ends");
            // what a seal does after a failure: it looks where the table is, and stages anew
            let Ok(floodmarks) = table.refresh().and_then(|_| table.floodmarks(["j"])) else { continue };
            if floodmarks.get("j").is_some_and(|at| *at >= n) {
                break;
            }
            let mut block =
                tables::write::FileWriter::new(crate::fleet::date(), Vec::new(), 1 << 20).unwrap();
            series(n).iter().for_each(|s| block.push(&s.stretch()).unwrap());
            let (summary, bytes) = block.finish().unwrap();
            let Ok(file) = table.stage(summary, &format!("a{attempt}"), bytes.into()) else { continue };
            let block =
                StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, files: vec![file] };
            match table.commit(&[block], DAY) {
                Ok(outcomes) => assert!(!matches!(outcomes[0], Outcome::Apart { .. }), "{outcomes:?}"),
                Err(error) => println!("{error}"),
            }
        }
    }
}

#[test]
fn each_put_may_fail_before_or_after_it_was_done() {
    for when in [When::Before, When::After] {
        for turn in 0..7 {
            let folder = TempDir::new().unwrap();
            open(&folder);
            let left = Arc::new(AtomicI64::new(turn));
            let faulty = location(&folder)
                .with_store(|store| Arc::new(Faulty { store, when, left: Arc::clone(&left) }));
            let table = Table::open_or_create(faulty).unwrap();
            seal_all(&table, &mut 0);
            let table = open(&folder);
            let found: Vec<_> = contents(&table).unwrap().into_values().map(f64::from_bits).collect();
            assert_eq!(found, [0.0, 1.0, 2.0], "{when:?} {turn}");
            assert_eq!(table.files().unwrap().all().len(), 3, "{when:?} {turn}");
            assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 2);
        }
    }
}

#[test]
fn a_merge_that_fails_leaves_the_table_as_it_was_or_is_done() {
    for when in [When::Before, When::After] {
        for turn in 0..3 {
            let folder = TempDir::new().unwrap();
            let table = open(&folder);
            for n in 0..4u64 {
                let files = vec![stage(&table, &format!("f{n}"), &series(n))];
                let block = StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, files };
                table.commit(&[block], DAY).unwrap();
            }
            let before = contents(&table).unwrap();
            let left = Arc::new(AtomicI64::new(turn));
            let faulty = location(&folder).with_store(|store| Arc::new(Faulty { store, when, left }));
            let merging = Arc::new(Table::open_or_create(faulty).unwrap());
            let limits = tables::compact::CompactLimits::default();
            for attempt in 0..3 {
                merging.refresh().unwrap();
                let files = merging.files().unwrap();
                for job in tables::compact::plan(files.all(), crate::fleet::date(), &limits, |_| false) {
                    let done = tables::compact::run(&merging, &job, &format!("m{attempt}"), limits, |_| true);
                    println!("{when:?} {turn} {attempt}: {done:?}");
                }
            }
            let table = open(&folder);
            assert_eq!(contents(&table).unwrap(), before);
            assert_eq!(table.files().unwrap().all().len(), 1, "{when:?} {turn}");
        }
    }
}

#[test]
fn what_another_program_deleted_is_gone_and_what_it_changed_is_told() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    for n in 0..2u64 {
        let files = vec![stage(&table, &format!("f{n}"), &series(n))];
        let block = StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, files };
        table.commit(&[block], DAY).unwrap();
    }
    let path = table.files().unwrap().all()[0].path.clone();
    let log = |version: u64| folder.path().join(format!("tenant/_delta_log/{version:020}.json"));
    let remove = format!(r#"{{"remove":{{"path":"{path}","deletionTimestamp":1,"dataChange":true}}}}"#);
    std::fs::write(log(3), remove + "\n").unwrap();
    table.refresh().unwrap();
    let found: Vec<_> = contents(&table).unwrap().into_values().map(f64::from_bits).collect();
    assert_eq!(found, [1.0]);

    let first = std::fs::read_to_string(log(0)).unwrap();
    let metadata = first.lines().find(|line| line.contains("metaData")).unwrap();
    let changed = metadata
        .replace(r#"\"name\":\"count\",\"type\":\"integer\""#, r#"\"name\":\"count\",\"type\":\"long\""#);
    assert_ne!(changed, metadata);
    std::fs::write(log(4), changed + "\n").unwrap();
    let error = table.refresh().unwrap_err();
    assert!(error.to_string().contains("count"), "{error}");
    assert_eq!(error.kind(), model::ErrorKind::Unsupported);
}

/// A store of a process that dies while a put is on its way: the put is kept, and nothing works any more.
#[derive(Debug)]
struct Dying {
    store: Arc<DynObjectStore>,
    /// Puts into the log until then.
    left: AtomicI64,
    late: Arc<Mutex<Option<(Path, PutPayload, PutOptions)>>>,
}

impl Dying {
    fn check(&self) -> Result<()> {
        match self.left.load(Ordering::SeqCst) >= 0 {
            true => Ok(()),
            false => Err(Error::Generic { store: "Dying", source: "dead".into() }),
        }
    }
}

impl std::fmt::Display for Dying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dying")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Dying {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let is_log = path.as_ref().ends_with(".json");
        if is_log && self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            *self.late.lock().unwrap() = Some((path.clone(), payload, options));
            return self.check().map(|()| unreachable!("it died"));
        }
        self.check()?;
        self.store.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check()?;
        self.store.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.check()?;
        self.store.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check() {
            Ok(()) => self.store.list(prefix),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check()?;
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check()?;
        self.store.copy_opts(from, to, options).await
    }
}

/// Seals one block; what it is.
fn seal(table: &Table, name: &str) -> std::result::Result<Outcome, tables::TableError> {
    let file = stage(table, name, &series(7));
    let block = StagedBlock { source: "j".into(), after: None, upto: 1, files: vec![file] };
    Ok(table.commit(&[block], DAY)?[0])
}

#[test]
fn a_dead_process_commit_that_is_late_is_never_added_to_what_the_next_one_found() {
    for is_fenced in [true, false] {
        let shared: Arc<DynObjectStore> = Arc::new(InMemory::new());
        let location = Location::open("memory:///t/", [], runtime().handle().clone()).unwrap();
        let healthy = location.with_store(|_| Arc::clone(&shared));
        Table::open_or_create(healthy.clone()).unwrap();
        let late = Arc::new(Mutex::new(None));
        let dying = Dying { store: Arc::clone(&shared), left: AtomicI64::new(0), late: Arc::clone(&late) };
        let dead = Table::open_or_create(location.with_store(|_| Arc::new(dying))).unwrap();
        assert!(seal(&dead, "dead").is_err());

        let table = Table::open_or_create(healthy.clone()).unwrap();
        if is_fenced {
            table.fence().unwrap();
        }
        assert_eq!(table.floodmarks(["j"]).unwrap().get("j"), None, "it takes the samples in again");
        let (path, payload, options) = late.lock().unwrap().take().expect("a commit was on its way");
        let arrived = runtime().block_on(shared.put_opts(&path, payload, options));
        // without the fence it is there, beside samples that are in a head again
        assert_eq!(arrived.is_ok(), !is_fenced, "{arrived:?}");
        table.refresh().unwrap();
        assert_eq!(table.floodmarks(["j"]).unwrap().contains_key("j"), !is_fenced);
        let outcome = seal(&table, "again").unwrap();
        assert_eq!(matches!(outcome, Outcome::Committed { .. }), is_fenced, "{outcome:?}");
        let found: Vec<_> = contents(&table).unwrap().into_values().map(f64::from_bits).collect();
        assert_eq!((found, table.files().unwrap().all().len()), (vec![7.0], 1));
    }
}
