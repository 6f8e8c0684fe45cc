//! Settings that can differ between tenants.

use super::file::{PATTERNS, per_tenant, quoted};
use super::given::{Given, GivenClass, SettingsError};
use super::label_name::LabelName;
use super::limit_status::LimitStatus;
use super::otlp;
use super::reader::{EffectiveSetting, Reader};
use super::self_monitoring::SelfMonitoring;
use super::table;
use super::tenant_limits::{Defaults, TenantLimits};
use crate::query_source::detail::Detail;
use model::{TenantId, TenantPatterns};
use protocol::influx::NameRule;
use protocol::otlp::Translation;
use rules::Schemas;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tables::rollup::Resolution;

/// Settings of one tenant. `None` means no limit, unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSettings {
    /// Age at which samples are dropped. `None` if they are kept forever.
    pub retention_ms: Option<i64>,
    /// Whether the longest retention of Graphite's schemas applies too.
    pub graphite_retention: bool,
    pub rollups: Vec<Resolution>,
    /// Age at which rollups are dropped, as configured. Code should use [`Self::rollups_kept_ms`] instead,
    /// which keeps rollups at least as long as samples.
    pub rollup_retention_ms: Option<i64>,
    /// Age at which records of streams are dropped. `None` if they are kept forever.
    pub stream_retention_ms: Option<i64>,
    /// Whether queries without the parameter `resolution` read raw samples or rollups.
    pub query_resolution: Detail,
    pub limits: TenantLimits,
    /// When a resource is scarce, tenants get shares in proportion to their weights.
    pub share_weight: usize,
    pub limit_status: LimitStatus,
    /// How Influx' lines are named.
    pub influx_names: NameRule,
    /// The label that has the database which a request with Influx' lines names.
    pub influx_db_label: Option<LabelName>,
    /// Which series OpenTelemetry's metrics become.
    pub otlp: Arc<Translation>,
    pub ha_dedup: bool,
    pub ha_cluster_label: LabelName,
    /// The label that tells the replicas of a cluster apart. It is not stored.
    pub ha_replica_label: LabelName,
    /// If the elected replica sends no sample for this long, another one is elected.
    pub ha_failover_ms: i64,
}

#[derive(Debug, Clone)]
pub struct Tenants {
    /// Settings of all tenants that have none of their own and match no class.
    pub general: TenantSettings,
    /// Classes in the order in which their patterns are compared with a tenant. The first that matches
    /// applies. Settings that the class does not have come from `general`.
    pub classes: Vec<Class>,
    /// Settings of the tenants that have a table `[tenant.NAME]`. What is not given there comes from the
    /// tenant's class, or from `general`.
    pub own: BTreeMap<TenantId, TenantSettings>,
    /// Values in effect with their keys: all of `general`, then those that classes and tenants set
    /// differently.
    rows: Vec<EffectiveSetting>,
    /// Where in `rows` the settings of each tenant in `own` are, because an overrides file may have very many.
    own_rows: BTreeMap<TenantId, Range<usize>>,
    /// Number of general settings, which come first in `rows`.
    general_rows: usize,
}

#[derive(Debug, Clone)]
pub struct Class {
    name: String,
    patterns: TenantPatterns,
    settings: TenantSettings,
    /// Where in [`Tenants::rows`] the settings of the class are.
    rows: Range<usize>,
}

impl Tenants {
    /// Returns the settings in effect for `tenant`: its own, or else those of its class, or else the general
    /// ones.
    pub fn of(&self, tenant: &TenantId) -> &TenantSettings {
        self.own.get(tenant).unwrap_or_else(|| match self.class_of(tenant) {
            Some(class) => &class.settings,
            None => &self.general,
        })
    }

