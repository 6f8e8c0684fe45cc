//! A move from carbon in several steps: what is imported meets what is there.

use crate::harness::{Options, Request, Server, now_ms};
use crate::transfer::{import, run, stored, succeed, text};
use protocol::whisper::{Archive, Header};
use serde_json::Value;
use std::fs;
use std::path::Path;

const NONE: f64 = f64::NAN;

/// Writes a file below `dir`. `archives` has the step and the number of points of each archive, the time of its first value, and
/// its values.
fn write_file(dir: &Path, name: &str, method: u32, archives: &[(u32, u32, i64, Vec<f64>)]) {
    let shapes = archives.iter().map(|(step_s, points, ..)| Archive { step_s: *step_s, points: *points });
    let header = Header { method, x_files_factor: 0.5, archives: shapes.collect() };
    let mut bytes = header.encode().unwrap();
    for (number, (.., start_s, values)) in archives.iter().enumerate() {
        bytes.resize(header.offset(number) as usize, 0);
        bytes.extend(header.archives[number].encode(*start_s, values));
    }
    bytes.resize(header.file_bytes() as usize, 0);
    let path = dir.join(name.replace('.', "/") + ".wsp");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A server with one schema and one method for all names.
fn server(dir: &Path, retentions: &str, method: &str) -> Server {
    let schemas = format!("[all]\npattern = .*\nretentions = {retentions}\n");
    let aggregation = format!("[all]\npattern = .*\nxFilesFactor = 0.5\naggregationMethod = {method}\n");
    // samples come before times that are in the table already
    let mut options = Options::default().allow("the clock has jumped ahead");
    for (name, content) in [("schemas", schemas), ("aggregation", aggregation)] {
        let path = dir.join(format!("{name}.conf"));
        fs::write(&path, content).unwrap();
        options = options.arg(&format!("--graphite-{name}={}", text(&path)));
    }
    Server::start(options)
}

fn send(server: &Server, name: &str, samples: impl IntoIterator<Item = (i64, f64)>) {
    let lines = samples.into_iter().map(|(at_s, value)| format!("{name} {value} {at_s}\n"));
    server.send(&Request::post("/api/v1/graphite", lines.collect::<String>().into())).expect(204, &[]);
}

fn see_import(server: &Server) {
    server.send(&Request::post("/api/v1/admin/compact", Vec::new())).expect(200, &[]);
}

/// The values of a metric, NaN for those that are missing.
fn values(server: &Server, name: &str, from_s: i64, until_s: i64) -> Vec<f64> {
    let query = format!("/render?format=json&target={name}&from={from_s}&until={until_s}");
    let answer = server.send(&Request::get(&query)).expect(200, &[]).json();
    let points = answer[0]["datapoints"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
    points.iter().map(|point| point[0].as_f64().unwrap_or(NONE)).collect()
}

#[track_caller]
fn assert_same(found: &[f64], expected: &[f64]) {
    let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
    let is_same = found.len() == expected.len() && found.iter().zip(expected).all(same);
    assert!(is_same, "{found:?}, expected {expected:?}");
}

fn left_out(summary: &Value) -> u64 {
    let count =
        &summary["sources"][0]["skipped"]["coarse values for whose time the series has finer samples"];
    count.as_u64().unwrap_or(0)
}

/// Half an hour of a value each ten seconds, and a sum each minute of the two hours before the end.
fn write_sums(dir: &Path, end_s: i64) {
    let (fine, minutes) = (vec![1.0; 180], vec![6.0; 120]);
    write_file(dir, "a.b", 2, &[(10, 180, end_s - 1800, fine), (60, 1440, end_s - 7200, minutes)]);
}

#[test]
fn a_second_import_keeps_the_finer_samples_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), "10s:30m,60s:1d", "sum");
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let end_s = now_ms() / 60_000 * 60 - 3 * 3600;
    write_sums(&first, end_s);
    write_sums(&second, end_s + 3600);
    assert_eq!(left_out(&import("whisper", &first, &server.data_dir())), 0);
    let summary = import("whisper", &second, &server.data_dir());
    assert_eq!(left_out(&summary), 30, "{summary}");
    let again = import("whisper", &second, &server.data_dir());
    assert_eq!((&again["imported"], &again["already"]), (&0.into(), &1.into()), "{again}");
    see_import(&server);
    assert_same(&values(&server, "a.b", end_s - 7201, end_s + 3599), &[6.0; 180]);
    // PromQL finds the finer samples of the first import, and those that only the second one has
    let count = server.value(r#"count_over_time({"a.b"}[30m])"#, 1000 * end_s - 1);
    assert_eq!(count, Some(180.0));
    let sum = server.value(r#"sum_over_time({"a.b"}[3h])"#, 1000 * (end_s + 3600) - 1);
    assert_eq!(sum, Some(180.0 * 6.0));
}

/// A relay has sent to both. The samples are in memory, in the table, or one part in each.
#[test]
fn samples_that_were_received_count_instead_of_coarse_values() {
    let end_s = now_ms() / 60_000 * 60 - 3 * 3600;
    // for the first hour, one of each six samples is missing, always at the beginning of a minute
    let minutes = |range: std::ops::Range<i64>| {
        let times = range.flat_map(move |minute| (1..6).map(move |i| end_s - 7200 + 60 * minute + 10 * i));
        times.map(|at_s| (at_s, 1.2)).collect::<Vec<_>>()
    };
    let flush = |server: &Server| {
        server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &[]);
    };
    for flushed_minutes in [0, 30, 60] {
        let dir = tempfile::tempdir().unwrap();
        let server = server(dir.path(), "10s:30m,60s:1d", "sum");
        if flushed_minutes > 0 {
            send(&server, "a.b", minutes(0..flushed_minutes));
            flush(&server);
        }
        send(&server, "a.b", minutes(flushed_minutes..60));
        // a single sample at the beginning of a slot may be replaced
        send(&server, "a.b", [(end_s - 3600, 1.0)]);
        let files = dir.path().join("files");
        write_sums(&files, end_s);
        let summary = import("whisper", &files, &server.data_dir());
        assert_eq!(left_out(&summary), 60, "{summary}");
        see_import(&server);
        let check = |when: &str| {
            let mut found = values(&server, "a.b", end_s - 7201, end_s - 1);
            assert_eq!(found.len(), 120);
            found.remove(60);
            let is_close = found.iter().all(|value| (value - 6.0).abs() < 1e-9);
            assert!(is_close, "{flushed_minutes} minutes in the table, {when}: {found:?}");
        };
        check("the others in memory");
        flush(&server);
        check("then all");
    }
}

