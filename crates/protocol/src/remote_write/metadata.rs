//! Metadata: what both versions say alike.

use super::{DecodeError, sample};
use model::caps::LABEL_VALUE_BYTES_MAX;
use model::{Batch, Metadata, MetricKind};

/// Keeps an entry if it names a metric. Texts are advice: what is not UTF-8 in them is replaced, and what
/// is too long is cut.
pub(super) fn push(
    batch: &mut Batch,
    kind: MetricKind,
    name: &[u8],
    help: &[u8],
    unit: &[u8],
) -> Result<(), DecodeError> {
    sample::check_extras(batch.metadata.len(), "metadata entries")?;
    if !name.is_empty() && name.len() <= LABEL_VALUE_BYTES_MAX {
        let text = |bytes| String::from_utf8_lossy(bytes);
        batch.metadata.push(Metadata {
            metric: text(name).into_owned(),
            kind,
            help: Metadata::cut(&text(help)).to_owned(),
            unit: Metadata::cut(&text(unit)).to_owned(),
        });
    }
    Ok(())
}
