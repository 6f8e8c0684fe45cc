//! Imports files of Graphite's own Whisper library, and lets the library read exported files.
//!
//! The script `scripts/test-servers.sh` installs the library.

use crate::harness::now_ms;
use crate::harness::programs::cache;
use crate::transfer::{Content, import, run, stored, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use stdx::rng::Rng;

/// Runs the reference. Returns `None` if the library is not installed.
fn reference(args: &[&str]) -> Option<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/whisper/reference.py");
    let mut command = Command::new(cache().join("graphite/bin/python"));
    let ended = command.arg("-B").arg(script).args(args).output().ok()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("ModuleNotFoundError") {
        return None;
    }
    assert!(ended.status.success(), "{args:?}: {said}");
    Some(serde_json::from_slice(&ended.stdout).expect("the script prints no JSON"))
}

/// Labels of the series in a file, as text.
fn labels(file: &str) -> String {
    let path = file.strip_suffix(".wsp").unwrap();
    match path.strip_prefix("_tagged/0a1/b2c/") {
        Some(_) => r#"disk.used{host="a", rack="b"}"#.into(),
        None => format!("{}{{}}", path.replace('/', ".")),
    }
}

fn points(found: &Value) -> BTreeMap<i64, u64> {
    let point =
        |(at_s, value): (&String, &Value)| (1000 * at_s.parse::<i64>().unwrap(), value.as_u64().unwrap());
    found.as_object().unwrap().iter().map(point).collect()
}

#[test]
fn files_of_whisper_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (files, data) = (dir.path().join("whisper"), dir.path().join("data"));
    let (seed, now_s) = (Rng::fresh_seed() >> 33, now_ms() / 1000);
    eprintln!("seed {seed}, now {now_s}");
    let Some(made) = reference(&["make", text(&files), &seed.to_string(), &now_s.to_string()]) else {
        return stdx::skipped::for_want_of("Graphite's Whisper library (scripts/test-servers.sh)");
    };
    let expected = made.as_object().unwrap().iter().map(|(name, found)| (labels(name), points(found)));
    let expected: Content = expected.filter(|(_, points)| !points.is_empty()).collect();
    let summary = import("whisper", &files, &data);
    let samples: usize = expected.values().map(BTreeMap::len).sum();
    assert_eq!((&summary["samples"], &summary["imported"]), (&samples.into(), &1.into()), "{summary}");
    let found = stored(&data);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (series, points) in &expected {
        assert!(&found[series] == points, "{series}: {:?}, expected {points:?}", found[series]);
    }
    // a second import does nothing
    let again = import("whisper", &files, &data);
    assert_eq!((&again["imported"], &again["already"]), (&0.into(), &1.into()), "{again}");
    // a damaged file is an error with its name, unless it is left out
    std::fs::write(files.join("servers/broken.wsp"), b"not whisper").unwrap();
    let error = run(&["import", "whisper", text(&files), "--data-dir", text(&data), "-q"]);
    let error = String::from_utf8(error.stderr).unwrap();
    assert!(error.contains("broken.wsp is damaged (--skip-damaged skips it)"), "{error}");
    let args =
        ["import", "whisper", text(&files), "--data-dir", text(&data), "--json", "-q", "--skip-damaged"];
    let summary: Value = serde_json::from_slice(&run(&args).stdout).unwrap();
    assert_eq!(summary["sources"][0]["skipped"]["damaged files"], 1, "{summary}");
}
