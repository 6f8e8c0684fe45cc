//! What the process' allocator tells about the heap.

use std::fmt::Debug;
use std::sync::Arc;
use stdx::telemetry::Registry;

/// The allocator of the process. The binary, which chose it, supplies this.
pub trait Allocator: Debug + Send + Sync {
    /// Numbers of the heap as they are now; `None` if the allocator keeps none. Takes less than a millisecond.
    fn statistics(&self) -> Option<HeapStatistics>;
}

/// Numbers of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapStatistics {
    /// Allocations that live, those that threads keep ready included.
    pub objects: u64,
    /// Bytes of these allocations.
    pub allocated_bytes: u64,
    /// Bytes that the allocator holds in RAM: those, what lies between them, and its own.
    pub resident_bytes: u64,
}

/// Registers the numbers of the heap, if the allocator keeps them.
pub(crate) fn register(allocator: &Arc<dyn Allocator>, r: &Registry) {
    if allocator.statistics().is_none() {
        return;
    }
    let gauge = |name, help, read: fn(HeapStatistics) -> u64| {
        let allocator = Arc::clone(allocator);
        let value = move || allocator.statistics().map_or(f64::NAN, |heap| read(heap) as f64);
        r.gauge_fn(name, help, &[], value);
    };
    gauge("floodmark_heap_objects", "Allocations that live.", |heap| heap.objects);
    gauge("floodmark_heap_allocated_bytes", "Bytes of allocations that live.", |heap| heap.allocated_bytes);
    gauge("floodmark_heap_resident_bytes", "Bytes in RAM that the allocator holds.", |heap| {
        heap.resident_bytes
    });
}
