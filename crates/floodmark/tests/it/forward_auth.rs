//! Forward authentication: the server asks another service whether a request is allowed.

use crate::authentication::{Wrong, expect_closed, line, sha256};
use crate::harness::{Options, Reply, Request, Server, Service, wait_for};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Decides how the authentication service answers a request with this head. It accepts `alice`, `carol`,
/// `dave` and `frank`, whose credentials are in different headers. It forbids `eve`, fails for `mallory`,
/// redirects `trent`, and answers 401 to everyone else.
fn decide(head: &str) -> (String, String) {
    let status = match head.to_ascii_lowercase() {
        head if head.contains("bearer alice") => {
            "200 OK\r\nX-Scope-OrgID: a|c\r\nX-Floodmark-Roles: read,write,admin"
        }
        head if head.contains("session=carol") => {
            "204 No Content\r\nX-Scope-OrgID: a\r\nX-Floodmark-Roles: read"
        }
        head if head.contains("bearer dave") => "200 OK\r\nX-Floodmark-Roles: read",
        head if head.contains("bearer frank") => "200 OK\r\nX-Scope-OrgID: a",
        head if head.contains("bearer eve") => "403 Forbidden",
        head if head.contains("bearer mallory") => "500 Internal Server Error",
        head if head.contains("bearer trent") => "302 Found\r\nLocation: /login",
        _ => "401 Unauthorized",
    };
    (status.into(), String::new())
}

/// The directory comes first, so that it is dropped last: the server reads its files until it ends.
fn start(service: &Service, more: &str) -> (TempDir, Server) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.toml");
    let text = format!(
        "[token.scraper]\nroles = [\"metrics\"]\nsha256 = \"{}\"\n\
         [forward]\nurl = \"{}check\"\ntenants = [\"a\", \"b\"]\nroles = [\"read\", \"write\"]\n{more}\n",
        sha256("secret-scrape"),
        service.url()
    );
    std::fs::write(&path, text).unwrap();
    let options =
        Options::default().arg("--auth-file").arg(path.to_str().unwrap()).arg("--trusted-proxies").arg("[]");
    (dir, Server::start(options.allow("requests refused").allow("service of forward authentication")))
}

fn write(server: &Server, user: &str, tenant: &str) -> Reply {
    server.send(&line("m").tenant(tenant).header("Authorization", &format!("Bearer {user}")))
}

