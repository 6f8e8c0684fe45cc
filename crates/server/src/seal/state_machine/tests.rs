//! Feeds the state machine with events, and compares its commands with the expected ones. [`random`] does this in
//! random orders.

mod random;

use super::flushes::FlushId;
use super::io::{Block, Command, Event, Found, Moved, PerTenant, Report, View};
use super::marks::MarkUpdate;
use super::{BACKOFF_MAX, Sealing, Thresholds};
use crate::partition::{ClosedTurn, Frozen, SealedSamples};
use crate::seal::error::SealError;
use crate::seal::flushed::Flushed;
use crate::seal::manifest::{Mark, TenantMark};
use crate::seal::pins::{Ended, Pins};
use journal::Offset;
use model::{Labels, SeriesKey, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tables::delta::StagedFile;
use tables::stage::Staged;
use tables::{BlockStager, Date, FileStem, Location, METRICS, Stretch, Table, TableError, WriteLimits};

const SECOND: Duration = Duration::from_secs(1);

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn thresholds(partitions: usize) -> Thresholds {
    Thresholds {
        partitions,
        seal_after_ms: 60_000,
        seal_bytes: 1000,
        head_bytes: 1000,
        segment_bytes: 100,
        flush_interval: Duration::ZERO,
    }
}

fn view(partitions: usize) -> View {
    View {
        now: Instant::now(),
        now_ms: 1_777_000_000_000,
        is_ready: true,
        can_freeze: true,
        unsealed_since_ms: None,
        unsealed_bytes: 0,
        head_bytes: 0,
        is_filled: false,
        closed: BTreeSet::new(),
        journal_bytes: vec![0; partitions],
    }
}

fn staged_file() -> StagedFile {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let location = Location::open("memory:///t/", [], runtime.handle().clone()).unwrap();
    let table = Arc::new(Table::open_or_create(&METRICS, location).unwrap());
    let mut stager = BlockStager::new(&table, FileStem::sealed(1), WriteLimits::default(), None);
    let labels = Labels::from_pairs(&[("__name__", "m")]);
    let key = SeriesKey::of(labels.as_bytes(), 0);
    let stretch = Stretch { labels: labels.as_ref(), key, timestamps: &[0], values: &[1.0] };
    stager.push(&stretch).unwrap();
    stager.finish().unwrap().files.remove(0)
}

fn broken() -> SealError {
    SealError::Table(TableError::Missing { file: "f".into() })
}

fn show(command: &Command) -> String {
    let list = |tenants: Vec<&TenantId>| tenants.iter().map(|t| format!(" {t}")).collect::<String>();
    match command {
        Command::Freeze { partition, .. } => format!("freeze {partition}"),
        Command::Stage { partition, tenants } => {
            format!("stage {partition}:{}", list(tenants.keys().collect()))
        }
        Command::Check { tenants, .. } => format!("check{}", list(tenants.keys().collect())),
        Command::Rename(rename) => format!("rename {}", rename.partition),
        Command::WriteMarks(MarkUpdate::Attempt { pending, .. }) => {
            format!("note attempt{}", list(pending.iter().collect()))
        }
        Command::WriteMarks(MarkUpdate::OwnAttempt { tenant, .. }) => format!("note own attempt {tenant}"),
        Command::WriteMarks(MarkUpdate::Committed { newly_blocked, .. }) => {
            format!("note commit, blocked:{}", list(newly_blocked.keys().collect()))
        }
        Command::WriteMarks(MarkUpdate::OwnCommitted { tenant, .. }) => format!("note own commit {tenant}"),
        Command::WriteMarks(MarkUpdate::Relocated { partition, .. }) => {
            format!("note relocation {partition}")
        }
        Command::Commit { blocks, .. } => format!("commit{}", list(blocks.keys().collect())),
        Command::AwaitReaders { .. } => "await readers".into(),
        Command::ExpireReaders(_) => "expire readers".into(),
        Command::Release { partition, what: SealedSamples::All { except, .. } } => {
            format!("release {partition} except{}", list(except.iter().collect()))
        }
        Command::Release { partition, what: SealedSamples::Of(tenant) } => {
            format!("release {partition} of {tenant}")
        }
        Command::Relocate { partition, movable } => {
            format!("relocate {partition}:{}", list(movable.iter().collect()))
        }
        Command::Truncate { partition } => format!("truncate {partition}"),
        Command::AskClosed { first } => format!("ask closed from {first}"),
        Command::ReplayClosed => "replay closed".into(),
        Command::Answer { flush, flushed } => {
            format!("answer {}: {} samples, {} blocked", flush.0, flushed.samples, flushed.blocked)
        }
        Command::Report(Report::Blocked { tenant, .. }) => format!("blocked {tenant}"),
        Command::Report(Report::Unblocked { tenant, .. }) => format!("unblocked {tenant}"),
        Command::Report(Report::StillBlocked { tenant, .. }) => format!("still blocked {tenant}"),
        Command::Report(Report::Failed { .. }) => "failed".into(),
        Command::Report(Report::Ended { .. }) => "ended".into(),
        Command::Report(Report::Relocated { partition, .. }) => format!("shortened {partition}"),
        Command::Report(Report::RelocationFailed { partition, .. }) => format!("not shortened {partition}"),
        Command::Report(Report::Began { .. } | Report::Committed | Report::OthersAreSealed(_)) => {
            String::new()
        }
    }
}

struct Script {
    sealing: Sealing,
    view: View,
    file: StagedFile,
    readers: Ended,
}

impl Script {
    fn new() -> Self {
        Self::of(1)
    }

    fn of(partitions: usize) -> Self {
        let view = view(partitions);
        let sealing = Sealing::new(thresholds(partitions), view.now);
        Self { sealing, view, file: staged_file(), readers: Pins::default().end_generation() }
    }

    fn flush(&mut self, id: u64) {
        self.sealing.handle(&self.view, Event::Flush(FlushId(id)));
        assert!(self.sealing.poll().is_none());
    }

    fn advance(&mut self, time: Duration) {
        self.view.now += time;
        self.view.now_ms += time.as_millis() as i64;
    }

    #[track_caller]
    fn expect(&mut self, event: Event, commands: &[&str]) {
        let name = format!("{event:?}");
        self.sealing.handle(&self.view, event);
        let issued: Vec<_> = std::iter::from_fn(|| self.sealing.poll()).map(|c| show(&c)).collect();
        let issued: Vec<_> = issued.iter().map(|s| s.trim_end()).filter(|s| !s.is_empty()).collect();
        assert_eq!(issued, commands, "after {name}");
    }

    fn frozen(names: &[&str]) -> Event {
        let frozen = Frozen { upto: Offset(10), samples: 5 };
        Event::Frozen { frozen, tenants: names.iter().map(|name| tenant(name)).collect() }
    }

    fn files(&self, through: Option<Date>) -> Staged {
        Staged { files: vec![self.file.clone()], through }
    }

    fn staged(&self, names: &[&str]) -> Event {
        let result = |name: &&str| (tenant(name), Ok(self.files(None)));
        Event::Staged(PerTenant { results: names.iter().map(result).collect(), cut_short: None })
    }

    fn pass(&self, name: &str, through: i32) -> Event {
        let results = BTreeMap::from([(tenant(name), Ok(self.files(Some(Date(through)))))]);
        Event::Staged(PerTenant { results, cut_short: None })
    }

    /// The answer to a check, with floodmarks that agree with the marks.
    fn checked(names: &[&str]) -> Event {
        Self::found(names, Some(3), None, true)
    }

    fn found(names: &[&str], upto: Option<u64>, attempt: Option<u64>, is_known: bool) -> Event {
        let found = || Found { partition: 0, source: "j".into(), upto, attempt, is_known };
        let results = names.iter().map(|name| (tenant(name), Ok(vec![found()]))).collect();
        Event::Checked(PerTenant { results, cut_short: None })
    }

    /// The answer to a commit that succeeded for the tenants in `done` and failed for those in `failed`.
    fn committed(done: &[&str], failed: &[&str]) -> Event {
        let flushed = Flushed { tables: 1, commits: 1, samples: 5, ..Flushed::default() };
        let done = done.iter().map(|name| (tenant(name), Ok(flushed)));
        let failed = failed.iter().map(|name| (tenant(name), Err(broken())));
        Event::Committed(PerTenant { results: done.chain(failed).collect(), cut_short: None })
    }

    fn readers(&self, are_gone: bool) -> Event {
        Event::Readers { since: self.readers, are_gone }
    }

    /// Begins a round of the tenants `a` and `b`, and stops when their commits are about to begin.
    fn begin_round(&mut self) {
        self.expect(Event::Tick, &["freeze 0"]);
        self.expect(Self::frozen(&["a", "b"]), &["stage 0: a b"]);
        self.expect(self.staged(&["a", "b"]), &["check a b"]);
        self.expect(Self::checked(&["a", "b"]), &["note attempt a b"]);
        self.expect(Event::Done, &["commit a b"]);
    }

    fn block_a(&mut self) {
        self.view.unsealed_bytes = 1000;
        self.view.unsealed_since_ms = Some(self.view.now_ms);
        self.begin_round();
        self.view.unsealed_since_ms = None;
        self.expect(Self::committed(&["b"], &["a"]), &["note commit, blocked: a"]);
        self.expect(Event::Done, &["blocked a", "await readers"]);
        self.expect(self.readers(true), &["release 0 except a"]);
    }

    /// Begins the blocked tenant `a`'s own round, and stops when its commit is about to begin.
    fn retry_a(&mut self) {
        self.expect(Event::Tick, &["check a"]);
        self.expect(Self::checked(&["a"]), &["note own attempt a"]);
        self.expect(Event::Done, &["commit a"]);
    }
}

#[test]
fn flush_is_answered_after_its_round_is_recorded() {
    let mut script = Script::new();
    script.expect(Event::Tick, &[]);
    script.flush(1);
    assert_eq!(script.sealing.wake_in(script.view.now), Duration::ZERO);
    script.begin_round();
    script.flush(2);
    script.expect(Script::committed(&["a", "b"], &[]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except"]);
    script.expect(Event::Done, &["answer 1: 10 samples, 0 blocked", "ended"]);
    // a flush that was requested during the round needs another round
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&[]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except"]);
    script.expect(Event::Done, &["answer 2: 0 samples, 0 blocked", "ended"]);
    script.expect(Event::Tick, &[]);
}

#[test]
fn rounds_begin_when_due() {
    type Change = fn(&mut View);
    let old: Change = |view| view.unsealed_since_ms = Some(view.now_ms - 60_000);
    let ahead: Change = |view| view.unsealed_since_ms = Some(view.now_ms + 60_000);
    let cases: [(&str, &[Change], bool); 9] = [
        ("nothing", &[], false),
        ("old", &[old], true),
        ("young", &[|view| view.unsealed_since_ms = Some(view.now_ms - 59_999)], false),
        ("clock set back", &[ahead], true),
        ("old, replaying", &[old, |view| view.is_ready = false], false),
        ("old, cannot freeze", &[old, |view| view.can_freeze = false], false),
        ("long", &[|v| (v.unsealed_since_ms, v.unsealed_bytes) = (Some(v.now_ms), 1000)], true),
        (
            "full, replaying",
            &[|v| {
                (v.unsealed_since_ms, v.is_ready, v.is_filled, v.head_bytes) =
                    (Some(v.now_ms), false, true, 101)
            }],
            true,
        ),
        (
            "full, not grown",
            &[|v| (v.unsealed_since_ms, v.is_filled, v.head_bytes) = (Some(v.now_ms), true, 100)],
            false,
        ),
    ];
    for (name, changes, begins) in cases {
        let mut script = Script::new();
        changes.iter().for_each(|change| change(&mut script.view));
        script.sealing.handle(&script.view, Event::Tick);
        assert_eq!(script.sealing.poll().is_some(), begins, "{name}");
    }
}

/// If rounds free memory while tenants are refused, the next one soon follows; otherwise it does not help.
#[test]
fn full_heads_are_sealed_again_soon_if_that_helps() {
    // the heads' limit is 1000 bytes
    let cases = [
        ("short", 0, 800, 700, 800, 3),
        ("longer", 2, 800, 700, 800, 8),
        ("long", 60, 800, 700, 800, 30),
        ("has freed nothing", 0, 800, 790, 800, 30),
        ("nobody is refused", 0, 800, 700, 740, 30),
    ];
    for (name, lasted_s, begun_with, least, now_has, pause_s) in cases {
        let mut script = Script::new();
        script.flush(1);
        script.view.head_bytes = begun_with;
        script.begin_round();
        script.view.now += lasted_s * SECOND;
        script.expect(Script::committed(&["a", "b"], &[]), &["note commit, blocked:"]);
        script.expect(Event::Done, &["await readers"]);
        script.expect(script.readers(true), &["release 0 except"]);
        script.expect(Event::Done, &["answer 1: 10 samples, 0 blocked", "ended"]);
        script.view.head_bytes = least;
        script.expect(Event::Tick, &[]);
        script.view.unsealed_since_ms = Some(script.view.now_ms);
        (script.view.is_filled, script.view.head_bytes) = (true, now_has);
        script.view.now += pause_s * SECOND;
        script.expect(Event::Tick, &[]);
        script.view.now += SECOND / 1000;
        script.sealing.handle(&script.view, Event::Tick);
        assert!(script.sealing.poll().is_some(), "{name}");
    }
}

#[test]
fn failed_steps_are_retried_with_backoff() {
    let mut script = Script::new();
    script.flush(1);
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Event::Failed(SealError::Closed(0)), &["failed"]);
    assert_eq!(script.sealing.wake_in(script.view.now), Duration::from_millis(200));
    script.begin_round();
    let thread = SealError::Thread(std::io::Error::other("none"));
    let mut committed = Script::committed(&["a"], &[]);
    if let Event::Committed(PerTenant { cut_short, .. }) = &mut committed {
        *cut_short = Some(thread);
    }
    script.expect(committed, &["failed"]);
    assert_eq!(script.sealing.wake_in(script.view.now), Duration::from_millis(400));
    // a committed tenant is not committed again
    script.expect(Event::Tick, &["check b"]);
    script.expect(Script::checked(&["b"]), &["note attempt b"]);
    let disk_full = || Event::Failed(SealError::Manifest(std::io::Error::other("full")));
    script.expect(disk_full(), &["failed"]);
    for _ in 0..20 {
        script.expect(Event::Tick, &["check b"]);
        script.expect(disk_full(), &["failed"]);
    }
    assert_eq!(script.sealing.wake_in(script.view.now), BACKOFF_MAX);
    script.expect(Event::Tick, &["check b"]);
    script.expect(Script::checked(&["b"]), &["note attempt b"]);
    script.expect(Event::Done, &["commit b"]);
    script.expect(Script::committed(&["b"], &[]), &["note commit, blocked:"]);
    // nothing is released before the marks are written
    script.expect(disk_full(), &["failed"]);
    script.expect(Event::Tick, &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except"]);
    // a failed release is repeated; the flush does not wait for it
    script.expect(Event::Failed(SealError::Closed(0)), &["failed", "answer 1: 10 samples, 0 blocked"]);
    script.expect(Event::Tick, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except"]);
    script.expect(Event::Done, &["ended"]);
}

#[test]
fn files_that_may_be_swept_are_staged_again() {
    let mut script = Script::new();
    script.flush(1);
    script.begin_round();
    let lapsed = SealError::Table(TableError::Lapsed { file: "f".into(), version: 1 });
    let mut committed = Script::committed(&["b"], &[]);
    if let Event::Committed(PerTenant { results, .. }) = &mut committed {
        results.insert(tenant("a"), Err(lapsed));
    }
    script.expect(committed, &["failed"]);
    script.expect(Event::Tick, &["stage 0: a"]);
}

#[test]
fn commit_whose_answer_was_lost_is_not_repeated() {
    let mut script = Script::new();
    script.flush(1);
    script.begin_round();
    script.expect(Event::Failed(SealError::Lapsed), &["failed"]);
    script.expect(Event::Tick, &["check a b"]);
    script.expect(Script::found(&["a", "b"], Some(10), Some(10), true), &["note commit, blocked:"]);
}

#[test]
fn journal_that_tables_know_as_another_is_renamed_before_the_attempt() {
    let mut script = Script::new();
    script.flush(1);
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&["a"]), &["stage 0: a"]);
    script.expect(script.staged(&["a"]), &["check a"]);
    script.expect(Script::found(&["a"], Some(1000), None, false), &["rename 0"]);
    script.expect(Event::Done, &["note attempt a"]);
}

#[test]
fn blocked_tenant_delays_nobody_and_is_retried_alone() {
    let mut script = Script::new();
    script.flush(1);
    script.block_a();
    script.expect(Event::Done, &["ended"]);
    assert!(script.sealing.is_unfinished() && script.sealing.samples_frozen() == 0);
    // rounds of the others leave `a` out
    script.flush(2);
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&["a"]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except a"]);
    script.expect(Event::Done, &["ended"]);
    script.advance(SECOND);
    script.retry_a();
    script.expect(Script::committed(&[], &["a"]), &["still blocked a"]);
    script.expect(Event::Tick, &[]);
    script.advance(SECOND);
    script.retry_a();
    script.expect(Script::committed(&["a"], &[]), &["note own commit a"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 of a"]);
    script.expect(Event::Done, &["unblocked a"]);
    // the flushes are answered after one more round of all tenants
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&[]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except"]);
    let answers = ["answer 1: 10 samples, 0 blocked", "answer 2: 5 samples, 0 blocked", "ended"];
    script.expect(Event::Done, &answers);
}

#[test]
fn flush_does_not_wait_for_a_blocked_tenant_longer_than_a_minute() {
    let mut script = Script::new();
    script.flush(1);
    script.block_a();
    script.expect(Event::Done, &["ended"]);
    script.advance(59 * SECOND);
    script.retry_a();
    script.expect(Script::committed(&[], &["a"]), &["still blocked a"]);
    script.advance(SECOND);
    script.retry_a();
    script.expect(Script::committed(&[], &["a"]), &["still blocked a", "answer 1: 5 samples, 1 blocked"]);
}

#[test]
fn flush_of_a_tenant_is_answered_once_its_samples_have_left_the_heads_or_if_it_is_left_out() {
    let mut script = Script::new();
    script.flush(1);
    for (id, name) in [(2, "a"), (3, "b"), (4, "absent")] {
        script.sealing.handle(&script.view, Event::FlushTenant(FlushId(id), tenant(name)));
    }
    script.begin_round();
    script.expect(Script::committed(&["b"], &["a"]), &["note commit, blocked: a"]);
    script.expect(Event::Done, &["blocked a", "await readers"]);
    // A query still reads the samples, so they are not released. Only the flush of the tenant that the round left out
    // is answered.
    script.expect(script.readers(false), &["answer 2: 5 samples, 1 blocked"]);
    script.expect(Event::Tick, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except a"]);
    let answers = ["answer 3: 5 samples, 0 blocked", "answer 4: 5 samples, 0 blocked", "ended"];
    script.expect(Event::Done, &answers);
}

/// The tenant's newer samples are neither in the round of the other tenants nor in its own round.
#[test]
fn flush_waits_for_a_tenant_that_comes_back_during_its_round() {
    let mut script = Script::new();
    script.block_a();
    script.expect(Event::Done, &["ended"]);
    script.flush(1);
    script.expect(Event::Tick, &["freeze 0"]);
    script.advance(SECOND);
    let closed = || Event::Failed(SealError::Closed(0));
    script.expect(closed(), &["failed", "check a"]);
    script.expect(Script::checked(&["a"]), &["note own attempt a"]);
    script.expect(Event::Done, &["commit a"]);
    script.expect(Script::committed(&["a"], &[]), &["note own commit a"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 of a"]);
    script.expect(Event::Done, &["unblocked a"]);
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&["a"]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except a"]);
    script.expect(Event::Done, &["ended"]);
    script.begin_round();
    script.expect(Script::committed(&["a", "b"], &[]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except"]);
    script.expect(Event::Done, &["answer 1: 10 samples, 0 blocked", "ended"]);
}

#[test]
fn abandoned_flush_is_not_answered() {
    let mut script = Script::new();
    script.flush(1);
    script.sealing.handle(&script.view, Event::Abandoned(FlushId(1)));
    script.expect(Event::Tick, &[]);
}

#[test]
fn samples_of_many_days_are_committed_in_passes() {
    let mut script = Script::new();
    script.flush(1);
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&["a"]), &["stage 0: a"]);
    script.expect(script.pass("a", 7), &["check a"]);
    script.expect(Script::checked(&["a"]), &["note attempt a"]);
    script.expect(Event::Done, &["commit a"]);
    script.expect(Script::committed(&["a"], &[]), &["note commit, blocked: a"]);
    script.expect(Event::Done, &["blocked a", "await readers"]);
    script.expect(script.readers(true), &["release 0 except a"]);
    // the next pass follows at once, and the commit between passes is not recorded in the marks
    script.expect(Event::Done, &["ended", "stage 0: a"]);
    script.expect(script.pass("a", 9), &["check a"]);
    script.expect(Script::checked(&["a"]), &["note own attempt a"]);
    script.expect(Event::Done, &["commit a"]);
    script.expect(Script::committed(&["a"], &[]), &[]);
    script.expect(Event::Tick, &["stage 0: a"]);
    script.expect(script.staged(&["a"]), &["check a"]);
    script.expect(Script::checked(&["a"]), &["note own attempt a"]);
    script.expect(Event::Done, &["commit a"]);
    script.expect(Script::committed(&["a"], &[]), &["note own commit a"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 of a"]);
    script.expect(Event::Done, &["unblocked a"]);
}

#[test]
fn release_waits_for_queries_but_not_for_ever() {
    let mut script = Script::new();
    script.flush(1);
    script.begin_round();
    script.expect(Script::committed(&["a", "b"], &[]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(false), &["answer 1: 10 samples, 0 blocked"]);
    script.expect(Event::Tick, &["await readers"]);
    script.advance(9 * SECOND);
    script.expect(script.readers(false), &[]);
    script.expect(Event::Tick, &["await readers"]);
    script.advance(SECOND);
    script.expect(script.readers(false), &["expire readers"]);
    script.expect(Event::Done, &["release 0 except"]);
    script.expect(Event::Done, &["ended"]);
}

#[test]
fn long_journal_of_a_blocked_tenant_is_relocated_and_truncated() {
    let mut script = Script::new();
    script.block_a();
    script.view.journal_bytes[0] = 199;
    script.expect(Event::Done, &["ended"]);
    script.view.journal_bytes[0] = 200;
    script.expect(Event::Tick, &["relocate 0: a"]);
    let moved =
        || Moved { upto: Offset(30), from: Some(Offset(20)), tenants: BTreeMap::from([(tenant("a"), true)]) };
    script.expect(Event::Relocated(Some(moved())), &["note relocation 0"]);
    script.expect(Event::Done, &["truncate 0"]);
    script.view.journal_bytes[0] = 60;
    script.expect(Event::Done, &["shortened 0"]);
    // the journal counts as long again when it has grown to four times the length that it had after it was shortened
    script.view.journal_bytes[0] = 239;
    script.advance(SECOND);
    script.expect(Event::Tick, &["stage 0: a"]);
    script.expect(script.staged(&["a"]), &["check a"]);
    script.expect(Script::checked(&["a"]), &["note own attempt a"]);
    script.expect(Event::Done, &["commit a"]);
    script.expect(Script::committed(&[], &["a"]), &["still blocked a"]);
    script.view.journal_bytes[0] = 240;
    script.expect(Event::Tick, &["relocate 0: a"]);
    script.expect(Event::Relocated(Some(moved())), &["note relocation 0"]);
    let disk_full = Event::Failed(SealError::Manifest(std::io::Error::other("full")));
    script.expect(disk_full, &["not shortened 0"]);
    script.expect(Event::Tick, &[]);
}

#[test]
fn tenant_with_a_committed_pass_is_not_relocated() {
    let mut script = Script::new();
    script.flush(1);
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&["a"]), &["stage 0: a"]);
    script.expect(script.pass("a", 7), &["check a"]);
    script.expect(Script::checked(&["a"]), &["note attempt a"]);
    script.expect(Event::Done, &["commit a"]);
    script.expect(Script::committed(&["a"], &[]), &["note commit, blocked: a"]);
    script.expect(Event::Done, &["blocked a", "await readers"]);
    script.expect(script.readers(true), &["release 0 except a"]);
    script.view.journal_bytes[0] = 1000;
    script.expect(Event::Done, &["ended", "relocate 0:"]);
}

#[test]
fn closed_tenants_are_asked_for_with_backoff_and_replayed_in_turns() {
    let mut script = Script::new();
    script.view.closed.insert(tenant("a"));
    script.expect(Event::Tick, &["ask closed from 0"]);
    script.expect(Event::Asked { replaying: None }, &[]);
    assert_eq!(script.sealing.wake_in(script.view.now), Duration::from_millis(200));
    script.expect(Event::Tick, &[]);
    script.advance(SECOND);
    script.expect(Event::Tick, &["ask closed from 0"]);
    script.expect(Event::Asked { replaying: Some(0) }, &["replay closed"]);
    script.expect(Event::Replayed(ClosedTurn::More), &[]);
    assert_eq!(script.sealing.wake_in(script.view.now), Duration::ZERO);
    script.expect(Event::Tick, &["replay closed"]);
    script.expect(Event::Replayed(ClosedTurn::NoRoom), &[]);
    // flushes are answered, and the answer says that a tenant is missing
    script.flush(1);
    script.expect(Event::Tick, &["freeze 0"]);
    script.expect(Script::frozen(&[]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(script.readers(true), &["release 0 except a"]);
    script.expect(Event::Done, &["answer 1: 0 samples, 1 blocked", "ended"]);
    script.advance(SECOND);
    script.expect(Event::Tick, &["ask closed from 0"]);
    script.expect(Event::Asked { replaying: Some(0) }, &["replay closed"]);
    script.view.closed.clear();
    script.expect(Event::Replayed(ClosedTurn::Done), &[]);
    // replayed samples are sealed soon
    script.expect(Event::Tick, &["freeze 0"]);
}

#[test]
fn partition_after_a_failed_replay_is_asked_first() {
    let mut script = Script::of(2);
    script.view.closed.insert(tenant("a"));
    script.expect(Event::Tick, &["ask closed from 0"]);
    script.expect(Event::Asked { replaying: Some(0) }, &["replay closed"]);
    script.expect(Event::Asked { replaying: None }, &[]);
    script.advance(SECOND);
    script.expect(Event::Tick, &["ask closed from 1"]);
    script.expect(Event::Asked { replaying: Some(1) }, &["replay closed"]);
    script.expect(Event::Replayed(ClosedTurn::NoRoom), &[]);
    script.advance(SECOND);
    script.expect(Event::Tick, &["ask closed from 0"]);
}

#[test]
fn stopping_ends_the_round_and_answers_recorded_flushes() {
    let mut script = Script::new();
    script.flush(1);
    script.begin_round();
    script.expect(Event::Failed(SealError::Stopping), &[]);
    assert!(script.sealing.is_stopped());

    let mut script = Script::new();
    script.flush(1);
    script.begin_round();
    script.expect(Script::committed(&["a", "b"], &[]), &["note commit, blocked:"]);
    script.expect(Event::Done, &["await readers"]);
    script.expect(Event::Failed(SealError::Stopping), &["answer 1: 10 samples, 0 blocked"]);
    assert!(script.sealing.is_stopped());
}
