//! The lab's driver for gRPC, and its ledger.

use super::server;
use crate::harness::Server;
use crate::harness::lab::{good, lab};
use crate::harness::tls::Client;
use crate::tls;
use serde_json::Value;

/// Four writers with 100 series each.
const SHAPE: [&str; 9] =
    ["--metrics", "20", "--series", "5", "--rounds", "6", "--verify", "--json", "--quiet"];
const SAMPLES: u64 = 4 * 20 * 5 * 6;

/// Writes samples to `target`, and reads all of them back from `read`.
fn write(target: &str, read: &str, more: &[&str]) -> Value {
    let address = ["write", "--protocol", "otlp-grpc", "--target", target, "--read-url", read];
    let result: Value =
        serde_json::from_str(&good(&lab(&[&address[..], &SHAPE, more].concat()))).expect("read the result");
    let verify = &result["verify"];
    assert_eq!(verify["acknowledged"], SAMPLES, "{verify}");
    assert_eq!((&verify["read_back"], &verify["wrong"]), (&SAMPLES.into(), &0.into()), "{verify}");
    result
}

#[test]
fn every_sample_is_read_back() {
    let (server, address) = server("");
    let result = write(&format!("http://{address}"), &format!("http://{}", server.address), &[]);
    assert_eq!(result["totals"]["by_reason"]["OK"], 24, "{result}");
}

/// Each refusal says when the request may be repeated. Then it is accepted.
#[test]
fn refused_requests_are_repeated() {
    let (server, address) = server("samples_per_second = 1000\nrate_burst = \"1s\"\n");
    let result = write(&format!("http://{address}"), &format!("http://{}", server.address), &[]);
    let totals = &result["totals"];
    assert!(totals["by_reason"]["RESOURCE_EXHAUSTED"].as_u64() > Some(0), "{totals}");
    assert_eq!((&totals["without_retry_after"], &totals["rejected"]), (&0.into(), &0.into()), "{totals}");
    let said = totals["said"]["RESOURCE_EXHAUSTED"].as_str().expect("a message");
    assert!(said.contains("samples_per_second"), "{said}");
}

#[test]
fn connections_can_be_encrypted() {
    let Some((authority, _dir)) = tls::authority() else { return };
    let options = tls::options(&authority).arg("--otlp-grpc=127.0.0.1:0");
    let server = Server::start(options.client(Client::new(&[&authority], None)));
    let port = server.logged_address("grpc").port();
    let ca = authority.path("ca.pem");
    let (target, read) =
        (format!("https://localhost:{port}"), format!("https://localhost:{}", server.address.port()));
    write(&target, &read, &["--ca", tls::text(&ca)]);
}
