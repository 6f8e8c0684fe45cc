use super::*;
use crate::limits::budget::Budget;
use crate::node::Node;
use crate::partition::Commands;
use crate::partition::tests::{only_owner, only_owner_with, owner_of, series_count};
use crate::seal::Mark;
use crate::seal::tests::node_with;
use crate::settings::Settings;
use crate::write_path::tests::{small_node, small_settings};
use journal::record::{Condition, DeletedExemplars, Operator};
use journal::{Journal, JournalId, Memory, RecordEncoder};
use model::{Exemplar, Labels, Metadata, MetricKind, SeriesRef, TimeRange};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stdx::clock::{Clock, ManualClock, SystemClock};

struct Writer {
    journal: Memory,
    encoder: RecordEncoder,
    tenant: TenantId,
}

impl Writer {
    fn new() -> Self {
        let mut journal = Memory::new(JournalId::default(), 1_000_000);
        journal.begin().unwrap();
        Self { journal, encoder: RecordEncoder::new(), tenant: TenantId::anonymous() }
    }

    fn record(&mut self, fill: impl FnOnce(&mut RecordEncoder)) -> u64 {
        self.encoder.begin(&self.tenant);
        fill(&mut self.encoder);
        let offset = self.journal.append(self.encoder.finish()).unwrap();
        self.journal.sync().unwrap();
        self.journal.begin().unwrap();
        offset.0 + 1
    }

    fn new_series(&mut self, given: u32, name: &str, timestamp_ms: i64) -> u64 {
        self.record(|encoder| {
            encoder.define(SeriesRef(given), labels(name).as_ref());
            encoder.sample(SeriesRef(given), timestamp_ms, 1.0);
        })
    }

    fn deleted(&mut self) {
        self.journal.append(self.encoder.deleted(&self.tenant)).unwrap();
        self.journal.sync().unwrap();
        self.journal.begin().unwrap();
    }

    fn deleted_exemplars(&mut self, deleted: &DeletedExemplars) {
        self.journal.append(self.encoder.deleted_exemplars(&self.tenant, deleted)).unwrap();
        self.journal.sync().unwrap();
        self.journal.begin().unwrap();
    }

    fn sample(&mut self, given: u32, timestamp_ms: i64) -> u64 {
        self.record(|encoder| encoder.sample(SeriesRef(given), timestamp_ms, 1.0))
    }
}

fn labels(name: &str) -> Labels {
    Labels::from_pairs(&[("__name__", "m"), ("i", name)])
}

fn sealed_upto(node: &Node, upto: u64) {
    let change = |(_, mark): (usize, &mut Mark)| (mark.upto, mark.attempt) = (upto, None);
    node.reads().lake.change_marks(change).unwrap();
}

fn content(owner: &Owner, tenant: &TenantId) -> Vec<(String, usize)> {
    let partition = owner.partition.head.read();
    let Some(head) = partition.tenant(tenant) else { return Vec::new() };
    let mut all = Vec::new();
    for series in head.select(&[]) {
        let mut bytes = Vec::new();
        head.write_labels(SeriesRef(series), &mut bytes);
        let labels = model::LabelsRef::from_canonical(&bytes).to_owned();
        let name = labels.iter().find(|(name, _)| *name == "i").map(|(_, value)| value.to_owned()).unwrap();
        all.push((name, head.samples_at_most(SeriesRef(series), TimeRange::ALL)));
    }
    all.sort();
    all
}

fn replayed(node: &Node, writer: &Writer) -> Owner {
    let (mut owner, _commands) = owner_of(node, writer.journal.reopen());
    assert_eq!(owner.replay().unwrap(), End::Complete);
    let counted = owner.partition.head_bytes.load(Ordering::Relaxed);
    assert_eq!(counted, owner.partition.head.read().memory_bytes() as u64);
    assert_eq!(node.owning().replay.used_bytes(), 0, "all memory is returned");
    owner
}

#[test]
fn only_series_that_unsealed_samples_need_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    for i in 0..100 {
        writer.new_series(i, &i.to_string(), 1000);
    }
    // the references of series 7 and 8 are given to new series, in records below and beyond the floodmark
    writer.new_series(7, "7 again", 2000);
    let upto = writer.new_series(8, "8 again", 2000);
    writer.sample(5, 3000);
    writer.sample(7, 3000);
    writer.new_series(9, "9 again", 3000);
    writer.sample(9, 4000);
    writer.new_series(200, "new", 4000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    let expected = [("5", 1), ("7 again", 1), ("9 again", 2), ("new", 1)];
    assert_eq!(content(&owner, &writer.tenant), expected.map(|(name, samples)| (name.to_owned(), samples)));
    node.stop();
}

fn record_with_extras(encoder: &mut RecordEncoder, given: u32, name: &str) {
    encoder.define(SeriesRef(given), labels(name).as_ref());
    encoder.sample(SeriesRef(given), 1000, 1.0);
    let exemplar = Exemplar { labels: labels("trace"), timestamp_ms: 1000, value: 1.0 };
    encoder.exemplar(SeriesRef(given), &exemplar);
    let (help, unit) = ("Help.".to_string(), String::new());
    encoder.metadata(&Metadata { metric: name.into(), kind: MetricKind::Gauge, help, unit });
}

