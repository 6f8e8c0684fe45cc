use super::{Compacted, compact};
use crate::deletes;
use crate::events::Event;
use crate::node::Node;
use crate::seal::flush::flush;
use crate::seal::tenant_tables::TenantTable;
use crate::seal::tests::{Content, node_with, read_of, write_of};
use crate::settings::{Given, Settings, TenantSettings};
use crate::world::World;
use crate::write_path::tests::small_settings;
use model::{TenantId, TimeRange};
use query::{MatchOp, Matcher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use stdx::clock::{Clock, ManualClock, SystemClock};
use tables::DAY_MS;
use tables::Date;
use tables::Delete;
use tables::rollup::{self, Resolution};

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn own<'a>(settings: &'a mut Settings, name: &str) -> &'a mut TenantSettings {
    let general = settings.tenants.general.clone();
    settings.tenants.own.entry(tenant(name)).or_insert(general)
}

/// Writes and seals two samples of each of 50 series, and returns their day: the day before yesterday.
async fn fill(node: &Node, name: &str) -> Date {
    let day = Date::of(SystemClock.now_ms() - 2 * DAY_MS);
    for round in 0..2 {
        write_of(node, &tenant(name), day.start_ms() + round).await;
        flush(node).await.unwrap();
    }
    day
}

async fn files(node: &Node, name: &str, kind: TenantTable) -> Vec<String> {
    let (node, tenant) = (node.clone(), tenant(name));
    let files = move || {
        let table = node.reads().lake.tables.existing(&tenant, kind).unwrap();
        table.map_or(Vec::new(), |table| {
            table.refresh().unwrap();
            table.files().unwrap().all().iter().map(|f| f.path.clone()).collect()
        })
    };
    tokio::task::spawn_blocking(files).await.unwrap()
}

fn damage(dir: &Path, tenant: &str, file: &str) {
    let path = dir.join("tables").join(tenant).join("metrics").join(file);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
}

