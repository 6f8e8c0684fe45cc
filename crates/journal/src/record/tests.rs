use super::*;
use model::Labels;

pub(super) fn labels(i: usize) -> Labels {
    let (name, pod) = (format!("metric_{}", i % 50), format!("pod-{}", i / 50));
    let mut pairs = vec![("__name__", name.as_str()), ("job", "checkout"), ("pod", pod.as_str())];
    let le = format!("{}", i % 7);
    if i.is_multiple_of(3) {
        pairs.push(("le", &le));
    }
    Labels::from_pairs(&pairs)
}

#[test]
fn round_trips() {
    let tenant = TenantId::parse("team-a").unwrap();
    let mut encoder = RecordEncoder::new();
    let mut record = Record::new();
    for n in [0usize, 1, 2, 200] {
        encoder.begin(&tenant);
        assert!(encoder.is_empty());
        let all: Vec<Labels> = (0..n).map(labels).collect();
        for (i, labels) in all.iter().enumerate() {
            encoder.define(SeriesRef(i as u32 * 3), labels.as_ref());
            encoder.sample(SeriesRef(i as u32 * 3), 1_000 + i as i64, i as f64 / 3.0);
        }
        record.decode(encoder.finish()).unwrap();
        assert_eq!(record.tenant, tenant);
        let back: Vec<_> = record.definitions.iter().map(|(r, l)| (r.0, l.to_owned())).collect();
        let expected: Vec<_> = all.into_iter().enumerate().map(|(i, l)| (i as u32 * 3, l)).collect();
        assert_eq!(back, expected);
        assert_eq!(record.refs.len(), n);
        assert_eq!(record.timestamps, (0..n as i64).map(|i| 1000 + i).collect::<Vec<_>>());
        assert_eq!(record.values, (0..n).map(|i| i as f64 / 3.0).collect::<Vec<_>>());
    }
}
