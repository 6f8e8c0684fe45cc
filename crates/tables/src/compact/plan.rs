//! Chooses the files to merge, without I/O.

use super::CompactLimits;
use super::ranges::{NameRange, Placement, Ranges};
use crate::date::Date;
use crate::kind::records::RECORDS;
use crate::kind::{Kind, MergePolicy};
use crate::live_file::{LiveFile, Rank};
use crate::store::names;

/// A small job's result is cut at metric names only if the parts are on average at least 1/32 of a full file.
const PART_SHARE: u64 = 32;

/// Files of one day to be merged in one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub date: Date,
    /// Files, in the order of writes.
    pub files: Vec<LiveFile>,
    /// Ascending metric names at which a new result file begins, so that later jobs can merge each range of names
    /// separately.
    pub cuts: Vec<String>,
}

impl Job {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }
}

/// Plans the merges of the live files, which must have the order of [`crate::delta::Files::all`]. The files of each day
/// before `today` are merged into few files. The files of `today` are merged only as they accumulate. Jobs can run in
/// any order. Files that `leave` selects are not merged, and no merge spans them.
pub fn plan(
    kind: &Kind,
    files: &[LiveFile],
    today: Date,
    limits: &CompactLimits,
    leave: impl Fn(&LiveFile) -> bool,
) -> Vec<Job> {
    // rows of other programs' files may be in any order, and a merge of records does not sort them
    let is_records = kind.name == RECORDS.name;
    let leave = |file: &LiveFile| leave(file) || file.is_early && is_records;
    let mut jobs = Vec::new();
    for day in files.chunk_by(|a, b| a.date == b.date).filter(|day| day.len() > 1) {
        let ranges = Ranges::of(day, limits.file_bytes / 2);
        let places: Vec<Option<Placement>> =
            day.iter().map(|f| (!leave(f)).then(|| ranges.place(f))).collect();
        for place in ranges.places() {
            let is_own = |at: &Option<Placement>| *at == Some(place);
            let of = |wanted: bool| {
                let files = day.iter().zip(&places).filter(move |(_, at)| is_own(at) == wanted);
                files.map(|(file, _)| file).collect::<Vec<_>>()
            };
            let cuts = if place == Placement::Wide { ranges.cuts.as_slice() } else { &[] };
            let planner = Planner { limits, cuts, is_over: day[0].date < today };
            let others = match kind.merge {
                MergePolicy::LaterWins => of(false),
                MergePolicy::Disjoint => Vec::new(),
            };
            let mut own = of(true);
            if is_records {
                own.sort_by_key(|file| (file.rank(), names::numbered(&file.path)));
            }
            for run in runs(&own, &others, !is_records) {
                planner.plan(&run, &mut jobs);
            }
        }
    }
    jobs
}

/// All files with the same place in the order of writes, for example those of one block. A job usually merges all of
/// them.
#[derive(Debug)]
struct Unit<'a> {
    files: Vec<&'a LiveFile>,
    bytes: u64,
}

impl Unit<'_> {
    fn rank(&self) -> Rank {
        self.files[0].rank()
    }
}

/// Splits the `own` files into runs, each of which one job may merge. A run ends at a file of `others` that was written
/// between two units and may have the same series: a merge across that file would give older samples a later place in
/// the order of writes, and they would override the samples of that file.
///
/// Files with the same rank are one unit if `together` is true. A block of records may have more files than a job merges,
/// which are units of their own.
fn runs<'a>(own: &[&'a LiveFile], others: &[&LiveFile], together: bool) -> Vec<Vec<Unit<'a>>> {
    let range = NameRange::of(own);
    let barring: Vec<Rank> = others.iter().filter(|o| range.overlaps(o)).map(|o| o.rank()).collect();
    let is_barred = |last: &Unit<'_>, next: &Unit<'_>| {
        let first = barring.partition_point(|rank| *rank <= last.rank());
        barring.get(first).is_some_and(|rank| *rank <= next.rank())
    };
    let mut runs: Vec<Vec<Unit<'a>>> = Vec::new();
    for files in own.chunk_by(|a, b| together && a.rank() == b.rank()) {
        let unit = Unit { files: files.to_vec(), bytes: files.iter().map(|f| f.bytes).sum() };
        match runs.last_mut() {
            Some(run) if run.last().is_none_or(|last| !is_barred(last, &unit)) => run.push(unit),
            _ => runs.push(vec![unit]),
        }
    }
    runs
}

