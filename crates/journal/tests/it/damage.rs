//! Damages segment files at random, and compares what can still be read with what was written.

use crate::conform::{scratch, small_segments};
use journal::faulty::{flip_bit, segment_files, tear};
use journal::{Damage, DictionaryId, Files, Item, Journal, Offset, Options};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use stdx::rng::Rng;

/// See `docs/formats/journal.md`.
const RECORDS_START: u64 = 1024;
const FRAME_HEADER_BYTES: u64 = 32;

#[derive(Debug, Default)]
struct Read {
    records: BTreeMap<u64, (DictionaryId, Vec<u8>)>,
    damage: Vec<Damage>,
}

fn read(journal: &Files) -> Read {
    let mut found = Read::default();
    let mut reader = journal.read(Offset(0)).unwrap();
    let mut next = 0;
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Entry(entry) => {
                assert!(entry.offset.0 >= next, "a record is out of order or repeated");
                next = entry.offset.0 + 1;
                found.records.insert(entry.offset.0, (entry.dictionary, entry.payload.to_vec()));
            }
            Item::Damage(damage) => found.damage.push(damage),
        }
    }
    found
}

fn place_of(damage: &Damage) -> (&Path, Range<usize>) {
    let Some((segment, bytes)) = damage.place.split_once(": bytes ") else {
        return (Path::new(&damage.place), 0..0);
    };
    let (from, to) = bytes.split_once(" to ").unwrap();
    (Path::new(segment), from.parse().unwrap()..to.parse().unwrap())
}

fn lost(damage: &[Damage]) -> impl Fn(u64) -> bool + use<> {
    let ranges: Vec<Range<u64>> = damage.iter().map(|d| d.lost.clone()).collect();
    move |offset| ranges.iter().any(|range| range.contains(&offset))
}

fn random_payload(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(10) {
        0 => 0,
        1 => 2000,
        _ => rng.below(200),
    };
    // many of these bytes are zero, and some of them look like the start of a header
    (0..len).map(|_| (rng.below(4) * rng.below(3)) as u8).collect()
}

fn write_group(journal: &mut Files, rng: &mut Rng) -> Vec<Vec<u8>> {
    let group: Vec<Vec<u8>> = (0..1 + rng.below(5)).map(|_| random_payload(rng)).collect();
    journal.begin().unwrap();
    for payload in &group {
        journal.append(payload).unwrap();
    }
    journal.sync().unwrap();
    group
}

/// Describes a segment file as it was before it was damaged.
struct Layout {
    path: PathBuf,
    len: u64,
    records: Vec<(u64, Range<u64>)>,
}

fn layouts(dir: &Path, written: &[Vec<u8>]) -> Vec<Layout> {
    let files = segment_files(dir, 0).unwrap();
    let first = |path: &Path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let ends = files.iter().skip(1).map(|p| first(p)).chain([written.len() as u64]);
    let layout = |(path, end): (&PathBuf, u64)| {
        let mut at = RECORDS_START;
        let mut place = |offset: u64| {
            let start = at;
            at += FRAME_HEADER_BYTES + written[offset as usize].len() as u64;
            (offset, start..at)
        };
        let records = (first(path)..end).map(&mut place).collect();
        Layout { path: path.clone(), len: fs::metadata(path).unwrap().len(), records }
    };
    files.iter().zip(ends).map(layout).collect()
}

fn damage_file(layout: &Layout, rng: &mut Rng) -> Range<u64> {
    let len = layout.len;
    let file = File::options().write(true).open(&layout.path).unwrap();
    let start = rng.below(len);
    let end = (start + 1 + rng.below(400)).min(len);
    match rng.below(6) {
        0 | 1 => {
            let at = flip_bit(&layout.path, 0..len, rng).unwrap();
            at..at + 1
        }
        2 => {
            file.set_len(start).unwrap();
            start..len
        }
        3 => {
            file.write_all_at(&vec![0; (end - start) as usize], start).unwrap();
            start..end
        }
        4 => {
            let garbage: Vec<u8> = (start..end).map(|_| rng.next_u64() as u8).collect();
            file.write_all_at(&garbage, start).unwrap();
            start..end
        }
        _ => {
            // overwrites the bytes by others of the same file, which may include whole records
            let bytes = fs::read(&layout.path).unwrap();
            let from = rng.below(len - (end - start) + 1) as usize;
            file.write_all_at(&bytes[from..from + (end - start) as usize], start).unwrap();
            start..end
        }
    }
}

