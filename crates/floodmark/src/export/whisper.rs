//! Writes a table as Whisper files, one for each series without tags.

use super::Ask;
use crate::import::Place;
use anyhow::{Context, ensure};
use model::labels::METRIC_NAME;
use model::{Labels, LabelsRef, Samples, TimeRange};
use protocol::whisper::{Archive, Header};
use query::graphite::{Schemas, Slots};
use server::GraphiteSchemas;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use stdx::clock::{Clock, SystemClock};

/// Samples of a series are held in memory, at 16 bytes each.
const SERIES_SAMPLES_MAX: usize = 32 << 20;

/// Limit on the length of a file's name that file systems have in common.
const FILE_NAME_BYTES_MAX: usize = 255;

const EXTENSION: &str = ".wsp";

/// Series that were left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pub(super) tagged: u64,
    pub(super) unnamable: u64,
    pub(super) files: u64,
}

struct Export<'a> {
    schemas: GraphiteSchemas,
    dir: &'a Path,
    now_s: i64,
    labels: Labels,
    samples: Samples,
    left_out: LeftOut,
}

/// Writes the files below `dir`. Existing files are not overwritten. Values are those that Graphite queries show at the
/// end of the range, or now.
pub(super) fn write(ask: &mut Ask, place: &Place, dir: &Path) -> anyhow::Result<LeftOut> {
    let schemas = place.rules.schemas().map_err(anyhow::Error::msg)?;
    ensure!(
        schemas.rules().longest_retention_s().is_some(),
        "Whisper files need steps and retentions: set graphite_schemas, in the file of --config or as \
         FLOODMARK_GRAPHITE_SCHEMAS"
    );
    let now_s = ask.range.end_ms.min(SystemClock.now_ms()).div_euclid(1000);
    let range = TimeRange::new(ask.range.start_ms, ask.range.end_ms);
    let (labels, samples, left_out) = (Labels::empty(), Samples::default(), LeftOut::default());
    let mut export = Export { schemas, dir, now_s, labels, samples, left_out };
    ask.each(range, super::LINE_SAMPLES, |scan, samples| export.take(scan.labels(), samples))?;
    export.end_series()?;
    Ok(export.left_out)
}

impl Export<'_> {
    fn take(&mut self, labels: LabelsRef<'_>, samples: &Samples) -> anyhow::Result<()> {
        if self.labels.as_ref() != labels {
            self.end_series()?;
            self.labels = labels.to_owned();
        }
        let total = self.samples.len() + samples.len();
        ensure!(
            total <= SERIES_SAMPLES_MAX,
            "{labels:?} has more than {SERIES_SAMPLES_MAX} samples: limit them with --start"
        );
        for (timestamp_ms, value) in samples.timestamps.iter().zip(&samples.values) {
            self.samples.push(*timestamp_ms, *value);
        }
        Ok(())
    }

    fn end_series(&mut self) -> anyhow::Result<()> {
        if self.samples.is_empty() {
            return Ok(());
        }
        let name = self.labels.get(METRIC_NAME).unwrap_or_default();
        if self.labels.iter().count() > 1 {
            self.left_out.tagged += 1;
        } else if let Some(path) = path_of(name) {
            let path = self.dir.join(path);
            self.write_file(name, &path).with_context(|| format!("cannot write {}", path.display()))?;
            self.left_out.files += 1;
        } else {
            self.left_out.unnamable += 1;
        }
        self.samples.clear();
        Ok(())
    }

    fn write_file(&self, name: &str, path: &Path) -> anyhow::Result<()> {
        let (rules, schema) = (self.schemas.rules().of(name), self.schemas.schema_of(name));
        let archives = rules.archives.iter().map(|a| Archive { step_s: a.step_s, points: a.points });
        let header = Header {
            method: rules.method.code(),
            x_files_factor: rules.x_files_factor as f32,
            archives: archives.collect(),
        };
        let encoded = header.encode()?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = File::create_new(path)?;
        file.write_all(&encoded)?;
        let mut values = Vec::new();
        for (number, archive) in header.archives.iter().enumerate() {
            let from_s = self.now_s - archive.retention_s();
            let Some(layout) = schema.layout(from_s, self.now_s, self.now_s) else { continue };
            let mut slots = Slots::new(schema, layout, &mut values);
            for (timestamp_ms, value) in self.samples.timestamps.iter().zip(&self.samples.values) {
                slots.push(*timestamp_ms, *value);
            }
            slots.finish();
            file.seek(SeekFrom::Start(header.offset(number)))?;
            file.write_all(&archive.encode(layout.start_s, &values))?;
        }
        // what was not written is a hole without values
        file.set_len(header.file_bytes())?;
        Ok(())
    }
}

/// The path of a name's file. Returns `None` for a name that cannot be a path.
fn path_of(name: &str) -> Option<PathBuf> {
    let is_part = |part: &str| {
        !part.is_empty() && part.len() + EXTENSION.len() <= FILE_NAME_BYTES_MAX && !part.contains(['/', '\0'])
    };
    let parts = || name.split('.');
    parts().all(is_part).then(|| {
        let mut path = parts().collect::<PathBuf>().into_os_string();
        path.push(EXTENSION);
        path.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_below_the_directory() {
        assert_eq!(path_of("a.b-1.c"), Some("a/b-1/c.wsp".into()));
        assert_eq!(path_of("load"), Some("load.wsp".into()));
        for name in ["", ".", "a..b", "..", "a/b", "/etc", "a.", &"x".repeat(252)] {
            assert_eq!(path_of(name), None, "{name}");
        }
    }
}
