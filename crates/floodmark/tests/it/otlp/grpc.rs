//! OpenTelemetry's metrics over gRPC: the SDK for Python, raw calls with Python's gRPC, and a client of HTTP/2.

mod attacks;
mod frames;
mod lab;
mod limits;

use super::gauge_in_protobuf;
use super::senders::{check_bounds, check_buckets, halves, run};
use crate::authentication::sha256;
use crate::harness::tls::Client;
use crate::harness::{Options, Server, now_ms};
use crate::imports::gzip;
use crate::tls;
use attacks::works;
use frames::{DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PREFACE, SETTINGS, export, fields};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tokio_rustls::rustls::version::TLS13;

const SDK: &str = include_str!("senders/grpc.py");
const CALL: &str = include_str!("senders/call.py");

fn server(config: &str) -> (Server, SocketAddr) {
    let server = Server::start(Options::default().arg("--otlp-grpc=127.0.0.1:0").config(config));
    let address = server.logged_address("grpc");
    (server, address)
}

#[test]
fn points_of_the_python_sdk_are_read_back() {
    let (mut server, mut address) = server("");
    for (compression, temporality) in
        [("none", "cumulative"), ("gzip", "cumulative"), ("none", "delta"), ("gzip", "delta")]
    {
        let Some(text) = run(SDK, &[&address.to_string(), compression, temporality]) else { return };
        if compression == "gzip" {
            // compare again after the journal was replayed
            server.wait_until_zero("floodmark_grpc_connections");
            server.wait_until_zero("floodmark_write_inflight_bytes");
            server.kill9();
            server.restart();
            address = server.logged_address("grpc");
        }
        let (now, job) = (now_ms(), format!("{temporality}/{compression}"));
        let value = |query: &str| server.value(&query.replace("JOB", &job), now);
        for (query, expected) in [
            (r#"requests_total{job="JOB",http_method="GET"}"#, 7.0),
            (r#"queue_length{job="JOB"}"#, -2.0),
            (r#"temperature_celsius{job="JOB",room="größer"}"#, 21.5),
            (r#"took_milliseconds_bucket{job="JOB",le="5"}"#, 1.0),
            (r#"took_milliseconds_bucket{job="JOB",le="10"}"#, 3.0),
            (r#"took_milliseconds_bucket{job="JOB",le="+Inf"}"#, 4.0),
            (r#"took_milliseconds_count{job="JOB"}"#, 4.0),
            (r#"took_milliseconds_sum{job="JOB"}"#, 1017.0),
            (r#"exponential_seconds_count{job="JOB"}"#, 103.0),
        ] {
            assert_eq!(value(query), Some(expected), "{job}: {query}: {text}");
        }
        let mut values: Vec<_> = (1..=100).map(|n| f64::from(n) / 100.0).collect();
        values.extend([0.0, 0.003, 37.0]);
        let sum = value(r#"exponential_seconds_sum{job="JOB"}"#).unwrap();
        assert!((sum - values.iter().sum::<f64>()).abs() < 1e-9, "{job}: {sum}");
        let found =
            check_buckets(&server, None, &format!(r#"exponential_seconds_bucket{{job="{job}"}}"#), &values);
        check_bounds(&found, &[&[0.0], &halves(-17..=11)[..]].concat());
    }
}

#[test]
fn messages_may_be_compressed() {
    let (server, address) = server("");
    let now = now_ms();
    for (number, encoding) in ["identity", "gzip", "zstd", "deflate"].into_iter().enumerate() {
        let message = gauge_in_protobuf(now - number as i64);
        let content = match encoding {
            "gzip" => gzip(&message),
            "zstd" => zstd::bulk::compress(&message, 3).unwrap(),
            _ => message,
        };
        let block = [export(), fields(&[("grpc-encoding", encoding)])].concat();
        let mut frames = Frames::open(address, &[]);
        frames.send(HEADERS, END_HEADERS, 1, &block).unwrap();
        let is_compressed = u8::from(encoding != "identity");
        let body = [&[is_compressed][..], &(content.len() as u32).to_be_bytes(), &content].concat();
        frames.send(DATA, END_STREAM, 1, &body).unwrap();
        if encoding == "deflate" {
            let (flags, _, trailers) = frames.read(HEADERS).expect("an answer");
            assert_ne!(flags & END_STREAM, 0, "it was accepted: {trailers:?}");
            continue;
        }
        let (_, _, data) = frames.read(DATA).expect("an answer");
        assert_eq!(data, [0; 5], "{encoding}");
    }
    let times: Vec<_> = server.samples_of_one("up[1m]", now).into_iter().map(|(ms, _)| ms).collect();
    assert_eq!(times, [now - 2, now - 1, now]);
}

/// Sends a message, and returns the code, the message and the delay of the answer. `None` if the SDK is missing.
pub(crate) fn call(address: &str, message: &[u8], arguments: &[&str]) -> Option<(String, String, String)> {
    let message: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = run(CALL, &[&[address, &message], arguments].concat())?;
    let mut lines = text.lines().map(str::to_owned);
    let mut next = || lines.next().unwrap_or_default();
    Some((next(), next(), next()))
}

#[test]
fn calls_are_answered() {
    let (server, address) = server("[tenant.small]\nrequests_per_second = 1\nrate_burst = \"1s\"\n");
    let (address, now) = (address.to_string(), now_ms());
    let message = gauge_in_protobuf(now);
    let Some((code, answer, _)) = call(&address, &message, &[]) else { return };
    assert_eq!((&*code, &*answer), ("OK", ""));
    assert_eq!(server.value(r#"up{job="shop"}"#, now), Some(1.0));
    call(&address, &message, &["x-scope-orgid=other"]).unwrap();
    let others = server.query_as(Some("other"), "up", now);
    assert_eq!(others["result"].as_array().unwrap().len(), 1);
    let (code, text, _) = call(&address, b"\xff", &[]).unwrap();
    assert_eq!(code, "INVALID_ARGUMENT");
    assert!(text.contains("protobuf"), "{text}");
    // a point in the future is refused, and the answer says so
    let (code, answer, _) = call(&address, &gauge_in_protobuf(now + 3_600_000), &[]).unwrap();
    assert_eq!(code, "OK");
    assert!(answer.starts_with("0a"), "a partial success: {answer}");
    // no such service
    let other = "method=/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
    let (code, ..) = call(&address, &message, &[other]).unwrap();
    assert_eq!(code, "UNIMPLEMENTED");
    server.wait_until_zero("floodmark_grpc_connections");
}

#[test]
fn limits_are_answered_with_the_time_of_the_retry() {
    let (_server, address) = server("[tenant.small]\nsamples_per_second = 1\nrate_burst = \"1s\"\n");
    let address = address.to_string();
    let message = gauge_in_protobuf(now_ms()).repeat(100);
    let mut refused = None;
    for _ in 0..20 {
        let Some((code, text, retry)) = call(&address, &message, &["x-scope-orgid=small"]) else { return };
        if code != "OK" {
            refused = Some((code, text, retry));
            break;
        }
    }
    let (code, text, retry) = refused.expect("the limit is reached");
    assert_eq!(code, "RESOURCE_EXHAUSTED");
    assert!(text.contains("samples_per_second"), "{text}");
    assert!(retry.parse::<u64>().is_ok_and(|seconds| seconds > 0), "{text} {retry}");
}

#[test]
fn credentials_are_required() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("auth.toml");
    let entries = format!(
        "[token.writer]\nsha256 = \"{}\"\ntenants = [\"a\"]\nroles = [\"write\"]\n\
         [token.reader]\nsha256 = \"{}\"\ntenants = [\"a\"]\nroles = [\"read\"]\n",
        sha256("write"),
        sha256("read")
    );
    std::fs::write(&file, entries).unwrap();
    let options = Options::default().arg("--otlp-grpc=127.0.0.1:0").arg("--auth-file").arg(tls::text(&file));
    let server = Server::start(options.allow("requests refused"));
    let address = server.logged_address("grpc").to_string();
    let message = gauge_in_protobuf(now_ms());
    let code = |arguments: &[&str]| call(&address, &message, arguments).map(|(code, ..)| code);
    let Some(without) = code(&[]) else { return };
    assert_eq!(without, "UNAUTHENTICATED");
    assert_eq!(code(&["authorization=Bearer wrong"]).unwrap(), "UNAUTHENTICATED");
    assert_eq!(code(&["authorization=Bearer read"]).unwrap(), "PERMISSION_DENIED");
    assert_eq!(code(&["authorization=Bearer write"]).unwrap(), "OK");
    assert_eq!(code(&["authorization=Bearer write", "x-scope-orgid=b"]).unwrap(), "PERMISSION_DENIED");
}

#[test]
fn connections_are_encrypted() {
    let Some((authority, _dir)) = tls::authority() else { return };
    let options = tls::options(&authority).arg("--otlp-grpc=127.0.0.1:0");
    let server = Server::start(options.client(Client::new(&[&authority], None)));
    let address = server.logged_address("grpc");
    let http2 = Client::with(&[&authority], None, &[&TLS13], b"h2").open(address).unwrap();
    assert_eq!(http2.session().alpn_protocol(), Some(&b"h2"[..]));
    let error = Client::with(&[&authority], None, &[&TLS13], b"http/1.1").open(address).err().unwrap();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    // a client that does not encrypt
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(PREFACE).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("must be encrypted"), "{answer:?}");
    let (ca, message) = (format!("ca={}", tls::text(&authority.path("ca.pem"))), gauge_in_protobuf(now_ms()));
    let Some((code, text, _)) = call(&format!("localhost:{}", address.port()), &message, &[&ca]) else {
        return;
    };
    assert_eq!((&*code, &*text), ("OK", ""));
}

#[test]
fn connections_end_when_the_server_stops() {
    let (mut server, address) = server("");
    works(address);
    let mut idle = Frames::open(address, &[]);
    idle.read(SETTINGS).expect("the server's settings");
    idle.read(SETTINGS).expect("the server has read the client's settings"); // otherwise, the connection is closed without a word
    let silent = TcpStream::connect(address).unwrap();
    server.signal_terminate();
    idle.read(GOAWAY).expect("the server says that it goes away");
    idle.closed();
    Frames(silent).closed();
    assert!(server.terminate().success());
}
