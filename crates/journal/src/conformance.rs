//! A test suite for implementations of [`Journal`].
//!
//! An implementation provides a [`Place`], the storage that survives a restart. At most
//! [`DICTIONARY_RECORDS_MAX`] records of [`RECORD_BYTES`] bytes may fit into one of its dictionaries, so that
//! the suite can fill them. The checks panic if a journal does not conform.

use crate::{DictionaryId, Item, Journal, JournalError, JournalId, Offset, RECORD_BYTES_MAX};
use stdx::rng::Rng;

/// Maximum number of records of [`RECORD_BYTES`] bytes that fit into one dictionary of a journal under test.
pub const DICTIONARY_RECORDS_MAX: usize = 40;

pub const RECORD_BYTES: usize = 100;

/// Where the records of a journal are stored, so that it can be closed and opened again.
pub trait Place {
    /// Opens the journal in the state in which it was closed. When this place is opened for the first time,
    /// the journal is empty, and no journal in another place has the same identity.
    fn open(&mut self) -> Box<dyn Journal>;
}

pub fn all(make: &mut dyn FnMut() -> Box<dyn Place>) {
    begins_with_an_identity_of_its_own(&mut *make(), &mut *make());
    for check in [
        begins_empty,
        keeps_its_identity_and_its_changes,
        skips_offsets,
        skips_offsets_behind_records,
        reads_back_what_was_synced,
        shows_nothing_before_the_sync,
        requires_begin,
        abandons_a_group_whole,
        ends_a_dictionary_on_request,
        refuses_records_that_are_too_large,
        changes_dictionaries_only_at_begin,
        survives_a_restart,
        reads_from_anywhere,
        drops_whole_dictionaries,
        reads_while_the_owner_appends,
    ] {
        check(&mut *make());
    }
    for seed in 1..=10 {
        agrees_with_a_model(&mut *make(), seed);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    offset: u64,
    dictionary: DictionaryId,
    payload: Vec<u8>,
}

fn read(journal: &dyn Journal, from: u64) -> Vec<Seen> {
    let mut reader = journal.read(Offset(from)).expect("cannot begin to read");
    let mut seen = Vec::new();
    while let Some(item) = reader.next().expect("cannot read on") {
        match item {
            Item::Entry(e) => {
                seen.push(Seen { offset: e.offset.0, dictionary: e.dictionary, payload: e.payload.to_vec() });
            }
            Item::Damage(damage) => panic!("an undamaged journal reports damage: {damage:?}"),
        }
    }
    seen
}

fn payloads(journal: &dyn Journal) -> Vec<Vec<u8>> {
    read(journal, 0).into_iter().map(|seen| seen.payload).collect()
}

/// Writes one group of `count` records with offsets from `from` on. Each record contains its offset.
fn write(journal: &mut dyn Journal, from: usize, count: usize) -> DictionaryId {
    let dictionary = journal.begin().expect("cannot begin a group");
    for i in from..from + count {
        assert_eq!(journal.append(&usual(i)).expect("cannot append a record"), Offset(i as u64));
    }
    assert_eq!(journal.sync().expect("cannot sync a group"), Offset((from + count) as u64));
    dictionary
}

fn usual(i: usize) -> Vec<u8> {
    let mut payload = vec![i as u8; RECORD_BYTES];
    payload[..8].copy_from_slice(&(i as u64).to_le_bytes());
    payload
}

fn begins_with_an_identity_of_its_own(place: &mut dyn Place, other: &mut dyn Place) {
    assert_ne!(place.open().identity().id(), other.open().identity().id());
}

fn keeps_its_identity_and_its_changes(place: &mut dyn Place) {
    let journal = place.open();
    let first = journal.identity().id();
    drop(journal);
    let journal = place.open();
    let identity = journal.identity();
    assert_eq!(identity.id(), first);
    let changed = JournalId { number: !first.number, ..first };
    identity.change(changed.number).expect("cannot change the identity");
    assert_eq!(journal.identity().id(), changed, "the change does not apply at once");
    drop(journal);
    let mut journal = place.open();
    assert_eq!(journal.identity().id(), changed, "the change did not survive a restart");
    write(&mut *journal, 0, 1);
    assert_eq!(journal.identity().id(), changed);
}

fn skips_offsets(place: &mut dyn Place) {
    let mut journal = place.open();
    journal.skip_to(Offset(7)).expect("cannot skip offsets");
    journal.skip_to(Offset(5)).expect("skipping to an earlier offset failed");
    assert_eq!((journal.start(), journal.durable_end()), (Offset(7), Offset(7)));
    write(&mut *journal, 7, 3);
    assert_eq!(payloads(&*journal), (7..10).map(usual).collect::<Vec<_>>());
    drop(journal);
    let journal = place.open();
    assert_eq!((journal.start(), journal.durable_end()), (Offset(7), Offset(10)));
}

fn skips_offsets_behind_records(place: &mut dyn Place) {
    write(&mut *place.open(), 0, 3);
    let mut journal = place.open();
    journal.skip_to(Offset(2)).expect("skipping to an earlier offset failed");
    journal.skip_to(Offset(20)).expect("cannot skip offsets");
    write(&mut *journal, 20, 2);
    let (mut reader, mut offsets) = (journal.read(Offset(0)).expect("cannot begin to read"), Vec::new());
    while let Some(item) = reader.next().expect("cannot read on") {
        match item {
            Item::Entry(entry) => offsets.push(entry.offset.0),
            // a journal may report the skipped offsets as lost records
            Item::Damage(damage) => assert_eq!(damage.lost, 3..20),
        }
    }
    assert_eq!(offsets, [0, 1, 2, 20, 21]);
}

fn begins_empty(place: &mut dyn Place) {
    let mut journal = place.open();
    assert_eq!((journal.start(), journal.durable_end()), (Offset(0), Offset(0)));
    assert_eq!(journal.dictionary_start(Offset(7)), Offset(0));
    assert!(read(&*journal, 0).is_empty());
    journal.truncate(Offset(9)).expect("truncation with nothing to drop failed");
    journal.begin().expect("cannot begin a group");
    assert_eq!(journal.sync().expect("cannot sync an empty group"), Offset(0));
    assert!(read(&*journal, 0).is_empty());
}

fn reads_back_what_was_synced(place: &mut dyn Place) {
    let mut journal = place.open();
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for len in [0, 1, 100, 20_000, 3 << 20, 5] {
        let payload: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        journal.begin().expect("cannot begin a group");
        for _ in 0..2 {
            journal.append(&payload).expect("cannot append a record");
            expected.push(payload.clone());
        }
        journal.sync().expect("cannot sync a group");
    }
    assert!(payloads(&*journal) == expected, "the records read differ from the records written");
    let offsets: Vec<u64> = read(&*journal, 0).iter().map(|seen| seen.offset).collect();
    assert_eq!(offsets, (0..expected.len() as u64).collect::<Vec<_>>());
    let stats = journal.stats();
    assert_eq!((stats.appended_records, stats.synced_records, stats.syncs), (12, 12, 6));
}

fn shows_nothing_before_the_sync(place: &mut dyn Place) {
    let mut journal = place.open();
    journal.begin().expect("cannot begin a group");
    journal.append(b"a").expect("cannot append a record");
    assert_eq!(journal.durable_end(), Offset(0));
    assert!(read(&*journal, 0).is_empty());
    journal.sync().expect("cannot sync a group");
    assert_eq!(journal.durable_end(), Offset(1));
    assert_eq!(payloads(&*journal), [b"a"]);
}

fn requires_begin(place: &mut dyn Place) {
    let mut journal = place.open();
    assert!(matches!(journal.append(b"a"), Err(JournalError::Void)));
    assert!(matches!(journal.sync(), Err(JournalError::Void)));
    write(&mut *journal, 0, 1);
    // `begin` may be called again while the group has no records
    journal.begin().expect("cannot begin a group");
    journal.begin().expect("cannot begin a group again");
    write(&mut *journal, 1, 1);
}

fn ends_a_dictionary_on_request(place: &mut dyn Place) {
    let mut journal = place.open();
    let first = write(&mut *journal, 0, 3);
    let given_up = journal.stats().abandoned_groups;
    journal.end_dictionary();
    journal.end_dictionary();
    assert_eq!(
        journal.stats().abandoned_groups,
        given_up,
        "ending a dictionary between groups abandoned a group"
    );
    assert_ne!(journal.begin().expect("cannot begin a group"), first);
    journal.truncate(Offset(3)).expect("cannot drop the old dictionary");
    assert_eq!(
        (journal.start(), journal.durable_end(), payloads(&*journal).len()),
        (Offset(3), Offset(3), 0)
    );
    write(&mut *journal, 3, 2);
    drop(journal);
    let journal = place.open();
    assert_eq!(
        (journal.start(), journal.durable_end(), payloads(&*journal).len()),
        (Offset(3), Offset(5), 2)
    );
}

fn abandons_a_group_whole(place: &mut dyn Place) {
    let mut journal = place.open();
    // abandons a group, first in an empty journal, then after durable records
    for kept in [0, 3] {
        let dictionary = journal.begin().expect("cannot begin a group");
        journal.append(b"void").expect("cannot append a record");
        journal.append(&vec![7; 3 << 20]).expect("cannot append a record");
        let given_up = journal.stats().abandoned_groups;
        journal.abandon();
        journal.abandon();
        assert_eq!(journal.stats().abandoned_groups, given_up + 1, "abandoning twice does not count once");
        assert!(matches!(journal.append(b"a"), Err(JournalError::Void)));
        assert!(matches!(journal.sync(), Err(JournalError::Void)), "a void group was acknowledged");
        assert_eq!(journal.durable_end(), Offset(kept));
        let next = journal.begin().expect("cannot begin a group");
        assert_ne!(next, dictionary, "a group after an abandoned group has no new dictionary");
        write(&mut *journal, kept as usize, 3);
    }
    drop(journal);
    let journal = place.open();
    assert_eq!(payloads(&*journal), (0..6).map(usual).collect::<Vec<_>>());
}

fn refuses_records_that_are_too_large(place: &mut dyn Place) {
    let mut journal = place.open();
    write(&mut *journal, 0, 1);
    journal.begin().expect("cannot begin a group");
    journal.append(b"void").expect("cannot append a record");
    let refused = journal.append(&vec![0; RECORD_BYTES_MAX + 1]);
    assert!(matches!(refused, Err(JournalError::TooLarge { bytes }) if bytes == RECORD_BYTES_MAX + 1));
    assert!(matches!(journal.sync(), Err(JournalError::Void)));
    write(&mut *journal, 1, 1);
    assert_eq!(payloads(&*journal), [usual(0), usual(1)]);
}

fn changes_dictionaries_only_at_begin(place: &mut dyn Place) {
    let mut journal = place.open();
    let groups = 3 * DICTIONARY_RECORDS_MAX / 4;
    let given: Vec<DictionaryId> = (0..groups).flat_map(|g| [write(&mut *journal, 4 * g, 4); 4]).collect();
    let seen: Vec<DictionaryId> = read(&*journal, 0).into_iter().map(|s| s.dictionary).collect();
    assert_eq!(seen.len(), given.len());
    let changes = |ids: &[DictionaryId]| ids.windows(2).map(|w| w[0] == w[1]).collect::<Vec<_>>();
    assert_eq!(changes(&seen), changes(&given), "readers see other dictionaries than the owner");
    let dictionaries = changes(&seen).iter().filter(|same| !**same).count() + 1;
    assert!(dictionaries >= 3, "dictionaries did not become full: there are only {dictionaries}");
    // even a group that is larger than a dictionary stays in one dictionary
    let first = journal.durable_end().0;
    write(&mut *journal, first as usize, 3 * DICTIONARY_RECORDS_MAX);
    let seen = read(&*journal, first);
    assert!(seen.windows(2).all(|w| w[0].dictionary == w[1].dictionary));
}

fn survives_a_restart(place: &mut dyn Place) {
    let mut end = 0;
    let mut last = None;
    for count in [1, 5, 0, DICTIONARY_RECORDS_MAX * 2, 1] {
        let mut journal = place.open();
        assert_eq!(journal.durable_end(), Offset(end as u64));
        assert_eq!(payloads(&*journal), (0..end).map(usual).collect::<Vec<_>>());
        assert_eq!(read(&*journal, 0).last().map(|seen| seen.payload.clone()), last);
        write(&mut *journal, end, count);
        end += count;
        last = end.checked_sub(1).map(usual);
        // this record is never synced, so the next opening must not find it
        journal.begin().expect("cannot begin a group");
        journal.append(b"void").expect("cannot append a record");
    }
    let journal = place.open();
    let seen = read(&*journal, 0);
    assert_eq!(seen.len(), end);
    // the records of a dictionary follow each other without gaps, even across restarts
    let mut ids: Vec<DictionaryId> = seen.iter().map(|s| s.dictionary).collect();
    ids.dedup();
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
}

fn reads_from_anywhere(place: &mut dyn Place) {
    let mut journal = place.open();
    let count = 2 * DICTIONARY_RECORDS_MAX + 3;
    (0..count).for_each(|i| {
        write(&mut *journal, i, 1);
    });
    let all = read(&*journal, 0);
    for from in 0..count + 3 {
        assert_eq!(read(&*journal, from as u64), all[from.min(count)..], "from {from}");
        let start = journal.dictionary_start(Offset(from as u64)).0 as usize;
        let at = from.min(count - 1);
        assert!(
            start <= at && all[start].dictionary == all[at].dictionary,
            "the start is in another dictionary"
        );
        assert!(
            start == 0 || all[start - 1].dictionary != all[at].dictionary,
            "the start is not the dictionary's first record"
        );
    }
}

fn drops_whole_dictionaries(place: &mut dyn Place) {
    let mut journal = place.open();
    let count = 4 * DICTIONARY_RECORDS_MAX;
    (0..count).for_each(|i| {
        write(&mut *journal, i, 1);
    });
    let all = read(&*journal, 0);
    for before in (0..count + 10).step_by(7) {
        journal.truncate(Offset(before as u64)).expect("cannot drop dictionaries");
        let start = journal.start();
        assert_eq!(
            start,
            journal.dictionary_start(Offset(before as u64)),
            "truncation did not drop exactly the dictionaries that end by then"
        );
        assert_eq!(read(&*journal, 0), all[start.0 as usize..]);
        assert_eq!(journal.durable_end(), Offset(count as u64));
    }
    let start = journal.start();
    assert!(start > Offset(0) && start < Offset(count as u64), "truncation went too far, or dropped nothing");
    drop(journal);
    let mut journal = place.open();
    assert_eq!((journal.start(), journal.durable_end()), (start, Offset(count as u64)));
    write(&mut *journal, count, 1);
}

fn reads_while_the_owner_appends(place: &mut dyn Place) {
    let mut journal = place.open();
    let count = 2 * DICTIONARY_RECORDS_MAX;
    (0..count).for_each(|i| {
        write(&mut *journal, i, 1);
    });
    let mut reader = journal.read(Offset(0)).expect("cannot begin to read");
    for i in 0..count {
        match reader.next().expect("cannot read on") {
            Some(Item::Entry(entry)) => assert_eq!((entry.offset.0, entry.payload), (i as u64, &*usual(i))),
            other => panic!("{other:?}"),
        }
        write(&mut *journal, count + i, 1);
    }
    assert_eq!(
        reader.next().expect("reading failed at the end"),
        None,
        "the reader went on beyond the durable end at its creation"
    );
}

/// Does random operations on the journal and on a simple model, and compares them. After a failure, the
/// journal must discard the records that were not synced.
pub fn agrees_with_a_model(place: &mut dyn Place, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut journal = place.open();
    let mut durable: Vec<Vec<u8>> = Vec::new();
    let mut dictionaries: Vec<Option<DictionaryId>> = Vec::new();
    let mut start = 0;
    for step in 0..300 {
        let context = format!("seed {seed}, step {step}");
        match rng.below(20) {
            0 => {
                drop(journal);
                journal = place.open();
                dictionaries.iter_mut().for_each(|d| *d = None);
            }
            1 => {
                let before = rng.below(durable.len() as u64 + 5);
                journal.truncate(Offset(before)).expect("cannot drop dictionaries");
                assert!(journal.start().0 <= before.max(start), "{context}: too much was dropped");
                start = journal.start().0;
            }
            2 => {
                let from = rng.below(durable.len() as u64 + 2).max(start);
                let seen: Vec<_> = read(&*journal, from).into_iter().map(|s| s.payload).collect();
                assert_eq!(seen, durable[(from as usize).min(durable.len())..], "{context}");
            }
            _ => {
                if let Some((id, group)) = random_group(&mut *journal, durable.len(), &mut rng, &context) {
                    dictionaries.extend(group.iter().map(|_| Some(id)));
                    durable.extend(group);
                }
            }
        }
        assert_eq!(journal.durable_end(), Offset(durable.len() as u64), "{context}");
    }
    let seen = read(&*journal, 0);
    assert_eq!(
        seen.iter().map(|s| &s.payload).collect::<Vec<_>>(),
        durable[start as usize..].iter().collect::<Vec<_>>()
    );
    // for readers, the dictionary must change at the same records at which `begin` reported a change
    let told = &dictionaries[start as usize..];
    for (i, pair) in seen.windows(2).enumerate() {
        if let (Some(a), Some(b)) = (told[i], told[i + 1]) {
            assert_eq!(pair[0].dictionary == pair[1].dictionary, a == b, "seed {seed}, record {i}");
        }
    }
}

/// Returns `None` if the group was abandoned, at random or after an error.
fn random_group(
    journal: &mut dyn Journal,
    end: usize,
    rng: &mut Rng,
    context: &str,
) -> Option<(DictionaryId, Vec<Vec<u8>>)> {
    let id = journal.begin().ok()?;
    let mut group = Vec::new();
    for i in 0..rng.below(12) {
        let payload = vec![rng.next_u64() as u8; rng.below(2 * RECORD_BYTES as u64) as usize];
        let offset = journal.append(&payload).ok()?;
        assert_eq!(offset, Offset(end as u64 + i), "{context}");
        group.push(payload);
    }
    if rng.chance(0.1) {
        journal.abandon();
        return None;
    }
    let synced = journal.sync().ok()?;
    assert_eq!(synced, Offset((end + group.len()) as u64), "{context}");
    Some((id, group))
}
