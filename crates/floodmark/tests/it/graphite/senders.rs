//! Programs that send to carbon: Python's pickles, `nc`, relays, collectd and statsd. Tests are skipped without the program
//! they need.

use super::lines::{all_durable, connect_to, example, options, series};
use crate::harness::programs::{Running, cache, find, free_port};
use crate::harness::{Options, Server, now_ms, wait_for};
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Finds a program, or says that the test is skipped.
pub(super) fn needs(names: &[&str]) -> Option<PathBuf> {
    let found = find(names);
    if found.is_none() {
        stdx::skipped::for_want_of(&format!("{} (scripts/test-servers.sh)", names[0]));
    }
    found
}

/// Frames of pickles, as carbon's example client sends them, with each protocol; and a bomb between them.
const PICKLES: &str = r"
import pickle, socket, struct, sys
port, now = int(sys.argv[1]), int(sys.argv[2])
out = socket.create_connection(('127.0.0.1', port))
def send(payload):
    out.sendall(struct.pack('!L', len(payload)) + payload)
class Bomb:
    def __reduce__(self):
        return (print, ('bang',))
for protocol in range(6):
    points = [('pickled.p%d.n%d' % (protocol, i), (now - 10 + protocol, i + 0.5)) for i in range(1500)]
    points.append(('tagged;protocol=%d' % protocol, (str(now), '7')))
    send(pickle.dumps(points, protocol))
    send(pickle.dumps([('x', (now, Bomb()))], protocol))
out.shutdown(socket.SHUT_WR)
assert out.recv(1) == b''
";

