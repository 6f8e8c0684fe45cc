//! What a series costs in memory, and where.

use super::fleet;
use super::shapes::{self, Shape};
use crate::TenantHead;
use model::SeriesKey;

/// Where the bytes of a head lie.
#[derive(Debug)]
pub struct MemoryReport {
    /// Series in the head.
    pub series: usize,
    /// What the head says of itself, part by part.
    pub parts: Vec<(&'static str, usize)>,
    /// Kept, so that the process can be measured while it lives.
    pub head: Box<TenantHead>,
}

/// Makes a head of `series` series of ten labels, with `scrapes` samples each.
pub fn build_fleet(series: usize, scrapes: usize) -> MemoryReport {
    let mut head = Box::new(TenantHead::new(fleet::SEED));
    fleet::each_series(series, |_, labels| {
        head.create(SeriesKey::of(labels.as_bytes(), fleet::SEED), labels);
    });
    let refs: Vec<_> = (0..series as u32).map(model::SeriesRef).collect();
    let mut values: Vec<_> = (0..series as u64).map(|i| shapes::Values::new(Shape::Mix, i)).collect();
    for scrape in 0..scrapes {
        for (refs, values) in refs.chunks(2000).zip(values.chunks_mut(2000)) {
            let column: Vec<f64> = values.iter_mut().map(shapes::Values::next).collect();
            head.append(refs, &vec![shapes::scrape_ms(scrape); refs.len()], &column, 1);
        }
    }
    MemoryReport { series, parts: head.memory_parts().to_vec(), head }
}
