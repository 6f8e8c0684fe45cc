use super::*;
use crate::limits::tenant_state::{TenantState, TenantStates};
use crate::node::Node;
use crate::partition::submission::NewSeries;
use crate::partition::submission::{Outcome, StreamId};
use crate::settings::{Settings, TenantLimits};
use crate::world::World;
use crate::write_path::tests::{small_node, small_settings};
use admission::Postponed;
use journal::JournalId;
use model::{
    Exemplar, Labels, Metadata, MetricKind, Samples, SeriesKey, SeriesRef, TenantId, TimeRange, ValueKind,
    Values,
};
use stdx::clock::{Clock, ManualClock, SystemClock};
use stdx::rng::Rng;
use tokio::sync::oneshot;

type Answer = Result<Outcome, Refusal>;
use std::sync::mpsc::sync_channel;

/// Creates an owner, without a thread of its own, for a partition that `node` does not know.
pub(super) fn owner_of(node: &Node, journal: journal::Memory) -> (Owner, Commands) {
    let partition = Arc::new(PartitionShared::new(node.reads().seed));
    let (send, receive) = sync_channel(16);
    (Owner::new(0, Arc::clone(node.owning()), partition, Box::new(journal), receive), send)
}

/// Creates a node whose threads do not run, and the owner of its only partition.
pub(super) fn only_owner(dir: &std::path::Path, journal: journal::Memory) -> (Node, Owner, Commands) {
    only_owner_at(dir, journal, Arc::new(SystemClock))
}

fn only_owner_at(
    dir: &std::path::Path,
    journal: journal::Memory,
    clock: Arc<dyn Clock>,
) -> (Node, Owner, Commands) {
    let settings = Settings { partitions: 1, series_idle_s: 3600, ..small_settings(dir) };
    only_owner_with(settings, journal, clock)
}

pub(super) fn only_owner_with(
    settings: Settings,
    journal: journal::Memory,
    clock: Arc<dyn Clock>,
) -> (Node, Owner, Commands) {
    let node = Node::assemble(settings, World::real(clock)).unwrap().node;
    let (send, receive) = sync_channel(16);
    let (context, partition) = (Arc::clone(node.owning()), Arc::clone(&node.reads().partitions[0]));
    (node, Owner::new(0, context, partition, Box::new(journal), receive), send)
}

fn anonymous() -> Arc<TenantState> {
    state_of(&TenantId::anonymous())
}

fn state_of(tenant: &TenantId) -> Arc<TenantState> {
    TenantStates::for_test(1).of(tenant, || true, Instant::now())
}

fn new_series(name: &str, count: usize) -> Submission {
    let (reply, _) = oneshot::channel();
    let mut submission = Submission::new(anonymous(), ValueKind::Float, reply);
    for i in 0..count {
        let labels = Labels::from_pairs(&[("__name__", name), ("i", &i.to_string())]);
        let key = SeriesKey::of(labels.as_bytes(), 1);
        submission.new.push(NewSeries { key, labels, samples: 0..0, exemplars: Vec::new() });
    }
    submission
}

#[test]
fn a_few_new_series_do_not_wait_for_many() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let (mut owner, send) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
    for submission in [new_series("flood", 100_000), new_series("few", 3)] {
        send.send(Command::Write(Box::new(submission))).unwrap();
    }
    owner.gather(None);
    owner.create_up_to(CREATE_SLICE);
    assert_eq!((owner.group.len(), owner.creating.len()), (1, 1));
    assert_eq!(owner.group[0].new.len(), 3);
    node.stop();
}

