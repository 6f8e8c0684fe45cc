//! What can be configured. Raw (file, flags) becomes resolved ([`Settings`]) once, at start.

use crate::budget::Budget;
use crate::http::CONNECTION_BUFFER_BYTES;
use model::{TenantId, caps};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tables::compact::CompactLimits;
use tables::rollup::Resolution;

/// The configuration file: everything optional, nothing unknown.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// See [`Settings::data_dir`].
    pub data_dir: Option<PathBuf>,
    /// See [`Settings::http`].
    pub http: Option<SocketAddr>,
    /// See [`Budget::total_bytes`]; as `"2GiB"`.
    pub memory: Option<String>,
    /// `"fsync"` or `"os"`.
    pub durability: Option<String>,
    /// See [`Settings::partitions`].
    pub partitions: Option<usize>,
    /// See [`Settings::out_of_order_window_ms`]; as `"1h"`.
    pub out_of_order_window: Option<String>,
    /// See [`Settings::future_ms`]; as `"10m"`.
    pub future_limit: Option<String>,
    /// See [`Settings::series_idle_s`]; as `"1h"`.
    pub series_idle: Option<String>,
    /// See [`Settings::query_timeout_ms`]; as `"2m"`.
    pub query_timeout: Option<String>,
    /// See [`Settings::query_lookback_ms`]; as `"5m"`.
    pub query_lookback: Option<String>,
    /// See [`Settings::query_concurrency`].
    pub query_concurrency: Option<usize>,
    /// See [`Settings::inflight_requests_max`].
    pub inflight_requests: Option<usize>,
    /// See [`Settings::connections_max`].
    pub connections: Option<usize>,
    /// See [`Settings::tenants_max`].
    pub tenants: Option<usize>,
    /// See [`Settings::body_timeout_ms`]; as `"30s"`.
    pub body_timeout: Option<String>,
    /// See [`Settings::segment_bytes`]; as `"128MiB"`.
    pub segment_size: Option<String>,
    /// See [`LakeSettings::url`].
    pub tables: Option<String>,
    /// See [`LakeSettings::options`].
    pub tables_options: BTreeMap<String, String>,
    /// See [`LakeSettings::seal_after_ms`]; as `"15m"`.
    pub seal_after: Option<String>,
    /// See [`LakeSettings::seal_bytes`]; as `"256MiB"`.
    pub seal_size: Option<String>,
    /// See [`LakeSettings::retention_ms`]; as `"90d"`.
    pub retention: Option<String>,
    /// See [`LakeSettings::tenant_retention_ms`].
    pub tenant_retention: BTreeMap<String, String>,
    /// See [`LakeSettings::rollups`]; as `["5m", "1h"]`.
    pub rollups: Option<Vec<String>>,
    /// See [`LakeSettings::tenant_rollups`].
    pub tenant_rollups: BTreeMap<String, Vec<String>>,
    /// See [`LakeSettings::rollup_retention_ms`]; as `"5y"`.
    pub rollup_retention: Option<String>,
    /// See [`LakeSettings::tenant_rollup_retention_ms`].
    pub tenant_rollup_retention: BTreeMap<String, String>,
    /// See [`Settings::query_resolution`].
    pub query_resolution: Option<String>,
    /// See [`Settings::tenant_query_resolution`].
    pub tenant_query_resolution: BTreeMap<String, String>,
    /// See [`LakeSettings::compaction`].
    pub compaction: Option<bool>,
    /// See [`LakeSettings::vacuum_grace_ms`]; as `"1h"`.
    pub vacuum_grace: Option<String>,
}

