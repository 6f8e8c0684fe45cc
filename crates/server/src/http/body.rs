//! Reads request bodies, and reserves their memory as they arrive.

use crate::listen::patience::Patience;
use crate::refusal::Refusal;
use axum::body::Body;
use http_body_util::BodyExt;
use stdx::budget::{Account, Exhausted, Reservation};
use tokio::time::{Instant, timeout_at};

#[derive(Debug)]
pub(crate) struct BodyReader<'a> {
    pub(crate) account: &'a Account,
    pub(crate) bytes_max: usize,
    pub(crate) step_bytes: usize,
    /// Time to wait for the client. Bytes that arrive extend it.
    pub(crate) patience: Patience,
}

#[derive(Debug)]
pub(crate) enum BodyError {
    Memory(Exhausted),
    TooSlow,
    /// The body is larger than allowed. The number is a lower bound on its size in bytes.
    TooLarge(u64),
    Broken(String),
}

impl From<Exhausted> for BodyError {
    fn from(full: Exhausted) -> Self {
        Self::Memory(full)
    }
}

impl BodyReader<'_> {
    pub(crate) async fn read(mut self, mut body: Body) -> Result<(Vec<u8>, Reservation), BodyError> {
        let mut memory = self.account.reserve(self.step_bytes as u64)?;
        let mut bytes = Vec::new();
        loop {
            let deadline = self.patience.waits(Instant::now());
            let frame = timeout_at(deadline, body.frame()).await.map_err(|_| BodyError::TooSlow)?;
            let Some(frame) = frame else { return Ok((bytes, memory)) };
            let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            self.patience.moved(data.len(), Instant::now());
            self.make_room(&mut bytes, data.len(), &mut memory)?;
            bytes.extend_from_slice(&data);
        }
    }

    /// Makes room in `bytes` for `more` bytes, and reserves the memory.
    ///
    /// Beyond `step_bytes`, a body of a tenant that holds at least as much as is free may grow only while a third of the account
    /// stays free for others, so that large bodies that never end leave room for small ones.
    pub(crate) fn make_room(
        &self,
        bytes: &mut Vec<u8>,
        more: usize,
        memory: &mut Reservation,
    ) -> Result<(), BodyError> {
        let len = bytes.len() + more;
        if len > self.bytes_max {
            return Err(BodyError::TooLarge(len as u64));
        }
        if len <= bytes.capacity() {
            return Ok(());
        }
        let old = bytes.capacity();
        let new = len.max(old + old / 4).next_multiple_of(self.step_bytes).min(self.bytes_max);
        // while the bytes are copied, the old and the new buffer exist at the same time
        let held = (old + new) as u64;
        let whole = self.account.whole();
        let (used, limit) = (whole.used_bytes(), whole.limit_bytes() / 3 * 2);
        // the last third is closed only to tenants that hold as much as is free or more, so that they cannot stop the bodies of others
        let holds_what_is_free = self.account.used_bytes() >= whole.limit_bytes().saturating_sub(used);
        if old > 0 && holds_what_is_free && used + (held - memory.bytes().min(held)) > limit {
            let full = Exhausted {
                account: self.account.name(),
                asked_bytes: held,
                used_bytes: used.saturating_sub(memory.bytes()),
                limit_bytes: limit,
                share_bytes: None,
            };
            return Err(full.into());
        }
        memory.resize(held)?;
        bytes.reserve_exact(new - bytes.len());
        Ok(memory.resize(new as u64)?)
    }
}

impl BodyError {
    pub(crate) fn refusal(self, bytes_max: usize, body_timeout_s: f64, transfer_rate: u64) -> Refusal {
        match self {
            Self::Memory(full) => full.into(),
            Self::TooSlow => Refusal::busy(
                "body_timeout",
                format!(
                    "the body did not arrive within {body_timeout_s} s (setting body_timeout), plus 1 s for each {} KiB of its size \
                     (setting transfer_rate)",
                    transfer_rate >> 10
                ),
            ),
            Self::TooLarge(bytes) => Refusal::too_large(
                "body_size",
                format!("body of {bytes} bytes or more is too large, the limit is {bytes_max}"),
            ),
            Self::Broken(error) => Refusal::invalid("body", format!("cannot read the body: {error}")),
        }
    }
}

#[cfg(test)]
mod tests;
