//! The lab's drivers for protocols over HTTP and for statsd, and their ledgers.

use crate::harness::lab::{good, lab};
use crate::harness::{Options, Request, Server, http};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("the address");
    let (change, requests) = (Arc::new(change), Arc::new(AtomicU32::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (change, requests) = (Arc::clone(&change), Arc::clone(&requests));
            let mut stream = stream.expect("accept");
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("clone"));
                while let Some((path, headers, mut body)) = read_request(&mut reader) {
                    change(requests.fetch_add(1, Ordering::Relaxed), &mut body);
                    let request = headers
                        .iter()
                        .filter(|(name, _)| !["content-length", "host"].contains(&&**name))
                        .fold(Request::post(path, body), |request, (name, value)| {
                            request.header(name, value)
                        });
                    let reply = http::once(server, &request).expect("an answer");
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
    let shape = ["--metrics", "5", "--series", "2", "--writers", "2", "--rate", "200", "--duration", "3s"];
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

/// Nothing slows a sender of datagrams, and a value has the time at which the server stores it.
#[test]
fn what_statsd_cannot_do_is_refused() {
    for (flags, why) in [
        (&[][..], "statsd needs a rate (--rate)"),
        (&["--rate", "1k", "--series-churn", "1h"], "gauges of statsd cannot be replaced"),
        (&["--rate", "1k", "--target", "tcp://127.0.0.1:8125"], "does not begin with udp://"),
        (&["--rate", "1k", "--read-api", "render"], "statsd is read back by promql"),
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
