//! Dependencies of queries.

use crate::limits::headroom::Headroom;
use crate::limits::pacer::Traffic;
use crate::partition::shared::Partitions;
use crate::seal::Lake;
use std::sync::Arc;
use stdx::budget::Account;
use stdx::clock::Clock;

/// Dependencies of queries.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) clock: Arc<dyn Clock>,
    /// Seed of series keys.
    pub(crate) seed: u64,
    pub(crate) lake: Arc<Lake>,
    pub(crate) partitions: Arc<Partitions>,
    /// Memory of query forms, and of answers until they are sent.
    pub(crate) answers: Account,
    /// Memory pressure of the whole process.
    pub(crate) headroom: Arc<Headroom>,
    /// Write requests in progress, to which queries yield.
    pub(crate) traffic: Arc<Traffic>,
}
