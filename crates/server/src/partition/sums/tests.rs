use super::super::slicing::EXPONENTIALS_MAX;
use super::super::{Command, Freeze, Sealed, SealedSamples};
use super::forget::GRACE_S;
use super::tenant::SUM_BYTES;
use super::*;
use crate::limits::tenant_state::TenantStates;
use crate::node::Node;
use crate::partition::submission::NewSeries;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::world::World;
use crate::write_path::InUse;
use crate::write_path::tests::small_settings;
use journal::faulty::{Faults, Faulty};
use journal::{Journal, JournalId, Memory, Offset};
use model::exponential::Side;
use model::{Labels, Samples, TimeRange, ValueKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use stdx::budget::{Account, IncrementalReservation};
use stdx::clock::ManualClock;
use stdx::rng::Rng;
use tokio::sync::oneshot;

const MS: u64 = 1_000_000;

type Answer = oneshot::Receiver<Result<Outcome, Refusal>>;

struct Fixture {
    clock: Arc<ManualClock>,
    node: Node,
    owner: Owner,
    send: SyncSender<Command>,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn over(journal: Box<dyn Journal>, dir: tempfile::TempDir) -> Self {
        let clock = Arc::new(ManualClock::at(1_777_000_000_000));
        let settings = Settings { partitions: 1, series_idle_s: 3600, ..small_settings(dir.path()) };
        let world = World::real(Arc::<ManualClock>::clone(&clock));
        let node = Node::assemble(settings, world).unwrap().node;
        let (send, receive) = sync_channel(16);
        let (context, partition) = (Arc::clone(node.owning()), Arc::clone(&node.reads().partitions[0]));
        let mut owner = Owner::new(0, context, partition, journal, receive);
        assert!(owner.begin().unwrap());
        Self { clock, node, owner, send, dir }
    }

    fn new() -> (Memory, Self) {
        let journal = Memory::new(JournalId::default(), 10);
        let fixture = Self::over(Box::new(journal.reopen()), tempfile::tempdir().unwrap());
        (journal, fixture)
    }

    /// Submits increments of series `m{i="…"}`, each with its series, start and end in milliseconds, and value.
    fn submit(&self, increments: &[(usize, u64, u64, f64)]) -> Answer {
        let (reply, answer) = oneshot::channel();
        let state = TenantStates::for_test(1).of(&TenantId::anonymous(), || true, Instant::now());
        let mut submission = Submission::new(state, ValueKind::Float, reply);
        let now_s = self.owner.context.steady_s();
        let stamp = self.owner.context.heads.shared_sums.stamp(&TenantId::anonymous(), now_s);
        submission.increments.stamp = stamp;
        let mut memory = Account::new("test", 1 << 30).reserve(0).unwrap();
        let mut reservation = IncrementalReservation::new(&mut memory);
        for (i, start_ms, end_ms, value) in increments {
            let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
            let key = SeriesKey::of(labels.as_bytes(), self.owner.context.seed);
            let increment = Increment {
                start_ns: start_ms * MS,
                end_ns: end_ms * MS,
                value: *value,
                ..Increment::default()
            };
            let head = self.owner.partition.head.read();
            let known = head.tenant(&TenantId::anonymous()).and_then(|head| head.resolve(key));
            if let Some(series) = known {
                submission.increments.push(submission.refs.len(), key, increment, &mut reservation).unwrap();
                submission.refs.push(series);
                submission.timestamps.push(*end_ms as i64);
                submission.values.extend(ValuesRef::Floats(&[*value]));
            } else {
                let at = submission.new_timestamps.len();
                submission.new_increments.push(at, key, increment, &mut reservation).unwrap();
                submission.new_timestamps.push(*end_ms as i64);
                submission.new_values.extend(ValuesRef::Floats(&[*value]));
                let samples = at as u32..at as u32 + 1;
                submission.new.push(NewSeries { key, labels, samples, exemplars: Vec::new() });
            }
        }
        self.send.send(Command::Write(Box::new(submission))).unwrap();
        answer
    }

    /// Submits increments of exponential histograms, each with the key of its histogram, and start and end in milliseconds.
    fn submit_histograms(&self, increments: &[(u128, u64, u64, Arc<Exponential>)]) -> Answer {
        let (reply, answer) = oneshot::channel();
        let state = TenantStates::for_test(1).of(&TenantId::anonymous(), || true, Instant::now());
        let mut submission = Submission::new(state, ValueKind::Float, reply);
        let now_s = self.owner.context.steady_s();
        submission.increments.stamp =
            self.owner.context.heads.shared_sums.stamp(&TenantId::anonymous(), now_s);
        let submitted =
            |(number, (key, start_ms, end_ms, counts)): (usize, &(u128, u64, u64, Arc<Exponential>))| {
                let increment = Increment {
                    start_ns: start_ms * MS,
                    end_ns: end_ms * MS,
                    value: counts.count as f64,
                    ..Increment::default()
                };
                let counts = Arc::clone(counts);
                let point =
                    BatchExponential { key: SeriesKey(*key), increment, counts, label_bytes: 100, offset: 0 };
                SubmittedExponential { number: number as u32, point }
            };
        submission.increments.exponentials = increments.iter().enumerate().map(submitted).collect();
        self.send.send(Command::Write(Box::new(submission))).unwrap();
        answer
    }

    fn turns(&mut self) {
        for _ in 0..20 {
            self.owner.turn(None);
            self.clock.advance(5);
        }
    }

    /// Returns how many samples are stored, and why others are refused.
    fn add(&mut self, increments: &[(usize, u64, u64, f64)]) -> (u64, Vec<SeriesRefusal>) {
        let mut answer = self.submit(increments);
        self.turns();
        let outcome = answer.try_recv().expect("an answer").unwrap();
        (outcome.samples, outcome.errors.into_iter().map(|(error, _)| error).collect())
    }

    fn samples(&self, i: usize) -> Vec<(i64, f64)> {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
        let key = SeriesKey::of(labels.as_bytes(), self.owner.context.seed);
        let partition = self.owner.partition.head.read();
        let Some(head) = partition.tenant(&TenantId::anonymous()) else { return Vec::new() };
        let Some(series) = head.find(key) else { return Vec::new() };
        let mut out = Samples::<f64>::default();
        head.read(series, TimeRange::ALL, &mut out);
        out.iter_from(0).collect()
    }

    /// Freezes and releases everything, as if it were in tables.
    fn seal(&mut self) -> Offset {
        let (reply, answer) = sync_channel(1);
        let except = BTreeSet::new();
        self.send.send(Command::Freeze(Freeze { all: true, except: except.clone(), reply })).unwrap();
        self.turns();
        let upto = answer.recv().unwrap().upto;
        self.owner.context.lake.change_marks(|(_, mark)| mark.upto = upto.0).unwrap();
        let (reply, answer) = sync_channel(1);
        self.send.send(Command::Sealed(Sealed { what: SealedSamples::All { upto, except }, reply })).unwrap();
        self.turns();
        answer.recv().unwrap();
        upto
    }

    fn stop(self) -> tempfile::TempDir {
        self.node.stop();
        self.dir
    }
}

/// Two scopes of a request may have one series, and deltas of the same size.
#[test]
fn equal_increments_of_one_request_are_not_taken_for_a_repetition() {
    let (_journal, mut fixture) = Fixture::new();
    let twice = [(0, 10, 20, 1.0), (0, 10, 20, 1.0)];
    assert_eq!(fixture.add(&twice), (1, vec![SeriesRefusal::IncrementOverlaps]));
    // a request that is repeated is a repetition
    assert_eq!(fixture.add(&[(0, 20, 30, 1.0), (0, 30, 40, 1.0)]), (2, vec![]));
    assert_eq!(fixture.add(&[(0, 20, 30, 1.0), (0, 30, 40, 1.0)]), (2, vec![]));
    assert_eq!(fixture.samples(0), [(20, 1.0), (30, 2.0), (40, 3.0)]);
    fixture.stop();
}

#[test]
fn submissions_of_one_group_see_each_other() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0)]);
    let answers = [
        fixture.submit(&[(0, 20, 30, 2.0), (1, 20, 30, 1.0)]),
        fixture.submit(&[(0, 20, 30, 2.0), (0, 30, 40, 4.0)]),
        fixture.submit(&[(0, 30, 40, 4.0)]),
    ];
    fixture.turns();
    for (mut answer, samples) in answers.into_iter().zip([2, 2, 1]) {
        let outcome = answer.try_recv().unwrap().unwrap();
        assert_eq!((outcome.samples, outcome.refused_samples), (samples, 0));
    }
    let expected = [(20, 1.0), (30, 3.0), (40, 7.0)];
    assert_eq!(fixture.samples(0), expected);
    let dir = fixture.stop();
    let mut restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.samples(0), expected);
    assert_eq!(restarted.add(&[(0, 30, 40, 4.0), (0, 40, 50, 8.0), (1, 20, 30, 1.0)]), (3, vec![]));
    assert_eq!(restarted.samples(0), [(20, 1.0), (30, 3.0), (40, 7.0), (50, 15.0)]);
    assert_eq!(restarted.samples(1), [(30, 1.0)]);
    restarted.stop();
}