fn forwards(server: &Server, result: &str) -> f64 {
    let metrics =
        server.send(&Request::get("/metrics").header("Authorization", "Bearer secret-scrape")).text();
    let series = format!("floodmark_auth_forwards_total{{result=\"{result}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).expect("a counter")
}

#[test]
fn the_service_decides_within_what_the_file_allows() {
    let service = Service::new(decide);
    let (_dir, server) = start(&service, "");
    write(&server, "alice", "a").expect(204, &[]);
    let asked = service.asked();
    write(&server, "alice", "a").expect(204, &[]);
    assert_eq!(service.asked(), asked, "the service was asked again instead of using the cached answer");
    write(&server, "alice", "b").expect(403, &["forward has no access to tenant b"]);
    write(&server, "alice", "c").expect(403, &["no access to tenant c"]);
    let ask = |request: Request, header: &str, value: &str| server.send(&request.header(header, value));
    ask(Request::get("/config"), "Authorization", "Bearer alice")
        .expect(403, &["does not have the role admin"]);
    ask(Request::get("/api/v1/labels"), "Cookie", "session=carol").expect(200, &[]);
    ask(line("m"), "Cookie", "session=carol").expect(403, &["does not have the role write"]);
    write(&server, "dave", "a").expect(403, &["does not have the role write"]);
    let reads = || Request::get("/api/v1/labels").tenant("a");
    ask(reads(), "Authorization", "Bearer dave").expect(403, &["no access to tenant a"]);
    ask(reads(), "Authorization", "Bearer frank").expect(403, &["does not have the role read"]);
    write(&server, "bob", "a").expect(401, &["unknown"]);
    write(&server, "eve", "a").expect(403, &["[forward]"]);
    for broken in ["mallory", "trent"] {
        let reply = write(&server, broken, "a");
        assert!(reply.expect(503, &["not available"]).header("retry-after").is_some());
    }
    let asked = service.asked();
    server.send(&line("m").tenant("a")).expect(401, &["Authorization"]);
    write(&server, &"x".repeat(9 << 10), "a").expect(401, &[]);
    assert_eq!(service.asked(), asked, "the service was asked about missing or too large credentials");
    assert!(forwards(&server, "cached") >= 1.0 && forwards(&server, "failed") >= 2.0);
    assert_eq!(server.log_lines("alice"), Vec::<String>::new());
}

/// The service gets the method, path and tenant of the client's request in headers, which a client must not
/// be able to forge.
#[test]
fn the_service_is_shown_the_request() {
    let seen = Arc::new(Mutex::new(String::new()));
    let head = Arc::clone(&seen);
    let service = Service::new(move |asked| {
        *head.lock().unwrap() = asked.to_ascii_lowercase();
        decide(asked)
    });
    let (_dir, server) = start(&service, "headers = [\"Authorization\", \"X-Original-URI\"]");
    let request =
        Request::get("/api/v1/labels?match[]=secret").tenant("a").header("Authorization", "Bearer alice");
    server.send(&request.header("X-Original-URI", "/healthy").header("X-Other", "mine")).expect(200, &[]);
    let seen = seen.lock().unwrap().clone();
    for line in [
        "get /check ",
        "x-original-method: get\r\n",
        "x-original-uri: /api/v1/labels\r\n",
        "x-scope-orgid: a\r\n",
    ] {
        assert!(seen.contains(line), "{line}: {seen}");
    }
    for line in ["secret", "/healthy", "x-other"] {
        assert!(!seen.contains(line), "{line}: {seen}");
    }
}

#[test]
fn without_an_answer_nobody_gets_in() {
    let service = Service::new(decide);
    let (_dir, server) = start(&service, "timeout = \"2s\"\nremember = \"1h\"");
    write(&server, "alice", "a").expect(204, &[]);
    let (_held, never) = std::sync::mpsc::channel::<()>();
    let never = Mutex::new(never);
    service.answer(move |_| {
        let _ = never.lock().unwrap().recv();
        decide("bearer alice")
    });
    write(&server, "new", "a").expect(503, &["did not answer"]);
    write(&server, "alice", "a").expect(204, &[]);
    drop(_held);
    drop(service);
    write(&server, "new", "a").expect(503, &["did not answer"]);
    write(&server, "alice", "a").expect(204, &[]);
}

/// If requests with the same credential arrive at the same time, the service is asked only once.
#[test]
fn equal_questions_are_asked_once() {
    let service = Service::new(decide);
    let (_dir, server) = start(&service, "");
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| write(&server, "alice", "a").expect(204, &[]).status);
        }
    });
    assert_eq!(service.asked(), 1);
}

#[test]
fn a_change_of_the_file_forgets_answers() {
    let service = Service::new(decide);
    let (dir, server) = start(&service, "");
    write(&server, "alice", "a").expect(204, &[]);
    let other = format!("[token.other]\nsha256 = \"{}\"\nroles = [\"admin\"]\n", sha256("other"));
    std::fs::write(dir.path().join("new"), other).unwrap();
    std::fs::rename(dir.path().join("new"), dir.path().join("auth.toml")).unwrap();
    wait_for("the service to be gone", || (write(&server, "alice", "a").status == 401).then_some(()));
}

#[test]
fn users_unknown_to_the_service_are_refused_on_every_path() {
    let service = Service::new(decide);
    let (_dir, server) = start(&service, "remember_refusals = \"1h\"");
    let wrong: [Wrong; 2] = [("Authorization", "Bearer bob"), ("Cookie", "session=bob")]
        .map(|(name, value)| vec![(name, value.to_owned())]);
    expect_closed(&server, &wrong);
    write(&server, "alice", "a").expect(204, &[]);
}
