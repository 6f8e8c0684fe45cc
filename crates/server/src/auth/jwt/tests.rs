use super::key::{Algorithm, Origin};
use super::*;
use crate::auth::tests::ready;
use crate::auth::{Access, AuthFile};
use crate::watched::Source;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use model::ErrorKind;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use stdx::clock::ManualClock;
use stdx::rng::Rng;

const NOW_MS: i64 = 1_700_000_000_000;
const NOW_S: i64 = NOW_MS / 1000;
const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SECRET: &[u8] = b"a secret of at least 32 bytes, as it must be";

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

struct Service {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Service {
    fn new() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self { pair: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap(), random }
    }

    fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn elliptic(&self, id: &str) -> Value {
        let (x, y) = self.point()[1..].split_at(32);
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": encoded(x), "y": encoded(y) })
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let signature = self.pair.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", encoded(signature))
    }
}

fn hs256(secret: &[u8], header: &Value, claims: &Value) -> String {
    let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", encoded(signature))
}

fn secret_key(id: &str) -> Value {
    json!({ "kty": "oct", "kid": id, "alg": "HS256", "k": encoded(SECRET) })
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example",
        "aud": ["other", "floodmark"],
        "sub": "alice",
        "exp": NOW_S + 60,
        "nbf": NOW_S - 60,
        "tenants": ["team-a", "b"],
        "roles": "read admin sing",
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

struct Setup {
    clock: Arc<ManualClock>,
    registry: Registry,
    jwt: Jwt,
    credentials: Arc<Credentials>,
    _dir: tempfile::TempDir,
}

const ISSUER: &str = "[jwt.id]\nkeys_file = \"keys\"\nissuer = \"https://id.example\"\naudience = \"floodmark\"\n\
    tenants = [\"team-*\"]\nroles = [\"read\", \"write\"]\ntenants_claim = \"tenants\"\nroles_claim = \"roles\"\n";

impl Setup {
    fn new(keys: &[Value]) -> Self {
        Self::of(ISSUER, &json!({ "keys": keys }).to_string())
    }

    fn of(text: &str, keys: &str) -> Self {
        let (clock, registry) = (Arc::new(ManualClock::at(NOW_MS)), Registry::new());
        let jwt = Jwt::new(Arc::<ManualClock>::clone(&clock), &Memory::ample(), &registry);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("auth.toml"), text).unwrap();
        std::fs::write(dir.path().join("keys"), keys).unwrap();
        let mut setup = Self { clock, registry, jwt, credentials: Arc::default(), _dir: dir };
        setup.reload();
        setup
    }

    fn reload(&mut self) {
        let file = AuthFile { path: self._dir.path().join("auth.toml") };
        self.credentials = Arc::new(file.parse(&file.read().unwrap()).unwrap());
        self.jwt.urls.follow(&self.credentials.issuers);
    }

    fn prove(&self, token: &str) -> Result<Option<Arc<Grant>>, Refusal> {
        self.prove_from(token, SENDER)
    }

    fn prove_from(&self, token: &str, address: IpAddr) -> Result<Option<Arc<Grant>>, Refusal> {
        ready(self.jwt.prove(&self.credentials, token.as_bytes(), address)).map(|proof| match proof {
            Proof::Of(grant) => Some(grant),
            Proof::Foreign => None,
        })
    }

    fn reads(&self, token: &str, tenant: &str) -> Result<String, ErrorKind> {
        let grant = self.prove(token).map_err(|refusal| refusal.kind)?.expect("a known issuer");
        let tenant = model::TenantSet::parse(tenant).unwrap();
        let caller = grant.caller(Access::Read, Some(tenant)).map_err(|refusal| refusal.kind)?;
        Ok(caller.name.to_string())
    }

    fn count(&self, result: &str) -> u64 {
        let text = self.registry.render();
        let series = format!("floodmark_auth_tokens_total{{result=\"{result}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap()
    }
}

fn es256() -> Value {
    json!({ "alg": "ES256", "kid": "1", "typ": "JWT" })
}

#[test]
fn claims_decide_within_what_the_issuer_may_give() {
    let service = Service::new();
    let setup = Setup::new(&[service.elliptic("1"), secret_key("2")]);
    let name = Ok("jwt id: alice".to_owned());
    for token in [
        service.token(&es256(), &claims()),
        service.token(&json!({ "alg": "ES256" }), &claims()),
        hs256(SECRET, &json!({ "alg": "HS256", "kid": "2" }), &claims()),
    ] {
        assert_eq!(setup.reads(&token, "team-a"), name);
        for tenant in ["b", "team-b", "c"] {
            assert_eq!(setup.reads(&token, tenant), Err(ErrorKind::Forbidden), "{tenant}");
        }
        let grant = setup.prove(&token).unwrap().unwrap();
        for access in [Access::Write, Access::Admin, Access::Metrics] {
            let tenant = model::TenantSet::parse("team-a").ok();
            assert_eq!(grant.caller(access, tenant).unwrap_err().kind, ErrorKind::Forbidden, "{access:?}");
        }
    }
    for (claims, tenant, expected) in [
        (with("tenants", Value::Null), "team-a", Err(ErrorKind::Forbidden)),
        (with("roles", Value::Null), "team-a", Err(ErrorKind::Forbidden)),
        (with("roles", json!(["READ"])), "team-a", Err(ErrorKind::Forbidden)),
        (with("tenants", json!("*")), "team-z", name.clone()),
        (with("tenants", json!("*")), "other", Err(ErrorKind::Forbidden)),
        (with("tenants", json!({ "team-a": true })), "team-a", Err(ErrorKind::Forbidden)),
        (with("sub", json!("a\nb")), "team-a", Ok("jwt id".into())),
        (with("sub", json!("x".repeat(101))), "team-a", Ok("jwt id".into())),
        (with("aud", json!("floodmark")), "team-a", name.clone()),
        (with("exp", json!(NOW_S as f64 + 0.5)), "team-a", name.clone()),
        (with("nbf", Value::Null), "team-a", name.clone()),
    ] {
        assert_eq!(setup.reads(&service.token(&es256(), &claims), tenant), expected, "{claims}");
    }
}

/// `Ok(None)` are tokens that the service of `[forward]` may accept.
#[test]
fn a_token_of_a_known_issuer_is_accepted_by_its_table_or_not_at_all() {
    let service = Service::new();
    let other = ISSUER.replace("[jwt.id]", "[jwt.other]").replace("id.example", "other.example");
    let any = "[jwt.any]\nkeys_file = \"keys\"\naudience = \"any\"\ntenants = [\"*\"]\nroles = [\"read\"]\n";
    let keys = json!({ "keys": [service.elliptic("1")] }).to_string();
    let setup = Setup::of(&format!("{ISSUER}{other}{any}"), &keys);
    for (claims, expected) in [
        (claims(), Ok(Some("jwt id: alice"))),
        (with("aud", json!("any")), Ok(Some("jwt any: alice"))),
        (with("aud", json!("grafana")), Err("claim aud")),
        (with("aud", Value::Null), Err("claim aud")),
        (with("iss", json!("https://evil.example")), Ok(None)),
        (with("iss", Value::Null), Ok(None)),
    ] {
        let proof = setup.prove(&service.token(&es256(), &claims));
        let proof = proof.as_ref().map(|grant| grant.as_ref().map(|grant| &*grant.name));
        match (proof, expected) {
            (Err(refusal), Err(part)) => assert!(refusal.message.contains(part), "{refusal}"),
            (proof, expected) => {
                assert_eq!(proof.map_err(ToString::to_string), expected.map_err(str::to_owned), "{claims}")
            }
        }
    }
}

/// A token without the claim for tenants administrates none, although the issuer names no tenants, as for an operator of
/// the whole node.
#[test]
fn a_token_without_its_claim_does_not_administrate_everything() {
    let service = Service::new();
    let operators = ISSUER.replace("\"read\", \"write\"", "\"admin\"").replace("\"team-*\"", "\"*\"");
    let without_claim =
        operators.replace("tenants_claim = \"tenants\"\n", "").replace("tenants = [\"*\"]\n", "");
    let keys = json!({ "keys": [service.elliptic("1")] }).to_string();
    let reach = |file: &str, named: Value| {
        let mut claims = with("tenants", named);
        claims["roles"] = json!(["admin"]);
        let grant = Setup::of(file, &keys).prove(&service.token(&es256(), &claims)).unwrap().unwrap();
        grant.caller(Access::Admin, None).unwrap().reach
    };
    let tenant = model::TenantId::parse("team-a").unwrap();
    for (named, includes) in
        [(Value::Null, false), (json!([]), false), (json!("b"), false), (json!("team-*"), true)]
    {
        let found = reach(&operators, named.clone());
        assert_eq!((found.is_everything(), found.includes(&tenant)), (false, includes), "{named}");
    }
    assert!(reach(&without_claim, Value::Null).is_everything());
}

#[test]
fn no_wrong_token_is_accepted() {
    let (service, other) = (Service::new(), Service::new());
    let setup = Setup::new(&[service.elliptic("1"), secret_key("2")]);
    let hs = |kid: &str| json!({ "alg": "HS256", "kid": kid });
    let good = service.token(&es256(), &claims());
    let (rest, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = rest.split_once('.').unwrap();
    let none = encoded(r#"{"alg":"none"}"#);
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    let changed = encoded(with("tenants", json!(["team-b"])).to_string());
    for (why, token) in [
        ("another key", other.token(&es256(), &claims())),
        ("another secret", hs256(&[7; 32], &hs("2"), &claims())),
        ("no algorithm", format!("{none}.{payload}.")),
        ("no algorithm, signed", format!("{none}.{payload}.{signature}")),
        ("no signature", format!("{rest}.")),
        ("the public key as a secret", hs256(service.point(), &hs("1"), &claims())),
        ("the public key as a secret, no kid", hs256(service.point(), &json!({ "alg": "HS256" }), &claims())),
        ("the secret under another id", hs256(SECRET, &hs("1"), &claims())),
        ("another algorithm's name", service.token(&json!({ "alg": "RS256", "kid": "1" }), &claims())),
        ("HS256 for ES256", service.token(&hs("1"), &claims())),
        ("lower case", service.token(&json!({ "alg": "es256", "kid": "1" }), &claims())),
        ("ES512", service.token(&json!({ "alg": "ES512", "kid": "1" }), &claims())),
        (
            "an embedded key",
            other.token(&json!({ "alg": "ES256", "jwk": other.elliptic("1"), "kid": "9" }), &claims()),
        ),
        ("an unknown key", service.token(&json!({ "alg": "ES256", "kid": "3" }), &claims())),
        (
            "a critical extension",
            service.token(&json!({ "alg": "ES256", "kid": "1", "crit": ["b64"] }), &claims()),
        ),
        ("expired", service.token(&es256(), &with("exp", json!(NOW_S - 30)))),
        ("without end", service.token(&es256(), &with("exp", Value::Null))),
        ("end is text", service.token(&es256(), &with("exp", json!("2999-01-01")))),
        ("long ago", service.token(&es256(), &with("exp", json!(-1e300)))),
        ("not yet", service.token(&es256(), &with("nbf", json!(NOW_S + 31)))),
        ("other claims", format!("{header}.{changed}.{signature}")),
        ("padded", format!("{good}=")),
        ("a cut signature", good[..good.len() - 2].to_owned()),
        ("no JSON", format!("{header}.{}.{signature}", encoded("floodmark"))),
        ("an array", service.token(&es256(), &json!([claims()]))),
        ("deep", service.token(&es256(), &json!({ "exp": NOW_S + 60, "deep": deep }))),
        ("deep JSON", format!("{header}.{}.{signature}", encoded(&deep))),
        ("garbage", "!.?.=".into()),
        ("dots", "..".into()),
    ] {
        let foreign = setup.prove(&token);
        let is_refused = match &foreign {
            Ok(None) => true,
            Ok(Some(_)) => false,
            Err(refusal) => refusal.kind == ErrorKind::Unauthenticated,
        };
        assert!(is_refused, "{why}: {foreign:?}");
        assert!(setup.jwt.verified.len() == 0, "{why}");
    }
    for (name, value) in [
        ("iss", json!("https://id.example/")),
        ("iss", Value::Null),
        ("aud", json!(["floodmark2"])),
        ("aud", json!([])),
        ("aud", Value::Null),
    ] {
        let token = service.token(&es256(), &with(name, value));
        let is_refused = match setup.prove(&token) {
            Ok(found) => found.is_none() && name == "iss",
            Err(refusal) => refusal.kind == ErrorKind::Unauthenticated && name == "aud",
        };
        assert!(is_refused, "{name}");
    }
    assert!(setup.prove(&good).unwrap().is_some());
}

#[test]
fn no_change_to_a_token_is_accepted() {
    let service = Service::new();
    let setup = Setup::new(&[service.elliptic("1")]);
    let good = service.token(&es256(), &claims());
    let mut rng = Rng::announced();
    for _ in 0..2_000 {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = b"AZaz09-_.="[rng.below(10) as usize],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"AZaz09-_.="[rng.below(10) as usize]),
            }
        }
        let is_same = bytes == good.as_bytes();
        setup.clock.advance(10); // so that checks do not exceed their rate
        setup.clock.set(-10);
        let text = String::from_utf8(bytes).unwrap();
        assert!(is_same || !matches!(setup.prove(&text), Ok(Some(_))), "{text}");
    }
}

