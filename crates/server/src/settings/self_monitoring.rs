use super::given::{Entries, Entry, Origin, SettingsError};
use super::reader::Reader;
use super::setting::Setting;
use super::setting_builder::TypedSetting;
use super::table;
use super::value::Value;
use model::TenantId;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelfMonitoring {
    pub interval: Option<Duration>,
    /// Interval of carbon's own metrics.
    pub(crate) carbon_interval: Option<Duration>,
    /// Tenant to which the series belong. Nobody else may write to it.
    pub tenant: TenantId,
    /// Age at which the samples are dropped, unless the tenant has a retention of its own. `None` if they are
    /// kept forever.
    retention_ms: Option<i64>,
}

impl SelfMonitoring {
    /// At most this many series are stored at a time. The tenant's limit on active series is the same by
    /// default. Several hundred series always exist; series that name a tenant come and go.
    pub(crate) const SERIES_MAX: usize = 5_000;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, SettingsError> {
        let interval = |ms: Option<i64>| ms.map(|ms| Duration::from_millis(ms.unsigned_abs()));
        Ok(Self {
            interval: interval(reader.read(&table::SELF_MONITORING_INTERVAL)?),
            carbon_interval: interval(reader.read(&table::CARBON_METRICS_INTERVAL)?),
            tenant: reader.read(&table::SELF_MONITORING_TENANT)?,
            retention_ms: reader.read(&table::SELF_MONITORING_RETENTION)?,
        })
    }

    /// Adds a retention and a limit on active series to the settings of the tenant that stores the metrics,
    /// unless `entries` has them.
    pub(super) fn bound(&self, entries: &mut Entries) {
        let mut bound = |setting: &Setting, text: &str, why: &str| {
            let origin = Origin::Derived(why.to_owned());
            entries.entry(setting.key).or_insert_with(|| Entry { text: text.into(), origin });
        };
        let retention = shown(&table::RETENTION, &self.retention_ms);
        bound(&table::RETENTION.setting, &retention, table::SELF_MONITORING_RETENTION.setting.key);
        bound(
            &table::ACTIVE_SERIES.setting,
            &Self::SERIES_MAX.to_string(),
            "the limit on series of the server's own metrics",
        );
    }
}

fn shown<T: Value>(typed: &TypedSetting<T>, value: &T) -> String {
    let shown = value.show(&typed.setting);
    shown.as_str().map_or_else(|| shown.to_string(), str::to_owned)
}