fn check_deleted(comes_meanwhile: bool, in_next_dictionary: bool, expected: &[(&str, usize)]) {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.record(|encoder| record_with_extras(encoder, 0, "old"));
    let upto = writer.record(|encoder| record_with_extras(encoder, 1, "older"));
    if comes_meanwhile {
        writer.sample(0, 2000);
    }
    if in_next_dictionary {
        writer.journal.end_dictionary();
        writer.journal.begin().unwrap();
    }
    writer.deleted();
    writer.new_series(1, "new", 3000);
    writer.sample(1, 4000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    let expected: Vec<_> = expected.iter().map(|(name, samples)| ((*name).to_owned(), *samples)).collect();
    assert_eq!(content(&owner, &writer.tenant), expected);
    let partition = owner.partition.head.read();
    let head = partition.tenant(&writer.tenant).unwrap();
    assert_eq!((head.metadata().count(), head.exemplars().count()), (0, 0));
    drop(partition);
    node.stop();
}

#[test]
fn what_a_tenant_had_before_it_was_deleted_does_not_come_back() {
    for in_next_dictionary in [false, true] {
        check_deleted(false, in_next_dictionary, &[("new", 2)]);
    }
    // samples that were sent during the delete remain, with their series
    check_deleted(true, false, &[("new", 2), ("old", 1)]);
    // a series that was needed only by an exemplar which is dropped stays until it is evicted
    check_deleted(true, true, &[("new", 2), ("old", 1), ("older", 0)]);
}

fn exemplars_of(owner: &Owner, tenant: &TenantId) -> Vec<(String, i64)> {
    let partition = owner.partition.head.read();
    let Some(head) = partition.tenant(tenant) else { return Vec::new() };
    let of = |(series, exemplar): &(SeriesRef, Exemplar)| {
        let mut bytes = Vec::new();
        head.write_labels(*series, &mut bytes);
        let labels = model::LabelsRef::from_canonical(&bytes);
        (labels.get("i").unwrap().to_owned(), exemplar.timestamp_ms)
    };
    let mut all: Vec<_> = head.exemplars().map(of).collect();
    all.sort();
    all
}

/// Series `a`, `b` and `c` are in tables, each with an exemplar at 5 and one at 50. Then exemplars of `a` up to 10, and of `b` and
/// `c` up to 100, are deleted. `c` gets an exemplar again.
fn check_deleted_exemplars(in_next_dictionary: bool, has_memory: bool) {
    let expected = [("a", 50), ("c", 60)];
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let exemplar = |timestamp_ms| Exemplar { labels: labels("trace"), timestamp_ms, value: 1.0 };
    let mut upto = 0;
    for (given, name) in (0..).zip(["a", "b", "c"]) {
        writer.new_series(given, name, 1000);
        upto = writer.record(|encoder| {
            encoder.exemplar(SeriesRef(given), &exemplar(5));
            encoder.exemplar(SeriesRef(given), &exemplar(50));
        });
    }
    if in_next_dictionary {
        writer.journal.end_dictionary();
        writer.journal.begin().unwrap();
    }
    let others = TenantId::parse("other").unwrap();
    // a list of texts needs little memory, whatever the texts contain
    let texts = r"\\p|".repeat(3000);
    for (operator, value, end_ms) in [
        (Operator::Equal, "a", 10),
        (Operator::Regex, &texts, 100),
        (Operator::Regex, "b|[c-d]", 100),
        (Operator::NotRegex, "[a-d]", 100),
    ] {
        let condition = Condition { label: "i".into(), operator, value: value.into() };
        let range = TimeRange::new(0, end_ms);
        let deleted = DeletedExemplars { range, selectors: vec![vec![condition]] };
        writer.deleted_exemplars(&deleted);
        let tenant = std::mem::replace(&mut writer.tenant, others.clone());
        writer.deleted_exemplars(&DeletedExemplars { range: TimeRange::ALL, ..deleted });
        writer.tenant = tenant;
    }
    writer.record(|encoder| {
        encoder.define(SeriesRef(9), labels("c").as_ref());
        encoder.exemplar(SeriesRef(9), &exemplar(60));
    });
    let end = writer.new_series(8, "d", 3000);
    assert!(upto < end);
    sealed_upto(&node, upto);
    let (mut owner, _commands) = owner_of(&node, writer.journal.reopen());
    let account = &node.owning().replay;
    // without memory for the patterns, replay waits
    let others = (!has_memory).then(|| account.reserve(account.limit_bytes() - (512 << 10)).unwrap());
    let partition = Arc::clone(&owner.partition);
    let replay = std::thread::spawn(move || {
        assert_eq!(owner.replay().unwrap(), End::Complete);
        owner
    });
    while !has_memory && partition.trouble.lock().is_empty() {
        assert!(!replay.is_finished(), "replay did not wait for memory");
        std::thread::yield_now();
    }
    drop(others);
    let owner = replay.join().unwrap();
    let counted = owner.partition.head_bytes.load(Ordering::Relaxed);
    assert_eq!(counted, owner.partition.head.read().memory_bytes() as u64);
    let found = exemplars_of(&owner, &writer.tenant);
    let found: Vec<_> = found.iter().map(|(name, at_ms)| (name.as_str(), *at_ms)).collect();
    assert_eq!(found, expected);
    // series that only a deleted exemplar needed are not there, so that no list names them
    let mut left: Vec<_> = expected.iter().map(|(name, _)| ((*name).to_owned(), 0)).collect();
    left.push(("d".into(), 1));
    left.dedup();
    assert_eq!(content(&owner, &writer.tenant), left);
    drop(owner);
    node.stop();
}

#[test]
fn deleted_exemplars_do_not_come_back() {
    for in_next_dictionary in [false, true] {
        for has_memory in [true, false] {
            check_deleted_exemplars(in_next_dictionary, has_memory);
        }
    }
}

/// Writes `count` exemplars of a new series, each with a value of its own.
fn exemplars_of_one(writer: &mut Writer, given: u32, name: &str, count: usize) -> u64 {
    writer.new_series(given, name, 1000);
    more_exemplars(writer, given, count)
}

fn more_exemplars(writer: &mut Writer, given: u32, count: usize) -> u64 {
    let mut upto = 0;
    for from in (0..count).step_by(1000) {
        upto = writer.record(|encoder| {
            for i in from..count.min(from + 1000) {
                let (labels, timestamp_ms) = (Labels::empty(), i as i64);
                encoder.exemplar(SeriesRef(given), &Exemplar { labels, timestamp_ms, value: i as f64 });
            }
        });
    }
    upto
}

fn all_exemplars_of(name: &str) -> DeletedExemplars {
    let condition = Condition { label: "i".into(), operator: Operator::Equal, value: name.into() };
    DeletedExemplars { range: TimeRange::ALL, selectors: vec![vec![condition]] }
}

/// Deleted exemplars make room for later ones, so one that the head keeps may be followed by more than the head keeps at a time.
#[test]
fn exemplars_from_before_a_delete_stay_with_those_that_took_the_place_of_deleted_ones() {
    const HALF: usize = head::EXEMPLARS_MAX / 2;
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    // deletes of others take no room away
    let tenant = std::mem::replace(&mut writer.tenant, TenantId::parse("other").unwrap());
    exemplars_of_one(&mut writer, 9, "o", 1);
    (0..9).for_each(|_| writer.deleted_exemplars(&all_exemplars_of("none")));
    writer.tenant = tenant;
    exemplars_of_one(&mut writer, 0, "a", HALF);
    exemplars_of_one(&mut writer, 1, "b", HALF);
    writer.deleted_exemplars(&all_exemplars_of("b"));
    let upto = exemplars_of_one(&mut writer, 2, "c", HALF);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    let found = exemplars_of(&owner, &writer.tenant);
    let of = |name: &str| found.iter().filter(|(series, _)| series == name).count();
    assert_eq!(["a", "b", "c"].map(of), [HALF, 0, HALF]);
    assert_eq!(content(&owner, &writer.tenant), ["a", "c"].map(|name| (name.to_owned(), 0)));
    node.stop();
}

/// Series get exemplars that are deleted, again and again.
fn check_live_exemplars(deletes_of_others: usize, deletes: usize, with: impl Fn(&mut Writer)) {
    const HALF: usize = head::EXEMPLARS_MAX / 2;
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let tenant = std::mem::replace(&mut writer.tenant, TenantId::parse("other").unwrap());
    exemplars_of_one(&mut writer, 9, "o", 1);
    (0..deletes_of_others).for_each(|_| writer.deleted_exemplars(&all_exemplars_of("none")));
    writer.tenant = tenant;
    exemplars_of_one(&mut writer, 0, "a", HALF);
    writer.new_series(1, "b", 1000);
    for _ in 0..deletes {
        with(&mut writer);
        writer.deleted_exemplars(&all_exemplars_of("b"));
    }
    let upto = writer.new_series(2, "c", 1000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    let found = exemplars_of(&owner, &writer.tenant);
    assert_eq!(found.len(), HALF, "after {deletes} deletes");
    assert!(found.iter().all(|(series, _)| series == "a"));
    assert_eq!(content(&owner, &writer.tenant), [("a".to_owned(), 0)]);
    node.stop();
}

#[test]
fn exemplars_stay_however_many_of_other_series_are_written_and_deleted() {
    let of_one = |writer: &mut Writer| _ = more_exemplars(writer, 1, head::EXEMPLARS_MAX / 2);
    check_live_exemplars(0, 16, of_one);
    check_live_exemplars(7, 4, of_one); // other tenants use up what deletes may add
}

/// After a delete, series are evicted. If they are written again, they are new series.
#[test]
fn exemplars_stay_however_many_new_series_are_written_and_deleted() {
    let of_new_series = |writer: &mut Writer| {
        for from in (0..head::EXEMPLARS_MAX / 2).step_by(1000) {
            writer.record(|encoder| {
                for i in from..from + 1000 {
                    let (given, value) = (SeriesRef(10 + i as u32), i.to_string());
                    let labels = Labels::from_pairs(&[("__name__", "m"), ("i", "b"), ("j", &value)]);
                    encoder.define(given, labels.as_ref());
                    encoder.exemplar(given, &Exemplar { labels, timestamp_ms: 5, value: 1.0 });
                }
            });
        }
    };
    check_live_exemplars(0, 16, of_new_series);
    check_live_exemplars(7, 4, of_new_series);
}

fn exemplars_matching(label: &str, operator: Operator, value: &str) -> DeletedExemplars {
    let condition = Condition { label: label.into(), operator, value: value.into() };
    DeletedExemplars { range: TimeRange::ALL, selectors: vec![vec![condition]] }
}

/// Series that an earlier delete hid are in memory again during replay, because earlier records have exemplars of them. Patterns
/// may take long, so later deletes must not test their values, which the requests did not test either.
#[test]
fn patterns_of_a_delete_are_tested_with_values_of_series_with_exemplars() {
    const HIDDEN: u32 = 1000;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    let exemplar = |value| Exemplar { labels: labels("trace"), timestamp_ms: 5, value };
    let define = |encoder: &mut RecordEncoder, given: u32, name: &str| {
        encoder.define(SeriesRef(given), labels(name).as_ref());
        encoder.exemplar(SeriesRef(given), &exemplar(f64::from(given)));
    };
    writer.record(|encoder| (0..HIDDEN).for_each(|given| define(encoder, given, &given.to_string())));
    writer.deleted_exemplars(&exemplars_matching("__name__", Operator::Equal, "m"));
    let upto = writer.record(|encoder| {
        for (given, name) in (HIDDEN..).zip(["k0", "k1", "k2", "k3", "l"]) {
            define(encoder, given, name);
            encoder.exemplar(SeriesRef(given), &exemplar(0.5));
        }
    });
    writer.deleted_exemplars(&exemplars_matching("i", Operator::Regex, "k.*[0-1]|[5-7]+"));
    writer.deleted_exemplars(&exemplars_matching("__name__", Operator::Regex, "m[0-9]*x"));
    writer.deleted_exemplars(&exemplars_matching("absent", Operator::Regex, "x*y"));
    // listed values are looked up
    writer.deleted_exemplars(&exemplars_matching("i", Operator::Regex, "k2|none"));
    // a request looks listed values up first, then tests values of series with the label, and ends when no series is left
    for [first, second] in [
        [("i", Operator::Regex, "k.*[0-1]|[5-7]+"), ("__name__", Operator::Regex, "nosuch|none")],
        [("i", Operator::Regex, "k.*[0-1]|[5-7]+"), ("__name__", Operator::Equal, "nosuch")],
        [("i", Operator::NotRegex, "k.*[0-1]|[5-7]+"), ("__name__", Operator::Regex, "n.*[0-1]x")],
    ] {
        let [mut both, other] =
            [first, second].map(|(label, operator, value)| exemplars_matching(label, operator, value));
        both.selectors[0].extend(other.selectors.into_iter().flatten());
        writer.deleted_exemplars(&both);
    }
    let (node, mut owner, commands) = only_owner(dir.path(), writer.journal.reopen());
    sealed_upto(&node, upto);
    let mut replay = owner.replay_all().unwrap();
    let found = exemplars_of(&owner, &writer.tenant);
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["k3", "k3", "l", "l"]);
    // the first pattern with five values, the second with one, the third with that of series without the label, and that of the
    // name in the last delete
    let tested = 5 + 1 + 1 + 1;
    assert_eq!(replay.tested, tested);
    assert_eq!(owner.sealing.deletes, 6, "two have no pattern");

    commands.send(crate::partition::Command::Stop).unwrap();
    let left: roaring::RoaringBitmap = {
        let partition = owner.partition.head.read();
        partition.tenant(&writer.tenant).unwrap().exemplars().map(|(series, _)| series.0).collect()
    };
    assert_eq!(left.len(), 2);
    let matcher = query::Matcher::new("i", query::MatchOp::Regex, "k.*3").unwrap();
    let stopped = owner.matching(&mut replay, &matcher, &writer.tenant, &left, Offset(upto));
    assert!(matches!(stopped, Err(Halt::Stopped)), "{stopped:?}");
    assert_eq!(replay.tested, tested + 1, "commands are heard between the tests of a pattern");
}

fn define_with_exemplar(encoder: &mut RecordEncoder, given: u32) {
    let labels = labels(&given.to_string());
    encoder.define(SeriesRef(given), labels.as_ref());
    encoder.exemplar(SeriesRef(given), &Exemplar { labels, timestamp_ms: 5, value: 1.0 });
}

/// Otherwise, a delete with a thousand conditions would look up the value of each series a thousand times.
#[test]
fn conditions_without_an_engine_visit_values_if_they_are_fewer_than_series() {
    let check = |series: u32, others: u32, (label, operator, value), tested: u64, deleted: usize| {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::new();
        writer.record(|encoder| (0..series).for_each(|given| define_with_exemplar(encoder, given)));
        (series..series + others).for_each(|given| _ = writer.new_series(given, &given.to_string(), 1000));
        writer.deleted_exemplars(&exemplars_matching(label, operator, value));
        let (_node, mut owner, _commands) = only_owner(dir.path(), writer.journal.reopen());
        let replay = owner.replay_all().unwrap();
        let left = exemplars_of(&owner, &writer.tenant).len();
        let case = format!("{label} {operator:?} {value}, {series} and {others} series");
        assert_eq!((replay.tested, series as usize - left), (tested, deleted), "{case}");
    };
    check(200, 0, ("__name__", Operator::Regex, "m.*"), 0, 200);
    check(200, 0, ("i", Operator::Regex, "1.*"), 0, 111);
    check(200, 0, ("i", Operator::NotRegex, "1.*"), 0, 89);
    check(200, 0, ("i", Operator::NotEqual, "7"), 0, 199);
    check(200, 0, ("absent", Operator::NotEqual, "7"), 0, 200);
    check(200, 0, ("absent", Operator::Regex, ".+"), 0, 0);
    // the label has more values than there are series with exemplars
    check(200, 1, ("i", Operator::Regex, "1.*"), 200, 111);
    check(100, 0, ("i", Operator::Regex, "1.*"), 100, 11);
}

/// Each look at it takes a second.
#[derive(Debug)]
struct Ticking(ManualClock);

impl Clock for Ticking {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    fn instant(&self) -> Instant {
        self.0.advance(1000);
        self.0.instant()
    }

    fn sleep(&self, time: Duration) {
        self.0.sleep(time);
    }
}

fn owner_at(dir: &std::path::Path, writer: &Writer, clock: Arc<dyn Clock>) -> (Node, Owner, Commands) {
    let settings = Settings { partitions: 1, ..small_settings(dir) };
    only_owner_with(settings, writer.journal.reopen(), clock)
}

#[test]
fn operators_are_told_if_patterns_are_tested_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    writer.record(|encoder| (0..100).for_each(|given| define_with_exemplar(encoder, given)));
    writer.deleted_exemplars(&exemplars_matching("i", Operator::Regex, "k.*[0-1]"));
    let clock = Arc::new(Ticking(ManualClock::at(1_777_000_000_000)));
    let (_node, mut owner, _commands) = owner_at(dir.path(), &writer, clock);
    let partition = Arc::clone(&owner.partition);
    let trouble = || partition.trouble.lock().clone();
    let mut replay = owner.replay_all().unwrap();
    assert_eq!((replay.tested, trouble()), (100, String::new()), "it is cleared after the record");

    let matcher = query::Matcher::new("i", query::MatchOp::Regex, "k.*[0-1]").unwrap();
    for (series, is_told) in [(10, false), (100, true)] {
        let series: roaring::RoaringBitmap = (0..series).collect();
        owner.matching(&mut replay, &matcher, &writer.tenant, &series, Offset(7)).unwrap();
        assert_eq!(trouble().contains("the patterns of a delete, at offset 7"), is_told, "{}", trouble());
    }
    owner.end_tests(&mut replay);
    assert_eq!(trouble(), "");
}

