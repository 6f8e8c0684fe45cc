use super::*;
use crate::settings::{Given, Settings};
use model::Rights;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use stdx::clock::SystemClock;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

pub(super) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("the future waits"),
    }
}

fn hex(secret: &str) -> String {
    digest::sha256(secret.as_bytes()).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn file() -> String {
    format!(
        "[token.reader]\nsha256 = \"{}\"\ntenants = [\"a\", \"b-*\"]\nroles = [\"read\"]\n\
         [token.operator]\nsha256 = \"{}\"\nroles = [\"admin\"]\n\
         [token.scraper]\nsha256 = \"{}\"\nroles = [\"metrics\"]\n\
         [user.prometheus]\nsha256 = \"{}\"\ntenants = [\"a\"]\nroles = [\"write\"]\n",
        hex("read"),
        hex("operate"),
        hex("scrape"),
        hex("open: sesame")
    )
}

pub(super) fn auth_of(given: &Given) -> Auth {
    let Settings { auth_file, trusted_proxies, self_monitoring, budget, .. } =
        Settings::resolve(given).unwrap();
    let own_tenant = self_monitoring.tenant;
    let options = Options { file: auth_file, trusted_proxies, own_tenant, memory_bytes: budget.auth_bytes };
    Auth::new(options, Arc::new(SystemClock), &Registry::new())
}

fn auth(path: &Path) -> Auth {
    auth_of(&Given::default().flag("auth_file", path))
}

fn ask(
    auth: &Auth,
    access: Access,
    credential: Option<Credential<'_>>,
    tenant: Option<&str>,
    address: IpAddr,
) -> Result<(String, Option<String>), (ErrorKind, &'static str)> {
    let original = Original { method: &hyper::Method::GET, path: "/", headers: &hyper::HeaderMap::new() };
    let tenants = tenant.map(|name| TenantSet::parse(name).unwrap());
    let caller = ready(auth.identify(access, Presented { original, address, credential, tenants }));
    let tenant = |caller: &Caller| caller.tenants.as_ref().map(ToString::to_string);
    caller
        .map(|caller| (caller.name.to_string(), tenant(&caller)))
        .map_err(|refusal| (refusal.kind, refusal.reason))
}

const UNKNOWN: (ErrorKind, &str) = (ErrorKind::Unauthenticated, "unauthenticated");
const FORBIDDEN: (ErrorKind, &str) = (ErrorKind::Forbidden, "rights");

#[test]
fn credentials_give_their_roles_on_their_tenants() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    std::fs::write(&path, file()).unwrap();
    let auth = auth(&path);
    let token = |token: &'static str| Some(Credential::Token(token.as_bytes()));
    let password =
        |user, password: &'static str| Some(Credential::Password { user, password: password.as_bytes() });
    let known = |name: &str, tenant: Option<&str>| Ok((name.to_owned(), tenant.map(str::to_owned)));
    let check = |access, credential, tenant, expected| {
        assert_eq!(ask(&auth, access, credential, tenant, REMOTE), expected, "{access:?} {tenant:?}");
    };
    check(Access::Read, token("read"), Some("a"), known("token reader", Some("a")));
    check(Access::Read, token("read"), Some("b-1"), known("token reader", Some("b-1")));
    check(Access::Read, token("read"), Some("c"), Err(FORBIDDEN));
    check(Access::Read, token("read"), None, Err((ErrorKind::Invalid, "tenant")));
    check(Access::Read, token("read"), Some("b-2|a|b-1"), known("token reader", Some("a|b-1|b-2")));
    check(Access::Read, token("read"), Some("a|c"), Err(FORBIDDEN));
    check(
        Access::Write,
        password("prometheus", "open: sesame"),
        Some("a|b"),
        Err((ErrorKind::Invalid, "tenant")),
    );
    check(
        Access::Write,
        password("prometheus", "open: sesame"),
        Some("a|a"),
        known("user prometheus", Some("a")),
    );
    for access in [Access::Write, Access::Metrics, Access::Admin] {
        check(access, token("read"), Some("a"), Err(FORBIDDEN));
    }
    check(Access::Write, password("prometheus", "open: sesame"), None, known("user prometheus", Some("a")));
    check(Access::Write, password("prometheus", "open: sesam"), None, Err(UNKNOWN));
    check(Access::Write, password("nobody", "open: sesame"), None, Err(UNKNOWN));
    check(Access::Write, token("open: sesame"), None, Err(UNKNOWN));
    check(Access::Read, password("reader", "read"), Some("a"), Err(UNKNOWN));
    check(Access::Admin, token("operate"), None, known("token operator", None));
    check(Access::Metrics, token("operate"), None, known("token operator", None));
    check(Access::Metrics, token("scrape"), None, known("token scraper", None));
    check(Access::Admin, token("scrape"), None, Err(FORBIDDEN));
    for wrong in ["", "Read", "read ", "rea"] {
        check(Access::Read, token(wrong), Some("a"), Err(UNKNOWN));
    }
}

