//! Format of a journal record: one accepted batch of one tenant, in columns.
//!
//! ```text
//!   record = u8 version  u8 tenant length  tenant
//!            definitions               see define.rs
//!            varint(samples n)         n > 0: deltas(references)  deltas(timestamps)  values, see columns.rs
//!            metadata  exemplars       see extras.rs
//!            [version 4, 6]  sums      see sums.rs
//!        | u8 version 3  u8 tenant length  tenant        the tenant was deleted
//!        | u8 version 5  u8 tenant length  tenant  delete, see delete.rs
//! ```
//!
//! A series is defined in the first record of a dictionary that uses its [`SeriesRef`]. The values of a
//! record are all floats (versions 1, 4 and 6) or all native histograms (version 2). A record of version 3 says
//! that the metadata, exemplars and sums in earlier records of its tenant no longer apply, a record of version
//! 5 that some exemplars do not.

mod columns;
mod define;
mod definitions;
mod delete;
mod error;
mod extras;
mod memory;
mod outline;
mod sums;
pub(crate) mod wire;

pub use definitions::{Definitions, RECORD_LABEL_BYTES_MAX};
pub use delete::{Condition, DeletedExemplars, Operator};
pub use error::RecordError;
pub use memory::{DecodeMemory, Unlimited};
pub use outline::Outline;

use crate::RECORD_BYTES_MAX;
use define::Definer;
use model::caps::REQUEST_SAMPLES_MAX;
use model::{
    Accumulator, Exemplar, Histogram, LabelsRef, Metadata, SeriesKey, SeriesRef, TenantId, ValueKind, Values,
};
use stdx::varint;
use wire::Cursor;

/// The latest version that this build reads and writes. A record's first byte is its version.
pub const RECORD_VERSION: u8 = VERSION_EXPONENTIAL;

const VERSION_FLOATS: u8 = 1;
const VERSION_HISTOGRAMS: u8 = 2;
const VERSION_DELETED: u8 = 3;
/// Floats and sums. Records without sums have version 1, so that earlier builds can read them.
const VERSION_SUMS: u8 = 4;
const VERSION_DELETED_EXEMPLARS: u8 = 5;
/// Floats and sums, some of which are exponential histograms.
const VERSION_EXPONENTIAL: u8 = 6;

pub const RECORD_SAMPLES_MAX: usize = REQUEST_SAMPLES_MAX;

/// When a record has this much content, [`RecordEncoder::is_full`] returns true. Usual requests are far
/// smaller, but the memory of a replay stays small even if they are not.
const FULL_SAMPLES: usize = 100_000;
const FULL_LABEL_BYTES: usize = 4 << 20;
const FULL_EXTRA_BYTES: usize = 1 << 20;

const FULL_HISTOGRAM_BYTES: usize = 8 << 20;

/// A sample takes at most 5 bytes for the reference, 10 for the timestamp, half a byte for the tag and 8 for
/// the value.
const SAMPLE_BYTES_MAX: usize = 24;

const _: () = assert!(RECORD_SAMPLES_MAX * SAMPLE_BYTES_MAX < RECORD_BYTES_MAX);
const _: () = assert!(
    FULL_SAMPLES * SAMPLE_BYTES_MAX + 2 * FULL_LABEL_BYTES + FULL_EXTRA_BYTES + FULL_HISTOGRAM_BYTES
        < RECORD_BYTES_MAX
);

/// Encodes one record after the other. Its memory is used again for the next one.
#[derive(Debug, Default)]
pub struct RecordEncoder {
    tenant: Option<TenantId>,
    definer: Definer,
    kind: ValueKind,
    refs: Vec<u32>,
    timestamps: Vec<i64>,
    values: Vec<f64>,
    histograms: Vec<u8>,
    metadata_count: u64,
    metadata: Vec<u8>,
    exemplars_count: u64,
    exemplars: Vec<u8>,
    /// Set in records with sums.
    forgotten_ns: Option<u64>,
    sums_count: u64,
    sums: Vec<u8>,
    exponentials_count: u64,
    exponentials: Vec<u8>,
    out: Vec<u8>,
}

