//! Settings. At start, flags, environment and file ([`Given`]) are resolved to [`Settings`] once.
//!
//! ```text
//!   table ─ declares all ─┬─▶ flags and help (generated from SETTINGS by the command line)
//!                         ├─▶ docs/reference/configuration.md (written by a test)
//!                         ▼
//!   file, environment, flags ─▶ Given ─▶ reader ─▶ Settings, and the list of effective settings
//! ```

mod admin_listen;
mod capacity;
mod disk;
mod file;
mod given;
mod graphite;
mod graphite_rules;
mod label_name;
mod lake;
mod limit_status;
mod listeners;
mod otlp;
mod overrides;
mod reader;
mod secret;
mod self_monitoring;
mod setting;
mod setting_builder;
mod statsd;
mod table;
mod tenant_limits;
mod tenant_settings;
#[cfg(test)]
mod tests;
mod value;

pub use admin_listen::AdminListen;
pub(crate) use admin_listen::is_reachable;
pub use given::{Given, Origin, SettingsError};
pub use graphite::{GraphiteSettings, TenantAddress};
pub use label_name::LabelName;
pub use lake::LakeSettings;
pub use limit_status::LimitStatus;
pub use otlp::OtlpGrpcSettings;
pub(crate) use overrides::Overrides;
pub use overrides::OverridesFile;
pub use reader::EffectiveSetting;
pub use secret::{StoreOptions, TablesUrl};
pub use self_monitoring::SelfMonitoring;
pub use setting::{DefaultValue, Setting, Takes};
pub use statsd::StatsdSettings;
pub use table::SETTINGS;
pub use tenant_limits::TenantLimits;
pub use tenant_settings::{TenantSettings, Tenants};

use crate::auth::{AuthFile, Networks};
use crate::graphite_rules::RuleFiles;
use crate::ingest_rules::IngestRulesFile;
use crate::limits::budget::{Budget, connection_bytes};
use crate::limits::open_files::{Files, connections_default};
use crate::machine::Machine;
use crate::tls::TlsFiles;
use capacity::Capacity;
pub(crate) use capacity::QUERY_BYTES_MIN;
use disk::DiskDefault;
use reader::Reader;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tenant_limits::Defaults;

/// The settings of a node. [`SETTINGS`] describes each of them.
#[derive(Debug, Clone)]
pub struct Settings {
    pub http: SocketAddr,
    pub admin_listen: AdminListen,
    /// Files with the server's certificate. If `None`, connections are not encrypted.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) auth_file: Option<AuthFile>,
    /// Proxies that are trusted to authenticate callers and to name their tenants.
    pub(crate) trusted_proxies: Networks,
    pub budget: Budget,
    pub heap_profile_percent: Option<usize>,
    pub data_dir: PathBuf,
    pub durability: journal::Durability,
    /// Number of partitions of a new data directory. An existing directory keeps the number it was created
    /// with.
    pub partitions: usize,
    pub segment_bytes: u64,
    pub lake: LakeSettings,
    /// Settings that can differ between tenants. They are as read at the start; the overrides file may change
    /// them later.
    pub tenants: Tenants,
    pub overrides: Option<OverridesFile>,
    pub future_ms: i64,
    pub past_ms: i64,
    pub series_idle_s: u32,
    pub inflight_requests_max: usize,
    pub creating_requests_max: usize,
    pub query_timeout_ms: u64,
    pub query_lookback_ms: i64,
    pub query_concurrency: usize,
    pub sql: bool,
    pub graphite_jsonp: bool,
    pub slow_query: Option<Duration>,
    pub query_log: Option<PathBuf>,
    /// Limit on the size of the query log together with its rotated part.
    pub query_log_bytes: u64,
    /// Limit on connections. It is below the setting's value if too few files may be open.
    pub connections_max: usize,
    pub allow_host: Vec<String>,
    pub body_timeout_ms: u64,
    pub transfer_rate: u64,
    pub tenants_max: usize,
    pub tenant_burst: usize,
    pub tenants_per_minute: usize,
    pub self_monitoring: SelfMonitoring,
    pub otlp_grpc: OtlpGrpcSettings,
    pub graphite: GraphiteSettings,
    pub graphite_rules: RuleFiles,
    /// Rules on what is stored.
    pub ingest_rules: Option<IngestRulesFile>,
    pub statsd: StatsdSettings,
    pub(crate) stream_freshness: Duration,
    /// How many files may be open, and how many of them are not for connections.
    pub files: Files,
    pub listing: Vec<EffectiveSetting>,
    /// Warnings about settings that are risky, or whose values had to be adjusted.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Determines the value of each setting: the given value, or else the default for this machine.
    pub fn resolve(given: &Given) -> Result<Self, SettingsError> {
        Ok(Self::effective(given)?.0)
    }

