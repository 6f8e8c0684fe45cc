use super::super::tests::only_owner_with;
use super::*;
use crate::node::Node;
use crate::partition::Commands;
use crate::query_source::Source;
use crate::settings::Settings;
use crate::write_path::tests::small_settings;
use admission::Head;
use admission::watermarks::EVICT_EVERYTHING;
use journal::JournalId;
use model::{Labels, SeriesKey, SeriesRef, SeriesSamples, TimeRange};
use query::SeriesSource;
use std::sync::atomic::AtomicBool;
use stdx::clock::{Clock, ManualClock};

struct SmallHead {
    owner: Owner,
    clock: Arc<ManualClock>,
    _node: Node,
    _commands: Commands,
    _dir: tempfile::TempDir,
}

impl SmallHead {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(1_777_000_000_000));
        let mut settings = Settings { partitions: 1, series_idle_s: 3600, ..small_settings(dir.path()) };
        settings.budget.head_bytes = 8 << 20;
        let journal = journal::Memory::new(JournalId::default(), 1000);
        let (node, owner, commands) =
            only_owner_with(settings, journal, Arc::clone(&clock) as Arc<dyn Clock>);
        Self { owner, clock, _node: node, _commands: commands, _dir: dir }
    }

    /// Creates series without samples, as they are once their samples are sealed.
    fn create(&mut self, tenant: &TenantId, series: std::ops::Range<u32>) {
        let now_s = self.owner.context.steady_s();
        let mut partition = self.owner.partition.head.write();
        let before_bytes = partition.memory_bytes_of(tenant);
        let head = partition.tenant_mut(tenant);
        for i in series {
            let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
            let series = head.create(SeriesKey::of(labels.as_bytes(), 1), labels.as_ref());
            head.set_seen(series, now_s);
        }
        let bytes = head.memory_bytes() as isize - before_bytes as isize;
        drop(partition);
        self.owner.partition.grew(bytes);
        self.owner.note_tenants();
    }

    /// Gives the first series two samples five seconds apart, and releases them as if they were sealed.
    fn seal_two_samples(&mut self, tenant: &TenantId, series: usize) {
        let refs: Vec<_> = (0..series as u32).map(SeriesRef).collect();
        for at_ms in [1, 2] {
            let (timestamps, values) = (vec![at_ms; series], vec![1.0; series]);
            let now_s = self.owner.context.steady_s();
            let mut partition = self.owner.partition.head.write();
            let before_bytes = partition.memory_bytes_of(tenant);
            let head = partition.tenant_mut(tenant);
            head.append(&refs, &timestamps, &values, now_s);
            let bytes = head.memory_bytes() as isize - before_bytes as isize;
            drop(partition);
            self.owner.partition.grew(bytes);
            self.clock.advance(5000);
        }
        let mut partition = self.owner.partition.head.write();
        assert_eq!(partition.freeze(|_| true), 2 * series as u64);
        while !partition.release_turn(|_| true) {}
    }

    fn fill(&mut self, tenant: &TenantId, percent: u64) {
        for i in (2 * QUIET as u32..).step_by(100) {
            if self.head().is_filled_to(percent) {
                return;
            }
            self.create(tenant, i..i + 100);
        }
    }

    fn head(&self) -> Head {
        self.owner.context.heads.head()
    }

    fn series(&self, tenant: &TenantId) -> usize {
        self.owner.partition.head.read().tenant(tenant).map_or(0, head::TenantHead::series_count)
    }

    /// Runs the eviction that is due when all series have been idle for some time.
    fn evict_after(&mut self, idle_s: u64) {
        self.clock.advance(1000 * idle_s);
        for _ in 0..900 {
            self.owner.evict_turn();
            self.clock.advance(1);
        }
    }
}

fn tenants() -> [TenantId; 2] {
    ["flood", "quiet"].map(|name| TenantId::parse(name).unwrap())
}

const QUIET: usize = 500;

#[test]
fn whoever_fills_the_head_loses_idle_series_first() {
    let [flood, quiet] = tenants();
    let check = |percent, idle_s, [flood_stays, quiet_stays]: [bool; 2]| {
        let mut small = SmallHead::new();
        small.create(&quiet, 0..QUIET as u32);
        small.fill(&flood, percent);
        assert!(!small.head().is_filled_to(percent + 4), "{:?}", small.head());
        let flood_series = small.series(&flood);
        small.evict_after(idle_s);
        let expected = [(flood_stays, flood_series), (quiet_stays, QUIET)];
        let expected = expected.map(|(stays, series)| if stays { series } else { 0 });
        assert_eq!(
            [small.series(&flood), small.series(&quiet)],
            expected,
            "{percent} %, idle for {idle_s} s"
        );
    };
    check(50, 600, [true, true]);
    check(65, 50, [true, true]);
    check(65, 62, [false, true]);
    check(80, 2, [false, true]);
    check(80, 290, [false, true]);
    check(90, 2, [false, true]);
    check(50, 3602, [false, false]);
}