/// Refusing series must not hold up groups of known series for longer than creating them does.
#[test]
fn a_slice_refuses_a_limited_number_of_series() {
    let check = |limit: fn(&mut TenantLimits)| {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = small_settings(dir.path());
        limit(&mut settings.tenants.general.limits);
        let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
        let (mut owner, send) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
        for _ in 0..3 {
            send.send(Command::Write(Box::new(new_series("m", 10_000)))).unwrap();
        }
        owner.gather(None);
        let mut slices = 0;
        while !owner.creating.is_empty() {
            owner.create_up_to(CREATE_SLICE);
            slices += 1;
        }
        let refused: Vec<_> = owner.group.iter().map(|s| s.outcome.refused_series as usize).collect();
        let created: Vec<_> = owner.group.iter().map(|s| s.created).collect();
        assert!(refused.iter().zip(&created).all(|(refused, created)| refused + created == 10_000));
        let slices_min = refused.iter().sum::<usize>() / (CREATE_SLICE * REFUSED_FOR_EACH_CREATED);
        assert!(refused.len() == 3 && slices_min > 10, "{refused:?} refused");
        assert!(slices >= slices_min, "{slices} slices");
        node.stop();
    };
    check(|limits| limits.active_series = Some(2));
    check(|limits| (limits.series_per_metric, limits.series_per_metric_is_given) = (Some(2), true));
}

#[test]
fn a_wall_clock_that_is_set_ahead_evicts_no_series() {
    const HOUR_MS: u64 = 3_600_000;
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let settings = Settings { series_idle_s: 3600, ..small_settings(dir.path()) };
    let node = Node::start(settings, Arc::<ManualClock>::clone(&clock)).unwrap();
    let (mut owner, _commands) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
    {
        let mut head = owner.partition.head.write();
        let labels = Labels::from_pairs(&[("__name__", "quiet")]);
        let key = SeriesKey::of(labels.as_bytes(), 1);
        let tenant = head.tenant_mut(&TenantId::anonymous());
        let series = tenant.create(key, labels.as_ref());
        tenant.set_seen(series, node.owning().steady_s());
    }
    let partition = Arc::clone(&owner.partition);
    let is_there = || partition.head.read().tenant(&TenantId::anonymous()).is_some();
    // a series is retired in one turn, and evicted in a later turn
    let mut evict = || {
        (0..10).for_each(|_| {
            clock.advance(60_000);
            owner.evict_turn();
        });
    };
    clock.set(2 * HOUR_MS as i64);
    evict();
    assert!(is_there(), "seen some minutes ago");
    clock.advance(HOUR_MS);
    evict();
    assert!(!is_there(), "idle for longer than series_idle");
    node.stop();
}

fn samples_of(series: SeriesRef, timestamps: Vec<i64>) -> (Submission, oneshot::Receiver<Answer>) {
    let (reply, answer) = oneshot::channel();
    let mut submission = Submission::new(anonymous(), ValueKind::Float, reply);
    submission.refs = vec![series; timestamps.len()];
    submission.values = Values::Floats(vec![1.0; timestamps.len()]);
    submission.timestamps = timestamps;
    (submission, answer)
}

#[test]
fn a_few_samples_do_not_wait_for_many_late_ones() {
    const LATE: usize = 40_000;
    let mut rng = Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let (mut owner, send) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
    let write = |submission| send.send(Command::Write(Box::new(submission))).unwrap();
    write(new_series("m", 2));
    owner.turn(None);
    let newest_ms = 2_000_000_000;
    let (submission, mut first) = samples_of(SeriesRef(0), vec![newest_ms]);
    write(submission);
    owner.turn(None);
    assert_eq!(first.try_recv().unwrap().unwrap().samples, 1);

    let late = (0..LATE).map(|_| newest_ms - rng.below(3_600_000) as i64).collect();
    let (submission, mut late) = samples_of(SeriesRef(0), late);
    write(submission);
    let mut turns = 0;
    let outcome = loop {
        let (submission, mut few) = samples_of(SeriesRef(1), vec![newest_ms + turns]);
        write(submission);
        owner.turn(None);
        assert_eq!(few.try_recv().expect("within one turn").unwrap().samples, 1);
        turns += 1;
        if let Ok(answer) = late.try_recv() {
            break answer.unwrap();
        }
    };
    assert_eq!((outcome.samples, outcome.refused_samples), (LATE as u64, 0));
    assert!(turns > 4, "all of it in {turns} groups");
    let mut out = Samples::<f64>::default();
    let head = owner.partition.head.read();
    head.tenant(&TenantId::anonymous()).unwrap().read(SeriesRef(0), TimeRange::ALL, &mut out);
    assert!(out.len() > LATE / 2 && out.timestamps.is_sorted());
    drop(head);
    node.stop();
}