#[test]
fn a_verified_token_costs_no_check_until_it_ends() {
    let service = Service::new();
    let mut setup = Setup::new(&[service.elliptic("1")]);
    let token = service.token(&es256(), &claims());
    for _ in 0..100 {
        setup.prove(&token).unwrap().unwrap();
    }
    assert_eq!((setup.count("accepted"), setup.count("cached")), (1, 99));
    setup.clock.set(89_999); // 60 s and the leeway
    assert!(setup.prove(&token).is_ok());
    setup.clock.set(1);
    assert_eq!(setup.prove(&token).unwrap_err().message, Fault::Expired.message());
    setup.clock.set(-90_000);
    assert!(setup.prove(&token).is_ok());
    setup.clock.set(-90_001);
    assert_eq!(setup.prove(&token).unwrap_err().message, Fault::NotYet.message());
    setup.clock.set(90_001);
    assert!(setup.prove(&token).is_ok());
    setup.reload();
    let verified = setup.count("accepted");
    assert!(setup.prove(&token).is_ok());
    assert_eq!(
        setup.count("accepted"),
        verified + 1,
        "a change of the file invalidates tokens verified under the earlier file"
    );
}

#[test]
fn only_the_log_says_which_table_refuses_a_token_and_whose_it_is() {
    let (service, other) = (Service::new(), Service::new());
    let setup = Setup::new(&[service.elliptic("1")]);
    let check = |token: &str, fault: Fault, cause: &str| {
        let refusal = setup.prove(token).unwrap_err();
        assert_eq!((refusal.message.as_str(), refusal.cause()), (fault.message(), cause));
        assert_eq!(refusal.caller, 0);
    };
    let header = |kid: &str| json!({ "alg": "ES256", "kid": kid });
    check(
        &service.token(&es256(), &with("aud", json!("grafana"))),
        Fault::Audience,
        "[jwt.id] does not allow the token's audience (claim aud)",
    );
    check(
        &service.token(&header("9"), &claims()),
        Fault::UnknownKey,
        "[jwt.id] has no key with the token's algorithm and name (alg and kid in its header)",
    );
    let wrong = "the token's signature is wrong: no key of [jwt.id] made it";
    let forged = other.token(&header("1"), &claims());
    check(&forged, Fault::Signature, wrong);
    check(&forged, Fault::Signature, wrong); // its signature is not checked again
    assert_eq!(Fault::UnknownKey.message(), Fault::Signature.message());
    check(
        &service.token(&es256(), &with("exp", json!(NOW_S - 60))),
        Fault::Expired,
        "the token has expired ([jwt.id])",
    );
    let token = service.token(&es256(), &claims());
    setup.prove(&token).unwrap().unwrap();
    setup.clock.advance(90_000);
    for _ in 0..2 {
        check(&token, Fault::Expired, "the token has expired ([jwt.id]); it is a token of jwt id: alice");
    }
}