async fn stop(node: Node) {
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_open_before_somebody_asks() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| {}).await;
    fill(&node, "one").await;
    fill(&node, "two").await;
    stop(node).await;
    let parts = Node::assemble(small_settings(dir.path()), World::real(Arc::new(SystemClock))).unwrap();
    let open = move || {
        let (node, mut upkeep) = (parts.node, parts.upkeep);
        let open = || node.reads().lake.tables.open_stats().0;
        let before = open();
        upkeep.open_tables();
        (before, open())
    };
    assert_eq!(tokio::task::spawn_blocking(open).await.unwrap(), (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_deleted_tables_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| {}).await;
    fill(&node, "one").await;
    fill(&node, "two").await;
    stop(node).await;
    let parts = Node::assemble(small_settings(dir.path()), World::real(Arc::new(SystemClock))).unwrap();
    let gone = dir.path().join("tables/one");
    let kept = move || {
        // the node must live until the end of the test
        let (_node, mut upkeep) = (parts.node, parts.upkeep);
        upkeep.check_all();
        let before: Vec<_> = upkeep.states.keys().map(|(tenant, _)| tenant.clone()).collect();
        std::fs::remove_dir_all(gone).unwrap();
        upkeep.visited = None;
        upkeep.check_all();
        (before.len(), upkeep.states.into_keys().map(|(tenant, _)| tenant).collect::<Vec<_>>())
    };
    assert_eq!(tokio::task::spawn_blocking(kept).await.unwrap(), (2, vec![tenant("two")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_take_turns_by_weight() {
    let dir = tempfile::tempdir().unwrap();
    let change = |settings: &mut Settings| {
        settings.tenants.general.rollups = vec![Resolution::Hour];
        own(settings, "heavy").share_weight = 100;
    };
    let node = node_with(dir.path(), change).await;
    let names = ["greedy", "heavy", "small"];
    for (name, days) in names.into_iter().zip([4, 4, 1]) {
        for day in (0..days).rev() {
            let start_ms = Date::of(SystemClock.now_ms() - (2 + day) * DAY_MS).start_ms();
            for round in 0..2 {
                write_of(&node, &tenant(name), start_ms + round).await;
                flush(&node).await.unwrap();
            }
        }
    }
    stop(node).await;
    let mut settings = small_settings(dir.path());
    change(&mut settings);
    let parts = Node::assemble(settings, World::real(Arc::new(SystemClock))).unwrap();
    let turns = move || {
        let (node, mut upkeep) = (parts.node, parts.upkeep);
        upkeep.turn_bytes = 1; // one job
        upkeep.discover();
        let tenants = node.reads().lake.tables.tenants(true);
        let days_to_merge = || {
            names.map(|name| {
                let table = node.reads().lake.existing(&tenant(name)).unwrap().unwrap();
                table.refresh().unwrap();
                let files = table.files().unwrap();
                files.all().chunk_by(|a, b| a.date == b.date).filter(|day| day.len() > 1).count()
            })
        };
        let mut compacted = Compacted::default();
        assert_eq!(days_to_merge(), [4, 4, 1]);
        upkeep.visit(&tenants, true, &mut compacted);
        assert_eq!(days_to_merge(), [3, 3, 0], "each tenant has a turn");
        assert_eq!(
            upkeep.turns.next(upkeep.waiting.iter().map(|(tenant, _)| tenant)),
            Some(&tenant("heavy")),
            "it did less work for its weight"
        );
        upkeep.visit(&tenants, true, &mut compacted);
        assert_eq!(days_to_merge(), [3, 2, 0], "a tenant that is ahead waits");
        let Compacted { merges, rollups, failures, .. } = compacted;
        assert_eq!((merges, rollups, failures), (4, 0, 0));
        assert_eq!(upkeep.waiting.len(), 5, "samples of two tenants, and the rollups of all");
        upkeep.take_turns(Duration::ZERO, true, &mut compacted);
        assert_eq!(days_to_merge(), [0, 0, 0]);
        let Compacted { rollups, failures, .. } = compacted;
        assert_eq!((rollups, failures, upkeep.waiting.len()), (9, 0, 0));
    };
    tokio::task::spawn_blocking(turns).await.unwrap();
}

/// A clock on which time passes whenever somebody looks at it.
#[derive(Debug)]
struct TickingClock {
    began: Instant,
    tick: Duration,
    ticks: AtomicU32,
}

impl Clock for TickingClock {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms()
    }

    fn instant(&self) -> Instant {
        self.began + self.tick * self.ticks.fetch_add(1, Ordering::Relaxed)
    }

    fn sleep(&self, _: Duration) {}
}

/// Merges the files of these tenants on a ticking clock. Returns the result, and how many jobs were interrupted.
async fn merge_ticking(names: &[&str], tick_s: u64) -> (Compacted, f64) {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| {}).await;
    for name in names {
        fill(&node, name).await;
    }
    stop(node).await;
    let tick = Duration::from_secs(tick_s);
    let clock = Arc::new(TickingClock { began: Instant::now(), tick, ticks: AtomicU32::new(0) });
    let settings = small_settings(dir.path());
    let work = move || {
        let parts = Node::assemble(settings, World::real(clock)).unwrap();
        let (node, mut upkeep) = (parts.node, parts.upkeep);
        let compacted = upkeep.compact_all();
        (compacted, metric(&node, "floodmark_upkeep_interrupted_jobs_total"))
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_takes_too_long_is_interrupted_while_others_wait() {
    let (alone, interrupted) = merge_ticking(&["one"], 60).await;
    assert_eq!((alone.merges, alone.failures, interrupted), (1, 0, 0.0), "nobody waits");
    let (slow, interrupted) = merge_ticking(&["one", "two"], 6).await;
    assert_eq!((slow.merges, slow.failures), (2, 0), "each gets more time until it has enough");
    assert!(interrupted >= 2.0, "{interrupted}");
    let (endless, interrupted) = merge_ticking(&["one", "two"], 60).await;
    let expected = (0, 2, 10.0);
    assert_eq!((endless.merges, endless.failures, interrupted), expected, "each rests after five attempts");
}

#[tokio::test(flavor = "multi_thread")]
async fn days_that_are_over_get_the_rollups_that_their_tenant_has() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| {
        settings.tenants.general.rollups = vec![Resolution::Hour];
        own(settings, "none").rollups = Vec::new();
        own(settings, "both").rollups = Resolution::ALL.to_vec();
    })
    .await;
    let (hour, minutes) =
        (TenantTable::Rollup(Resolution::Hour), TenantTable::Rollup(Resolution::FiveMinutes));
    for name in ["one", "none", "both"] {
        fill(&node, name).await;
    }
    let first = compact(&node).await.unwrap();
    assert_eq!((first.rollups, first.failures, first.damaged), (3, 0, 0));
    let again = compact(&node).await.unwrap();
    assert_eq!(again, Compacted::default(), "once");
    for (name, expected) in [("one", [1, 0, 1]), ("none", [1, 0, 0]), ("both", [1, 1, 1])] {
        let mut found = Vec::new();
        for kind in [TenantTable::Samples, minutes, hour] {
            found.push(files(&node, name, kind).await.len());
        }
        assert_eq!(found, expected, "{name}");
    }
    // late samples make the day due again
    let day = fill(&node, "one").await;
    let there = node.clone();
    let complete = move || {
        let lake = &there.reads().lake;
        let metrics = lake.existing(&tenant("one")).unwrap().unwrap();
        let rollup = lake.rollup(&tenant("one"), Resolution::Hour).unwrap().unwrap();
        rollup::days(&metrics.files().unwrap(), &rollup).unwrap().complete
    };
    assert_eq!(tokio::task::spawn_blocking(complete.clone()).await.unwrap(), []);
    assert_eq!(compact(&node).await.unwrap().rollups, 1);
    assert_eq!(tokio::task::spawn_blocking(complete).await.unwrap(), [day]);
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_all_of_its_tables_gets_no_further_rollup() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| {
        settings.tenants.general.rollups = vec![Resolution::Hour];
        own(settings, "one").limits.tenant_tables = 1;
        own(settings, "two").limits.tenant_tables = 2;
    })
    .await;
    fill(&node, "one").await;
    fill(&node, "two").await;
    let (hours, usage) =
        (TenantTable::Rollup(Resolution::Hour), |name: &str| node.reads().lake.tables.usage(&tenant(name)));
    for rollups in [1, 0] {
        let done = compact(&node).await.unwrap();
        assert_eq!((done.rollups, done.failures), (rollups, 0));
    }
    assert!(files(&node, "one", hours).await.is_empty() && !files(&node, "two", hours).await.is_empty());
    assert_eq!((usage("one").tables, usage("two").tables), (1, 2));
    for (name, kinds) in [("one", &TenantTable::ALL[..1]), ("two", &[TenantTable::Samples, hours])] {
        let mut bytes = 0;
        for kind in kinds {
            let in_table = dir.path().join("tables").join(name).join(kind.folder());
            let live = files(&node, name, *kind).await;
            bytes += live.iter().map(|file| in_table.join(file).metadata().unwrap().len()).sum::<u64>();
        }
        let usage = usage(name);
        assert!(bytes > 0 && usage.bytes == bytes && usage.bytes_peak >= bytes, "{name}: {bytes}, {usage:?}");
    }
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_and_rollups_expire_by_their_own_retention() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| {
        settings.tenants.general.rollups = vec![Resolution::Hour];
        own(settings, "short").retention_ms = Some(DAY_MS);
        own(settings, "shorter").retention_ms = Some(DAY_MS);
        own(settings, "short").rollup_retention_ms = Some(30 * DAY_MS);
        settings.lake.retention_wait_ms = 0;
    })
    .await;
    let hour = TenantTable::Rollup(Resolution::Hour);
    for name in ["short", "shorter", "long"] {
        fill(&node, name).await;
    }
    // in a new data directory, the clock is not trusted until a sample with the present time has arrived
    write_of(&node, &tenant("fresh"), SystemClock.now_ms()).await;
    // the samples must stay until they are rolled up
    assert_eq!(compact(&node).await.unwrap().rollups, 3);
    compact(&node).await.unwrap();
    for (name, expected) in [("short", (0, 1)), ("shorter", (0, 0)), ("long", (1, 1))] {
        let found =
            (files(&node, name, TenantTable::Samples).await.len(), files(&node, name, hour).await.len());
        assert_eq!(found, expected, "{name}");
    }
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_expire_with_the_samples_of_their_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| {
        own(settings, "short").retention_ms = Some(DAY_MS);
        settings.lake.retention_wait_ms = 0;
    })
    .await;
    for name in ["short", "long"] {
        for age_ms in [2 * DAY_MS, 0] {
            let when_ms = SystemClock.now_ms() - age_ms;
            let event = Event { when_ms, what: "x".into(), tags: String::new(), data: String::new() };
            node.reads().events.append(&tenant(name), event, 1 << 20).await.unwrap();
        }
    }
    compact(&node).await.unwrap();
    for (name, expected) in [("short", vec![2]), ("long", vec![1, 2])] {
        let text = std::fs::read_to_string(dir.path().join(format!("events/{name}.events"))).unwrap();
        let is_left = |id: &u32| text.contains(&format!("\"id\":{id},"));
        assert_eq!((1..=2).filter(is_left).collect::<Vec<_>>(), expected, "{text}");
    }
    stop(node).await;
}

