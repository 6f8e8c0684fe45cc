//! Settings of single tenants and of classes of tenants.

use super::*;
use expect_test::expect;
use model::TenantId;
use tables::rollup::Resolution;

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