/// What the command line says; it goes before the file.
#[derive(Debug, Default, Clone)]
pub struct Flags {
    /// `--data-dir`
    pub data_dir: Option<PathBuf>,
    /// `--http`
    pub http: Option<SocketAddr>,
    /// `--memory`
    pub memory: Option<String>,
    /// `--durability`
    pub durability: Option<String>,
    /// `--tables`
    pub tables: Option<String>,
    /// `--seal-after`
    pub seal_after: Option<String>,
    /// `--retention`
    pub retention: Option<String>,
    /// `--config`
    pub config: Option<PathBuf>,
}

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
    /// How much older than its series' newest sample a sample may be. Default one hour.
    pub out_of_order_window_ms: i64,
    /// How far ahead of the clock a sample may be. Default ten minutes.
    pub future_ms: i64,
    /// A series unseen for so long is no longer active. Default one hour.
    pub series_idle_s: u32,
    /// The longest a query may run. Default two minutes.
    pub query_timeout_ms: u64,
    /// How far an instant selector looks back. Default five minutes.
    pub query_lookback_ms: i64,
    /// From what queries are answered that do not say it. Default: from samples, always.
    pub query_resolution: Detail,
    /// The same for single tenants, before the general one.
    pub tenant_query_resolution: BTreeMap<TenantId, Detail>,
    /// Queries that run at once; others wait. Default: two for each core.
    pub query_concurrency: usize,
    /// Write requests between the end of their body and their answer. Default: one for each 256 KiB of the
    /// inflight account, 64 to 4,096.
    pub inflight_requests_max: usize,
    /// Open connections. Default: as many as may fill their buffers in half of the account for other things,
    /// 128 to 4,096.
    pub connections_max: usize,
    /// Tenants in memory. Default 10,000.
    pub tenants_max: usize,
    /// The longest that a request's body may take to arrive. Default 30 seconds.
    pub body_timeout_ms: u64,
    /// A journal segment is closed at this size. Default 128 MiB.
    pub segment_bytes: u64,
    /// What becomes of data that is no longer fresh.
    pub lake: LakeSettings,
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
}

/// How data leaves the head for the tables, and how long it stays there.
#[derive(Debug, Clone)]
pub struct LakeSettings {
    /// Where the tables lie: `file:///…`, `s3://…`, `gs://…`, `az://…`. Default: `tables` in the data directory.
    pub url: String,
    /// Options of the object store, as the crate `object_store` names them (`aws_endpoint`, …): those of the
    /// environment, and those of the file before them.
    pub options: BTreeMap<String, String>,
    /// The head's data is sealed when its oldest part is so old. Default 15 minutes: with files of that length a
    /// day of one table is some hundred commits, and a restart replays no more than it.
    pub seal_after_ms: i64,
    /// It is sealed earlier where a partition's journal holds more than this since the last seal. Default 256
    /// MiB, which bounds the disk and the replay: some seconds.
    pub seal_bytes: u64,
    /// Samples older than this are dropped, a day at a time. Default: never.
    pub retention_ms: Option<i64>,
    /// The same for single tenants, before the general one.
    pub tenant_retention_ms: BTreeMap<TenantId, i64>,
    /// Which rollups are made of days that are over. Default: none; they cost space, and not everybody looks back so far.
    pub rollups: Vec<Resolution>,
    /// The same for single tenants, before the general one.
    pub tenant_rollups: BTreeMap<TenantId, Vec<Resolution>>,
    /// How long rollups are kept; never shorter than their samples. Default: as long as those.
    pub rollup_retention_ms: Option<i64>,
    /// The same for single tenants, before the general one.
    pub tenant_rollup_retention_ms: BTreeMap<TenantId, i64>,
    /// Small files are merged into larger ones. Default: yes; another engine may do it instead.
    pub compaction: bool,
    /// Bytes of a file that merges make, at least, where there is so much. No flag: only simulations change it.
    pub merged_file_bytes: u64,
    /// A file that left its table is deleted after so long, for the sake of readers. Default one hour.
    pub vacuum_grace_ms: i64,
}

impl LakeSettings {
    /// How long a tenant's samples are kept; `None` for ever.
    pub(crate) fn retention_ms_of(&self, tenant: &TenantId) -> Option<i64> {
        self.tenant_retention_ms.get(tenant).copied().or(self.retention_ms)
    }