/// The overrides file is read while it is being written, so that it seems to end after its first line.
#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_retention_applies_after_a_while() {
    const HOUR_MS: u64 = 3_600_000;
    let (dir, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = files.path().join("overrides.toml");
    let given = Given::default().flag("data_dir", dir.path()).flag("memory", "64MiB");
    let given = given.flag("durability", "os").flag("overrides", &path);
    let settings = || {
        let mut settings = small_settings(dir.path());
        settings.overrides = Settings::resolve(&given).unwrap().overrides;
        settings
    };
    let (short, long) = ("retention = '1d'\n", "retention = '1d'\n[tenant.one]\nretention = '30d'\n");
    std::fs::write(&path, long).unwrap();
    let node = Node::start(settings(), Arc::new(SystemClock)).unwrap();
    node.readiness().wait_for_replay().await;
    fill(&node, "one").await;
    stop(node).await;
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let parts = Node::assemble(settings(), World::real(Arc::clone(&clock) as Arc<dyn Clock>)).unwrap();
    let work = move || {
        let (node, mut upkeep) = (parts.node, parts.upkeep);
        let wait_ms = node.settings().lake.retention_wait_ms as u64;
        let mut files_after = |text: &str, by_ms: u64| {
            std::fs::write(&path, text).unwrap();
            node.overrides().reload();
            clock.advance(by_ms);
            upkeep.visited = None;
            upkeep.check_all();
            let table = node.reads().lake.existing(&tenant("one")).unwrap().unwrap();
            table.refresh().unwrap();
            table.files().unwrap().all().len()
        };
        assert_eq!(files_after(long, 0), 1);
        assert_eq!(files_after(long, 25 * HOUR_MS), 1, "the clock is trusted from now on");
        for (text, by_ms) in [(short, 0), (short, wait_ms - 1), (long, 0), (short, 0), (short, wait_ms - 1)] {
            assert_eq!(files_after(text, by_ms), 1, "{text} after {by_ms} ms");
        }
        assert_eq!(files_after(short, 1), 0);
    };
    tokio::task::spawn_blocking(work).await.unwrap();
}

