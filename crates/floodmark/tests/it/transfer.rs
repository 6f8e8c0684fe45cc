//! Imports, exports and inspects real files with the real executable.

use crate::harness::process::command;
use crate::harness::{Request, Server, now_ms, wire};
use model::{Labels, LabelsBuilder, STALE_NAN_BITS, Samples, TimeRange};
use protocol::encode::tsdb::{BlockChunk, BlockEncoder, BlockFiles};
use protocol::jsonl;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use stdx::rng::Rng;
use tables::METRICS;
use tables::Select;
use tables::read::{Cursor, Footer};

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// Noon on 2026-11-20, in UTC.
const START_MS: i64 = 1_795_176_000_000;

/// The samples of each series: the outer map is from the labels as text, the inner map from a sample's time
/// to the bits of its value.
pub(crate) type Content = BTreeMap<String, BTreeMap<i64, u64>>;

pub(crate) fn run(args: &[&str]) -> Output {
    command(args).stdout(Stdio::piped()).output().expect("run the executable")
}

#[track_caller]
pub(crate) fn succeed(args: &[&str]) -> String {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fail(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
pub(crate) fn import(format: &str, path: &Path, data: &Path) -> Value {
    let out = succeed(&["import", format, text(path), "--data-dir", text(data), "--json", "-q"]);
    serde_json::from_str(&out).unwrap()
}

pub(crate) fn read_lines(lines: &[u8]) -> Content {
    let mut content = Content::new();
    let (mut builder, mut samples) = (LabelsBuilder::new(), Samples::default());
    for line in lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let labels = jsonl::parse(line, &mut builder, &mut samples).unwrap().unwrap();
        let series = content.entry(labels.to_string()).or_default();
        for (t, v) in samples.timestamps.iter().zip(&samples.values) {
            assert_eq!(series.insert(*t, v.to_bits()), None, "a sample twice");
        }
    }
    content
}

pub(crate) fn stored(data: &Path) -> Content {
    read_lines(succeed(&["export", "jsonl", "--data-dir", text(data), "-q"]).as_bytes())
}

fn put_block(dir: &Path, files: &BlockFiles) -> PathBuf {
    let block = dir.join(ULID);
    fs::create_dir_all(block.join("chunks")).unwrap();
    fs::write(block.join("meta.json"), &files.meta).unwrap();
    fs::write(block.join("index"), &files.index).unwrap();
    fs::write(block.join("chunks/000001"), &files.chunks).unwrap();
    fs::write(block.join("tombstones"), &files.tombstones).unwrap();
    block
}

/// Generates values that a careless conversion would change: of any magnitude, and NaNs of any kind.
fn awkward(rng: &mut Rng) -> f64 {
    let bits = match rng.below(8) {
        0 => STALE_NAN_BITS,
        1 => 0x7ff8_0000_0000_0001,
        2 => 0xfff8_dead_beef_0042,
        3 => (-0.0f64).to_bits(),
        4 => f64::INFINITY.to_bits(),
        5 => rng.next_u64(),
        _ => (rng.below(1000) as f64 / 10.0).to_bits(),
    };
    f64::from_bits(bits)
}

/// Creates a block with two days of samples, and its expected content. The block has its series in
/// Prometheus' order, which differs from the order in the table.
fn awkward_block(rng: &mut Rng) -> (BlockFiles, Content) {
    let mut all = Vec::new();
    for i in 0..40 {
        let name = format!("m{}", i % 4);
        let i = i.to_string();
        let mut pairs = vec![("__name__", name.as_str()), ("i", &i)];
        if i.len() == 1 {
            // a label that sorts before `__name__`
            pairs.push(("Zone", "z"));
        }
        all.push(Labels::from_pairs(&pairs));
    }
    all.sort_by(|a, b| a.iter().cmp(b.iter()));
    let mut block = BlockEncoder::new(2);
    let mut content = Content::new();
    for labels in all {
        let times: Vec<i64> = (0..400).map(|k| START_MS + k * 180_000 + rng.below(999) as i64).collect();
        let values: Vec<f64> = times.iter().map(|_| awkward(rng)).collect();
        let chunks: Vec<_> =
            times.chunks(120).zip(values.chunks(120)).map(|(t, v)| BlockChunk::Floats(t, v)).collect();
        block.series(labels.as_ref(), &chunks);
        let samples = times.into_iter().zip(values.into_iter().map(f64::to_bits)).collect();
        content.insert(labels.to_string(), samples);
    }
    (block.finish(ULID), content)
}

/// Replaces the NaNs that JSON lines cannot distinguish with the usual one.
fn without_payloads(mut content: Content) -> Content {
    for bits in content.values_mut().flat_map(BTreeMap::values_mut) {
        if f64::from_bits(*bits).is_nan() && *bits != STALE_NAN_BITS {
            *bits = 0x7ff8_0000_0000_0001;
        }
    }
    content
}

fn parquet_content(dir: &Path) -> Content {
    let mut content = Content::new();
    let mut days = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
    days.sort();
    for file in days.iter().flat_map(|day| fs::read_dir(day).unwrap()) {
        let bytes = bytes::Bytes::from(fs::read(file.unwrap().path()).unwrap());
        let footer = Arc::new(Footer::read(&METRICS, &bytes).unwrap());
        let mut rows = Cursor::new(bytes, footer, Arc::new(Select::ALL), 1 << 20);
        while rows.advance().unwrap() {
            let mut samples = Samples::default();
            rows.read(&mut samples).unwrap();
            let series = content.entry(rows.labels().to_owned().to_string()).or_default();
            series.extend(samples.timestamps.into_iter().zip(samples.values.into_iter().map(f64::to_bits)));
        }
    }
    content
}

#[test]
fn an_imported_block_round_trips_through_parquet_exactly() {
    let seed = Rng::fresh_seed();
    eprintln!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let (files, expected) = awkward_block(&mut Rng::new(seed));
    put_block(&dir.path().join("prometheus"), &files);
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let report = import("tsdb", &dir.path().join("prometheus"), &one);
    assert_eq!(
        (&report["samples"], &report["imported"]),
        (&Value::from(16_000), &Value::from(1)),
        "{report:#}"
    );
    assert_eq!(report["sources"][0]["series"], 40);
    assert_eq!(report["sources"][0]["source"], format!("import/{ULID}"));
    assert_eq!(stored(&one), without_payloads(expected.clone()));

    let again = import("tsdb", &dir.path().join("prometheus"), &one);
    assert_eq!((&again["samples"], &again["already"]), (&Value::from(0), &Value::from(1)));
    let line = succeed(&["import", "tsdb", text(&dir.path().join("prometheus")), "--data-dir", text(&one)]);
    assert!(line.contains("imported before, nothing to do"), "{line}");
    assert_eq!(stored(&one), without_payloads(expected.clone()));

    let (out, back) = (dir.path().join("out"), dir.path().join("back"));
    succeed(&["export", "parquet", "--data-dir", text(&one), "-o", text(&out), "-q"]);
    assert!(parquet_content(&out) == expected, "the exported files differ");
    assert_eq!(import("parquet", &out, &two)["samples"], 16_000);
    succeed(&["export", "parquet", "--data-dir", text(&two), "-o", text(&back), "-q"]);
    assert!(parquet_content(&back) == expected, "the samples differ after export and import");

    let (a, b) = ("{__name__=\"m1\",Zone=\"z\"}", "m3{i=\"7\"}");
    let some = ["export", "jsonl", "--data-dir", text(&one), "--match", a, "--match", b, "-q"];
    let some = read_lines(succeed(&some).as_bytes());
    let names: Vec<&str> = some.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "m1{Zone=\"z\", i=\"1\"}",
            "m1{Zone=\"z\", i=\"5\"}",
            "m1{Zone=\"z\", i=\"9\"}",
            "m3{Zone=\"z\", i=\"7\"}"
        ]
    );
    let start = (START_MS / 1000).to_string();
    let first = ["export", "jsonl", "--data-dir", text(&one), "--start", &start, "--end", &start, "-q"];
    assert!(read_lines(succeed(&first).as_bytes()).values().all(|samples| samples.len() <= 1));
    inspect_is_right(&one, &dir.path().join("prometheus").join(ULID));
}