/// When the delete came, the head had already dropped the exemplar of the deleted series, and so has replay.
#[test]
fn a_deleted_series_does_not_come_back_for_an_exemplar_that_was_dropped_before() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    exemplars_of_one(&mut writer, 0, "a", 1);
    writer.journal.end_dictionary();
    writer.journal.begin().unwrap();
    exemplars_of_one(&mut writer, 1, "b", head::EXEMPLARS_MAX);
    writer.deleted_exemplars(&all_exemplars_of("a"));
    let upto = writer.new_series(2, "c", 1000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    assert_eq!(exemplars_of(&owner, &writer.tenant).len(), head::EXEMPLARS_MAX);
    assert_eq!(content(&owner, &writer.tenant), [("b".to_owned(), 0)]);
    node.stop();
}

#[test]
fn a_delete_of_exemplars_that_cannot_be_read_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.record(|encoder| record_with_extras(encoder, 0, "old"));
    let condition = Condition { label: "i".into(), operator: Operator::Regex, value: "(".into() };
    writer.deleted_exemplars(&DeletedExemplars { range: TimeRange::ALL, selectors: vec![vec![condition]] });
    let owner = replayed(&node, &writer);
    assert_eq!(owner.context.metrics.unreadable_records.get(), 1);
    assert_eq!(exemplars_of(&owner, &writer.tenant).len(), 1);
    node.stop();
}

