//! The words of the domain, in reading order. No I/O, no async, no serde.
//!
//! - [`tenant`]: the owner of data; [`principal`]: the caller's tenant and rights
//! - [`labels`]: the sorted label set that names a series, in one canonical byte form
//! - [`series`]: keys and references of series
//! - [`sample`]: a value at a time; staleness
//! - [`statistic`]: aggregates of a series' samples over an interval
//! - [`batch`]: one request of one tenant, decoded
//! - [`caps`]: every limit on input
//! - [`error`]: what is wrong with a series, and what the sender should do about it

pub mod batch;
pub mod caps;
pub mod error;
pub mod labels;
pub mod principal;
pub mod sample;
pub mod series;
pub mod statistic;
pub mod tenant;

pub use batch::{Batch, BatchMetadata, BatchSeries, Exemplar, Metadata, MetadataRef, MetricKind};
pub use error::{ErrorKind, SeriesError};
pub use labels::{Labels, LabelsBuilder, LabelsRef};
pub use principal::{Principal, Rights};
pub use sample::{STALE_NAN_BITS, Samples, TimeRange};
pub use series::{SeriesHasher, SeriesKey, SeriesRef};
pub use statistic::Statistic;
pub use tenant::TenantId;
