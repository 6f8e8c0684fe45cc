//! Writes the files of a rollup.

use crate::date::Date;
use crate::delta::{StagedFile, Table};
use crate::error::TableError;
use crate::store::FileStem;
use crate::store::Upload;
use crate::write::Stretch;
use crate::write::{FileWriter, WriteLimits};
use model::{Labels, Samples, SeriesKey, Statistic};

/// Maximum number of open files: one for each statistic, and one for counts of omitted series.
const OPEN: usize = Statistic::ALL.len() + 1;

/// Writes one file for each statistic, because rows sort by statistic before other labels.
pub(super) struct Writer<'a> {
    rollup: &'a Table,
    date: Date,
    stem: &'a FileStem,
    limits: WriteLimits,
    open: [Option<FileWriter<Upload>>; OPEN],
    /// Labels of the last series in each file, to find series that are out of order.
    last: [Option<Labels>; OPEN],
    staged: Vec<StagedFile>,
    files: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(rollup: &'a Table, date: Date, stem: &'a FileStem, limits: WriteLimits) -> Self {
        let (open, last) = Default::default();
        Self { rollup, date, stem, limits, open, last, staged: Vec::new(), files: 0 }
    }

    pub(super) fn push(
        &mut self,
        of: Statistic,
        labels: Labels,
        key: SeriesKey,
        samples: &Samples,
    ) -> Result<(), TableError> {
        self.push_at(of as usize, labels, key, samples)
    }

    pub(super) fn push_omitted(
        &mut self,
        labels: Labels,
        key: SeriesKey,
        samples: &Samples,
    ) -> Result<(), TableError> {
        self.push_at(OPEN - 1, labels, key, samples)
    }

    fn push_at(
        &mut self,
        at: usize,
        labels: Labels,
        key: SeriesKey,
        samples: &Samples,
    ) -> Result<(), TableError> {
        // A label name before `$rollup` breaks the order, so the series begins a new file.
        if self.last[at].as_ref().is_some_and(|last| last.as_ref().cmp_in_tables(labels.as_ref()).is_ge()) {
            self.end(at)?;
        }
        let writer = match &mut self.open[at] {
            Some(writer) => writer,
            none => {
                self.files += 1;
                let upload = self.rollup.upload(self.date, self.stem, self.files)?;
                none.insert(FileWriter::new(
                    self.rollup.kind(),
                    self.date,
                    upload,
                    self.limits.row_group_bytes,
                )?)
            }
        };
        writer.push(&Stretch {
            labels: labels.as_ref(),
            key,
            timestamps: &samples.timestamps,
            values: &samples.values,
        })?;
        self.last[at] = Some(labels);
        if writer.written_bytes() >= self.limits.file_bytes {
            self.end(at)?;
        }
        self.bound_open()
    }

    /// Finishes the largest files early while the open files exceed the limit.
    fn bound_open(&mut self) -> Result<(), TableError> {
        let held = |open: &Option<FileWriter<Upload>>| open.as_ref().map_or(0, FileWriter::held_bytes);
        while self.open.iter().map(held).sum::<usize>() > self.limits.open_bytes {
            let fullest = (0..self.open.len()).max_by_key(|at| held(&self.open[*at]));
            self.end(fullest.expect("BUG: there are no files"))?;
        }
        Ok(())
    }

    fn end(&mut self, at: usize) -> Result<(), TableError> {
        if let Some(writer) = self.open[at].take() {
            let (summary, upload) = writer.finish()?;
            self.staged.push(self.rollup.staged(summary, upload)?);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Vec<StagedFile>, TableError> {
        (0..self.open.len()).try_for_each(|at| self.end(at))?;
        Ok(self.staged)
    }
}