#[test]
fn certificates_are_credentials_of_connections() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let entry = |name: &str, certificate: &str, rest: &str| {
        format!("[certificate.{name}]\nname = \"{certificate}\"\n{rest}\n")
    };
    let entries = [
        entry("team-a", "Team-A.example", "tenants = [\"a\"]\nroles = [\"write\"]"),
        entry("operator", "spiffe://example/Ops", "roles = [\"admin\"]"),
    ];
    std::fs::write(&path, file() + &entries.concat()).unwrap();
    let auth = auth(&path);
    let check = |names: &[&str], access, tenant, address, expected| {
        let names = ClientNames::from(names);
        let found = ask(&auth, access, Some(Credential::Certificate(&names)), tenant, address);
        assert_eq!(found, expected, "{names:?}");
    };
    let team = Ok(("certificate team-a".to_owned(), Some("a".to_owned())));
    let operator = Ok(("certificate operator".to_owned(), None));
    check(&["team-a.example"], Access::Write, None, REMOTE, team.clone());
    check(&["other", "TEAM-A.EXAMPLE"], Access::Write, Some("a"), REMOTE, team);
    check(&["team-a.example"], Access::Write, Some("b"), REMOTE, Err(FORBIDDEN));
    check(&["team-a.example"], Access::Read, None, REMOTE, Err(FORBIDDEN));
    check(&["spiffe://example/Ops"], Access::Admin, None, REMOTE, operator);
    for unknown in ["spiffe://example/ops", "operator", "team-a", "prometheus", "read", ""] {
        check(&[unknown], Access::Admin, None, REMOTE, Err(UNKNOWN));
    }
    check(&[], Access::Write, None, REMOTE, Err(UNKNOWN));
    let proxied = Ok((PROXY.to_owned(), Some("any".to_owned())));
    check(&["proxy.example"], Access::Write, Some("any"), LOCAL, proxied);
    check(&["proxy.example"], Access::Admin, Some("any"), LOCAL, Err(UNKNOWN));
}

#[test]
fn a_trusted_proxy_vouches_for_a_tenant_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    std::fs::write(&path, file()).unwrap();
    let auth = auth(&path);
    let through = |access, tenant, address| ask(&auth, access, None, tenant, address).is_ok();
    for access in [Access::Read, Access::Write] {
        assert!(through(access, Some("any"), LOCAL));
        assert!(through(access, Some("any"), "::1".parse().unwrap()));
        assert!(
            !through(access, None, LOCAL),
            "a proxy that does not name the tenant may have checked nothing"
        );
        assert!(!through(access, Some("any"), REMOTE));
    }
    assert!(!through(Access::Admin, Some("any"), LOCAL) && !through(Access::Metrics, Some("any"), LOCAL));
    let wrong = Some(Credential::Token(b"wrong"));
    assert_eq!(
        ask(&auth, Access::Read, wrong, Some("any"), LOCAL),
        Err(UNKNOWN),
        "a wrong credential is refused"
    );
}

#[test]
fn a_file_changes_at_run_time_and_an_invalid_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    write(&file());
    let auth = auth(&path);
    let is_known = |token: &str| {
        auth.reload();
        ask(&auth, Access::Admin, Some(Credential::Token(token.as_bytes())), None, REMOTE).is_ok()
    };
    assert!(is_known("operate"));
    write(&file().replace(&hex("operate"), &hex("other")));
    assert!(!is_known("operate") && is_known("other"));
    write("[token.operator]\nroles = [\"admin\"]\n");
    assert!(is_known("other"));
    std::fs::remove_file(&path).unwrap();
    assert!(is_known("other"), "without the file, the earlier credentials stay valid");
    write("");
    assert!(!is_known("other"), "an empty file allows nobody");
}

