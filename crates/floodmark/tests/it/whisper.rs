//! Imports files of Graphite's own Whisper library, and lets the library read exported files.
//!
//! The script `scripts/test-servers.sh` installs the library.

mod moving;

use crate::harness::programs::cache;
use crate::harness::{Options, Request, Server, now_ms};
use crate::transfer::{Content, import, run, stored, succeed, text};
use model::STALE_NAN_BITS;
use protocol::whisper::{Archive, File, Header};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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

/// The seed of the files, and the time at which they are made, in seconds. `TEST_SEED` and `TEST_NOW_S` repeat a run.
fn seed_and_now_s() -> (u64, i64) {
    let given = |variable: &str| {
        let text = std::env::var(variable).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
    };
    let seed = given("TEST_SEED").unwrap_or_else(|| Rng::fresh_seed() >> 33);
    let now_s = given("TEST_NOW_S").map_or_else(|| now_ms() / 1000, |now_s| now_s as i64);
    eprintln!("seed {seed}, now {now_s}");
    (seed, now_s)
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
    let (seed, now_s) = seed_and_now_s();
    let Some(made) = reference(&["make", text(&files), &seed.to_string(), &now_s.to_string()]) else {
        return stdx::skipped::for_want_of("Graphite's Whisper library (scripts/test-servers.sh)");
    };
    let expected = made.as_object().unwrap().iter().map(|(name, found)| (labels(name), points(found)));
    let expected: Content = expected.filter(|(_, points)| !points.is_empty()).collect();
    let summary = import("whisper", &files, &data);
    let samples: usize = expected.values().map(BTreeMap::len).sum();
    assert_eq!((&summary["samples"], &summary["imported"]), (&samples.into(), &1.into()), "{summary}");
    let mut found = stored(&data);
    found.values_mut().for_each(|points| points.retain(|_, bits| *bits != STALE_NAN_BITS)); // marks
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

/// Rules for the files that the reference makes, whose names say how they are made.
fn write_rules(dir: &Path) {
    let shapes = ["60:120", "10s:10m,1m:3h,10m:200", "1:120,10:90,60:1h,1h:50h", "60s:1d,5m:14d,1h:4380"];
    let schema = |(number, retentions): (usize, &&str)| {
        format!("[s{number}]\npattern = \\.s{number}\\.\nretentions = {retentions}\n")
    };
    let schemas: String = shapes.iter().enumerate().map(schema).collect();
    std::fs::write(dir.join("schemas.conf"), schemas).unwrap();
    let mut aggregation = String::new();
    for method in ["average", "sum", "last", "max", "min", "avg_zero", "absmax", "absmin"] {
        for factor in ["0.0", "0.1", "0.5", "1.0"] {
            aggregation += &format!(
                "[{method} {factor}]\npattern = \\.{method}\\.x{}\\.\nxFilesFactor = {factor}\n\
                 aggregationMethod = {method}\n",
                factor.replace('.', "_")
            );
        }
    }
    std::fs::write(dir.join("aggregation.conf"), aggregation).unwrap();
}

/// Files are imported, and `/render` is asked for the range of each archive. It must answer what Whisper answers.
#[test]
fn imported_files_answer_like_whisper() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("whisper");
    let (seed, now_s) = seed_and_now_s();
    if reference(&["make", text(&files), &seed.to_string(), &now_s.to_string()]).is_none() {
        return stdx::skipped::for_want_of("Graphite's Whisper library (scripts/test-servers.sh)");
    }
    write_rules(dir.path());
    let flag = |name: &str, file: &str| format!("--graphite-{name}={}", dir.path().join(file).display());
    let options = Options::default().arg(&flag("schemas", "schemas.conf"));
    let server = Server::start(options.arg(&flag("aggregation", "aggregation.conf")));
    import("whisper", &files, &server.data_dir());
    let fetched = reference(&["fetch", text(&files), &now_s.to_string()]).unwrap();
    let fetched = fetched.as_array().unwrap();
    let has_points = |fetch: &Value| !fetch["points"].as_object().unwrap().is_empty();
    let with_points: BTreeSet<_> =
        fetched.iter().filter(|fetch| has_points(fetch)).filter_map(|fetch| fetch["file"].as_str()).collect();
    let (mut same, mut more, mut silent) = (0, 0, 0);
    for fetch in fetched {
        let file = fetch["file"].as_str().unwrap();
        if !file.starts_with("many/") {
            continue;
        }
        let name = file.strip_suffix(".wsp").unwrap().replace('/', ".");
        let (from_s, step_s) = (fetch["from"].as_i64().unwrap(), fetch["step"].as_i64().unwrap());
        let query = format!("/render?format=json&target={name}&from={from_s}&until={now_s}&now={now_s}");
        let answer = server.send(&Request::get(&query)).expect(200, &[]).json();
        // like the file, the series is there in ranges without a value
        assert!(answer[0].is_object() || !with_points.contains(file), "{query}: {answer}");
        silent += u32::from(answer[0].is_object() && !has_points(fetch));
        let mut found = BTreeMap::new();
        for point in answer[0]["datapoints"].as_array().into_iter().flatten() {
            if let Some(value) = point[0].as_f64() {
                found.insert(point[1].as_i64().unwrap(), value);
            }
        }
        let (sure_s, unsure) = (fetch["sure"].as_i64().unwrap(), fetch["unsure"].as_array().unwrap());
        for (at_s, value) in fetch["points"].as_object().unwrap() {
            let (at_s, value) = (at_s.parse::<i64>().unwrap(), value.as_f64().unwrap());
            let ours = found.remove(&at_s);
            // a value that stands alone is not averaged with missing values, because it may be history
            let is_left_out = at_s <= sure_s || unsure.contains(&at_s.into());
            if is_left_out || name.contains("avg_zero") && step_s > 1 {
                continue;
            }
            let is_close = ours.is_some_and(|ours| (ours - value).abs() <= 1e-9 * value.abs().max(1.0));
            assert!(is_close, "{name} at {at_s}, step {step_s}: {ours:?}, Whisper has {value}");
            same += 1;
        }
        more += found.len();
    }
    eprintln!("{same} values are the same, Floodmark shows {more} more; {silent} ranges have no value");
    check_export(dir.path(), &files, &server.data_dir(), now_s);
    assert!(same > 100 && more < same, "{same} values are the same, Floodmark shows {more} more");
}

