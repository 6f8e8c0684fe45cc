//! What a flush, a round or a commit has written.

use super::telemetry::SealMetrics;
use tables::StagedBlock;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flushed {
    pub(crate) tables: u64,
    pub(crate) commits: u64,
    pub(crate) files: u64,
    pub(crate) rows: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    pub(crate) blocked: u64,
}

impl Flushed {
    pub(super) fn add_block(&mut self, block: &StagedBlock) {
        for file in &block.files {
            self.files += 1;
            self.rows += file.summary.rows;
            self.samples += file.summary.samples;
            self.bytes += file.summary.bytes;
        }
    }

    pub(super) const fn add(&mut self, other: &Self) {
        let Self { tables, commits, files, rows, samples, bytes, blocked: _ } = other;
        self.tables += *tables;
        self.commits += *commits;
        self.files += *files;
        self.rows += *rows;
        self.samples += *samples;
        self.bytes += *bytes;
    }

    pub(super) fn count(&self, metrics: &SealMetrics) {
        metrics.commits.add(self.commits);
        metrics.files.add(self.files);
        metrics.rows.add(self.rows);
        metrics.samples.add(self.samples);
        metrics.bytes.add(self.bytes);
    }
}