#[test]
fn a_group_that_cannot_be_written_changes_nothing() {
    let journal = Memory::new(JournalId::default(), 1000);
    let mut rng = Rng::announced();
    let faults = Faults { append_error: 0.2, sync_error: 0.3, ..Faults::default() };
    let faulty = Faulty::new(Box::new(journal), faults, rng.next_u64());
    let mut fixture = Fixture::over(Box::new(faulty), tempfile::tempdir().unwrap());
    let (mut sums, mut failures) = ([0.0; 3], 0);
    for n in 1..=200 {
        let increments: Vec<_> = (0..3).map(|i| (i, n * 10, n * 10 + 10, (n + i as u64) as f64)).collect();
        loop {
            let mut answer = fixture.submit(&increments);
            fixture.turns();
            match answer.try_recv().expect("an answer") {
                Ok(outcome) => {
                    assert_eq!((outcome.samples, outcome.refused_samples), (3, 0));
                    break;
                }
                Err(_) => failures += 1,
            }
        }
        for (i, _, end_ms, value) in increments {
            sums[i] += value;
            assert_eq!(fixture.samples(i).last(), Some(&(end_ms as i64, sums[i])));
        }
    }
    assert!(failures > 20, "{failures} failures");
    fixture.stop();
}

#[test]
fn refused_increments_are_named_and_the_others_stored() {
    let (_, mut fixture) = Fixture::new();
    assert_eq!(fixture.add(&[(0, 10, 20, 1.0), (1, 10, 20, 1.0)]), (2, vec![]));
    let (samples, errors) = fixture.add(&[(0, 15, 30, 1.0), (1, 20, 30, 1.0), (0, 20, 30, f64::INFINITY)]);
    assert_eq!(samples, 1);
    assert_eq!(errors, [SeriesRefusal::IncrementOverlaps, SeriesRefusal::IncrementNotFinite]);
    assert_eq!((fixture.samples(0), fixture.samples(1)), (vec![(20, 1.0)], vec![(20, 1.0), (30, 2.0)]));
    fixture.stop();
}

/// Increments in slices, of which some are late and some are refused.
#[test]
fn large_submissions_are_added_in_slices() {
    let (_, mut fixture) = Fixture::new();
    fixture.add(&[(0, 1, 2, 1.0)]);
    let count = 100_000_u64;
    let increments: Vec<_> = (1..=count).map(|n| (0, n * 2, n * 2 + 2, 1.0)).collect();
    let mut answer = fixture.submit(&increments);
    let outcome = loop {
        fixture.turns();
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
    };
    assert_eq!((outcome.samples, outcome.refused_samples), (count, 0));
    let samples = fixture.samples(0);
    assert_eq!(samples.len() as u64, count + 1);
    assert_eq!(samples.last(), Some(&((count * 2 + 2) as i64, (count + 1) as f64)));
    fixture.stop();
}

#[test]
fn sums_are_carried_over_before_their_records_are_deleted() {
    let (journal, mut fixture) = Fixture::new();
    let count = 1200;
    let all = |n: u64| (0..count).map(|i| (i, n * 10, n * 10 + 10, i as f64)).collect::<Vec<_>>();
    fixture.add(&all(1));
    fixture.turns();
    for n in 2..5 {
        let upto = fixture.seal();
        // a change while the sums are written again
        fixture.owner.sums_turn();
        fixture.add(&all(n)[..100]);
        for _ in 0..50 {
            fixture.turns();
        }
        assert!(fixture.owner.sums.carrying.running.is_none());
        assert_eq!(fixture.owner.sums.carried(), upto);
        assert!(
            fixture.owner.journal.start() >= upto,
            "{:?} is before {upto:?}",
            fixture.owner.journal.start()
        );
    }
    let expected = sums_of(&fixture);
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(sums_of(&restarted), expected);
    assert_eq!(expected.len(), count);
    restarted.stop();
}