    /// How long a tenant's rollups are kept; `None` for ever.
    pub(crate) fn rollup_retention_ms_of(&self, tenant: &TenantId) -> Option<i64> {
        let samples_ms = self.retention_ms_of(tenant)?;
        let own_ms = self.tenant_rollup_retention_ms.get(tenant).copied().or(self.rollup_retention_ms);
        Some(own_ms.unwrap_or(samples_ms).max(samples_ms))
    }

    /// Which rollups a tenant gets.
    pub(crate) fn rollups_of(&self, tenant: &TenantId) -> &[Resolution] {
        self.tenant_rollups.get(tenant).unwrap_or(&self.rollups)
    }
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what it should be; the text names the line.
    #[error("{}: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: Box<toml::de::Error>,
    },
    /// One value is out of bounds.
    #[error("{name} = {value}: {reason}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        reason: String,
    },
}

impl ConfigFile {
    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::Read { path: path.into(), source })?;
        toml::from_str(&text)
            .map_err(|source| SettingsError::Parse { path: path.into(), reason: Box::new(source) })
    }
}

impl Settings {
    /// From what a tenant's queries are answered that do not say it.
    pub(crate) fn query_resolution_of(&self, tenant: &TenantId) -> Detail {
        self.tenant_query_resolution.get(tenant).copied().unwrap_or(self.query_resolution)
    }
}

/// Partitions of a data directory that is made: one for each core, at most eight.
pub(crate) fn partitions_default() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

