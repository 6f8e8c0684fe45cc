//! Replay for closed tenants once their tables can be read.

use crate::seal::blocked::tests::Broken;
use crate::seal::tests::{
    Content, days_of, flush_stepped, read_of, rows_of, seal_times, send_stepped, start_stepped,
    write_stepped_of,
};
use crate::settings::Settings;
use crate::sim::Simulated;
use admission::watermarks;
use model::{Labels, TenantId};
use protocol::encode::V1Encoder;
use std::path::Path;
use std::sync::Arc;
use stdx::clock::{Clock, ManualClock};

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn two_partitions(settings: &mut Settings) {
    settings.partitions = 2;
}

fn is_closed(node: &Simulated, name: &str) -> bool {
    node.node().node.reads().lake.closed.check(&tenant(name)).is_err()
}

fn seal_until(node: &mut Simulated, clock: &ManualClock, is_over: impl Fn(&Simulated) -> bool) {
    for _ in 0..100 {
        if is_over(node) {
            return;
        }
        clock.advance(1000);
        node.seal();
    }
    panic!("after 100 turns, the condition does not hold: {:?}", node.node().node.reads().lake.closed);
}

/// Starts a node with a small head. It has lost `floodmarks.json`, and the table of tenant `a` is broken.
fn start_small_and_closed(dir: &Path, clock: &Arc<ManualClock>) -> (Simulated, Broken) {
    std::fs::remove_file(dir.join("floodmarks.json")).unwrap();
    let broken = Broken::new(dir, "a");
    let node = start_stepped(dir, clock, |settings| {
        two_partitions(settings);
        settings.budget.head_bytes = 2 << 20;
    });
    (node, broken)
}

/// Checks that the tenant has `content`, before and after a restart, and that its table has no sample twice.
fn check_sealed(mut node: Simulated, dir: &Path, clock: &Arc<ManualClock>, name: &str, content: &Content) {
    let tenant = tenant(name);
    assert_eq!(read_of(&node.node().node, &tenant), *content);
    flush_stepped(&mut node, clock);
    assert_eq!(read_of(&node.node().node, &tenant), *content);
    drop(node);
    let node = start_stepped(dir, clock, two_partitions);
    assert_eq!(node.node().node.writes().metrics.replayed_samples.get(), 0, "all samples are in the table");
    assert_eq!(read_of(&node.node().node, &tenant), *content);
    let rows = rows_of(&node.node().node, &tenant);
    assert!(rows <= content.len() as u64, "{rows} rows have {} samples", content.len());
}

#[test]
fn one_of_several_partitions_is_closed_and_opens_again() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let (a, mut content) = (tenant("a"), Content::new());
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    flush_stepped(&mut node, &clock);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    // makes the marks look as if a round had been interrupted here
    let of_first = |(number, mark): (usize, &mut crate::seal::Mark)| {
        mark.attempt = (number == 0).then_some(mark.upto + 1);
    };
    node.node().node.reads().lake.change_marks(of_first).unwrap();
    drop(node);
    let broken = Broken::new(dir.path(), "a");
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    let closed = |number: usize| node.node().node.reads().lake.closed.of(number).len();
    assert_eq!((closed(0), closed(1)), (1, 0));
    broken.mend();
    seal_until(&mut node, &clock, |node| !is_closed(node, "a"));
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    check_sealed(node, dir.path(), &clock, "a", &content);
}

/// At first, the journal of partition 0 cannot be read, because its first segment was replaced by a directory.
#[test]
fn partition_whose_replay_fails_does_not_keep_others_closed() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let (a, mut content) = (tenant("a"), Content::new());
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    flush_stepped(&mut node, &clock);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    drop(node);
    std::fs::remove_file(dir.path().join("floodmarks.json")).unwrap();
    let broken = Broken::new(dir.path(), "a");
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    let there = node.node().node.clone();
    let closed = |number: usize| there.reads().lake.closed.of(number).len();
    assert_eq!((closed(0), closed(1)), (1, 1));
    let segment = journal::faulty::segment_files(&dir.path().join("journal"), 0).unwrap().remove(0);
    let moved = segment.with_extension("moved");
    std::fs::rename(&segment, &moved).unwrap();
    std::fs::create_dir(&segment).unwrap();
    broken.mend();
    seal_until(&mut node, &clock, |_| closed(1) == 0);
    assert_eq!(closed(0), 1, "the partition's journal cannot be read");
    std::fs::remove_dir(&segment).unwrap();
    std::fs::rename(&moved, &segment).unwrap();
    seal_until(&mut node, &clock, |node| !is_closed(node, "a"));
    drop(there);
    check_sealed(node, dir.path(), &clock, "a", &content);
}