/// Of most tenants, it is only known what was forgotten of all of them. This must not get lost with the records that have it.
#[test]
fn what_was_forgotten_of_tenants_that_are_not_listed_is_carried_over() {
    let (journal, mut fixture) = Fixture::new();
    let tenant = |n: usize| TenantId::parse(&format!("t{n}")).unwrap();
    let other = TenantId::parse("other").unwrap();
    for n in 0..shared::TENANTS_MAX + 10 {
        fixture.owner.sums.note_forgotten(&tenant(n), 1000 + n as u64);
    }
    for round in 0..2 {
        fixture.add(&[(0, 10 * round, 10 * round + 10, 1.0)]);
        let upto = fixture.seal();
        for _ in 0..50 {
            fixture.turns();
        }
        assert!(fixture.owner.sums.carrying.running.is_none());
        assert_eq!(fixture.owner.sums.carried(), upto);
        assert!(fixture.owner.journal.start() >= upto, "{round}");
        let dir = fixture.stop();
        fixture = Fixture::over(Box::new(journal.reopen()), dir);
        assert_eq!(fixture.owner.sums.forgotten_ns(&other), 1009, "{round}");
        let shared = &fixture.owner.context.heads.shared_sums;
        assert_eq!(shared.stamp(&other, 0).forgotten_ns, 1009, "{round}");
        assert_eq!(fixture.owner.sums.count(), 1);
        // then without the tenants that are listed
        (0..shared::TENANTS_MAX + 10).for_each(|n| fixture.owner.sums.remove_tenant(&tenant(n)));
    }
    fixture.owner.sums.remove_tenant(&TenantId::anonymous());
    assert!(fixture.owner.sums.forgotten.after(None).next().is_none());
    assert!(!fixture.owner.sums.is_empty(), "the journal is truncated without the rest");
    fixture.stop();
}

fn sums_of(fixture: &Fixture) -> BTreeMap<SeriesKey, (u64, f64)> {
    let own = &fixture.owner.sums.tenants[&TenantId::anonymous()];
    let sum = |accumulator: &Accumulator| (accumulator.newest_ns(), accumulator.total());
    own.of.iter().map(|(key, entry)| (*key, sum(&entry.accumulator))).collect()
}

#[test]
fn a_sum_outlives_its_series() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0), (1, 10, 20, 1.0)]);
    fixture.seal();
    let series_count = |fixture: &Fixture| {
        let partition = fixture.owner.partition.head.read();
        partition.tenant(&TenantId::anonymous()).map_or(0, TenantHead::series_count)
    };
    for _ in 0..10 {
        fixture.clock.advance(3_600_000);
        fixture.turns();
    }
    assert_eq!((series_count(&fixture), fixture.owner.sums.count()), (0, 2));
    assert_eq!(fixture.add(&[(0, 10, 20, 1.0), (0, 20, 30, 2.0)]), (2, vec![]));
    assert_eq!(fixture.samples(0), [(30, 3.0)]);
    fixture.seal();
    let dir = fixture.stop();
    let mut restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!((series_count(&restarted), restarted.owner.sums.count()), (0, 2));
    assert_eq!(restarted.add(&[(0, 20, 30, 2.0), (0, 30, 40, 4.0), (1, 20, 40, 4.0)]), (3, vec![]));
    assert_eq!((restarted.samples(0), restarted.samples(1)), (vec![(40, 7.0)], vec![(40, 5.0)]));
    restarted.stop();
}

#[test]
fn a_deleted_tenant_has_no_sums() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0)]);
    let (reply, _answer) = oneshot::channel();
    let tenant = TenantId::anonymous();
    let heads = Arc::clone(&fixture.owner.context.heads);
    let now_s = fixture.owner.context.steady_s();
    let before = heads.shared_sums.stamp(&tenant, now_s);
    let deletion = shared::Deletion::begin(&heads, &tenant, 2);
    let request = |deletion: &Arc<_>, reply| {
        let (deletion, tenant) = (Arc::clone(deletion), tenant.clone());
        Command::DeleteTenant(super::super::DeleteTenant { tenant, deletion, reply })
    };
    fixture.send.send(request(&deletion, reply)).unwrap();
    fixture.turns();
    assert_eq!(fixture.owner.sums.count(), 0);
    // another partition has not recorded it yet
    let mut refused = fixture.submit(&[(0, 20, 30, 1.0)]);
    fixture.turns();
    assert_eq!(refused.try_recv().unwrap().unwrap_err().reason, "deletes");
    deletion.recorded();
    assert_eq!(fixture.add(&[(0, 20, 30, 2.0)]), (1, vec![]));
    assert_eq!(fixture.samples(0).last(), Some(&(30, 2.0)));
    // samples that were made of a sum from before
    for (stamp, is_refused) in [(before, true), (heads.shared_sums.stamp(&tenant, now_s), false)] {
        let (reply, mut answer) = oneshot::channel();
        let state = TenantStates::for_test(1).of(&tenant, || true, Instant::now());
        let mut submission = Submission::new(state, ValueKind::Float, reply);
        submission.in_use = Some(Arc::new(InUse::for_test(stamp)));
        let labels = Labels::from_pairs(&[("__name__", "m"), ("i", "0")]);
        let key = SeriesKey::of(labels.as_bytes(), fixture.owner.context.seed);
        let series = fixture.owner.partition.head.read().tenant(&tenant).and_then(|head| head.resolve(key));
        submission.refs.push(series.unwrap());
        submission.timestamps.push(35);
        submission.values.extend(ValuesRef::Floats(&[7.0]));
        fixture.send.send(Command::Write(Box::new(submission))).unwrap();
        fixture.turns();
        let refused = answer.try_recv().unwrap().err().map(|refusal| refusal.reason);
        assert_eq!(refused, is_refused.then_some("deletes"));
    }
    assert_eq!(fixture.samples(0).last(), Some(&(35, 7.0)));
    let (reply, _answer) = oneshot::channel();
    let failed = shared::Deletion::begin(&fixture.owner.context.heads, &tenant, 2);
    fixture.send.send(request(&failed, reply)).unwrap();
    fixture.turns();
    drop(failed);
    // the second partition never answers
    fixture.turns();
    assert_eq!(fixture.owner.sums.count(), 0);
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.owner.sums.count(), 0);
    restarted.stop();
}