impl Settings {
    /// Flags before file before defaults.
    pub fn resolve(flags: Flags) -> Result<Self, SettingsError> {
        let file = flags.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let budget = match flags.memory.or(file.memory) {
            Some(text) => Budget::of(bytes_setting("memory", &text)?)
                .map_err(|reason| value_error("memory", &text, reason))?,
            None => Budget::of_machine(),
        };
        let durability = flags.durability.or(file.durability).unwrap_or_else(|| "fsync".into());
        let durability = match durability.as_str() {
            "fsync" => journal::Durability::Fsync,
            "os" => journal::Durability::Os,
            _ => return Err(value_error("durability", &durability, "either fsync or os".into())),
        };
        let connections_default =
            (budget.connections_bytes() / CONNECTION_BUFFER_BYTES as u64).clamp(128, 4096) as usize;
        let inflight_default = (budget.inflight_bytes / (256 << 10)).clamp(64, 4096) as usize;
        let duration = |name, text: &Option<String>, default_ms| match text {
            Some(text) => duration_setting(name, text),
            None => Ok(default_ms),
        };
        let count = |name, given: Option<usize>, default, max| match given {
            Some(n) if n == 0 || n > max => Err(value_error(name, &n.to_string(), format!("1 to {max}"))),
            n => Ok(n.unwrap_or(default)),
        };
        let idle_ms = duration("series_idle", &file.series_idle, 3_600_000)?;
        let data_dir = flags.data_dir.or(file.data_dir).unwrap_or_else(|| "floodmark-data".into());
        let retention = flags.retention.or(file.retention);
        let lake = LakeSettings {
            url: tables_url(flags.tables.or(file.tables), &data_dir)?,
            options: store_options(file.tables_options),
            seal_after_ms: duration("seal_after", &flags.seal_after.or(file.seal_after), 900_000)?,
            seal_bytes: file.seal_size.map_or(Ok(256 << 20), |text| bytes_setting("seal_size", &text))?,
            retention_ms: retention.map(|text| duration_setting("retention", &text)).transpose()?,
            tenant_retention_ms: of_tenants("tenant_retention", &file.tenant_retention, |text| {
                duration_setting("tenant_retention", text)
            })?,
            rollups: rollups_setting("rollups", &file.rollups.unwrap_or_default())?,
            tenant_rollups: of_tenants("tenant_rollups", &file.tenant_rollups, |texts| {
                rollups_setting("tenant_rollups", texts)
            })?,
            rollup_retention_ms: file
                .rollup_retention
                .map(|text| duration_setting("rollup_retention", &text))
                .transpose()?,
            tenant_rollup_retention_ms: of_tenants(
                "tenant_rollup_retention",
                &file.tenant_rollup_retention,
                |text| duration_setting("tenant_rollup_retention", text),
            )?,
            compaction: file.compaction.unwrap_or(true),
            merged_file_bytes: CompactLimits::default().file_bytes,
            vacuum_grace_ms: duration("vacuum_grace", &file.vacuum_grace, 3_600_000)?,
        };
        Ok(Self {
            data_dir,
            lake,
            http: flags.http.or(file.http).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9009))),
            budget,
            durability,
            partitions: count("partitions", file.partitions, partitions_default(), caps::PARTITIONS_MAX)?,
            out_of_order_window_ms: duration("out_of_order_window", &file.out_of_order_window, 3_600_000)?,
            future_ms: duration("future_limit", &file.future_limit, 600_000)?,
            series_idle_s: u32::try_from(idle_ms / 1000).unwrap_or(u32::MAX),
            query_timeout_ms: duration("query_timeout", &file.query_timeout, 120_000)? as u64,
            query_lookback_ms: duration("query_lookback", &file.query_lookback, 300_000)?,
            query_resolution: file
                .query_resolution
                .map_or(Ok(Detail::Samples), |text| detail_setting("query_resolution", &text))?,
            tenant_query_resolution: of_tenants(
                "tenant_query_resolution",
                &file.tenant_query_resolution,
                |text| detail_setting("tenant_query_resolution", text),
            )?,
            query_concurrency: count("query_concurrency", file.query_concurrency, 2 * cores, 1024)?,
            inflight_requests_max: count(
                "inflight_requests",
                file.inflight_requests,
                inflight_default,
                1 << 20,
            )?,
            connections_max: count("connections", file.connections, connections_default, 1 << 20)?,
            tenants_max: count("tenants", file.tenants, 10_000, 1 << 20)?,
            body_timeout_ms: duration("body_timeout", &file.body_timeout, 30_000)? as u64,
            segment_bytes: match &file.segment_size {
                Some(text) => bytes_setting("segment_size", text).and_then(|bytes| {
                    let bounds = 1 << 20..=1 << 30;
                    let out = || value_error("segment_size", text, "1MiB to 1GiB".into());
                    bounds.contains(&bytes).then_some(bytes).ok_or_else(out)
                })?,
                None => 128 << 20,
            },
        })
    }
}

/// The URL as given, or that of the folder `tables` in the data directory.
fn tables_url(given: Option<String>, data_dir: &Path) -> Result<String, SettingsError> {
    if let Some(url) = given {
        let has_scheme = url.split_once("://").is_some_and(|(scheme, _)| !scheme.is_empty());
        let reason = || "a URL such as file:///var/lib/tables or s3://bucket/folder".into();
        return if has_scheme { Ok(url) } else { Err(value_error("tables", &url, reason())) };
    }
    let whole = std::path::absolute(data_dir.join("tables"));
    let url = whole.ok().and_then(|path| url::Url::from_directory_path(path).ok());
    let shown = data_dir.display().to_string();
    url.map(String::from)
        .ok_or_else(|| value_error("data_dir", &shown, "a path that can be made absolute".into()))
}

/// What the environment says about object stores (`AWS_…`, `AZURE_…`, `GOOGLE_…`), and the file before it.
fn store_options(file: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = |name: &str| ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix));
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut options: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(text)
        .filter(|(name, _)| ours(name))
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    options.extend(file.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)));
    options
}

fn of_tenants<T, V>(
    name: &'static str,
    given: &BTreeMap<String, T>,
    parse: impl Fn(&T) -> Result<V, SettingsError>,
) -> Result<BTreeMap<TenantId, V>, SettingsError> {
    let tenant = |text: &str| TenantId::parse(text).map_err(|e| value_error(name, text, e.to_string()));
    given.iter().map(|(text, value)| Ok((tenant(text)?, parse(value)?))).collect()
}

