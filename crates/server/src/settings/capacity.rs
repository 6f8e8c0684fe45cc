//! Derives default limits of tenants from what the node can hold.
//!
//! A tenant that is alone may use all of it. If several tenants want more than there is, their shares bind earlier
//! (`docs/operating.md#tenants`), and these depend on who else is there.

use super::reader::Reader;
use super::table;
use crate::limits::budget::Budget;
use head::SERIES_BYTES_MIN;

/// What the node can hold at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Capacity {
    /// Series that fit into the head if each takes as little memory as possible. So memory is used up before.
    pub(super) series: usize,
    pub(super) write_requests: usize,
    pub(super) inflight_bytes: u64,
    pub(super) queries: usize,
    pub(super) query_bytes: u64,
    pub(super) query_samples: usize,
}

/// Memory of a sample in a query.
const SAMPLE_BYTES: u64 = 16;

/// The least value of the setting `query_memory`.
pub(crate) const QUERY_BYTES_MIN: u64 = 64 << 10;

impl Capacity {
    /// `write_requests` is how many write requests may be in progress, `queries` how many queries may run, and `inflight_bytes`
    /// the memory of the write requests.
    pub(super) fn of(budget: &Budget, write_requests: usize, inflight_bytes: u64, queries: usize) -> Self {
        let query_bytes = budget.query_share_bytes(queries).max(QUERY_BYTES_MIN);
        Self {
            series: usize::try_from(budget.head_bytes / SERIES_BYTES_MIN as u64).unwrap_or(usize::MAX),
            write_requests,
            inflight_bytes,
            queries,
            query_bytes,
            query_samples: usize::try_from(query_bytes / SAMPLE_BYTES).unwrap_or(usize::MAX),
        }
    }

    /// Records where the limits come from.
    pub(super) fn explain(&self, reader: &mut Reader<'_>) {
        let Self { series, query_bytes, .. } = self;
        let of_head = format!(
            "the head ({} MiB) has room for {series} series of {SERIES_BYTES_MIN} bytes",
            (*series * SERIES_BYTES_MIN) >> 20
        );
        let in_a_second = format!("{of_head}; a tenant may fill it once a second");
        let in_one_metric = format!("{of_head}, and all may have the same name");
        reader.explain(&table::ACTIVE_SERIES, &of_head);
        reader.explain(&table::SERIES_PER_METRIC, &in_one_metric);
        reader.explain(&table::NEW_SERIES_PER_SECOND, &in_a_second);
        reader
            .explain(&table::CONCURRENT_WRITES, "the larger one of inflight_requests and creating_requests");
        reader.explain(&table::INFLIGHT_BYTES, "the account `inflight`");
        reader.explain(&table::CONCURRENT_QUERIES, "query_concurrency");
        reader.explain(&table::QUERY_MEMORY, "half of the account `query`, divided by query_concurrency + 1");
        let samples = format!("{SAMPLE_BYTES} bytes each, in {} KiB", query_bytes >> 10);
        reader.explain(&table::QUERY_SAMPLES, &samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Given, Settings};
    use admission::watermarks;

    /// The head of the smallest node takes the 117,360 series of the published benchmark of carbon within five seconds.
    #[test]
    fn no_default_limit_binds_before_the_node_is_full() {
        for memory in ["64MiB", "512MiB", "64GiB"] {
            let settings = Settings::resolve(&Given::default().flag("memory", memory)).unwrap();
            let limits = &settings.tenants.general.limits;
            let head_bytes = settings.budget.head_bytes;
            let series = limits.active_series.unwrap() as u64;
            assert!(series * SERIES_BYTES_MIN as u64 > head_bytes / 100 * watermarks::REFUSE_ABOVE_SHARE);
            assert_eq!(limits.series_per_metric, limits.active_series);
            assert_eq!(limits.binding_series_per_metric(), None);
            let unlimited = Given::default().flag("memory", memory).flag("active_series", "none");
            let unlimited = Settings::resolve(&unlimited).unwrap().tenants.general.limits;
            assert_eq!(unlimited.binding_series_per_metric(), None, "nothing is counted by default");
            assert!(limits.new_series_per_second.unwrap() * 5 > 2 * 117_360, "{memory}");
            assert!(limits.concurrent_writes.unwrap() >= settings.inflight_requests_max);
            assert!(limits.concurrent_writes.unwrap() >= settings.creating_requests_max);
            assert_eq!(limits.inflight_bytes, Some(settings.budget.inflight_bytes));
            assert_eq!(limits.concurrent_queries, Some(settings.query_concurrency));
            let query_bytes = settings.budget.query_share_bytes(settings.query_concurrency);
            assert!(limits.query_memory_bytes.unwrap() >= query_bytes);
            assert!(limits.query_samples.unwrap() as u64 >= query_bytes / SAMPLE_BYTES);
            // rates of requests, samples and bytes have no capacity
            assert!(limits.requests_rate().or(limits.samples_rate()).or(limits.bytes_rate()).is_none());
        }
        let many = Given::default().flag("memory", "64MiB").flag("query_concurrency", "1024");
        let limits = Settings::resolve(&many).unwrap().tenants.general.limits;
        assert_eq!(limits.query_memory_bytes, Some(QUERY_BYTES_MIN));
    }
}