/// One partition has removed the sums of a histogram and deleted their records, another one has not.
#[test]
fn sums_of_histograms_that_one_partition_has_forgotten_are_void_after_a_restart() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    let mut partitions = [0, 1].map(|_| Sums::new(Arc::clone(heads), Instant::now()));
    let known = |layout, end| Accumulator { sum: 1000.0, newest: 1.0, ..Accumulator::new(end, layout) };
    partitions[0].restore_forgotten(&tenant, 20);
    partitions[1].restore(&tenant, SeriesKey(1), &known(3, 20));
    partitions[1].restore(&tenant, SeriesKey(2), &known(3, 21));
    partitions[1].restore(&tenant, SeriesKey(3), &known(0, 20));
    partitions.iter().for_each(Sums::publish);
    let increment = |start_ns, layout| Increment {
        start_ns,
        end_ns: start_ns + 10,
        layout,
        value: 1.0,
        ..Increment::default()
    };
    let mut add = |partition: usize, key, submission, increment: &Increment| {
        let stamp = heads.shared_sums.stamp(&tenant, STARTED_S);
        let origin = Origin { submission, weight: 1, stamp };
        let added = partitions[partition].add(&tenant, SeriesKey(key), (increment, None), origin);
        added.map(|_| partitions[partition].get(&tenant, SeriesKey(key)).unwrap().total())
    };
    // refused increments change nothing
    for partition in [0, 1] {
        assert_eq!(add(partition, 1, 1, &increment(10, 3)), Err(SeriesRefusal::IncrementTooLate));
    }
    assert_eq!([0, 1].map(|partition| add(partition, 1, 2, &increment(20, 3))), [Ok(1.0), Ok(1.0)]);
    assert_eq!([0, 1].map(|partition| add(partition, 1, 3, &increment(30, 3))), [Ok(2.0), Ok(2.0)]);
    // newer ones cannot have been removed, and other series have no other buckets
    assert_eq!(add(1, 2, 4, &increment(21, 3)), Ok(1001.0));
    assert_eq!(add(1, 3, 5, &increment(20, 0)), Ok(1001.0));
    fixture.stop();
}

/// Sums that were removed are restored first, because their records come first.
#[test]
fn restored_sums_take_the_memory_of_those_that_were_removed() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    let free_bytes = heads.sums.limit_bytes() - heads.sums.used_bytes();
    let taken = heads.sums.reserve(free_bytes - (64 << 10)).unwrap();
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let sum = |key: u32, end_ns: u64| {
        let piece = Piece { start_ns: end_ns, end_ns: end_ns + 1, sum: 1.0 };
        (SeriesKey(key.into()), Accumulator { pieces: [piece].into(), ..Accumulator::new(end_ns, 0) })
    };
    for n in 0..300 {
        let (key, sum) = sum(n, 10);
        sums.restore(&tenant, key, &sum);
    }
    sums.restore_forgotten(&tenant, 11);
    for n in 1000..1300 {
        let (key, live) = sum(n, 20);
        sums.restore(&tenant, key, &live);
        let (key, removed) = sum(n + 1000, 10);
        sums.restore(&tenant, key, &removed);
    }
    assert!((1000..1300).all(|n| sums.get(&tenant, SeriesKey(n)).is_some()));
    assert_eq!(sums.forgotten_ns(&tenant), 11);
    assert_eq!(sums.count(), sums.tenants[&tenant].of.len());
    check_memory(&sums);
    drop((sums, taken));
    fixture.stop();
}

#[test]
fn a_replay_tells_others_nothing_of_what_was_deleted() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let [deleted, left] = ["deleted", "left"].map(|name| TenantId::parse(name).unwrap());
    for tenant in [&deleted, &left] {
        sums.restore_forgotten(tenant, 20);
        sums.restore(tenant, bounds_key(7), &Accumulator::new(10, 0));
    }
    sums.remove_tenant(&deleted);
    sums.publish();
    let found = |tenant| {
        let shared = &heads.shared_sums;
        (shared.stamp(tenant, 0).forgotten_ns, shared.ended_ns(tenant, 7))
    };
    assert_eq!((found(&deleted), found(&left)), ((0, 0), (20, 10)));
    fixture.stop();
}

#[test]
fn idle_sums_are_forgotten_and_what_may_have_been_added_is_refused() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0), (1, 10, 30, 1.0)]);
    for _ in 0..30 {
        fixture.clock.advance(3_600_000);
        assert_eq!(fixture.owner.sums.count(), 2);
        fixture.add(&[(1, 30, 30 + fixture.clock.passed_ms(), 0.0)]);
        fixture.turns();
        if fixture.owner.sums.count() == 1 {
            break;
        }
    }
    assert_eq!(fixture.owner.sums.count(), 1, "a series that gets increments is not forgotten");
    assert_eq!(fixture.owner.sums.forgotten_ns(&TenantId::anonymous()), 20 * MS);
    let check = |fixture: &mut Fixture| {
        assert_eq!(fixture.add(&[(0, 10, 20, 1.0)]), (0, vec![SeriesRefusal::IncrementTooLate]));
        assert_eq!(fixture.add(&[(2, 10, 15, 1.0)]), (0, vec![SeriesRefusal::IncrementTooLate]));
    };
    check(&mut fixture);
    fixture.seal();
    fixture.turns();
    let dir = fixture.stop();
    let mut restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.owner.sums.forgotten_ns(&TenantId::anonymous()), 20 * MS);
    check(&mut restarted);
    assert_eq!(restarted.add(&[(0, 15, 25, 5.0)]), (1, vec![]));
    assert_eq!(restarted.samples(0), [(25, 5.0)]);
    restarted.stop();
}

#[test]
fn the_memory_of_sums_is_limited() {
    let (_, mut fixture) = Fixture::new();
    let HeadMemory { sums, pieces, .. } = &*Arc::clone(&fixture.owner.context.heads);
    let free_bytes = sums.limit_bytes() - sums.used_bytes();
    let taken = sums.reserve(free_bytes - 100 * SUM_BYTES as u64).unwrap();
    let increments: Vec<_> = (0..200).map(|i| (i, 10, 20, 1.0)).collect();
    let mut answer = fixture.submit(&increments);
    fixture.turns();
    let outcome = answer.try_recv().unwrap().unwrap();
    assert!(outcome.samples > 20 && outcome.samples < 100, "{} stored", outcome.samples);
    assert_eq!(outcome.samples + outcome.refused_samples, 200);
    assert_eq!(outcome.postponed, [Postponed::SeriesState], "the sender repeats it");
    let gap =
        |n: u64| increments[..10].iter().map(|(i, ..)| (*i, n * 20, n * 20 + 10, 1.0)).collect::<Vec<_>>();
    assert_eq!(fixture.add(&gap(2)), (10, vec![]), "gaps have memory of their own");
    // a little is left for what a group needs to undo its changes
    let rest = pieces.reserve(pieces.limit_bytes() - pieces.used_bytes() - 2048).unwrap();
    // without memory, gaps are closed: before and after the first increment
    assert_eq!(fixture.add(&gap(3)), (10, vec![]));
    let late = [(0, 5, 10, 1.0)];
    assert_eq!(fixture.add(&late), (0, vec![SeriesRefusal::IncrementTooLate]));
    drop((rest, taken));
    assert_eq!(fixture.add(&gap(4)), (10, vec![]));
    assert_eq!(fixture.add(&[(0, 70, 80, 1.0)]), (1, vec![]));
    let (samples, errors) = fixture.add(&increments);
    assert!(samples >= 190, "{samples} stored, {errors:?}");
    let count = fixture.owner.sums.count();
    assert_eq!(count, 200);
    check_memory(&fixture.owner.sums);
    fixture.stop();
}

