//! Tables of records: commits, deletes, retention and upkeep.

use super::*;
use model::ErrorKind;

#[test]
fn a_stream_with_very_many_days_holds_up_no_other() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    let (days, shared) = (2500, Arc::clone(&running.node.streams().shared));
    running.store_payload("long", days, payload_every(1, "long", days)).unwrap();
    running.store("short", 1).unwrap();
    // a commit has at most a thousand files
    assert!(running.loader.load_next());
    assert!(running.loader.load_next());
    assert_eq!((running.rows("long"), running.rows("short")), (1000, 1));
    assert!(!running.loader.load_next(), "other streams have their turn first");
    assert_eq!(shared.buffer.totals(running.clock.instant()).batches, 1);
    running.stop();
    // a restart goes on where it was
    let mut running = Running::start(dir.path());
    running.store("long", 3).unwrap();
    for _ in 0..4 {
        running.load("long");
        running.clock.advance(1);
    }
    assert_eq!(running.rows("long"), u64::from(days) + 3);
    assert_eq!(running.node.streams().shared.buffer.first(), None);
    running.stop();
}

#[test]
fn deleted_records_do_not_come_back_and_later_ones_stay() {
    let dir = TempDir::new().unwrap();
    let tenant = TenantId::anonymous;
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    running.store("other", 1).unwrap();
    assert_eq!((running.load("s"), running.load("other")), (1, 1));
    running.store("s", 3).unwrap();
    let removed = running.delete(Scope::Stream((tenant(), stream("s"))), |_| ()).unwrap();
    assert_eq!((removed.files, running.rows("s"), running.rows("other")), (2, 0, 1));
    running.store("s", 9).unwrap();
    assert_eq!(running.load("s"), 9);
    running.store("s", 27).unwrap();
    running.store("other", 27).unwrap();
    let removed = running.delete(Scope::Tenant(tenant()), |running| {
        running.store("s", 81).unwrap();
        assert!(!running.loader.load_next(), "it would be deleted");
    });
    assert_eq!(removed.unwrap().files, 4);
    assert_eq!((running.rows("s"), running.rows("other")), (0, 0));
    running.stop();
    let mut running = Running::start(dir.path());
    assert_eq!((running.load("s"), running.load("other")), (81, 0));
    let removed = running.delete(Scope::Stream((tenant(), stream("unknown"))), |_| ()).unwrap();
    assert_eq!(removed, Removed::default());
    running.stop();
}

#[test]
fn a_delete_waits_for_no_table_that_cannot_be_written() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    fs::create_dir_all(dir.path().join("tables/anonymous/streams")).unwrap();
    fs::write(dir.path().join("tables/anonymous/streams/s"), "no folder").unwrap();
    let refusal = running.delete(Scope::Tenant(TenantId::anonymous()), |_| ()).unwrap_err();
    assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "tables"), "{refusal:?}");
    running.stop();
}

#[test]
fn records_are_dropped_after_their_retention() {
    let dir = TempDir::new().unwrap();
    let mut settings = small_settings(dir.path());
    settings.stream_freshness = Duration::ZERO;
    settings.lake.vacuum_grace_ms = 1;
    settings.tenants.general.stream_retention_ms = Some(10 * DAY_MS);
    let mut running = Running::start_with(settings);
    running.store_payload("s", 20, payload_every(1, "s", 20)).unwrap();
    running.store_payload("idle", 20, payload_every(1, "idle", 20)).unwrap();
    assert_eq!((running.load("s"), running.load("idle")), (20, 20));
    // upkeep lists tenants
    running.node.reads().lake.tables.discover().unwrap();
    while running.loader.keep_up(false) {}
    assert_eq!(running.rows("s"), 20, "the clock is not trusted yet");
    let files = |name: &str| {
        let days = fs::read_dir(dir.path().join("tables/anonymous/streams").join(name)).unwrap();
        let days = days.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
        let names = days.flat_map(|day| fs::read_dir(day).unwrap().map(|entry| entry.unwrap().path()));
        names.filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).count()
    };
    for _ in 0..5 {
        running.clock.advance(3_700_000);
        while running.loader.keep_up(false) {}
    }
    assert_eq!((running.rows("s"), running.rows("idle")), (10, 10));
    assert_eq!(running.node.streams().shared.metrics.expired_files.get(), 20);
    assert_eq!((files("s"), files("idle")), (10, 10), "the files are deleted after the grace period");
    // the clock would not be trusted after a jump of days
    for _ in 0..5 * 24 {
        running.clock.advance(3_600_000);
        while running.loader.keep_up(false) {}
    }
    assert_eq!((running.rows("idle"), files("idle")), (5, 5), "without a load");
    running.stop();
}

/// Tables are kept up even if there is always a stream that is due.
#[test]
fn logs_of_busy_streams_get_checkpoints() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    for n in 0..60 {
        running.store("s", 1).unwrap();
        assert_eq!(running.load("s"), n + 1);
    }
    let log = fs::read_dir(dir.path().join("tables/anonymous/streams/s/_delta_log")).unwrap();
    let names: Vec<_> = log.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.contains("checkpoint")), "{names:?}");
    running.stop();
}

/// Merges must not wait until removed files can be deleted.
#[test]
fn upkeep_and_sweeps_have_times_of_their_own() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    let key = (TenantId::anonymous(), stream("s"));
    let location = running.node.reads().lake.tables.stream(&key).unwrap();
    let reading = Table::open(&RECORDS, location).unwrap().unwrap().files().unwrap();
    running.delete(Scope::Stream(key.clone()), |_| ()).unwrap();
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    while running.loader.keep_up(false) {}
    let due_after = |running: &Running, ms| {
        let at = running.clock.instant() + Duration::from_millis(ms);
        running.loader.upkeep.due(at) == Some(key.clone())
    };
    assert!(!due_after(&running, 800_000) && due_after(&running, 3_700_000), "for the sweep");
    running.store("s", 3).unwrap();
    assert_eq!(running.load("s"), 4);
    assert!(!due_after(&running, 59_000) && due_after(&running, 61_000));
    drop(reading);
    running.stop();
}