/// Exports the imported series, and compares the files with the original ones. Both are read by Whisper.
fn check_export(dir: &Path, files: &Path, data: &Path, now_s: i64) {
    let config = dir.join("export.toml");
    let (schemas, aggregation) = (dir.join("schemas.conf"), dir.join("aggregation.conf"));
    let settings = format!("graphite_schemas = {schemas:?}\ngraphite_aggregation = {aggregation:?}\n");
    std::fs::write(&config, settings).unwrap();
    let exported = dir.join("exported");
    let now = now_s.to_string();
    let mut args = vec!["export", "whisper", "--config", text(&config), "--data-dir", text(data)];
    args.extend(["-o", text(&exported), "--end", &now]);
    let output = run(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("files, 0 of them named by a hash; left out: 0 series"),
        "{said}"
    );
    let read = |dir: &Path| reference(&["read", text(dir), &now]).unwrap();
    let (before, after) = (read(files), read(&exported));
    let mut same = 0;
    for (name, file) in after.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("many/")) {
        let original = &before[name];
        for part in ["method", "xff", "archives"] {
            assert_eq!(file[part], original[part], "{name}: {part}");
        }
        let sure = original["sure"].as_array().unwrap();
        for (number, sure_s) in sure.iter().enumerate() {
            if number > 0 && file["method"] == "avg_zero" {
                continue;
            }
            let (found, expected) = (points(&file["points"][number]), points(&original["points"][number]));
            let unsure = original["unsure"][number].as_array().unwrap();
            let is_sure = |at_s: i64| at_s > sure_s.as_i64().unwrap() && !unsure.contains(&at_s.into());
            let newer = expected.iter().filter(|(at_ms, _)| is_sure(**at_ms / 1000));
            for (at_ms, bits) in newer {
                let expected = f64::from_bits(*bits);
                let found = found.get(at_ms).map(|bits| f64::from_bits(*bits));
                let is_close =
                    found.is_some_and(|found| (found - expected).abs() <= 1e-9 * expected.abs().max(1.0));
                assert!(is_close, "{name}, archive {number}, at {at_ms}: {found:?}, expected {expected}");
                same += 1;
            }
        }
    }
    eprintln!("{same} exported values are the same");
    assert!(same > 100, "{same} exported values are the same");
}

/// Whoever changes storage-schemas.conf has files with other steps until they are resized. Values at a step of an hour have no neighbours at a
/// step of 15 minutes.
#[test]
fn values_of_a_longer_step_than_that_of_the_schema_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let [data, files, exported] = ["data", "files", "exported"].map(|name| dir.path().join(name));
    let (schemas, config) = (dir.path().join("schemas.conf"), dir.path().join("config.toml"));
    std::fs::write(&schemas, "[all]\npattern = .*\nretentions = 60s:1h,900s:60d\n").unwrap();
    std::fs::write(&config, format!("graphite_schemas = {schemas:?}\n")).unwrap();
    let archives = [(60, 60), (3600, 720)].map(|(step_s, points)| Archive { step_s, points });
    let header = Header { method: 1, x_files_factor: 0.5, archives: archives.to_vec() };
    let hour_s = now_ms() / 1000 / 3600 * 3600;
    let values: Vec<f64> = (0..240).map(f64::from).collect();
    let mut file = header.encode().unwrap();
    file.resize(header.offset(1) as usize, 0);
    file.extend(archives[1].encode(hour_s - 250 * 3600, &values));
    file.resize(header.file_bytes() as usize, 0);
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("a.wsp"), file).unwrap();
    succeed(&["import", "whisper", text(&files), "--data-dir", text(&data), "-q", "--config", text(&config)]);
    let args = ["export", "whisper", "--config", text(&config), "--data-dir", text(&data), "-o"];
    succeed(&[&args[..], &[text(&exported)]].concat());
    let bytes = std::fs::read(exported.join("a.wsp")).unwrap();
    let mut found = Vec::new();
    File::parse(&bytes).unwrap().each(now_ms() / 1000, |_, at_s, value| found.push((at_s, value)));
    let expected: Vec<_> = (0..240).map(|i| (hour_s - (250 - i) * 3600, i as f64)).collect();
    assert_eq!(found, expected);
}

