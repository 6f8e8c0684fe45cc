//! Writes a table as Whisper files, one for each series.

use super::Ask;
use crate::import::Place;
use crate::whisper_paths::WhisperPath;
use anyhow::{Context, anyhow, ensure};
use model::{Labels, LabelsRef, Samples, TimeRange};
use protocol::whisper::{Archive, Header};
use query::graphite::label_source::write_name;
use query::graphite::{Schemas, Slots};
use server::GraphiteSchemas;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
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
    files: Files<'a>,
    /// Which values are written.
    range: TimeRange,
    now_s: i64,
    labels: Labels,
    samples: Samples,
    name: String,
    written: Written,
}

/// Files below a directory. A file has its name only once all of it is durable, so that it is not taken for a whole one after a
/// crash.
struct Files<'a> {
    dir: &'a Path,
    /// Directories with files whose names may not be durable yet.
    changed: BTreeSet<PathBuf>,
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
    let range = ask.range;
    let (labels, samples, name) = (Labels::empty(), Samples::default(), String::new());
    let files = Files { dir, changed: BTreeSet::new() };
    let around = around(range, schemas.rules().longest_step_s());
    let mut export =
        Export { schemas, files, range, now_s, labels, samples, name, written: Written::default() };
    ask.each(around, super::LINE_SAMPLES, |scan, samples| export.take(scan.labels(), samples))?;
    export.end_series()?;
    export.files.finish().with_context(|| format!("cannot make the names in {} durable", dir.display()))?;
    Ok(export.written)
}

/// The samples that decide about the values of a range: those in the slots before and after it, too ([`Slots`]).
const fn around(range: TimeRange, longest_step_s: u32) -> TimeRange {
    let step_ms = 1000 * longest_step_s as i64;
    TimeRange::new(range.start_ms.saturating_sub(2 * step_ms), range.end_ms.saturating_add(2 * step_ms))
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
        let TimeRange { start_ms, end_ms } = self.range;
        if !self.samples.timestamps.iter().any(|timestamp_ms| (start_ms..=end_ms).contains(timestamp_ms)) {
            self.samples.clear();
            return Ok(());
        }
        self.name.clear();
        write_name(&mut self.name, self.labels.as_ref());
        match WhisperPath::of(self.labels.as_ref(), &self.name) {
            None => self.written.left_out += 1,
            Some(path) => {
                self.written.hashed += u64::from(matches!(path, WhisperPath::Hashed(_)));
                let (WhisperPath::Named(path) | WhisperPath::Hashed(path)) = path;
                self.write_file(&path).map_err(|error| self.explained(error, &path))?;
                self.written.files += 1;
            }
        }
        self.samples.clear();
        Ok(())
    }

    fn explained(&self, error: anyhow::Error, path: &Path) -> anyhow::Error {
        let (dir, written) = (self.files.dir, self.written.files);
        let failed = format!("cannot write {}", dir.join(path).display());
        let exists = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        if !error.downcast_ref().is_some_and(exists) {
            return error.context(failed);
        }
        let dir = dir.display();
        let found = match self.files.count() {
            Ok(all) => format!("{dir} had {} Whisper files before this export", all.saturating_sub(written)),
            Err(error) => format!("{dir} cannot be listed ({error})"),
        };
        anyhow!(
            "{failed}: the file exists, and an export overwrites nothing. {found}, which has written {written}. Export into a \
             new directory, or delete the files that are there"
        )
    }

    fn write_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let (rules, schema) = (self.schemas.rules().of(&self.name), self.schemas.schema_of(&self.name));
        let archives = rules.archives.iter().map(|a| Archive { step_s: a.step_s, points: a.points });
        let header = Header {
            method: rules.method.code(),
            x_files_factor: rules.x_files_factor as f32,
            archives: archives.collect(),
        };
        let encoded = header.encode()?;
        let Self { files, samples, now_s, range, .. } = self;
        files.write(path, |file| {
            file.write_all(&encoded)?;
            let mut values = Vec::new();
            for (number, archive) in header.archives.iter().enumerate() {
                let from_s = *now_s - archive.retention_s();
                let Some(layout) = schema.layout(from_s, *now_s, *now_s) else { continue };
                let mut slots = Slots::new(schema, layout, &mut values);
                for (timestamp_ms, value) in samples.timestamps.iter().zip(&samples.values) {
                    slots.push(*timestamp_ms, *value);
                }
                slots.finish();
                // slots that end before the range
                let before_s = range.start_ms.div_euclid(1000).saturating_sub(layout.start_s);
                let before = before_s.div_euclid(layout.step_s).clamp(0, values.len() as i64);
                values[..before as usize].fill(f64::NAN);
                file.seek(SeekFrom::Start(header.offset(number)))?;
                file.write_all(&archive.encode(layout.start_s, &values))?;
            }
            // what was not written is a hole without values
            file.set_len(header.file_bytes())
        })?;
        Ok(())
    }
}

impl Files<'_> {
    /// Writes a file whose path is relative to the directory. Fails if it exists.
    fn write(&mut self, path: &Path, content: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let path = self.dir.join(path);
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        for parent in path.ancestors().skip(1) {
            let is_known = !self.changed.insert(parent.into());
            if is_known || parent == self.dir {
                break;
            }
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let unfinished = self.dir.join(format!("unfinished-{}.tmp", std::process::id()));
        let _ = fs::remove_file(&unfinished); // of a process that was killed
        let mut file = File::create_new(&unfinished)?;
        let written = content(&mut file).and_then(|()| file.sync_all());
        drop(file);
        // unlike a rename, this never overwrites what another export has written meanwhile
        let named = written.and_then(|()| match fs::hard_link(&unfinished, &path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(&unfinished, &path),
            named => named,
        });
        let _ = fs::remove_file(&unfinished); // it has its other name, or the error of writing says more
        named
    }

    /// Counts the Whisper files that are there, whoever wrote them.
    fn count(&self) -> io::Result<u64> {
        let (mut dirs, mut files) = (vec![self.dir.to_path_buf()], 0);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir)? {
                let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
                match entry?.is_dir() {
                    true => dirs.push(path),
                    false => files += u64::from(path.extension().is_some_and(|extension| extension == "wsp")),
                }
            }
        }
        Ok(files)
    }

    /// Makes the names of all files durable.
    fn finish(self) -> io::Result<()> {
        // the directory itself may be new
        let above =
            self.dir.parent().map(|above| if above == Path::new("") { Path::new(".") } else { above });
        for dir in self.changed.iter().map(PathBuf::as_path).chain(above).filter(|dir| dir.is_dir()) {
            match File::open(dir).and_then(|dir| dir.sync_all()) {
                // it existed before, and only others may read it
                Err(error) if Some(dir) == above && error.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_once_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("new");
        let mut files = Files { dir: &root, changed: BTreeSet::new() };
        let path = Path::new("a/b/c.wsp");
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let failed = files.write(path, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!root.join(path).exists());
        files
            .write(path, |file| {
                assert_eq!(names().len(), 2, "the file has another name while it is written");
                assert!(!root.join(path).exists());
                file.write_all(b"whole")
            })
            .unwrap();
        let again = files.write(path, |_| panic!("the file exists"));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(root.join(path)).unwrap(), b"whole");
        assert_eq!(names(), ["a"]);
        let changed: Vec<_> = files.changed.iter().cloned().collect();
        assert_eq!(changed, [root.clone(), root.join("a"), root.join("a/b")]);
        files.finish().unwrap();
    }
}