    /// Lists the settings of `tenant`, each with where its value comes from. Keys have no prefix.
    pub fn explain(&self, tenant: &TenantId) -> impl Iterator<Item = EffectiveSetting> {
        let own = self.own_rows.get(tenant).map(|rows| (prefix("tenant", tenant.as_str()), rows.clone()));
        let class = self.class_of(tenant).map(|class| (prefix("class", &class.name), class.rows.clone()));
        let general = (String::new(), 0..self.general_rows);
        let parts: Vec<_> = own.into_iter().chain(class).chain([general]).collect();
        per_tenant().map(move |setting| {
            let mut found = parts.iter().filter_map(|(prefix, rows)| {
                let mut rows = self.rows[rows.clone()].iter();
                rows.find(|row| row.key.strip_prefix(prefix.as_str()) == Some(setting.key))
            });
            let EffectiveSetting { value, origin, .. } =
                found.next().cloned().expect("BUG: a general setting is missing");
            EffectiveSetting { key: setting.key.to_owned(), value, origin }
        })
    }

    pub fn rows(&self) -> &[EffectiveSetting] {
        &self.rows
    }

    fn class_of(&self, tenant: &TenantId) -> Option<&Class> {
        self.classes.iter().find(|class| class.patterns.matches(tenant))
    }

    pub(super) fn resolve(given: &Given, defaults: &Defaults) -> Result<Self, SettingsError> {
        let mut reader = Reader::new(&given.general, String::new());
        let general = TenantSettings::general(&mut reader, defaults)?;
        let rows = reader.into_rows();
        let mut tenants = Self {
            general,
            classes: Vec::new(),
            own: BTreeMap::new(),
            general_rows: rows.len(),
            rows,
            own_rows: BTreeMap::new(),
        };
        for GivenClass { name, patterns, origin, entries } in &given.classes {
            let mut reader = Reader::new(entries, prefix("class", name));
            let settings = TenantSettings::own(&mut reader, &tenants.general)?;
            let name = tenants.class_name(name);
            let prefix = prefix("class", &name);
            let key = |key: &str| format!("{prefix}{key}");
            let value = patterns.as_slice().into();
            let of_class = EffectiveSetting { key: key(PATTERNS), value, origin: origin.clone() };
            let own = reader.into_rows().into_iter().map(|row| {
                let setting = row.key.rsplit('.').next().expect("BUG: a text has no last part");
                EffectiveSetting { key: key(setting), ..row }
            });
            let rows = tenants.add_rows([of_class].into_iter().chain(own).collect());
            tenants.classes.push(Class { name, patterns: patterns.clone(), settings, rows });
        }
        let mut given_own = given.tenants.clone();
        let system = SelfMonitoring::read(&mut Reader::new(&given.general, String::new()))?;
        system.bound(given_own.entry(system.tenant.clone()).or_default());
        for (tenant, entries) in &given_own {
            let mut reader = Reader::new(entries, prefix("tenant", tenant.as_str()));
            let mut of_all = tenants.of(tenant).clone();
            if *tenant == system.tenant {
                of_all.limits.lift_rates();
            }
            let settings = TenantSettings::own(&mut reader, &of_all)?;
            let rows = tenants.add_rows(reader.into_rows());
            tenants.own_rows.insert(tenant.clone(), rows);
            tenants.own.insert(tenant.clone(), settings);
        }
        Ok(tenants)
    }

    /// Name under which a class is listed. The overrides file and the configuration file may each have a class of the same name,
    /// and a listing with a key twice could not be read again.
    fn class_name(&self, name: &str) -> String {
        let is_free = |name: &String| !self.classes.iter().any(|class| class.name == *name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        names.find(is_free).expect("BUG: numbers have an end")
    }

    fn add_rows(&mut self, rows: Vec<EffectiveSetting>) -> Range<usize> {
        let start = self.rows.len();
        self.rows.extend(rows);
        start..self.rows.len()
    }
}

fn prefix(kind: &str, name: &str) -> String {
    format!("{kind}.{}.", quoted(name))
}

impl TenantSettings {
    /// Age at which samples are dropped: the retention, or the longest retention of Graphite's schemas if that is
    /// shorter and applies to the tenant. `None` if they are kept forever.
    pub fn samples_kept_ms(&self, schemas: &Schemas) -> Option<i64> {
        let longest_s = schemas.longest_retention_s().filter(|_| self.graphite_retention);
        let longest_ms = longest_s.map(|longest_s| (longest_s as i64).saturating_mul(1000));
        [self.retention_ms, longest_ms].into_iter().flatten().min()
    }

