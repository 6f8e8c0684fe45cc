//! How long samples and rollups are kept.

use super::*;
use model::TenantId;

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