/// Short names of tenants take more memory than their text in the token.
#[test]
fn the_memory_of_a_verified_token_includes_its_tenants() {
    let service = Service::new();
    let setup = Setup::new(&[service.elliptic("1")]);
    let held = |claims: &Value| {
        let before = setup.jwt.verified.held_bytes();
        setup.prove(&service.token(&es256(), claims)).unwrap().unwrap();
        setup.jwt.verified.held_bytes() - before
    };
    let names: Vec<_> = (0..50).map(|i| format!("t{i}")).collect();
    let (few, many) = (held(&with("tenants", json!([]))), held(&with("tenants", json!(names))));
    assert!(many >= few + 50 * (size_of::<String>() as u64 + 16), "{many} and {few} bytes");
}

#[tokio::test]
async fn a_key_that_is_taken_back_opens_nothing() {
    let (service, other) = (Service::new(), Service::new());
    let url = ISSUER.replace("keys_file = \"keys\"", "keys_url = \"http://127.0.0.1:1/\"");
    let mut setup = Setup::of(&url, "");
    let publish = |setup: &Setup, keys: &[Value]| {
        let text = json!({ "keys": keys }).to_string();
        let url = setup.jwt.urls.get("http://127.0.0.1:1/").unwrap();
        url.note(KeySet::parse(&text, Origin::Url))
    };
    let [first, second] = [(&service, "1"), (&other, "2")]
        .map(|(service, id)| service.token(&json!({ "alg": "ES256", "kid": id }), &claims()));
    assert!(publish(&setup, &[service.elliptic("1")]));
    assert!(setup.prove(&first).is_ok());
    assert_eq!(setup.prove(&second).unwrap_err().kind, ErrorKind::Unauthenticated);
    assert!(publish(&setup, &[service.elliptic("1"), other.elliptic("2")]));
    assert!(setup.prove(&first).is_ok() && setup.prove(&second).is_ok());
    assert_eq!(setup.count("accepted"), 2, "the first is verified once: its key has stayed");
    assert!(!publish(&setup, &[]), "a set without keys is an error, which changes nothing");
    assert!(setup.prove(&first).is_ok() && setup.prove(&second).is_ok());
    let unknown = service.token(&json!({ "alg": "ES256", "kid": "3" }), &claims());
    let refusal = setup.prove(&unknown).unwrap_err();
    assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "auth_unavailable"));
    assert!(publish(&setup, &[other.elliptic("2")]));
    assert_eq!(setup.prove(&first).unwrap_err().kind, ErrorKind::Unauthenticated);
    assert!(setup.prove(&second).is_ok());
    setup.reload();
    assert!(setup.prove(&second).is_ok(), "fetched keys stay when the file is read again");
    assert!(!publish(&setup, &[secret_key("2")]), "an address must not publish a secret");
}

