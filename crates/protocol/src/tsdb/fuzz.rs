//! The code of the fuzz targets for Prometheus' blocks.

use super::{BlockMeta, Chunk, Chunks, Index, SeriesEntry, Tombstones, TsdbError, xor};
use model::Samples;
use model::labels::is_canonical;

pub fn block_files(bytes: &[u8]) {
    let _ = BlockMeta::parse(bytes);
    let _ = Tombstones::parse(bytes);
    let _ = walk(bytes, bytes);
}

/// Builds an index and chunks with correct checksums from `bytes`, and reads them. Random input gets further
/// here than in [`block_files`], where a checksum is almost never right. The first three bytes select the
/// version of the index, and how the rest is divided.
pub fn block_contents(bytes: &[u8]) {
    let [version, a, b, rest @ ..] = bytes else { return };
    let first = rest.len() * usize::from(*a) / 256;
    let second = first + (rest.len() - first) * usize::from(*b) / 256;
    let (symbols, series, chunk) = (&rest[..first], &rest[first..second], &rest[second..]);

    let mut index = 0xBAAA_D700_u32.to_be_bytes().to_vec();
    index.push(1 + version % 2);
    let symbols_at = index.len() as u64;
    index.extend((symbols.len() as u32).to_be_bytes());
    put_protected(&mut index, symbols);
    let series_at = index.len().next_multiple_of(16) as u64;
    // the first byte says how long each entry is
    let step = series.first().map_or(1, |n| usize::from(*n)).max(1);
    for entry in series.chunks(step) {
        index.resize(index.len().next_multiple_of(16), 0);
        put_len(&mut index, entry.len());
        put_protected(&mut index, entry);
    }
    let behind = index.len() as u64;
    let contents: Vec<u8> =
        [symbols_at, series_at, 0, 0, behind, 0].iter().flat_map(|n| n.to_be_bytes()).collect();
    put_protected(&mut index, &contents);

    let mut chunks = 0x85BD_40DD_u32.to_be_bytes().to_vec();
    chunks.extend([1, 0, 0, 0]);
    put_len(&mut chunks, chunk.len().saturating_sub(1));
    put_protected(&mut chunks, chunk);

    let _ = walk(&index, &chunks);
    let mut samples = Samples::default();
    let _ = xor::decode(chunk, &mut samples);
    assert!(samples.timestamps.len() == samples.values.len() && samples.len() <= usize::from(u16::MAX));
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    stdx::varint::put(out, len as u64);
}

fn put_protected(out: &mut Vec<u8>, content: &[u8]) {
    out.extend(content);
    out.extend(crc32c::crc32c(content).to_be_bytes());
}

fn walk(index: &[u8], chunks: &[u8]) -> Result<(), TsdbError> {
    let mut index = Index::open(index)?;
    let mut chunks = Chunks::open(vec![chunks])?;
    let (mut entry, mut samples) = (SeriesEntry::default(), Samples::default());
    let mut progress = 0.0;
    while index.next(&mut entry)? {
        assert!(index.progress() > progress, "no progress after a series");
        progress = index.progress();
        if let Some(Ok(labels)) = &entry.labels {
            assert!(is_canonical(labels.as_bytes()), "{labels:?} is not canonical");
        }
        for chunk in entry.chunks.iter().take(100) {
            if let Ok(Chunk::Floats(data)) = chunks.get(chunk.reference) {
                samples.clear();
                let _ = xor::decode(data, &mut samples);
            }
        }
    }
    Ok(())
}