/// A histogram with `count` values in each of some buckets.
fn counted(scale: i64, first: i64, buckets: usize, count: u64) -> Arc<Exponential> {
    let (positive, count) = (Side::new(first, &vec![count; buckets]), count * buckets as u64);
    Arc::new(Exponential { scale, positive, count, sum: Some(count as f64), ..Exponential::default() })
}

/// The sums of histograms are as durable as others, and a group that fails does not change them.
#[test]
fn sums_of_histograms_are_durable() {
    let mut rng = Rng::announced();
    let journal = Memory::new(JournalId::default(), 1000);
    let mut faulty = {
        let (journal, mut seeds) = (journal.reopen(), Rng::new(rng.next_u64()));
        move || {
            let faults = Faults { append_error: 0.1, sync_error: 0.2, ..Faults::default() };
            Box::new(Faulty::new(Box::new(journal.reopen()), faults, seeds.next_u64()))
        }
    };
    let mut fixture = Fixture::over(faulty(), tempfile::tempdir().unwrap());
    let (mut sums, mut failures): (BTreeMap<u128, Exponential>, _) = (BTreeMap::new(), 0);
    for n in 1..=150 {
        // of two histograms, each with the point before the last one again
        let points: Vec<_> = [1, 2]
            .into_iter()
            .map(|key| {
                let (scale, first) = (rng.below(4) as i64 - 1, rng.below(30) as i64 - 15);
                (
                    key,
                    n * 10,
                    n * 10 + 10,
                    counted(scale, first, 1 + rng.below(40) as usize, 1 + rng.below(3)),
                )
            })
            .collect();
        for is_repeated in [false, true] {
            let outcome = loop {
                let mut answer = fixture.submit_histograms(&points);
                fixture.turns();
                match answer.try_recv().expect("an answer") {
                    Ok(outcome) => break outcome,
                    Err(_) => failures += 1,
                }
                check_memory(&fixture.owner.sums);
            };
            assert_eq!((outcome.samples, outcome.refused_samples), (0, 0));
            for ((key, _, end_ms, counts), (_, total)) in points.iter().zip(&outcome.totals) {
                let sum = sums.entry(*key).or_default();
                if !is_repeated {
                    *sum = sum.plus(counts);
                }
                let found = total.as_ref().unwrap().read_out(end_ms * MS);
                // if buckets are gone, there are others before it
                let expected = Some(&(end_ms * MS, sum.clone()));
                assert_eq!(found.sums.last(), expected, "{n}, repeated: {is_repeated}");
            }
        }
        if n % 20 == 0 {
            fixture.seal();
            (0..20).for_each(|_| fixture.turns());
        }
        if n % 30 == 0 {
            let dir = fixture.stop();
            fixture = Fixture::over(faulty(), dir);
            check_memory(&fixture.owner.sums);
        }
    }
    assert!(failures > 20 && fixture.owner.sums.count() == 2, "{failures} failures");
    fixture.stop();
}

/// Others must not wait for a request with many points of one histogram.
#[test]
fn many_increments_of_a_histogram_are_added_in_slices() {
    const COUNT: u64 = 1000;
    let (journal, mut fixture) = Fixture::new();
    let one = counted(0, 0, 1, 1);
    let all: Vec<_> = (1..=COUNT).map(|n| (7, n * 10, n * 10 + 10, Arc::clone(&one))).collect();
    let mut answer = fixture.submit_histograms(&all);
    let total = |fixture: &Fixture| {
        fixture.owner.sums.get(&TenantId::anonymous(), SeriesKey(7)).map_or(0.0, Accumulator::total)
    };
    let (mut before, mut most) = (0.0, 0.0_f64);
    let outcome = loop {
        fixture.owner.turn(None);
        fixture.clock.advance(5);
        most = most.max(total(&fixture) - before);
        before = total(&fixture);
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
    };
    assert!(most > 0.0 && most <= EXPONENTIALS_MAX as f64, "{most} in one group");
    assert_eq!((outcome.totals.len() as u64, before), (COUNT, COUNT as f64));
    for (number, total) in &outcome.totals {
        let sum = total.as_ref().unwrap();
        let end_ns = (u64::from(*number) + 2) * 10 * MS;
        assert_eq!(sum.read_out(end_ns).sums.last().unwrap().1.count, u64::from(*number) + 1);
    }
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(total(&restarted), COUNT as f64);
    restarted.stop();
}

#[test]
fn the_memory_of_histograms_is_limited() {
    let (journal, mut fixture) = Fixture::new();
    let heads = Arc::clone(&fixture.owner.context.heads);
    let free_bytes = heads.sums.limit_bytes() - heads.sums.used_bytes();
    let taken = heads.sums.reserve(free_bytes - (200 << 10)).unwrap();
    let all: Vec<_> = (0..400).map(|key| (key, 10, 20, counted(3, key as i64, BUCKETS_MAX, 1))).collect();
    let mut answer = fixture.submit_histograms(&all);
    fixture.turns();
    let outcome = answer.try_recv().unwrap().unwrap();
    let added = outcome.totals.iter().filter(|(_, total)| total.is_ok()).count();
    assert!((30..200).contains(&added), "{added} added");
    assert_eq!((outcome.totals.len(), outcome.postponed), (400, vec![Postponed::SeriesState]));
    check_memory(&fixture.owner.sums);
    drop(taken);
    let mut answer = fixture.submit_histograms(&all);
    fixture.turns();
    let outcome = answer.try_recv().unwrap().unwrap();
    assert!(outcome.totals.iter().all(|(_, total)| total.is_ok()) && outcome.postponed.is_empty());
    let used_bytes = heads.sums.used_bytes();
    // large sums are carried over in several records
    fixture.seal();
    (0..50).for_each(|_| fixture.turns());
    assert!(fixture.owner.sums.carrying.running.is_none());
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.owner.sums.count(), 400);
    assert_eq!(restarted.owner.context.heads.sums.used_bytes(), used_bytes);
    check_memory(&restarted.owner.sums);
    restarted.stop();
}

