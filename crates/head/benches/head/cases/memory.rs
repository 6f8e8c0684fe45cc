//! Memory per series, by part.

use super::fleet;
use super::shapes::{self, Shape, Values};
use head::{Partition, TenantHead};
use model::{SeriesKey, SeriesRef, TenantId};

#[derive(Debug)]
pub(crate) struct MemoryReport {
    pub(crate) series: usize,
    pub(crate) parts: Vec<(&'static str, usize)>,
    /// Kept until the caller has measured the memory of the process.
    pub(crate) head: Box<TenantHead>,
}

/// Makes a head of `series` series with `scrapes` samples each.
pub(crate) fn build_fleet(series: usize, scrapes: usize) -> MemoryReport {
    let mut head = Box::new(TenantHead::new(fleet::SEED));
    fleet::each_series(series, |_, labels| {
        head.create(SeriesKey::of(labels.as_bytes(), fleet::SEED), labels);
    });
    let refs: Vec<_> = (0..series as u32).map(SeriesRef).collect();
    for scrape in 0..scrapes {
        // computes values only when needed, because a list of all values would count as resident memory even
        // after it is freed
        let value = |s: &SeriesRef| Values::new(Shape::Mix, s.0.into()).nth(scrape);
        for refs in refs.chunks(fleet::METRICS) {
            let values: Vec<f64> = refs.iter().map(value).collect();
            head.append(refs, &vec![shapes::scrape_ms(scrape); refs.len()], &values, 1);
        }
    }
    MemoryReport { series, parts: head.memory_parts().to_vec(), head }
}

/// Makes a partition of `count` tenants with one series and one sample each.
pub(crate) fn build_tenants(count: usize) -> Partition {
    let mut partition = Partition::new(fleet::SEED);
    for number in 0..count {
        let tenant = TenantId::parse(&format!("tenant-{number}")).expect("BUG: a name of letters and digits");
        let head = partition.tenant_mut(&tenant);
        fleet::each_series(1, |_, labels| {
            let series = head.create(SeriesKey::of(labels.as_bytes(), fleet::SEED), labels);
            head.append(&[series], &[shapes::scrape_ms(0)], &[1.0], 1);
        });
    }
    partition
}
