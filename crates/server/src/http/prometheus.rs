//! Prometheus' HTTP API for readers, and the export of raw samples.

pub(super) mod admission;
pub(super) mod export;
pub(super) mod metadata;
pub(super) mod query;
pub(super) mod query_threads;