#[test]
fn errors_name_the_line_and_no_secret() {
    let secret = "hunter2-hunter2";
    let digest = hex(secret);
    for (text, expected) in [
        (format!("\n[token.a]\nsha256 = \"{secret}\"\nroles = [\"admin\"]"), ":3: sha256 must be 64"),
        (format!("[token.a]\nsha256 = \"+{}\"\nroles = [\"admin\"]", &digest[1..]), ":2: sha256 must be 64"),
        (
            format!("[token.a]\nroles = [\"admin\"]\nsha256 = \"{}\"", hex("")),
            ":3: sha256 is the digest of an empty secret",
        ),
        (
            format!("[user.a]\nsha256 = \"{}\"\nroles = [\"admin\"]", hex("").to_uppercase()),
            ":2: sha256 is the digest of an empty secret",
        ),
        (format!("[token.a]\nsecret = \"{secret}\""), ":2: unknown key"),
        (format!("[token.a]\nsha256 = {secret}"), ":2: not valid TOML"),
        (format!("{secret} = 1"), ":1: unknown key"),
        (format!("[token.a]\nsha256 = \"{digest}\"\nroles = [\"{secret}\"]"), ":3: roles must be"),
        (format!("[token.a]\nsha256 = \"{digest}\"\nroles = []"), ":3: roles must be"),
        (
            format!("[token.a]\nsha256 = \"{digest}\"\nroles = [\"read\"]"),
            ":1: the roles read and write need tenants",
        ),
        (
            format!("[token.a]\nsha256 = \"{digest}\"\nroles = [\"read\"]\ntenants = []"),
            ":4: tenants must have",
        ),
        ("[token.a]\nroles = [\"admin\"]".into(), ":1: a token or user must have sha256 and roles"),
        (
            format!(
                "[token.a]\nsha256 = \"{digest}\"\nroles = [\"admin\"]\n\
                 [token.b]\nsha256 = \"{digest}\"\nroles = [\"admin\"]"
            ),
            ":4: the token is the same as that of token a",
        ),
        ("[jwt.a]\nroles = [\"admin\"]".into(), ":1: [jwt.NAME] must have roles, and keys_file or keys_url"),
        (
            format!("[jwt.a]\nkeys_url = \"https://user:{secret}@id.example/\"\nroles = [\"admin\"]"),
            ":2: must be a URL such as",
        ),
        (
            "[jwt.a]\nkeys_url = \"https://id.example/\"\nkeys_file = \"keys\"".into(),
            ":2: keys_file and keys_url exclude each other",
        ),
        ("[jwt.a]\nkeys_file = \"none\"\nroles = [\"admin\"]".into(), ":2: cannot read "),
        (format!("[jwt.a]\nkeys_url = \"https://id.example/\"\nsecret = \"{secret}\""), ":3: unknown key"),
        ("[jwt.a]\naudience = []".into(), ":2: audience must have 1 to 16 strings"),
        ("[jwt.a]\nleeway = \"6m\"".into(), ":2: leeway must be a duration from 0s to 5m"),
        (
            "[jwt.a]\nroles_claim = \"\"".into(),
            ":2: tenants_claim and roles_claim must be the name of a claim",
        ),
        ("[jwt]\na = 1".into(), ":2: an entry must be a table [jwt.NAME]"),
        (
            "[jwt.a]\nkeys_url = \"https://id.example/\"\nroles = [\"read\"]".into(),
            ":1: the roles read and write need tenants",
        ),
        ("[forward]\nroles = [\"admin\"]".into(), ":1: [forward] must have url and roles"),
        ("[forward]\nurl = \"file:///etc\"".into(), ":2: must be a URL such as"),
        ("[forward]\nheaders = []".into(), ":2: headers must have 1 to 16 names"),
        ("[forward]\nheaders = [\"Host\"]".into(), ":2: must be the name of a header"),
        ("[forward]\ntimeout = \"1h\"".into(), ":2: timeout must be a duration from 1ms to 30s"),
        (format!("[forward]\n{secret} = 1"), ":2: unknown key"),
        ("[certificate.a]\nroles = [\"admin\"]".into(), ":1: a certificate must have name and roles"),
        (
            format!("[certificate.a]\nsha256 = \"{digest}\"\nroles = [\"admin\"]"),
            ":2: unknown key: valid keys are name",
        ),
        ("[certificate.a]\nname = \"\"\nroles = [\"admin\"]".into(), ":2: name must be a DNS name"),
        (
            "[certificate.a]\nname = \"x\"\nroles = [\"admin\"]\n\
             [certificate.b]\nname = \"X\"\nroles = [\"admin\"]"
                .into(),
            ":4: the name is the same as that of certificate a",
        ),
        (format!("[user.\"a:b\"]\nsha256 = \"{digest}\"\nroles = [\"admin\"]"), ":1: the name of a user"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.toml");
        std::fs::write(&path, &text).unwrap();
        let keys = format!(r#"{{"keys": [{{"kty": "oct", "k": "{}"}}]}}"#, "A".repeat(43));
        std::fs::write(dir.path().join("keys"), keys).unwrap();
        let error = AuthFile { path }.check().unwrap_err();
        assert!(error.contains(expected), "{error}\n{text}");
        assert!(!error.contains(secret) && !error.contains(&digest[1..]), "{error}");
    }
}

#[test]
fn nobody_else_writes_the_nodes_own_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let all =
        format!("[token.all]\nsha256 = \"{}\"\ntenants = [\"*\"]\nroles = [\"read\", \"write\"]\n", hex("x"));
    std::fs::write(&path, all).unwrap();
    let open = auth_of(&Given::default());
    for auth in [auth(&path), open] {
        let presented = |access, tenant| {
            let tenants = Some(TenantSet::parse(tenant).unwrap());
            let credential = Some(Credential::Token(b"x"));
            let original =
                Original { method: &hyper::Method::GET, path: "/", headers: &hyper::HeaderMap::new() };
            ready(auth.identify(access, Presented { original, address: LOCAL, credential, tenants }))
        };
        let refused = presented(Access::Write, "floodmark-system").unwrap_err();
        assert_eq!((refused.kind, refused.reason), FORBIDDEN);
        assert!(refused.message.contains("self_monitoring_tenant"), "{refused}");
        let reader = presented(Access::Read, "floodmark-system").unwrap().principal.unwrap();
        assert_eq!(reader.rights, Rights { read: true, write: false });
        let other = presented(Access::Write, "floodmark").unwrap().principal.unwrap();
        assert_eq!(other.rights, Rights { read: true, write: true });
    }
}

#[test]
fn only_the_log_says_whose_password_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    std::fs::write(&path, file()).unwrap();
    let auth = auth(&path);
    let refusal = |user: &str| {
        let original = Original { method: &hyper::Method::GET, path: "/", headers: &hyper::HeaderMap::new() };
        let credential = Some(Credential::Password { user, password: b"hunter2" });
        let presented = Presented { original, address: REMOTE, credential, tenants: None };
        ready(auth.identify(Access::Write, presented)).unwrap_err()
    };
    let (known, unknown) = (refusal("prometheus"), refusal("nobody"));
    assert_eq!((known.message.as_str(), known.reason), ("the credentials are unknown", "unauthenticated"));
    assert_eq!((known.message.as_str(), known.reason), (unknown.message.as_str(), unknown.reason));
    assert_eq!((known.caller, unknown.caller), (0, 0), "guessed names get no lines of their own");
    assert_eq!(known.cause(), "the password of user prometheus is wrong");
    assert_eq!(unknown.cause(), "the credentials are unknown: auth_file has no such user");
}