fn inspect_is_right(data: &Path, block: &Path) {
    let json = |args: &[&str]| -> Value { serde_json::from_str(&succeed(args)).unwrap() };
    let table = json(&["inspect", "table", "--data-dir", text(data), "--json"]);
    let files = table["files"].as_array().unwrap();
    assert_eq!(files.iter().map(|f| f["samples"].as_u64().unwrap()).sum::<u64>(), 16_000);
    let marks = json(&["inspect", "floodmarks", "--data-dir", text(data), "--json"]);
    assert!(marks["table"][format!("import/{ULID}")].is_u64(), "{marks}");
    let file =
        data.join("tables/anonymous/metrics").join(files[0]["path"].as_str().unwrap().replace("%3D", "="));
    let file = json(&["inspect", "file", text(&file), "--json", "--rows", "3"]);
    assert_eq!((&file["samples"], file["rows"].as_array().unwrap().len()), (&files[0]["samples"], 3));
    let block = json(&["inspect", "file", text(block), "--json"]);
    assert_eq!((&block["series"], &block["samples_by_meta"]), (&Value::from(40), &Value::from(16_000)));
    for what in ["table", "floodmarks"] {
        assert!(succeed(&["inspect", what, "--data-dir", text(data)]).contains("import"), "{what}");
    }
}

