//! Commits the files of an import to the tenant's table.
//!
//! Uploaded files are protected by a lease until they are committed, so that a running server does not delete
//! them as garbage.

use super::intake::Finished;
use crate::cli::serve;
use crate::cli::transfer::PlaceArgs;
use crate::output::note;
use anyhow::{Context, bail};
use model::{SeriesHasher, TenantId};
use server::settings::{Settings, TablesUrl};
use server::{GraphiteSchemas, RuleFiles, SeriesSeed};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use stdx::clock::{Clock, SystemClock};
use stdx::rng::Rng;
use tables::FileStem;
use tables::METRICS;
use tables::delta::{COMMIT_FILES_MAX, Lease, Outcome, StagedBlock, Table};
use tables::store::{Location, Upload};
use tokio::runtime::Runtime;

/// The floodmark of a source that was imported completely. Until then, a source's floodmark is the number of
/// its blocks that were already committed. Each commit writes one block.
const COMPLETE: u64 = 1 << 40;

pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

#[derive(Debug)]
pub(crate) struct Place {
    /// The server's data directory. An import needs it for the seed with which series keys are computed.
    pub(crate) data_dir: PathBuf,
    pub(crate) tenant: TenantId,
    pub(crate) tables: String,
    options: BTreeMap<String, String>,
    pub(crate) rules: RuleFiles,
}

impl Place {
    /// The tenant of Whisper files is by default that of Graphite's ports.
    pub(crate) fn of(args: &PlaceArgs, has_whisper_files: bool) -> anyhow::Result<Self> {
        // resolve the settings in the same way as the server, so that both use the same tables
        let mut given = serve::given(args.config.as_deref())?;
        if let Some(data_dir) = &args.data_dir {
            given = given.flag("data_dir", data_dir);
        }
        if let Some(TablesUrl(url)) = &args.tables {
            given = given.flag("tables", url);
        }
        let settings = Settings::resolve(&given)?;
        let Settings { data_dir, lake, graphite, graphite_rules: rules, .. } = settings;
        let tenant = match &args.tenant {
            Some(name) => TenantId::parse(name)?,
            None if has_whisper_files => graphite.tenant,
            None => TenantId::anonymous(),
        };
        Ok(Self { data_dir, tenant, tables: lake.url.0, options: lake.options.0, rules })
    }

    pub(crate) fn url(&self, table: &str) -> String {
        format!("{}/{}/{table}", self.tables.trim_end_matches('/'), self.tenant)
    }

    pub(crate) fn existing(&self, runtime: &Runtime) -> anyhow::Result<Option<Table>> {
        Ok(Table::open(&METRICS, self.location(runtime)?)?)
    }

    /// Opens the table of metrics. If it does not exist, the error explains the likely reasons.
    pub(crate) fn required(&self, runtime: &Runtime) -> anyhow::Result<Table> {
        let table = self.existing(runtime)?;
        table.with_context(|| {
            format!(
                "there is no table at {}: nothing of tenant {} has been sealed yet (POST /api/v1/admin/flush seals at \
                 once), or --data-dir, --tables or --tenant is wrong",
                self.url("metrics"),
                self.tenant
            )
        })
    }

    fn location(&self, runtime: &Runtime) -> anyhow::Result<Location> {
        Ok(Location::open(&self.url("metrics"), self.options.clone(), runtime.handle().clone())?)
    }
}

#[derive(Debug)]
pub(crate) struct Target {
    table: Table,
    tenant: TenantId,
    hasher: SeriesHasher,
    data_dir: PathBuf,
    rules: RuleFiles,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Committed {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    pub(crate) version: u64,
}

impl Target {
    pub(crate) fn open(place: Place, runtime: &Runtime) -> anyhow::Result<Self> {
        let SeriesSeed { seed, is_new } = server::series_seed(&place.data_dir)?;
        if is_new {
            let data_dir = place.data_dir.display();
            note(format_args!("floodmark: there was no data directory at {data_dir}; a new one was created"));
        }
        let table = Table::open_or_create(&METRICS, place.location(runtime)?)?;
        let Place { tenant, data_dir, rules, .. } = place;
        Ok(Self { table, tenant, hasher: SeriesHasher::new(seed), data_dir, rules })
    }