    /// Returns a warning if other machines can reach the server without authentication, or send their
    /// credentials unencrypted.
    pub fn warning_of_access(&self) -> Option<String> {
        let Self { http, admin_listen, auth_file, tls, .. } = self;
        let all = match (auth_file, is_reachable(*http), admin_listen.is_reachable(*http)) {
            (None, true, true) => "read, write and administer",
            (None, true, false) => "read and write",
            (None, false, true) => "administer",
            (Some(_), true, _) if tls.is_none() => {
                return Some(format!(
                    "tokens and passwords reach {http} unencrypted, unless a proxy in front of it terminates TLS; \
                     to encrypt connections, set tls_cert and tls_key"
                ));
            }
            _ => return None,
        };
        let address = admin_listen.address().filter(|_| all == "administer").unwrap_or(*http);
        Some(format!("allow_unauthenticated: anyone who reaches {address} can {all} everything"))
    }

    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Like [`Self::resolve`], but also lists all values in effect, including options of the object store and
    /// settings of single tenants.
    pub fn effective(given: &Given) -> Result<(Self, Vec<EffectiveSetting>), SettingsError> {
        Self::on(&Machine::here(), given)
    }

    fn on(machine: &Machine, given: &Given) -> Result<(Self, Vec<EffectiveSetting>), SettingsError> {
        let mut reader = Reader::new(&given.general, String::new());
        let settings = Self::read(machine, given, &mut reader)?;
        let position = |row: &EffectiveSetting| SETTINGS.iter().position(|setting| setting.key == row.key);
        let (mut rows, of_tenants): (Vec<_>, Vec<_>) =
            settings.tenants.rows().iter().cloned().partition(|row| position(row).is_some());
        rows.extend(reader.into_rows());
        rows.sort_by_key(position);
        rows.extend(reader::store_options(given));
        rows.extend(of_tenants);
        Ok((Self { listing: rows.clone(), ..settings }, rows))
    }

    fn read(machine: &Machine, given: &Given, reader: &mut Reader<'_>) -> Result<Self, SettingsError> {
        let data_dir = reader.read(&table::DATA_DIR)?;
        let lake = LakeSettings::read(reader, &data_dir, given)?;
        let half = Budget::half_of(&machine.memory);
        let budget = match reader.derive(&table::MEMORY, half.total_bytes)? {
            bytes if reader.is_given(&table::MEMORY) => Budget::of(bytes).expect("BUG: memory out of range"),
            _ => half,
        };
        reader.explain(&table::MEMORY, &budget.reason);
        let partitions = reader.derive(&table::PARTITIONS, partitions_default(machine.cores))?;
        let query_concurrency = reader.derive(&table::QUERY_CONCURRENCY, 2 * machine.cores)?;
        let files = Files::of(machine.files_max, partitions, query_concurrency);
        let mut warnings = given.warnings.clone();
        warnings.extend(budget.warning(&machine.memory));
        let tls = listeners::tls(reader, &mut warnings)?;
        let each_bytes = connection_bytes(tls.is_some());
        let wanted = reader.derive(&table::CONNECTIONS, connections_default(&budget, each_bytes))?;
        let connections_max = files
            .connections(wanted, each_bytes, reader.is_given(&table::CONNECTIONS), &budget, &mut warnings)
            .map_err(|reason| reader.error(&table::CONNECTIONS, reason))?;
        reader.adjust(&table::CONNECTIONS, &connections_max);
        let inflight_default = (budget.inflight_bytes / (256 << 10)).clamp(64, 4096) as usize;
        let inflight_requests_max = reader.derive(&table::INFLIGHT_REQUESTS, inflight_default)?;
        let http = reader.read(&table::HTTP)?;
        let admin_listen = listeners::admin_listen(reader, http)?;
        let auth_file = auth_file(reader, http, admin_listen, &mut warnings)?;
        let trusted_proxies = trusted_proxies(reader, auth_file.is_some(), &mut warnings)?;
        let self_monitoring = SelfMonitoring::read(reader)?;
        let files_left = files.for_connections().saturating_sub(connections_max);
        let otlp_grpc =
            OtlpGrpcSettings::read(reader, auth_file.is_some(), tls.is_some(), &budget, files_left)?;
        let stream_freshness = Duration::from_millis(reader.read(&table::STREAM_FRESHNESS)?.unsigned_abs());
        let statsd = StatsdSettings::read(reader, &self_monitoring.tenant, auth_file.is_some())?;
        let graphite = GraphiteSettings::read(
            reader,
            &self_monitoring.tenant,
            auth_file.is_some(),
            tls.is_some(),
            &budget,
            files_left.saturating_sub(otlp_grpc.connections_max),
        )?;
        let graphite_rules = graphite_rules::rule_files(reader, &mut warnings)?;
        let creating_requests_max = reader.derive(&table::CREATING_REQUESTS, inflight_requests_max)?;
        let capacity = Capacity::of(
            &budget,
            inflight_requests_max.max(creating_requests_max),
            budget.inflight_bytes - otlp_grpc.connections_bytes,
            query_concurrency,
        );
        let defaults = Defaults { disk: DiskDefault::of(machine, &lake.url.0), capacity };
        let overrides =
            reader.read(&table::OVERRIDES)?.map(|path| OverridesFile::new(path, given, &defaults));
        let tenants = match &overrides {
            Some(file) => file.tenants(&file.text()?)?,
            None => Tenants::resolve(given, &defaults)?,
        };
        Ok(Self {
            http,
            admin_listen,
            tls,
            auth_file,
            trusted_proxies,
            budget,
            heap_profile_percent: reader.read(&table::HEAP_PROFILE_PERCENT)?,
            durability: reader.read(&table::DURABILITY)?,
            partitions,
            segment_bytes: reader.read(&table::SEGMENT_SIZE)?,
            lake,
            tenants,
            overrides,
            data_dir,
            future_ms: reader.read(&table::FUTURE_LIMIT)?,
            past_ms: reader.read(&table::PAST_LIMIT)?,
            series_idle_s: u32::try_from(reader.read(&table::SERIES_IDLE)? / 1000).unwrap_or(u32::MAX),
            inflight_requests_max,
            creating_requests_max,
            query_timeout_ms: reader.read(&table::QUERY_TIMEOUT)?.unsigned_abs(),
            query_lookback_ms: reader.read(&table::QUERY_LOOKBACK)?,
            query_concurrency,
            sql: reader.read(&table::SQL)?,
            graphite_jsonp: reader.read(&table::GRAPHITE_JSONP)?,
            slow_query: reader.read(&table::SLOW_QUERY)?.map(|ms| Duration::from_millis(ms.unsigned_abs())),
            query_log: reader.read(&table::QUERY_LOG)?,
            query_log_bytes: reader.read(&table::QUERY_LOG_SIZE)?,
            connections_max,
            allow_host: reader.derive(&table::ALLOW_HOST, Vec::new())?,
            body_timeout_ms: reader.read(&table::BODY_TIMEOUT)?.unsigned_abs(),
            transfer_rate: reader.read(&table::TRANSFER_RATE)?,
            tenants_max: reader.read(&table::TENANTS)?,
            tenant_burst: reader.read(&table::TENANT_BURST)?,
            tenants_per_minute: reader.read(&table::TENANTS_PER_MINUTE)?,
            self_monitoring,
            otlp_grpc,
            graphite,
            graphite_rules,
            ingest_rules: ingest_rules(reader)?,
            statsd,
            stream_freshness,
            files,
            listing: Vec::new(),
            warnings,
        })
    }
}

