//! Format of a record of a streams journal: one accepted batch of records of one datastream, in compressed columns.
//!
//! ```text
//!   batch = u8 version
//!           u8 tenant length  tenant   u8 stream length  stream
//!           varint arrival, µs since 1970
//!           u8 0 | u8 1  16 bytes id
//!           varint records   varint memory, bytes
//!           varint raw length   varint packed length    0: the columns are not packed
//!           columns, packed as an LZ4 block             see columns.rs
//! ```
//!
//! The journal of a partition has either such records or those of [`crate::record`], not both. Versions of both are counted
//! apart, so that neither is mistaken for the other. Besides batches, there are records with ids of batches ([`ids`]).
//!
//! The memory that a batch takes after decoding is a part of the record ([`records_memory`]), so that the caller can reserve
//! it first. Nothing in a record is trusted: decoding fails before it would take more.

mod columns;
mod error;
pub mod ids;

pub use error::BatchError;
pub use ids::{StoredId, StoredIds};

use crate::record::wire::Cursor;
use crate::{JournalError, RECORD_BYTES_MAX};
use columns::{Columns, put_columns};
use model::caps::{BATCH_ATTRIBUTES_MAX, REQUEST_RECORDS_MAX, STREAM_BYTES_MAX, TENANT_BYTES_MAX};
use model::{Records, StreamName, TenantId};
use stdx::varint;

/// The latest version that this build reads and writes.
pub const BATCH_VERSION: u8 = 129;

/// The version of records with ids of batches.
const IDS_VERSION: u8 = 130;

/// The versions of [`crate::record`] are below.
const VERSION_MIN: u8 = 129;

const _: () = assert!(crate::record::RECORD_VERSION < VERSION_MIN);
const _: () = assert!(TENANT_BYTES_MAX <= u8::MAX as usize);
const _: () = assert!(STREAM_BYTES_MAX <= u8::MAX as usize);

/// Limit on the columns of a batch before they are packed.
const RAW_BYTES_MAX: usize = 256 << 20;

/// Columns are not packed if that saves less than this part of them.
const SAVED_PART_MIN: usize = 16;

/// What is known of a batch without decoding its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchHeader {
    pub tenant: TenantId,
    pub stream: StreamName,
    /// When the batch arrived, in microseconds since the Unix epoch.
    pub arrival_us: i64,
    /// Hash of the key that the sender gave the batch, so that it is stored once.
    pub id: Option<[u8; 16]>,
    /// Number of records.
    pub records: u32,
}

/// What a record of a streams journal is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Batch(BatchHeader),
    Ids(StoredIds),
}

/// How the columns of a batch are stored.
#[derive(Debug, Clone, Copy)]
struct Packing<'a> {
    memory_bytes: usize,
    raw_bytes: usize,
    is_packed: bool,
    bytes: &'a [u8],
}

/// Appends a batch to `out`. Besides, this takes up to [`encode_memory`] bytes.
///
/// The header's number of records must be that of the records, which are within the limits of [`model::caps`]. Fails if the
/// batch is too large for a journal.
pub fn encode(out: &mut Vec<u8>, header: &BatchHeader, records: &Records) -> Result<(), JournalError> {
    assert!(header.records as usize == records.len(), "BUG: the header has another number of records");
    assert!(records.len() <= REQUEST_RECORDS_MAX, "BUG: a batch has {} records", records.len());
    assert!(records.attributes.len() <= BATCH_ATTRIBUTES_MAX, "BUG: a batch has too many attributes");
    let mut raw = Vec::with_capacity(columns::bytes_max(records));
    put_columns(&mut raw, records);
    if raw.len() > RAW_BYTES_MAX {
        return Err(JournalError::TooLarge { bytes: raw.len() });
    }
    let start = out.len();

    out.push(BATCH_VERSION);
    put_name(out, header.tenant.as_str());
    put_name(out, header.stream.as_str());
    varint::put(out, header.arrival_us as u64);
    match header.id {
        None => out.push(0),
        Some(id) => {
            out.push(1);
            out.extend_from_slice(&id);
        }
    }
    varint::put(out, records.len() as u64);
    varint::put(out, columns::memory_bytes(records) as u64);
    varint::put(out, raw.len() as u64);
    let mut packed = vec![0; lz4_flex::block::get_maximum_output_size(raw.len())];
    let length =
        lz4_flex::block::compress_into(&raw, &mut packed).expect("BUG: the room for a block is too small");
    if length <= raw.len() - raw.len() / SAVED_PART_MIN && length > 0 {
        varint::put(out, length as u64);
        out.extend_from_slice(&packed[..length]);
    } else {
        varint::put(out, 0);
        out.extend_from_slice(&raw);
    }
    match out.len() - start {
        0..=RECORD_BYTES_MAX => Ok(()),
        bytes => Err(JournalError::TooLarge { bytes }),
    }
}