    pub(crate) const fn hasher(&self) -> &SeriesHasher {
        &self.hasher
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The schemas of Graphite's rules. `None` if there is no file of them.
    pub(crate) fn schemas(&self) -> anyhow::Result<Option<GraphiteSchemas>> {
        match self.rules.schemas {
            Some(_) => self.rules.schemas().map(Some).map_err(anyhow::Error::msg),
            None => Ok(None),
        }
    }

    pub(crate) fn scratch_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(crate) fn journal_dir(&self) -> PathBuf {
        self.data_dir.join("journal")
    }

    fn floodmark(&self, source: &str) -> anyhow::Result<Option<u64>> {
        Ok(self.table.floodmarks([source])?.get(source).copied())
    }

    pub(crate) fn has(&self, source: &str) -> anyhow::Result<bool> {
        self.table.refresh()?;
        Ok(self.floodmark(source)? == Some(COMPLETE))
    }

    /// Commits the files of a source, if necessary in several commits. Returns `None` if another import has
    /// already committed the source.
    ///
    /// If the files depend on what the table had before, `variant` identifies them: an interrupted import goes on only if the
    /// files are the same.
    pub(crate) fn commit(
        &self,
        source: &str,
        id: &str,
        variant: Option<&str>,
        files: Vec<Finished>,
    ) -> anyhow::Result<Option<Committed>> {
        let mut lease = Leased::take(&self.table, id)?;
        let blocks = match variant {
            None => self.stage(source, &files, &mut lease)?,
            Some(variant) => {
                let mut blocks = self.stage(&format!("{source}-{variant}"), &files, &mut lease)?;
                let after = self.floodmark(source)?;
                blocks.push(StagedBlock { after, ..complete(source) });
                blocks
            }
        };
        let bytes = files.iter().map(|f| f.summary.bytes).sum();
        let mut done = Committed { files: files.len(), bytes, version: self.table.version() };
        let mut is_done = false;
        for outcome in self.table.commit(&blocks, SystemClock.now_ms())? {
            match outcome {
                Outcome::Committed { version } => done.version = version,
                Outcome::Already { floodmark: COMPLETE } => is_done = true,
                // an earlier attempt, which was interrupted, committed this block
                Outcome::Already { .. } => {}
                Outcome::FloodmarkMismatch { floodmark } => {
                    bail!(
                        "another import of {source} is running: it has committed {} blocks since this import began; wait for it, or \
                         stop it and repeat this import",
                        floodmark.unwrap_or_default()
                    );
                }
            }
        }
        // errors do not matter here: the files are committed, and the lease expires anyway
        let _ = lease.lease.release();
        Ok((!is_done).then_some(done))
    }

    /// Uploads the files of a source. They become visible only when they are committed.
    fn stage(
        &self,
        source: &str,
        files: &[Finished],
        lease: &mut Leased,
    ) -> anyhow::Result<Vec<StagedBlock>> {
        let (mut blocks, mut number): (Vec<StagedBlock>, _) = (Vec::new(), 0);
        for (i, layer) in
            files.chunk_by(|a, b| a.layer == b.layer).flat_map(|l| l.chunks(COMMIT_FILES_MAX)).enumerate()
        {
            let mut staged = Vec::with_capacity(layer.len());
            for file in layer {
                let upload = self.table.upload_leased(&lease.lease, file.summary.date, number)?;
                number += 1;
                let mut upload = LeasedUpload { upload, lease };
                file.part.copy_to(&mut upload)?;
                staged.push(self.table.staged(file.summary.clone(), upload.upload)?);
            }
            let after = blocks.last().map(|block| block.upto);
            blocks.push(StagedBlock {
                source: source.into(),
                after,
                upto: i as u64 + 1,
                through: None,
                files: staged,
            });
        }
        match blocks.last_mut() {
            Some(last) => last.upto = COMPLETE,
            None => blocks.push(complete(source)),
        }
        Ok(blocks)
    }
}

/// A block without files, with which a source is complete.
fn complete(source: &str) -> StagedBlock {
    StagedBlock { source: source.into(), after: None, upto: COMPLETE, through: None, files: Vec::new() }
}

struct Leased {
    lease: Lease,
    began: Instant,
}

impl Leased {
    /// Takes a lease under a new random name, because an earlier attempt that was killed may have left files
    /// under the name of its lease.
    fn take(table: &Table, id: &str) -> anyhow::Result<Self> {
        let lease = table.lease(FileStem::imported(id, Rng::fresh_seed()), 0)?;
        Ok(Self { lease, began: SystemClock.instant() })
    }