impl RecordEncoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a record of `tenant` whose values are floats. The previous record is discarded.
    pub fn begin(&mut self, tenant: &TenantId) {
        self.begin_of(tenant, ValueKind::Float);
    }

    pub fn begin_of(&mut self, tenant: &TenantId, kind: ValueKind) {
        self.kind = kind;
        self.histograms.clear();
        self.definer.clear();
        self.refs.clear();
        self.timestamps.clear();
        self.values.clear();
        self.metadata.clear();
        self.metadata_count = 0;
        self.exemplars.clear();
        self.exemplars_count = 0;
        self.forgotten_ns = None;
        self.sums_count = 0;
        self.sums.clear();
        self.exponentials_count = 0;
        self.exponentials.clear();
        if self.tenant.as_ref() != Some(tenant) {
            self.tenant = Some(tenant.clone());
        }
    }

    /// Defines which series the reference stands for in this dictionary. The labels must be canonical and
    /// have a metric name.
    pub fn define(&mut self, series: SeriesRef, labels: LabelsRef<'_>) {
        debug_assert!(model::labels::is_canonical(labels.as_bytes()), "BUG: labels are not canonical");
        self.definer.define(series, labels);
    }

    pub fn histogram(&mut self, series: SeriesRef, timestamp_ms: i64, value: &Histogram) {
        assert!(self.kind == ValueKind::Histogram, "BUG: a histogram was added to a record of floats");
        self.refs.push(series.0);
        self.timestamps.push(timestamp_ms);
        columns::put_histogram(&mut self.histograms, value);
    }

    /// Returns a record which says that the tenant was deleted, so that the metadata, exemplars and sums in its
    /// earlier records no longer apply. Discards the record that was begun.
    pub fn deleted(&mut self, tenant: &TenantId) -> &[u8] {
        self.begin(tenant);
        self.out.clear();
        self.out.push(VERSION_DELETED);
        put_tenant(&mut self.out, tenant);
        &self.out
    }

    /// Returns a record which says that some exemplars in earlier records of the tenant no longer apply. Discards the record
    /// that was begun.
    pub fn deleted_exemplars(&mut self, tenant: &TenantId, deleted: &DeletedExemplars) -> &[u8] {
        self.begin(tenant);
        self.out.clear();
        self.out.push(VERSION_DELETED_EXEMPLARS);
        put_tenant(&mut self.out, tenant);
        deleted.put(&mut self.out);
        assert!(self.out.len() <= RECORD_BYTES_MAX, "BUG: a delete exceeds the limit on selectors");
        &self.out
    }

    #[inline]
    pub fn sample(&mut self, series: SeriesRef, timestamp_ms: i64, value: f64) {
        debug_assert!(self.kind == ValueKind::Float, "BUG: a float was added to a record of histograms");
        self.refs.push(series.0);
        self.timestamps.push(timestamp_ms);
        self.values.push(value);
    }

    pub fn metadata(&mut self, metadata: &Metadata) {
        self.metadata_count += 1;
        extras::put_metadata(&mut self.metadata, metadata);
    }

    pub fn exemplar(&mut self, series: SeriesRef, exemplar: &Exemplar) {
        self.exemplars_count += 1;
        extras::put_exemplar(&mut self.exemplars, series, exemplar);
    }

    /// Makes the record one with sums. `forgotten_ns`, in nanoseconds since 1970, is not before the end of any increment whose
    /// sum was forgotten.
    pub fn forgotten(&mut self, forgotten_ns: u64) {
        assert!(self.kind == ValueKind::Float, "BUG: sums in a record of histograms");
        self.forgotten_ns = Some(forgotten_ns);
    }

    /// Adds the sum of a series, to a record for which [`Self::forgotten`] was called.
    pub fn sum(&mut self, key: SeriesKey, accumulator: &Accumulator) {
        sums::put(&mut self.sums, key, accumulator);
        if let Some(exponential) = &accumulator.exponential {
            self.exponentials_count += 1;
            sums::put_exponential(&mut self.exponentials, self.sums_count, exponential);
        }
        self.sums_count += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
            && self.definer.is_empty()
            && self.metadata_count + self.exemplars_count + self.sums_count == 0
    }

    /// True if the next series of the batch should go into another record. To be checked before each series.
    pub fn is_full(&self) -> bool {
        self.refs.len() >= FULL_SAMPLES
            || self.definer.label_bytes() >= FULL_LABEL_BYTES
            || self.extra_bytes() >= FULL_EXTRA_BYTES
            || self.histograms.len() >= FULL_HISTOGRAM_BYTES
    }

    const fn extra_bytes(&self) -> usize {
        self.metadata.len() + self.exemplars.len() + self.sums.len() + self.exponentials.len()
    }

    /// Returns the encoded record. Panics if the record is too large for readers, which cannot happen if
    /// [`Self::is_full`] was checked.
    pub fn finish(&mut self) -> &[u8] {
        let tenant = self.tenant.as_ref().expect("BUG: a record was finished that was not begun");
        assert!(self.refs.len() <= RECORD_SAMPLES_MAX, "BUG: a record was filled beyond its limit");
        let out = &mut self.out;
        out.clear();
        out.push(match self.kind {
            ValueKind::Float if self.exponentials_count > 0 => VERSION_EXPONENTIAL,
            ValueKind::Float if self.forgotten_ns.is_some() => VERSION_SUMS,
            ValueKind::Float => VERSION_FLOATS,
            ValueKind::Histogram => VERSION_HISTOGRAMS,
        });
        put_tenant(out, tenant);
        self.definer.finish(out);
        varint::put(out, self.refs.len() as u64);
        if !self.refs.is_empty() {
            columns::put_deltas(out, &self.refs);
            columns::put_deltas(out, &self.timestamps);
            match self.kind {
                ValueKind::Float => columns::put_values(out, &self.values),
                ValueKind::Histogram => out.extend_from_slice(&self.histograms),
            }
        }
        for (count, bytes) in [(self.metadata_count, &self.metadata), (self.exemplars_count, &self.exemplars)]
        {
            varint::put(out, count);
            out.extend_from_slice(bytes);
        }
        if let Some(forgotten_ns) = self.forgotten_ns {
            varint::put(out, forgotten_ns);
            varint::put(out, self.sums_count);
            out.extend_from_slice(&self.sums);
        }
        if self.exponentials_count > 0 {
            varint::put(out, self.exponentials_count);
            out.extend_from_slice(&self.exponentials);
        }
        assert!(out.len() <= RECORD_BYTES_MAX, "BUG: a record was filled beyond its limit");
        out
    }

    pub fn definitions(&self) -> usize {
        self.definer.count()
    }

    pub fn definition_bytes(&self) -> usize {
        self.definer.finished_bytes()
    }

    pub fn memory_bytes(&self) -> usize {
        self.definer.memory_bytes()
            + self.refs.capacity() * 4
            + (self.timestamps.capacity() + self.values.capacity()) * 8
            + self.metadata.capacity()
            + self.exemplars.capacity()
            + self.sums.capacity()
            + self.exponentials.capacity()
            + self.histograms.capacity()
            + self.out.capacity()
    }
}

