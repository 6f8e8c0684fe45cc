//! Measures how long decoding takes per field of Influx' line protocol.
//!
//! ```text
//!   cargo bench -p protocol --bench influx                 a table
//!   cargo bench -p protocol --bench influx -- 1000         1,000 passes
//! ```
//!
//! A body has about 5,000 fields of different series. `cpu` is like Telegraf's plug-in of this name, with ten fields to a
//! line; `one` has one field to a line; `tags` has ten tags and ten fields.

use model::Batch;
use protocol::influx::{Decoder, Format, Names, Precision};
use protocol::{Body, Decoder as _, Encoding, Request};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use stdx::budget::Account;

const FIELDS: usize = 5000;

const TIME_NS: u64 = 1_795_284_000_000_000_000;

const CPU: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let passes = args.first().map_or(300, |n| n.parse().expect("PASSES must be a number"));
    println!("{:<10} {:>10} {:>10} {:>12}", "ns/field", "best", "median", "bytes/field");
    run("cpu", &lines(&CPU, |line| format!("cpu,cpu=cpu{},host=web{:04}", line % 8, line / 8)), passes);
    run("one", &lines(&["value"], |line| format!("load,host=web{line:04},rack=r{}", line % 17)), passes);
    let tags = |line: usize| {
        format!(
            "cpu,arch=x86,datacenter=eu-west-1a,hostname=host_{line},os=Ubuntu22.04LTS,rack={},region=eu-west-1,\
             service={},service_environment=production,service_version=0,team=SF",
            line % 100,
            line % 20
        )
    };
    run("tags", &lines(&CPU, tags), passes);
}

fn run(name: &str, bytes: &[u8], passes: usize) {
    let mut memory = Account::new("bench", u64::MAX).reserve(0).expect("BUG: cannot reserve 0 bytes");
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    let body = Body { encoding: Encoding::Identity, bytes };
    let format =
        Format { precision: Precision::Nanoseconds, arrival_ms: 0, names: Arc::new(Names::default()) };
    let mut ns: Vec<f64> = (0..passes)
        .map(|_| {
            let start = Instant::now();
            decoder
                .decode(Request { format: format.clone(), body }, &mut batch, &mut memory)
                .expect("BUG: the input is invalid");
            black_box(&batch.floats.series);
            start.elapsed().as_nanos() as f64 / FIELDS as f64
        })
        .collect();
    assert_eq!((batch.floats.values.len(), batch.refused_series), (FIELDS, 0), "BUG: the input is invalid");
    ns.sort_by(f64::total_cmp);
    println!(
        "{name:<10} {:>10.1} {:>10.1} {:>12.1}",
        ns[0],
        ns[ns.len() / 2],
        bytes.len() as f64 / FIELDS as f64
    );
}

fn lines(fields: &[&str], head: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = String::new();
    for line in 0..FIELDS / fields.len() {
        text.push_str(&head(line));
        for (i, field) in fields.iter().enumerate() {
            let value = ((line * 7919 + i * 104_729) % 1_000_000) as f64 / 100.0;
            let separator = if i == 0 { ' ' } else { ',' };
            write!(text, "{separator}{field}={value}").expect("BUG: a text cannot be written");
        }
        writeln!(text, " {TIME_NS}").expect("BUG: a text cannot be written");
    }
    text.into_bytes()
}
