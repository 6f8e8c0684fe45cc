//! Checks that stored samples equal those that were sent: for any values, in any order, while others are
//! written, and after a restart.

use crate::harness::ledger::Writer;
use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use stdx::rng::Rng;

fn seeded() -> Rng {
    let seed = std::env::var("FLOODMARK_SEED").ok().map(|s| s.parse().expect("FLOODMARK_SEED is a number"));
    let seed = seed.unwrap_or_else(Rng::fresh_seed);
    eprintln!("FLOODMARK_SEED={seed}");
    Rng::new(seed)
}

/// Generates a double with random bits, or a value of a kind that chunks compress well.
fn any_double(rng: &mut Rng) -> f64 {
    match rng.below(6) {
        0 => f64::from_bits(rng.next_u64()),
        1 => rng.below(1000) as f64,
        2 => -(rng.below(1 << 60) as f64),
        3 => rng.below(1_000_000) as f64 / 100.0,
        4 => f64::from_bits(rng.next_u64() & 0xfff0_0000_0000_000f), // zeros, infinities, subnormals
        _ => (1u64 << 53) as f64 + rng.below(9) as f64,
    }
}

/// Returns the bits that a value has after it was sent as text. All NaNs become the same.
fn bits_in_answer(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

#[test]
fn any_double_at_any_distance_comes_back() {
    let mut rng = seeded();
    let mut server = Server::new();
    let now = now_ms();
    let mut expected = BTreeMap::new();
    let mut all = Vec::new();
    for series in 0..40 {
        let mut samples = Vec::new();
        let mut time = now - 3_000_000;
        for _ in 0..400 {
            // mostly regular intervals, sometimes random, sometimes a millisecond
            time += match rng.below(10) {
                0 => 1,
                1 => rng.below(20_000) as i64 + 1,
                _ => 5_000,
            };
            if time > now {
                break;
            }
            let value = any_double(&mut rng);
            if value.to_bits() != model::STALE_NAN_BITS {
                samples.push((time, value));
            }
        }
        let name = series.to_string();
        expected
            .insert(name.clone(), samples.iter().map(|(t, v)| (*t, bits_in_answer(*v))).collect::<Vec<_>>());
        all.push(Series::named("any").label("s", &name).samples(samples));
    }
    server.send(&Request::write(&wire::v1(&all))).expect(204, &[]);
    let check = |server: &Server| {
        for (name, expected) in &expected {
            let stored = server.samples_of_one(&format!("any{{s=\"{name}\"}}[1h]"), now);
            let stored: Vec<_> = stored.into_iter().map(|(t, v)| (t, bits_in_answer(v))).collect();
            assert_eq!(stored, *expected, "series {name}");
        }
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

/// With a large `past_limit`, samples from 1970 are accepted, and do not affect other samples of their
/// request.
#[test]
fn time_may_begin_with_the_epoch() {
    let mut server = Server::start(Options::default().config("past_limit = \"100y\""));
    let now = now_ms();
    let samples = [(0, 1.0), (1, 2.0), (999, 3.0), (1_000_000_000_000, 4.0), (now - 1, 5.0), (now, 6.0)];
    server.send(&Request::write(&wire::v1(&[Series::named("old").samples(samples)]))).expect(204, &[]);
    let check = |server: &Server| {
        // the window begins before 1970
        assert_eq!(server.samples_of_one("old[100y]", now), samples);
        assert_eq!(server.value("old", 1000), Some(3.0));
        assert_eq!(server.value("old", 0), Some(1.0));
        assert_eq!(server.value("old", -1), None);
    };
    check(&server);
    server.kill9();
    server.restart();
    check(&server);
}

/// Samples arrive in random order, and often several have the same time. Of these, the one that was sent last
/// must be stored.
#[test]
fn late_samples_in_any_order() {
    let mut rng = seeded();
    let mut server = Server::new();
    let now = now_ms();
    let mut expected = BTreeMap::<(u64, i64), f64>::new();
    for round in 0..60 {
        let mut all = Vec::new();
        for series in 0..5 {
            let mut samples = Vec::new();
            for _ in 0..rng.below(60) {
                let time = now - rng.below(300) as i64 * 10_000;
                let value = if rng.chance(0.3) { 1.0 } else { rng.below(100) as f64 };
                samples.push((time, value));
                expected.insert((series, time), value);
            }
            if !samples.is_empty() {
                all.push(Series::named("late").label("s", series.to_string()).samples(samples));
            }
        }
        let request = if rng.chance(0.5) {
            Request::write(&wire::v1(&all))
        } else {
            Request::write_v2(&wire::v2(&all))
        };
        server.send(&request).expect(204, &[]);
        if round % 20 == 19 {
            let check = |server: &Server| {
                for series in 0..5 {
                    let stored = server.samples_of_one(&format!("late{{s=\"{series}\"}}[1h]"), now);
                    let mine = expected.range((series, i64::MIN)..=(series, i64::MAX));
                    assert_eq!(
                        stored,
                        mine.map(|((_, t), v)| (*t, *v)).collect::<Vec<_>>(),
                        "series {series}"
                    );
                }
            };
            check(&server);
            server.kill9();
            server.restart();
            check(&server);
        }
    }
}

/// Readers that run while a series is written must see whole requests, in order, and never fewer than before.
#[test]
fn readers_see_whole_requests_in_order() {
    let seed = seeded().next_u64();
    let server = Server::new();
    let mut writers: Vec<_> = (0..2).map(|id| Writer::new(seed, id)).collect();
    let watched = writers.clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for writer in &mut writers {
            let (server, stop) = (&server, &stop);
            threads.spawn(|| writer.run(server.address, stop));
        }
        let readers: Vec<_> = watched
            .iter()
            .map(|writer| {
                threads.spawn(|| {
                    let mut seen = Vec::new();
                    // the writer may begin late
                    wait_for("a request that a reader sees", || {
                        seen = writer.watch(&server, &seen);
                        (seen.iter().sum::<u64>() > 0).then_some(())
                    });
                    for _ in 0..40 {
                        seen = writer.watch(&server, &seen);
                    }
                    seen.iter().sum::<u64>()
                })
            })
            .collect();
        let seen: Vec<_> = readers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(seen.into_iter().all(|s| s.unwrap_or_else(|e| std::panic::resume_unwind(e)) > 0));
    });
    for writer in &mut writers {
        writer.has_unacknowledged_request = false; // they stopped between two requests
        writer.verify(&server, 0);
    }
}
