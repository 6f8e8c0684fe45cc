use crate::conform::{scratch, small_segments};
use journal::faulty::{flip_bit, segment_files};
use journal::files::inspect;
use journal::{Files, Journal, RecordEncoder};
use model::{Labels, SeriesRef, TenantId};
use std::fs;
use stdx::rng::Rng;

fn write(journal: &mut Files, records: u32) {
    let mut encoder = RecordEncoder::new();
    for i in 0..records {
        journal.begin().unwrap();
        encoder.begin(&TenantId::anonymous());
        let labels = Labels::from_pairs(&[("__name__", "m"), ("i", &i.to_string())]);
        encoder.define(SeriesRef(i), labels.as_ref());
        encoder.sample(SeriesRef(i), 1, 1.0);
        encoder.sample(SeriesRef(i), 2, 2.0);
        journal.append(encoder.finish()).unwrap();
        journal.sync().unwrap();
    }
}

fn reports(dir: &std::path::Path) -> Vec<inspect::SegmentReport> {
    let mut reports = Vec::new();
    inspect::inspect(dir, 0, |report| reports.push(report)).unwrap();
    reports
}

#[test]
fn inspect_reports_the_contents_of_segments() {
    let dir = scratch();
    let mut journal = Files::open(dir.path(), 0, small_segments()).unwrap();
    write(&mut journal, 200);
    let all = reports(dir.path());
    assert_eq!(inspect::partitions(dir.path()).unwrap(), [0]);
    assert_eq!(all.iter().map(|r| r.records).sum::<u64>(), 200);
    assert_eq!(
        all.iter().map(|r| (r.series, r.samples)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (200, 400)
    );
    assert!(all.iter().all(|r| r.damaged == 0 && r.unreadable == 0 && r.dictionary.is_some()));
    assert!(all.windows(2).all(|w| w[0].offsets.end == w[1].offsets.start), "offsets without a gap");
    assert_eq!(all.last().unwrap().offsets.end, journal.durable_end().0);
}

#[test]
fn records_are_read_with_their_offsets_and_dictionaries() {
    let dir = scratch();
    let mut journal = Files::open(dir.path(), 0, small_segments()).unwrap();
    write(&mut journal, 200);
    assert_eq!(inspect::id(dir.path(), 0).unwrap(), Some(journal.identity().id()));
    let dictionaries: Vec<_> = reports(dir.path()).into_iter().map(|r| (r.offsets, r.dictionary)).collect();
    assert!(dictionaries.len() > 1, "one segment");
    let mut next = 0;
    inspect::records(dir.path(), 0, |offset, dictionary, record| {
        assert_eq!(offset.0, next);
        let segment = dictionaries.iter().find(|(offsets, _)| offsets.contains(&next)).unwrap();
        assert_eq!(segment.1, Some(dictionary));
        assert_eq!((record.definitions.len(), record.timestamps.as_slice()), (1, &[1, 2][..]));
        next += 1;
    })
    .unwrap();
    assert_eq!(next, 200);
}

#[test]
fn inspect_reports_damage_and_changes_nothing() {
    let dir = scratch();
    let mut journal = Files::open(dir.path(), 0, small_segments()).unwrap();
    write(&mut journal, 50);
    drop(journal);
    let file = segment_files(dir.path(), 0).unwrap().remove(0);
    let mut rng = Rng::announced();
    for at in [1040, 1060, 1100, 1110] {
        flip_bit(&file, at..at + 8, &mut rng).unwrap();
    }
    let before = fs::read(&file).unwrap();
    let all = reports(dir.path());
    assert!(all[0].damaged > 0, "{:?}", all[0]);
    assert_eq!(all[0].damage.len() as u64, all[0].damaged);
    assert_eq!(fs::read(&file).unwrap(), before);
}
