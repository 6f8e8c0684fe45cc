mod access;
mod errors;
mod reference;
mod retention;
mod tenants;

use super::*;
use crate::machine::Memory;
use expect_test::{Expect, expect};
use std::collections::BTreeSet;
use std::ffi::OsString;

fn machine() -> Machine {
    let memory = Memory { bytes: 8 << 30, source: "the machine's memory".into() };
    Machine { cores: 4, memory, files_max: 20_000, disk_bytes: |_| Some(100 << 30) }
}

fn toml(text: &str) -> Result<Given, SettingsError> {
    let mut given = Given::default();
    file::parse("f.toml".as_ref(), text, file::Content::All, &mut given)?;
    Ok(given)
}

fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, text)| (name.into(), text.into())).collect()
}

fn resolve(given: &Given) -> Result<(Settings, Vec<EffectiveSetting>), SettingsError> {
    Settings::on(&machine(), given)
}

fn listing(rows: &[EffectiveSetting]) -> String {
    let rows = rows.iter().filter(|row| !matches!(row.origin, Origin::Default | Origin::Derived(_)));
    rows.map(|EffectiveSetting { key, value, origin }| {
        format!("{key} = {value}  {} {}\n", origin.kind(), origin.detail().unwrap_or_default())
    })
    .collect()
}

