//! What can be configured. Raw (file, flags) becomes resolved ([`Settings`]) once, at start.

mod effective;
mod files;
mod lake;
mod raw;
mod value;

pub use effective::{EffectiveSetting, Origin};
pub use files::Files;
pub use lake::{LakeSettings, StoreOptions, TablesUrl};
pub use raw::{ConfigFile, Flags};
pub use value::SettingsError;

use crate::limits::budget::Budget;
use crate::machine::{Memory, files_max};
use model::{TenantId, caps};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use stdx::address;
use tables::rollup::Resolution;
use value::{count_or, duration_or, of_tenants, size, wrong};

/// How far behind the clock a sample may be by default. Each day has files of its own, so this bounds how many files anybody
/// can make of a few samples: 3,651 a tenant, which a listing of labels reads in seconds.
const PAST_MS: i64 = 10 * 365 * 86_400_000;

/// Everything resolved.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the journal lives. Default `floodmark-data`.
    pub data_dir: PathBuf,
    /// Where HTTP is served. Default `127.0.0.1:9009`.
    pub http: SocketAddr,
    /// The process' memory and its accounts.
    pub budget: Budget,
    /// When a write counts as durable.
    pub durability: journal::Durability,
    /// Units of order and ownership; fixed when a data directory is made. Default: one for each core, at
    /// most eight.
    pub partitions: usize,
    /// How far ahead of the clock a sample may be. Default ten minutes.
    pub future_ms: i64,
    /// How far behind the clock a sample may be. Default ten years.
    pub past_ms: i64,
    /// A series unseen for so long is no longer active. Default one hour.
    pub series_idle_s: u32,
    /// The longest a query may run. Default two minutes.
    pub query_timeout_ms: u64,
    /// How far an instant selector looks back. Default five minutes.
    pub query_lookback_ms: i64,
    /// From what queries are answered that do not say it. Default: from samples, always.
    pub query_resolution: Detail,
    /// The same per tenant; takes precedence over the general setting.
    pub tenant_query_resolution: BTreeMap<TenantId, Detail>,
    /// Queries that run at once; others wait. Default: two for each core.
    pub query_concurrency: usize,
    /// Maximum write requests in progress, counted from the end of the body to the answer. Default: one for each 256 KiB of the
    /// inflight account, 64 to 4,096.
    pub inflight_requests_max: usize,
    /// Write requests that wait for their new series. Default: as [`Self::inflight_requests_max`].
    pub creating_requests_max: usize,
    /// Open connections. Default: as many as may fill their buffers in [`Budget::connections_bytes`], 128 to
    /// 4,096; in any case fewer than there are files for.
    pub connections_max: usize,
    /// Host names that requests may use besides `localhost` and addresses (`*` for any), and whose web pages may write.
    /// Default: none on a loopback address, else any.
    pub allow_host: Vec<String>,
    /// Tenants in memory. Default 10,000.
    pub tenants_max: usize,
    /// New tenants at once. Default 1,000.
    pub tenant_burst: usize,
    /// New tenants a minute from then on. Default 300: within the quarter of an hour in which a silent one leaves memory
    /// they are not half of [`Self::tenants_max`].
    pub tenants_per_minute: usize,
    /// The longest that a request's body may take to arrive, beyond what its size allows at
    /// [`Self::transfer_rate`]. Default 30 seconds.
    pub body_timeout_ms: u64,
    /// Bytes a second that senders and readers must move at least. Default 64 KiB.
    pub transfer_rate: u64,
    /// A journal segment is closed at this size. Default 128 MiB.
    pub segment_bytes: u64,
    /// Where and how data is stored after sealing.
    pub lake: LakeSettings,
    /// Files that may be open.
    pub files: Files,
    /// Settings that were adjusted, or that are risky; logged at the start.
    pub warnings: Vec<String>,
}

/// From what the windows of a query are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Samples.
    Samples,
    /// The coarsest rollup that says the same, else samples.
    Auto,
    /// This rollup where it says the same, else samples.
    Rollup(Resolution),
}

impl Detail {
    /// What [`Self::parse`] knows.
    pub const WORDS: &str = "one of raw, auto, 5m, 1h";