/// Must be called between two groups.
fn check_memory(sums: &Sums) {
    for own in sums.tenants.values() {
        own.checked_bytes();
    }
}

/// One tenant sends as many series as it can, with gaps. Others must be able to send, too.
#[test]
fn a_tenant_cannot_take_the_memory_of_others() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let left_bytes = |account: &Account, most_bytes: u64| {
        let free_bytes = account.limit_bytes() - account.used_bytes();
        account.reserve(free_bytes - most_bytes.min(free_bytes)).unwrap()
    };
    let mut rng = Rng::announced();
    // either account may be filled first, and the first tenant may be alone
    for (sums_bytes, pieces_bytes) in [(1 << 20, 1 << 20), (1 << 20, 64 << 10), (u64::MAX, u64::MAX)] {
        let taken = [left_bytes(&heads.sums, sums_bytes), left_bytes(&heads.pieces, pieces_bytes)];
        let mut send = |name: &str, count: u32| {
            let tenant = TenantId::parse(name).unwrap();
            let mut refused = 0;
            for n in 0..count {
                let origin = Origin { submission: n + 1, weight: 1, stamp: Stamp::default() };
                let key = SeriesKey(rng.next_u64().into());
                for start in (10..60).step_by(10) {
                    let (start_ns, end_ns) = (start, start + 1);
                    let increment = Increment { start_ns, end_ns, value: 1.0, ..Increment::default() };
                    refused += u32::from(sums.add(&tenant, key, (&increment, None), origin).is_err());
                }
                sums.keep_changes();
            }
            refused
        };
        assert!(send("greedy", 20_000) > 100, "it has all that it asks for");
        assert_eq!(send("modest", 30), 0);
        assert!(send("greedy", 8000) > 100);
        assert_eq!(send("another", 10), 0);
        sums.tenants.clear();
        drop(taken);
    }
    fixture.stop();
}

/// The buckets of histograms with two lists of bounds, in three partitions.
struct Buckets {
    tenant: TenantId,
    partitions: Vec<Sums>,
    submissions: u32,
}

/// A point that was divided, and has not arrived in these partitions yet.
#[derive(Debug, Clone)]
struct Point {
    layout: u32,
    start_ns: u64,
    end_ns: u64,
    value: f64,
    stamp: Stamp,
    missing: Vec<usize>,
    /// Whether some partitions had no room for it.
    is_again: bool,
    results: Vec<Result<Added, SeriesRefusal>>,
}

const BOUNDS: [(u32, &[u128]); 2] = [(3, &[0, 1, 2, 3, 4, 5]), (5, &[0, 2, 4, 6, 7, 8, 9])];

impl Buckets {
    fn of(layout: u32) -> &'static [u128] {
        BOUNDS.iter().find(|(of, _)| *of == layout).unwrap().1
    }

    fn arrive(&mut self, point: &mut Point, partition: usize) {
        point.missing.retain(|missing| *missing != partition);
        self.submissions += 1;
        let Point { layout, start_ns, end_ns, value, stamp, .. } = *point;
        let increment = Increment { start_ns, end_ns, layout, value, ..Increment::default() };
        let origin = Origin { submission: self.submissions, weight: 1, stamp };
        for bucket in Self::of(layout).iter().filter(|bucket| **bucket as usize % 3 == partition) {
            let sums = &mut self.partitions[partition];
            point.results.push(sums.add(&self.tenant, SeriesKey(*bucket), (&increment, None), origin));
            sums.keep_changes();
        }
    }

    fn total(&self, bucket: u128) -> Option<f64> {
        let sums = &self.partitions[bucket as usize % 3];
        sums.get(&self.tenant, SeriesKey(bucket)).map(Accumulator::total)
    }
}

fn is_added(result: &Result<Added, SeriesRefusal>) -> bool {
    matches!(result, Ok(Added::InOrder | Added::Late))
}

