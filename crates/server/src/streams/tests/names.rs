//! Names of streams: which are known, and how many a tenant may have.

use super::super::known::{Added, KnownStreams, StreamLimit};
use super::*;
use model::ErrorKind;
use stdx::budget::Account;

/// Streams may have had names that differ only in case before there was a rule. The store is away, and does not say so.
#[test]
fn a_stream_that_may_exist_is_not_refused_for_good() {
    let dir = TempDir::new().unwrap();
    let add = |running: &Running, name: &str| {
        let limit = StreamLimit { streams: 10, is_given: false };
        let (streams, tables) = (running.node.streams(), &running.node.reads().lake.tables);
        let added = streams.shared.known.add(tables, &TenantId::anonymous(), &[stream(name)], limit)?;
        added.refused.into_iter().next().map_or(Ok(()), |(_, refusal)| Err(refusal))
    };
    let running = Running::start(dir.path());
    running.store("App", 1).unwrap();
    let table = running.node.reads().lake.tables.stream(&(TenantId::anonymous(), stream("app"))).unwrap();
    Table::open_or_create(&RECORDS, table).unwrap();
    running.stop();
    let folder = find(&dir.path().join("tables"), "streams");
    let away = folder.with_file_name("away");
    fs::rename(&folder, &away).unwrap();
    fs::write(&folder, "not a folder").unwrap();
    let running = Running::start(dir.path());
    for name in ["app", "aPP"] {
        let known = &running.node.streams().shared.known;
        let (tenant, limit) = (TenantId::anonymous(), StreamLimit { streams: 10, is_given: false });
        let streams = [stream("before"), stream(name)];
        // the whole request is refused, and no stream of it counts
        let refusal = known.add(&running.node.reads().lake.tables, &tenant, &streams, limit).unwrap_err();
        assert!(known.part_of(&tenant, streams[..1].iter()).is_none());
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "table_unreadable"));
    }
    add(&running, "App").unwrap();
    add(&running, "other").unwrap();
    fs::remove_file(&folder).unwrap();
    fs::rename(&away, &folder).unwrap();
    add(&running, "app").unwrap();
    assert_eq!(add(&running, "aPP").unwrap_err().kind, ErrorKind::Invalid);
    running.stop();
}

#[test]
fn names_of_streams_differ_in_more_than_case() {
    let dir = TempDir::new().unwrap();
    let add = |running: &Running, name: &str| {
        let limit = StreamLimit { streams: 10, is_given: false };
        let known = &running.node.streams().shared.known;
        let tables = &running.node.reads().lake.tables;
        let added = known.add(tables, &TenantId::anonymous(), &[stream(name)], limit).unwrap();
        added.refused.into_iter().next().map_or(Ok(()), |(_, refusal)| Err(refusal))
    };
    let mut running = Running::start(dir.path());
    add(&running, "App").unwrap();
    add(&running, "App").unwrap();
    let refusal = add(&running, "app").unwrap_err();
    assert!(refusal.message.contains("App"), "{refusal:?}");
    running.store("App", 1).unwrap();
    running.stop();
    // the journal has it, but no table is there yet
    running = Running::start(dir.path());
    add(&running, "aPP").unwrap_err();
    assert_eq!(running.load("App"), 1);
    running.clock.advance(1);
    running.stop();
    running = Running::start(dir.path());
    add(&running, "aPP").unwrap_err();
    add(&running, "apps").unwrap();
    running.stop();
}

/// A request that stores nothing must not use up the limit.
#[test]
fn streams_count_once_they_have_records() {
    let dir = TempDir::new().unwrap();
    let running = Running::start(dir.path());
    let (known, tenant) = (&running.node.streams().shared.known, TenantId::anonymous());
    let add = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| stream(name)).collect();
        let limit = StreamLimit { streams: 2, is_given: true };
        known.add(&running.node.reads().lake.tables, &tenant, &names, limit).unwrap()
    };
    let refused = |added: &Added| added.refused.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    let added = add(&["a", "b", "c", "logs", "traces"]);
    assert_eq!(refused(&added), ["c"]);
    assert_eq!(added.new, ["a", "b", "logs", "traces"].map(stream));
    running.store("a", 1).unwrap();
    known.forget(&tenant, &added.new);
    assert_eq!(known.streams_of(&tenant), Some(1));
    // the record was already on its way
    running.store("b", 1).unwrap();
    assert_eq!(known.streams_of(&tenant), Some(2));
    let added = add(&["c", "traces"]);
    assert_eq!((refused(&added), added.new), (vec!["c".to_owned()], vec![stream("traces")]));
    running.stop();
}

/// However many tenants there are, those that come later have memory for names, once others are idle.
#[test]
fn names_of_streams_are_shared_by_tenants() {
    let dir = TempDir::new().unwrap();
    let running = Running::start(dir.path());
    let (records, names) = (Account::new("records", 1 << 20), Account::new("stream_names", 100 * 400));
    let known = KnownStreams::new(records, &names);
    let add = |tenant: usize, count: usize| {
        let tenant = TenantId::parse(&format!("t{tenant}")).unwrap();
        let streams: Vec<_> = (0..count).map(|n| stream(&format!("s{n}"))).collect();
        let limit = StreamLimit { streams: 1000, is_given: false };
        let added = known.add(&running.node.reads().lake.tables, &tenant, &streams, limit).unwrap();
        added.new.iter().for_each(|stream| known.note(&tenant, stream));
        (tenant, added)
    };
    let (_, added) = add(0, 200);
    assert!(added.new.len() < 90 && !added.refused.is_empty(), "{}", added.new.len());
    assert!(added.refused.iter().all(|(_, refusal)| refusal.kind == ErrorKind::Unavailable));
    assert!(add(1, 5).1.refused.is_empty(), "others have memory, too");
    for tenant in 2..300 {
        let (tenant, added) = add(tenant, 3);
        known.forget(&tenant, &added.new);
    }
    assert!(names.used_bytes() <= names.limit_bytes());
    let (late, added) = add(300, 1);
    assert_eq!((added.refused.len(), known.streams_of(&late)), (1, None), "it takes no memory");
    known.forget_idle();
    known.forget_idle();
    assert_eq!(names.used_bytes(), 0);
    assert!(add(300, 1).1.refused.is_empty());
    running.stop();
}