/// Listing a hidden series again takes longer than storing an exemplar.
#[test]
fn exemplars_of_hidden_series_are_not_many_in_a_group() {
    const COUNT: usize = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let (mut owner, send) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
    send.send(Command::Write(Box::new(new_series("m", 1)))).unwrap();
    owner.turn(None);
    let with_exemplars = || {
        let (mut submission, _) = samples_of(SeriesRef(0), Vec::new());
        let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 5, value: 1.0 };
        submission.exemplars = vec![(SeriesRef(0), exemplar); COUNT];
        submission
    };
    assert_eq!(owner.admit(with_exemplars()), COUNT);
    assert!(owner.slicing.is_empty());
    let mut hiding = head::Hiding::new([0].into_iter().collect(), TimeRange::ALL);
    while !owner.partition.head.write().hide_turn(&TenantId::anonymous(), &mut hiding) {}
    assert_eq!(owner.admit(with_exemplars()), 0);
    assert!(!owner.slicing.is_empty(), "it is stored apart");
    while !owner.slicing.is_empty() {
        owner.turn(None);
    }
    let exemplars = owner.partition.head.read().tenant(&TenantId::anonymous()).unwrap().exemplars().count();
    assert_eq!(exemplars, 1, "repeats are stored once");
    node.stop();
}

