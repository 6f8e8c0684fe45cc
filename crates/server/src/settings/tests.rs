mod reference;

use super::*;
use crate::machine::Memory;
use expect_test::{Expect, expect};
use model::TenantId;
use std::collections::BTreeSet;
use std::ffi::OsString;
use tables::rollup::Resolution;

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
fn trusted_proxies_at_every_address_are_warned_about() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let digest = "0".repeat(64);
    std::fs::write(&path, format!("[token.a]\nsha256 = \"{digest}\"\nroles = [\"admin\"]\n")).unwrap();
    let given = |proxies: &str| Given::default().flag("memory", "2GiB").flag("trusted_proxies", proxies);
    let check = |given: &Given, expected: Option<&str>| {
        let warnings = resolve(given).unwrap().0.warnings;
        let text = warnings.join("\n");
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{text}");
        assert!(expected.is_none_or(|part| text.contains(part)), "{text}");
    };
    for (proxies, expected) in [
        ("127.0.0.0/8,::1/128", None),
        ("10.0.0.0/8,0.0.0.0/0", Some("trusted_proxies: 0.0.0.0/0 is every address")),
        ("::/0", Some("trusted_proxies: ::/0 is every address")),
    ] {
        check(&given(proxies).flag("auth_file", &path), expected);
        check(&given(proxies), None); // there is no authentication anyway
    }
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