fn rollups_setting(name: &'static str, texts: &[String]) -> Result<Vec<Resolution>, SettingsError> {
    let one = |text: &String| {
        let ms = parse_duration_ms(text);
        let found = Resolution::ALL.into_iter().find(|resolution| ms == Some(resolution.ms()));
        found.ok_or_else(|| value_error(name, text, "either 5m or 1h".into()))
    };
    let mut rollups = texts.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    rollups.sort_unstable();
    rollups.dedup();
    Ok(rollups)
}

fn detail_setting(name: &'static str, text: &str) -> Result<Detail, SettingsError> {
    Detail::parse(text).ok_or_else(|| value_error(name, text, Detail::WORDS.into()))
}

fn value_error(name: &'static str, value: &str, reason: String) -> SettingsError {
    SettingsError::Value { name, value: value.into(), reason }
}

fn bytes_setting(name: &'static str, text: &str) -> Result<u64, SettingsError> {
    parse_bytes(text).ok_or_else(|| value_error(name, text, "a size such as 512MiB or 2GiB".into()))
}

fn duration_setting(name: &'static str, text: &str) -> Result<i64, SettingsError> {
    parse_duration_ms(text)
        .filter(|ms| *ms > 0)
        .ok_or_else(|| value_error(name, text, "a duration such as 30s, 5m or 1h30m".into()))
}

/// `512MiB`, `2GiB`, `1.5GB`, `4096`: bytes.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "kib" | "ki" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" | "mi" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" | "gi" => 1 << 30,
        "tb" | "t" => 1_000_000_000_000,
        "tib" | "ti" => 1 << 40,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

/// A duration in Prometheus' notation (`1h30m`, `500ms`, `2d`, `1w`, `1y`): milliseconds.
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total: i64 = 0;
    let mut smallest = i64::MAX;
    if rest == "0" {
        return Some(0);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms: i64 = match &rest[..letters] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            "y" => 31_536_000_000,
            _ => return None,
        };
        // units come in descending order, each once
        if unit_ms >= smallest {
            return None;
        }
        smallest = unit_ms;
        rest = &rest[letters..];
        total = total.checked_add(number.checked_mul(unit_ms)?)?;
    }
    (smallest < i64::MAX).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("512MiB"), Some(512 << 20));
        assert_eq!(parse_bytes("1.5 GB"), Some(1_500_000_000));
        assert_eq!(parse_bytes("4096"), Some(4096));
        for bad in ["", "GiB", "-1", "1XB", "1e400", "99999999TiB"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration_ms("1h30m"), Some(5_400_000));
        assert_eq!(parse_duration_ms("500ms"), Some(500));
        assert_eq!(parse_duration_ms("0"), Some(0));
        for bad in ["", "5", "m", "1m1h", "1h1h", "-5m", "99999999999999999y"] {
            assert_eq!(parse_duration_ms(bad), None, "{bad}");
        }
    }

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
        assert!(check("partitions = 0").unwrap_err().contains("1 to 1024"));
        assert!(check("durability = \"maybe\"").unwrap_err().contains("fsync or os"));
        assert!(check("tables = \"/no/scheme\"").unwrap_err().contains("s3://"));
        assert!(check("[tenant_retention]\n\"a/b\" = \"1d\"").unwrap_err().contains("'/'"));
    }

    #[test]
    fn tables_lie_in_the_data_directory_or_where_told() {
        let url = |data_dir: &str, tables: Option<&str>| {
            let flags =
                Flags { data_dir: Some(data_dir.into()), tables: tables.map(Into::into), ..Flags::default() };
            Settings::resolve(flags).unwrap().lake.url
        };
        assert_eq!(url("/a b", None), "file:///a%20b/tables/");
        assert_eq!(url("/a", Some("s3://bucket/x")), "s3://bucket/x");
    }
}