/// Replay tests the patterns of all deletes in a dictionary. Other conditions take little time.
#[test]
fn a_dictionary_ends_after_many_deletes_with_patterns() {
    let (pattern, prefix) = (r#"{i="1",__name__=~"n.*[0-9]e"}"#, r#"{i="1",__name__=~"n.*"}"#);
    let cases = [
        (pattern, seal::DELETES_MAX - 1, 1),
        (pattern, seal::DELETES_MAX, 2),
        (prefix, seal::DELETES_MAX, 1),
    ];
    for (selector, deletes, dictionaries) in cases {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        let (mut owner, send) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
        send.send(Command::Write(Box::new(new_series("m", 1)))).unwrap();
        owner.turn(None);
        let selectors = vec![query::parse_selector(selector).unwrap()];
        let delete = Arc::new(tables::Delete { selectors, range: TimeRange::ALL });
        for _ in 0..deletes {
            let (reply, mut answer) = oneshot::channel();
            send.send(Command::DeleteSeries(DeleteSeries {
                tenant: TenantId::anonymous(),
                delete: Arc::clone(&delete),
                series: roaring::RoaringBitmap::new(),
                pin: owner.partition.head.read().pin(),
                reply,
            }))
            .unwrap();
            while answer.try_recv().map(Result::unwrap).is_err() {
                owner.turn(None);
            }
        }
        let (reply, frozen) = sync_channel(1);
        send.send(Command::Freeze(Freeze { all: false, except: Default::default(), reply })).unwrap();
        owner.turn(None);
        frozen.try_recv().unwrap();
        assert_eq!(owner.journal.stats().dictionaries, dictionaries, "{deletes} deletes of {selector}");
        node.stop();
    }
}

/// Replay restores evicted exemplars, and tests their labels with the patterns of later deletes.
#[test]
fn a_dictionary_ends_before_a_delete_if_many_exemplars_were_evicted() {
    let check = |evicted: u64, all: bool, dictionaries: u64| {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        let (mut owner, send) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
        let tenant = TenantId::anonymous();
        send.send(Command::Write(Box::new(new_series("m", 1)))).unwrap();
        owner.turn(None);
        owner.record_delete(|encoder| encoder.deleted(&TenantId::parse("other").unwrap())).unwrap();
        // so many definitions that the dictionary does not end for another reason
        owner.dictionary.grow(1000, 8 << 20);
        {
            let exemplar = |i| Exemplar { labels: Labels::empty(), timestamp_ms: i as i64, value: i as f64 };
            let mut head = owner.partition.head.write();
            head.put_exemplars(&tenant, (0..evicted).map(|i| (SeriesRef(0), exemplar(i))), 1);
            while !matches!(head.evict_turn(head::Idle::before(u32::MAX), |_, _| {}), head::Evicted::Done(_))
            {
            }
            assert_eq!(head.evicted_exemplars(), evicted);
        }
        let (reply, frozen) = sync_channel(1);
        send.send(Command::Freeze(Freeze { all, except: Default::default(), reply })).unwrap();
        owner.turn(None);
        frozen.try_recv().unwrap();
        assert_eq!(owner.journal.stats().dictionaries, dictionaries, "{evicted} evicted, all: {all}");
        node.stop();
    };
    check(seal::EVICTED_MAX - 1, true, 1);
    check(seal::EVICTED_MAX, true, 2);
    check(seal::EVICTED_MAX, false, 1);
}

/// A connection sends many late samples of a series, and then one more value for a time that they contain.
#[test]
fn the_later_value_of_a_stream_wins_even_if_the_earlier_one_is_stored_in_slices() {
    const LATE: i64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let (mut owner, send) = owner_of(&node, journal::Memory::new(JournalId::default(), 1000));
    let write = |submission| send.send(Command::Write(Box::new(submission))).unwrap();
    write(new_series("m", 1));
    owner.turn(None);
    let (submission, _) = samples_of(SeriesRef(0), vec![LATE]);
    write(submission);
    owner.turn(None);

    let value_at = |at_ms, value| {
        let (mut submission, answer) = samples_of(SeriesRef(0), vec![at_ms]);
        submission.values = Values::Floats(vec![value]);
        submission.stream = Some(StreamId(1));
        (submission, answer)
    };
    for attempt in 0..2 {
        let (mut many, mut answer_of_many) = samples_of(SeriesRef(0), (0..LATE).rev().collect());
        many.stream = Some(StreamId(1));
        write(many);
        owner.turn(None);
        let (later, mut answer) = value_at(0, f64::from(attempt) + 7.0);
        write(later);
        let (mut other, mut answer_of_other) = value_at(LATE, 1.0);
        other.stream = Some(StreamId(2));
        write(other);
        owner.turn(None);
        assert_eq!(answer_of_other.try_recv().expect("another stream does not wait").unwrap().samples, 1);
        let mut of_tenant = new_series("m", 1);
        (of_tenant.tenant, of_tenant.stream) = (TenantId::parse("other").unwrap(), Some(StreamId(1)));
        let (reply, mut answer_of_tenant) = oneshot::channel();
        of_tenant.reply = reply;
        write(of_tenant);
        owner.turn(None);
        assert!(answer_of_tenant.try_recv().expect("another tenant does not wait").is_ok());
        assert!(answer.try_recv().is_err(), "it must wait for the slices before it");
        while !owner.slicing.is_empty() {
            owner.turn(owner.time_to_sleep());
        }
        assert_eq!(answer_of_many.try_recv().unwrap().unwrap().samples, LATE as u64);
        assert_eq!(answer.try_recv().unwrap().unwrap().samples, 1);
        let mut out = Samples::<f64>::default();
        let head = owner.partition.head.read();
        head.tenant(&TenantId::anonymous()).unwrap().read(SeriesRef(0), TimeRange::ALL, &mut out);
        assert_eq!((out.timestamps[0], out.values[0]), (0, f64::from(attempt) + 7.0));
    }
    // nothing of the stream is left, so it does not wait any more
    let (submission, mut answer) = value_at(1, 3.0);
    write(submission);
    owner.turn(None);
    assert_eq!(answer.try_recv().unwrap().unwrap().samples, 1);
    node.stop();
}

/// A tenant that imports must not stop the senders of all tenants that send to Graphite, whose late samples are tried again until
/// they are stored.
#[test]
fn a_tenant_that_fills_the_share_of_late_samples_leaves_some_to_others() {
    const NEWEST_MS: i64 = 1_777_000_000_000;
    let mut rng = Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NEWEST_MS));
    let mut settings = Settings { partitions: 1, ..small_settings(dir.path()) };
    settings.budget.head_bytes = 2 << 20;
    let journal = journal::Memory::new(JournalId::default(), 1000);
    let (node, mut owner, commands) = only_owner_with(settings, journal, Arc::<ManualClock>::clone(&clock));
    let mut write = |submission| {
        commands.send(Command::Write(Box::new(submission))).unwrap();
        clock.advance(1000);
        owner.turn(None);
        while !owner.slicing.is_empty() {
            clock.advance(1000);
            owner.turn(None);
        }
    };
    let mut fill = |name: &str| {
        let tenant = TenantId::parse(name).unwrap();
        let mut write_own = |mut submission: Submission| {
            (submission.tenant, submission.state) = (tenant.clone(), state_of(&tenant));
            write(submission);
        };
        write_own(new_series("m", 1));
        let mut send = |timestamps| {
            let (submission, mut answer) = samples_of(SeriesRef(0), timestamps);
            write_own(submission);
            let outcome = answer.try_recv().unwrap().unwrap();
            (outcome.samples, outcome.refused_samples)
        };
        assert_eq!(send(vec![NEWEST_MS]), (1, 0));
        let mut stored = 0;
        loop {
            let late = (0..100).map(|_| NEWEST_MS - 1 - rng.below(1 << 40) as i64).collect();
            match send(late) {
                (0, 100) => return stored,
                (count, _) => stored += count,
            }
        }
    };
    let [imports, few, more] = ["imports", "few", "more"].map(&mut fill);
    assert!(imports > 5 * few && few > more && more >= 100, "{imports}, {few}, {more}");
    let (held, limit) = (node.writes().heads.late_bytes(), node.budget().head_bytes / 100 * 28);
    assert!(held < limit + (16 << 10), "{held} bytes of {limit}");
    node.stop();
}