/// Otherwise, each sample of a series that gets one every few seconds would be one of a new series.
#[test]
fn a_flood_evicts_lasting_series_of_its_own_tenant_last() {
    let [flood, _] = tenants();
    let check = |percent, idle_s: u64, stays| {
        let mut small = SmallHead::new();
        small.create(&flood, 0..QUIET as u32);
        small.seal_two_samples(&flood, QUIET);
        small.fill(&flood, percent);
        let (is_full, everything) =
            (small.head().is_filled_to(EVICT_EVERYTHING), percent >= EVICT_EVERYTHING);
        assert_eq!(is_full, everything, "{:?}", small.head());
        small.evict_after(idle_s);
        assert_eq!(small.series(&flood), if stays { QUIET } else { 0 }, "{percent} %, idle for {idle_s} s");
    };
    check(80, 62, true);
    check(80, 92, false);
    check(93, 2, false);
    check(95, 2, false);
}

/// Otherwise, the tenant above its share would get no series as long as those of another tenant are kept for nothing.
#[test]
fn series_that_have_ended_leave_although_others_fill_the_head() {
    let [flood, quiet] = tenants();
    let check = |percent, idle_s: u64, quiet_stays| {
        let mut small = SmallHead::new();
        small.create(&quiet, 0..QUIET as u32);
        small.clock.advance(1000 * idle_s);
        small.fill(&flood, percent);
        let flood_series = small.series(&flood);
        small.evict_after(0);
        let expected = [flood_series, if quiet_stays { QUIET } else { 0 }];
        let series = [small.series(&flood), small.series(&quiet)];
        assert_eq!(series, expected, "{percent} %, idle for {idle_s} s");
    };
    check(65, 890, true);
    check(65, 902, false);
    check(80, 290, true);
    check(80, 302, false);
    check(90, 290, true);
    check(95, 2, false);
}

#[test]
fn series_of_others_are_spared_as_soon_as_there_is_room() {
    let [flood, quiet] = tenants();
    let mut small = SmallHead::new();
    small.create(&quiet, 0..QUIET as u32);
    let sums = small.owner.context.heads.sums.clone();
    let held = sums.reserve(sums.limit_bytes()).unwrap();
    small.fill(&flood, 95);
    small.clock.advance(2000);
    let context = Arc::clone(&small.owner.context);
    let (times, settings) = (IdleTimes::now(&context, false), context.overrides.current());
    let seconds = || {
        let of = |tenant| times.seconds_of(tenant, &context, &settings, small.clock.instant());
        [of(&flood), of(&quiet)]
    };
    assert_eq!(seconds(), [0, 0]);
    drop(held);
    assert!(!small.head().is_filled_to(EVICT_EVERYTHING));
    assert_eq!(seconds(), [0, 300]);
}

/// For example, after samples were released.
#[test]
fn what_tenants_hold_is_counted_when_an_eviction_begins() {
    let [flood, quiet] = tenants();
    let mut small = SmallHead::new();
    small.create(&quiet, 0..QUIET as u32);
    small.fill(&flood, 80);
    for (tenant, bytes) in [(&flood, 0), (&quiet, 7 << 20)] {
        small.owner.context.tenants.get(tenant).unwrap().hold(0, QUIET, bytes);
    }
    small.evict_after(2);
    assert_eq!([small.series(&flood), small.series(&quiet)], [0, QUIET]);
}

#[test]
fn a_tenant_alone_loses_idle_series_too() {
    let [alone, _] = tenants();
    for (percent, idle_s, stays) in [(65, 50, true), (65, 62, false), (80, 2, false)] {
        let mut small = SmallHead::new();
        small.fill(&alone, percent);
        let series = small.series(&alone);
        small.evict_after(idle_s);
        assert_eq!(small.series(&alone), if stays { series } else { 0 }, "{percent} %, idle for {idle_s} s");
    }
}