/// True if both copies of the header were changed, so that no record can be read.
fn headless(touched: &[Range<u64>]) -> bool {
    let hit = |copy: Range<u64>| touched.iter().any(|t| t.start < copy.end && copy.start < t.end);
    hit(0..64) && hit(512..576)
}

fn damaged_journal_reads_the_rest(seed: u64) {
    let mut rng = Rng::new(seed);
    let dir = scratch();
    let options = Options { seed, ..small_segments() };
    let mut journal = Files::open(dir.path(), 0, options.clone()).unwrap();
    let mut written = Vec::new();
    for _ in 0..10 + rng.below(30) {
        written.extend(write_group(&mut journal, &mut rng));
    }
    drop(journal);

    let layouts = layouts(dir.path(), &written);
    let newest = layouts.len() - 1;
    let mut touched: BTreeMap<usize, Vec<Range<u64>>> = BTreeMap::new();
    for _ in 0..1 + rng.below(3) {
        let victim = rng.below(layouts.len() as u64) as usize;
        if fs::metadata(&layouts[victim].path).unwrap().len() == layouts[victim].len {
            touched.entry(victim).or_default().push(damage_file(&layouts[victim], &mut rng));
        }
    }

    let mut journal = Files::open(dir.path(), 0, options.clone()).unwrap();
    let found = read(&journal);
    for (offset, (_, payload)) in &found.records {
        assert_eq!(
            Some(payload),
            written.get(*offset as usize),
            "seed {seed}: record {offset} was never written"
        );
    }
    let is_lost = lost(&found.damage);
    for (i, layout) in layouts.iter().enumerate() {
        let touched = touched.get(&i).map_or(&[][..], Vec::as_slice);
        for (offset, bytes) in &layout.records {
            let hit = touched.iter().any(|t| t.start < bytes.end && bytes.start < t.end);
            let here = found.records.contains_key(offset);
            assert!(here || hit || headless(touched), "seed {seed}: untouched record {offset} is lost");
            let cut = i == newest && *offset >= journal.durable_end().0;
            assert!(here || is_lost(*offset) || cut, "seed {seed}: record {offset} is lost and not reported");
        }
    }
    for damage in &found.damage {
        let copy = damage.copy.as_ref().map(|path| fs::read(path).unwrap());
        let (segment, range) = place_of(damage);
        let original = fs::read(segment).unwrap();
        let bytes = original.get(range.start..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(range.len())];
        assert_eq!(copy.as_deref().unwrap_or_default(), bytes, "seed {seed}: the quarantined copy differs");
    }

    // the damage is not counted again when it is read again
    let stats = journal.stats();
    let again = read(&journal);
    assert_eq!((again.records.len(), again.damage), (found.records.len(), found.damage), "seed {seed}");
    assert_eq!(stats, journal.stats());

    let end = journal.durable_end().0;
    let more = write_group(&mut journal, &mut rng);
    let all = read(&journal);
    for (offset, payload) in (end..).zip(more) {
        assert_eq!(all.records[&offset].1, payload, "seed {seed}");
    }
}

#[test]
fn random_damage() {
    for seed in 0..300 {
        damaged_journal_reads_the_rest(seed);
    }
}

#[test]
fn no_single_wrong_byte_loses_anything() {
    let mut rng = Rng::new(1);
    for _ in 0..500 {
        let dir = scratch();
        let files = three_segments(dir.path());
        let file = &files[rng.below(3) as usize];
        let at = flip_bit(file, 0..fs::metadata(file).unwrap().len(), &mut rng).unwrap();
        let journal = Files::open(dir.path(), 0, small_segments()).unwrap();
        let found = read(&journal);
        let payloads: Vec<_> = found.records.values().map(|(_, payload)| payload.clone()).collect();
        assert_eq!(payloads, (0..15).map(|i| vec![i % 5; 50]).collect::<Vec<_>>(), "byte {at} of {file:?}");
        let in_a_record = at >= RECORDS_START;
        assert_eq!(journal.stats().repaired_records, u64::from(in_a_record));
        assert!(!in_a_record || found.damage[0].repaired && found.damage[0].copy.is_some());
    }
}