#[test]
fn late_samples_beyond_their_share_are_refused_and_no_others() {
    const NEWEST_MS: i64 = 1_777_000_000_000;
    let mut rng = Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NEWEST_MS));
    let mut settings = Settings { partitions: 1, ..small_settings(dir.path()) };
    settings.budget.head_bytes = 2 << 20;
    let (node, mut owner, commands) = only_owner_with(
        settings,
        journal::Memory::new(JournalId::default(), 1000),
        Arc::<ManualClock>::clone(&clock),
    );
    let mut write = |submission| {
        commands.send(Command::Write(Box::new(submission))).unwrap();
        clock.advance(1000);
        owner.turn(None);
        while !owner.slicing.is_empty() {
            clock.advance(1000);
            owner.turn(None);
        }
    };
    write(new_series("m", 1));
    let mut send = |timestamps| {
        let (submission, mut answer) = samples_of(SeriesRef(0), timestamps);
        write(submission);
        let outcome = answer.try_recv().unwrap().unwrap();
        (outcome.samples, outcome.refused_samples, outcome.postponed)
    };
    assert_eq!(send(vec![NEWEST_MS]), (1, 0, vec![]));
    let mut stored = 0;
    let refused = loop {
        let late = (0..5000).map(|_| NEWEST_MS - 1 - rng.below(1 << 40) as i64).collect();
        match send(late) {
            (count, 0, _) => stored += count,
            (count, _, postponed) if count > 0 && postponed == [Postponed::LateSamples] => stored += count, // the submission was sliced, and only its first slices had room
            refused => break refused,
        }
    };
    assert!(stored >= 10_000, "{stored}");
    assert_eq!(refused, (0, 5000, vec![Postponed::LateSamples]));
    let (held, limit) = (node.writes().heads.late_bytes(), node.budget().head_bytes / 4);
    assert!((limit..limit + (256 << 10)).contains(&held), "{held} bytes of {limit}");
    assert!(node.writes().heads.needs_sealing());
    // a duplicate of the newest sample, a late sample, and a new sample
    assert_eq!(send(vec![NEWEST_MS, NEWEST_MS - 1, NEWEST_MS + 1]), (2, 1, vec![Postponed::LateSamples]));

    let mut head = node.reads().partitions[0].head.write();
    head.freeze(|_| true);
    while !head.release_turn(|_| true) {}
    node.reads().partitions[0].count_late(&head, &node.reads().lake.blocked);
    drop(head);
    assert_eq!(send(vec![NEWEST_MS - 1]), (1, 0, vec![]));
}

