//! The code of the fuzz targets. Each function panics if a decoder panics or breaks one of its guarantees. The directory
//! `fuzz/` calls these functions under cargo-fuzz, and the crate's tests call them with damaged records.

use crate::records::{BATCH_VERSION, decode, decode_header, encode, encode_memory, records_memory};
use stdx::varint;

/// A batch of records. Returns whether it is valid.
pub fn batch(bytes: &[u8]) -> bool {
    let header = decode_header(bytes);
    let memory = records_memory(bytes);
    let Ok((decoded, records)) = decode(bytes) else { return false };
    assert_eq!(header.as_ref(), Ok(&decoded));
    assert!(records.memory_bytes() <= memory.expect("BUG: the memory of a valid batch is unknown"));
    assert_eq!(decoded.records as usize, records.len());
    for attribute in &records.attributes {
        assert!(attribute.rows.is_sorted_by(|a, b| a < b), "rows are in a wrong order");
        assert_eq!(attribute.rows.len(), attribute.values.len());
        assert!(attribute.rows.last().is_some_and(|row| (*row as usize) < records.len()));
        (0..attribute.values.len()).for_each(|at| _ = attribute.values.get(at));
    }
    // floats may be NaN, so bytes are compared
    let mut once = Vec::new();
    encode(&mut once, &decoded, &records).expect("BUG: a decoded batch cannot be encoded");
    assert!(once.len() <= encode_memory(&records));
    let (_, again) = decode(&once).expect("BUG: an encoded batch cannot be decoded");
    let mut twice = Vec::new();
    encode(&mut twice, &decoded, &again).expect("BUG: a decoded batch cannot be encoded");
    assert_eq!(once, twice);
    true
}

/// Columns that are not packed, behind the number of their records. Returns whether they are valid.
pub fn columns(bytes: &[u8]) -> bool {
    let Some((&[low, high], raw)) = bytes.split_first_chunk::<2>() else { return false };
    let mut all = vec![BATCH_VERSION, 1, b't', 1, b's', 7, 0];
    varint::put(&mut all, u64::from(u16::from_le_bytes([low, high])));
    varint::put(&mut all, 40 * raw.len() as u64 + 4096);
    varint::put(&mut all, raw.len() as u64);
    varint::put(&mut all, 0);
    all.extend_from_slice(raw);
    batch(&all)
}
