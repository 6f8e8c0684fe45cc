//! Settings that say which series OpenTelemetry's metrics become.

use super::given::SettingsError;
use super::reader::Reader;
use super::table;
use protocol::otlp::Translation;
use std::sync::Arc;

/// Scale to which exponential histograms are converted. There are 2 to the power of the scale buckets per power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale(pub(super) i32);

pub(super) fn general(reader: &mut Reader<'_>) -> Result<Arc<Translation>, SettingsError> {
    Ok(Arc::new(Translation {
        naming: reader.read(&table::OTLP_TRANSLATION)?,
        promoted: reader.read(&table::OTLP_PROMOTE)?,
        keeps_identifying: reader.read(&table::OTLP_KEEP_IDENTIFYING)?,
        has_target_info: reader.read(&table::OTLP_TARGET_INFO)?,
        has_scope_labels: reader.read(&table::OTLP_SCOPE_LABELS)?,
        delta: reader.read(&table::OTLP_DELTA)?,
        scale: reader.read(&table::OTLP_BUCKETS)?.0,
    }))
}

pub(super) fn own(reader: &mut Reader<'_>, general: &Translation) -> Result<Arc<Translation>, SettingsError> {
    Ok(Arc::new(Translation {
        naming: reader.inherit(&table::OTLP_TRANSLATION, &general.naming)?,
        promoted: reader.inherit(&table::OTLP_PROMOTE, &general.promoted)?,
        keeps_identifying: reader.inherit(&table::OTLP_KEEP_IDENTIFYING, &general.keeps_identifying)?,
        has_target_info: reader.inherit(&table::OTLP_TARGET_INFO, &general.has_target_info)?,
        has_scope_labels: reader.inherit(&table::OTLP_SCOPE_LABELS, &general.has_scope_labels)?,
        delta: reader.inherit(&table::OTLP_DELTA, &general.delta)?,
        scale: reader.inherit(&table::OTLP_BUCKETS, &Scale(general.scale))?.0,
    }))
}