#[test]
fn contents_of_a_block_other_than_floats_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let labels = |name: &str| Labels::from_pairs(&[("__name__", name)]);
    let t = START_MS;
    let mut block = BlockEncoder::new(1);
    block.series(
        labels("a").as_ref(),
        &[BlockChunk::Floats(&[t, t + 1, t + 2, t + 3], &[1.0, 2.0, 3.0, 4.0])],
    );
    block.delete(TimeRange::new(t + 1, t + 2));
    let histogram = BlockChunk::Other(3, &[0, 5, 1, 2, 3], TimeRange::new(t, t + 9));
    // chunks that overlap, as Prometheus writes them for out-of-order samples
    let (late, early) =
        (BlockChunk::Floats(&[t + 4, t + 6], &[1.0, 2.0]), BlockChunk::Floats(&[t + 5, t + 6], &[3.0, 4.0]));
    block.series(labels("b").as_ref(), &[histogram, late, early]);
    block.series(labels("c").as_ref(), &[BlockChunk::Floats(&[t], &[7.0])]);
    let files = block.finish(ULID);
    put_block(dir.path(), &files);
    let data = dir.path().join("data");
    let report = import("tsdb", &dir.path().join(ULID), &data);
    let skipped = &report["sources"][0]["skipped"];
    assert_eq!(
        (&skipped["deleted samples"], &skipped["native histograms"]),
        (&Value::from(2), &Value::from(5)),
        "{report}"
    );
    let content = stored(&data);
    let bits = |v: f64| v.to_bits();
    assert_eq!(content["a{}"], BTreeMap::from([(t, bits(1.0)), (t + 3, bits(4.0))]));
    assert_eq!(content["b{}"], BTreeMap::from([(t + 4, bits(1.0)), (t + 5, bits(3.0)), (t + 6, bits(4.0))]));

    // with a wrong byte in a chunk, nothing is imported unless damaged chunks may be skipped
    let mut damaged = files.clone();
    let last = damaged.chunks.len() - 6;
    damaged.chunks[last] ^= 1;
    let other = dir.path().join("other");
    let block = put_block(&dir.path().join("damaged"), &damaged);
    let complaint = fail(&["import", "tsdb", text(&block), "--data-dir", text(&other)]);
    assert!(complaint.contains("fails its checksum") && complaint.contains("--skip-damaged"), "{complaint}");
    assert!(stored(&other).is_empty());
    succeed(&["import", "tsdb", text(&block), "--data-dir", text(&other), "--skip-damaged"]);
    let content = stored(&other);
    assert_eq!(content.keys().collect::<Vec<_>>(), ["a{}", "b{}"]);
}

