//! Prometheus' HTTP API for readers, and the export of raw samples.

pub(super) mod cardinality;
pub(super) mod export;
pub(super) mod metadata;
pub(super) mod query;
