//! Batches that cannot be decoded, or that no journal takes.

use super::super::home::Home;
use super::*;
use journal::RECORD_BYTES_MAX;
use journal::records::Content;
use model::ErrorKind;

/// A payload with a header that can be read, and columns that cannot.
fn undecodable() -> Vec<u8> {
    let whole = payload("s", 27);
    let broken = (0..whole.len()).rev().map(|at| {
        let mut payload = whole.clone();
        payload[at] ^= 0xff;
        payload
    });
    let is_wanted = |payload: &Vec<u8>| {
        matches!(records::read_content(payload), Ok(Content::Batch(_))) && records::decode(payload).is_err()
    };
    broken.into_iter().find(is_wanted).unwrap()
}

/// Writes payloads to the journal of records in a data directory, as a node would.
fn append(dir: &Path, payloads: &[Vec<u8>]) {
    let options =
        journal::Options { fresh_id: 77, durability: journal::Durability::Os, ..Default::default() };
    let (mut journal, _) = Home { dir: dir.join("streams"), options }.open().unwrap();
    journal.begin().unwrap();
    payloads.iter().for_each(|payload| _ = journal.append(payload).unwrap());
    journal.sync().unwrap();
}

#[test]
fn a_batch_that_cannot_be_decoded_holds_up_no_other() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    running.stop();
    append(dir.path(), &[undecodable(), payload("s", 3)]);
    running = Running::start(dir.path());
    running.store("s", 9).unwrap();
    assert_eq!(running.load("s"), 13);
    let metrics = Arc::clone(&running.node.streams().shared);
    running.stop();
    assert_eq!(metrics.metrics.damaged.get(), 1);
    let copied = find(&dir.path().join("streams/journal"), "quarantine");
    assert_eq!(fs::read_dir(copied).unwrap().count(), 2, "the bytes, and a report");
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 13);
    running.stop();
}

/// The floodmark does not pass a batch that cannot be decoded before the batch has a copy.
#[test]
fn a_batch_that_cannot_be_decoded_is_copied_first() {
    let dir = TempDir::new().unwrap();
    Running::start(dir.path()).stop();
    append(dir.path(), &[undecodable(), payload("s", 3)]);
    let folder = dir.path().join("streams/journal/0/quarantine");
    fs::write(&folder, "not a folder").unwrap();
    let mut running = Running::start(dir.path());
    for failures in 1..4 {
        assert!(running.loader.load_next());
        running.clock.advance(100_000);
        let metrics = &running.node.streams().shared.metrics;
        assert_eq!((metrics.load_failures.get(), metrics.damaged.get()), (failures, 0));
        assert_eq!(running.rows("s"), 0);
    }
    fs::remove_file(&folder).unwrap();
    assert!(running.loader.load_next());
    let shared = Arc::clone(&running.node.streams().shared);
    assert_eq!((running.rows("s"), shared.metrics.damaged.get()), (3, 1));
    assert_eq!(shared.buffer.first(), None);
    let copies = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let copy = copies.filter(|path| path.extension().is_some_and(|extension| extension == "bytes"));
    assert_eq!(copy.map(|path| fs::read(path).unwrap()).collect::<Vec<_>>(), [undecodable()]);
    running.stop();
}

#[test]
fn many_batches_that_cannot_be_decoded_are_copied() {
    let dir = TempDir::new().unwrap();
    Running::start(dir.path()).stop();
    let count = 100;
    let mut payloads = vec![undecodable(); count];
    payloads.push(payload("s", 3));
    append(dir.path(), &payloads);
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 3);
    let shared = Arc::clone(&running.node.streams().shared);
    assert_eq!(shared.metrics.damaged.get(), count as u64);
    let folder = dir.path().join("streams/journal/0/quarantine");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 2 * count);
    running.stop();
}

/// It would be refused together with those of other tenants that are in the same group.
#[test]
fn a_batch_that_no_journal_takes_is_refused_alone() {
    let dir = TempDir::new().unwrap();
    let running = Running::start(dir.path());
    let streams = running.node.streams();
    let batch = Batch {
        tenant: TenantId::anonymous(),
        stream: stream("s"),
        id: None,
        arrival_us: NOW_MS * 1000,
        records: 1,
        payload: vec![0; RECORD_BYTES_MAX + 1].into(),
        memory: streams.shared.records.reserve(0).unwrap(),
    };
    let refusal = running.runtime.block_on(streams.store(vec![batch])).unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::TooLarge, "{refusal:?}");
    assert_eq!(streams.shared.metrics.group_failures.get(), 0);
    running.store("s", 1).unwrap();
    running.stop();
}