#[test]
fn replay_of_sealed_churn_takes_hardly_any_memory() {
    const SERIES: u32 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let mut upto = 0;
    for batch in 0..SERIES / 1000 {
        upto = writer.record(|encoder| {
            for i in 0..1000 {
                let given = SeriesRef(batch * 1000 + i);
                encoder.define(given, labels(&format!("{batch}-{i}")).as_ref());
                encoder.sample(given, 1000, 1.0);
            }
        });
    }
    for given in 0..10 {
        writer.sample(given * 1000, 2000);
    }
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    assert_eq!(series_count(&owner), 10);
    let (head_bytes, peak_bytes) =
        (owner.partition.head_bytes.load(Ordering::Relaxed), node.owning().replay.peak_bytes());
    assert!(head_bytes < 1 << 20, "{head_bytes} bytes in the head");
    assert!(peak_bytes < 2 << 20, "{peak_bytes} bytes outside of the head, for {} references", SERIES);
    node.stop();
}

#[test]
fn metadata_and_exemplars_of_sealed_records_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let exemplar = |value| Exemplar { labels: labels("trace"), timestamp_ms: 5, value };
    writer.new_series(0, "with an exemplar", 1000);
    writer.new_series(1, "without", 1000);
    writer.new_series(2, "gone with its exemplar", 1000);
    writer.record(|encoder| {
        encoder.exemplar(SeriesRef(0), &exemplar(0.5));
        encoder.exemplar(SeriesRef(2), &exemplar(1.5));
        let (help, unit) = ("Help.".to_string(), String::new());
        encoder.metadata(&Metadata { metric: "m".into(), kind: MetricKind::Gauge, help, unit });
    });
    let upto = writer.new_series(2, "after it", 2000);
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    assert_eq!(content(&owner, &writer.tenant), [("with an exemplar".to_owned(), 0)]);
    let partition = owner.partition.head.read();
    let head = partition.tenant(&writer.tenant).unwrap();
    assert_eq!(head.metadata_of("m").map(|m| m.help.as_str()), Some("Help."));
    assert_eq!(head.exemplars().map(|(_, e)| e.value).collect::<Vec<_>>(), [0.5]);
    drop(partition);
    node.stop();
}

