//! The settings in effect as the configuration file would have them, each with its origin.

use super::{ConfigFile, Detail, Flags, Settings, SettingsError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use stdx::units::{bytes_text, duration_text};
use tables::rollup::Resolution;

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectiveSetting {
    /// Its key in the configuration file; `tables_options.NAME` for an option of the object store.
    pub key: String,
    /// Its value in the notation of the file; null where there is none. Secrets are replaced.
    pub value: Value,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It is always this, where nothing else is said.
    Default,
    /// It follows from the machine or from another setting.
    Derived(String),
    /// The configuration file.
    File,
    /// [`Flags`]: the command line, or the environment by way of it.
    Flags,
    /// This variable of the environment.
    Environment(String),
}

/// What stands in place of a secret.
const REDACTED: &str = "(redacted)";

/// Options of object stores that are no secrets; any other value is taken for one.
const PLAIN_OPTIONS: [&str; 14] = [
    "allow_http",
    "bucket",
    "conditional_put",
    "container_name",
    "endpoint",
    "endpoint_url",
    "region",
    "default_region",
    "skip_signature",
    "timeout",
    "unsigned_payload",
    "use_emulator",
    "virtual_hosted_style_request",
    "account_name",
];

impl Settings {
    /// All settings that `flags` and the file they name result in, in the order of the reference.
    pub fn effective(flags: Flags) -> Result<Vec<EffectiveSetting>, SettingsError> {
        let file = flags.file()?;
        let settings = Self::of(&ConfigFile::given(flags.clone(), file.clone()))?;
        let mut list = List { rows: Vec::new() };
        list.general(&settings, &flags, &file);
        list.lake(&settings, &flags, &file);
        Ok(list.rows)
    }
}

struct List {
    rows: Vec<EffectiveSetting>,
}

impl List {
    fn put(&mut self, key: &str, value: Value, origin: Origin) {
        self.rows.push(EffectiveSetting { key: key.to_owned(), value, origin });
    }

    fn general(&mut self, settings: &Settings, flags: &Flags, file: &ConfigFile) {
        let Settings { budget, .. } = settings;
        let derived = |why: &str| Origin::Derived(why.to_owned());
        let ms = |ms: i64| json!(duration_text(ms));
        self.put(
            "data_dir",
            json!(settings.data_dir.display().to_string()),
            origin(flags.data_dir.is_some(), file.data_dir.is_some(), Origin::Default),
        );
        let http = origin(flags.http.is_some(), file.http.is_some(), Origin::Default);
        self.put("http", json!(settings.http.to_string()), http);
        let memory =
            origin(flags.memory.is_some(), file.memory.is_some(), Origin::Derived(budget.reason.clone()));
        self.put("memory", json!(bytes_text(budget.total_bytes)), memory);
        let durability = match settings.durability {
            journal::Durability::Fsync => "fsync",
            journal::Durability::Os => "os",
        };
        self.put(
            "durability",
            json!(durability),
            origin(flags.durability.is_some(), file.durability.is_some(), Origin::Default),
        );
        let of_file = |given: bool, otherwise: Origin| origin(false, given, otherwise);
        let cores = || derived("one a core, at most 8; an existing data directory keeps its own number");
        self.put("partitions", json!(settings.partitions), of_file(file.partitions.is_some(), cores()));
        for (key, value, given) in [
            ("future_limit", settings.future_ms, file.future_limit.is_some()),
            ("past_limit", settings.past_ms, file.past_limit.is_some()),
            ("series_idle", i64::from(settings.series_idle_s) * 1000, file.series_idle.is_some()),
            ("query_timeout", settings.query_timeout_ms.cast_signed(), file.query_timeout.is_some()),
            ("query_lookback", settings.query_lookback_ms, file.query_lookback.is_some()),
            ("body_timeout", settings.body_timeout_ms.cast_signed(), file.body_timeout.is_some()),
        ] {
            self.put(key, ms(value), of_file(given, Origin::Default));
        }
        let resolution = of_file(file.query_resolution.is_some(), Origin::Default);
        self.put("query_resolution", json!(settings.query_resolution.word()), resolution);
        self.tenants("tenant_query_resolution", &settings.tenant_query_resolution, |d: &Detail| {
            json!(d.word())
        });
        for (key, value, given, otherwise) in [
            (
                "query_concurrency",
                settings.query_concurrency,
                file.query_concurrency.is_some(),
                derived("two a core"),
            ),
            (
                "inflight_requests",
                settings.inflight_requests_max,
                file.inflight_requests.is_some(),
                derived("from memory"),
            ),
            ("connections", settings.connections_max, file.connections.is_some(), derived("from memory")),
            (
                "creating_requests",
                settings.creating_requests_max,
                file.creating_requests.is_some(),
                derived("as inflight_requests"),
            ),
            ("tenants", settings.tenants_max, file.tenants.is_some(), Origin::Default),
            ("tenant_burst", settings.tenant_burst, file.tenant_burst.is_some(), Origin::Default),
            (
                "tenants_per_minute",
                settings.tenants_per_minute,
                file.tenants_per_minute.is_some(),
                Origin::Default,
            ),
        ] {
            self.put(key, json!(value), of_file(given, otherwise));
        }
        let rate = of_file(file.transfer_rate.is_some(), Origin::Default);
        self.put("transfer_rate", json!(bytes_text(settings.transfer_rate)), rate);
        let hosts = of_file(!file.allow_host.is_empty(), Origin::Default);
        self.put("allow_host", json!(settings.allow_host), hosts);
        let segment = of_file(file.segment_size.is_some(), Origin::Default);
        self.put("segment_size", json!(bytes_text(settings.segment_bytes)), segment);
    }

    fn lake(&mut self, settings: &Settings, flags: &Flags, file: &ConfigFile) {
        let lake = &settings.lake;
        let of_file = |given: bool| origin(false, given, Origin::Default);
        let ms = |ms: &i64| json!(duration_text(*ms));
        let resolutions = |all: &Vec<Resolution>| Value::from_iter(all.iter().map(|r| duration_text(r.ms())));
        let tables = origin(
            flags.tables.is_some(),
            file.tables.is_some(),
            Origin::Derived("in the data directory".to_owned()),
        );
        self.put("tables", json!(without_secrets(&lake.url.0)), tables);
        for (name, value) in &lake.options.0 {
            let in_file = file.tables_options.0.keys().any(|key| key.eq_ignore_ascii_case(name));
            let variable = || Origin::Environment(name.to_ascii_uppercase());
            // an endpoint is a URL, which may have a user and a password
            let shown = match is_plain(name) {
                true if value.contains("://") => without_secrets(value),
                true => value.clone(),
                false => REDACTED.to_owned(),
            };
            let origin = if in_file { Origin::File } else { variable() };
            self.put(&format!("tables_options.{name}"), json!(shown), origin);
        }
        if lake.options.0.is_empty() {
            self.put("tables_options", json!({}), Origin::Default);
        }
        let seal_after = origin(flags.seal_after.is_some(), file.seal_after.is_some(), Origin::Default);
        self.put("seal_after", ms(&lake.seal_after_ms), seal_after);
        self.put("seal_size", json!(bytes_text(lake.seal_bytes)), of_file(file.seal_size.is_some()));
        self.put("flush_interval", ms(&lake.flush_interval_ms), of_file(file.flush_interval.is_some()));
        let retention = origin(flags.retention.is_some(), file.retention.is_some(), Origin::Default);
        self.put("retention", json!(lake.retention_ms.map(duration_text)), retention);
        self.tenants("tenant_retention", &lake.tenant_retention_ms, ms);
        let wait = of_file(file.retention_wait.is_some());
        self.put("retention_wait", ms(&lake.retention_wait_ms), wait);
        self.put("rollups", resolutions(&lake.rollups), of_file(file.rollups.is_some()));
        self.tenants("tenant_rollups", &lake.tenant_rollups, resolutions);
        let kept = lake.rollup_retention_ms.map(duration_text);
        self.put("rollup_retention", json!(kept), of_file(file.rollup_retention.is_some()));
        self.tenants("tenant_rollup_retention", &lake.tenant_rollup_retention_ms, ms);
        self.put("compaction", json!(lake.compaction), of_file(file.compaction.is_some()));
        self.put("vacuum_grace", ms(&lake.vacuum_grace_ms), of_file(file.vacuum_grace.is_some()));
    }

    /// A table of single tenants, which only the file can have.
    fn tenants<T>(&mut self, key: &str, all: &BTreeMap<model::TenantId, T>, show: impl Fn(&T) -> Value) {
        let value: serde_json::Map<_, _> =
            all.iter().map(|(tenant, value)| (tenant.to_string(), show(value))).collect();
        self.put(key, Value::Object(value), origin(false, !all.is_empty(), Origin::Default));
    }
}

/// Flags take precedence over the file.
fn origin(in_flags: bool, in_file: bool, otherwise: Origin) -> Origin {
    match (in_flags, in_file) {
        (true, _) => Origin::Flags,
        (_, true) => Origin::File,
        _ => otherwise,
    }
}

/// Whether the value of an option of an object store may be shown; its name is in lower case.
fn is_plain(name: &str) -> bool {
    let name = ["aws_", "azure_storage_", "azure_", "google_"]
        .iter()
        .find_map(|p| name.strip_prefix(p))
        .unwrap_or(name);
    PLAIN_OPTIONS.contains(&name)
}

/// A URL without what may be a password or a signature: user and query.
pub(super) fn without_secrets(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else { return REDACTED.to_owned() };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        // what has no host has no user either
        let _ = url.set_password(None);
        let _ = url.set_username("redacted");
        url.set_query(None);
        return url.into();
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn effective(toml: &str, flags: Flags) -> BTreeMap<String, (Value, Origin)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.toml");
        std::fs::write(&path, toml).unwrap();
        let rows = Settings::effective(Flags { config: Some(path), ..flags }).unwrap();
        rows.into_iter().map(|row| (row.key, (row.value, row.origin))).collect()
    }

    #[test]
    fn every_key_is_listed_once() {
        let error = toml::from_str::<ConfigFile>("nonsense = 1").unwrap_err().to_string();
        let known = error.split_once("expected one of").expect("all keys are listed").1;
        let known: BTreeSet<_> = known.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let rows = Settings::effective(Flags::default()).unwrap();
        let keys: Vec<_> = rows.iter().map(|row| row.key.split('.').next().unwrap().to_owned()).collect();
        assert_eq!(keys.iter().cloned().collect::<BTreeSet<_>>(), known);
        assert!(rows.iter().map(|row| &row.key).collect::<BTreeSet<_>>().len() == rows.len(), "{keys:?}");
    }

    #[test]
    fn values_have_their_origin_and_can_be_read_again() {
        let toml = "query_timeout = \"90s\"\nmemory = \"1GiB\"\nsegment_size = \"64MiB\"\n[tenant_retention]\na = \"36h\"";
        let rows = effective(toml, Flags { memory: Some("2GiB".into()), ..Flags::default() });
        assert_eq!(rows["query_timeout"], (json!("1m30s"), Origin::File));
        assert_eq!(rows["memory"], (json!("2GiB"), Origin::Flags));
        assert_eq!(rows["segment_size"], (json!("64MiB"), Origin::File));
        assert_eq!(rows["tenant_retention"], (json!({ "a": "1d12h" }), Origin::File));
        assert_eq!(rows["seal_after"], (json!("15m"), Origin::Default));
        assert_eq!(rows["retention"], (Value::Null, Origin::Default));
        assert!(matches!(&rows["partitions"].1, Origin::Derived(why) if why.contains("core")));
    }

    #[test]
    fn secrets_are_redacted() {
        let toml = "tables = \"az://user:hunter2@box/x?sig=hunter2\"\n[tables_options]\nAWS_Region = \"eu\"\n\
                    aws_endpoint = \"http://user:hunter2@127.0.0.1:1\"\naws_secret_access_key = \"hunter2\"\nazure_storage_sas_key = \"hunter2\"\nunheard_of = \"hunter2\"";
        let rows = effective(toml, Flags::default());
        assert_eq!(rows["tables_options.aws_region"], (json!("eu"), Origin::File));
        assert_eq!(rows["tables_options.aws_endpoint"].0, json!("http://redacted@127.0.0.1:1/"));
        assert_eq!(rows["tables_options.unheard_of"], (json!(REDACTED), Origin::File));
        assert_eq!(rows["tables"].0, "az://redacted@box/x");
        assert!(!format!("{rows:?}").contains("hunter2"));
        let file: ConfigFile = toml::from_str(toml).unwrap();
        let flags = Flags { tables: file.tables.clone(), ..Flags::default() };
        let settings = Settings::resolve(flags.clone()).unwrap();
        for text in [format!("{settings:?}"), format!("{flags:?}"), format!("{file:?}")] {
            assert!(text.contains("az://redacted@box/x") && !text.contains("hunter2"), "{text}");
        }
    }
}
