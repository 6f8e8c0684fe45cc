//! Types of the domain, in reading order. No I/O, no async, no serde.
//!
//! - [`tenant`], [`tenant_set`], [`tenant_patterns`]: names of tenants; [`principal`]: the caller's tenant
//!   and rights
//! - [`labels`]: the label set that names a series, in one canonical byte form
//! - [`series`]: keys and references of series
//! - [`sample`]: timestamped values; staleness
//! - [`values`]: columns of values; [`histogram`]: native histograms
//! - [`statistic`]: aggregates of a series' samples over an interval
//! - [`accumulator`]: adds up points with delta temporality; [`exponential`]: those of exponential histograms
//! - [`batch`]: one decoded request
//! - [`records`]: records in columns; [`stream_name`]: names of datastreams
//! - [`caps`]: limits on input
//! - [`error`]: kinds of errors; [`series_refusal`]: refusals of single series

pub mod accumulator;
pub mod batch;
pub mod caps;
pub mod error;
pub mod exponential;
pub mod histogram;
pub mod labels;
pub mod principal;
pub mod records;
pub mod sample;
pub mod series;
pub mod series_refusal;
pub mod statistic;
pub mod stream_name;
pub mod tenant;
pub mod tenant_patterns;
pub mod tenant_set;
pub mod values;

pub use accumulator::{Accumulator, Increment};
pub use batch::{
    Batch, BatchExponential, BatchIncrement, BatchMetadata, BatchSeries, Exemplar, ExponentialTotals,
    Metadata, MetadataRef, MetricKind, SeriesBatch, TotalsPart, TotalsPlace, TotalsRoom,
};
pub use error::ErrorKind;
pub use exponential::{Exponential, ExponentialSum};
pub use histogram::Histogram;
pub use labels::{Labels, LabelsBuilder, LabelsRef};
pub use principal::{Principal, Rights};
pub use records::{
    Attribute, AttributeKind, AttributeValue, AttributeValues, BatchId, PutError, Records, RecordsBuilder,
    Texts, TooManyAttributes,
};
pub use sample::{STALE_NAN_BITS, Samples, SeriesSamples, TimeRange};
pub use series::{SeriesHasher, SeriesKey, SeriesRef};
pub use series_refusal::SeriesRefusal;
pub use statistic::Statistic;
pub use stream_name::{StreamName, StreamNameError};
pub use tenant::{TenantError, TenantId};
pub use tenant_patterns::TenantPatterns;
pub use tenant_set::{TenantSet, TenantSetError};
pub use values::{Value, ValueKind, Values, ValuesRef};