#[test]
fn exemplars_of_sealed_churn_are_the_newest_ones() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let mut upto = 0;
    let count = head::EXEMPLARS_MAX as u32 + 3000;
    for batch in 0..count / 1000 {
        upto = writer.record(|encoder| {
            for i in batch * 1000..(batch + 1) * 1000 {
                encoder.define(SeriesRef(i), labels(&i.to_string()).as_ref());
                let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 5, value: f64::from(i) };
                encoder.exemplar(SeriesRef(i), &exemplar);
            }
        });
    }
    sealed_upto(&node, upto);
    let owner = replayed(&node, &writer);
    assert_eq!(series_count(&owner), head::EXEMPLARS_MAX);
    let partition = owner.partition.head.read();
    let values: Vec<_> =
        partition.tenant(&writer.tenant).unwrap().exemplars().map(|(_, e)| e.value).collect();
    assert!(values.into_iter().eq((3000..count).map(f64::from)));
    drop(partition);
    node.stop();
}

fn replay_at_once(mut owner: Owner) -> Owner {
    let partition = Arc::clone(&owner.partition);
    let replay = std::thread::spawn(move || {
        assert_eq!(owner.replay().unwrap(), End::Complete);
        owner
    });
    while !replay.is_finished() {
        let trouble = partition.trouble.lock().clone();
        assert!(trouble.is_empty(), "{trouble}");
        std::thread::yield_now();
    }
    replay.join().unwrap()
}