/// Thousands of tenants that hold equally much are all above their share.
#[test]
fn many_small_tenants_make_room_together() {
    let mut small = SmallHead::new();
    for number in 0.. {
        if small.head().is_filled_to(80) {
            break;
        }
        let tenant = TenantId::parse(&format!("t{number}")).unwrap();
        small.create(&tenant, 0..20);
    }
    assert!(small.owner.partition.head.read().tenant_count() > 100);
    small.evict_after(2);
    assert!(!small.head().is_filled_to(60), "{:?}", small.head());
}

/// The memory of other parts of the account cannot be evicted, so less is left to share.
#[test]
fn memory_besides_heads_makes_shares_smaller() {
    let [flood, quiet] = tenants();
    let mut small = SmallHead::new();
    small.create(&quiet, 0..QUIET as u32);
    let sums = small.owner.context.heads.sums.clone();
    let _held = sums.reserve(sums.limit_bytes()).unwrap();
    small.fill(&flood, 80);
    small.evict_after(2);
    assert_eq!([small.series(&flood), small.series(&quiet)], [0, QUIET]);
}

/// Nobody waits for half a minute until an eviction is due.
#[test]
fn pressure_is_noticed_within_a_second() {
    let [flood, quiet] = tenants();
    let mut small = SmallHead::new();
    small.create(&quiet, 0..QUIET as u32);
    small.evict_after(2);
    small.fill(&flood, 80);
    small.evict_after(1);
    assert_eq!(small.series(&flood), 0);
}

/// Somebody may delete tenants all the time.
#[test]
fn deletes_in_a_row_let_others_be_evicted() {
    let [flood, deleted] = tenants();
    let mut small = SmallHead::new();
    small.fill(&flood, 80);
    small.clock.advance(2000);
    let mut answers = Vec::new();
    for _ in 0..900 {
        while small.owner.evicting.waiting.len() < 2 {
            let (reply, answer) = oneshot::channel();
            let now = small.clock.instant();
            small.owner.evicting.evict(Eviction { tenant: deleted.clone(), reply }, now);
            answers.push(answer);
        }
        small.owner.evict_turn();
        small.clock.advance(1);
    }
    assert_eq!(small.series(&flood), 0);
    assert!(answers[0].try_recv().is_ok());
}

/// An export may wait for its client for hours.
#[test]
fn a_reader_that_waits_keeps_no_idle_series_and_reads_the_others() {
    let [idle, _] = tenants();
    let mut small = SmallHead::new();
    small.create(&idle, 0..100);
    let context = Arc::clone(small._node.reads());
    let source = Source::new(&context, idle.clone(), 1000, Arc::<AtomicBool>::default()).leasing();
    let select = query::Select { matchers: &[], range: TimeRange::ALL };
    let (mut set, mut samples) = (source.select(&select).unwrap(), SeriesSamples::default());
    let mut read = Vec::new();
    for _ in 0..9 {
        assert!(set.next(&mut samples).unwrap());
        read.push(set.labels().get("i").unwrap_or_default().to_owned());
    }
    assert!(set.next(&mut samples).unwrap());
    small.evict_after(3602);
    assert_eq!(small.series(&idle), 100, "the eviction waits");
    for _ in 0..20 {
        small.evict_after(1);
    }
    assert_eq!(small.series(&idle), 0, "not for long");
    read.push(set.labels().get("i").unwrap_or_default().to_owned());
    assert!(!source.may_repeat_series());
    // other series get the references
    small.create(&idle, 1000..1020);
    while set.next(&mut samples).unwrap() {
        read.push(set.labels().get("i").unwrap_or_default().to_owned());
    }
    let expected: Vec<_> = (0..10).chain(1010..1020).map(|i| i.to_string()).collect();
    assert_eq!(read, expected);
    assert!(source.may_repeat_series());
}

/// The samples of the series that are missing are in tables, which the reader opened before.
#[test]
fn a_reader_notices_that_series_have_gone_with_their_samples() {
    let [idle, _] = tenants();
    let mut small = SmallHead::new();
    small.create(&idle, 0..100);
    let context = Arc::clone(small._node.reads());
    let source = Source::new(&context, idle.clone(), 1000, Arc::<AtomicBool>::default()).leasing();
    let select = query::Select { matchers: &[], range: TimeRange::ALL };
    let (mut set, mut samples) = (source.select(&select).unwrap(), SeriesSamples::default());
    assert!(set.next(&mut samples).unwrap());
    context.lake.pins.expire(context.lake.pins.end_generation());
    small.evict_after(3602);
    for _ in 0..20 {
        small.evict_after(1);
    }
    assert_eq!(small.series(&idle), 0);
    assert!(set.next(&mut samples).is_err() && source.is_expired());
}
