//! Who can connect, and what is shown of secrets.

use super::*;
use expect_test::expect;

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
