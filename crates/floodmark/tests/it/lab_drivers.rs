//! The lab's drivers for protocols over HTTP and for statsd, and their ledgers.

use crate::harness::lab::{good, lab};
use crate::harness::{Options, Request, Server, http};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Each protocol with its path, and how many samples are lost if the end of a request is dropped.
const PROTOCOLS: [(&str, &str, u64); 5] = [
    ("influx", "/write", 10),
    ("json-lines", "/api/v1/import", 1),
    ("text", "/api/v1/import/prometheus", 1),
    ("csv", "/api/v1/import/csv", 20),
    ("otlp-json", "/v1/metrics", 100),
];

/// Four writers with five targets each, which have 20 metrics.
const SHAPE: [&str; 9] =
    ["--metrics", "20", "--series", "5", "--rounds", "6", "--verify", "--json", "--quiet"];
const SAMPLES: u64 = 4 * 20 * 5 * 6;

#[test]
fn the_lab_reads_back_every_sample() {
    for (protocol, path, _) in PROTOCOLS {
        let server = Server::new();
        let target = format!("http://{}{path}", server.address);
        for histograms in ["0", "0.7"] {
            let more = ["--histograms", histograms, "--seed", histograms.strip_prefix("0.").unwrap_or("1")];
            let args = ["write", "--protocol", protocol, "--target", &target];
            let result = good(&lab(&[&args[..], &SHAPE, &more].concat()));
            let result: Value = serde_json::from_str(&result).expect("read the result");
            let verify = &result["verify"];
            assert_eq!(verify["acknowledged"], SAMPLES, "{protocol}: {verify}");
            assert_eq!(verify["read_back"], verify["acknowledged"], "{protocol}: {verify}");
        }
    }
}

/// What was acknowledged is owed, even if it never came to the server.
#[test]
fn what_a_proxy_drops_is_found_to_be_lost() {
    for (protocol, path, lost) in PROTOCOLS {
        let server = Server::new();
        let proxy = proxy(server.address, |number, body| {
            if number == 7 {
                drop_end(body);
            }
        });
        let (target, read) = (format!("http://{proxy}{path}"), format!("http://{}", server.address));
        let args = ["write", "--protocol", protocol, "--target", &target, "--read-url", &read];
        let output = lab(&[&args[..], &SHAPE, &["--patience", "10ms"]].concat());
        let result: Value = serde_json::from_slice(&output.stdout).expect("read the result");
        let verify = &result["verify"];
        assert_eq!(output.status.code(), Some(1), "{protocol}: {verify}");
        assert_eq!((&verify["acknowledged"], &verify["lost"]), (&SAMPLES.into(), &lost.into()), "{protocol}");
        assert_eq!(verify["examples"][0]["fault"], "lost", "{protocol}: {verify}");
    }
}

/// Drops the last line of a body, or everything if there is one line.
fn drop_end(body: &mut Vec<u8>) {
    let whole = body.strip_suffix(b"\n").unwrap_or(body);
    match whole.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => body.truncate(end + 1),
        None => *body = b"{}".to_vec(),
    }
}

/// Passes requests on to a server. `change` may change their bodies, which are counted from 0.
fn proxy(server: SocketAddr, change: impl Fn(u32, &mut Vec<u8>) + Send + Sync + 'static) -> SocketAddr {
    proxy_both(server, change, |_| {})
}

/// Like [`proxy`]. `change_answer` may change answers.
fn proxy_both(
    server: SocketAddr,
    change: impl Fn(u32, &mut Vec<u8>) + Send + Sync + 'static,
    change_answer: impl Fn(&mut http::Reply) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("the address");
    let (change, change_answer) = (Arc::new(change), Arc::new(change_answer));
    let requests = Arc::new(AtomicU32::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (change, change_answer) = (Arc::clone(&change), Arc::clone(&change_answer));
            let requests = Arc::clone(&requests);
            let mut stream = stream.expect("accept");
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                while let Some((path, headers, mut body)) = read_request(&mut reader) {
                    change(requests.fetch_add(1, Ordering::Relaxed), &mut body);
                    let request = headers
                        .iter()
                        .filter(|(name, _)| !["content-length", "host", "accept-encoding"].contains(&&**name))
                        .fold(Request::post(path, body), |request, (name, value)| {
                            request.header(name, value)
                        });
                    let mut reply = http::once(server, &request).expect("an answer");
                    change_answer(&mut reply);
                    answer(&mut stream, &reply);
                }
            });
        }
    });
    address
}