/// Upper bound on the memory that [`encode`] takes, together with the bytes that it appends.
pub fn encode_memory(records: &Records) -> usize {
    let raw = columns::bytes_max(records);
    let header = 4 * varint::BYTES_MAX + TENANT_BYTES_MAX + STREAM_BYTES_MAX + 32;
    raw + 2 * lz4_flex::block::get_maximum_output_size(raw) + header
}

/// Decodes a record, but not the records of a batch.
pub fn read_content(bytes: &[u8]) -> Result<Content, BatchError> {
    match bytes {
        [IDS_VERSION, rest @ ..] => ids::read(&mut Cursor::new(rest)).map(Content::Ids),
        _ => decode_header(bytes).map(Content::Batch),
    }
}

/// Decodes what is known of a batch without its records.
pub fn decode_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    read_header(&mut Cursor::new(bytes))
}

/// Upper bound on the memory that [`decode`] takes, of which the records keep most.
pub fn records_memory(bytes: &[u8]) -> Result<usize, BatchError> {
    let mut cursor = Cursor::new(bytes);
    read_header(&mut cursor)?;
    let packing = Packing::read(cursor)?;
    Ok(packing.memory_bytes + if packing.is_packed { packing.raw_bytes } else { 0 })
}

/// Decodes untrusted bytes. Takes no more memory than [`records_memory`] says.
pub fn decode(bytes: &[u8]) -> Result<(BatchHeader, Records), BatchError> {
    let mut cursor = Cursor::new(bytes);
    let header = read_header(&mut cursor)?;
    let packing = Packing::read(cursor)?;
    let mut unpacked = Vec::new();
    let raw = packing.unpack(&mut unpacked)?;
    let records = Columns::new(raw, packing.memory_bytes).read(header.records as usize)?;
    Ok((header, records))
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

fn name<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, BatchError> {
    let length = cursor.byte()?;
    let name = cursor.take(length.into())?;
    std::str::from_utf8(name).map_err(|_| BatchError::Malformed("a name that is not UTF-8"))
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<BatchHeader, BatchError> {
    match cursor.byte()? {
        BATCH_VERSION => {}
        0..VERSION_MIN => return Err(BatchError::Malformed("an invalid version")),
        later => return Err(BatchError::Version(later)),
    }
    let tenant =
        TenantId::parse(name(cursor)?).map_err(|_| BatchError::Malformed("an invalid tenant name"))?;
    let stream =
        StreamName::parse(name(cursor)?).map_err(|_| BatchError::Malformed("an invalid stream name"))?;
    let arrival_us = cursor.varint()? as i64;
    let id = match cursor.byte()? {
        0 => None,
        1 => Some(cursor.take(16)?.try_into().expect("BUG: took 16 bytes")),
        _ => return Err(BatchError::Malformed("an id of an unknown form")),
    };
    let records = cursor.length()?;
    if records > REQUEST_RECORDS_MAX {
        return Err(BatchError::Malformed("too many records"));
    }
    Ok(BatchHeader { tenant, stream, arrival_us, id, records: records as u32 })
}

impl<'a> Packing<'a> {
    /// Reads what follows the header.
    fn read(mut cursor: Cursor<'a>) -> Result<Self, BatchError> {
        let memory_bytes = cursor.length()?;
        let raw_bytes = cursor.length()?;
        let packed_bytes = cursor.length()?;
        let is_packed = packed_bytes > 0;
        let bytes = cursor.take(if is_packed { packed_bytes } else { raw_bytes })?;
        if !cursor.rest.is_empty() {
            return Err(BatchError::Malformed("bytes after the columns"));
        }
        // no byte of an LZ4 block expands to more than 255 bytes
        if raw_bytes > RAW_BYTES_MAX || (is_packed && raw_bytes / 255 > packed_bytes) {
            return Err(BatchError::Malformed("columns cannot decompress to their declared length"));
        }
        if memory_bytes > columns::memory_bytes_max(raw_bytes) {
            return Err(BatchError::Malformed("columns cannot take the declared memory"));
        }
        Ok(Self { memory_bytes, raw_bytes, is_packed, bytes })
    }

    /// Returns the columns. They are unpacked into `out` if necessary.
    fn unpack<'o>(self, out: &'o mut Vec<u8>) -> Result<&'o [u8], BatchError>
    where
        'a: 'o,
    {
        if !self.is_packed {
            return Ok(self.bytes);
        }
        out.reserve_exact(self.raw_bytes);
        out.resize(self.raw_bytes, 0);
        match lz4_flex::block::decompress_into(self.bytes, out) {
            Ok(length) if length == self.raw_bytes => Ok(out),
            _ => Err(BatchError::Malformed("columns cannot be decompressed")),
        }
    }
}