/// Points arrive in the partitions at different times and in different order, while sums are forgotten there at other times,
/// and while bounds change and change back. All buckets of a point must have the same increments.
#[test]
fn buckets_never_get_apart() {
    let (_, fixture) = Fixture::new();
    let mut rng = Rng::announced();
    let (mut forgotten, mut refused, mut late, mut changed, mut full) = (0, 0, 0, 0, 0);
    for round in 0..300 {
        let heads = &fixture.owner.context.heads;
        let tenant = TenantId::parse(&format!("t{round}")).unwrap();
        let new = |_| Sums::new(Arc::clone(heads), Instant::now());
        let partitions = (0..3).map(new).collect();
        let mut buckets = Buckets { tenant, partitions, submissions: 0 };
        // rounds share what was announced
        let mut now_s = STARTED_S + round * 10_000_000;
        let (mut at_ns, mut layout) = (1_000 * MS, BOUNDS[0].0);
        let (mut underway, mut last): (Vec<Point>, Option<Point>) = (Vec::new(), None);
        let (mut lost, mut is_late): (Option<Point>, _) = (None, false);
        let mut taken = Vec::new();
        for _ in 0..300 {
            now_s += if rng.chance(0.05) && underway.is_empty() {
                rng.below(100_000) as u32
            } else {
                rng.below(60) as u32
            };
            if underway.is_empty() && rng.chance(0.1) {
                layout = BOUNDS[rng.below(2) as usize].0;
                (changed, lost) = (changed + 1, None);
            }
            if underway.is_empty() && rng.chance(0.1) {
                taken.clear();
                let free_bytes = |account: &Account| account.limit_bytes() - account.used_bytes();
                let pieces_bytes = free_bytes(&heads.pieces) / 100 * rng.below(94);
                let sums_bytes = free_bytes(&heads.sums) - rng.below(8000);
                taken.extend(heads.pieces.reserve(pieces_bytes));
                taken.extend(rng.chance(0.6).then(|| heads.sums.reserve(sums_bytes).unwrap()));
            }
            let stamp = heads.shared_sums.stamp(&buckets.tenant, now_s);
            // of two requests that are under way together, both or none know of an announcement
            let is_same =
                |point: &Point| Stamp { arrived_s: 0, ..point.stamp } == Stamp { arrived_s: 0, ..stamp };
            if underway.is_empty()
                || !is_late && taken.is_empty() && underway.len() < 2 && underway.iter().all(is_same)
            {
                // one that is late must not be under way with the one that closes its gap
                let again = match rng.chance(0.5) {
                    true => last.take(),
                    false if underway.is_empty() => lost.take(),
                    false => None,
                };
                is_late = again.as_ref().is_some_and(|again| again.end_ns < at_ns);
                let next = again.unwrap_or_else(|| {
                    let start_ns = at_ns;
                    at_ns += 1 + rng.below(50) * MS;
                    let value = rng.below(100) as f64;
                    let (missing, results) = (Vec::new(), Vec::new());
                    Point { layout, start_ns, end_ns: at_ns, value, stamp, missing, is_again: false, results }
                });
                let next =
                    Point { stamp, missing: vec![0, 1, 2], is_again: false, results: Vec::new(), ..next };
                match rng.chance(0.1) {
                    true => lost = Some(next),
                    false => underway.push(next),
                }
            }
            // parts arrive before the grace period ends
            for mut point in std::mem::take(&mut underway) {
                while !point.missing.is_empty() {
                    let is_due = now_s - point.stamp.arrived_s >= GRACE_S - 60;
                    if !is_due && rng.chance(0.5) {
                        break;
                    }
                    let partition = point.missing[rng.below(point.missing.len() as u64) as usize];
                    buckets.arrive(&mut point, partition);
                }
                if !point.missing.is_empty() {
                    underway.push(point);
                    continue;
                }
                let is_full = |result: &_| matches!(result, Err(SeriesRefusal::NoRoomForSums { .. }));
                if point.results.iter().any(is_full) {
                    // the sender repeats it
                    taken.clear();
                    (lost, point.is_again) = (None, true);
                    (point.missing, point.results) = (vec![0, 1, 2], Vec::new());
                    point.stamp = heads.shared_sums.stamp(&buckets.tenant, now_s);
                    full += 1;
                    underway.push(point);
                    continue;
                }
                if point.is_again {
                    // those that have it may only know that it is old; the totals tell
                    point.results.fill(Ok(Added::InOrder));
                }
                // whether one that is not added is known, or only too late, depends on what arrived in between
                let same = point.results.iter().all(|result| is_added(result) == is_added(&point.results[0]));
                assert!(same, "round {round}: {point:?}");
                refused += u32::from(point.results[0].is_err());
                late += u32::from(point.results[0] == Ok(Added::Late));
                last = Some(point).filter(|_| rng.chance(0.3));
            }
            for sums in &mut buckets.partitions {
                if rng.chance(0.3) {
                    let before = sums.count();
                    sums.forget_some(now_s);
                    forgotten += before - sums.count().min(before);
                }
            }
            if underway.is_empty() {
                let totals: Vec<_> =
                    Buckets::of(layout).iter().map(|bucket| (bucket, buckets.total(*bucket))).collect();
                let mut known = totals.iter().filter_map(|(bucket, total)| Some((bucket, (*total)?)));
                // those that the last point had, which has this layout
                if let Some(point) = &last
                    && point.layout == layout
                    && let Some((_, first)) = known.next()
                {
                    let is_apart = known.any(|(_, total)| total != first);
                    assert!(!is_apart || !is_added(&point.results[0]), "round {round}: {totals:?} {point:?}");
                }
            }
        }
        for sums in &buckets.partitions {
            let keys = sums.tenants.get(&buckets.tenant).map(|own| own.of.keys());
            let notes = keys.into_iter().flatten().filter(|key| histogram_of(**key).is_some());
            assert!(notes.count() <= 1, "of one histogram");
        }
    }
    assert!(
        full > 20 && forgotten > 100 && refused > 100 && late > 100 && changed > 1000,
        "{full} {forgotten} {refused} {late} {changed}"
    );
    fixture.stop();
}

/// After a long break, a point from before the bounds changed is repeated. It is refused. If it kept the buckets alive that both
/// lists have, only the others would begin with 0.
#[test]
fn a_repeated_point_with_former_bounds_keeps_no_bucket_alive() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    let partitions = (0..3).map(|_| Sums::new(Arc::clone(heads), Instant::now())).collect();
    let mut buckets = Buckets { tenant: tenant.clone(), partitions, submissions: 0 };
    let send = |buckets: &mut Buckets, now_s, layout, (start_ns, end_ns)| {
        let (value, missing, results) = (1.0, Vec::new(), Vec::new());
        let stamp = heads.shared_sums.stamp(&tenant, now_s);
        let mut point = Point { layout, start_ns, end_ns, value, stamp, missing, is_again: false, results };
        (0..3).for_each(|partition| buckets.arrive(&mut point, partition));
        let totals: Vec<_> = Buckets::of(layout).iter().map(|bucket| buckets.total(*bucket)).collect();
        (point.results, totals)
    };
    send(&mut buckets, STARTED_S, 3, (10, 20));
    let (_, totals) = send(&mut buckets, STARTED_S + 1, 5, (20, 30));
    assert_eq!(totals, [Some(1.0); 7]);
    let later_s = STARTED_S + 200_000;
    let (results, _) = send(&mut buckets, later_s, 3, (10, 20));
    assert!(results.iter().all(|result| *result == Err(SeriesRefusal::IncrementTooLate)), "{results:?}");
    buckets.partitions.iter_mut().for_each(|sums| while !sums.forget_some(later_s + 1) {});
    buckets.partitions.iter_mut().for_each(|sums| while !sums.forget_some(later_s + 1 + GRACE_S) {});
    let (results, totals) = send(&mut buckets, later_s + 1 + GRACE_S, 5, (30, 40));
    assert_eq!((results, totals), (vec![Ok(Added::InOrder); 7], vec![Some(1.0); 7]));
    fixture.stop();
}

/// Bounds change and change back in one group, in which one bucket gets only the last point.
#[test]
fn bounds_that_change_back_within_a_group_have_changed() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    for is_known_by_group in [true, false] {
        let mut sums = Sums::new(Arc::clone(heads), Instant::now());
        let (always, once) = (SeriesKey(1), SeriesKey(2));
        let mut add = |key, submission, increment: &Increment| {
            let origin = Origin { submission, weight: 1, stamp: Stamp::default() };
            (
                sums.add(&tenant, key, (increment, None), origin),
                sums.get(&tenant, key).map(Accumulator::total),
            )
        };
        let point = |layout, start_ns, value| Increment {
            start_ns,
            end_ns: start_ns + 10,
            layout,
            histogram: 1 + u32::from(is_known_by_group),
            value,
            ..Increment::default()
        };
        let first = point(3, 10, 100.0);
        assert_eq!([always, once].map(|key| add(key, 1, &first).1), [Some(100.0); 2]);
        if is_known_by_group {
            assert_eq!(add(always, 2, &point(5, 20, 2.0)), (Ok(Added::InOrder), Some(2.0)));
            let back = point(3, 30, 1.0);
            assert_eq!([always, once].map(|key| add(key, 3, &back).1), [Some(1.0); 2]);
            continue;
        }
        // a partition that gets only the last point knows it from the request
        let back = Increment { other_start_ns: 20, other_end_ns: 30, ..point(3, 30, 1.0) };
        assert_eq!(add(once, 3, &back).1, Some(1.0));
        assert_eq!(add(once, 4, &back), (Ok(Added::Repeated), Some(1.0)));
        // the other point ends later, or is refused because it overlaps
        let early = Increment { other_start_ns: 40, other_end_ns: 60, ..point(3, 40, 1.0) };
        assert_eq!(add(once, 5, &early).0, Err(SeriesRefusal::IncrementTooLate));
        let overlapped = Increment { other_start_ns: 35, other_end_ns: 45, ..point(3, 40, 1.0) };
        assert_eq!(add(once, 6, &overlapped).1, Some(2.0));
    }
    fixture.stop();
}

