//! The limit on the memory of one query, and arrays whose memory counts until they are dropped.

use crate::error::SqlError;
use crate::run::{Interrupt, Observer};
use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayData, ArrayRef, make_array};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what operators reserve. A reservation beyond the limit fails, and with it the query.
pub(crate) struct Pool {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    observer: Arc<dyn Observer>,
    interrupt: Arc<dyn Interrupt>,
}

impl Pool {
    pub(crate) fn new(
        limit_bytes: usize,
        observer: Arc<dyn Observer>,
        interrupt: Arc<dyn Interrupt>,
    ) -> Self {
        Self { limit_bytes, used_bytes: AtomicUsize::new(0), observer, interrupt }
    }

    fn report(&self) {
        self.observer.holds(self.used_bytes.load(Ordering::Relaxed));
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &'static str {
        "query"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        // what was allocated already; further reservations fail
        self.used_bytes.fetch_add(additional, Ordering::Relaxed);
        self.report();
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        self.used_bytes.fetch_sub(shrink, Ordering::Relaxed);
        self.report();
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if self.interrupt.is_set() {
            return Err(SqlError::Canceled.into());
        }
        let used = &self.used_bytes;
        let grown = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(additional).filter(|sum| *sum <= self.limit_bytes)
        });
        match grown {
            Ok(_) => {
                self.report();
                Ok(())
            }
            Err(used) => Err(DataFusionError::ResourcesExhausted(format!(
                "{} asked for {additional} bytes more, and {used} of {} bytes are in use",
                reservation.consumer().name(),
                self.limit_bytes
            ))),
        }
    }

    fn reserved(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit_bytes)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("limit_bytes", &self.limit_bytes)
            .field("used_bytes", &self.used_bytes)
            .finish()
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query")
    }
}

/// A buffer with the reservation for its memory.
struct Held {
    buffer: Buffer,
    #[expect(dead_code, reason = "held for its drop")]
    memory: Arc<MemoryReservation>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

/// The same array, which keeps a reservation until the last piece of it is dropped.
pub(crate) fn hold(array: &dyn Array, memory: &Arc<MemoryReservation>) -> Result<ArrayRef> {
    Ok(make_array(hold_data(&array.to_data(), memory)?))
}

fn hold_data(data: &ArrayData, memory: &Arc<MemoryReservation>) -> Result<ArrayData, ArrowError> {
    let hold = |buffer: &Buffer| {
        let held = Held { buffer: buffer.clone(), memory: Arc::clone(memory) };
        Buffer::from(Bytes::from_owner(held))
    };
    let buffers = data.buffers().iter().map(hold).collect();
    let children = data.child_data().iter().map(|child| hold_data(child, memory));
    let children = children.collect::<Result<Vec<_>, _>>()?;
    data.clone().into_builder().buffers(buffers).child_data(children).build()
}
