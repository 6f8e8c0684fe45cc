//! Errors name the setting, and where it was given.

use super::*;
use expect_test::{Expect, expect};
use model::TenantId;

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