#[test]
fn text_and_lines_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let openmetrics = "# TYPE b counter\nb_total{x=\"1\"} 5 1795176000.5 # {id=\"7\"} 1 1795176000\n\
                       a 1 1795176001\nb_total{x=\"1\"} 4 1795176000\na NaN 1795089600\n# EOF\n";
    let prometheus = "b_total{x=\"1\"} 5 1795176000500\na 1 1795176001000\n\nb_total{x=\"1\"} 4 1795176000000\n\
                      a NaN 1795089600000\nno_time 1\n";
    let lines = "{\"metric\":{\"__name__\":\"b_total\",\"x\":\"1\"},\"values\":[5,4],\"timestamps\":[1795176000500,1795176000000]}\n\
                 {\"metric\":{\"__name__\":\"a\"},\"values\":[\"NaN\",1],\"timestamps\":[1795089600000,1795176001000]}\n";
    let mut contents = Vec::new();
    for (format, text) in [("openmetrics", openmetrics), ("prometheus", prometheus), ("jsonl", lines)] {
        fs::write(at(format), text).unwrap();
        let report = import(format, &at(format), &at(&format!("{format}-data")));
        assert_eq!(report["samples"], 4, "{report}");
        contents.push(stored(&at(&format!("{format}-data"))));
    }
    assert_eq!(contents[0]["b_total{x=\"1\"}"].len(), 2);
    assert!(contents.iter().all(|content| *content == contents[0]), "{contents:?}");

    // samples also survive an export and import as text
    for format in ["openmetrics", "prometheus"] {
        let out = at(&format!("{format}-out"));
        succeed(&["export", format, "--data-dir", text(&at("jsonl-data")), "-o", text(&out), "-q"]);
        import(format, &out, &at(&format!("{format}-again")));
        assert_eq!(stored(&at(&format!("{format}-again"))), contents[0]);
    }
    fs::write(at("cut"), &openmetrics[..openmetrics.len() - 6]).unwrap();
    let complaint = fail(&["import", "openmetrics", text(&at("cut")), "--data-dir", text(&at("cut-data"))]);
    assert!(complaint.contains("# EOF"), "{complaint}");
    fs::write(at("bad"), "a 1 1\nb x 2\n").unwrap();
    let complaint = fail(&["import", "prometheus", text(&at("bad")), "--data-dir", text(&at("cut-data"))]);
    assert!(complaint.contains("line 2") && complaint.contains("missing or invalid value"), "{complaint}");
}

#[test]
fn an_import_that_is_killed_begins_again_with_nothing_doubled() {
    let mut rng = Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let (files, expected) = awkward_block(&mut rng);
    put_block(dir.path(), &files);
    let data = dir.path().join("data");
    let block = dir.path().join(ULID);
    // a server is using the same directory
    let server = Server::start(crate::harness::Options::default().data_dir(&data));
    for _ in 0..6 {
        let mut child =
            command(&["import", "tsdb", text(&block), "--data-dir", text(&data), "-q"]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(rng.below(400)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    import("tsdb", &block, &data);
    assert_eq!(stored(&data), without_payloads(expected));
    drop(server);
}

/// A path with a typing error must not become a data directory that no server reads.
#[test]
fn imports_and_exports_do_not_create_directories_for_wrong_paths() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("lines"), "a 1 1795176000000\n").unwrap();
    let import = |source: &str, data: &str| {
        run(&["import", "prometheus", text(&at(source)), "--data-dir", text(&at(data)), "-q"])
    };
    let check = |output: Output, expected: &str| {
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{expected} is missing in {said}");
    };
    check(import("no-lines", "data"), "cannot import");
    check(import("lines", "typo/data"), "typo does not exist either");
    check(run(&["export", "jsonl", "--data-dir", text(&at("typo"))]), "--data-dir");
    check(run(&["inspect", "table", "--data-dir", text(&at("typo"))]), "--data-dir");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["lines"]);
    for is_new in [true, false] {
        let output = import("lines", "data");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.contains("there was no data directory at"), is_new, "{said}");
    }
}

