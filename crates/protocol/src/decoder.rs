//! The trait of all decoders.

use crate::{Body, DecodeError};
use model::Batch;
use stdx::budget::{IncrementalReservation, Reservation};

#[derive(Debug, Clone, Copy)]
pub struct Request<'a, F> {
    /// The variant of the protocol, such as the version of remote write. `()` if the protocol has only one.
    pub format: F,
    pub body: Body<'a>,
}

/// Decodes the requests of one protocol. A decoder keeps its working memory between requests. To be fast, it
/// hashes the bytes of labels without parsing them. The caller parses the labels of a series only if the
/// series is new, with [`labels_of`](crate::labels::labels_of). If the message itself is damaged, the whole
/// request fails. If only one series is invalid, that series is left out ([`Batch::refuse`]).
pub trait Decoder: Send + 'static {
    type Format: std::fmt::Debug + Copy + Send + 'static;

    /// Whether the rules on Graphite's names apply to the series.
    const HAS_GRAPHITE_NAMES: bool = false;

    fn new(seed: u64) -> Self;

    /// Decodes a request into `batch`, which must be empty. Memory is reserved before the decoder or the
    /// batch grows.
    fn fill(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError>;

    fn memory_bytes(&self) -> usize;

    /// Replaces the contents of `batch` with those of a request. Before the decoder or the batch grows,
    /// `memory` is enlarged accordingly. It never shrinks. After an error, the batch is empty.
    fn decode(
        &mut self,
        request: Request<'_, Self::Format>,
        batch: &mut Batch,
        memory: &mut Reservation,
    ) -> Result<(), DecodeError> {
        batch.clear();
        let filled = self.fill(request, batch, &mut IncrementalReservation::new(memory));
        if filled.is_err() {
            batch.clear();
        }
        filled
    }
}
