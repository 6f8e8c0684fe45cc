//! Damages the last checkpoint of a log. If the log entries suffice, they must be used instead; otherwise, nothing may
//! be changed.

use crate::fleet::{DAY, Series, stem};
use crate::table::{location, runtime, stage};
use crate::upkeep::contents;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{DynObjectStore, ObjectStoreExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::rng::Rng;
use stdx::telemetry::Counter;
use tables::METRICS;
use tables::delta::StagedBlock;
use tables::upkeep::{Done, Now, Policy, Step, Upkeep};
use tables::{Location, Table, TableError};
use tempfile::TempDir;

const HINT: &str = "_last_checkpoint";

fn entry(version: u64) -> String {
    format!("{version:020}.json")
}

fn checkpoint(version: u64) -> String {
    format!("{version:020}.checkpoint.parquet")
}

/// A table with direct access to its log files, so that a test can damage them.
struct Log {
    /// Location of the table, without permission to repair its log.
    location: Location,
    store: Arc<DynObjectStore>,
    folder: Path,
    repairs: Counter,
    _dir: TempDir,
}

impl Log {
    fn local() -> Self {
        let dir = TempDir::new().unwrap();
        let mut store = None;
        let location = location(&dir).with_store(|local| {
            store = Some(Arc::clone(&local));
            local
        });
        let folder = Path::from_absolute_path(dir.path().join("tenant/_delta_log")).unwrap();
        Self { location, store: store.unwrap(), folder, repairs: Counter::default(), _dir: dir }
    }

    fn object_store() -> Self {
        let store: Arc<DynObjectStore> = Arc::new(InMemory::new());
        let location = Location::open("memory:///t/", [], runtime().handle().clone()).unwrap();
        let location = location.with_store(|_| Arc::clone(&store));
        let folder = Path::from("t/_delta_log");
        Self { location, store, folder, repairs: Counter::default(), _dir: TempDir::new().unwrap() }
    }

    fn open(&self) -> Result<Arc<Table>, TableError> {
        let location = self.location.clone().with_repairs(self.repairs.clone());
        Ok(Arc::new(Table::open(&METRICS, location)?.expect("the table exists")))
    }

    /// Commits `versions` entries with one sample each, and writes checkpoints at the given versions.
    fn fill(&self, versions: u64, checkpoints: &[u64]) -> BTreeMap<(String, i64), u64> {
        let table = Table::open_or_create(&METRICS, self.location.clone()).unwrap();
        for n in 0..versions {
            let series = Series::new(&[("__name__", "m")], &[(DAY + n as i64, n as f64)]);
            let files = vec![stage(&table, &format!("f{n}"), &[series])];
            let block =
                StagedBlock { source: "j".into(), after: n.checked_sub(1), upto: n, through: None, files };
            table.commit(&[block], DAY).unwrap();
            if checkpoints.contains(&table.version()) {
                table.checkpoint().unwrap();
            }
        }
        contents(&table).unwrap()
    }

    fn get(&self, name: &str) -> Bytes {
        let path = self.folder.clone().join(name);
        runtime().block_on(async { self.store.get(&path).await.unwrap().bytes().await.unwrap() })
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let (path, bytes) = (self.folder.clone().join(name), bytes.to_vec());
        runtime().block_on(self.store.put(&path, bytes.into())).unwrap();
    }

    fn delete(&self, name: &str) {
        runtime().block_on(self.store.delete(&self.folder.clone().join(name))).unwrap();
    }

    fn files(&self) -> BTreeMap<String, Bytes> {
        let listed = runtime().block_on(self.store.list(Some(&self.folder)).try_collect::<Vec<_>>());
        let name = |object: &object_store::ObjectMeta| object.location.filename().unwrap().to_string();
        listed.unwrap().iter().map(name).map(|name| (name.clone(), self.get(&name))).collect()
    }

    fn aside(&self) -> Vec<Bytes> {
        let files = self.files().into_iter();
        files.filter(|(name, _)| name.starts_with("_damaged-")).map(|(_, bytes)| bytes).collect()
    }
}

/// Returns damaged copies of a file, one for each kind of damage. `None` stands for a missing file.
fn damages(sound: &[u8]) -> [Option<Vec<u8>>; 6] {
    let mut flipped = sound.to_vec();
    // damages the header of the first page
    flipped[4..64].iter_mut().for_each(|byte| *byte = !*byte);
    [
        Some(sound[..sound.len() / 2].to_vec()),
        Some(sound[..7].to_vec()),
        Some(Vec::new()),
        Some(vec![b'x'; sound.len()]),
        Some(flipped),
        None,
    ]
}

fn damage(log: &Log, name: &str, with: Option<&Vec<u8>>) {
    match with {
        Some(bytes) => log.put(name, bytes),
        None => log.delete(name),
    }
}

#[test]
fn log_entries_replace_a_damaged_checkpoint() {
    // each case: whether the log has a hint, and whether it has an earlier checkpoint
    let all = &[(true, false), (false, false), (true, true), (false, true)][..];
    for (make, cases) in [(Log::local as fn() -> Log, &all[..1]), (Log::object_store, all)] {
        for n in 0..6 {
            for &(has_hint, has_earlier) in cases {
                let log = make();
                let expected = log.fill(8, if has_earlier { &[3, 6] } else { &[6] });
                if has_earlier {
                    (0..=3).for_each(|version| log.delete(&entry(version)));
                }
                if !has_hint {
                    log.delete(HINT);
                }
                let what = format!("{n}, hint {has_hint}, earlier {has_earlier}");
                let damaged = damages(&log.get(&checkpoint(6)))[n].clone();
                damage(&log, &checkpoint(6), damaged.as_ref());
                let table = log.open().unwrap();
                assert_eq!(contents(&table).unwrap(), expected, "{what}");
                assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 7, "{what}");
                assert_eq!(table.checkpointed(), if has_earlier { 3 } else { 0 }, "{what}");
                // a missing checkpoint matters only if the hint names it
                let is_noticed = damaged.is_some() || has_hint;
                assert_eq!(log.repairs.get(), u64::from(is_noticed), "{what}");
                let aside: Vec<Bytes> = damaged.into_iter().map(Bytes::from).collect();
                assert_eq!(log.aside(), aside, "{what}: the damaged file is kept");
                assert!(!log.files().contains_key(HINT) && !log.files().contains_key(&checkpoint(6)));
                // opening the table again repairs nothing, because the repair was done
                log.open().unwrap();
                assert_eq!(log.repairs.get(), u64::from(is_noticed), "{what}");
                renew(&log, &table);
                assert_eq!(contents(&log.open().unwrap()).unwrap(), expected, "{what}");
                assert_eq!(log.aside(), aside, "{what}: the damaged file is still kept");
            }
        }
    }
}

