use crate::refusal::Refusal;
use bytes::Bytes;
use model::{BatchId, StreamName, TenantId};
use stdx::budget::Reservation;
use tokio::sync::oneshot;

/// Memory of a batch besides its payload.
pub(crate) const BATCH_BYTES: usize = 512;

/// Memory that a record takes while it becomes a row of a file, besides its values.
pub(crate) const ROW_BYTES: usize = 40;

/// Records of one stream that came in one request.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) tenant: TenantId,
    pub(crate) stream: StreamName,
    /// Identifies the batch if the client repeats it.
    pub(crate) id: Option<BatchId>,
    pub(crate) arrival_us: i64,
    pub(crate) records: u32,
    /// A record of the journal, see [`journal::records`].
    pub(crate) payload: Bytes,
    pub(crate) memory: Reservation,
}

/// The batches of a request. They are in one group of the journal.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) batches: Vec<Batch>,
    pub(crate) reply: oneshot::Sender<Result<Stored, Refusal>>,
}

/// What became of batches that are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Number of records in the batches that are stored.
    pub(crate) records: u32,
    /// True if all batches were stored before, so that they were not stored again.
    pub(crate) was_known: bool,
}