#[test]
fn a_tenant_whose_passes_are_open_is_closed_and_opens_again() {
    for (place, times) in [("before_commit", 2), ("after_commit", 1)] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
        let (a, mut content) = (tenant("a"), Content::new());
        let mut node = start_stepped(dir.path(), &clock, two_partitions);
        let (body, written) = days_of("scattered", 10_000..10_150);
        send_stepped(&node, &a, body);
        content.extend(written);
        node.node().node.reads().lake.faults.die_at_the(times, place);
        let _flush = node.flush();
        seal_times(&mut node, 3);
        drop(node);
        let broken = Broken::new(dir.path(), "a");
        let mut node = start_stepped(dir.path(), &clock, two_partitions);
        assert!(is_closed(&node, "a"), "{place}");
        broken.mend();
        seal_until(&mut node, &clock, |node| !is_closed(node, "a"));
        content.extend(write_stepped_of(&node, &a, clock.now_ms()));
        check_sealed(node, dir.path(), &clock, "a", &content);
    }
}

#[test]
fn a_tenant_waits_for_room_and_others_do_not() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let ([a, b], mut content) = (["a", "b"].map(tenant), Content::new());
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    flush_stepped(&mut node, &clock);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    drop(node);
    let (mut node, broken) = start_small_and_closed(dir.path(), &clock);
    let there = node.node().node.clone();
    let labels = Labels::from_pairs(&[("__name__", "filler")]);
    let fill = |node: &Simulated| {
        clock.advance(1000);
        let timestamps: Vec<_> = (0..1000).map(|i| clock.now_ms() - 999 + i).collect();
        let values: Vec<_> = timestamps.iter().map(|t| (*t as f64).sqrt()).collect();
        let mut encoder = V1Encoder::new();
        encoder.series(labels.as_ref(), &timestamps, &values);
        assert_eq!(send_stepped(node, &b, encoder.finish().to_vec()), 1000);
    };
    while !there.writes().heads.is_filled_to(watermarks::REFUSE_CLOSED) {
        fill(&node);
    }
    let pin = there.reads().lake.pins.pin();
    broken.mend();
    seal_times(&mut node, 5);
    let refusal = there.reads().lake.closed.check(&a).unwrap_err();
    assert!(refusal.message.contains("no room"), "{refusal:?}");
    fill(&node);
    drop(pin);
    seal_until(&mut node, &clock, |node| !is_closed(node, "a"));
    drop(there);
    check_sealed(node, dir.path(), &clock, "a", &content);
}

/// The heads have room for one of the tenants. Once it is sealed, they have room for the other.
#[test]
fn tenants_that_do_not_fit_together_open_one_after_the_other() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let tenants = ["a", "b"].map(tenant);
    let mut contents = [Content::new(), Content::new()];
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    for (tenant, content) in tenants.iter().zip(&mut contents) {
        content.extend(write_stepped_of(&node, tenant, clock.now_ms()));
    }
    flush_stepped(&mut node, &clock);
    for (tenant, content) in tenants.iter().zip(&mut contents) {
        for series in 0..32 {
            let long = format!("{series}-{}", "x".repeat(15 << 10));
            let labels = Labels::from_pairs(&[("__name__", "m"), ("a", &long), ("b", &long)]);
            let mut encoder = V1Encoder::new();
            encoder.series(labels.as_ref(), &[clock.now_ms()], &[1.0]);
            content.insert((labels.to_string(), clock.now_ms()), 1f64.to_bits());
            assert_eq!(send_stepped(&node, tenant, encoder.finish().to_vec()), 1);
        }
    }
    drop(node);
    let also_broken = Broken::new(dir.path(), "b");
    let (mut node, broken) = start_small_and_closed(dir.path(), &clock);
    assert!(is_closed(&node, "a") && is_closed(&node, "b"));
    broken.mend();
    also_broken.mend();
    seal_until(&mut node, &clock, |node| !is_closed(node, "a") && !is_closed(node, "b"));
    for (tenant, content) in tenants.iter().zip(&contents) {
        assert_eq!(read_of(&node.node().node, tenant), *content);
    }
}

