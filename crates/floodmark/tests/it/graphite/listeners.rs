//! Addresses of Graphite's protocols: go-carbon's messages, tenants of addresses, and carbon's own metrics.

use super::lines::{all_durable, connect_to, example, options};
use crate::harness::tls::Client;
use crate::harness::wire::{put_bytes, varint};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use crate::tls::authority;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};

/// A length-prefixed message of go-carbon with a point for each of the names.
fn payload(names: &[String], time_s: i64, value: f64) -> Vec<u8> {
    let mut message = Vec::new();
    for name in names {
        let mut point = vec![1 << 3];
        varint(&mut point, time_s as u64);
        point.push(2 << 3 | 1);
        point.extend_from_slice(&value.to_le_bytes());
        let mut metric = Vec::new();
        put_bytes(&mut metric, 1, name.as_bytes());
        put_bytes(&mut metric, 2, &point);
        put_bytes(&mut message, 1, &metric);
    }
    framed(&message)
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

#[test]
fn messages_of_go_carbon_are_stored() {
    let mut server = Server::start(Options::default().arg("--graphite-protobuf=127.0.0.1:0"));
    let now_s = now_ms() / 1000;
    let names: Vec<String> = (0..1500).map(|i| format!("proto.n{i}")).collect();
    let stream = connect_to(server.logged_address("protobuf"));
    let first = payload(&names, now_s - 2, 1.0);
    // a frame may come in parts
    let (begin, rest) = first.split_at(first.len() / 2 + 3);
    (&stream).write_all(begin).unwrap();
    (&stream).write_all(rest).unwrap();
    // a message that is malformed harms no other
    (&stream).write_all(&framed(b"\x0a\x05a")).unwrap();
    (&stream).write_all(&payload(&names, now_s - 1, 2.5)).unwrap();
    (&stream).write_all(&payload(&["proto.tagged;dc=eu".to_owned()], now_s - 1, 7.0)).unwrap();
    assert!(all_durable(&stream));
    server.kill9();
    server.restart();
    assert_eq!(server.value(r#"sum({__name__=~"proto[.]n.*"})"#, (now_s - 2) * 1000), Some(1500.0));
    assert_eq!(server.value(r#"sum({__name__=~"proto[.]n.*"})"#, (now_s - 1) * 1000), Some(3750.0));
    assert_eq!(server.value(r#"{"proto.tagged", dc="eu"}"#, now_ms()), Some(7.0));
}

#[test]
fn malformed_messages_of_go_carbon_are_counted() {
    let server = Server::start(Options::default().arg("--graphite-protobuf=127.0.0.1:0"));
    let dropped = |reason: &str| {
        server.metric(&format!(r#"floodmark_graphite_dropped_points_total{{reason="{reason}"}}"#))
    };
    let stream = connect_to(server.logged_address("protobuf"));
    (&stream).write_all(&framed(b"\x0a\x05a")).unwrap();
    (&stream).write_all(&payload(&["good".to_owned()], now_ms() / 1000, 1.0)[..9]).unwrap();
    assert!(all_durable(&stream), "neither is a reason for a reset");
    assert_eq!((dropped("malformed"), dropped("unfinished")), (1.0, 1.0));
    // a stream of lines has an impossible length
    let stream = connect_to(server.logged_address("protobuf"));
    (&stream).write_all(b"load.web1 0.5 1795284000\n").unwrap();
    assert!(!all_durable(&stream));
    assert_eq!(dropped("too_long"), 1.0);
    let message = example(&server, "too_long")["message"].to_string();
    assert!(message.contains("load.web1 0.5 1795284000"), "{message}");
}

/// The addresses of a tenant that the server has logged.
fn addresses_of(server: &Server, tenant: &str) -> Vec<SocketAddr> {
    let address = |line: &String| {
        let address = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("address="));
        address.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no address in {line}"))
    };
    server.log_lines(&format!("tenant=\"{tenant}\"")).iter().map(address).collect()
}

fn address_of(server: &Server, tenant: &str) -> SocketAddr {
    addresses_of(server, tenant).pop().unwrap_or_else(|| panic!("no address of {tenant}"))
}

#[test]
fn an_address_may_have_a_tenant_of_its_own() {
    let config =
        "graphite_tenants = ['127.0.0.1:0=team-a', 'pickle:127.0.0.1:0=team-b']\ngraphite_tenant = 'rest'";
    let mut server = Server::start(options().config(config));
    let now_s = now_ms() / 1000;
    let value = |server: &Server, tenant: &str, name: &str| {
        let found = server.query_as(Some(tenant), &format!("{{\"{name}\"}}"), now_ms());
        found["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    for (address, points) in [
        (server.logged_address("graphite"), format!("load 1 {now_s}\n").into_bytes()),
        (address_of(&server, "team-a"), format!("load 2 {now_s}\n").into_bytes()),
        // the list [('load', (now_s, 3))]
        (
            address_of(&server, "team-b"),
            framed(&[&b"](U\x04loadJ"[..], &(now_s as u32).to_le_bytes(), b"K\x03\x86\x86e."].concat()),
        ),
    ] {
        let stream = connect_to(address);
        (&stream).write_all(&points).unwrap();
        assert!(all_durable(&stream), "{address}");
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    wait_for("a datagram", || {
        socket.send_to(format!("datagram 4 {now_s}").as_bytes(), address_of(&server, "team-a")).unwrap();
        value(&server, "team-a", "datagram")
    });
    let check = |server: &Server| {
        for (tenant, expected) in [("rest", "1"), ("team-a", "2"), ("team-b", "3")] {
            assert_eq!(value(server, tenant, "load").as_deref(), Some(expected), "{tenant}");
        }
        for tenant in ["rest", "team-b", "anonymous"] {
            assert_eq!(value(server, tenant, "datagram"), None, "{tenant}");
        }
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

/// The first part of a path does not name a tenant where the address has one: a sender of `team-a` must not
/// write to others.
#[test]
fn a_path_names_no_tenant_where_the_address_does() {
    let config = "graphite_tenants = ['127.0.0.1:0=team-a', '127.0.0.1:0=anonymous']\ngraphite_tenant_from_path = true";
    let server = Server::start(options().config(config));
    let now_s = now_ms() / 1000;
    let value = |tenant: &str, name: &str| {
        let found = server.query_as(Some(tenant), &format!("{{\"{name}\"}}"), now_ms());
        found["result"][0]["value"][1].as_str().map(str::to_owned)
    };
    for (address, text) in [
        (server.logged_address("graphite"), "team-c.load 1"),
        (address_of(&server, "team-a"), "team-b.load 2"),
        (address_of(&server, "anonymous"), "team-b.load 3"),
    ] {
        let stream = connect_to(address);
        (&stream).write_all(format!("{text} {now_s}\n").as_bytes()).unwrap();
        assert!(all_durable(&stream), "{address}");
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    wait_for("a datagram", || {
        let text = format!("team-b.datagram 4 {now_s}");
        socket.send_to(text.as_bytes(), address_of(&server, "team-a")).unwrap();
        value("team-a", "team-b.datagram")
    });
    for (tenant, name, expected) in [
        ("team-c", "load", Some("1")),
        ("team-a", "team-b.load", Some("2")),
        ("anonymous", "team-b.load", Some("3")),
        ("team-b", "load", None),
        ("team-b", "datagram", None),
    ] {
        assert_eq!(value(tenant, name).as_deref(), expected, "{name} of {tenant}");
    }
}

/// The datagrams of a tenant above its rate wait for long. They must not take the memory of others.
#[test]
fn waiting_datagrams_leave_memory_to_other_tenants() {
    const ADDRESSES: usize = 8;
    let addresses = ["'127.0.0.1:0=slow'"; ADDRESSES].join(", ");
    let config = format!(
        "graphite_tenants = [{addresses}, '127.0.0.1:0=other']\n[tenant.slow]\nsamples_per_second = 1\nrate_burst = '1s'"
    );
    let server = Server::start(Options::default().arg("--memory=256MiB").config(&config));
    let now_s = now_ms() / 1000;
    let slow = addresses_of(&server, "slow");
    assert_eq!(slow.len(), ADDRESSES);
    let stream = connect_to(slow[0]);
    (&stream).write_all(format!("load 1 {now_s}\n").as_bytes()).unwrap();
    assert!(all_durable(&stream));
    // points of a known series, which wait while the tenant is above its rate
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let datagram = format!("load 1 {now_s}\n").repeat(3000);
    wait_for("datagrams without memory", || {
        for address in &slow {
            let _ = socket.send_to(datagram.as_bytes(), address);
        }
        (server.metric("floodmark_graphite_unread_datagrams_total") > 0.0).then_some(())
    });
    let other = address_of(&server, "other");
    for round in 0..20 {
        let stream = connect_to(other);
        let text: String = (0..1000).map(|i| format!("other.n{i} {round} {now_s}\n")).collect();
        (&stream).write_all(text.as_bytes()).unwrap();
        assert!(all_durable(&stream), "round {round}");
    }
    wait_for("a datagram of the other tenant", || {
        let _ = socket.send_to(format!("datagram 1 {now_s}\n").as_bytes(), other);
        let found = server.query_as(Some("other"), r#"{"datagram"}"#, now_ms());
        found["result"][0]["value"][1].as_str().map(drop)
    });
}

#[test]
fn a_stop_makes_durable_what_came_to_the_address_of_a_tenant() {
    let config = "graphite_tenants = ['127.0.0.1:0=team-a']\ngraphite_commit_interval = '10m'";
    let mut server = Server::start(Options::default().config(config));
    let stream = connect_to(address_of(&server, "team-a"));
    let text: String = (0..1000).map(|i| format!("stop.n{i} 1 {}\n", now_ms() / 1000)).collect();
    (&stream).write_all(text.as_bytes()).unwrap();
    wait_for("all bytes", || {
        (server.metric("floodmark_graphite_bytes_total") as usize == text.len()).then_some(())
    });
    server.terminate();
    server.restart();
    let count = server.query_as(Some("team-a"), r#"count({__name__=~"stop.+"})"#, now_ms());
    assert_eq!(count["result"][0]["value"][1], "1000");
}

#[test]
fn wrong_addresses_of_tenants_are_refused() {
    let check_with = |list: &str, more: &[&str], expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = format!("--data-dir={}", dir.path().join("data").display());
        let tenants = format!("--graphite-tenants={list}");
        let args = [&["serve", "--http=127.0.0.1:0", &data_dir, &tenants], more].concat();
        let output = crate::harness::process::command(&args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected), "{list}: {text}");
    };
    let check = |list: &str, expected: &str| check_with(list, &[], expected);
    check("127.0.0.1:0=a,0.0.0.0:0=team-a", "0.0.0.0:0=team-a: other machines can reach this address");
    check("127.0.0.1:0=floodmark-system", "only the server may write to floodmark-system");
    check("127.0.0.1:0", "must be addresses with tenants");
    check("127.0.0.1=team-a", "an address and a port");
    check("127.0.0.1:0=team/a", "tenant ID contains unsupported character '/'");
    check(&vec!["127.0.0.1:0=a"; 257].join(","), "at most 256 addresses");
    let from_path = ["--graphite-tenant-from-path=true"];
    check_with("127.0.0.1:0=a", &from_path, "has no effect on graphite_tenants");
}

/// Of carbon's own metrics, some are there only if there were points.
const METRICS_MIN: usize = 14;

/// Carbon's own metrics are series of `graphite_tenant`, also if only addresses over TLS or with tenants are served.
#[test]
fn carbons_own_metrics_are_series() {
    let authority = authority();
    let served = ["--graphite=127.0.0.1:0", "--graphite-tls=127.0.0.1:0", "--graphite-tenants=127.0.0.1:0=x"];
    for address in served {
        let mut options = Options::default();
        if address.contains("tls") {
            let Some((authority, _dir)) = &authority else { continue };
            options = crate::tls::options(authority).client(Client::new(&[authority], None));
        }
        let options =
            options.arg(address).arg("--graphite-tenant=carbon").arg("--carbon-metrics-interval=1s");
        let server = Server::start(options);
        let ask = |tenant: &str, path: &str, params: &[(&str, &str)]| {
            server.send(&Request::ask(path, params).tenant(tenant)).expect(200, &[]).json()
        };
        let found = wait_for(&format!("carbon's metrics with {address}"), || {
            let params = [("query", "carbon.agents.*-a.**"), ("leavesOnly", "1")];
            let found = ask("carbon", "/metrics/expand", &params);
            found["results"].as_array().filter(|all| all.len() >= METRICS_MIN).cloned()
        });
        let name = |end: &str| {
            let names = || found.iter().filter_map(|name| name.as_str());
            names().find(|name| name.ends_with(end)).unwrap_or_else(|| panic!("no {end} in {found:?}"))
        };
        let creates = name("-a.creates");
        for end in ["-a.metricsReceived", "-a.committedPoints", "-a.memUsage", "-a.cpuUsage"] {
            name(end);
        }
        let target = format!("keepLastValue({})", name("-a.memUsage"));
        let memory = wait_for("the memory of the process", || {
            let params = [("target", target.as_str()), ("from", "-5min"), ("format", "json")];
            let rendered = ask("carbon", "/render", &params);
            rendered[0]["datapoints"].as_array()?.iter().rev().find_map(|point| point[0].as_f64())
        });
        assert!(memory > 1e6, "{memory} bytes");
        let none = ask("anonymous", "/metrics/expand", &[("query", "carbon.**")]);
        assert_eq!(none["results"], serde_json::json!([]), "{address}");
        // the series above were created themselves, which the next interval counts
        let query = format!("max_over_time({{\"{creates}\"}}[10m]) > 0");
        wait_for("created series", || {
            server.query_as(Some("carbon"), &query, now_ms())["result"][0]["value"][1].as_str().map(drop)
        });
    }
}