/// The exemplars come from an earlier version, which did not limit their labels.
#[test]
fn replay_keeps_the_newest_exemplars_that_fit() {
    const COUNT: u32 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    writer.new_series(0, "0", 1000);
    for i in 0..COUNT {
        let labels = Labels::from_pairs(&[("trace", &"x".repeat(15 << 10))]);
        let exemplar = Exemplar { labels, timestamp_ms: 5, value: f64::from(i) };
        writer.record(|encoder| encoder.exemplar(SeriesRef(0), &exemplar));
    }
    let (node, owner, _commands) = only_owner(dir.path(), writer.journal.reopen());
    assert!(u64::from(COUNT) * (15 << 10) > node.budget().head_bytes);
    let owner = replay_at_once(owner);
    assert_eq!(content(&owner, &writer.tenant), [("0".to_owned(), 1)]);
    let partition = owner.partition.head.read();
    assert!(partition.exemplar_bytes() as u64 <= node.budget().exemplars_bytes());
    assert_eq!(node.writes().heads.bytes(), partition.memory_bytes() as u64);
    let values = partition.tenant(&writer.tenant).unwrap().exemplars().map(|(_, e)| e.value as u32);
    let kept: Vec<_> = values.collect();
    assert!(kept.len() > 50 && kept.iter().copied().eq(COUNT - kept.len() as u32..COUNT), "{kept:?}");
    assert_eq!(node.writes().metrics.exemplars_dropped.get(), u64::from(COUNT) - kept.len() as u64);
}

/// Exemplars may need series with large labels. Sealing would not free their memory, so replay must not wait for it.
#[test]
fn replay_does_not_wait_for_series_that_only_exemplars_need() {
    const COUNT: u32 = 2500;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    let mut upto = 0;
    for i in 0..COUNT {
        let long = format!("{i}-{}", "x".repeat(15 << 10));
        upto = writer.record(|encoder| {
            encoder.define(SeriesRef(i), labels(&long).as_ref());
            let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 5, value: f64::from(i) };
            encoder.exemplar(SeriesRef(i), &exemplar);
        });
    }
    writer.sample(COUNT - 1, 2000);
    let (node, owner, _commands) = only_owner(dir.path(), writer.journal.reopen());
    sealed_upto(&node, upto);
    assert!(u64::from(COUNT) * (15 << 10) > node.budget().head_bytes);
    let owner = replay_at_once(owner);
    assert!((2..COUNT as usize).contains(&series_count(&owner)));
    let partition = owner.partition.head.read();
    let newest = partition.tenant(&writer.tenant).unwrap().exemplars().last().map(|(_, e)| e.value as u32);
    assert_eq!(newest, Some(COUNT - 1));
    assert_eq!(node.writes().heads.bytes(), partition.memory_bytes() as u64);
}