#[test]
fn files_that_are_probably_wrong_are_warned_of() {
    let check = |text: &str, expected: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.toml");
        std::fs::write(&path, text).unwrap();
        let warnings = AuthFile { path }.check().unwrap();
        let are_expected = warnings.iter().zip(expected).all(|(warning, part)| warning.contains(part));
        assert!(are_expected && warnings.len() == expected.len(), "{text}: {warnings:?}");
    };
    check(&file(), &[]);
    check("# nothing", &["auth.toml has no credentials"]);
    let forward = |url: &str| format!("[forward]\nurl = \"{url}\"\nroles = [\"admin\"]\n");
    for url in ["http://127.0.0.1:4181/check", "http://[::1]/", "http://localhost/", "https://auth.example/"]
    {
        check(&forward(url), &[]);
    }
    for url in ["http://auth.example/", "http://10.0.0.1:4181/check"] {
        check(&forward(url), &["unencrypted"]);
    }
}

#[test]
fn keys_of_tokens_come_over_tls_or_from_this_machine() {
    let check = |url: &str, is_valid: bool| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.toml");
        std::fs::write(&path, format!("\n[jwt.x]\nkeys_url = \"{url}\"\nroles = [\"admin\"]\n")).unwrap();
        let checked = AuthFile { path }.check();
        let text = format!("{checked:?}");
        assert_eq!(checked.is_ok(), is_valid, "{url}: {text}");
        assert!(is_valid || text.contains("auth.toml:3: keys_url must begin with https://"), "{text}");
    };
    for url in [
        "https://id.example/k",
        "https://10.9.8.7/x",
        "http://localhost/k",
        "http://LOCALHOST:8080/k",
        "http://127.0.0.1:1/k",
        "http://127.9.8.7/k",
        "http://[::1]:8080/k",
        "http://[::ffff:127.0.0.1]/k",
        "HTTPS://id.example/k",
    ] {
        check(url, true);
    }
    for url in [
        "http://10.9.8.7/x",
        "http://example.com/k",
        "http://localhost.example.com/k",
        "http://127.0.0.1.example.com/k",
        "http://128.0.0.1/k",
        "http://0.0.0.0/k",
        "http://[::2]/k",
        "http://[::ffff:10.9.8.7]/k",
        "HTTP://example.com/k",
    ] {
        check(url, false);
    }
}