fn journal_of(count: u32) -> journal::Memory {
    let mut journal = journal::Memory::new(JournalId::default(), 1000);
    let mut encoder = RecordEncoder::new();
    journal.begin().unwrap();
    for i in 0..count {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
        encoder.begin(&TenantId::anonymous());
        encoder.define(SeriesRef(i), labels.as_ref());
        encoder.sample(SeriesRef(i), 1000, 1.0);
        journal.append(encoder.finish()).unwrap();
    }
    journal.sync().unwrap();
    journal
}

pub(super) fn series_count(owner: &Owner) -> usize {
    owner.partition.head.read().tenants().map(|(_, head)| head.series_count()).sum()
}

#[test]
fn replay_counts_what_it_fills() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let (mut owner, _send) = owner_of(&node, journal_of(100));
    assert_eq!(owner.replay().unwrap(), replay::End::Complete);
    assert_eq!(series_count(&owner), 100);
    let counted = owner.partition.head_bytes.load(Ordering::Relaxed);
    assert_eq!(counted, owner.partition.head.read().memory_bytes() as u64);
    node.stop();
}

#[test]
fn a_replay_ends_when_the_node_stops() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let (mut owner, send) = owner_of(&node, journal_of(100));
    send.send(Command::Stop).unwrap();
    assert_eq!(owner.replay().unwrap(), replay::End::Stopped);
    assert_eq!(series_count(&owner), 1);
    node.stop();
}

#[test]
fn exemplars_and_metadata_keep_to_their_parts_of_the_head() {
    const TENANTS: usize = 30;
    let dir = tempfile::tempdir().unwrap();
    let (node, mut owner, send) = only_owner(dir.path(), journal::Memory::new(JournalId::default(), 1000));
    let budget = node.budget().clone();
    for i in 0..TENANTS {
        let (reply, mut answer) = oneshot::channel();
        let mut submission = new_series("m", 1);
        submission.reply = reply;
        submission.tenant = TenantId::parse(&format!("t{i}")).unwrap();
        let exemplar = |i: usize| {
            let labels = Labels::from_pairs(&[("trace_id", &format!("{i:0120}"))]);
            Exemplar { labels, timestamp_ms: 1, value: i as f64 }
        };
        submission.new[0].exemplars = (0..2000).map(exemplar).collect();
        let metadata = |i: usize| {
            let (help, unit) = ("h".repeat(4 << 10), "u".repeat(4 << 10));
            Metadata { metric: format!("m{i}"), kind: MetricKind::Gauge, help, unit }
        };
        submission.metadata = (0..50).map(metadata).collect();
        send.send(Command::Write(Box::new(submission))).unwrap();
        let outcome = loop {
            owner.turn(None);
            if let Ok(answer) = answer.try_recv() {
                break answer.unwrap();
            }
        };
        assert_eq!((outcome.exemplars, outcome.refused_exemplars, outcome.postponed), (2000, 0, vec![]));
    }
    let head = owner.partition.head.read();
    let (exemplars, metadata) = (head.exemplar_bytes() as u64, head.metadata_bytes() as u64);
    assert!(exemplars <= budget.exemplars_bytes() && exemplars > budget.exemplars_bytes() / 2, "{exemplars}");
    assert!(metadata <= budget.metadata_bytes() && metadata > budget.metadata_bytes() / 2, "{metadata}");
    assert!(!node.writes().heads.is_filled_to(12), "{} bytes", node.writes().heads.bytes());
    assert_eq!(node.writes().heads.bytes(), head.memory_bytes() as u64);
    let kept: usize = head.tenants().map(|(_, head)| head.exemplars().count()).sum();
    assert_eq!(owner.context.metrics.exemplars_dropped.get(), (TENANTS * 2000 - kept) as u64);
    let families: usize = head.tenants().map(|(_, head)| head.metadata().count()).sum();
    let mut journaled = 0;
    let mut record = journal::Record::new();
    let mut reader = owner.journal.read(owner.journal.start()).unwrap();
    while let Some(item) = reader.next().unwrap() {
        if let journal::Item::Entry(entry) = item {
            record.decode(entry.payload).unwrap();
            journaled += record.metadata.len();
        }
    }
    assert_eq!(journaled, families, "discarded metadata is not in the journal");
    let metrics = node.registry().render();
    let refused = format!("reason=\"bytes\"}} {}", TENANTS * 50 - families);
    assert!(metrics.contains(&format!("floodmark_write_refused_metadata_total{{{refused}\n")), "{metrics}");
    for part in ["exemplars", "metadata"] {
        let limit =
            format!("part_limit_bytes{{account=\"head\",part=\"{part}\"}} {}\n", budget.metadata_bytes());
        assert!(metrics.contains(&limit), "{metrics}");
    }
}