fn check_error(given: Result<Given, SettingsError>, expected: Expect) {
    let error = given.and_then(|given| resolve(&given)).map(drop).unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn flags_precede_the_environment_and_that_the_file() {
    let given =
        toml("memory = \"1GiB\"\nseal_after = \"90s\"\nretention = \"90d\"\nhttp = \"[::1]:1\"").unwrap();
    let variables = [
        ("FLOODMARK_MEMORY", "2GiB"),
        ("FLOODMARK_QUERY_CONCURRENCY", "3"),
        ("FLOODMARK_RETENTION", "80d"),
        ("FLOODMARK_SERVICE_HOST", "10.0.0.1"),
    ];
    let given = given.environment(environment(&variables)).unwrap().flag("retention", "70d");
    let (settings, rows) = resolve(&given).unwrap();
    assert_eq!(settings.tenants.general.retention_ms, Some(70 * 86_400_000));
    assert_eq!((settings.budget.total_bytes, settings.query_concurrency), (2 << 30, 3));
    expect![[r#"
        http = "[::1]:1"  file f.toml:4
        memory = "2GiB"  environment FLOODMARK_MEMORY
        seal_after = "1m30s"  file f.toml:2
        retention = "70d"  flag --retention
        query_concurrency = 3  environment FLOODMARK_QUERY_CONCURRENCY
    "#]]
    .assert_eq(&listing(&rows));
}

#[test]
fn variables_that_look_like_settings_are_warned_about_without_their_values() {
    let variables = [
        ("FLOODMARK_MEMROY", "secret"),
        ("FLOODMARK_TENANT_A_RETENTION", "secret"),
        // set by Kubernetes for a service of this name
        ("FLOODMARK_SERVICE_HOST", "10.0.0.1"),
        ("FLOODMARK_SERVICE_PORT_HTTP", "9009"),
        ("FLOODMARK_PORT_9009_TCP_ADDR", "10.0.0.1"),
        ("FLOODMARK_CONFIG", "f.toml"),
        ("MEMROY", "1GiB"),
    ];
    let given = Given::default().environment(environment(&variables)).unwrap();
    let (settings, _) = resolve(&given.flag("memory", "2GiB")).unwrap();
    let warnings: String = settings.warnings.iter().map(|warning| format!("{warning}\n")).collect();
    expect![[r#"
        FLOODMARK_MEMROY has no effect: there is no such setting; did you mean FLOODMARK_MEMORY?
        FLOODMARK_TENANT_A_RETENTION has no effect: settings of single tenants can only be given in the configuration file or the overrides file
    "#]]
    .assert_eq(&warnings);
}

#[test]
fn defaults_of_a_machine() {
    let (_, rows) = resolve(&Given::default().flag("data_dir", "/data")).unwrap();
    let keys: Vec<_> = rows.iter().map(|row| row.key.as_str()).collect();
    let bounds = ["retention", "active_series"].map(|key| format!("tenant.floodmark-system.{key}"));
    let all: Vec<_> =
        SETTINGS.iter().map(|setting| setting.key).chain(bounds.iter().map(String::as_str)).collect();
    assert_eq!(keys, all, "each setting is read once");
    let text: String = rows
        .iter()
        .map(|EffectiveSetting { key, value, origin }| {
            let why = origin.detail().map_or_else(String::new, |detail| format!("  # {detail}"));
            format!("{key} = {value}{why}\n")
        })
        .collect();
    expect![[r#"
        http = "127.0.0.1:9009"
        auth_file = "none"
        trusted_proxies = ["127.0.0.0/8","::1/128"]
        tls_cert = "none"
        tls_key = "none"
        tls_client_ca = "none"
        tls_client_auth = "required"
        admin_listen = "http"  # `http` if only this machine can connect to it, otherwise `127.0.0.1:9010`
        allow_unauthenticated = false
        memory = "4GiB"  # half of the machine's memory of 8192 MiB
        heap_profile_percent = "none"
        data_dir = "/data"  # --data-dir
        durability = "fsync"
        tables = "file:///data/tables/"  # the folder `tables` in the data directory
        partitions = 2  # one for two cores, at most 8; an existing data directory keeps its number
        segment_size = "128MiB"
        seal_after = "15m"
        seal_size = "256MiB"
        flush_interval = "2s"
        compaction = true
        vacuum_grace = "1h"
        retention = "never"
        retention_wait = "10m"
        rollups = []
        rollup_retention = "samples"
        stream_retention = "never"
        future_limit = "10m"
        past_limit = "3650d"
        ingest_rules = "none"
        series_idle = "1h"
        inflight_requests = 2452  # one per 256 KiB of the account `inflight`, 64 to 4096
        creating_requests = 2452  # same as `inflight_requests`
        query_timeout = "2m"
        query_lookback = "5m"
        query_resolution = "raw"
        query_concurrency = 8  # two per core
        sql = false
        slow_query = "10s"
        query_log = "none"
        query_log_size = "256MiB"
        connections = 2907  # 5 % of `memory`, divided by 72 KiB (with TLS by 144 KiB), 128 to 4096
        allow_host = []  # none if only this machine can connect, otherwise any
        body_timeout = "30s"
        transfer_rate = "64KiB"
        otlp_grpc = "none"
        otlp_translation = "UnderscoreEscapingWithSuffixes"
        otlp_promote = []
        otlp_target_info = true
        otlp_keep_identifying = false
        otlp_scope_labels = false
        otlp_delta = "accumulate"
        otlp_buckets = 2
        graphite = "none"
        graphite_udp = true
        graphite_pickle = "none"
        graphite_protobuf = "none"
        graphite_tls = "none"
        graphite_tenant = "anonymous"
        graphite_tenants = []
        graphite_tenant_from_path = false
        graphite_commit_interval = "100ms"
        graphite_connections = 9811  # one per 64 KiB of the account `inflight`, 128 to 10000
        graphite_allow_unauthenticated = false
        graphite_schemas = "none"
        graphite_aggregation = "none"
        graphite_rewrite = "none"
        graphite_allow = "none"
        graphite_deny = "none"
        graphite_aggregator_rules = "none"
        graphite_aggregator_intervals = 5
        graphite_retention = false
        graphite_jsonp = false
        influx_names = "measurement_field"
        influx_db_label = "db"
        statsd = "none"
        statsd_tenant = "anonymous"
        statsd_flush_interval = "10s"
        statsd_allow_unauthenticated = false
        stream_freshness = "30s"
        streams = 1000
        overrides = "none"
        requests_per_second = "none"
        samples_per_second = "none"
        bytes_per_second = "none"
        new_series_per_second = 33488895  # the head (2043 MiB) has room for 33488895 series of 64 bytes; a tenant may fill it once a second
        rate_burst = "10s"
        active_series = 33488895  # the head (2043 MiB) has room for 33488895 series of 64 bytes
        series_per_metric = 33488895  # the head (2043 MiB) has room for 33488895 series of 64 bytes, and all may have the same name
        disk_bytes = "90GiB"  # 90 % of the disk of the tables, which has 102400 MiB
        tenant_tables = 3
        events_bytes = "4MiB"
        concurrent_writes = 2452  # the larger one of inflight_requests and creating_requests
        inflight_bytes = "642986790"  # the account `inflight`
        concurrent_queries = 8  # query_concurrency
        query_memory = "35721488"  # half of the account `query`, divided by query_concurrency + 1
        query_samples = 2232593  # 16 bytes each, in 34884 KiB
        share_weight = 1
        limit_status = 429
        ha_dedup = false
        ha_cluster_label = "cluster"
        ha_replica_label = "__replica__"
        ha_failover = "30s"
        ha_clusters = 100
        tenants = 10000
        tenant_burst = 1000
        tenants_per_minute = 300
        self_monitoring_interval = "15s"
        carbon_metrics_interval = "1m"
        self_monitoring_tenant = "floodmark-system"
        self_monitoring_retention = "30d"
        tenant.floodmark-system.retention = "30d"  # self_monitoring_retention
        tenant.floodmark-system.active_series = 5000  # the limit on series of the server's own metrics
    "#]]
    .assert_eq(&text);
}

#[test]
fn names_of_settings_are_distinct() {
    let variables: BTreeSet<_> = SETTINGS.iter().map(|setting| setting.variable()).collect();
    assert_eq!(variables.len(), SETTINGS.len());
    assert!(SETTINGS.iter().all(|setting| !["config", "json"].contains(&setting.key)));
}

/// The help of the command line shows descriptions as they are.
#[test]
fn descriptions_of_settings_have_no_links() {
    let linked: Vec<_> = SETTINGS.iter().filter(|setting| setting.about.contains("](")).collect();
    assert!(linked.is_empty(), "{linked:?}");
}

#[test]
fn tables_are_in_the_data_directory_unless_set() {
    let url = |data_dir: &str, tables: Option<&str>| {
        let given = Given::default().flag("data_dir", data_dir);
        let given = tables.into_iter().fold(given, |given, url| given.flag("tables", url));
        resolve(&given).unwrap().0.lake.url.0
    };
    assert_eq!(url("/a b", None), "file:///a%20b/tables/");
    assert_eq!(url("/a", Some("s3://bucket/x")), "s3://bucket/x");
}
