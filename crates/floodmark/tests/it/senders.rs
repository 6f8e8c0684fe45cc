//! Real senders with the configurations of `docs/senders`. Everything that they send is read back. `scripts/test-servers.sh`
//! installs them; a test without its sender is skipped.

mod collectd;
mod collector;
mod curl;
mod k6;
mod opentelemetry;
mod prometheus;
mod rsyslog;
mod statsd;
mod telegraf;
mod vmagent;

use crate::harness::pages::Page;
use crate::harness::programs::find;
use crate::harness::read::{matrix, sample};
use crate::harness::{Options, Server, now_ms};

/// The tenant that the pages name.
const TEAM: &str = "team-a";

/// The addresses that the pages name.
const HTTP: &str = "127.0.0.1:9009";
const GRPC: &str = "127.0.0.1:4317";

fn page(name: &str) -> Page {
    Page::read(&format!("docs/senders/{name}.md"))
}

/// Returns false, and reports that the test is skipped, if a program is missing.
fn have(program: &str, needs: &str) -> bool {
    let found = find(&[program]).is_some();
    if !found {
        stdx::skipped::for_want_of(&format!("{program} (install {needs}, then run scripts/test-servers.sh)"));
    }
    found
}

/// A server with OTLP over HTTP and gRPC, and the address of the latter.
fn server_with_grpc(options: Options) -> (Server, String) {
    let server = Server::start(options.arg("--otlp-grpc=127.0.0.1:0"));
    let grpc = server.logged_address("grpc").to_string();
    (server, grpc)
}

/// The value of a query of a tenant. Its result has at most one series.
#[track_caller]
fn value_of(server: &Server, tenant: &str, query: &str) -> Option<f64> {
    let data = server.query_as(Some(tenant), query, now_ms());
    let result = data["result"].as_array().expect("a vector");
    assert!(result.len() <= 1, "more than one series: {data}");
    result.first().map(|series| sample(&series["value"]).1)
}

/// The values of the only series that a selector finds in the last hour, in the order of their times.
#[track_caller]
fn values_of(server: &Server, tenant: &str, selector: &str) -> Vec<f64> {
    let all = matrix(&server.query_as(Some(tenant), &format!("{selector}[1h]"), now_ms()));
    assert!(all.len() <= 1, "more than one series: {all:?}");
    all.into_values().flatten().map(|(_, bits)| f64::from_bits(bits)).collect()
}
