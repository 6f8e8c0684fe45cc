//! Writes a table as Whisper files, one for each series.

use super::Ask;
use crate::import::Place;
use crate::whisper_paths::WhisperPath;
use anyhow::{Context, ensure};
use model::{Labels, LabelsRef, Samples, TimeRange};
use protocol::whisper::{Archive, Header};
use query::graphite::label_source::write_name;
use query::graphite::{Schemas, Slots};
use server::GraphiteSchemas;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use stdx::clock::{Clock, SystemClock};

/// Samples of a series are held in memory, at 16 bytes each.
const SERIES_SAMPLES_MAX: usize = 32 << 20;

/// Numbers of files written and of series left out.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) files: u64,
    /// Files with the hash of the name instead of the name.
    pub(super) hashed: u64,
    pub(super) left_out: u64,
}

struct Export<'a> {
    schemas: GraphiteSchemas,
    dir: &'a Path,
    now_s: i64,
    labels: Labels,
    samples: Samples,
    name: String,
    written: Written,
}

/// Writes the files below `dir`. Existing files are not overwritten. Values are those that Graphite queries show at the
/// end of the range, or now.
pub(super) fn write(ask: &mut Ask, place: &Place, dir: &Path) -> anyhow::Result<Written> {
    let schemas = place.rules.schemas().map_err(anyhow::Error::msg)?;
    ensure!(
        schemas.rules().longest_retention_s().is_some(),
        "Whisper files need steps and retentions: set graphite_schemas, in the file of --config or as \
         FLOODMARK_GRAPHITE_SCHEMAS"
    );
    let now_s = ask.range.end_ms.min(SystemClock.now_ms()).div_euclid(1000);
    let range = TimeRange::new(ask.range.start_ms, ask.range.end_ms);
    let (labels, samples, name) = (Labels::empty(), Samples::default(), String::new());
    let mut export = Export { schemas, dir, now_s, labels, samples, name, written: Written::default() };
    ask.each(range, super::LINE_SAMPLES, |scan, samples| export.take(scan.labels(), samples))?;
    export.end_series()?;
    Ok(export.written)
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
        self.name.clear();
        write_name(&mut self.name, self.labels.as_ref());
        match WhisperPath::of(self.labels.as_ref(), &self.name) {
            None => self.written.left_out += 1,
            Some(path) => {
                self.written.hashed += u64::from(matches!(path, WhisperPath::Hashed(_)));
                let (WhisperPath::Named(path) | WhisperPath::Hashed(path)) = path;
                let path = self.dir.join(path);
                self.write_file(&path).with_context(|| format!("cannot write {}", path.display()))?;
                self.written.files += 1;
            }
        }
        self.samples.clear();
        Ok(())
    }

    fn write_file(&self, path: &Path) -> anyhow::Result<()> {
        let (rules, schema) = (self.schemas.rules().of(&self.name), self.schemas.schema_of(&self.name));
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
