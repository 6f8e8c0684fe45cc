//! Measures how many bytes of records are decoded in a second.
//!
//! ```text
//!   cargo bench -p protocol --bench records                 a table
//!   cargo bench -p protocol --bench records -- 1000         1,000 passes
//!   cargo bench -p protocol --bench records -- 1000 csv     only bodies whose name has this part
//! ```
//!
//! The bodies have lines of a web server's log, with about 300 bytes and twelve attributes each: all alike, or of two
//! kinds of which one lacks some attributes at random.

use protocol::records::{Format, Request, Times, decode};
use std::hint::black_box;
use std::time::Instant;
use stdx::budget::Account;
use stdx::rng::mix;

const RECORDS: u64 = 2000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let passes = args.first().map_or(300, |n| n.parse().expect("PASSES must be a number"));
    println!("{:<12} {:>10} {:>10} {:>12} {:>12}", "MB/s", "best", "median", "bytes/record", "memory/body");
    run("json", Format::Json, json(alike), passes);
    run("json mixed", Format::Json, json(mixed), passes);
    run(
        "json list",
        Format::Json,
        format!("[{}]", json(alike).trim_end().replace('\n', ",")).as_bytes(),
        passes,
    );
    run("json escapes", Format::Json, json(escaped), passes);
    run("csv", Format::Csv, csv(), passes);
    run("lines", Format::Lines, json(alike), passes);
}

fn run(name: &str, format: Format, body: impl AsRef<[u8]>, passes: usize) {
    let body = body.as_ref();
    if std::env::args()
        .skip_while(|arg| arg.parse::<usize>().is_err())
        .nth(1)
        .is_some_and(|part| !name.contains(&part))
    {
        return;
    }
    let account = Account::new("bench", u64::MAX);
    let mut ns: Vec<f64> = (0..passes)
        .map(|_| {
            let mut memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
            let start = Instant::now();
            let decoded = decode(
                format,
                Request { body, arrival_us: 7, times: Times::ANY, first_line: 1 },
                &mut memory,
            );
            let decoded = black_box(decoded.expect("BUG: the body is wrong"));
            let ns = start.elapsed().as_nanos() as f64;
            assert_eq!((decoded.records.len() as u64, decoded.refused.count), (RECORDS, 0));
            ns
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    let speed = |ns: f64| body.len() as f64 / ns * 1000.0;
    println!(
        "{name:<12} {:>10.0} {:>10.0} {:>12.1} {:>12.2}",
        speed(ns[0]),
        speed(ns[ns.len() / 2]),
        body.len() as f64 / RECORDS as f64,
        account.peak_bytes() as f64 / body.len() as f64
    );
}

fn json(line: fn(u64) -> String) -> String {
    (0..RECORDS).map(|n| line(n) + "\n").collect()
}

const PATHS: [&str; 4] = ["/api/v1/orders", "/api/v1/users/self/sessions", "/healthz", "/static/app.js"];

fn alike(n: u64) -> String {
    let random = mix(n);
    format!(
        r#"{{"@timestamp":"2026-11-21T18:{:02}:{:02}.{:06}Z","level":"{}","service":"checkout-api","host":{{"name":"ip-10-96-{}-17","zone":"eu-central-1a"}},"http":{{"method":"GET","path":"{}","status":{},"bytes":{}}},"duration_ms":{:.3},"trace_id":"{:016x}","message":"request of customer {} completed"}}"#,
        n / 60 % 60,
        n % 60,
        random % 1_000_000,
        if random.is_multiple_of(10) { "warn" } else { "info" },
        random % 250,
        PATHS[(random >> 8) as usize % 4],
        if random.is_multiple_of(50) { 500 } else { 200 },
        random % 100_000,
        (random % 1_000_000) as f64 / 1000.0,
        random,
        random % 5000,
    )
}

fn mixed(n: u64) -> String {
    let random = mix(n ^ 7);
    let mut line = alike(n);
    if random & 1 == 0 {
        line = format!(
            r#"{{"ts":{},"kind":"audit","actor":{{"id":{},"role":"admin"}},"verb":"update","object":"orders/{}","reason":"changed by the nightly reconciliation of payments","ok":true}}"#,
            1_795_284_000_000 + n,
            random % 1000,
            random % 100_000
        );
    }
    if random & 2 == 0 {
        line = line.replace(r#""service":"checkout-api","#, "").replace(r#""verb":"update","#, "");
    }
    if random & 12 == 0 {
        line = line.replace('}', r#","attempt":2}"#).replacen(r#","attempt":2}"#, "}", 1);
    }
    line
}

/// The message is a text with line breaks and quotes.
fn escaped(n: u64) -> String {
    alike(n).replace(
        "request of",
        r#"failed: \"connection refused\"\n\tat pool.rs:17\n\tat handler.rs:42\n\tfor the request of"#,
    )
}

fn csv() -> String {
    let header = "timestamp,level,service,host,zone,method,path,status,bytes,duration_ms,trace_id,message\n";
    let rows = (0..RECORDS).map(|n| {
        let random = mix(n);
        format!(
            "2026-11-21T18:{:02}:{:02}.{:06}Z,info,checkout-api,ip-10-96-{}-17,eu-central-1a,GET,{},{},{},{:.3},{random:016x},\"request of customer {}, completed\"\n",
            n / 60 % 60,
            n % 60,
            random % 1_000_000,
            random % 250,
            PATHS[(random >> 8) as usize % 4],
            if random.is_multiple_of(50) { 500 } else { 200 },
            random % 100_000,
            (random % 1_000_000) as f64 / 1000.0,
            random % 5000,
        )
    });
    header.to_owned() + &rows.collect::<String>()
}
