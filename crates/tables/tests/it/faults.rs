//! A store that fails before or after it has carried out a request: no sample may be lost or duplicated.

use crate::fleet::{DAY, Series, stem};
use crate::table::{location, open, runtime, stage, try_stage};
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
use tables::METRICS;
use tables::delta::StagedBlock;
use tables::{Location, Outcome, Stop, Table, TableError};
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Put {
    Done,
    Refused,
    AnswerLost,
}

pub(crate) trait Faults: std::fmt::Debug + Send + Sync + 'static {
    fn put(&self, path: &Path, payload: &PutPayload, options: &PutOptions) -> Put;

    fn is_alive(&self) -> bool {
        true
    }
}

#[derive(Debug)]
pub(crate) struct Failing<F> {
    pub(crate) store: Arc<DynObjectStore>,
    pub(crate) faults: F,
}

impl<F: Faults> Failing<F> {
    fn check(&self) -> Result<()> {
        if self.faults.is_alive() { Ok(()) } else { Err(failed()) }
    }
}

fn failed() -> Error {
    Error::Generic { store: "Failing", source: "timed out".into() }
}

impl<F> std::fmt::Display for Failing<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Failing")
    }
}

#[async_trait::async_trait]
impl<F: Faults> ObjectStore for Failing<F> {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.check()?;
        match self.faults.put(path, &payload, &options) {
            Put::Done => self.store.put_opts(path, payload, options).await,
            Put::Refused => Err(failed()),
            Put::AnswerLost => self.store.put_opts(path, payload, options).await.and(Err(failed())),
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check()?;
        self.store.put_multipart_opts(path, options).await
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

/// Makes one put fail.
#[derive(Debug)]
struct Once {
    fate: Put,
    left: AtomicI64,
}

impl Faults for Once {
    fn put(&self, _: &Path, _: &PutPayload, _: &PutOptions) -> Put {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 { self.fate } else { Put::Done }
    }
}

/// Location of the table in `folder`, through a store in which put number `turn` fails.
fn failing(folder: &TempDir, fate: Put, turn: i64) -> Location {
    let faults = Once { fate, left: AtomicI64::new(turn) };
    location(folder).with_store(|store| Arc::new(Failing { store, faults }))
}

fn series(n: u64) -> [Series; 1] {
    [Series::new(&[("__name__", "m"), ("n", &n.to_string())], &[(DAY + n as i64, n as f64)])]
}

/// Seals three blocks, and tries again whenever an attempt fails.
fn seal_all(table: &Table) {
    let mut attempt = 0;
    for n in 0..3u64 {
        loop {
            attempt += 1;
            assert!(attempt < 50, "sealing does not succeed in 50 attempts");
            // as after a failed seal: read the floodmark, and stage again
            let Ok(floodmarks) = table.refresh().and_then(|_| table.floodmarks(["j"])) else { continue };
            if floodmarks.get("j").is_some_and(|at| *at >= n) {
                break;
            }
            let Ok(file) = try_stage(table, &format!("a{attempt}"), &series(n)) else { continue };
            let block = StagedBlock {
                source: "j".into(),
                after: n.checked_sub(1),
                upto: n,
                through: None,
                files: vec![file],
            };
            match table.commit(&[block], DAY) {
                Ok(outcomes) => {
                    assert!(!matches!(outcomes[0], Outcome::FloodmarkMismatch { .. }), "{outcomes:?}")
                }
                Err(error) => println!("{error}"),
            }
        }
    }
}

#[test]
fn each_put_may_fail_before_or_after_it_was_done() {
    for fate in [Put::Refused, Put::AnswerLost] {
        for turn in 0..7 {
            let folder = TempDir::new().unwrap();
            open(&folder);
            let table = Table::open_or_create(&METRICS, failing(&folder, fate, turn)).unwrap();
            seal_all(&table);
            let table = open(&folder);
            let found: Vec<_> = contents(&table).unwrap().into_values().map(f64::from_bits).collect();
            assert_eq!(found, [0.0, 1.0, 2.0], "{fate:?} {turn}");
            assert_eq!(table.files().unwrap().all().len(), 3, "{fate:?} {turn}");
            assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 2);
        }
    }
}

#[test]
fn a_merge_that_fails_leaves_the_table_as_it_was_or_is_done() {
    for fate in [Put::Refused, Put::AnswerLost] {
        for turn in 0..3 {
            let folder = TempDir::new().unwrap();
            let table = open(&folder);
            for n in 0..4u64 {
                let files = vec![stage(&table, &format!("f{n}"), &series(n))];
                let block = StagedBlock {
                    source: "j".into(),
                    after: n.checked_sub(1),
                    upto: n,
                    through: None,
                    files,
                };
                table.commit(&[block], DAY).unwrap();
            }
            let before = contents(&table).unwrap();
            let merging = Arc::new(Table::open_or_create(&METRICS, failing(&folder, fate, turn)).unwrap());
            let limits = tables::compact::CompactLimits::default();
            for attempt in 0..3 {
                merging.refresh().unwrap();
                let files = merging.files().unwrap();
                for job in
                    tables::compact::plan(&METRICS, files.all(), crate::fleet::date(), &limits, |_| false)
                {
                    let done = tables::compact::run(
                        &merging,
                        &job,
                        &stem(&format!("m{attempt}")),
                        limits,
                        &Stop::NEVER,
                        |_| true,
                    );
                    println!("{fate:?} {turn} {attempt}: {done:?}");
                }
            }
            let table = open(&folder);
            assert_eq!(contents(&table).unwrap(), before);
            assert_eq!(table.files().unwrap().all().len(), 1, "{fate:?} {turn}");
        }
    }
}

#[test]
fn foreign_deletes_are_followed_and_foreign_changes_reported() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    for n in 0..2u64 {
        let files = vec![stage(&table, &format!("f{n}"), &series(n))];
        let block =
            StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files };
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

/// A process that dies during its first commit. Its request for the log entry reaches the store only later.
#[derive(Debug, Clone, Default)]
struct Dying {
    late: Arc<Mutex<Option<(Path, PutPayload, PutOptions)>>>,
}

impl Faults for Dying {
    fn put(&self, path: &Path, payload: &PutPayload, options: &PutOptions) -> Put {
        if !path.as_ref().ends_with(".json") {
            return Put::Done;
        }
        *self.late.lock().unwrap() = Some((path.clone(), payload.clone(), options.clone()));
        Put::Refused
    }

