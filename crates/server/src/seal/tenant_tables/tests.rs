//! Tables that do not exist, and tables that take long to open.

use super::*;
use crate::write_path::tests::small_settings;
use std::path::Path;
use stdx::clock::ManualClock;
use tables::StagedBlock;

pub(super) fn tables_at(dir: &Path, clock: &Arc<ManualClock>) -> TenantTables {
    let settings = small_settings(dir).lake;
    TenantTables::at(&settings, &World::real(Arc::clone(clock) as _), 1 << 20, Counter::default()).unwrap()
}

pub(super) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

#[test]
fn absence_is_remembered_for_a_while_unless_the_table_is_made_here() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let (ours, others) = (tables_at(dir.path(), &clock), tables_at(dir.path(), &clock));
    let is_there = |name: &str| ours.existing(&tenant(name), TenantTable::Samples).unwrap().is_some();
    assert!(!is_there("a") && !is_there("b"));
    // another process creates the table, but for a while it is still remembered as absent
    others.open_or_create(&tenant("a"), TenantTable::Samples).unwrap();
    clock.advance(1_999);
    assert!(!is_there("a"));
    assert!(ours.visit(&tenant("a"), TenantTable::Samples).unwrap().is_none());
    clock.advance(1);
    assert!(is_there("a"));
    // this process creates the table and closes it, so it is no longer remembered as absent
    assert!(!is_there("b"));
    ours.open_or_create(&tenant("b"), TenantTable::Samples).unwrap();
    ours.open.lock().close(|_| true);
    assert!(is_there("b"));
    // replay looks in the store even if the table is remembered as absent
    assert!(!is_there("c"));
    others.open_or_create(&tenant("c"), TenantTable::Samples).unwrap();
    assert!(!is_there("c"));
    assert!(ours.existing_now(&tenant("c"), TenantTable::Samples).unwrap().is_some());
}

#[test]
fn absent_tables_take_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let tables = tables_at(dir.path(), &clock);
    for n in 0..2 * ABSENT_MAX {
        let key = (tenant(&format!("t{n}")), TenantTable::Samples);
        tables.note_absent(key.clone(), clock.instant());
        assert!(tables.absent.lock().len() <= ABSENT_MAX);
        assert!(tables.is_absent(&key));
    }
}

#[test]
fn a_table_that_takes_long_to_open_holds_up_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let tables = tables_at(dir.path(), &clock);
    for name in ["slow", "quick"] {
        tables.open_or_create(&tenant(name), TenantTable::Samples).unwrap();
    }
    tables.open.lock().close(|_| true);
    let slow = tables.claim(&(tenant("slow"), TenantTable::Samples));
    assert!(tables.existing(&tenant("quick"), TenantTable::Samples).unwrap().is_some());
    assert!(tables.existing(&tenant("none"), TenantTable::Samples).unwrap().is_none());
    tables.open_or_create(&tenant("new"), TenantTable::Samples).unwrap();
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| tables.existing(&tenant("slow"), TenantTable::Samples));
        drop(slow);
        assert!(waiting.join().unwrap().unwrap().is_some());
    });
    assert!(tables.opening.lock().is_empty());
}

#[test]
fn a_table_that_was_opened_again_before_a_commit_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let tables = tables_at(dir.path(), &clock);
    let tenant = tenant("a");
    let committing = tables.open_or_create(&tenant, TenantTable::Samples).unwrap();
    tables.open.lock().close(|_| true);
    let reader = tables.existing(&tenant, TenantTable::Samples).unwrap().unwrap();
    let block =
        StagedBlock { source: "journal".into(), after: None, upto: 7, through: None, files: Vec::new() };
    committing.commit(&[block], clock.now_ms()).unwrap();
    assert!(reader.version() < committing.version());
    tables.publish_commits(&tenant, TenantTable::Samples, &committing);
    let seen = || tables.existing(&tenant, TenantTable::Samples).unwrap().unwrap().version();
    assert_eq!(seen(), committing.version());
    // readers never return to an older version
    tables.publish_commits(&tenant, TenantTable::Samples, &reader);
    assert_eq!(seen(), committing.version());
}

#[tokio::test]
async fn a_url_of_no_store_is_an_error_within_a_task() {
    let dir = tempfile::tempdir().unwrap();
    let settings = LakeSettings { url: "ftp://host/tables".into(), ..small_settings(dir.path()).lake };
    let world = World::real(Arc::new(ManualClock::at(0)));
    let error = TenantTables::at(&settings, &world, 1 << 20, Counter::default()).unwrap_err();
    assert!(error.to_string().contains("ftp"), "{error}");
}
