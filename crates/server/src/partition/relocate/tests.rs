//! Relocation of samples to the journal's end, and recovery if the node crashes meanwhile.

use super::*;
use crate::seal::blocked::tests::Broken;
use crate::seal::tests::{
    Content, flush_stepped, read_of, rows_of, seal_times, send_stepped, start_stepped, write_stepped_of,
};
use crate::settings::Settings;
use crate::sim::{Simulated, Stepped};
use crate::write_path::tests::histograms::{content_of, read_blocking, submit_both};
use model::Labels;
use protocol::encode::V1Encoder;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use stdx::clock::{Clock, ManualClock};

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn settings(settings: &mut Settings) {
    settings.partitions = 1;
    settings.segment_bytes = 64 << 10;
}

fn start(dir: &Path, clock: &Arc<ManualClock>) -> Simulated {
    start_stepped(dir, clock, settings)
}

fn write_row(node: &Simulated, tenant: &TenantId, from_ms: i64, count: i64, content: &mut Content) {
    let labels = Labels::from_pairs(&[("__name__", "row")]);
    let timestamps: Vec<_> = (from_ms..from_ms + count).collect();
    let values: Vec<_> = timestamps.iter().map(|t| (*t as f64).sqrt()).collect();
    let mut encoder = V1Encoder::new();
    encoder.series(labels.as_ref(), &timestamps, &values);
    assert_eq!(send_stepped(node, tenant, encoder.finish().to_vec()), count as u64);
    let samples = timestamps.iter().zip(&values);
    content.extend(samples.map(|(t, v)| ((labels.to_string(), *t), v.to_bits())));
}

/// Starts a node with a blocked tenant. Some of the tenant's samples are frozen, and some arrived later, partly at
/// the same timestamps but with different values.
fn behind(dir: &Path, clock: &Arc<ManualClock>) -> (Simulated, Broken, Content) {
    let (mut node, a, mut content) = (start(dir, clock), tenant("a"), Content::new());
    let base_ms = clock.now_ms() - 100_000;
    content.extend(write_stepped_of(&node, &a, base_ms));
    let _flush = node.flush();
    seal_times(&mut node, 3);
    let broken = Broken::new(dir, "a");
    write_row(&node, &a, base_ms, 30_000, &mut content);
    content.extend(write_stepped_of(&node, &a, base_ms + 1));
    let _flush = node.flush();
    seal_times(&mut node, 3);
    write_row(&node, &a, base_ms + 30_000, 60_000, &mut content);
    content.extend(write_stepped_of(&node, &a, base_ms + 2));
    let labels = Labels::from_pairs(&[("__name__", "row")]);
    for (timestamp_ms, value) in [(base_ms + 5, 7.0), (base_ms + 30_005, 8.0)] {
        let mut encoder = V1Encoder::new();
        encoder.series(labels.as_ref(), &[timestamp_ms], &[value]);
        assert_eq!(send_stepped(&node, &a, encoder.finish().to_vec()), 1);
        content.insert((labels.to_string(), timestamp_ms), value.to_bits());
    }
    (node, broken, content)
}

fn ask(node: &Stepped, name: &str) -> Receiver<Relocated> {
    let (reply, answer) = sync_channel(1);
    let relocate = Relocate { tenants: BTreeSet::from([tenant(name)]), reply };
    node.node.writes().commands[0].send(crate::partition::Command::Relocate(relocate)).unwrap();
    answer
}

fn head_bytes(node: &Simulated) -> u64 {
    node.node().node.writes().heads.bytes()
}

#[test]
fn histograms_move_with_the_floats_of_their_tenant() {
    for turns in [2, 100] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
        let mut node = start(dir.path(), &clock);
        let (base_ms, mut times) = (clock.now_ms() - 100_000, Vec::new());
        let mut write = |node: &Simulated, count| {
            for _ in 0..count {
                times.push(base_ms + times.len() as i64);
                submit_both(&node.node().node, &format!("a {0}\nb {0}", times[times.len() - 1]));
                node.node().turn(0);
            }
        };
        write(&node, 200);
        // tables cannot store histograms, so the tenant is blocked
        let _flush = node.flush();
        seal_times(&mut node, 3);
        write(&node, 100);
        let expected = content_of([("a", times.clone()), ("b", times)]);
        assert_eq!(read_blocking(&node.node().node), expected);
        let answer = ask(node.node(), TenantId::anonymous().as_str());
        (0..turns).for_each(|_| node.node().turn(0));
        assert_eq!(answer.try_recv().is_ok_and(|relocated| relocated.from.is_some()), turns == 100);
        assert_eq!(read_blocking(&node.node().node), expected);
        let before = head_bytes(&node);
        drop(node);
        let node = start(dir.path(), &clock);
        assert_eq!(read_blocking(&node.node().node), expected, "after {turns} turns");
        let after = head_bytes(&node);
        assert!(after <= before + before / 10, "{after} bytes after {turns} turns, {before} before");
    }
}

