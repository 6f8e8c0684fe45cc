//! A program that imports samples into the node's tables: it uploads a file, waits, and commits it.
//! Meanwhile, a lease keeps the node from deleting the file.
//!
//! The program runs on another machine, so it survives crashes of the node. Only importers have samples of
//! these days, and each sample is imported once.

use crate::fleet::Fleet;
use crate::model::Share;
use crate::store::SimStore;
use model::{LabelsRef, SeriesKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::rng::Rng;
use tables::DAY_MS;
use tables::METRICS;
use tables::delta::{LEASE_MS, Lease, StagedBlock};
use tables::store::Location;
use tables::write::FileWriter;
use tables::{Date, FileStem, Outcome, Stretch, Table, TableError};
use tokio::runtime::Runtime;

/// Imported samples are at most this many days older than the start of the run.
pub const DAYS_BACK: i64 = 40;
/// The samples are spread over this many days.
const DAYS: u64 = 3;

const SAMPLES_MAX: u64 = 12;

const BEAT_MS: i64 = 60_000;

/// Longer than any imported file, so that each file has a single row group.
const ROW_GROUP_BYTES: usize = 64 << 10;

/// For each series by its number, the timestamps and values of its samples.
type DrawnSamples = BTreeMap<usize, (Vec<i64>, Vec<f64>)>;

#[derive(Debug)]
pub struct Importer {
    runtime: Runtime,
    store: SimStore,
    begin_ms: i64,
    imports: u64,
}

/// A file that was uploaded, but is not part of the table yet.
#[derive(Debug)]
pub struct Import {
    table: Table,
    lease: Lease,
    block: StagedBlock,
    pub share: Share,
    beat_ms: i64,
    is_kept: bool,
}

#[derive(Debug)]
pub enum CommitOutcome {
    Committed,
    /// The lease had expired, and the node has deleted the file. None of its samples are in the table.
    Lapsed,
    Unclear(TableError),
}

impl Importer {
    pub fn new(store: SimStore, begin_ms: i64) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        Self { runtime: runtime.expect("BUG: cannot create a runtime"), store, begin_ms, imports: 0 }
    }

    pub fn stage(
        &mut self,
        fleet: &Fleet,
        tenant: usize,
        request: u64,
        rng: &mut Rng,
        steady_ms: i64,
        key: impl Fn(LabelsRef<'_>) -> SeriesKey,
    ) -> Result<Import, TableError> {
        self.imports += 1;
        let store = self.store.clone();
        let root = Location::open("memory:///", [], self.runtime.handle().clone())?;
        let root = root.with_store(|_| Arc::new(store));
        let table =
            Table::open_or_create(&METRICS, root.folder(&[fleet.tenants[tenant].as_str(), "metrics"])?)?;
        let lease = table.lease(FileStem::imported("sim", self.imports), steady_ms)?;
        let (share, samples) = self.draw(fleet, tenant, request, rng);
        let date = Date::of(share.samples[0].0.2);
        let mut writer =
            FileWriter::new(&METRICS, date, table.upload_leased(&lease, date, 0)?, ROW_GROUP_BYTES)?;
        let mut series: Vec<_> =
            samples.into_iter().map(|(n, samples)| (&fleet.series[n], samples)).collect();
        series.sort_by(|a, b| a.0.as_ref().cmp_in_tables(b.0.as_ref()));
        for (labels, (timestamps, values)) in series.iter().map(|one| (one.0.as_ref(), &one.1)) {
            writer.push(&Stretch { labels, key: key(labels), timestamps, values })?;
        }
        let (summary, upload) = writer.finish()?;
        let files = vec![table.staged(summary, upload)?];
        let block = StagedBlock {
            source: format!("import/{}", self.imports),
            after: None,
            upto: 1,
            through: None,
            files,
        };
        Ok(Import { table, lease, block, share, beat_ms: steady_ms, is_kept: true })
    }

    /// Draws samples of one day. No other import has samples at the same times.
    fn draw(&self, fleet: &Fleet, tenant: usize, request: u64, rng: &mut Rng) -> (Share, DrawnSamples) {
        let day_ms = (self.begin_ms / DAY_MS - DAYS_BACK + rng.below(DAYS) as i64) * DAY_MS;
        let mut share = Share { request, ..Share::default() };
        let mut samples = DrawnSamples::new();
        for _ in 0..1 + rng.below(3) {
            let series = rng.below(fleet.series.len() as u64) as usize;
            let (timestamps, values) = samples.entry(series).or_default();
            if !timestamps.is_empty() {
                continue;
            }
            for n in 0..1 + rng.below(SAMPLES_MAX) as i64 {
                let (timestamp_ms, value) = (day_ms + n * 1_800_000 + self.imports as i64, rng.unit());
                timestamps.push(timestamp_ms);
                values.push(value);
                share.samples.push(((tenant, series, timestamp_ms), value.to_bits()));
            }
        }
        (share, samples)
    }
}

impl Import {
    pub fn keep(&mut self, steady_ms: i64) -> Result<(), TableError> {
        if steady_ms - self.beat_ms < BEAT_MS {
            return Ok(());
        }
        self.is_kept = self.is_kept(steady_ms);
        self.lease.keep(steady_ms)?;
        self.beat_ms = steady_ms;
        Ok(())
    }

    /// True if the lease has never expired, so that the node cannot have deleted the file.
    pub fn is_kept(&self, steady_ms: i64) -> bool {
        self.is_kept && steady_ms - self.beat_ms < LEASE_MS
    }

    pub fn commit(&self, now_ms: i64) -> CommitOutcome {
        match self.table.commit(std::slice::from_ref(&self.block), now_ms).map(|outcomes| outcomes[0]) {
            Ok(Outcome::Committed { .. } | Outcome::Already { .. }) => CommitOutcome::Committed,
            Ok(Outcome::FloodmarkMismatch { floodmark }) => {
                panic!("BUG: a new source has the floodmark {floodmark:?}")
            }
            Err(TableError::Lapsed { .. }) => CommitOutcome::Lapsed,
            Err(error) => CommitOutcome::Unclear(error),
        }
    }

    pub fn tenant(&self) -> usize {
        self.share.samples[0].0.0
    }

    pub fn end(self) {
        let _ = self.lease.release(); // if this fails, the node breaks the lease after it has expired
    }
}