/// Beyond its share of checks, a flood of wrongly signed tokens is refused as busy. Known tokens are not
/// affected.
#[test]
fn known_tokens_do_not_wait_behind_a_flood() {
    let (service, other) = (Service::new(), Service::new());
    let setup = Setup::new(&[service.elliptic("1")]);
    let known = service.token(&es256(), &claims());
    setup.prove(&known).unwrap().unwrap();
    let mut busy = 0;
    for number in 0..2_000 {
        let wrong = other.token(&es256(), &with("number", json!(number)));
        let refusal = setup.prove_from(&wrong, Ipv4Addr::from_bits(9).into()).unwrap_err();
        busy += usize::from(refusal.reason == "auth_busy");
        setup.prove(&known).unwrap().unwrap();
    }
    assert!((1_490..=1_500).contains(&busy), "{busy} of 2000 with 500 a second");
    // other requests occupy the only check for unknown networks, and the only one for known networks
    let held = [Ipv4Addr::new(192, 0, 2, 9).into(), SENDER]
        .map(|address| ready(setup.jwt.checks.begin(address)).unwrap());
    setup.prove(&known).unwrap().unwrap();
    drop(held);
    let new = service.token(&es256(), &with("number", json!("new")));
    assert!(setup.prove(&new).unwrap().is_some(), "a known sender's new token is checked, too");
}

