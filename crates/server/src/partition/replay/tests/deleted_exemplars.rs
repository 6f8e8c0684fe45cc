//! Records which say that exemplars were deleted.

use super::*;

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

/// Another tenant has an exemplar, and `count` deletes that select nothing.
fn write_deletes_of_another_tenant(writer: &mut Writer, count: usize) {
    let tenant = std::mem::replace(&mut writer.tenant, TenantId::parse("other").unwrap());
    exemplars_of_one(writer, 9, "o", 1);
    (0..count).for_each(|_| writer.deleted_exemplars(&all_exemplars_of("none")));
    writer.tenant = tenant;
}

/// Deleted exemplars make room for later ones, so one that the head keeps may be followed by more than the head keeps at a time.
#[test]
fn exemplars_from_before_a_delete_stay_with_those_that_took_the_place_of_deleted_ones() {
    const HALF: usize = head::EXEMPLARS_MAX / 2;
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut writer = Writer::new();
    write_deletes_of_another_tenant(&mut writer, 9); // this takes no room away
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
    write_deletes_of_another_tenant(&mut writer, deletes_of_others);
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