/// Series with tags are exported to the files in which carbon and graphite-web look for them. Imported again, they are the
/// same.
#[test]
fn series_with_tags_are_exported_and_imported() {
    let dir = tempfile::tempdir().unwrap();
    let [data, again, files] = ["data", "again", "files"].map(|name| dir.path().join(name));
    let slot_ms = |count: i64| (now_ms() / 60_000 - count) * 60_000;
    let long = "x".repeat(300);
    let with_long = format!(r#"{{"__name__":"disk","host":"{long}"}}"#);
    // names as JSON, and where the file is
    let series = [
        (r#"{"__name__":"disk.used","host":"web1","dc":"west"}"#, "named"),
        (r#"{"__name__":"disk.used","host":"web1","host1":"a.b"}"#, "named"),
        (r#"{"__name__":"disk.used","mount":"/var/log"}"#, "named"),
        (r#"{"__name__":"höhe","ort":"Zürich = schön"}"#, "named"),
        (r#"{"__name__":"disk_DOT_used","host":"a"}"#, "hashed"),
        (&with_long, "hashed"),
        (r#"{"__name__":"untagged.load"}"#, "named"),
    ];
    let impossible = r#"{"__name__":"disk","host":"a;b"}"#;
    let lines: String = series
        .iter()
        .map(|(labels, _)| *labels)
        .chain([impossible])
        .zip(1..)
        .map(|(labels, value)| {
            format!(
                "{{\"metric\":{labels},\"values\":[{value},0.5],\"timestamps\":[{},{}]}}\n",
                slot_ms(9),
                slot_ms(5)
            )
        })
        .collect();
    let source = dir.path().join("series.jsonl");
    std::fs::write(&source, lines).unwrap();
    import("jsonl", &source, &data);
    let mut expected = stored(&data);
    let config = dir.path().join("export.toml");
    std::fs::write(dir.path().join("schemas.conf"), "[all]\npattern = .*\nretentions = 60s:1d\n").unwrap();
    std::fs::write(&config, format!("graphite_schemas = {:?}\n", dir.path().join("schemas.conf"))).unwrap();
    let args =
        ["export", "whisper", "--config", text(&config), "--data-dir", text(&data), "-o", text(&files)];
    let output = run(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = "7 files, 2 of them named by a hash; left out: 1 series that carbon cannot name";
    assert!(output.status.success() && said.contains(counted), "{said}");
    expected.retain(|labels, _| !labels.contains("a;b"));
    // what is there is not touched
    let output = run(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected_parts = [
        "the file exists, and an export overwrites nothing",
        &format!("{} had 7 Whisper files before this export, which has written 0", text(&files)),
        "Export into a new directory",
    ];
    for part in expected_parts {
        assert!(said.contains(part), "{part} is missing in {said}");
    }

    // without a list of names, hashes have no names
    let summary = import("whisper", &files, &again);
    let reason = "files: named by a hash (--tagged-names names them)";
    assert_eq!(
        (&summary["samples"], &summary["sources"][0]["skipped"][reason]),
        (&10.into(), &2.into()),
        "{summary}"
    );
    let names = [
        "disk.used;host=web1;dc=west".into(),
        "disk.used;host1=a.b;host=web1".into(),
        "disk.used;mount=/var/log".into(),
        "höhe;ort=Zürich = schön".into(),
        "disk_DOT_used;host=a".into(),
        format!("disk;host={long}"),
    ];
    let list = dir.path().join("names.json");
    std::fs::write(&list, serde_json::to_string(&names).unwrap()).unwrap();
    let args =
        ["import", "whisper", text(&files), "--data-dir", text(&again), "-q", "--tagged-names", text(&list)];
    succeed(&args);
    assert_eq!(stored(&again), expected);

    let arguments: Vec<_> =
        ["find", text(&files)].into_iter().chain(names.iter().map(String::as_str)).collect();
    match reference(&arguments) {
        Some(found) => {
            let places: Vec<_> = series[..6].iter().map(|(_, place)| *place).collect();
            assert_eq!(found, serde_json::json!(places));
        }
        None => stdx::skipped::for_want_of("graphite-web (scripts/test-servers.sh)"),
    }
}