    fn keep(&mut self) -> io::Result<()> {
        let steady = SystemClock.instant().duration_since(self.began);
        self.lease.keep(i64::try_from(steady.as_millis()).unwrap_or(i64::MAX)).map_err(io::Error::other)
    }
}

/// An upload during which the lease is renewed, so that a long upload does not outlast it.
struct LeasedUpload<'a> {
    upload: Upload,
    lease: &'a mut Leased,
}

impl Write for LeasedUpload<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.lease.keep()?;
        self.upload.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.upload.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::intake::Intake;
    use model::Labels;
    use tables::delta::{LEASE_MS, Sweeper};

    /// A server's garbage collection runs again and again, from the start of an import until just before its
    /// lease expires.
    #[test]
    fn files_staged_for_longer_than_the_grace_are_committed() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), runtime().unwrap());
        let url = format!("file://{}/t", dir.path().display());
        let open = || {
            let location = Location::open(&url, [], runtime.handle().clone()).unwrap();
            Table::open_or_create(&METRICS, location).unwrap()
        };
        let hasher = SeriesHasher::new(1);
        let mut intake = Intake::new(hasher.clone(), dir.path());
        intake.series(&Labels::from_pairs(&[("__name__", "up")])).unwrap();
        intake.sample(86_400_000, 1.0).unwrap();
        let (files, _) = intake.finish().unwrap();
        let (table, tenant, data_dir) = (open(), TenantId::anonymous(), dir.path().into());
        let target = Target { table, tenant, hasher, data_dir, rules: RuleFiles::default() };
        let mut lease = Leased::take(&target.table, "x").unwrap();
        let blocks = target.stage("import/x", &files, &mut lease).unwrap();
        let left_behind = target.table.upload(files[0].summary.date, &FileStem::sealed(1), 1).unwrap();
        left_behind.finish().unwrap();
        let (server, mut sweeper, mut swept) = (open(), Sweeper::default(), 0);
        for now_ms in [0, 1000, LEASE_MS - 1] {
            swept += sweeper.sweep(&server, now_ms, 1000).unwrap().files;
        }
        assert_eq!(swept, 1, "the sweep deletes only the file without a lease");
        let outcomes = target.table.commit(&blocks, 0).unwrap();
        assert!(matches!(outcomes[..], [Outcome::Committed { .. }]), "{outcomes:?}");
        let live = target.table.files().unwrap().all()[0].path.clone();
        assert!(dir.path().join("t").join(live).exists());
    }

    /// What is left of an interrupted import is not mistaken for a part of other files.
    #[test]
    fn files_that_depend_on_the_table_are_committed_under_their_own_name() {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), runtime().unwrap());
        let url = format!("file://{}/t", dir.path().display());
        let location = Location::open(&url, [], runtime.handle().clone()).unwrap();
        let (hasher, tenant) = (SeriesHasher::new(1), TenantId::anonymous());
        let table = Table::open_or_create(&METRICS, location).unwrap();
        let (data_dir, rules) = (dir.path().into(), RuleFiles::default());
        let target = Target { table, tenant, hasher: hasher.clone(), data_dir, rules };
        let files = |value| {
            let mut intake = Intake::new(hasher.clone(), dir.path());
            intake.series(&Labels::from_pairs(&[("__name__", "up")])).unwrap();
            intake.sample(86_400_000, value).unwrap();
            intake.finish().unwrap().0
        };
        // the first block of more was committed
        let mut lease = Leased::take(&target.table, "x").unwrap();
        let mut blocks = target.stage("import/x", &files(1.0), &mut lease).unwrap();
        blocks[0].upto = 1;
        target.table.commit(&blocks, 0).unwrap();
        assert!(!target.has("import/x").unwrap());
        assert!(target.commit("import/x", "x", Some("1"), files(2.0)).unwrap().is_some());
        assert!(target.has("import/x").unwrap() && target.has("import/x-1").unwrap());
        assert_eq!(target.table.files().unwrap().all().len(), 2);
        assert!(target.commit("import/x", "x", Some("1"), files(2.0)).unwrap().is_none());
    }
}
