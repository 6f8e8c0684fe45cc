//! Holds the record that is being replayed. Its memory is reserved before it is allocated.

use journal::{DecodeMemory, Record, RecordError};
use stdx::budget::Reservation;

/// If a record takes more memory than this, its memory is freed at once instead of being reused. All partitions
/// replay in parallel and share the limit.
const KEPT_BYTES: usize = 1 << 20;

/// Upper bound on the memory that one metadata entry or one exemplar takes.
const EXTRA_BYTES: usize = 128;

#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) record: Record,
    memory: Reservation,
}

pub(super) struct ReservedMemory<'a>(pub(super) &'a mut Reservation);

impl DecodeMemory for ReservedMemory<'_> {
    fn reserve(&mut self, bytes: usize) -> bool {
        self.0.resize(self.0.bytes() + bytes as u64).is_ok()
    }
}

impl Buffers {
    pub(super) fn new(memory: Reservation) -> Self {
        Self { record: Record::new(), memory }
    }

    /// Decodes a record. If this fails with [`RecordError::NoRoom`], the buffers give back their memory before the
    /// partition waits, so that partitions cannot wait for each other forever.
    pub(super) fn decode(&mut self, payload: &[u8]) -> Result<(), RecordError> {
        let decoded = self.record.decode_within(payload, &mut ReservedMemory(&mut self.memory));
        if matches!(decoded, Err(RecordError::NoRoom { .. })) {
            self.give_back();
        }
        decoded
    }

    /// Called after a record was processed. Frees the memory of large records.
    pub(super) fn settle(&mut self) {
        let Record { metadata, exemplars, .. } = &self.record;
        let holds = self.record.memory_bytes() + (metadata.capacity() + exemplars.capacity()) * EXTRA_BYTES;
        if holds > KEPT_BYTES {
            self.give_back();
        } else if self.memory.bytes() > holds as u64 {
            self.memory.resize(holds as u64).expect("BUG: a reservation cannot shrink");
        }
    }

    pub(super) fn give_back(&mut self) {
        self.record = Record::new();
        self.memory.resize(0).expect("BUG: a reservation cannot shrink");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::RecordEncoder;
    use model::{SeriesRef, TenantId};
    use stdx::budget::Account;

    #[test]
    fn large_records_are_paid_for_and_given_back() {
        let record = |samples: i64| {
            let mut encoder = RecordEncoder::new();
            encoder.begin(&TenantId::anonymous());
            (0..samples).for_each(|i| encoder.sample(SeriesRef(1), i, 0.5));
            encoder.finish().to_vec()
        };
        let account = Account::new("replay", 3 << 20);
        let mut buffers = Buffers::new(account.reserve(0).unwrap());
        for (samples, kept) in [(100, true), (90_000, false), (1_000, true)] {
            buffers.decode(&record(samples)).unwrap();
            assert!(account.used_bytes() >= buffers.record.memory_bytes() as u64);
            buffers.settle();
            assert_eq!(account.used_bytes() > 0, kept, "{samples}");
        }
        let other = account.reserve(2 << 20).unwrap();
        assert!(matches!(buffers.decode(&record(90_000)), Err(RecordError::NoRoom { .. })));
        assert_eq!(account.used_bytes(), other.bytes(), "a waiting replay holds no memory");
        drop(other);
        buffers.decode(&record(90_000)).unwrap();
    }
}
