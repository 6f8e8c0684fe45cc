//! Reads Prometheus' text format and OpenMetrics.

use super::Lines;
use super::intake::Intake;
use super::progress::Progress;
use crate::cli::transfer::ImportFormat;
use anyhow::{Context, ensure};
use model::LabelsBuilder;
use protocol::exposition::{self, Dialect, Line};
use std::path::Path;

pub(super) fn read(
    path: &Path,
    format: ImportFormat,
    intake: &mut Intake,
    skip_damaged: bool,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let dialect = match format {
        ImportFormat::Openmetrics => Dialect::OpenMetrics,
        _ => Dialect::Prometheus,
    };
    let mut lines = Lines::open(path, exposition::LINE_BYTES_MAX)?;
    let mut builder = LabelsBuilder::new();
    let mut ended = false;
    while let Some(line) = lines.next()? {
        match exposition::parse(line, dialect, &mut builder) {
            Ok(Line::Nothing) => {}
            Ok(Line::End) => {
                ended = true;
                break;
            }
            Ok(Line::Sample { labels: Ok(labels), timestamp_ms: Some(t), value }) => {
                intake.series_unsorted(&labels)?;
                intake.sample(t, value)?;
            }
            Ok(Line::Sample { labels: Ok(_), timestamp_ms: None, .. }) => {
                intake.tally.skip("samples without a timestamp", 1);
            }
            Ok(Line::Sample { labels: Err(error), .. }) => {
                intake.tally.skip(&format!("samples of invalid series: {error}"), 1);
            }
            Err(_) if skip_damaged => intake.tally.skip("damaged lines", 1),
            Err(error) => {
                let number = lines.number;
                return Err(error)
                    .with_context(|| format!("line {number} is damaged (--skip-damaged skips it)"));
            }
        }
        if lines.number.is_multiple_of(1024) {
            progress.at(lines.progress(), intake.tally.samples);
        }
    }
    ensure!(
        dialect == Dialect::Prometheus || ended || skip_damaged,
        "no \"# EOF\" at the end: the file is cut short, or it is in Prometheus' text format (import it as prometheus)"
    );
    Ok(())
}