    fn is_alive(&self) -> bool {
        self.late.lock().unwrap().is_none()
    }
}

fn seal(table: &Table, name: &str) -> std::result::Result<Outcome, TableError> {
    let file = stage(table, name, &series(7));
    let block = StagedBlock { source: "j".into(), after: None, upto: 1, through: None, files: vec![file] };
    Ok(table.commit(&[block], DAY)?[0])
}

#[test]
fn late_commits_of_a_dead_process_are_fenced() {
    for is_fenced in [true, false] {
        let shared: Arc<DynObjectStore> = Arc::new(InMemory::new());
        let location = Location::open("memory:///t/", [], runtime().handle().clone()).unwrap();
        let healthy = location.with_store(|_| Arc::clone(&shared));
        Table::open_or_create(&METRICS, healthy.clone()).unwrap();
        let (dying, store) = (Dying::default(), Arc::clone(&shared));
        let faults = dying.clone();
        let dead =
            Table::open_or_create(&METRICS, location.with_store(|_| Arc::new(Failing { store, faults })))
                .unwrap();
        assert!(seal(&dead, "dead").is_err());

        let table = Table::open_or_create(&METRICS, healthy.clone()).unwrap();
        if is_fenced {
            table.fence().unwrap();
        }
        assert_eq!(
            table.floodmarks(["j"]).unwrap().get("j"),
            None,
            "the new process has no floodmark, so it stores the samples again"
        );
        let (path, payload, options) = dying.late.lock().unwrap().take().expect("a commit was in flight");
        let arrived = runtime().block_on(shared.put_opts(&path, payload, options));
        // without the fence, the late commit succeeds and duplicates samples
        assert_eq!(arrived.is_ok(), !is_fenced, "{arrived:?}");
        table.refresh().unwrap();
        assert_eq!(table.floodmarks(["j"]).unwrap().contains_key("j"), !is_fenced);
        let outcome = seal(&table, "again").unwrap();
        assert_eq!(matches!(outcome, Outcome::Committed { .. }), is_fenced, "{outcome:?}");
        let found: Vec<_> = contents(&table).unwrap().into_values().map(f64::from_bits).collect();
        assert_eq!((found, table.files().unwrap().all().len()), (vec![7.0], 1));
    }
}

/// A store that overwrites existing objects although the put forbids it.
#[derive(Debug)]
struct Overwriting(Arc<DynObjectStore>);

impl std::fmt::Display for Overwriting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Overwriting")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Overwriting {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let options = PutOptions { mode: object_store::PutMode::Overwrite, ..options };
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[test]
fn a_store_that_overwrites_commits_gets_none() {
    let folder = TempDir::new().unwrap();
    let overwriting = location(&folder).with_store(|store| Arc::new(Overwriting(store)));
    let is_refused = |error: Option<TableError>| {
        assert!(matches!(&error, Some(TableError::NotExclusive { .. })), "{error:?}");
        assert!(error.unwrap().to_string().contains("put-if-absent"));
    };
    is_refused(Table::open_or_create(&METRICS, overwriting.clone()).err());
    is_refused(overwriting.check_exclusive_within(std::time::Duration::from_secs(60)).err());
    // this table was created when the store still honoured the condition
    drop(open(&folder));
    let table = Table::open(&METRICS, overwriting).unwrap().unwrap();
    let files = vec![stage(&table, "f", &series(1))];
    let block = StagedBlock { source: "j".into(), after: None, upto: 1, through: None, files };
    is_refused(table.commit(std::slice::from_ref(&block), DAY).err());
    is_refused(table.fence().and_then(|()| table.replace(&[], &block.files).map(|_| ())).err());
    assert_eq!(open(&folder).version(), 0);
    location(&folder).check_exclusive_within(std::time::Duration::from_secs(60)).unwrap();
}

/// The probe object lies next to the tenants' folders.
#[test]
fn a_tenant_may_be_named_like_the_probe_object() {
    const NAME: &str = "_floodmark.probe";
    let folder = TempDir::new().unwrap();
    // the probe object of an earlier version
    std::fs::write(folder.path().join(NAME), NAME).unwrap();
    // when the second process starts, the tenant's folder exists
    for life in 0..2u64 {
        let url = format!("file://{}", folder.path().display());
        let root = Location::open(&url, [], runtime().handle().clone()).unwrap();
        root.check_exclusive_within(std::time::Duration::from_secs(60)).unwrap();
        let table = Table::open_or_create(&METRICS, root.folder(&[NAME, "metrics"]).unwrap()).unwrap();
        let files = vec![stage(&table, &format!("f{life}"), &series(1))];
        let block = StagedBlock { source: format!("j{life}"), after: None, upto: 1, through: None, files };
        assert!(matches!(table.commit(&[block], DAY).unwrap()[..], [Outcome::Committed { .. }]));
        assert_eq!(root.folders(None, 10).unwrap(), [NAME], "the probe must not be listed as a tenant");
        // the next process puts a new probe
        std::fs::remove_file(folder.path().join("_floodmark=probe")).unwrap();
    }
}