/// A full head refuses metadata of new metric families, but still updates that of known families.
#[test]
fn a_full_head_takes_no_metadata_of_new_families() {
    let dir = tempfile::tempdir().unwrap();
    let (node, mut owner, send) = only_owner(dir.path(), journal::Memory::new(JournalId::default(), 1000));
    let mut write = |metric: &str, help: &str| {
        let mut submission = new_series("m", 0);
        let (metric, unit) = (metric.to_owned(), String::new());
        submission.metadata = vec![Metadata { metric, kind: MetricKind::Gauge, help: help.into(), unit }];
        send.send(Command::Write(Box::new(submission))).unwrap();
        owner.turn(None);
    };
    write("known", "old");
    node.reads().partitions[0].grew((node.budget().head_bytes / 100 * 90) as isize);
    write("known", "new");
    write("another", "");
    let head = node.reads().partitions[0].head.read();
    let all: Vec<_> =
        head.tenant(&TenantId::anonymous()).unwrap().metadata().map(|m| m.help.as_str()).collect();
    assert_eq!((all, node.writes().metrics.refused_metadata.head_full.get()), (vec!["new"], 1));
}

/// Metadata and exemplars are in no table. If they were evicted, they would be lost, because the journal may be
/// truncated before the tenant opens.
#[test]
fn a_closed_tenant_keeps_metadata_and_exemplars() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_777_000_000_000));
    let journal = journal::Memory::new(JournalId::default(), 1000);
    let (node, mut owner, _commands) = only_owner_at(dir.path(), journal, Arc::<ManualClock>::clone(&clock));
    let [open, closed] = ["open", "closed"].map(|name| TenantId::parse(name).unwrap());
    let seen_s = node.owning().steady_s();
    for tenant in [&open, &closed] {
        let mut head = owner.partition.head.write();
        let labels = Labels::from_pairs(&[("__name__", "m")]);
        let key = SeriesKey::of(labels.as_bytes(), 1);
        let series = head.tenant_mut(tenant).create(key, labels.as_ref());
        let exemplar = Exemplar { labels: Labels::empty(), timestamp_ms: 1, value: 1.0 };
        head.put_exemplars(tenant, [(series, exemplar)].into_iter(), seen_s);
        let (metric, help, unit) = ("m".to_owned(), String::new(), String::new());
        let metadata = Metadata { metric, kind: MetricKind::Gauge, help, unit };
        head.restore_metadata(tenant, metadata, 1 << 20, seen_s).unwrap();
    }
    let held_bytes = owner.partition.head.read().memory_bytes();
    owner.partition.grew(held_bytes as isize);
    node.reads().lake.close(0, &closed, "its table cannot be read".into(), clock.now_ms());
    let partition = Arc::clone(&owner.partition);
    let held = |tenant: &TenantId| {
        let head = partition.head.read();
        head.tenant(tenant).map(|head| (head.exemplars().count(), head.metadata().count()))
    };
    let mut evict = || {
        (0..10).for_each(|_| {
            clock.advance(3_600_000);
            owner.evict_turn();
        });
    };
    evict();
    assert_eq!((held(&open), held(&closed)), (None, Some((1, 1))));
    partition.grew((node.budget().head_bytes / 100 * 80) as isize);
    evict();
    assert_eq!(held(&closed), Some((0, 1)), "exemplars are dropped under memory pressure");
}