/// Runs upkeep, which writes a new checkpoint.
fn renew(log: &Log, table: &Arc<Table>) {
    let policy = Policy { checkpoint_every: 5, compact: None, ..Policy::default() };
    let (mut upkeep, now) = (Upkeep::new(), Now { wall_ms: DAY, steady_ms: 0 });
    let steps = upkeep.plan(table, now, &policy).unwrap();
    assert!(steps.contains(&Step::Checkpoint), "{steps:?}");
    let done: Vec<Done> = steps
        .iter()
        .map(|step| upkeep.run(table, step, &stem("x"), now, &policy, |_| true).unwrap())
        .collect();
    assert!(done.contains(&Done::Checkpointed));
    assert!(!upkeep.plan(table, now, &policy).unwrap().contains(&Step::Checkpoint));
    let before = log.files().into_keys().filter(|name| name.ends_with(".json"));
    before.for_each(|name| log.delete(&name));
    assert_eq!(log.open().unwrap().checkpointed(), table.version());
}

#[test]
fn a_wrong_hint_is_dropped() {
    for hint in [&b""[..], b"{\"version\":6,\"si", b"\xff\x00", b"{}", b"{\"version\":7000,\"size\":1}"] {
        for checkpoints in [&[6][..], &[]] {
            let log = Log::object_store();
            let expected = log.fill(8, checkpoints);
            log.put(HINT, hint);
            let table = log.open().unwrap();
            assert_eq!(contents(&table).unwrap(), expected);
            assert_eq!(log.repairs.get(), 1);
            assert!(!log.files().contains_key(HINT) && log.aside().is_empty());
        }
    }
}

#[test]
fn no_damage_to_a_checkpoint_is_a_panic() {
    let log = Log::object_store();
    log.fill(8, &[6]);
    let (sound, hint, mut rng) = (log.get(&checkpoint(6)), log.get(HINT), Rng::announced());
    for _ in 0..stdx::damage::mutations(80) {
        let mut bytes = sound.to_vec();
        stdx::damage::damage(&mut bytes, &mut rng);
        log.put(&checkpoint(6), &bytes);
        log.put(HINT, &hint);
        if let Err(error) = log.open() {
            assert_eq!(error.kind(), model::ErrorKind::Data, "{error}");
        }
    }
    assert!(log.repairs.get() > 20, "{} damaged checkpoints were noticed", log.repairs.get());
}

