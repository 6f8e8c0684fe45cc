pub(crate) mod profiles;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use stdx::telemetry::Registry;

/// The allocator of the process. The library does not choose one; the binary passes it in.
pub trait Allocator: Debug + Send + Sync {
    /// Returns `None` if the allocator keeps no statistics. Takes less than a millisecond.
    fn statistics(&self) -> Option<HeapStatistics>;

    /// Writes a profile of the live allocations to a new file, by sampling. Fails if the allocator took no samples.
    fn write_profile(&self, file: &Path) -> io::Result<()>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapStatistics {
    /// Number of live allocations. Freed ones that threads keep for reuse are included.
    pub objects: u64,
    pub allocated_bytes: u64,
    /// Bytes of RAM that the allocator uses: live allocations, gaps between them, and its own data.
    pub resident_bytes: u64,
}

pub(crate) fn register(allocator: &Arc<dyn Allocator>, r: &Registry) {
    if allocator.statistics().is_none() {
        return;
    }
    let gauge = |name, help, read: fn(HeapStatistics) -> u64| {
        let allocator = Arc::clone(allocator);
        let value = move || allocator.statistics().map_or(f64::NAN, |heap| read(heap) as f64);
        r.gauge_fn(name, help, &[], value);
    };
    gauge("floodmark_heap_objects", "Live allocations.", |heap| heap.objects);
    gauge("floodmark_heap_allocated_bytes", "Bytes of live allocations.", |heap| heap.allocated_bytes);
    gauge("floodmark_heap_resident_bytes", "Resident memory that the allocator holds.", |heap| {
        heap.resident_bytes
    });
}
