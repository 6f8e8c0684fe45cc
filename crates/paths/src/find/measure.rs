//! Measures memory and time of an index of many names. Run it with
//! `cargo test --release -p paths -- --ignored --nocapture measure`.

use super::*;
use crate::batch::Batch;
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::rng::Rng;

/// Makes a random pattern.
type Ask = Box<dyn Fn(&mut Rng) -> String>;

const BATCH_NAMES: usize = 200_000;

/// A fleet of servers, each with timers of 15 metrics, in an order as random as in a head.
fn name(i: usize) -> String {
    const METRICS: [&str; 15] = [
        "count",
        "mean_rate",
        "m1_rate",
        "m5_rate",
        "m15_rate",
        "min",
        "max",
        "mean",
        "stddev",
        "median",
        "p75",
        "p95",
        "p98",
        "p99",
        "p999",
    ];
    let (metric, timer, host) = (i % 15, i / 15 % 100, i / 1500);
    format!("fleet.dc{}.host-{host:05}.app.requests.timer-{timer:02}.{}", host % 7, METRICS[metric])
}

fn measure(count: usize) {
    let mut rng = Rng::announced();
    let account = Account::new("measure", u64::MAX);
    let (mut runs, mut batch) = (Runs::default(), Batch::default());
    let began = Instant::now();
    // a permutation of all names: the step has no common divisor with the count
    let step = 7_368_787;
    let mut text_bytes = 0;
    for i in 0..count {
        let name = name((i * step) % count);
        text_bytes += name.len();
        batch.push(&name);
        if batch.len() == BATCH_NAMES || i + 1 == count {
            runs.push(batch.take_run(&account).unwrap());
            runs.merge_small(&account, usize::MAX).unwrap();
        }
    }
    let built = began.elapsed();
    assert!((count..=count + 1).contains(&runs.len()));
    println!(
        "{count} names of {:.1} bytes: {:.2} bytes a name, peak {:.2}, built in {:.1} s",
        text_bytes as f64 / count as f64,
        runs.memory_bytes() as f64 / count as f64,
        account.peak_bytes() as f64 / count as f64,
        built.as_secs_f64()
    );
    // new names, as small runs
    for i in 0..10 {
        (0..50).for_each(|n| batch.push(&format!("fleet.dc1.new-{i}.metric-{n}")));
        runs.push(batch.take_run(&account).unwrap());
        runs.merge_small(&account, 32 << 10).unwrap();
    }
    let hosts = count / 1500;
    let patterns: [(&str, Ask); 6] = [
        (
            "children of a host's timers",
            Box::new(move |rng| {
                let host = rng.below(hosts as u64) as usize;
                format!("fleet.dc{}.host-{host:05}.app.requests.*", host % 7)
            }),
        ),
        (
            "two wildcards",
            Box::new(move |rng| {
                let host = rng.below(hosts as u64) as usize;
                format!("fleet.dc{}.host-{host:05}.app.requests.timer-*.p9?", host % 7)
            }),
        ),
        (
            "ten hosts in braces, one metric each",
            Box::new(move |rng| {
                let hosts: Vec<_> = (0..10).map(|_| format!("host-{:05}", rng.below(hosts as u64))).collect();
                format!("fleet.*.{{{}}}.app.requests.timer-07.p99", hosts.join(","))
            }),
        ),
        (
            "a prefix of hosts",
            Box::new(move |rng| format!("fleet.dc3.host-{:03}*", rng.below(hosts as u64 / 100 + 1))),
        ),
        ("every host of a data centre", Box::new(|_| "fleet.dc3.*".into())),
        (
            "one metric of every host of a data centre",
            Box::new(|_| "fleet.dc3.*.app.requests.timer-07.p99".into()),
        ),
    ];
    for (what, pattern) in patterns {
        let (mut times, mut visits, mut nodes) = (Vec::new(), 0, 0);
        for _ in 0..200 {
            let text = pattern(&mut rng);
            let began = Instant::now();
            let pattern = Pattern::parse(&text).unwrap();
            visits += find(
                &runs,
                &pattern,
                |_| {
                    nodes += 1;
                    true
                },
                || true,
            )
            .unwrap();
            times.push(began.elapsed());
        }
        times.sort();
        let at = |part: f64| times[(part * (times.len() - 1) as f64) as usize];
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "  {what}: {} nodes visited, {} found; p50 {:.0} us, p99 {:.0} us",
            visits / times.len(),
            nodes / times.len(),
            us(at(0.5)),
            us(at(0.99))
        );
    }
}

#[test]
#[ignore = "takes half a minute and a gigabyte"]
fn measure_many_names() {
    for count in [1_000_000, 10_000_000] {
        measure(count);
    }
}