/// When the node starts, its clock is a year ahead. In some cases, the clock is corrected later.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_ahead_at_the_start_expires_nothing() {
    const HOUR_MS: u64 = 3_600_000;
    let dir = tempfile::tempdir().unwrap();
    let keep = |settings: &mut Settings| settings.tenants.general.retention_ms = Some(30 * DAY_MS);
    let node = node_with(dir.path(), keep).await;
    fill(&node, "one").await;
    stop(node).await;
    let start = |ahead_ms: i64| {
        let mut settings = small_settings(dir.path());
        keep(&mut settings);
        let clock = Arc::new(ManualClock::at(SystemClock.now_ms() + ahead_ms));
        let parts = Node::assemble(settings, World::real(Arc::clone(&clock) as Arc<dyn Clock>)).unwrap();
        (clock, parts.node, parts.upkeep)
    };
    let check = |ahead_ms: i64, then: fn(&ManualClock), expected: usize| {
        let (clock, node, mut upkeep) = start(ahead_ms);
        let looks = move || {
            upkeep.open_tables();
            upkeep.check_all();
            then(&clock);
            upkeep.check_all();
            let table = node.reads().lake.existing(&tenant("one")).unwrap().unwrap();
            table.refresh().unwrap();
            assert_eq!(table.files().unwrap().all().len(), expected);
            upkeep
        };
        tokio::task::spawn_blocking(looks)
    };
    let year_ms = 365 * DAY_MS;
    check(year_ms, |clock| clock.advance(HOUR_MS), 1).await.unwrap();
    check(year_ms, |clock| clock.advance(23 * HOUR_MS), 1).await.unwrap();
    let put_right = |clock: &ManualClock| {
        clock.set(-365 * DAY_MS);
        clock.advance(HOUR_MS);
    };
    check(year_ms, put_right, 1).await.unwrap();
    // even a plausible clock is not trusted right after the start, but one that was consistent for a day is
    check(0, |_| {}, 1).await.unwrap();
    check(29 * DAY_MS, |clock| clock.advance(25 * HOUR_MS), 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_one_tenant_does_not_affect_others() {
    let dir = tempfile::tempdir().unwrap();
    let node =
        node_with(dir.path(), |settings| settings.tenants.general.rollups = vec![Resolution::Hour]).await;
    for name in ["broken", "whole"] {
        fill(&node, name).await;
    }
    damage(dir.path(), "broken", &files(&node, "broken", TenantTable::Samples).await[0]);
    let compacted = compact(&node).await.unwrap();
    let Compacted { rollups, failures, damaged, .. } = compacted;
    assert_eq!((rollups, failures, damaged), (1, 1, 1), "{compacted:?}");
    assert_eq!(files(&node, "whole", TenantTable::Samples).await.len(), 1);
    let text = node.registry().render();
    assert!(text.contains("floodmark_upkeep_damaged_files 1\n"), "{text}");
    assert!(text.contains("floodmark_rollup_days_total{table=\"rollup_1h\"} 1\n"), "{text}");
    assert_eq!(
        files(&node, "broken", TenantTable::Samples).await.len(),
        2,
        "the damaged table is not compacted"
    );
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_opened_is_counted_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    for name in ["a", "b"] {
        fill(&node, name).await;
    }
    stop(node).await;
    let entry = dir.path().join("tables/a/metrics/_delta_log/00000000000000000001.json");
    let content = std::fs::read(&entry).unwrap();
    std::fs::write(&entry, "").unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    let compacted = compact(&node).await.unwrap();
    assert_eq!((compacted.merges, compacted.failures), (1, 1), "{compacted:?}");
    assert!(node.registry().render().contains("floodmark_upkeep_failing_tables 1\n"));
    std::fs::write(&entry, content).unwrap();
    let compacted = compact(&node).await.unwrap();
    assert_eq!((compacted.merges, compacted.failures), (1, 0), "{compacted:?}");
    assert!(node.registry().render().contains("floodmark_upkeep_failing_tables 0\n"));
    stop(node).await;
}

/// If a checkpoint is damaged, the older log entries replace it. If these no longer exist, an operator must repair
/// the table. The tenant's new samples are kept meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_checkpoint_is_put_aside_or_waits_for_an_operator() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |_| ()).await;
    for name in ["whole", "cut", "other"] {
        fill(&node, name).await;
    }
    let there = node.clone();
    let checkpoint = move || {
        ["whole", "cut"].map(|name| {
            let table = there.reads().lake.existing(&tenant(name)).unwrap().unwrap();
            table.checkpoint().unwrap();
            format!("{:020}.checkpoint.parquet", table.version())
        })
    };
    let checkpoints = tokio::task::spawn_blocking(checkpoint).await.unwrap();
    stop(node).await;
    let log = |name: &str| dir.path().join("tables").join(name).join("metrics/_delta_log");
    for (name, checkpoint) in ["whole", "cut"].iter().zip(&checkpoints) {
        let path = log(name).join(checkpoint);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    let first = log("cut").join("00000000000000000000.json");
    let content = std::fs::read(&first).unwrap();
    std::fs::remove_file(&first).unwrap();

    let node = node_with(dir.path(), |_| ()).await;
    let compacted = compact(&node).await.unwrap();
    assert_eq!((compacted.merges, compacted.failures), (2, 1), "{compacted:?}");
    let text = node.registry().render();
    assert!(text.contains("floodmark_tables_log_repairs_total 1\n"), "{text}");
    assert!(text.contains("floodmark_upkeep_failing_tables 1\n"), "{text}");
    let day = Date::of(SystemClock.now_ms() - DAY_MS);
    for name in ["whole", "cut", "other"] {
        write_of(&node, &tenant(name), day.start_ms()).await;
    }
    std::fs::write(&first, content).unwrap();
    flush(&node).await.unwrap();
    assert_eq!(compact(&node).await.unwrap().failures, 0);
    assert!(node.registry().render().contains("floodmark_tables_log_repairs_total 2\n"));
    let there = node.clone();
    let samples = move || ["whole", "cut", "other"].map(|name| read_of(&there, &tenant(name)).len());
    assert_eq!(tokio::task::spawn_blocking(samples).await.unwrap(), [150; 3]);
    stop(node).await;
}

/// A delete must still be applied to a rollup, but the log of the rollup cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn upkeep_goes_on_beside_a_rollup_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_with(dir.path(), |settings| {
        settings.tenants.general.rollups = Resolution::ALL.to_vec();
        settings.tenants.general.retention_ms = Some(30 * DAY_MS);
    })
    .await;
    fill(&node, "one").await;
    assert_eq!(compact(&node).await.unwrap().rollups, 2);
    let (hour, minutes) =
        (TenantTable::Rollup(Resolution::Hour), TenantTable::Rollup(Resolution::FiveMinutes));
    let there = node.clone();
    let version =
        move || there.reads().lake.rollup(&tenant("one"), Resolution::Hour).unwrap().unwrap().version();
    let version = tokio::task::spawn_blocking(version).await.unwrap();
    let log = dir.path().join("tables/one/rollup_1h/_delta_log");
    let entry = log.join(format!("{:020}.json", version + 1));
    std::fs::write(&entry, "damaged").unwrap();

    let matcher = Matcher::new("__name__", MatchOp::Equal, "m7").unwrap();
    let delete = Delete { selectors: vec![vec![matcher]], range: TimeRange::ALL };
    let refused = deletes::delete(&node, tenant("one"), delete.clone()).await;
    assert!(
        refused.is_err_and(|refusal| refusal.to_string().contains("rollup_1h")),
        "it waits for the rollup"
    );
    let read = |node: &Node| {
        let node = node.clone();
        tokio::task::spawn_blocking(move || read_of(&node, &tenant("one")))
    };
    let expected = |content: &Content| {
        let deleted = content.keys().filter(|(series, _)| series.contains("m7")).count();
        (content.len(), deleted)
    };
    assert_eq!(expected(&read(&node).await.unwrap()), (98, 0));
    for name in ["one", "two"] {
        fill(&node, name).await;
    }
    // the same samples were written again after the delete
    let before = read(&node).await.unwrap();
    assert_eq!(expected(&before), (100, 2));
    let failures = || metric(&node, "floodmark_upkeep_failures_total");
    let failed = failures();
    let compacted = compact(&node).await.unwrap();
    assert_eq!(compacted.failures, 2, "the samples, of which a delete waits, and the rollup: {compacted:?}");
    assert!(compacted.rollups >= 3, "the other rollup, and those of the other tenant: {compacted:?}");
    assert_eq!(failures(), failed + 2.0);
    assert_eq!(metric(&node, "floodmark_upkeep_failing_tables"), 2.0);
    assert_eq!(
        metric(&node, "floodmark_tombstones"),
        1.0,
        "that of the samples, for the rollup that lacks it"
    );
    for (name, kind) in
        [("one", TenantTable::Samples), ("one", minutes), ("two", TenantTable::Samples), ("two", hour)]
    {
        assert_eq!(files(&node, name, kind).await.len(), 1, "{name} {kind:?}");
    }
    assert_eq!(read(&node).await.unwrap(), before);

    std::fs::remove_file(&entry).unwrap();
    let compacted = compact(&node).await.unwrap();
    assert_eq!((compacted.failures, compacted.damaged), (0, 0), "{compacted:?}");
    compact(&node).await.unwrap();
    assert_eq!(metric(&node, "floodmark_upkeep_failing_tables"), 0.0);
    assert_eq!(metric(&node, "floodmark_tombstones"), 0.0);
    assert_eq!(read(&node).await.unwrap(), before);
    stop(node).await;
}

fn metric(node: &Node, name: &str) -> f64 {
    let text = node.registry().render();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
}
