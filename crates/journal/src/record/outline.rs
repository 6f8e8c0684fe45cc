//! Finds out which series a record refers to, without decoding the rest of it.

use super::columns::{deltas, skip_deltas, skip_histograms, skip_values};
use super::definitions::Unpacked;
use super::wire::Cursor;
use super::{
    Body, DecodeMemory, RECORD_SAMPLES_MAX, RecordError, extras, read_tenant, read_version, series_ref,
};
use model::{SeriesRef, TenantId, ValueKind};

/// The series that a record refers to. It accepts all records that [`super::Record::decode`] accepts, and
/// some invalid ones. The same outline can decode one record after the other.
#[derive(Debug)]
pub struct Outline {
    pub tenant: TenantId,
    /// See [`super::Record::is_deleted`].
    pub is_deleted: bool,
    /// True if the record says that exemplars in earlier records of the tenant no longer apply. It refers to their series by
    /// labels.
    pub deletes_exemplars: bool,
    pub defined: Vec<SeriesRef>,
    pub sampled: Vec<SeriesRef>,
    pub exemplars: Vec<SeriesRef>,
    unpacked: Unpacked,
}

impl Default for Outline {
    fn default() -> Self {
        Self {
            tenant: TenantId::anonymous(),
            is_deleted: false,
            deletes_exemplars: false,
            defined: Vec::new(),
            sampled: Vec::new(),
            exemplars: Vec::new(),
            unpacked: Unpacked::default(),
        }
    }
}

impl Outline {
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes untrusted bytes. Asks `memory` before it allocates. After an error, the outline is empty.
    pub fn decode(&mut self, payload: &[u8], memory: &mut dyn DecodeMemory) -> Result<(), RecordError> {
        let decoded = self.try_decode(&mut Cursor::new(payload), memory);
        if decoded.is_err() {
            self.clear();
        }
        decoded
    }

    fn clear(&mut self) {
        self.is_deleted = false;
        self.deletes_exemplars = false;
        self.defined.clear();
        self.sampled.clear();
        self.exemplars.clear();
    }

    fn try_decode(
        &mut self,
        cursor: &mut Cursor<'_>,
        memory: &mut dyn DecodeMemory,
    ) -> Result<(), RecordError> {
        let content = read_version(cursor)?;
        read_tenant(cursor, &mut self.tenant)?;
        self.clear();
        let kind = match content {
            Body::Batch(kind) | Body::Summed(kind, _) => kind,
            Body::Deleted => {
                self.is_deleted = true;
                return Ok(());
            }
            Body::DeletedExemplars => {
                self.deletes_exemplars = true;
                return Ok(());
            }
        };
        let body = self.unpacked.section(cursor, memory)?;
        if !body.is_empty() {
            let mut body = Cursor::new(body);
            let count = body.count(body.rest.len())?;
            memory.reserve_for(&self.defined, count)?;
            deltas(&mut body, count, &mut self.defined, series_ref)?;
        }
        let count = cursor.count(RECORD_SAMPLES_MAX)?;
        if count > 0 {
            memory.reserve_for(&self.sampled, count)?;
            deltas(cursor, count, &mut self.sampled, series_ref)?;
            skip_deltas(cursor, count)?;
            match kind {
                ValueKind::Float => skip_values(cursor, count)?,
                ValueKind::Histogram => skip_histograms(cursor, count)?,
            }
        }
        extras::skip_metadata(cursor)?;
        extras::exemplar_refs(cursor, &mut self.exemplars, memory)
    }
}