    /// Age at which rollups are dropped. They are kept at least as long as the samples they were computed
    /// from. `None` if they are kept forever.
    pub fn rollups_kept_ms(&self, schemas: &Schemas) -> Option<i64> {
        let samples_ms = self.samples_kept_ms(schemas)?;
        Some(self.rollup_retention_ms.map_or(samples_ms, |ms| ms.max(samples_ms)))
    }

    pub const fn ha_failover(&self) -> Duration {
        Duration::from_millis(self.ha_failover_ms.unsigned_abs())
    }

    fn general(reader: &mut Reader<'_>, defaults: &Defaults) -> Result<Self, SettingsError> {
        let general = Self {
            retention_ms: reader.read(&table::RETENTION)?,
            graphite_retention: reader.read(&table::GRAPHITE_RETENTION)?,
            rollups: reader.read(&table::ROLLUPS)?,
            rollup_retention_ms: reader.read(&table::ROLLUP_RETENTION)?,
            stream_retention_ms: reader.read(&table::STREAM_RETENTION)?,
            query_resolution: reader.read(&table::QUERY_RESOLUTION)?,
            limits: TenantLimits::general(reader, defaults)?,
            share_weight: reader.read(&table::SHARE_WEIGHT)?,
            limit_status: reader.read(&table::LIMIT_STATUS)?,
            influx_names: reader.read(&table::INFLUX_NAMES)?,
            influx_db_label: reader.read(&table::INFLUX_DB_LABEL)?,
            otlp: otlp::general(reader)?,
            ha_dedup: reader.read(&table::HA_DEDUP)?,
            ha_cluster_label: reader.read(&table::HA_CLUSTER_LABEL)?,
            ha_replica_label: reader.read(&table::HA_REPLICA_LABEL)?,
            ha_failover_ms: reader.read(&table::HA_FAILOVER)?,
        };
        general.check_labels(reader)?;
        Ok(general)
    }

    fn own(reader: &mut Reader<'_>, general: &Self) -> Result<Self, SettingsError> {
        let own = Self {
            retention_ms: reader.inherit(&table::RETENTION, &general.retention_ms)?,
            graphite_retention: reader.inherit(&table::GRAPHITE_RETENTION, &general.graphite_retention)?,
            rollups: reader.inherit(&table::ROLLUPS, &general.rollups)?,
            rollup_retention_ms: reader.inherit(&table::ROLLUP_RETENTION, &general.rollup_retention_ms)?,
            stream_retention_ms: reader.inherit(&table::STREAM_RETENTION, &general.stream_retention_ms)?,
            query_resolution: reader.inherit(&table::QUERY_RESOLUTION, &general.query_resolution)?,
            limits: TenantLimits::own(reader, &general.limits)?,
            share_weight: reader.inherit(&table::SHARE_WEIGHT, &general.share_weight)?,
            limit_status: reader.inherit(&table::LIMIT_STATUS, &general.limit_status)?,
            influx_names: reader.inherit(&table::INFLUX_NAMES, &general.influx_names)?,
            influx_db_label: reader.inherit(&table::INFLUX_DB_LABEL, &general.influx_db_label)?,
            otlp: otlp::own(reader, &general.otlp)?,
            ha_dedup: reader.inherit(&table::HA_DEDUP, &general.ha_dedup)?,
            ha_cluster_label: reader.inherit(&table::HA_CLUSTER_LABEL, &general.ha_cluster_label)?,
            ha_replica_label: reader.inherit(&table::HA_REPLICA_LABEL, &general.ha_replica_label)?,
            ha_failover_ms: reader.inherit(&table::HA_FAILOVER, &general.ha_failover_ms)?,
        };
        own.check_labels(reader)?;
        Ok(own)
    }

    /// Checks that the labels for clusters and for replicas differ. Otherwise, each replica would be a
    /// cluster of its own.
    fn check_labels(&self, reader: &Reader<'_>) -> Result<(), SettingsError> {
        let both = [&table::HA_REPLICA_LABEL, &table::HA_CLUSTER_LABEL];
        match self.ha_cluster_label == self.ha_replica_label {
            true => Err(reader.conflict(both, "ha_cluster_label and ha_replica_label must differ")),
            false => Ok(()),
        }
    }
}
