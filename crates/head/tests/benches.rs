//! Runs the cases of the benchmarks with small inputs.

#![allow(dead_code, unused_imports, reason = "the benchmarks use the whole module")]

#[path = "../benches/head/cases/mod.rs"]
mod cases;

use cases::gorilla::XorChunk;
use cases::shapes::{Shape, samples};
use cases::{Case, Size, build_fleet, compare_formats, freeze_and_evict};
use model::Samples;

#[test]
fn every_case_runs_small() {
    for case in Case::all() {
        let mut prepared = case.prepare(Size::SMALL);
        assert!(prepared.units > 0, "{}", case.name);
        assert!(prepared.run() != prepared.run().wrapping_add(1), "{}", case.name);
    }
}

#[test]
fn formats_are_compared_small() {
    let rows = compare_formats(4, 300, 1);
    assert!(rows.len() >= 10, "{rows:?}");
    assert!(rows.iter().all(|r| r.bytes_per_sample > 0.0));
}

#[test]
fn samples_and_series_leave_small() {
    let rows = freeze_and_evict(3000, 2);
    assert!(rows.last().is_some_and(|row| row.stage == "evict" && row.bytes < 30.0), "{rows:?}");
}

#[test]
fn a_fleet_is_built_small() {
    let report = build_fleet(2000, 4);
    assert_eq!(report.series, 2000);
    assert!(report.parts.iter().map(|(_, bytes)| bytes).sum::<usize>() < 2000 * 1024, "{report:?}");
}

#[test]
fn xor_chunks_return_what_was_appended() {
    let check = |all: &Samples| {
        let mut chunk = XorChunk::default();
        all.timestamps.iter().zip(&all.values).for_each(|(t, v)| chunk.append(*t, *v));
        let mut out = Samples::default();
        chunk.read(&mut out);
        assert_eq!(out.timestamps, all.timestamps);
        let bits = |s: &Samples| s.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(all));
        chunk.bytes()
    };
    for shape in [Shape::Counter, Shape::Gauge, Shape::Constant, Shape::Walk, Shape::Mix] {
        for jitter_ms in [0, 8, 5000] {
            (0..8).for_each(|series| {
                check(&samples(shape, series, 200, jitter_ms));
            });
        }
    }
    let odd = [f64::NAN, 0.0, -0.0, f64::INFINITY, 5e-324, f64::MAX, -f64::MAX, 1.0];
    check(&Samples { timestamps: vec![-5, 0, 1, 3, 70, 400, 3000, 1 << 50], values: odd.to_vec() });
    let constant = check(&samples(Shape::Constant, 1, 240, 0));
    assert!(constant < 90, "two bits a sample: {constant}");
}