#[derive(Debug)]
pub struct Record {
    pub tenant: TenantId,
    /// True if the record says that the tenant was deleted. Then it has no other content, and the metadata,
    /// exemplars and sums in earlier records of the tenant no longer apply.
    pub is_deleted: bool,
    /// Exemplars in earlier records of the tenant that no longer apply. If this is set, the record has no other content.
    pub deleted_exemplars: Option<DeletedExemplars>,
    pub definitions: Definitions,
    /// The series of each sample, in the order in which the samples arrived.
    pub refs: Vec<SeriesRef>,
    /// Milliseconds since the Unix epoch. There is one timestamp for each element of `refs`.
    pub timestamps: Vec<i64>,
    /// There is one value for each element of `refs`.
    pub values: Values,
    pub metadata: Vec<Metadata>,
    pub exemplars: Vec<(SeriesRef, Exemplar)>,
    /// The sums of series, which replace those of earlier records.
    pub sums: Vec<(SeriesKey, Accumulator)>,
    /// See [`RecordEncoder::forgotten`]. 0 in records without sums.
    pub forgotten_ns: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            tenant: TenantId::anonymous(),
            is_deleted: false,
            deleted_exemplars: None,
            definitions: Definitions::default(),
            refs: Vec::new(),
            timestamps: Vec::new(),
            values: Values::default(),
            metadata: Vec::new(),
            exemplars: Vec::new(),
            sums: Vec::new(),
            forgotten_ns: 0,
        }
    }
}