#[test]
fn pickles_of_each_protocol_are_stored() {
    let Some(python) = needs(&["python3"]) else { return };
    let server = Server::start(Options::default().arg("--graphite-pickle=127.0.0.1:0"));
    let (port, now_s) = (server.logged_address("pickle").port(), now_ms() / 1000);
    let ran =
        Command::new(python).args(["-c", PICKLES, &port.to_string(), &now_s.to_string()]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(series(&server), 6 * 1501);
    for protocol in 0..6 {
        let at_ms = (now_s - 10 + protocol) * 1000;
        let sum = server.value(&format!(r#"sum({{__name__=~"pickled.p{protocol}.*"}})"#), at_ms);
        assert_eq!(sum, Some(1500.0 * 1500.0 / 2.0), "protocol {protocol}");
    }
    assert_eq!(server.value(r#"sum({"tagged"})"#, now_ms()), Some(42.0));
    let refused = server.metric(r#"floodmark_graphite_dropped_points_total{reason="malformed"}"#);
    assert_eq!(refused, 6.0, "one bomb for each protocol");
}

#[test]
fn a_stream_that_is_not_pickles_is_reset() {
    let server = Server::start(Options::default().arg("--graphite-pickle=127.0.0.1:0"));
    let mut stream = connect_to(server.logged_address("pickle"));
    stream.write_all(b"load.web1 0.5 1795284000\n").unwrap();
    assert!(!all_durable(&stream));
    assert_eq!(server.metric(r#"floodmark_graphite_dropped_points_total{reason="too_long"}"#), 1.0);
}

#[test]
fn lines_of_netcat_are_stored() {
    let Some(netcat) = needs(&["nc"]) else { return };
    let server = Server::start(options());
    let address = server.logged_address("graphite");
    let mut nc = Command::new(netcat)
        .args(["-N", "127.0.0.1", &address.port().to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!("from.netcat 7 {}\nnow.netcat 8 -1\n", now_ms() / 1000);
    nc.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(nc.wait().unwrap().success());
    assert_eq!(server.value(r#"{"from.netcat"}"#, now_ms()), Some(7.0));
    assert_eq!(server.value(r#"{"now.netcat"}"#, now_ms()), Some(8.0));
}

#[test]
fn datagrams_are_stored() {
    let server = Server::start(options());
    let (address, now_s) = (server.logged_address("graphite"), now_ms() / 1000);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for i in 0..20 {
        // without a newline at the end of a datagram, its line is complete nevertheless
        let text = format!("datagram.a{i} {i} {now_s}\ndatagram.b{i} {i} {now_s}");
        socket.send_to(text.as_bytes(), address).unwrap();
    }
    // each datagram may have another sender
    UdpSocket::bind("127.0.0.2:0").unwrap().send_to(b"wrong", address).unwrap();
    socket.send_to(format!("datagram.a0 0 {now_s}").as_bytes(), address).unwrap();
    wait_for("all datagrams", || (series(&server) == 40).then_some(()));
    assert_eq!(server.value(r#"sum({__name__=~"datagram.*"})"#, now_ms()), Some(380.0));
    let malformed = r#"floodmark_graphite_dropped_points_total{reason="malformed"}"#;
    wait_for("the wrong line", || (server.metric(malformed) == 1.0).then_some(()));
    let wrong = example(&server, "malformed");
    assert_eq!(wrong["sender"], "127.0.0.2", "{wrong}");
    assert!(wrong["message"].as_str().unwrap().ends_with(r#"no value, in "wrong""#), "{wrong}");
}

/// Starts carbon-c-relay in front of an address, and returns it with its port.
fn carbon_c_relay(program: PathBuf, dir: &Path, graphite: u16) -> (Running, u16) {
    let (conf, port) = (dir.join("relay.conf"), free_port());
    let text = format!(
        "cluster floodmark forward 127.0.0.1:{graphite};\nmatch * send to floodmark stop;\nlisten type linemode \
         127.0.0.1:{port} proto tcp;\n"
    );
    std::fs::write(&conf, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-f").arg(&conf).args(["-q", "100000", "-H", "relay"]);
    (Running::start(&mut command, port, dir.join("relay.log")), port)
}

/// The relay keeps its connection while the server restarts, and no point is lost.
#[test]
fn a_relay_sends_everything_although_the_server_restarts() {
    let Some(relay) = needs(&["carbon-c-relay"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let graphite = free_port();
    let mut server = Server::start(Options::default().arg(&format!("--graphite=127.0.0.1:{graphite}")));
    let (_relay, port) = carbon_c_relay(relay, dir.path(), graphite);
    let relay = wait_for("the relay", || TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok());
    let now_s = now_ms() / 1000;
    let send = |from: usize| {
        let text: String = (from..from + 1000).map(|i| format!("relayed.n{i} {i} {now_s}\n")).collect();
        (&relay).write_all(text.as_bytes()).unwrap();
    };
    let relayed =
        |server: &Server| server.value(r#"count({__name__=~"relayed.*"})"#, now_ms()).unwrap_or(0.0);
    send(0);
    wait_for("the first points", || (relayed(&server) == 1000.0).then_some(()));
    server.terminate();
    send(1000);
    server.restart();
    wait_for("the points of the pause", || (relayed(&server) == 2000.0).then_some(()));
}

#[test]
fn collectd_sends_through_a_relay() {
    let (Some(relay), Some(collectd)) =
        (needs(&["carbon-c-relay"]), needs(&["collectd", "/usr/sbin/collectd"]))
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options());
    let (_relay, port) = carbon_c_relay(relay, dir.path(), server.logged_address("graphite").port());
    let conf = dir.path().join("collectd.conf");
    let text = format!(
        "Hostname \"web1\"\nFQDNLookup false\nBaseDir \"{0}\"\nPIDFile \"{0}/pid\"\nInterval 1\nLoadPlugin load\n\
         LoadPlugin write_graphite\n<Plugin write_graphite>\n<Node \"relay\">\nHost \"127.0.0.1\"\nPort \"{port}\"\n\
         Protocol \"tcp\"\nPrefix \"relayed.\"\n</Node>\n</Plugin>\n",
        dir.path().display()
    );
    std::fs::write(&conf, text).unwrap();
    let mut command = Command::new(collectd);
    command.arg("-f").arg("-C").arg(&conf);
    let _collectd = Running::start(&mut command, 0, dir.path().join("collectd.log"));
    for load in ["shortterm", "midterm", "longterm"] {
        let query = format!(r#"{{"relayed.web1.load.load.{load}"}}"#);
        wait_for("collectd's load", || server.value(&query, now_ms()));
    }
}

/// Carbon's own relay, which sends pickles. It takes lines.
#[test]
fn carbon_relay_sends_pickles() {
    let program = cache().join("graphite/bin/carbon-relay.py");
    if !program.is_file() {
        return stdx::skipped::for_want_of("carbon (scripts/test-servers.sh)");
    }
    let dir = tempfile::tempdir().unwrap();
    let (conf, storage) = (dir.path().join("conf"), dir.path().join("storage"));
    std::fs::create_dir_all(&conf).unwrap();
    std::fs::create_dir_all(storage.join("log")).unwrap();
    let server = Server::start(Options::default().arg("--graphite-pickle=127.0.0.1:0"));
    let (lines, pickles) = (free_port(), free_port());
    let text = format!(
        "[relay]\nUSER =\nLINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = {lines}\n\
         PICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = {pickles}\nRELAY_METHOD = consistent-hashing\n\
         DESTINATIONS = 127.0.0.1:{}:a\nDESTINATION_PROTOCOL = pickle\nCARBON_METRIC_INTERVAL = 1\n\
         MAX_QUEUE_SIZE = 10000\n",
        server.logged_address("pickle").port()
    );
    std::fs::write(conf.join("carbon.conf"), text).unwrap();
    std::fs::write(conf.join("storage-schemas.conf"), "[all]\npattern = .*\nretentions = 60s:1d\n").unwrap();
    let mut command = Command::new(cache().join("graphite/bin/python"));
    command.args(["-W", "ignore"]).arg(&program).arg("--config").arg(conf.join("carbon.conf"));
    command.args(["--nodaemon", "start"]).env("GRAPHITE_ROOT", dir.path()).current_dir(dir.path());
    command.env("GRAPHITE_CONF_DIR", &conf).env("GRAPHITE_STORAGE_DIR", &storage);
    let _relay = Running::start(&mut command, lines, dir.path().join("relay.log"));
    let address = SocketAddr::from(([127, 0, 0, 1], lines));
    let relay = wait_for("carbon-relay", || TcpStream::connect(address).ok());
    let now_s = now_ms() / 1000;
    let text: String = (0..3000).map(|i| format!("relayed.n{i} {i}.5 {now_s}\n")).collect();
    (&relay).write_all(text.as_bytes()).unwrap();
    (&relay).write_all(format!("relayed.tagged;dc=eu 7 {now_s}\n").as_bytes()).unwrap();
    let count = || server.value(r#"count({__name__=~"relayed[.].*"})"#, now_ms());
    wait_for("all points", || (count() == Some(3001.0)).then_some(()));
    let sum = server.value(r#"sum({__name__=~"relayed[.]n.*"})"#, now_ms());
    assert_eq!(sum, Some(3000.0 * 3000.0 / 2.0));
    assert_eq!(server.value(r#"{"relayed.tagged", dc="eu"}"#, now_ms()), Some(7.0));
    wait_for("the relay's own metrics", || {
        server.value(r#"count({__name__=~"carbon[.]relays[.].*[.]metricsReceived"})"#, now_ms())
    });
}

#[test]
fn statsd_flushes_its_counters() {
    let Some(node) = needs(&["node"]) else { return };
    let program = cache().join("statsd/node_modules/statsd/stats.js");
    if !program.is_file() {
        stdx::skipped::for_want_of("statsd (scripts/test-servers.sh)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = options().arg("--graphite-pickle=127.0.0.1:0");
    let server = Server::start(options);
    for (protocol, name) in [("text", "graphite"), ("pickle", "pickle")] {
        let (port, conf) = (free_port(), dir.path().join(format!("{protocol}.js")));
        let graphite = server.logged_address(name).port();
        let text = format!(
            "{{ port: {port}, mgmt_port: {}, flushInterval: 200, backends: ['./backends/graphite'],\n  graphiteHost: '127.0.0.1', \
             graphitePort: {graphite}, graphitePicklePort: {graphite}, graphiteProtocol: '{protocol}',\n  graphite: {{ \
             legacyNamespace: false }} }}",
            free_port()
        );
        std::fs::write(&conf, text).unwrap();
        let mut command = Command::new(&node);
        command.arg(&program).arg(&conf);
        let _statsd = Running::start(&mut command, port, dir.path().join(format!("{protocol}.log")));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let query = format!(r#"max_over_time({{"stats.counters.{protocol}.hits.count"}}[1m]) > 0"#);
        wait_for(&format!("a counter by {protocol}"), || {
            let _ = socket.send_to(format!("{protocol}.hits:3|c").as_bytes(), ("127.0.0.1", port));
            server.value(&query, now_ms())
        });
    }
}