#[test]
fn sealing_during_replay_keeps_exemplars_and_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new();
    let (tenant, only_metadata) = (TenantId::anonymous(), TenantId::parse("only-metadata").unwrap());
    writer.new_series(0, "with an exemplar", 1000);
    writer.record(|encoder| {
        encoder.exemplar(SeriesRef(0), &Exemplar { labels: labels("trace"), timestamp_ms: 5, value: 1.0 });
        encoder.define(SeriesRef(1), labels("without").as_ref());
    });
    writer.tenant = only_metadata.clone();
    let end = writer.record(|encoder| {
        let (help, unit) = ("Help.".to_string(), String::new());
        encoder.metadata(&Metadata { metric: "m".into(), kind: MetricKind::Gauge, help, unit });
    });
    let (node, mut owner, _commands) = only_owner(dir.path(), writer.journal.reopen());
    let mut replay = owner.replay_all().unwrap();
    let frozen = owner.freeze_upto(Offset(end), &Default::default());
    let (reply, _answer) = std::sync::mpsc::sync_channel(1);
    let what = crate::partition::SealedSamples::All { upto: frozen.upto, except: Default::default() };
    owner.let_go(&mut replay, Offset(end), crate::partition::Sealed { what, reply }).unwrap();
    let has_metadata = |owner: &Owner| {
        let partition = owner.partition.head.read();
        partition.tenant(&only_metadata).is_some_and(|head| head.metadata_of("m").is_some())
    };
    assert_eq!(content(&owner, &tenant), [("with an exemplar".to_owned(), 0)]);
    assert!(has_metadata(&owner));
    // under memory pressure, the exemplar is dropped with its series
    owner.partition.grew((node.budget().head_bytes / 100 * 80) as isize);
    owner.make_room(&mut replay, Offset(end)).unwrap();
    assert_eq!(content(&owner, &tenant), []);
    assert!(has_metadata(&owner));
}

#[test]
fn each_tenant_is_replayed_from_its_own_floodmark() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    let behind = TenantId::parse("behind").unwrap();
    for tenant in [TenantId::anonymous(), behind.clone()] {
        writer.tenant = tenant;
        writer.new_series(0, "0", 1000);
        writer.new_series(1, "1", 1000);
    }
    let upto = writer.sample(0, 2000);
    sealed_upto(&node, upto);
    let own = |(_, mark): (usize, &mut Mark)| {
        let own =
            crate::seal::TenantMark { source: mark.source.clone(), upto: 3, attempt: None, passes: None };
        mark.tenants.insert(behind.as_str().into(), own);
    };
    node.reads().lake.change_marks(own).unwrap();
    let owner = replayed(&node, &writer);
    assert_eq!(content(&owner, &behind), [("0".to_owned(), 1), ("1".to_owned(), 1)]);
    assert_eq!(content(&owner, &TenantId::anonymous()), []);
    node.stop();
}

#[test]
fn a_record_of_a_later_version_closes_the_partition() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.new_series(0, "0", 1000);
    writer.journal.append(&[RECORD_VERSION + 1, 1, b't']).unwrap();
    writer.journal.sync().unwrap();
    let (mut owner, _commands) = owner_of(&node, writer.journal.reopen());
    let refusal = owner.begin().unwrap_err();
    let found = format!("version {}", RECORD_VERSION + 1);
    let known = format!("up to {RECORD_VERSION}");
    for part in ["offset 1", &found, &known, "start that version again"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    assert!(!owner.partition.ready.load(Ordering::Relaxed));
    node.stop();
}

#[test]
fn a_malformed_record_is_counted_and_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.new_series(0, "0", 1000);
    for malformed in [&b""[..], &[0, 0, 0, 0], &[RECORD_VERSION, 200, b't']] {
        writer.journal.append(malformed).unwrap();
    }
    writer.journal.sync().unwrap();
    writer.sample(0, 2000);
    let owner = replayed(&node, &writer);
    assert_eq!(content(&owner, &writer.tenant), [("0".to_owned(), 2)]);
    assert_eq!(node.writes().metrics.unreadable_records.get(), 3);
    node.stop();
}

