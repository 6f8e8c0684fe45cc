//! What SQL needs of storage. All functions may block.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use model::ErrorKind;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The tables of one tenant.
pub trait Catalog: Debug + Send + Sync {
    fn names(&self) -> Result<Vec<String>, SourceError>;

    /// Opens a table. A query opens each table once, however often it names it. `memory` is for opening it, and for what it holds
    /// while it is open.
    fn open(&self, name: &str, memory: Memory) -> Result<Option<Arc<dyn Source>>, SourceError>;
}

/// A table at one moment: all its scans return the same rows.
pub trait Source: Debug + Send + Sync {
    fn schema(&self) -> SchemaRef;

    /// Columns by whose values a scan may leave out rows.
    fn times(&self) -> Times;

    fn scan(&self, select: Select) -> Result<Box<dyn Batches>, SourceError>;
}

/// Names of columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// A time in microseconds.
    pub time: Option<&'static str>,
    /// The day of this time, in UTC.
    pub date: Option<&'static str>,
}

/// What a scan should return.
#[derive(Debug)]
pub struct Select {
    /// Names of columns, in the order of the table.
    pub columns: Vec<String>,
    /// First and last wanted time in microseconds. Rows with other times may be left out.
    pub range_us: [i64; 2],
    /// The scan may hold about this many bytes, besides a batch of the same size.
    pub window_bytes: usize,
    /// For what the scan holds beyond this.
    pub memory: Arc<Memory>,
    pub stop: Stop,
}

/// Rows of a scan.
pub trait Batches: Send {
    /// Next rows, with the wanted columns. `None` after the last.
    fn next(&mut self) -> Result<Option<RecordBatch>, SourceError>;

    /// What the scan left out, because it could not be read.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Memory of a query that a source takes. It is free again when this is dropped.
#[derive(Debug)]
pub struct Memory(pub(crate) MemoryReservation);

impl Memory {
    /// Takes this much instead of what was taken before.
    pub fn resize(&self, bytes: usize) -> Result<(), SourceError> {
        self.0.try_resize(bytes).map_err(|error| match error {
            DataFusionError::ResourcesExhausted(message) => SourceError::Memory(message),
            _ => SourceError::Stopped,
        })
    }
}

/// Tells scans that their query has ended.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// What the table consisted of when it was opened is gone. The same query can succeed if the table is opened again.
    #[error("the table has changed while it was read; try again")]
    Expired,
    #[error("the query was canceled")]
    Stopped,
    #[error("{0}")]
    Memory(String),
    #[error("{message}")]
    Failed { kind: ErrorKind, message: String },
}
