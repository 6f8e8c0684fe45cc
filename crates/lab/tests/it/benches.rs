//! Runs the benchmarks with small inputs, to test that they still work.

#[path = "../../benches/generate/cases.rs"]
mod cases;

#[test]
fn generate() {
    let lines = cases::run_all(cases::Size::SMALL);
    assert!(lines.len() >= 7, "{lines:?}");
    assert!(cases::Size::LARGE != cases::Size::SMALL);
}
