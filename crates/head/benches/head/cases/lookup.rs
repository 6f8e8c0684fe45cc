//! Finding known series by key, and creating new ones.

use super::{Case, Prepared, fleet};
use head::{Index, TenantHead};
use model::{LabelsRef, SeriesKey, SeriesRef};
use stdx::rng::Rng;

pub(super) const CASES: &[Case] = &[
    Case { name: "lookup/index/random/10k", unit: "lookup", prepare: |s| index(s.of(10_000)) },
    Case { name: "lookup/index/random/200k", unit: "lookup", prepare: |s| index(s.of(200_000)) },
    Case { name: "lookup/index/random/1M", unit: "lookup", prepare: |s| index(s.of(1_000_000)) },
    Case { name: "lookup/resolve/scrape/10k", unit: "lookup", prepare: |s| resolve(s.of(10_000)) },
    Case { name: "lookup/resolve/scrape/200k", unit: "lookup", prepare: |s| resolve(s.of(200_000)) },
    Case { name: "lookup/resolve/scrape/1M", unit: "lookup", prepare: |s| resolve(s.of(1_000_000)) },
    Case { name: "lookup/miss/200k", unit: "lookup", prepare: |s| miss(s.of(200_000)) },
    Case { name: "create/10 labels/200k", unit: "series", prepare: |s| create(s.of(200_000)) },
];

fn shuffled(mut keys: Vec<SeriesKey>) -> Vec<SeriesKey> {
    let mut rng = Rng::new(1);
    for i in (1..keys.len()).rev() {
        keys.swap(i, rng.below(i as u64 + 1) as usize);
    }
    keys
}

fn filled(keys: &[SeriesKey]) -> Index {
    let mut index = Index::default();
    keys.iter().enumerate().for_each(|(i, key)| index.insert(*key, SeriesRef(i as u32)));
    index
}

fn index(series: usize) -> Prepared {
    let keys = fleet::keys(series);
    let index = filled(&keys);
    let bytes = index.memory_bytes();
    let keys = shuffled(keys);
    Prepared::new(series, move || {
        keys.iter().map(|key| u64::from(index.get(*key).expect("BUG: a known key").0)).sum()
    })
    .with_bytes(bytes)
}

/// Looks up keys in scrape order, which is random in the index.
fn resolve(series: usize) -> Prepared {
    let (head, _) = fleet::head(series);
    let keys = fleet::keys(series);
    Prepared::new(series, move || {
        keys.iter().map(|key| u64::from(head.resolve(*key).expect("BUG: a known key").0)).sum()
    })
}

fn miss(series: usize) -> Prepared {
    let index = filled(&fleet::keys(series));
    let strangers: Vec<_> = (0..series).map(|i| SeriesKey::of(&i.to_le_bytes(), fleet::SEED)).collect();
    Prepared::new(series, move || strangers.iter().filter(|key| index.get(**key).is_some()).count() as u64)
}

/// Each run fills a new head and frees it.
fn create(series: usize) -> Prepared {
    let (mut bytes, mut all) = (Vec::new(), Vec::new());
    fleet::each_series(series, |_, labels| {
        let start = bytes.len();
        bytes.extend_from_slice(labels.as_bytes());
        all.push((SeriesKey::of(labels.as_bytes(), fleet::SEED), start..bytes.len()));
    });
    let (head, _) = fleet::head(series);
    let memory = head.memory_bytes();
    Prepared::new(series, move || {
        let mut head = TenantHead::new(fleet::SEED);
        for (key, range) in &all {
            head.create(*key, LabelsRef::from_canonical(&bytes[range.clone()]));
        }
        head.series_count() as u64
    })
    .with_bytes(memory)
}
