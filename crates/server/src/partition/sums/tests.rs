mod bounds;
mod exponential;
mod groups;
mod kept;
mod memory;
mod removed;

use super::super::{Command, Freeze, Sealed, SealedSamples};
use super::*;
use crate::limits::tenant_state::TenantStates;
use crate::node::Node;
use crate::partition::submission::NewSeries;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::world::World;
use crate::write_path::tests::small_settings;
use journal::{Journal, JournalId, Memory, Offset};
use model::{Labels, Samples, TimeRange, ValueKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use stdx::budget::{Account, IncrementalReservation};
use stdx::clock::ManualClock;
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

/// Must be called between two groups.
fn check_memory(sums: &Sums) {
    for own in sums.tenants.values() {
        own.checked_bytes();
    }
}