type Headers = Vec<(String, String)>;

/// Path, headers and body of the next request. `None` at the connection's end.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, Headers, Vec<u8>)> {
    let mut lines = std::iter::from_fn(|| {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
    });
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Headers = lines
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned())))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, headers, body))
}

fn answer(stream: &mut TcpStream, reply: &http::Reply) {
    let mut bytes = format!("HTTP/1.1 {} -\r\n", reply.status).into_bytes();
    for (name, value) in reply.headers.iter().filter(|(name, _)| name == "content-type") {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if reply.status != 204 {
        bytes.extend_from_slice(format!("content-length: {}\r\n", reply.body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&reply.body);
    stream.write_all(&bytes).expect("answer");
}

/// A value of statsd is owed once a query has returned it. It survives a kill, and is missed if it is deleted.
#[test]
fn statsd_values_that_a_query_has_returned_are_owed() {
    let options = Options::default().arg("--statsd=127.0.0.1:0").arg("--statsd-flush-interval=200ms");
    let mut server = Server::start(options);
    let folder = tempfile::tempdir().expect("make a directory");
    let path = folder.path().join("ledger.json");
    let ledger = path.to_str().expect("a plain path");
    let (target, read) =
        (format!("udp://{}", server.logged_address("statsd")), format!("http://{}", server.address));
    let args =
        ["write", "--protocol", "statsd", "--target", &target, "--read-url", &read, "--ledger", ledger];
    let shape = ["--metrics", "5", "--series", "2", "--writers", "2", "--rate", "200", "--duration", "6s"];
    let result = good(&lab(&[&args[..], &shape, &["--verify", "--json", "--quiet"]].concat()));
    let result: Value = serde_json::from_str(&result).expect("read the result");
    let (verify, owed) = (&result["verify"], result["verify"]["acknowledged"].as_u64().expect("a count"));
    assert!(owed >= 20 && owed.is_multiple_of(5), "{verify}");
    assert_eq!((&verify["read_back"], &verify["wrong"]), (&owed.into(), &0.into()), "{verify}");

    let verify = |server: &Server| {
        let read = format!("http://{}", server.address);
        let output = lab(&["verify", ledger, "--read-url", &read, "--patience", "10ms", "--json", "--quiet"]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("read the report");
        (output.status.code(), report)
    };
    server.kill9();
    server.restart();
    let (status, report) = verify(&server);
    assert_eq!(
        (status, &report["read_back"], &report["lost"]),
        (Some(0), &owed.into(), &0.into()),
        "{report}"
    );

    let series = [("match[]", "metric_3")];
    server.send(&Request::form("/api/v1/admin/tsdb/delete_series", &series)).expect(204, &[]);
    let (status, report) = verify(&server);
    assert_eq!((status, &report["lost"]), (Some(1), &(owed / 5).into()), "{report}");
    assert_eq!(report["examples"][0]["fault"], "lost", "{report}");
    assert_eq!(report["read_back"], owed / 5 * 4, "{report}");
}

/// A server of statsd, and the arguments of a lab that writes to it. Intervals are a fifth of a second.
struct Statsd {
    server: Server,
    args: Vec<String>,
}

impl Statsd {
    fn start(options: Options) -> Self {
        let options = options.arg("--statsd=127.0.0.1:0").arg("--statsd-flush-interval=200ms");
        let server = Server::start(options);
        let target = format!("udp://{}", server.logged_address("statsd"));
        let read = format!("http://{}", server.address);
        let args = ["write", "--protocol", "statsd", "--verify", "--json", "--quiet", "--target"];
        let mut this = Self { server, args: args.map(str::to_owned).into() };
        this.args.extend([target, "--read-url".into(), read]);
        this
    }

    /// Later arguments replace the addresses. Returns the status and the result.
    fn run(&self, more: &[&str]) -> (Option<i32>, Value) {
        let mut args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        for pair in more.chunks(2) {
            match args.iter().position(|arg| *arg == pair[0]) {
                Some(at) => args[at + 1] = pair[1],
                None => args.extend(pair),
            }
        }
        let output = lab(&args);
        let result = serde_json::from_slice(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        (output.status.code(), result.unwrap_or_else(|why| panic!("{why}: {said}")))
    }
}

/// What was measured for a rule, and whether the rule was kept.
fn judged(result: &Value, rule: &str) -> (String, bool) {
    let rules = result["verdict"].as_array().expect("a list of rules");
    let judged = rules.iter().find(|judged| judged["rule"] == rule).expect("the rule");
    (judged["measured"].to_string(), judged["pass"] == true)
}

/// However many rounds are sent until a value is looked at, its round is known.
#[test]
fn values_of_statsd_are_right_at_fast_rates() {
    for commit_interval in ["1s", "4s"] {
        let statsd = Statsd::start(Options::default());
        // 200 rounds a second
        let shape = ["--metrics", "5", "--series", "10", "--writers", "1", "--rate", "10k"];
        let more = ["--duration", "6s", "--commit-interval", commit_interval];
        let (status, result) = statsd.run(&[&shape[..], &more].concat());
        let verify = &result["verify"];
        assert_eq!(status, Some(0), "{commit_interval}: {verify} {}", result["verdict"]);
        for none in ["wrong", "unknown", "early", "stale", "unnoted", "lost"] {
            assert_eq!(verify[none], 0, "{commit_interval}: {none} in {verify}");
        }
        assert!(verify["acknowledged"].as_u64() >= Some(50), "{commit_interval}: {verify}");
        assert_eq!(verify["read_back"], verify["acknowledged"], "{commit_interval}: {verify}");
    }
}

/// A target is good only if it has stored what it should have stored.
#[test]
fn gauges_that_statsd_never_stores_are_absent() {
    let statsd = Statsd::start(Options::default());
    // four of five gauges never reach the server
    let relay = relay(statsd.server.logged_address("statsd"), |line, _| line.starts_with("metric_0:"));
    let target = format!("udp://{relay}");
    let folder = tempfile::tempdir().expect("make a directory");
    let ledger = folder.path().join("ledger.json");
    let ledger = ledger.to_str().expect("a plain path");
    let to = ["--target", &target, "--ledger", ledger];
    let shape = ["--metrics", "5", "--series", "2", "--writers", "2", "--rate", "200", "--duration", "6s"];
    let (status, result) = statsd.run(&[&to[..], &shape].concat());
    let verify = &result["verify"];
    let (owed, absent) = (verify["acknowledged"].as_u64(), verify["absent"].as_u64());
    assert_eq!((&verify["lost"], &verify["wrong"], &verify["stale"]), (&0.into(), &0.into(), &0.into()));
    assert!(owed >= Some(4) && absent > owed, "{verify}");
    let (measured, is_kept) = judged(&result, "owed");
    assert!(status == Some(1) && !is_kept, "{measured}: {verify}");
    // the ledger says the same later
    for (more, expected) in [(&[][..], 1), (&["--owed", "0.01"], 0)] {
        let output = lab(&[&["verify", ledger, "--json", "--quiet"], more].concat());
        assert_eq!(output.status.code(), Some(expected), "{more:?}: {output:?}");
    }
}

/// A server goes on to store a gauge that it does not receive any more.
#[test]
fn gauges_that_do_not_change_any_more_are_stale() {
    let statsd = Statsd::start(Options::default());
    // 10 rounds a second, of two slots with 10 gauges each
    let relay = relay(statsd.server.logged_address("statsd"), |_, number| number < 200);
    let target = format!("udp://{relay}");
    let shape = ["--metrics", "5", "--series", "2", "--writers", "2", "--rate", "200", "--values", "random"];
    let (status, result) = statsd.run(&[&["--target", &target, "--duration", "8s"][..], &shape].concat());
    let verify = &result["verify"];
    assert_eq!((&verify["lost"], &verify["wrong"], &verify["absent"]), (&0.into(), &0.into(), &0.into()));
    let (measured, is_kept) = judged(&result, "owed");
    assert!(status == Some(1) && !is_kept, "{measured}: {verify}");
    assert!(verify["stale"].as_u64() > Some(0), "{verify}");
}

/// A target that stores nothing any more is noticed, although everything that it has stored is there.
#[test]
fn intervals_that_are_left_out_are_absent() {
    let statsd = Statsd::start(Options::default());
    let first_s = Mutex::new(f64::INFINITY);
    let forget_later = move |reply: &mut http::Reply| {
        let mut first_s = first_s.lock().expect("lock the time");
        change_values(&mut reply.body, |values| {
            let at_s = |value: &Value| value[0].as_f64().expect("a time");
            *first_s = values.iter().map(at_s).fold(*first_s, f64::min);
            values.retain(|value| at_s(value) < *first_s + 3.5);
        });
    };
    let proxy = proxy_both(statsd.server.address, |_, _| {}, forget_later);
    let read = format!("http://{proxy}");
    let shape = ["--metrics", "5", "--series", "2", "--writers", "2", "--rate", "200", "--duration", "8s"];
    let (status, result) = statsd.run(&[&["--read-url", &read][..], &shape].concat());
    let verify = &result["verify"];
    for none in ["lost", "wrong", "stale", "unknown"] {
        assert_eq!(verify[none], 0, "{none}: {verify}");
    }
    assert!(verify["absent"].as_u64() >= Some(5 * 20), "{verify}");
    let (measured, is_kept) = judged(&result, "owed");
    assert!(status == Some(1) && !is_kept, "{measured}: {verify}");
}

/// Passes some lines of datagrams on to a server. `passes` gets a line, and its number from 0.
fn relay(server: SocketAddr, passes: impl Fn(&str, usize) -> bool + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind a socket");
    let address = socket.local_addr().expect("the address");
    std::thread::spawn(move || {
        let (mut buffer, mut number) = (vec![0; 64 << 10], 0);
        while let Ok(len) = socket.recv(&mut buffer) {
            let text = std::str::from_utf8(&buffer[..len]).expect("text");
            let mut passes = |line: &&str| {
                number += 1;
                passes(line, number - 1)
            };
            let lines: String = text.split_inclusive('\n').filter(|line| passes(line)).collect();
            socket.send_to(lines.as_bytes(), server).ok();
        }
    });
    address
}

/// The lab says why it has seen nothing.
#[test]
fn looks_that_fail_are_shown() {
    let statsd = Statsd::start(Options::default());
    let refuse = |reply: &mut http::Reply| (reply.status, reply.body) = (400, b"not today".to_vec());
    let read = format!("http://{}", proxy_both(statsd.server.address, |_, _| {}, refuse));
    let shape = ["--metrics", "5", "--series", "2", "--writers", "2", "--rate", "200", "--duration", "3s"];
    let (status, result) = statsd.run(&[&["--read-url", &read][..], &shape].concat());
    let (measured, is_kept) = judged(&result, "lost");
    assert!(status == Some(1) && !is_kept, "{measured}");
    assert!(measured.contains("looks failed") && measured.contains("400"), "{measured}");
}

/// The target answers a query only if its answer has few values.
#[test]
fn looks_that_are_refused_for_their_size_are_divided() {
    let statsd = Statsd::start(Options::default());
    let refuse = |reply: &mut http::Reply| {
        let mut count = 0;
        change_values(&mut reply.body, |values| count += values.len());
        if count > 30 {
            (reply.status, reply.body) = (422, b"too many values".to_vec());
        }
    };
    let proxy = proxy_both(statsd.server.address, |_, _| {}, refuse);
    let read = format!("http://{proxy}");
    let shape = ["--metrics", "5", "--series", "2", "--writers", "2", "--rate", "200", "--duration", "6s"];
    let (status, result) = statsd.run(&[&["--read-url", &read][..], &shape].concat());
    let verify = &result["verify"];
    assert_eq!(
        (status, &verify["looks_failed"], &verify["absent"]),
        (Some(0), &0.into(), &0.into()),
        "{verify}"
    );
    // more than one answer can have
    assert!(verify["acknowledged"].as_u64() > Some(30), "{verify}");
    assert_eq!(verify["read_back"], verify["acknowledged"], "{verify}");
}

/// How much the clock of a target is behind.
const BEHIND_S: f64 = 3.0;

/// The times of a target may also be the beginnings of intervals, or those of a clock that is behind.
#[test]
fn values_of_a_clock_that_is_behind_are_early_and_right() {
    let statsd = Statsd::start(Options::default());
    let proxy = proxy_both(statsd.server.address, |_, body| ask_later(body), answer_earlier);
    let read = format!("http://{proxy}");
    // 20 rounds a second
    let shape = ["--metrics", "5", "--series", "2", "--writers", "1", "--rate", "200", "--duration", "10s"];
    let (status, result) = statsd.run(&[&["--read-url", &read][..], &shape].concat());
    let verify = &result["verify"];
    assert_eq!(status, Some(0), "{verify} {}", result["verdict"]);
    assert_eq!((&verify["wrong"], &verify["unknown"]), (&0.into(), &0.into()), "{verify}");
    let (owed, early) = (verify["acknowledged"].as_u64(), verify["early"].as_u64());
    // some metrics change rarely, so that their values are those of earlier rounds, too
    assert!(owed >= Some(10) && early > Some(0), "{verify}");
    assert_eq!(verify["read_back"], verify["acknowledged"], "{verify}");
}

/// Moves the time of a query to the clock of the server.
fn ask_later(form: &mut Vec<u8>) {
    let text = String::from_utf8(std::mem::take(form)).expect("text");
    let moved = text.split('&').map(|field| match field.strip_prefix("time=") {
        Some(time) => format!("time={:.3}", time.parse::<f64>().expect("a time") + BEHIND_S),
        None => field.to_owned(),
    });
    *form = moved.collect::<Vec<_>>().join("&").into_bytes();
}

/// Moves the times of an answer to the clock of the target.
fn answer_earlier(reply: &mut http::Reply) {
    change_values(&mut reply.body, |values| {
        for value in values {
            value[0] = (value[0].as_f64().expect("a time") - BEHIND_S).into();
        }
    });
}

/// Changes the values of each series of an answer.
fn change_values(body: &mut Vec<u8>, mut change: impl FnMut(&mut Vec<Value>)) {
    let mut answer: Value = serde_json::from_slice(body).expect("an answer in JSON");
    for series in answer["data"]["result"].as_array_mut().into_iter().flatten() {
        series["values"].as_array_mut().into_iter().for_each(&mut change);
    }
    *body = answer.to_string().into_bytes();
}

/// Nothing slows a sender of datagrams, and a value has the time at which the server stores it.
#[test]
fn what_statsd_cannot_do_is_refused() {
    for (flags, why) in [
        (&[][..], "statsd needs a rate (--rate)"),
        (&["--rate", "1k", "--series-churn", "1h"], "gauges of statsd cannot be replaced"),
        (&["--rate", "1k", "--target", "tcp://127.0.0.1:8125"], "does not begin with udp://"),
        (&["--rate", "1k", "--read-api", "render"], "statsd can only be read back with promql"),
    ] {
        let output = lab(&[&["write", "--protocol", "statsd", "--quiet"], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{flags:?}: {said}");
    }
    let wide = ["write", "--protocol", "csv", "--metrics", "2000", "--quiet"];
    let output = lab(&wide);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("tables would have 2011 columns"), "{said}");
}