    /// Reads `raw`, `auto`, `5m` or `1h`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "raw" => Self::Samples,
            "auto" => Self::Auto,
            "5m" => Self::Rollup(Resolution::FiveMinutes),
            "1h" => Self::Rollup(Resolution::Hour),
            _ => return None,
        })
    }

    /// What [`Self::parse`] reads as this.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Samples => "raw",
            Self::Auto => "auto",
            Self::Rollup(Resolution::FiveMinutes) => "5m",
            Self::Rollup(Resolution::Hour) => "1h",
        }
    }
}

impl Settings {
    /// Flags before file before defaults.
    pub fn resolve(flags: Flags) -> Result<Self, SettingsError> {
        let file = flags.file()?;
        Self::of(&ConfigFile::given(flags, file))
    }

    fn of(given: &ConfigFile) -> Result<Self, SettingsError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = Memory::of(Path::new("/"));
        let budget = budget(given.memory.as_deref(), &memory)?;
        let partitions =
            count_or("partitions", given.partitions, partitions_default(), caps::PARTITIONS_MAX)?;
        let query_concurrency = count_or("query_concurrency", given.query_concurrency, 2 * cores, 1024)?;
        let files = Files::of(files_max(), partitions, query_concurrency);
        let mut warnings: Vec<_> = budget.warning(&memory).into_iter().collect();
        let connections_max = files.connections(given.connections, &budget, &mut warnings)?;
        let inflight_default = budget.inflight_bytes / (256 << 10);
        let inflight_requests_max = count_or(
            "inflight_requests",
            given.inflight_requests,
            inflight_default.clamp(64, 4096) as usize,
            1 << 20,
        )?;
        let duration = |name, text: &Option<String>, default_ms| duration_or(name, text.as_ref(), default_ms);
        let idle_ms = duration("series_idle", &given.series_idle, 3_600_000)?;
        let data_dir = given.data_dir.clone().unwrap_or_else(|| "floodmark-data".into());
        Ok(Self {
            lake: LakeSettings::resolve(given, &data_dir)?,
            data_dir,
            http: http(given.http.as_deref())?,
            durability: durability(given.durability.as_deref())?,
            partitions,
            future_ms: duration("future_limit", &given.future_limit, 600_000)?,
            past_ms: duration("past_limit", &given.past_limit, PAST_MS)?,
            series_idle_s: u32::try_from(idle_ms / 1000).unwrap_or(u32::MAX),
            query_timeout_ms: duration("query_timeout", &given.query_timeout, 120_000)? as u64,
            query_lookback_ms: duration("query_lookback", &given.query_lookback, 300_000)?,
            query_resolution: given
                .query_resolution
                .as_ref()
                .map_or(Ok(Detail::Samples), |text| detail("query_resolution", text))?,
            tenant_query_resolution: of_tenants(
                "tenant_query_resolution",
                &given.tenant_query_resolution,
                |name, text| detail(name, text),
            )?,
            query_concurrency,
            inflight_requests_max,
            creating_requests_max: count_or(
                "creating_requests",
                given.creating_requests,
                inflight_requests_max,
                1 << 20,
            )?,
            allow_host: hosts(&given.allow_host)?,
            connections_max,
            tenants_max: count_or("tenants", given.tenants, 10_000, 1 << 20)?,
            tenant_burst: count_or("tenant_burst", given.tenant_burst, 1000, 1 << 20)?,
            tenants_per_minute: count_or("tenants_per_minute", given.tenants_per_minute, 300, 1 << 20)?,
            body_timeout_ms: duration("body_timeout", &given.body_timeout, 30_000)? as u64,
            transfer_rate: transfer_rate(given.transfer_rate.as_deref())?,
            segment_bytes: segment_bytes(given.segment_size.as_deref())?,
            files,
            warnings,
            budget,
        })
    }

    /// From what a tenant's queries are answered that do not say it.
    pub(crate) fn query_resolution_of(&self, tenant: &TenantId) -> Detail {
        self.tenant_query_resolution.get(tenant).copied().unwrap_or(self.query_resolution)
    }
}

/// Partitions of a data directory that is made: one for each core, at most eight.
pub(crate) fn partitions_default() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

fn budget(given: Option<&str>, memory: &Memory) -> Result<Budget, SettingsError> {
    let Some(text) = given else { return Ok(Budget::half_of(memory)) };
    Budget::of(size("memory", text)?).map_err(|reason| wrong("memory", text, reason))
}