#[test]
fn values_outside_the_bounds_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let [files, data] = ["files", "data"].map(|name| dir.path().join(name));
    let end_s = now_ms() / 60_000 * 60 - 3 * 3600;
    write_sums(&files, end_s);
    let import = |start_s: i64, last_s: i64| {
        let bounds = [start_s.to_string(), last_s.to_string()];
        let args = ["import", "whisper", text(&files), "--data-dir", text(&data), "--json", "-q"];
        let out =
            succeed(&[&args[..], &["--start", bounds[0].as_str(), "--end", bounds[1].as_str()]].concat());
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let summary = import(end_s - 7200, end_s - 3660);
    let outside = &summary["sources"][0]["skipped"]["values before --start or after --end"];
    assert_eq!((&summary["samples"], outside), (&60.into(), &(30 + 180).into()), "{summary}");
    let times: Vec<_> = stored(&data).into_values().flat_map(std::collections::BTreeMap::into_keys).collect();
    assert_eq!(times, (0..60).map(|i| 1000 * (end_s - 7200 + 60 * i)).collect::<Vec<_>>());
    // with other bounds, the files are another source
    assert_eq!(import(end_s - 7200, end_s - 3660)["already"], 1);
    assert_eq!(import(end_s - 3600, end_s)["samples"], 30 + 180);
    let args = ["import", "jsonl", text(&files), "--data-dir", text(&data), "--start", "0"];
    let output = run(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("only for Whisper files"), "{said}");
}

#[test]
fn a_slot_has_the_same_value_in_every_range() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(dir.path(), "60s:1d,5m:30d", "average");
    let b = now_ms() / 300_000 * 300 - 2 * 86_400;
    let minutes = |start_s: i64| (0..5).map(move |i| (start_s + 60 * i, 1.0));
    send(&server, "a.b", minutes(b - 300).chain([(b, 5.0)]).chain(minutes(b + 300)));
    send(&server, "a.single", [(b, 5.0)]);
    // history of five minutes: a value between long gaps, and rows at both ends
    let mut history = vec![NONE; 40];
    history[..2].fill(1.0);
    history[20] = 7.0;
    history[38..].fill(2.0);
    let files = dir.path().join("files");
    let archives = [(60, 1440, b, vec![NONE]), (300, 8640, b - 20 * 300, history.clone())];
    write_file(&files, "a.history", 1, &archives);
    let summary = import("whisper", &files, &server.data_dir());
    assert_eq!((left_out(&summary), &summary["samples"]), (0, &5.into()), "{summary}");
    see_import(&server);
    let slots = [1.0, NONE, 1.0];
    for (first, last) in [(-1, 1), (0, 0), (0, 1), (-1, 0), (1, 1)] {
        let (from_s, until_s) = (b + 300 * first - 1, b + 300 * last + 299);
        let expected = &slots[(first + 1) as usize..=(last + 1) as usize];
        assert_same(&values(&server, "a.b", from_s, until_s), expected);
    }
    for (first, last) in [(-20, 19), (-1, 1), (0, 0), (-19, 0), (18, 19), (19, 19), (-20, -20)] {
        let (from_s, until_s) = (b + 300 * first - 1, b + 300 * last + 299);
        let part = &history[(first + 20) as usize..=(last + 20) as usize];
        assert_same(&values(&server, "a.history", from_s, until_s), part);
    }
    assert_same(&values(&server, "a.single", b - 301, b + 599), &[NONE, NONE, NONE]);
}