/// A crash may keep only the first records of a group.
#[test]
fn each_record_has_the_sums_as_of_its_last_samples() {
    const COUNT: u64 = 25_000;
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 0, 1, 1.0), (1, 0, 1, 1.0)]);
    let from = journal.durable_end();
    // more increments of two series than a record has sums, some of them behind gaps
    let mut increments = Vec::new();
    for n in 1..=COUNT {
        let gap = u64::from(n % 5000 == 0);
        increments.push(((n % 2) as usize, n + gap, n + 1, if gap > 0 { 0.0 } else { 1.0 }));
    }
    let mut answer = fixture.submit(&increments);
    let outcome = loop {
        fixture.turns();
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
    };
    assert_eq!((outcome.samples, outcome.refused_samples), (COUNT, 0));
    let mut reader = journal.read(from).unwrap();
    let (mut record, mut records, mut newest) = (journal::Record::new(), 0, BTreeMap::new());
    while let Some(item) = reader.next().unwrap() {
        let journal::Item::Entry(entry) = item else { panic!("{item:?}") };
        record.decode(entry.payload).unwrap();
        let ValuesRef::Floats(values) = record.values.as_ref() else { panic!("histograms") };
        for ((series, time_ms), sum) in record.refs.iter().zip(&record.timestamps).zip(values) {
            newest.insert(*series, (*time_ms as u64 * MS, *sum));
        }
        let found: BTreeMap<_, _> = record.sums.iter().map(|(key, sum)| (*key, sum)).collect();
        let mut found: Vec<_> = found.values().map(|sum| (sum.newest_ns(), sum.total())).collect();
        let mut expected: Vec<_> = newest.values().copied().collect();
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(found, expected, "record {records}");
        records += 1;
    }
    assert!(records > 1, "all of it is in one record");
    fixture.stop();
}

/// Adds sums of two tenants of different weight until there is no memory for more, and restores them.
#[test]
fn restored_sums_take_as_much_memory_as_before() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let mut rng = Rng::announced();
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let tenants = [("light", 1), ("heavy", 8)].map(|(name, weight)| (TenantId::parse(name).unwrap(), weight));
    // only a little is left, or filling it would take long
    let free_bytes = heads.sums.limit_bytes() - heads.sums.used_bytes();
    let taken = heads.sums.reserve(free_bytes - (2 << 20)).unwrap();
    let mut refused = [0; 2];
    for n in 0..40_000_u32 {
        let number = rng.below(2) as usize;
        let (tenant, weight) = &tenants[number];
        let origin = Origin { submission: 2 * n + 1, weight: *weight, stamp: Stamp::default() };
        let key = SeriesKey(rng.next_u64().into());
        for (start, end) in [(10, 20), (if rng.chance(0.5) { 20 } else { 30 }, 40)] {
            let increment = Increment { start_ns: start, end_ns: end, value: 1.0, ..Increment::default() };
            let added = sums.add(tenant, key, (&increment, None), origin);
            refused[number] += u32::from(added.is_err());
            if added.is_err() {
                break;
            }
        }
    }
    sums.keep_changes();
    assert!(refused.iter().all(|count| *count > 1000), "{refused:?}");
    let used_bytes = heads.sums.used_bytes();
    let bytes = |sums: &Sums| sums.tenants.values().map(TenantSums::checked_bytes).collect::<Vec<_>>();
    let (expected, count) = (bytes(&sums), sums.count());
    let all: Vec<_> = tenants
        .iter()
        .flat_map(|(tenant, _)| {
            let of = sums.tenants[tenant].of.iter();
            of.map(|(key, entry)| (tenant.clone(), *key, entry.accumulator.clone()))
        })
        .collect();
    drop(sums);
    let mut restored = Sums::new(Arc::clone(heads), Instant::now());
    let mut order: Vec<_> = (0..all.len()).collect();
    (0..order.len()).for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
    for number in order {
        let (tenant, key, accumulator) = &all[number];
        restored.restore(tenant, *key, accumulator);
    }
    assert_eq!((bytes(&restored), restored.count()), (expected, count));
    check_memory(&restored);
    assert_eq!(heads.sums.used_bytes(), used_bytes);
    let pieces = |(tenant, key, sum): &(TenantId, SeriesKey, Accumulator)| {
        restored.get(tenant, *key).map(|found| found.pieces.len()) == Some(sum.pieces.len())
    };
    assert!(all.iter().all(pieces));
    drop((restored, taken));
    fixture.stop();
}

/// Late increments become up to nine samples each, and the sums before them are kept until the group is durable.
#[test]
fn the_work_of_late_increments_is_counted() {
    let (_, mut fixture) = Fixture::new();
    let account = fixture.owner.context.heads.pieces.clone();
    let mut next = Vec::new();
    // seven gaps in each series
    for n in 1..=8 {
        next = (0..1000).map(|i| (i, n * 20, n * 20 + 10, 1.0)).collect();
        assert_eq!(fixture.add(&next), (1000, vec![]));
    }
    let before_bytes = account.used_bytes();
    let late: Vec<_> = next.iter().map(|(i, ..)| (*i, 30, 31, 1.0)).collect();
    let mut answer = fixture.submit(&late);
    let mut most = 0;
    let outcome = loop {
        // a turn writes one slice
        fixture.owner.turn(None);
        fixture.clock.advance(5);
        let samples: usize = (0..1000).map(|i| fixture.samples(i).len()).sum();
        most = most.max(samples.saturating_sub(8000));
        if let Ok(answer) = answer.try_recv() {
            break answer.unwrap();
        }
        assert!(samples - 8000 < 1000, "all of them are in one group");
    };
    assert_eq!((outcome.samples, most), (1000, 1000));
    check_memory(&fixture.owner.sums);
    assert!(account.peak_bytes() > before_bytes + 300 * 7 * SAMPLE_BYTES as u64);
    fixture.stop();
}