/// The server and the import find the tables because they read the same configuration. The server then sees
/// what the import commits.
#[test]
fn a_running_server_sees_what_is_imported_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let tables = url::Url::from_directory_path(at("elsewhere")).unwrap();
    let config = format!("tables = \"{tables}\"\n");
    let server = Server::start(crate::harness::Options::default().data_dir(&at("data")).config(&config));
    fs::write(at("server.toml"), &config).unwrap();
    let now = now_ms();
    let series = wire::Series::new(&[("__name__", "old")]).sample(now, 1.0);
    server.send(&Request::write(&wire::v1(&[series]))).expect(204, &[]);
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    fs::write(at("lines"), format!("new 2 {now}\n")).unwrap();
    let (lines, data, file) = (at("lines"), at("data"), at("server.toml"));
    let place = ["--data-dir", text(&data), "--config", text(&file), "-q"];
    succeed(&[&["import", "prometheus", text(&lines)][..], &place].concat());
    server.send(&Request::post("/api/v1/admin/compact", Vec::new())).expect(200, &["success"]);
    let values = server.query("{__name__=~\"old|new\"}", now);
    assert_eq!(values["result"].as_array().map(Vec::len), Some(2), "{values}");
    assert!(!at("data").join("tables").exists(), "the data directory has tables too");
}

#[test]
fn a_server_exports_what_it_has() {
    let server = Server::new();
    let end_ms = now_ms();
    let series = |name: &str, job: &str| {
        let samples = (0..30_000i64).map(|i| (end_ms - 3_000_000 + i * 100, i as f64 / 10.0));
        wire::Series::new(&[("__name__", name), ("job", job)]).samples(samples)
    };
    for s in [series("a", "x"), series("a", "y"), series("b", "x")] {
        server.send(&Request::write(&wire::v1(&[s]))).expect(204, &[]);
    }
    let ask = |params: &[(&str, &str)]| server.send(&Request::form("/api/v1/export", params));
    // a series that more than one selector matches is exported only once
    let reply = ask(&[("match[]", "a"), ("match[]", "{job=\"x\"}")]);
    assert_eq!(reply.status, 200);
    let content = read_lines(&reply.body);
    assert_eq!(content.values().map(BTreeMap::len).collect::<Vec<_>>(), [30_000; 3]);
    assert_eq!(content["a{job=\"x\"}"][&(end_ms - 3_000_000 + 700)], 0.7f64.to_bits());
    let cut = ask(&[("match[]", "b"), ("max_rows_per_line", "100")]);
    assert_eq!(cut.text().lines().count(), 300);

    let text = ask(&[("match[]", "b"), ("format", "openmetrics")]).text();
    assert!(text.starts_with("b{job=\"x\"} 0 ") && text.ends_with("# EOF\n"), "{}", &text[..40]);
    assert_eq!(text.lines().count(), 30_001);
    let start = crate::harness::read::seconds(end_ms - 100);
    let text = ask(&[("match[]", "b"), ("format", "prometheus"), ("start", &start)]).text();
    assert_eq!(text, format!("b{{job=\"x\"}} 2999.9 {}\n", end_ms - 100));
    // now, some samples are in tables and others in memory
    server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    let fresh = wire::Series::new(&[("__name__", "b"), ("job", "x")]).sample(end_ms, 1.0);
    server.send(&Request::write(&wire::v1(&[fresh]))).expect(204, &[]);
    let again = read_lines(&ask(&[("match[]", "a"), ("match[]", "{job=\"x\"}")]).body);
    let fresh = again["b{job=\"x\"}"].get(&end_ms);
    assert_eq!((again.len(), fresh), (3, Some(&1f64.to_bits())));
    let same = |(series, samples): (&String, &BTreeMap<_, _>)| {
        samples.iter().all(|(at, value)| again[series].get(at) == Some(value))
    };
    assert!(content.iter().all(same), "sealed samples are exported differently");
    ask(&[]).expect(400, &["no match[]"]);
    ask(&[("match[]", "b"), ("format", "xml")]).expect(400, &["format", "jsonl"]);
    assert_eq!(ask(&[("match[]", "nothing")]).body, b"");
}