struct Planner<'a> {
    limits: &'a CompactLimits,
    /// Metric names at which results are cut. There are none unless this planner merges wide files.
    cuts: &'a [String],
    is_over: bool,
}

impl Planner<'_> {
    fn plan(&self, mut units: &[Unit<'_>], jobs: &mut Vec<Job>) {
        if self.is_over
            && self.cuts.is_empty()
            && let [only] = units
            && only.files.len() > 1
            && !self.is_large(only)
        {
            // files with disjoint series may be merged in any combination
            return jobs.push(self.job(units));
        }
        while !units.is_empty() {
            let len = if self.is_over { self.choose_over(units) } else { self.choose_open(units) };
            if len == 0 {
                units = &units[1..];
                continue;
            }
            let job = self.job(&units[..len]);
            let parts = job.cuts.len() as u64 + 1;
            let splits = job.bytes() / parts >= 2 * self.limits.file_bytes;
            jobs.push(job);
            if splits {
                // this job creates large files; the next plan makes new cuts from their metric names, and merges the
                // remaining units by these cuts
                return;
            }
            units = &units[len..];
        }
    }

    fn is_large(&self, unit: &Unit<'_>) -> bool {
        unit.bytes >= self.limits.file_bytes
    }

    /// Number of leading units that fit into one job.
    fn reach(&self, units: &[Unit<'_>]) -> usize {
        let (mut files, mut bytes) = (0, 0);
        let fits = |unit: &&Unit<'_>| {
            files += unit.files.len();
            bytes += unit.bytes;
            files <= self.limits.fan_in && bytes <= self.limits.job_bytes
        };
        units.iter().take_while(fits).count()
    }

    /// True if a result of `bytes` is large enough to be cut at the names in `cuts`.
    fn is_cut(&self, bytes: u64) -> bool {
        let parts = self.cuts.len() as u64 + 1;
        parts > 1
            && (bytes / parts >= self.limits.file_bytes / PART_SHARE
                || bytes >= self.limits.job_bytes / self.limits.files_min.max(2) as u64)
    }

    fn job(&self, units: &[Unit<'_>]) -> Job {
        let mut bytes = 0;
        // a unit larger than a job contributes some of its files
        let fits = |(n, file): &(usize, &LiveFile)| {
            bytes += file.bytes;
            *n == 0 || *n < self.limits.fan_in && bytes <= self.limits.job_bytes
        };
        let files = units.iter().flat_map(|unit| unit.files.iter().copied());
        let files: Vec<LiveFile> = files.enumerate().take_while(fits).map(|(_, f)| f.clone()).collect();
        let mut job = Job { date: files[0].date, files, cuts: Vec::new() };
        if self.is_cut(job.bytes()) {
            job.cuts = self.cuts.to_vec();
        }
        job
    }

    /// Number of leading units to merge on a past day. These are all units that fit into a job, or none if their bytes
    /// do not justify rewriting the largest of them.
    fn choose_over(&self, units: &[Unit<'_>]) -> usize {
        let len = self.reach(units).max(1);
        let run = &units[..len];
        let bytes: u64 = run.iter().map(|u| u.bytes).sum();
        let largest = run.iter().map(|u| u.bytes).max().unwrap_or(0);
        let is_worth = bytes - largest >= largest / 4
            || len > self.limits.fan_in / 2
            || !run.iter().any(|unit| self.is_large(unit));
        if self.is_cut(bytes) || len > 1 && is_worth { len } else { 0 }
    }

    /// Number of leading units to merge on a day that is not over: units of similar size, so that samples are rewritten
    /// only a few times.
    fn choose_open(&self, units: &[Unit<'_>]) -> usize {
        let level = |unit: &Unit<'_>| unit.bytes.max(1 << 16).ilog2() / 2;
        let top = level(&units[0]);
        let alike = units.iter().take_while(|u| level(u) <= top).count();
        let len = alike.min(self.reach(units));
        let of_top = units[..len].iter().filter(|u| level(u) == top).count();
        // smaller units are merged too, but a merge is due only if there are enough units of the largest size
        let is_due = len >= self.limits.files_min.max(2) && of_top * 2 >= self.limits.files_min;
        if is_due { len } else { 0 }
    }
}