/// Repeats a power loss in the middle of a group. Records that were synced must remain. Other records may be
/// there as a whole or be missing, and once one of them was read, its offset must not be used again.
fn power_losses(seed: u64) {
    let mut rng = Rng::new(seed);
    let dir = scratch();
    let options = Options { seed, ..small_segments() };
    let mut known: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for round in 0..12 {
        let context = format!("seed {seed}, round {round}");
        let mut journal = Files::open(dir.path(), 0, options.clone()).unwrap();
        let found = read(&journal);
        let here = found.records.iter().map(|(o, (_, p))| (*o, p.clone())).collect::<BTreeMap<_, _>>();
        assert_eq!(here, known, "{context}");
        for _ in 0..rng.below(6) {
            let first = journal.durable_end().0;
            known.extend((first..).zip(write_group(&mut journal, &mut rng)));
        }
        // the power fails before `sync` returns
        journal.begin().unwrap();
        let newest = segment_files(dir.path(), 0).unwrap().pop().unwrap();
        let first = journal.durable_end().0;
        let group = write_group(&mut journal, &mut rng);
        let frames: u64 = group.iter().map(|p| FRAME_HEADER_BYTES + p.len() as u64).sum();
        drop(journal);
        let durable = fs::metadata(&newest).unwrap().len() - frames;
        if rng.chance(0.5) {
            // the file also has some space that was allocated ahead
            let file = File::options().write(true).open(&newest).unwrap();
            file.set_len(durable + frames + rng.below(5000)).unwrap();
        }
        tear(&newest, durable, &mut rng).unwrap();

        let journal = Files::open(dir.path(), 0, options.clone()).unwrap();
        let found = read(&journal);
        let false_alarm = found.damage.iter().find(|d| d.acknowledged);
        assert_eq!(false_alarm, None, "{context}: unsynced records are reported as acknowledged");
        for (offset, (_, payload)) in found.records.range(first..) {
            assert_eq!(*payload, group[(offset - first) as usize], "{context}");
            known.insert(*offset, payload.clone());
        }
        let kept = known.range(..first).all(|(offset, _)| found.records.contains_key(offset));
        assert!(kept, "{context}: a synced record is lost");
        assert!(journal.durable_end().0 <= first + group.len() as u64);
    }
}

#[test]
fn random_power_losses() {
    for seed in 0..60 {
        power_losses(seed);
    }
}

fn three_segments(dir: &Path) -> Vec<PathBuf> {
    let options = Options { segment_bytes: 1025, ..small_segments() };
    let mut journal = Files::open(dir, 0, options).unwrap();
    for _ in 0..3 {
        journal.begin().unwrap();
        (0..5).for_each(|i| assert!(journal.append(&[i; 50]).is_ok()));
        journal.sync().unwrap();
    }
    segment_files(dir, 0).unwrap()
}

