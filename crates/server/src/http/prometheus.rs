//! Prometheus' HTTP API for readers, and the export of raw samples.

pub(super) mod active_queries;
pub(super) mod admission;
pub(super) mod cardinality;
mod description;
pub(super) mod export;
pub(super) mod metadata;
pub(super) mod query;
pub(super) mod query_log;
pub(super) mod query_threads;
pub(super) mod running_queries;