impl Record {
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a record from untrusted bytes. After an error, `self` is empty.
    pub fn decode(&mut self, payload: &[u8]) -> Result<(), RecordError> {
        self.decode_within(payload, &mut Unlimited)
    }

    /// Like [`Self::decode`], but asks `memory` before it allocates. Memory that `self` already holds from
    /// earlier records is used again without asking.
    pub fn decode_within(
        &mut self,
        payload: &[u8],
        memory: &mut dyn DecodeMemory,
    ) -> Result<(), RecordError> {
        let decoded = self.try_decode(&mut Cursor::new(payload), memory);
        if decoded.is_err() {
            self.clear();
        }
        decoded
    }

    pub fn clear(&mut self) {
        self.is_deleted = false;
        self.deleted_exemplars = None;
        self.definitions.clear();
        self.clear_samples();
        self.metadata.clear();
        self.exemplars.clear();
        self.clear_sums();
    }

    fn clear_sums(&mut self) {
        self.sums.clear();
        self.forgotten_ns = 0;
    }

    /// True if it has only sums, so that it is of no importance to the head.
    pub fn is_only_sums(&self) -> bool {
        let has_content = self.is_deleted
            || self.deleted_exemplars.is_some()
            || self.definitions.iter().next().is_some()
            || !(self.refs.is_empty() && self.metadata.is_empty() && self.exemplars.is_empty());
        !has_content && (self.forgotten_ns > 0 || !self.sums.is_empty())
    }

    pub fn clear_samples(&mut self) {
        self.refs.clear();
        self.timestamps.clear();
        self.values.truncate(0);
    }