/// The process dies during the relocation, or after it but before `floodmarks.json` records it.
#[test]
fn samples_relocated_twice_by_a_crash_are_replayed_once() {
    for turns in [1, 2, 100] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
        let (node, broken, content) = behind(dir.path(), &clock);
        let answer = ask(node.node(), "a");
        (0..turns).for_each(|_| node.node().turn(0));
        assert_eq!(answer.try_recv().is_ok_and(|relocated| relocated.from.is_some()), turns == 100);
        assert_eq!(read_of(&node.node().node, &tenant("a")), content);
        let before = head_bytes(&node);
        drop(node);
        let mut node = start(dir.path(), &clock);
        let after = head_bytes(&node);
        assert!(after <= before + before / 10, "{after} bytes after {turns} turns, {before} before");
        broken.mend();
        assert_eq!(read_of(&node.node().node, &tenant("a")), content);
        flush_stepped(&mut node, &clock);
        assert_eq!(read_of(&node.node().node, &tenant("a")), content);
        drop(node);
        let node = start(dir.path(), &clock);
        assert_eq!(
            node.node().node.writes().metrics.replayed_samples.get(),
            0,
            "all samples are in the table"
        );
        assert_eq!(read_of(&node.node().node, &tenant("a")), content);
        // one row for each of the 50 series that were sealed first, and for each of the 51 series that were sealed
        // afterwards
        assert!(rows_of(&node.node().node, &tenant("a")) <= 50 + 51);
    }
}

#[test]
fn only_writes_of_the_relocated_tenant_are_refused() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let (node, _broken, mut content) = behind(dir.path(), &clock);
    let answer = ask(node.node(), "a");
    let mut refused = 0;
    while answer.try_recv().is_err() {
        let mut written =
            node.node().write(&tenant("a"), crate::seal::tests::request_of(clock.now_ms()).0).unwrap();
        write_stepped_of(&node, &tenant("b"), clock.now_ms());
        for (_, answer) in written.answers() {
            match answer {
                Ok(_) => panic!("the sample would be in no copy, but count as sealed"),
                Err(refusal) => assert_eq!(refusal.reason, "table_unwritable", "{refusal:?}"),
            }
            refused += 1;
        }
        clock.advance(1);
    }
    assert!(refused > 0);
    content.extend(write_stepped_of(&node, &tenant("a"), clock.now_ms()));
    assert_eq!(read_of(&node.node().node, &tenant("a")), content);
}

#[test]
fn a_tenant_that_cannot_be_sealed_does_not_keep_the_journal_of_others() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::at(1_777_000_000_000)));
    let (mut node, broken, mut content) = behind(dir.path(), &clock);
    let (mut in_b, mut written) = (Content::new(), 0);
    let journal_bytes = |node: &Simulated| {
        node.node().node.reads().partitions[0].journal_bytes.load(std::sync::atomic::Ordering::Relaxed)
    };
    let (begin, mut most) = (journal_bytes(&node), 0);
    for round in 0..40 {
        clock.advance(60_000);
        write_row(&node, &tenant("b"), clock.now_ms() - 5000, 5000, &mut in_b);
        written += 5000;
        if round % 8 == 0 {
            content.extend(write_stepped_of(&node, &tenant("a"), clock.now_ms()));
        }
        let _flush = node.flush();
        seal_times(&mut node, 3);
        most = most.max(journal_bytes(&node));
    }
    let lake = Arc::clone(&node.node().node.reads().lake);
    let relocations = lake.sealing.relocations.get();
    assert!((1..=8).contains(&relocations), "{relocations} relocations");
    let bound = 4 * begin + (256 << 10);
    assert!(most < bound, "{most} bytes of {begin} at first; {written} samples were sealed");
    assert_eq!(read_of(&node.node().node, &tenant("a")), content);
    // the samples survive a crash, and are sealed once the table can be written
    drop((node, lake));
    let mut node = start(dir.path(), &clock);
    broken.mend();
    assert_eq!(read_of(&node.node().node, &tenant("a")), content);
    flush_stepped(&mut node, &clock);
    content.extend(write_stepped_of(&node, &tenant("a"), clock.now_ms()));
    flush_stepped(&mut node, &clock);
    assert_eq!(read_of(&node.node().node, &tenant("a")), content);
    assert_eq!(read_of(&node.node().node, &tenant("b")), in_b);
    assert!(rows_of(&node.node().node, &tenant("a")) <= 50 + 51 + 50);
    assert!(journal_bytes(&node) < 64 << 10, "the journal was not truncated");
}
