//! Metadata of metrics in all protocols.

use super::sample;
use crate::DecodeError;
use model::caps::{LABEL_VALUE_BYTES_MAX, METADATA_TEXT_BYTES_MAX};
use model::{Batch, BatchMetadata, Metadata, MetricKind};
use std::borrow::Cow;
use stdx::budget::IncrementalReservation;

/// Adds metadata to the batch. It is ignored if the metric's name is empty or too long. Invalid UTF-8 is
/// replaced, and long texts are cut.
pub(crate) fn push(
    batch: &mut Batch,
    reservation: &mut IncrementalReservation<'_>,
    kind: MetricKind,
    name: &[u8],
    help: &[u8],
    unit: &[u8],
) -> Result<(), DecodeError> {
    sample::check_extras(batch.metadata.len(), "metadata entries")?;
    if name.is_empty() || name.len() > LABEL_VALUE_BYTES_MAX {
        return Ok(());
    }
    let (name, help, unit) = (String::from_utf8_lossy(name), beginning(help), beginning(unit));
    let texts = &mut batch.texts;
    let mut put = |text: &str| {
        reservation.room(texts, text.len())?;
        texts.push_str(text);
        Ok::<_, DecodeError>(texts.len() as u32)
    };
    let start = put("")?;
    let name_end = put(&name)?;
    let help_end = put(Metadata::cut(&help))?;
    let unit_end = put(Metadata::cut(&unit))?;
    let (metric, help, unit) = (start..name_end, name_end..help_end, help_end..unit_end);
    reservation.push(&mut batch.metadata, BatchMetadata { kind, metric, help, unit })?;
    Ok(())
}

/// Returns enough of a text for [`Metadata::cut`], with invalid UTF-8 replaced.
///
/// A text may have as many bytes as a body, and each invalid byte becomes a character of three bytes, in memory that is
/// not reserved. So it is cut first. It keeps three bytes more than are stored, because a character that the cut damages
/// has at most three bytes left. The bytes before it become at least as many bytes of text.
fn beginning(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&text[..text.len().min(METADATA_TEXT_BYTES_MAX + 3)])
}

/// Returns the name of the metric family that a series belongs to, for example `rpc_seconds` for
/// `rpc_seconds_bucket`. Version 2.0 sends a family's metadata with each of its series.
pub(super) fn family(name: &[u8], kind: MetricKind) -> &[u8] {
    let suffixes: &[&[u8]] = match kind {
        MetricKind::Histogram => &[b"_bucket", b"_sum", b"_count"],
        MetricKind::GaugeHistogram => &[b"_bucket", b"_gsum", b"_gcount", b"_sum", b"_count"],
        MetricKind::Summary => &[b"_sum", b"_count"],
        _ => &[],
    };
    let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(*suffix));
    stripped.filter(|family| !family.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_before_they_are_repaired() {
        let check = |text: &[u8]| {
            let repaired = beginning(text);
            assert!(repaired.len() <= 3 * (METADATA_TEXT_BYTES_MAX + 3), "{} bytes", repaired.len());
            assert_eq!(Metadata::cut(&repaired), Metadata::cut(&String::from_utf8_lossy(text)));
        };
        check(&vec![0xff; 1 << 20]);
        // pieces at each distance from the cut, some of them valid, others truncated
        let pieces = ["a".as_bytes(), "é".as_bytes(), "€".as_bytes(), "😀".as_bytes()];
        let pieces = pieces.iter().flat_map(|piece| (1..=piece.len()).map(|bytes| &piece[..bytes]));
        for piece in pieces {
            for before in METADATA_TEXT_BYTES_MAX - 8..METADATA_TEXT_BYTES_MAX + 8 {
                for after in ["", "x", "€", "€€€€"] {
                    check(&[&b"x".repeat(before), piece, after.as_bytes()].concat());
                    check(&[&piece.repeat(before / piece.len()), piece, after.as_bytes()].concat());
                }
            }
        }
    }

    #[test]
    fn families() {
        let check = |name: &str, kind, expected: &str| {
            assert_eq!(family(name.as_bytes(), kind), expected.as_bytes());
        };
        for suffix in ["_bucket", "_sum", "_count", ""] {
            check(&format!("took_seconds{suffix}"), MetricKind::Histogram, "took_seconds");
        }
        check("depth_gsum", MetricKind::GaugeHistogram, "depth");
        check("size_bucket", MetricKind::Summary, "size_bucket");
        check("things_count", MetricKind::Counter, "things_count");
        check("_sum", MetricKind::Summary, "_sum");
    }
}