#[test]
fn a_damaged_checksum_costs_nothing() {
    for n in 0..6 {
        let log = Log::object_store();
        let expected = log.fill(8, &[6]);
        let checksum = format!("{:020}.crc", 6);
        let damaged = damages(&log.get(&checksum))[n].clone();
        damage(&log, &checksum, damaged.as_ref());
        let table = log.open().unwrap();
        assert_eq!(contents(&table).unwrap(), expected, "{n}");
        assert_eq!((table.floodmarks(["j"]).unwrap()["j"], table.checkpointed()), (7, 6), "{n}");
        let files = vec![stage(&table, "more", &[Series::new(&[("__name__", "m")], &[(DAY + 9, 9.0)])])];
        table
            .commit(&[StagedBlock { source: "j".into(), after: Some(7), upto: 8, through: None, files }], DAY)
            .unwrap();
        table.checkpoint().unwrap();
        assert_eq!(log.open().unwrap().floodmarks(["j"]).unwrap()["j"], 8, "{n}");
    }
}

#[test]
fn unrepairable_log_is_reported_and_left_alone() {
    for n in 0..6 {
        for has_hint in [true, false] {
            let log = Log::object_store();
            let expected = log.fill(8, &[6]);
            (0..=3).for_each(|version| log.delete(&entry(version)));
            if !has_hint {
                log.delete(HINT);
            }
            let sound = log.get(&checkpoint(6));
            let damaged = damages(&sound)[n].clone();
            damage(&log, &checkpoint(6), damaged.as_ref());
            let files = log.files();
            let error = log.open().unwrap_err();
            assert_eq!(error.kind(), model::ErrorKind::Data, "{error}");
            let text = error.to_string();
            let told = match damaged {
                Some(_) => {
                    vec![checkpoint(6), "version 6".into(), entry(3), "restore the checkpoint".into()]
                }
                None => vec![entry(0), entry(3)],
            };
            assert!(told.iter().all(|part| text.contains(part)), "{text}");
            assert!(damaged.is_some() || !has_hint || text.contains(HINT), "{text}");
            assert_eq!(
                (log.files(), log.repairs.get()),
                (files, 0),
                "an unrepairable log must not be changed"
            );
            log.put(&checkpoint(6), &sound);
            assert_eq!(
                contents(&log.open().unwrap()).unwrap(),
                expected,
                "after the checkpoint was restored"
            );
        }
    }
}

#[test]
fn open_table_recovers_from_a_damaged_log() {
    let log = Log::local();
    let expected = log.fill(8, &[6]);
    let table = log.open().unwrap();
    log.put(&checkpoint(6), &log.get(&checkpoint(6))[..99]);
    // the commit must read the log to find the files to remove, and meets the damaged checkpoint
    let live = table.files().unwrap().all().to_vec();
    let series: Vec<_> = (0..8).map(|n| (DAY + n, n as f64)).collect();
    let merged = stage(&table, "merged", &[Series::new(&[("__name__", "m")], &series)]);
    let error = table.replace(&live, std::slice::from_ref(&merged)).unwrap_err();
    assert_eq!(error.kind(), model::ErrorKind::Data, "{error}");
    table.refresh().unwrap();
    assert_eq!(log.repairs.get(), 1);
    assert!(table.replace(&live, &[merged]).unwrap());
    assert_eq!(contents(&table).unwrap(), expected);
    assert_eq!(contents(&log.open().unwrap()).unwrap(), expected);
}

#[test]
fn read_only_open_changes_nothing() {
    let log = Log::local();
    log.fill(8, &[6]);
    let look = || {
        Table::open(&METRICS, log.location.clone())
            .map(|table| contents(&table.expect("the table exists")).unwrap())
    };
    log.put(&checkpoint(6), b"PAR1 and nothing else");
    let files = log.files();
    let text = look().unwrap_err().to_string();
    assert!(text.contains(&checkpoint(6)), "{text}");
    assert_eq!(log.files(), files);
    log.put(&checkpoint(6), b"");
    log.delete(HINT);
    let files = log.files();
    assert_eq!(look().unwrap().len(), 8, "an empty checkpoint is ignored");
    assert_eq!(log.files(), files);
}

#[test]
fn the_log_is_shortened_to_checkpoints_that_can_be_read() {
    let clean = |damaged: &[u64]| {
        let log = Log::object_store();
        let expected = log.fill(12, &[3, 6, 9]);
        let table = log.open().unwrap();
        for version in damaged {
            log.put(&checkpoint(*version), &log.get(&checkpoint(*version))[..99]);
        }
        table.clean_log(i64::MAX, u64::MAX).unwrap();
        assert_eq!(contents(&log.open().unwrap()).unwrap(), expected, "{damaged:?}");
        let first = log.files().into_keys().find(|name| name.ends_with(".json"));
        first.unwrap()
    };
    assert_eq!(clean(&[]), entry(6), "the checkpoint before the last one stays");
    assert_eq!(clean(&[6]), entry(3));
    assert_eq!(clean(&[9]), entry(3));
    assert_eq!(clean(&[6, 9]), entry(0), "only one checkpoint can be read, so all entries stay");
}