fn http(given: Option<&str>) -> Result<SocketAddr, SettingsError> {
    let Some(text) = given else { return Ok(SocketAddr::from(([127, 0, 0, 1], 9009))) };
    address::listen(text).map_err(|reason| wrong("http", text, reason))
}

/// Names without a port, or `*`.
fn hosts(given: &[String]) -> Result<Vec<String>, SettingsError> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    };
    match given.iter().find(|name| *name != "*" && !is_name(name)) {
        Some(name) => Err(wrong("allow_host", name, "a name without a port, such as metrics.example, or *")),
        None => Ok(given.to_vec()),
    }
}

fn durability(given: Option<&str>) -> Result<journal::Durability, SettingsError> {
    match given {
        None | Some("fsync") => Ok(journal::Durability::Fsync),
        Some("os") => Ok(journal::Durability::Os),
        Some(other) => Err(wrong("durability", other, "either fsync or os")),
    }
}

fn detail(name: &'static str, text: &str) -> Result<Detail, SettingsError> {
    Detail::parse(text).ok_or_else(|| wrong(name, text, Detail::WORDS))
}

fn transfer_rate(given: Option<&str>) -> Result<u64, SettingsError> {
    let Some(text) = given else { return Ok(64 << 10) };
    let bytes = size("transfer_rate", text)?;
    let is_in = (1..=1 << 30).contains(&bytes);
    is_in.then_some(bytes).ok_or_else(|| wrong("transfer_rate", text, "1B to 1GiB"))
}

fn segment_bytes(given: Option<&str>) -> Result<u64, SettingsError> {
    let Some(text) = given else { return Ok(128 << 20) };
    let bytes = size("segment_size", text)?;
    let is_in = (1 << 20..=1 << 30).contains(&bytes);
    is_in.then_some(bytes).ok_or_else(|| wrong("segment_size", text, "1MiB to 1GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn files_say_where_they_are_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.toml");
        let check = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Settings::resolve(Flags { config: Some(path.clone()), ..Flags::default() })
                .map_err(|e| e.to_string())
        };
        assert_eq!(check("memory = \"2GiB\"\nquery_timeout = \"5s\"").unwrap().query_timeout_ms, 5000);
        assert!(check("\nmemroy = \"2GiB\"").unwrap_err().contains("line 2"));
        assert!(check("memory = \"1MiB\"").unwrap_err().contains("64 MiB"));
        assert!(check("allow_host = [\"a:80\"]").unwrap_err().contains("without a port"));
        assert!(check("partitions = 0").unwrap_err().contains("1 to 1024"));
        assert!(check("http = \"9009\"").unwrap_err().contains(":9009 for all addresses"));
        assert!(check("durability = \"maybe\"").unwrap_err().contains("fsync or os"));
        assert!(check("tables = \"/no/scheme\"").unwrap_err().contains("s3://"));
        assert!(check("[tenant_retention]\n\"a/b\" = \"1d\"").unwrap_err().contains("'/'"));
    }

    #[test]
    fn the_reference_has_every_key() {
        let error = toml::from_str::<ConfigFile>("nonsense = 1").unwrap_err().to_string();
        let known = error.split_once("expected one of").expect("all keys are listed").1;
        let known: BTreeSet<_> = known.split('`').skip(1).step_by(2).collect();
        let reference = include_str!("../../../docs/reference/configuration.md");
        let rows = reference.split_once("## All settings").expect("there is such a part").1.lines();
        let named =
            rows.take_while(|line| !line.starts_with("## ")).filter_map(|row| row.strip_prefix("| `"));
        let named: BTreeSet<_> =
            named.map(|row| row.split('`').next().unwrap_or_default().trim_matches(['[', ']'])).collect();
        assert_eq!(named, known, "on the left what docs/reference/configuration.md says");
    }

    #[test]
    fn tables_lie_in_the_data_directory_or_where_told() {
        let url = |data_dir: &str, tables: Option<&str>| {
            let flags =
                Flags { data_dir: Some(data_dir.into()), tables: tables.map(Into::into), ..Flags::default() };
            Settings::resolve(flags).unwrap().lake.url.0
        };
        assert_eq!(url("/a b", None), "file:///a%20b/tables/");
        assert_eq!(url("/a", Some("s3://bucket/x")), "s3://bucket/x");
    }
}