/// A replay that finds no room must give back the memory that it has taken, because other tenants need it.
#[test]
fn a_tenant_that_does_not_fit_leaves_others_their_room() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let (a, mut content) = (tenant("a"), Content::new());
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    flush_stepped(&mut node, &clock);
    for batch in 0..20 {
        let mut encoder = V1Encoder::new();
        for i in 0..20 {
            let long = format!("{batch}-{i}-{}", "x".repeat(8 << 10));
            let labels = Labels::from_pairs(&[("__name__", "m"), ("long", &long)]);
            encoder.series(labels.as_ref(), &[clock.now_ms()], &[1.0]);
            content.insert((labels.to_string(), clock.now_ms()), 1f64.to_bits());
        }
        assert_eq!(send_stepped(&node, &a, encoder.finish().to_vec()), 20);
    }
    drop(node);
    let (mut node, broken) = start_small_and_closed(dir.path(), &clock);
    broken.mend();
    let there = node.node().node.clone();
    let bytes = || there.writes().heads.bytes();
    let (before, mut most, mut left) = (bytes(), 0, u64::MAX);
    for _ in 0..20 {
        clock.advance(1000);
        node.seal();
        most = most.max(bytes());
        left = if most > before + (1 << 20) { left.min(bytes()) } else { left };
    }
    assert!(
        left < before + (64 << 10),
        "the heads keep {left} bytes of {most}, {before} before the replay; other tenants need the room"
    );
    write_stepped_of(&node, &tenant("b"), clock.now_ms());
    let refusal = there.reads().lake.closed.check(&a).unwrap_err();
    assert!(refusal.message.contains("no room"), "{refusal:?}");
    assert_eq!(there.reads().lake.flush.used_bytes(), 0);
    drop((node, there));
    let node = start_stepped(dir.path(), &clock, two_partitions);
    check_sealed(node, dir.path(), &clock, "a", &content);
}

#[test]
fn a_tenant_with_more_labels_than_there_is_memory_to_read_them_opens_again() {
    // decoding a record takes 100 KiB: less than half of the replay's memory in the first case, and more than half in
    // the second
    for (flush_bytes, is_narrowed) in [(512 << 10, false), (256 << 10, true)] {
        check_many_labels(flush_bytes, is_narrowed);
    }
}

/// Reopens a tenant that has 1000 series of 300 bytes in each partition. The replay may use half of `flush_bytes`.
fn check_many_labels(flush_bytes: u64, is_narrowed: bool) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let (a, mut content) = (tenant("a"), Content::new());
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    content.extend(write_stepped_of(&node, &a, clock.now_ms()));
    flush_stepped(&mut node, &clock);
    for round in 0..2 {
        clock.advance(1000);
        for batch in 0..20 {
            let mut encoder = V1Encoder::new();
            for i in 0..100 {
                let long = format!("{batch}-{i}-{}", "x".repeat(300));
                let labels = Labels::from_pairs(&[("__name__", "m"), ("long", &long)]);
                encoder.series(labels.as_ref(), &[clock.now_ms()], &[f64::from(round)]);
                content.insert((labels.to_string(), clock.now_ms()), f64::from(round).to_bits());
            }
            assert_eq!(send_stepped(&node, &a, encoder.finish().to_vec()), 100);
        }
    }
    drop(node);
    std::fs::remove_file(dir.path().join("floodmarks.json")).unwrap();
    let broken = Broken::new(dir.path(), "a");
    let mut node = start_stepped(dir.path(), &clock, |settings| {
        two_partitions(settings);
        settings.budget.flush_bytes = flush_bytes;
    });
    assert!(is_closed(&node, "a"));
    broken.mend();
    seal_until(&mut node, &clock, |node| !is_closed(node, "a"));
    let replayed = node.node().node.writes().metrics.replayed_samples.get();
    assert_eq!(replayed > 2 * 2000, is_narrowed, "{replayed}: samples come again only if a pass is narrowed");
    assert!(replayed >= 2 * 2000, "{replayed}");
    check_sealed(node, dir.path(), &clock, "a", &content);
}

/// A round renames the journal while some tenant still has passes left from the node's previous run.
#[test]
fn a_new_name_leaves_open_passes_under_the_old_one() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let ([a, b], mut content) = (["a", "b"].map(tenant), Content::new());
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    write_stepped_of(&node, &b, clock.now_ms());
    flush_stepped(&mut node, &clock);
    let (body, written) = days_of("scattered", 10_000..10_150);
    send_stepped(&node, &a, body);
    content.extend(written);
    let _flush = node.flush();
    node.node().node.reads().lake.faults.die_at_the(2, "before_commit");
    seal_times(&mut node, 3);
    // in the other tenant's table, a different journal with the same name has come further
    let lake = &node.node().node.reads().lake;
    for number in 0..2 {
        let (source, table) = (lake.mark(number).source, lake.table(&b).unwrap());
        let after = lake.settled_floodmark(&b, &source).unwrap().map(|floodmark| floodmark.upto);
        let block = tables::StagedBlock { source, after, upto: 1_000_000, through: None, files: Vec::new() };
        table.commit(&[block], 0).unwrap();
    }
    drop(node);
    let mut node = start_stepped(dir.path(), &clock, two_partitions);
    let source = node.node().node.reads().lake.mark(0).source;
    write_stepped_of(&node, &b, clock.now_ms());
    node.node().node.reads().lake.faults.die_at("before_commit");
    let _flush = node.flush();
    seal_times(&mut node, 3);
    assert_ne!(node.node().node.reads().lake.mark(0).source, source, "the journal was not renamed");
    drop(node);
    let node = start_stepped(dir.path(), &clock, two_partitions);
    check_sealed(node, dir.path(), &clock, "a", &content);
}