#[test]
fn records_wait_for_the_memory_of_other_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    writer.record(|encoder| {
        encoder.define(SeriesRef(0), labels("0").as_ref());
        (0..90_000).for_each(|i| encoder.sample(SeriesRef(0), i, 0.5));
    });
    let account = node.owning().replay.clone();
    let others = account.reserve(account.limit_bytes() - (1 << 20)).unwrap();
    let (mut owner, _commands) = owner_of(&node, writer.journal.reopen());
    let partition = Arc::clone(&owner.partition);
    let replay = std::thread::spawn(move || {
        assert_eq!(owner.replay().unwrap(), End::Complete);
        owner
    });
    while partition.trouble.lock().is_empty() {
        std::thread::yield_now();
    }
    assert!(
        partition.trouble.lock().contains("the replay of other partitions"),
        "{}",
        partition.trouble.lock()
    );
    drop(others);
    let owner = replay.join().unwrap();
    assert_eq!(content(&owner, &writer.tenant), [("0".to_owned(), 90_000)]);
    assert!(partition.trouble.lock().is_empty());
    node.stop();
}

/// Others may give memory back between the failed attempt to take it and the wait. Each attempt may read a dictionary.
#[test]
fn waits_for_memory_end_even_if_nobody_gives_back_any_and_become_longer() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let (_node, mut owner, _commands) =
        owner_at(dir.path(), &Writer::new(), Arc::clone(&clock) as Arc<dyn Clock>);
    let mut replay = owner.replay_all().unwrap();
    let mut attempts = Vec::new();
    let began_ms = clock.passed_ms();
    while clock.passed_ms() - began_ms < 600_000 {
        let before_ms = clock.passed_ms();
        owner.wait_for_memory(&mut replay, Offset(0)).unwrap();
        attempts.push(clock.passed_ms() - before_ms);
        assert!(owner.partition.trouble.lock().is_empty());
    }
    assert!(attempts.is_sorted() && attempts.len() < 40, "{attempts:?}");
    assert_eq!((attempts.first(), attempts.last()), (Some(&1000), Some(&30_000)));
}

/// Writes more samples to a data directory than a node with 64 MiB can hold. None of them is sealed.
async fn fill_beyond_a_small_head(dir: &std::path::Path) -> crate::seal::tests::Content {
    let node = node_with(dir, |settings| {
        settings.budget = Budget::of(512 << 20).unwrap();
        settings.lake.seal_after_ms = i64::MAX;
        settings.lake.seal_bytes = u64::MAX;
    })
    .await;
    let (now_ms, mut content) = (SystemClock.now_ms(), BTreeMap::new());
    let small = Budget::of(64 << 20).unwrap();
    for batch in 0.. {
        let mut encoder = protocol::encode::V1Encoder::new();
        for i in 0..200 {
            let name = format!("m_{batch}_{i}");
            let labels = Labels::from_pairs(&[("__name__", &name), ("own", &name.repeat(100))]);
            encoder.series(labels.as_ref(), &[now_ms], &[f64::from(i)]);
            content.insert((labels.to_string(), now_ms), f64::from(i).to_bits());
        }
        let body = encoder.finish().to_vec();
        let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
        let version = protocol::remote_write::Version::V1;
        crate::write_path::tests::write(&node, TenantId::anonymous(), version, body, memory).await.unwrap();
        if node.writes().heads.bytes() > small.head_bytes * 3 / 2 {
            break;
        }
    }
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    content
}

/// Waits until `is_over`, and checks meanwhile that the heads stay within their limit.
async fn watch(node: &Node, is_over: impl Fn(&Node) -> bool) {
    while !is_over(node) {
        let (held, limit) = (node.writes().heads.bytes(), node.budget().head_bytes);
        // a record is applied as a whole, so the limit may be exceeded by one record
        assert!(held <= limit + (1 << 20), "{held} bytes of {limit}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn trouble(node: &Node) -> bool {
    node.reads().partitions.iter().any(|partition| !partition.trouble.lock().is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_seals_as_it_goes_where_memory_is_less_than_before() {
    let dir = tempfile::tempdir().unwrap();
    let content = fill_beyond_a_small_head(dir.path()).await;
    let node = small_node(dir.path());
    watch(&node, Node::is_ready).await;
    assert!(node.reads().lake.sealing.rounds.get() > 0, "samples that did not fit were sealed");
    let reader = node.clone();
    let found =
        tokio::task::spawn_blocking(move || crate::seal::tests::read_of(&reader, &TenantId::anonymous()));
    assert!(found.await.unwrap() == content, "every sample is there once");
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_waits_for_tables_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let content = fill_beyond_a_small_head(dir.path()).await;
    let tables = dir.path().join("tables");
    let _ = std::fs::remove_dir_all(&tables); // the directory may not exist yet
    std::fs::write(&tables, "in the way").unwrap();
    let node = small_node(dir.path());
    watch(&node, trouble).await;
    let refusal = node.reads().partitions.replaying();
    for part in ["replay waits", "MiB", "--memory"] {
        assert!(refusal.message.contains(part), "{refusal}");
    }
    assert!(!node.is_ready());
    std::fs::remove_file(&tables).unwrap();
    watch(&node, Node::is_ready).await;
    assert!(!trouble(&node));
    let reader = node.clone();
    let found =
        tokio::task::spawn_blocking(move || crate::seal::tests::read_of(&reader, &TenantId::anonymous()));
    assert!(found.await.unwrap() == content, "every sample is there once");
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}