/// Reads and checks the file of credentials. Fails if other machines can reach the server and neither
/// `auth_file` nor `allow_unauthenticated` is set.
fn auth_file(
    reader: &mut Reader<'_>,
    http: SocketAddr,
    admin: AdminListen,
    warnings: &mut Vec<String>,
) -> Result<Option<AuthFile>, SettingsError> {
    let file = reader.read(&table::AUTH_FILE)?.map(|path| AuthFile { path });
    let is_open_to_all = reader.read(&table::ALLOW_UNAUTHENTICATED)?;
    match &file {
        Some(file) => {
            warnings.extend(file.check().map_err(|reason| reader.error(&table::AUTH_FILE, reason))?);
        }
        None if !is_open_to_all && (is_reachable(http) || admin.is_reachable(http)) => {
            let reason = "other machines can reach this address, but requests are not authenticated: set auth_file, \
                or allow_unauthenticated to let everyone read, write and administer everything";
            return Err(match is_reachable(http) {
                true => reader.error(&table::HTTP, reason.into()),
                false => reader.error(&table::ADMIN_LISTEN, reason.into()),
            });
        }
        None => {}
    }
    Ok(file)
}

/// Reads the networks of trusted proxies. Warns about one with all addresses: with it, the credentials in `auth_file` protect
/// no data.
fn trusted_proxies(
    reader: &mut Reader<'_>,
    is_authenticated: bool,
    warnings: &mut Vec<String>,
) -> Result<Networks, SettingsError> {
    let networks = reader.read(&table::TRUSTED_PROXIES)?;
    let all = networks.0.iter().find(|network| network.prefix_len() == 0);
    if let Some(all) = all.filter(|_| is_authenticated) {
        warnings.push(format!(
            "trusted_proxies: {all} is every address, so whoever reaches the server can read and write the data of all tenants \
             without credentials; list only the addresses of your proxies"
        ));
    }
    Ok(networks)
}

/// Reads the path of the rules on what is stored, and checks the file.
fn ingest_rules(reader: &mut Reader<'_>) -> Result<Option<IngestRulesFile>, SettingsError> {
    let file = reader.read(&table::INGEST_RULES)?.map(|path| IngestRulesFile { path });
    if let Some(file) = &file {
        file.load().map_err(|reason| reader.error(&table::INGEST_RULES, reason))?;
    }
    Ok(file)
}

/// By default, there is a partition for two cores, but at most eight: while a core is busy with an owner, about as much is to
/// be done for the same samples outside of it, and each further partition costs each request more.
pub(crate) fn partitions_default(cores: usize) -> usize {
    (cores / 2).clamp(1, 8)
}
