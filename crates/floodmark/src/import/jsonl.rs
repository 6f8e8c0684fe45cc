//! Reads JSON lines, as VictoriaMetrics exports them.

use super::Lines;
use super::intake::Intake;
use super::progress::Progress;
use anyhow::Context;
use model::{LabelsBuilder, Samples};
use protocol::jsonl;
use std::path::Path;

pub(super) fn read(
    path: &Path,
    intake: &mut Intake,
    skip_damaged: bool,
    progress: &mut Progress,
) -> anyhow::Result<()> {
    let mut lines = Lines::open(path, jsonl::LINE_BYTES_MAX)?;
    let (mut builder, mut samples) = (LabelsBuilder::new(), Samples::default());
    while let Some(line) = lines.next()? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match jsonl::parse(line, &mut builder, &mut samples) {
            Ok(Ok(labels)) => {
                intake.series(&labels)?;
                for (t, v) in samples.timestamps.iter().zip(&samples.values) {
                    intake.sample(*t, *v)?;
                }
            }
            Ok(Err(error)) => intake.tally.skip(&format!("series: {error}"), 1),
            Err(_) if skip_damaged => intake.tally.skip("damaged lines", 1),
            Err(error) => {
                let number = lines.number;
                return Err(error)
                    .with_context(|| format!("line {number} is damaged (--skip-damaged skips it)"));
            }
        }
        progress.at(lines.progress(), intake.tally.samples);
    }
    Ok(())
}