fn check_error(given: Result<Given, SettingsError>, expected: Expect) {
    let error = given.and_then(|given| resolve(&given)).map(drop).unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn a_wrong_file_is_named_with_its_line() {
    let check = |text: &str, expected: Expect| check_error(toml(text), expected);
    check("\nmemroy = \"2GiB\"", expect!["f.toml:2: unknown setting memroy; did you mean memory?"]);
    check(
        "colour = \"red\"\nmemroy = 1",
        expect!["f.toml:1: unknown setting colour; floodmark config print lists all settings"],
    );
    check("memory = \"1MiB\"", expect!["f.toml:1: memory = 1MiB: must be at least 64MiB"]);
    check("# x\nmemory = 2GiB", expect!["f.toml:2: string values must be quoted, expected literal string"]);
    check(
        "query_timeout = 30",
        expect!["f.toml:1: query_timeout = 30: must be a duration such as 30s, 5m or 1h30m"],
    );
    check("partitions = 0", expect!["f.toml:1: partitions = 0: must be 1 to 1024"]);
    check("partitions = \"many\"", expect!["f.toml:1: partitions = many: must be 1 to 1024"]);
    check(
        "partitions = [[1]]",
        expect!["f.toml:1: partitions must be a string, a number, true, false, or an array of these"],
    );
    check("compaction = 1", expect!["f.toml:1: compaction = 1: must be true or false"]);
    check("segment_size = \"2GiB\"", expect!["f.toml:1: segment_size = 2GiB: must be 1MiB to 1GiB"]);
    check(
        "rollups = [\"5m\", \"2h\"]",
        expect!["f.toml:1: rollups = 5m,2h: must be a list of 5m and 1h, or none"],
    );
    check(
        "allow_host = [\"a\", \"b:80\"]",
        expect!["f.toml:1: allow_host = a,b:80: must be names without a port, such as metrics.example, or *"],
    );
    let empty = expect!["f.toml:1: allow_host has the item \"\": items must not be empty or contain commas"];
    check("allow_host = [\"\"]", empty);
    let blank = expect!["f.toml:1: allow_host has the item \" \": items must not be empty or contain commas"];
    check("allow_host = [\" \"]", blank);
    check("allow_host = \",\"", expect!["f.toml:1: allow_host = ,: must not have an empty item"]);
    check("allow_host = \" \"", expect!["f.toml:1: allow_host =  : must not have an empty item"]);
    check("rollups = \"\"", expect![[r#"f.toml:1: rollups = "": must not have an empty item"#]]);
    check("rollups = \"5m,\"", expect!["f.toml:1: rollups = 5m,: must not have an empty item"]);
    check_error(
        Ok(Given::default().flag("allow_host", "")),
        expect![[r#"--allow-host "": must not have an empty item"#]],
    );
    check(
        "http = \"9009\"",
        expect![
            "f.toml:1: http = 9009: an address and a port, such as 127.0.0.1:9009, localhost:9009 or :9009 for all addresses"
        ],
    );
    check("durability = \"maybe\"", expect!["f.toml:1: durability = maybe: must be fsync or os"]);
    check(
        "tables = \"/no/scheme\"",
        expect![
            "f.toml:1: tables = (redacted): must be a URL such as file:///var/lib/tables or s3://bucket/folder"
        ],
    );
    check(
        "tables = \"ftp://user:secret@host/x\"",
        expect![
            "f.toml:1: tables = ftp://redacted@host/x: unknown kind of object store; file://, s3://, gs:// and az:// are supported"
        ],
    );
    check(
        "query_resolution = \"2h\"",
        expect!["f.toml:1: query_resolution = 2h: must be one of raw, auto, 5m, 1h"],
    );
    check(
        "rollup_retention = \"never\"",
        expect![
            "f.toml:1: rollup_retention = never: must be a duration such as 30s, 5m or 1h30m, or samples"
        ],
    );
    check(
        "retention = \"\"",
        expect![[r#"f.toml:1: retention = "": must be a duration such as 30s, 5m or 1h30m, or never"#]],
    );
}

#[test]
fn a_wrong_flag_or_variable_is_named() {
    check_error(
        Ok(Given::default().flag("memory", "1MiB")),
        expect!["--memory 1MiB: must be at least 64MiB"],
    );
    check_error(
        Ok(Given::default().flag("tables", "hunter2")),
        expect!["--tables (redacted): must be a URL such as file:///var/lib/tables or s3://bucket/folder"],
    );
    let check = |name: &str, text: &str, expected: Expect| {
        check_error(Given::default().environment(environment(&[(name, text)])), expected);
    };
    check(
        "FLOODMARK_SEAL_AFTER",
        "0s",
        expect!["FLOODMARK_SEAL_AFTER=0s: must be a duration such as 30s, 5m or 1h30m"],
    );
    check(
        "FLOODMARK_DATA_DIR",
        "",
        expect![[r#"FLOODMARK_DATA_DIR="": must not be empty; unset the variable"#]],
    );
    let files_max = 170;
    let error = Settings::on(&Machine { files_max, ..machine() }, &Given::default()).unwrap_err();
    expect!["connections = 2907: the limit on open files (RLIMIT_NOFILE) is 170, and 176 are reserved for other purposes: too few are left for connections; raise the limit (ulimit -n, LimitNOFILE=)"].assert_eq(&error.to_string());
}

#[test]
fn a_tenant_has_what_it_sets_and_else_what_all_have() {
    let given = toml(
        "retention = \"90d\"\nrollups = [\"1h\"]\nsamples_per_second = 5000\n\
         [tenant.audit]\nretention = \"never\"\nrollups = []\nsamples_per_second = \"none\"\n\
         [tenant.\"team.a\"]\nretention = \"36h\"\nrollup_retention = \"30d\"\nquery_resolution = \"auto\"",
    );
    let (settings, rows) = resolve(&given.unwrap()).unwrap();
    let of = |name: &str| settings.tenants.of(&TenantId::parse(name).unwrap());
    let day_ms = 86_400_000;
    let general = TenantSettings {
        retention_ms: Some(90 * day_ms),
        graphite_retention: false,
        rollups: vec![Resolution::Hour],
        rollup_retention_ms: None,
        stream_retention_ms: None,
        query_resolution: crate::query_source::detail::Detail::Samples,
        limits: TenantLimits {
            requests_per_second: None,
            samples_per_second: Some(5000),
            bytes_per_second: None,
            rate_burst_ms: 10_000,
            disk_bytes: Some(90 << 30),
            disk_bytes_is_given: false,
            tenant_tables: 3,
            events_bytes: 4 << 20,
            streams: 1000,
            streams_is_given: false,
            ha_clusters: 100,
            ha_clusters_is_given: false,
            // the limits that are derived from the node's capacity
            ..settings.tenants.general.limits.clone()
        },
        share_weight: 1,
        limit_status: LimitStatus::TooManyRequests,
        influx_names: protocol::influx::NameRule::MeasurementAndField,
        influx_db_label: Some(LabelName("db".into())),
        otlp: std::sync::Arc::default(),
        ha_dedup: false,
        ha_cluster_label: LabelName("cluster".into()),
        ha_replica_label: LabelName("__replica__".into()),
        ha_failover_ms: 30_000,
    };
    assert_eq!(
        (of("any"), of("any").rollups_kept_ms(&rules::Schemas::default())),
        (&general, Some(90 * day_ms))
    );
    let audit = TenantSettings {
        retention_ms: None,
        rollups: vec![],
        limits: TenantLimits { samples_per_second: None, ..general.limits.clone() },
        ..general.clone()
    };
    assert_eq!((of("audit"), of("audit").rollups_kept_ms(&rules::Schemas::default())), (&audit, None));
    let team = of("team.a");
    assert_eq!(
        (team.retention_ms, team.rollups_kept_ms(&rules::Schemas::default())),
        (Some(day_ms * 3 / 2), Some(30 * day_ms))
    );
    assert_eq!((&team.rollups, team.query_resolution.word()), (&general.rollups, "auto"));
    expect![[r#"
        retention = "90d"  file f.toml:1
        rollups = ["1h"]  file f.toml:2
        samples_per_second = 5000  file f.toml:3
        tenant.audit.retention = "never"  file f.toml:5
        tenant.audit.rollups = []  file f.toml:6
        tenant.audit.samples_per_second = "none"  file f.toml:7
        tenant."team.a".retention = "1d12h"  file f.toml:9
        tenant."team.a".rollup_retention = "30d"  file f.toml:10
        tenant."team.a".query_resolution = "auto"  file f.toml:11
    "#]]
    .assert_eq(&listing(&rows));
}

#[test]
fn a_limit_of_disk_bytes_is_derived_until_it_is_given() {
    let own =
        "[class.small]\ntenants = [\"s-*\"]\ndisk_bytes = \"1GiB\"\n[tenant.all]\ndisk_bytes = \"none\"";
    let check = |text: &str, expected: [(Option<u64>, bool); 3]| {
        let (settings, _) = resolve(&toml(text).unwrap()).unwrap();
        let of = |name: &str| {
            let own = settings.tenants.of(&TenantId::parse(name).unwrap());
            (own.limits.disk_bytes, own.limits.disk_bytes_is_given)
        };
        assert_eq!(["any", "s-1", "all"].map(of), expected, "{text}");
        let rows: Vec<_> = settings.tenants.explain(&TenantId::parse("any").unwrap()).collect();
        let row = rows.iter().find(|row| row.key == "disk_bytes").unwrap();
        let how = row.origin.detail().unwrap();
        assert!(expected[0].1 || how == "90 % of the disk of the tables, which has 102400 MiB", "{how}");
    };
    check(own, [(Some(90 << 30), false), (Some(1 << 30), true), (None, true)]);
    let given = format!("disk_bytes = \"2GiB\"\n{own}");
    check(&given, [(Some(2 << 30), true), (Some(1 << 30), true), (None, true)]);
    check("tables = \"s3://bucket/tables\"\ndisk_bytes = \"2GiB\"", [(Some(2 << 30), true); 3]);
}

/// Each tenant has its own rows, however many tenants there are and whatever their names look like.
#[test]
fn settings_of_a_tenant_are_found_among_those_of_many() {
    let mut text =
        "samples_per_second = 1\n[class.c]\ntenants = [\"c-*\"]\nsamples_per_second = 2\n".to_owned();
    let names: Vec<_> = (0..300).map(|i| format!("c-{i}.retention")).collect();
    for (i, name) in names.iter().enumerate() {
        text += &format!("[tenant.{name:?}]\nactive_series = {}\n", i + 10);
    }
    let (settings, _) = resolve(&toml(&text).unwrap()).unwrap();
    let explained = |name: &str, key: &str| {
        let tenant = TenantId::parse(name).unwrap();
        let rows: Vec<_> = settings.tenants.explain(&tenant).filter(|row| row.key == key).collect();
        let [row] = rows.as_slice() else { panic!("{key} of {name} occurs {} times", rows.len()) };
        row.value.to_string()
    };
    for (i, name) in names.iter().enumerate() {
        assert_eq!(explained(name, "active_series"), (i + 10).to_string());
        assert_eq!(explained(name, "samples_per_second"), "2", "from the class");
    }
    let derived = settings.tenants.general.limits.active_series.unwrap().to_string();
    assert_eq!(explained("c-300.retention", "active_series"), derived);
    assert_eq!(explained("other", "samples_per_second"), "1");
}

/// The listing says to whom a class applies, in the form in which the file says it.
#[test]
fn listed_settings_can_be_read_again() {
    let text = "retention = \"90d\"\n[class.z]\ntenants = [\"squad-*\", \"team \\\"x\\\"\", \"t2\"]\nsamples_per_second = 7\n\
                [class.\"a b.c\"]\nretention = \"1d\"\ntenants = [\"*\"]\n[class.none]\ntenants = [\"n\"]\n\
                [tenant.\"squad-1.x\"]\nactive_series = 9\n";
    let overrides = "[class.z]\ntenants = [\"z-*\"]\nsamples_per_second = 8\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("overrides.toml");
    std::fs::write(&path, overrides).unwrap();
    let (_, rows) = resolve(&toml(text).unwrap()).unwrap();
    let of_file = listing(&rows);
    assert!(
        of_file.contains("class.z.tenants = [\"squad-*\",\"team \\\"x\\\"\",\"t2\"]  file f.toml:3\n"),
        "{of_file}"
    );
    let given = toml(text).unwrap().flag("overrides", &path);
    let (settings, _) = resolve(&given).unwrap();
    let of_both = settings.tenants.rows().to_vec();
    for rows in [rows, of_both] {
        // as `/config` and `/runtime_config` list them
        let written = |rows: &[EffectiveSetting]| {
            rows.iter().map(|row| format!("{} = {}", row.key, row.value)).collect::<Vec<_>>()
        };
        let (again, all) = resolve(&toml(&written(&rows).join("\n")).unwrap()).unwrap();
        let again = if rows.len() == all.len() { all } else { again.tenants.rows().to_vec() };
        assert_eq!(written(&again), written(&rows));
    }
    let (again, _) = resolve(
        &toml(
            &settings
                .tenants
                .rows()
                .iter()
                .map(|row| format!("{} = {}\n", row.key, row.value))
                .collect::<String>(),
        )
        .unwrap(),
    )
    .unwrap();
    for name in ["z-1", "squad-2", "squad-1.x", "t2", "other", "n"] {
        let tenant = TenantId::parse(name).unwrap();
        let shown = |settings: &Settings| {
            let rows = settings.tenants.explain(&tenant);
            rows.map(|row| format!("{} = {}\n", row.key, row.value)).collect::<String>()
        };
        assert_eq!(shown(&again), shown(&settings), "{name}");
    }
}

#[test]
fn a_limit_on_clusters_is_a_default_until_it_is_given() {
    let check = |text: &str, expected: [(usize, bool); 2]| {
        let (settings, _) = resolve(&toml(text).unwrap()).unwrap();
        let of = |name: &str| {
            let own = settings.tenants.of(&TenantId::parse(name).unwrap());
            (own.limits.ha_clusters, own.limits.ha_clusters_is_given)
        };
        assert_eq!(["any", "one"].map(of), expected, "{text}");
    };
    check("", [(100, false); 2]);
    check("[tenant.one]\nha_clusters = 100", [(100, false), (100, true)]);
    check("ha_clusters = 7\n[tenant.one]\nha_dedup = true", [(7, true); 2]);
}

#[test]
fn rollups_are_kept_as_long_as_their_samples() {
    let check = |text: &str, expected: Option<&str>| {
        let (settings, _) = resolve(&toml(text).unwrap()).unwrap();
        let kept_ms =
            settings.tenants.of(&TenantId::parse("a").unwrap()).rollups_kept_ms(&rules::Schemas::default());
        assert_eq!(kept_ms.map(stdx::units::duration_text).as_deref(), expected, "{text}");
    };
    check("rollup_retention = \"1d\"", None);
    // without schemas, their retention is unlimited
    check("graphite_retention = true", None);
    check("retention = \"9d\"\nrollup_retention = \"1d\"", Some("9d"));
    check("retention = \"9d\"\n[tenant.a]\nretention = \"3d\"", Some("3d"));
    check("retention = \"9d\"\nrollup_retention = \"99d\"\n[tenant.a]\nretention = \"3d\"", Some("99d"));
    check(
        "retention = \"9d\"\nrollup_retention = \"99d\"\n[tenant.a]\nrollup_retention = \"samples\"",
        Some("9d"),
    );
}

#[test]
fn wrong_settings_of_a_tenant() {
    let check = |text: &str, expected: Expect| check_error(toml(text), expected);
    check(
        "[tenant.a]\nretention = \"1d\"\nretentoin = \"2d\"",
        expect![
            "f.toml:3: a tenant has no setting retentoin: settings of tenants are retention, rollups, rollup_retention, stream_retention, query_resolution, otlp_translation, otlp_promote, otlp_target_info, otlp_keep_identifying, otlp_scope_labels, otlp_delta, otlp_buckets, graphite_retention, influx_names, influx_db_label, streams, requests_per_second, samples_per_second, bytes_per_second, new_series_per_second, rate_burst, active_series, series_per_metric, disk_bytes, tenant_tables, events_bytes, concurrent_writes, inflight_bytes, concurrent_queries, query_memory, query_samples, share_weight, limit_status, ha_dedup, ha_cluster_label, ha_replica_label, ha_failover, ha_clusters"
        ],
    );
    check(
        "[tenant.a]\nmemory = \"1GiB\"",
        expect![
            "f.toml:2: a tenant has no setting memory: settings of tenants are retention, rollups, rollup_retention, stream_retention, query_resolution, otlp_translation, otlp_promote, otlp_target_info, otlp_keep_identifying, otlp_scope_labels, otlp_delta, otlp_buckets, graphite_retention, influx_names, influx_db_label, streams, requests_per_second, samples_per_second, bytes_per_second, new_series_per_second, rate_burst, active_series, series_per_metric, disk_bytes, tenant_tables, events_bytes, concurrent_writes, inflight_bytes, concurrent_queries, query_memory, query_samples, share_weight, limit_status, ha_dedup, ha_cluster_label, ha_replica_label, ha_failover, ha_clusters"
        ],
    );
    check(
        "ha_replica_label = \"r\"\n[tenant.a]\nha_cluster_label = \"r\"",
        expect!["f.toml:3: tenant.a.ha_cluster_label = r: ha_cluster_label and ha_replica_label must differ"],
    );
    check(
        "[tenant.a]\nha_replica_label = \"__name__\"",
        expect![
            "f.toml:2: tenant.a.ha_replica_label = __name__: must be the name of a label other than __name__"
        ],
    );
    check(
        "[tenant.\"a/b\"]\nretention = \"1d\"",
        expect![[r#"f.toml:1: [tenant."a/b"]: tenant ID contains unsupported character '/'"#]],
    );
    check(
        "[tenant.\"a.b\"]\nretention = \"1\"",
        expect![[
            r#"f.toml:2: tenant."a.b".retention = 1: must be a duration such as 30s, 5m or 1h30m, or never"#
        ]],
    );
    check("[tenant]\na = \"1d\"", expect!["f.toml:2: [tenant.a] must be a table"]);
    check("tables_options = []", expect!["f.toml:1: [tables_options] must be a table"]);
    check("tenant = 1", expect!["f.toml:1: [tenant.NAME] must be a table"]);
}

#[test]
fn tables_of_tenants_that_were_retired_show_their_replacement() {
    let old = "[tenant_retention]\nb = \"1d\"\n\"a.b\" = '2d'\n[tenant_rollups]\nb = [\"5m\", \"1h\"]";
    check_error(
        toml(old),
        expect![[r#"
        f.toml:1: [tenant_retention] is no longer supported; use [tenant.NAME] instead:

        [tenant."a.b"]
        retention = '2d'

        [tenant.b]
        retention = "1d"
        rollups = ["5m", "1h"]
    "#]],
    );
    let error = toml(old).unwrap_err().to_string();
    let replacement = error.split_once("\n\n").expect("the replacement follows an empty line").1;
    let own: Vec<_> = resolve(&toml(replacement).unwrap()).unwrap().0.tenants.own.into_keys().collect();
    assert_eq!(own.iter().map(TenantId::as_str).collect::<Vec<_>>(), ["a.b", "b", "floodmark-system"]);
}

#[test]
fn rates_for_all_tenants_do_not_count_for_the_servers_own_metrics() {
    let text = "new_series_per_second = 50\nsamples_per_second = 60\n[tenant.floodmark-system]\nsamples_per_second = 70";
    let (settings, _) = resolve(&toml(text).unwrap()).unwrap();
    let rates = |tenant: &str| {
        let limits = &settings.tenants.of(&TenantId::parse(tenant).unwrap()).limits;
        (limits.new_series_per_second, limits.samples_per_second)
    };
    assert_eq!(rates("a"), (Some(50), Some(60)));
    assert_eq!(rates("floodmark-system"), (None, Some(70)));
}

#[test]
fn no_secret_is_shown() {
    let text = "tables = \"az://user:hunter2@box/x?sig=hunter2\"\n[tables_options]\nAWS_Region = \"eu\"\n\
                aws_endpoint = \"http://user:hunter2@127.0.0.1:1\"\naws_secret_access_key = \"hunter2\"\n\
                azure_storage_sas_key = \"hunter2\"\nunheard_of = \"hunter2\"";
    let variables = [("AWS_SECRET_ACCESS_KEY", "hunter3"), ("GOOGLE_BUCKET", "b"), ("AZURE_X", "hunter4")];
    let given = toml(text).unwrap().environment(environment(&variables)).unwrap();
    let (settings, rows) = resolve(&given).unwrap();
    assert_eq!(settings.lake.options.0["aws_secret_access_key"], "hunter2", "the file takes precedence");
    expect![[r#"
        tables = "az://redacted@box/x"  file f.toml:1
        tables_options.aws_endpoint = "http://redacted@127.0.0.1:1/"  file f.toml:4
        tables_options.aws_region = "eu"  file f.toml:3
        tables_options.aws_secret_access_key = "(redacted)"  file f.toml:5
        tables_options.azure_storage_sas_key = "(redacted)"  file f.toml:6
        tables_options.azure_x = "(redacted)"  environment AZURE_X
        tables_options.google_bucket = "b"  environment GOOGLE_BUCKET
        tables_options.unheard_of = "(redacted)"  file f.toml:7
    "#]]
    .assert_eq(&listing(&rows));

    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let open =
        |url: &str| tables::Location::open(url, settings.lake.options.0.clone(), runtime.handle().clone());
    let location = open("s3://user:hunter3@box/x?sig=hunter4");
    let error = open("nonsense://user:hunter3@box/x?sig=hunter4").unwrap_err();
    for text in [
        format!("{given:?} {settings:#?} {rows:?} {location:?}"),
        format!("{error} {error:?} {}", open("hunter5").unwrap_err()),
    ] {
        assert!(!text.contains("hunter"), "{text}");
    }
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

#[test]
fn administration_moves_to_this_machine_when_others_can_connect() {
    let check = |given: &[(&str, &str)], expected: Result<(&str, Option<&str>), &str>| {
        let given = given.iter().fold(Given::default(), |given, (key, text)| given.flag(key, text));
        let found = resolve(&given).map(|(settings, rows)| {
            let row = rows.into_iter().find(|row| row.key == "admin_listen").unwrap();
            (row.value.as_str().unwrap().to_owned(), settings.warning_of_access())
        });
        match (found, expected) {
            (Ok((value, warning)), Ok((expected, part))) => {
                assert_eq!(value, expected);
                assert_eq!(warning.is_some(), part.is_some(), "{warning:?}");
                assert!(part.is_none_or(|part| warning.as_ref().unwrap().contains(part)), "{warning:?}");
            }
            (found, expected) => {
                let error = found.unwrap_err().to_string();
                assert!(error.contains(expected.unwrap_err()), "{error}");
            }
        }
    };
    let all = ("allow_unauthenticated", "true");
    let open = ("http", "0.0.0.0:9009");
    check(&[], Ok(("http", None)));
    check(&[("http", "[::1]:1")], Ok(("http", None)));
    check(&[open, all], Ok(("127.0.0.1:9010", Some("reaches 0.0.0.0:9009 can read and write everything"))));
    check(&[open, all, ("admin_listen", "http")], Ok(("http", Some("can read, write and administer"))));
    check(&[open, all, ("admin_listen", "none")], Ok(("none", Some("can read and write everything"))));
    let apart = ("admin_listen", "10.0.0.1:1");
    check(&[all, apart], Ok(("10.0.0.1:1", Some("reaches 10.0.0.1:1 can administer everything"))));
    check(&[apart], Err("--admin-listen 10.0.0.1:1: other machines"));
    check(&[open], Err("--http 0.0.0.0:9009: other machines"));
    check(
        &[("admin_listen", "127.0.0.1:9009")],
        Err("to serve administration there too, set admin_listen to the word http"),
    );
    check(&[("admin_listen", "nowhere")], Err("or http, or none"));
    check(&[("tls_cert", "/x.pem")], Err("needs tls_key too"));
    check(&[("tls_key", "/x.pem")], Err("needs tls_cert too"));
    check(&[("tls_client_ca", "/x.pem")], Err("needs tls_cert and tls_key too"));
    check(&[("tls_cert", "/nowhere/x.pem"), ("tls_key", "/x.key")], Err("/nowhere/x.pem"));
    check(&[("tls_client_auth", "maybe")], Err("required or optional"));
}

#[test]
fn the_longest_retention_of_schemas_applies_where_it_is_wanted() {
    let week = "[a]\npattern = a\nretentions = 60:7d\n[b]\npattern = b\nretentions = 60:9d\n";
    let schemas = rules::Schemas::default().with_schemas(week).unwrap();
    let check = |text: &str, expected: Option<&str>| {
        let (settings, _) = resolve(&toml(text).unwrap()).unwrap();
        let kept_ms = settings.tenants.of(&TenantId::parse("a").unwrap()).samples_kept_ms(&schemas);
        assert_eq!(kept_ms.map(stdx::units::duration_text).as_deref(), expected, "{text}");
    };
    check("", None);
    check("retention = \"30d\"", Some("30d"));
    check("graphite_retention = true", Some("9d"));
    check("graphite_retention = true\nretention = \"30d\"", Some("9d"));
    check("graphite_retention = true\nretention = \"1d\"", Some("1d"));
    check("graphite_retention = true\n[tenant.a]\ngraphite_retention = false", None);
}