fn check(harm: impl Fn(&[PathBuf]), expected_end: u64, expected: &[(&str, Range<u64>)]) {
    let dir = scratch();
    let files = three_segments(dir.path());
    harm(&files);
    let journal = Files::open(dir.path(), 0, small_segments()).unwrap();
    let found = read(&journal);
    let damage: Vec<(&str, Range<u64>)> = found.damage.iter().map(|d| (d.what, d.lost.clone())).collect();
    assert_eq!(damage, expected);
    assert_eq!(journal.durable_end().0, expected_end);
    let is_lost = lost(&found.damage);
    let all: Vec<u64> = (0..expected_end).filter(|o| !is_lost(*o)).collect();
    assert_eq!(found.records.keys().copied().collect::<Vec<_>>(), all);
    let lost_records: u64 = expected.iter().map(|(_, lost)| lost.end - lost.start).sum();
    assert_eq!(
        (journal.stats().damaged_ranges, journal.stats().lost_records),
        (expected.len() as u64, lost_records)
    );
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

const fn frame(i: u64) -> u64 {
    RECORDS_START + i * (FRAME_HEADER_BYTES + 50)
}

#[test]
fn each_kind_of_damage_is_reported_by_name() {
    let checksum = "a record that fails its checksum";
    let no_header = "no record header";
    check(|_| {}, 15, &[]);
    check(|files| overwrite(&files[0], frame(2) + 40, &[9, 9]), 15, &[(checksum, 2..3)]);
    check(|files| overwrite(&files[1], frame(2) + 3, &[9, 9]), 15, &[(no_header, 7..8)]);
    check(|files| overwrite(&files[1], frame(1), &[9; 164]), 15, &[(no_header, 6..8)]);
    check(|files| overwrite(&files[1], frame(4) + 40, &[9, 9]), 15, &[(checksum, 9..10)]);
    check(|files| overwrite(&files[2], frame(1) + 40, &[9, 9]), 15, &[(checksum, 11..12)]);
    // if the last record of the newest segment is damaged, it looks like a write that was interrupted
    check(|files| overwrite(&files[2], frame(4) + 40, &[9, 9]), 14, &[]);
    check(|files| overwrite(&files[2], frame(0) + 30, &[9; 600]), 10, &[]);
    let cut = |path: &PathBuf, len| File::options().write(true).open(path).unwrap().set_len(len).unwrap();
    check(|files| cut(&files[1], frame(3) + 5), 15, &[(no_header, 8..10)]);
    check(|files| cut(&files[2], frame(3) + 5), 13, &[]);
    check(|files| cut(&files[2], 700), 10, &[]);
    check(|files| cut(&files[2], 0), 10, &[]);
    check(|files| cut(&files[1], 0), 15, &[("a segment with two damaged copies of its header", 5..10)]);
    check(|files| fs::remove_file(&files[1]).unwrap(), 15, &[(no_header, 5..10)]);
    let header = "a damaged copy of the segment's header";
    check(|files| overwrite(&files[1], 20, &[9]), 15, &[(header, 0..0)]);
    check(|files| overwrite(&files[2], 530, &[9]), 15, &[(header, 0..0)]);
    let headless = "a segment with two damaged copies of its header";
    check(|files| overwrite(&files[1], 0, &[9; 1024]), 15, &[(headless, 5..10)]);
    // offsets that the lost records may have had are not assigned again
    check(|files| overwrite(&files[2], 0, &[9; 1024]), 10 + frame(5).div_ceil(32), &[(headless, 10..55)]);
    // a segment that has the name of another one is rejected
    check(|files| fs::copy(&files[0], &files[1]).map(drop).unwrap(), 15, &[(headless, 5..10)]);
}

#[test]
fn a_hole_in_the_last_group_may_never_have_been_acknowledged() {
    let check = |harmed: &[u64], expected: &[(Range<u64>, bool)]| {
        let dir = scratch();
        let mut journal = Files::open(dir.path(), 0, small_segments()).unwrap();
        for _ in 0..3 {
            journal.begin().unwrap();
            (0..2).for_each(|i| assert!(journal.append(&[i; 50]).is_ok()));
            journal.sync().unwrap();
        }
        drop(journal);
        let file = segment_files(dir.path(), 0).unwrap().pop().unwrap();
        harmed.iter().for_each(|i| overwrite(&file, frame(*i) + 40, &[9, 9]));
        let journal = Files::open(dir.path(), 0, small_segments()).unwrap();
        let damage =
            read(&journal).damage.iter().map(|d| (d.lost.clone(), d.acknowledged)).collect::<Vec<_>>();
        assert_eq!(damage, expected);
    };
    check(&[0], &[(0..1, true)]);
    check(&[3], &[(3..4, true)]);
    check(&[2, 3], &[(2..4, true)]);
    check(&[4], &[(4..5, false)]);
    check(&[3, 4], &[(3..5, true)]);
    check(&[5], &[]);
}

#[test]
fn a_torn_end_is_counted_and_copied_before_it_is_cut_off() {
    let dir = scratch();
    let files = three_segments(dir.path());
    overwrite(&files[2], frame(4) + 40, &[9, 9]);
    let torn = fs::read(&files[2]).unwrap()[frame(4) as usize..][..82].to_vec();
    File::options().write(true).open(&files[2]).unwrap().set_len(9000).unwrap();
    let journal = Files::open(dir.path(), 0, small_segments()).unwrap();
    assert_eq!(journal.stats().torn_bytes, 82, "zeros after the torn bytes do not count");
    assert_eq!(fs::metadata(&files[2]).unwrap().len(), frame(4));
    let name = files[2].file_stem().unwrap().to_string_lossy();
    let stem = format!("{name}.{}-{}", frame(4), frame(4) + 82);
    let copy = files[2].parent().unwrap().join("quarantine").join(stem);
    assert_eq!(fs::read(copy.with_added_extension("bytes")).unwrap(), torn);
    let report = fs::read_to_string(copy.with_added_extension("txt")).unwrap();
    assert!(report.contains("cut off"), "{report}");
}

#[test]
fn skipped_offsets_behind_records_count_as_lost() {
    let dir = scratch();
    three_segments(dir.path());
    let mut journal = Files::open(dir.path(), 0, small_segments()).unwrap();
    journal.skip_to(Offset(20)).unwrap();
    journal.begin().unwrap();
    assert_eq!(journal.append(b"x").unwrap(), Offset(20));
    journal.sync().unwrap();
    let found = read(&journal);
    assert_eq!((found.damage.len(), &found.damage[0].lost), (1, &(15..20)));
}

#[test]
fn a_later_version_is_not_touched() {
    let dir = scratch();
    let files = three_segments(dir.path());
    let mut bytes = fs::read(&files[2]).unwrap();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    fs::write(&files[2], &bytes).unwrap();
    let refused = Files::open(dir.path(), 0, small_segments()).unwrap_err();
    assert_eq!(refused.kind(), model::ErrorKind::Unsupported);
    assert!(refused.to_string().ends_with("has journal format version 2, this build reads version 1"));
    assert_eq!(fs::read(&files[2]).unwrap(), bytes);
}

#[test]
fn many_restarts_leave_few_files() {
    let dir = scratch();
    for _ in 0..20 {
        let mut journal = Files::open(dir.path(), 0, small_segments()).unwrap();
        journal.begin().unwrap();
    }
    assert_eq!(segment_files(dir.path(), 0).unwrap().len(), 1);
    // the only files are the segment, the identity and the reserve
    assert!(fs::read_dir(dir.path().join("0")).unwrap().count() <= 3);
}

/// The checksums of the record are right, but it cannot be decoded.
#[test]
fn a_segment_with_an_unreadable_record_is_kept() {
    let dir = scratch();
    let mut journal = Files::open(dir.path(), 0, small_segments()).unwrap();
    for payload in [&b"first"[..], b"unreadable", b"last"] {
        journal.begin().unwrap();
        journal.append(payload).unwrap();
        journal.sync().unwrap();
    }
    let segment = segment_files(dir.path(), 0).unwrap().remove(0);
    let bytes = fs::read(&segment).unwrap();
    for _ in 0..2 {
        let mut reader = journal.read(Offset(0)).unwrap();
        for _ in 0..2 {
            assert!(matches!(reader.next().unwrap(), Some(Item::Entry(_))));
        }
        let damage = reader.quarantine("nonsense");
        assert_eq!((damage.lost.clone(), damage.what, damage.acknowledged), (1..2, "nonsense", true));
        let copy = fs::read(damage.copy.unwrap()).unwrap();
        assert!(copy.ends_with(b"unreadable") && copy.len() as u64 == FRAME_HEADER_BYTES + 10);
        assert!(matches!(reader.next().unwrap(), Some(Item::Entry(e)) if e.payload == b"last"));
    }
    assert_eq!(journal.stats().lost_records, 1, "a second reading does not count the record again");
    for _ in 0..2 {
        journal.end_dictionary();
        journal.begin().unwrap();
        journal.append(b"more").unwrap();
        journal.sync().unwrap();
    }
    journal.truncate(journal.durable_end()).unwrap();
    assert_eq!(segment_files(dir.path(), 0).unwrap().len(), 1);
    let kept = dir.path().join("0/quarantine").join(segment.file_name().unwrap());
    assert!(fs::read(kept).unwrap()[..bytes.len().min(200)] == bytes[..bytes.len().min(200)]);
    let others = fs::read_dir(dir.path().join("0/quarantine")).unwrap();
    let kept = others.filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "journal"));
    assert_eq!(kept.count(), 1, "other segments are dropped");
    drop(journal);
    Files::open(dir.path(), 0, small_segments()).unwrap();
}