    /// Replaces the reference of each sample by the result of `series_of`. If that is `None`, the sample is
    /// dropped. Returns the number of dropped samples.
    pub fn translate(&mut self, series_of: impl Fn(SeriesRef) -> Option<SeriesRef>) -> usize {
        self.retain(|series, _| match series_of(*series) {
            Some(own) => {
                *series = own;
                true
            }
            None => false,
        })
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&mut SeriesRef, i64) -> bool) -> usize {
        let (count, mut kept) = (self.refs.len(), 0);
        for i in 0..count {
            if !keep(&mut self.refs[i], self.timestamps[i]) {
                continue;
            }
            if kept < i {
                self.refs[kept] = self.refs[i];
                self.timestamps[kept] = self.timestamps[i];
                self.values.keep(i, kept);
            }
            kept += 1;
        }
        self.refs.truncate(kept);
        self.timestamps.truncate(kept);
        self.values.truncate(kept);
        count - kept
    }

    /// Bytes of memory that the record holds, not counting metadata and exemplars.
    pub fn memory_bytes(&self) -> usize {
        self.definitions.memory_bytes()
            + self.refs.capacity() * 4
            + self.timestamps.capacity() * 8
            + self.values.memory_bytes()
            + self.sums.capacity() * size_of::<(SeriesKey, Accumulator)>()
    }

    fn try_decode(
        &mut self,
        cursor: &mut Cursor<'_>,
        memory: &mut dyn DecodeMemory,
    ) -> Result<(), RecordError> {
        let content = read_version(cursor)?;
        read_tenant(cursor, &mut self.tenant)?;
        match content {
            Body::Deleted => {
                self.clear();
                self.is_deleted = true;
            }
            Body::DeletedExemplars => {
                self.clear();
                self.deleted_exemplars = Some(DeletedExemplars::read(cursor, memory)?);
            }
            Body::Batch(kind) | Body::Summed(kind, _) => {
                self.is_deleted = false;
                self.deleted_exemplars = None;
                self.values.clear_for(kind);
                self.definitions.decode(cursor, memory)?;
                self.decode_samples(cursor, memory)?;
                extras::metadata(cursor, &mut self.metadata, memory)?;
                extras::exemplars(cursor, &mut self.exemplars, memory)?;
                self.clear_sums();
                if let Body::Summed(_, has_exponentials) = content {
                    self.forgotten_ns = sums::read(cursor, &mut self.sums, memory)?;
                    if has_exponentials {
                        sums::read_exponentials(cursor, &mut self.sums, memory)?;
                    }
                }
            }
        }
        if cursor.rest.is_empty() {
            Ok(())
        } else {
            Err(RecordError::Malformed("bytes after the end of the record"))
        }
    }

    fn decode_samples(
        &mut self,
        cursor: &mut Cursor<'_>,
        memory: &mut dyn DecodeMemory,
    ) -> Result<(), RecordError> {
        let count = cursor.count(RECORD_SAMPLES_MAX)?;
        self.refs.clear();
        self.timestamps.clear();
        if count > 0 {
            memory.reserve_for(&self.refs, count)?;
            columns::deltas(cursor, count, &mut self.refs, series_ref)?;
            memory.reserve_for(&self.timestamps, count)?;
            columns::deltas(cursor, count, &mut self.timestamps, Ok)?;
            match &mut self.values {
                Values::Floats(values) => {
                    // values are decoded in pairs, so there may be one more
                    memory.reserve_for(values, count + 1)?;
                    columns::values(cursor, count, values)?;
                }
                Values::Histograms(values) => columns::histograms(cursor, count, values, memory)?,
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum Body {
    Batch(ValueKind),
    /// A batch with sums. The second part says whether some of them may be exponential histograms.
    Summed(ValueKind, bool),
    Deleted,
    DeletedExemplars,
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<Body, RecordError> {
    match cursor.byte()? {
        VERSION_FLOATS => Ok(Body::Batch(ValueKind::Float)),
        VERSION_HISTOGRAMS => Ok(Body::Batch(ValueKind::Histogram)),
        VERSION_DELETED => Ok(Body::Deleted),
        VERSION_SUMS => Ok(Body::Summed(ValueKind::Float, false)),
        VERSION_EXPONENTIAL => Ok(Body::Summed(ValueKind::Float, true)),
        VERSION_DELETED_EXEMPLARS => Ok(Body::DeletedExemplars),
        // there was never a version 0, so the bytes are damaged and not from a later version
        0 => Err(RecordError::Malformed("version 0, which does not exist")),
        later => Err(RecordError::Version(later)),
    }
}

fn put_tenant(out: &mut Vec<u8>, tenant: &TenantId) {
    let name = tenant.as_str().as_bytes();
    out.push(u8::try_from(name.len()).expect("BUG: a tenant's name is at most 150 bytes"));
    out.extend_from_slice(name);
}

fn read_tenant(cursor: &mut Cursor<'_>, tenant: &mut TenantId) -> Result<(), RecordError> {
    let len = cursor.byte()?;
    let name = cursor.take(len.into())?;
    if name != tenant.as_str().as_bytes() {
        let name = std::str::from_utf8(name).ok().and_then(|name| TenantId::parse(name).ok());
        *tenant = name.ok_or(RecordError::Malformed("an invalid tenant name"))?;
    }
    Ok(())
}

#[inline]
fn series_ref(number: i64) -> Result<SeriesRef, RecordError> {
    u32::try_from(number)
        .map(SeriesRef)
        .map_err(|_| RecordError::Malformed("a series reference above 32 bits"))
}

#[cfg(test)]
mod tests;