#[test]
fn a_wrong_token_that_is_repeated_costs_one_check() {
    let (service, other) = (Service::new(), Service::new());
    let setup = Setup::new(&[service.elliptic("1")]);
    let wrong = other.token(&es256(), &claims());
    for _ in 0..10_000 {
        assert_eq!(setup.prove(&wrong).unwrap_err().reason, "unauthenticated");
    }
}

#[test]
fn keys_of_files() {
    let service = Service::new();
    let elliptic = service.elliptic("1");
    let check = |text: &str, origin, expected: Result<usize, &str>| {
        let found = KeySet::parse(text, origin).map(|keys| keys.len());
        match expected {
            Ok(count) => assert_eq!(found, Ok(count), "{text}"),
            Err(expected) => {
                let error = found.unwrap_err();
                assert!(error.contains(expected), "{error}\n{text}");
                assert!(!error.contains("c2VjcmV0"), "{error}");
            }
        }
    };
    let set = |keys: &[Value]| json!({ "keys": keys, "more": 1 }).to_string();
    let changed = |name: &str, value: Value| {
        let mut key = elliptic.clone();
        key[name] = value;
        set(&[key])
    };
    check(&set(&[elliptic.clone(), secret_key("2")]), Origin::File, Ok(2));
    check(&set(&[elliptic.clone(), secret_key("2")]), Origin::Url, Ok(1));
    check(&set(&[]), Origin::File, Ok(0));
    check(&set(&[]), Origin::Url, Err("no key for HS256"));
    check("", Origin::File, Err("neither"));
    check(&changed("use", json!("enc")), Origin::File, Err("no key"));
    check(&changed("alg", json!("ES384")), Origin::File, Err("no key"));
    check(&changed("crv", json!("P-384")), Origin::File, Err("no key"));
    check(&changed("x", json!("AAAA")), Origin::File, Err("key 1: x and y must have 32 bytes"));
    check(&changed("x", json!("!")), Origin::File, Err("key 1: x is not base64url"));
    check(&changed("x", json!("!")), Origin::Url, Err("no key"));
    check(
        &set(&[json!({ "kty": "oct", "k": "c2VjcmV0" })]),
        Origin::File,
        Err("a secret must have at least 32 bytes, this one has 6"),
    );
    check(
        &set(&[json!({ "kty": "RSA", "n": encoded([7; 128]), "e": "AQAB" })]),
        Origin::File,
        Err("2048 to 4096 bits"),
    );
    check(&set(&vec![elliptic.clone(); 65]), Origin::File, Err("65 keys, the limit is 64"));
    check("{\"keys\": c2VjcmV0", Origin::File, Err("not a JSON Web Key Set: line 1"));
    check("c2VjcmV0", Origin::File, Err("neither"));
    let header = [
        0x30, 0x59, 0x30, 0x13, 6, 7, 42, 134, 72, 206, 61, 2, 1, 6, 8, 42, 134, 72, 206, 61, 3, 1, 7, 3, 66,
        0,
    ];
    let der = base64::prelude::BASE64_STANDARD.encode([&header[..], service.point()].concat());
    let pem = |kind: &str| {
        format!("-----BEGIN {kind}-----\n{}\n{}\n-----END {kind}-----\n", &der[..64], &der[64..])
    };
    check(&pem("PUBLIC KEY"), Origin::File, Ok(1));
    check(&pem("PUBLIC KEY").repeat(2), Origin::File, Ok(2));
    check(&pem("PRIVATE KEY"), Origin::File, Err("neither"));
    let keys = KeySet::parse(&pem("PUBLIC KEY"), Origin::File).unwrap();
    let token = service.token(&es256(), &claims());
    let token = Token::parse(token.as_bytes()).unwrap();
    let found = keys
        .candidates(Algorithm::Es256, Some("any"))
        .any(|key| key.has_signed(token.signed, &token.signature));
    assert!(found, "a key in PEM form has no id");
}
