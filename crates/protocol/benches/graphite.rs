//! Measures how long decoding takes per point of Graphite's protocols.
//!
//! ```text
//!   cargo bench -p protocol --bench graphite                 a table
//!   cargo bench -p protocol --bench graphite -- 1000         1,000 passes
//! ```
//!
//! A body has 5,000 points of different series. Names have five parts and about 50 bytes.

use model::Batch;
use protocol::graphite::{self, Format, TimeOfArrival, pickle, protobuf};
use protocol::{Body, Decoder, Encoding, Request};
use std::hint::black_box;
use std::time::Instant;
use stdx::budget::Account;

const POINTS: usize = 5000;

const TIME_S: u32 = 1_795_284_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let passes = args.first().map_or(300, |n| n.parse().expect("PASSES must be a number"));
    println!("{:<10} {:>10} {:>10} {:>12}", "ns/point", "best", "median", "bytes/point");
    let (arrival, framed) =
        (TimeOfArrival::Is(0), Format { has_frames: true, arrival: TimeOfArrival::Is(0) });
    run::<graphite::Decoder>("lines", arrival, &lines(""), passes);
    run::<graphite::Decoder>("tags", arrival, &lines(";dc=fra1;host=web17"), passes);
    run::<pickle::Decoder>("pickle", framed, &frame(&pickled()), passes);
    run::<protobuf::Decoder>("protobuf", framed, &frame(&payload()), passes);
}

fn run<D: Decoder>(name: &str, format: D::Format, bytes: &[u8], passes: usize) {
    let mut memory = Account::new("bench", u64::MAX).reserve(0).expect("BUG: cannot reserve 0 bytes");
    let (mut decoder, mut batch) = (D::new(1), Batch::default());
    let body = Body { encoding: Encoding::Identity, bytes };
    let mut ns: Vec<f64> = (0..passes)
        .map(|_| {
            let start = Instant::now();
            decoder
                .decode(Request { format: format.clone(), body }, &mut batch, &mut memory)
                .expect("BUG: the input is invalid");
            black_box(&batch.floats.series);
            start.elapsed().as_nanos() as f64 / POINTS as f64
        })
        .collect();
    assert_eq!((batch.floats.values.len(), batch.refused_series), (POINTS, 0), "BUG: the input is invalid");
    ns.sort_by(f64::total_cmp);
    println!(
        "{name:<10} {:>10.1} {:>10.1} {:>12.1}",
        ns[0],
        ns[ns.len() / 2],
        bytes.len() as f64 / POINTS as f64
    );
}

fn name(i: usize) -> String {
    format!("servers.dc{}.web{:04}.timers.request{}.p99", i % 3, i % 1000, i)
}

fn value(i: usize) -> f64 {
    (i * 7919 % 1_000_000) as f64 / 100.0
}

fn lines(tags: &str) -> Vec<u8> {
    (0..POINTS).map(|i| format!("{}{tags} {} {TIME_S}\n", name(i), value(i))).collect::<String>().into_bytes()
}

/// As Python's protocol 2 writes it.
fn pickled() -> Vec<u8> {
    let mut out = b"\x80\x02]q\x00".to_vec();
    let put = |out: &mut Vec<u8>, number: usize| {
        out.push(b'r');
        out.extend_from_slice(&(number as u32).to_le_bytes());
    };
    for i in 0..POINTS {
        if i % 1000 == 0 {
            out.push(b'(');
        }
        let name = name(i);
        out.push(b'X');
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        put(&mut out, 3 * i + 1);
        out.push(b'J');
        out.extend_from_slice(&TIME_S.to_le_bytes());
        out.push(b'G');
        out.extend_from_slice(&value(i).to_be_bytes());
        out.push(0x86);
        put(&mut out, 3 * i + 2);
        out.push(0x86);
        put(&mut out, 3 * i + 3);
        if i % 1000 == 999 {
            out.push(b'e');
        }
    }
    out.push(b'.');
    out
}

fn payload() -> Vec<u8> {
    let mut out = Vec::new();
    for i in 0..POINTS {
        let name = name(i);
        let mut time = vec![0x08];
        let mut rest = TIME_S;
        while rest >= 0x80 {
            time.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        time.push(rest as u8);
        let point = [&time[..], &[0x11], &value(i).to_le_bytes()].concat();
        let metric =
            [&[0x0a, name.len() as u8], name.as_bytes(), &[0x12, point.len() as u8], &point].concat();
        out.extend_from_slice(&[0x0a, metric.len() as u8]);
        out.extend_from_slice(&metric);
    }
    out
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}
