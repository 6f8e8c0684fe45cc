//! Measures how fast records are written and read: `cargo bench -p journal [-- <part of a name>]`.
//!
//! The samples resemble those of scraped targets, with counters, gauges and constants. All samples of a
//! target have the same timestamp.

use journal::records::{self, BatchHeader};
use journal::{Durability, Files, Item, Journal, Offset, Options, Record, RecordEncoder};
use model::{AttributeValue, Labels, Records, RecordsBuilder, SeriesRef, StreamName, TenantId};
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use stdx::rng::{Rng, mix};

struct Size {
    /// Number of series per target. A record has one sample of each.
    metrics: usize,
    targets: usize,
    time: Duration,
    journal_bytes: u64,
}

const FULL: Size =
    Size { metrics: 2000, targets: 20, time: Duration::from_millis(500), journal_bytes: 512 << 20 };
const SMALL: Size = Size { metrics: 50, targets: 3, time: Duration::ZERO, journal_bytes: 1 << 20 };

fn main() {
    // cargo passes `--bench` for `cargo bench`, but not for `cargo test`
    let full = std::env::args().any(|a| a == "--bench");
    let size = if full { FULL } else { SMALL };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    type Bench = fn(&Size);
    let benches: [(&str, Bench); 6] = [
        ("definitions", definitions),
        ("samples", samples),
        ("append", append),
        ("sync", sync),
        ("read", read),
        ("streams", streams),
    ];
    for (name, bench) in benches {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            bench(&size);
        }
    }
}

/// Nanoseconds of the fastest of several runs.
fn best_ns(size: &Size, mut run: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    loop {
        let begin = Instant::now();
        run();
        best = best.min(begin.elapsed().as_nanos() as f64);
        if start.elapsed() >= size.time {
            return best;
        }
    }
}

fn target_labels(target: usize, metrics: usize) -> Vec<Labels> {
    let id = mix(target as u64);
    let pod = format!("checkout-api-{id:012x}-{:05x}", mix(id) & 0xf_ffff);
    let (instance, node) = (format!("10.96.{target}.17:9102"), format!("ip-10-96-{target}-17.internal"));
    (0..metrics)
        .map(|m| {
            Labels::from_pairs(&[
                ("__name__", &format!("metric_{m}")),
                ("cluster", "prod-eu-central-1a"),
                ("container", "checkout-api"),
                ("endpoint", "http-metrics"),
                ("instance", &instance),
                ("job", "checkout-api"),
                ("namespace", "team-checkout"),
                ("node", &node),
                ("pod", &pod),
                ("region", "eu-central-1"),
            ])
        })
        .collect()
}

fn values(count: usize, rng: &mut Rng) -> Vec<f64> {
    let value = |i: usize, rng: &mut Rng| match i % 4 {
        0 | 1 => rng.below(50_000_000) as f64,
        2 => {
            let (magnitude, decimals) =
                (10f64.powi(rng.below(5) as i32), 10f64.powi(2 + rng.below(2) as i32));
            (rng.unit() * 10.0 * magnitude * decimals).round() / decimals
        }
        _ => rng.below(4096) as f64,
    };
    (0..count).map(|i| value(i, rng)).collect()
}

fn definitions(size: &Size) {
    let targets: Vec<Vec<Labels>> = (0..size.targets).map(|t| target_labels(t, size.metrics)).collect();
    let count = (size.targets * size.metrics) as f64;
    let mut shuffled: Vec<Labels> = targets.concat();
    let mut rng = Rng::new(3);
    (1..shuffled.len()).rev().for_each(|i| shuffled.swap(i, rng.below(i as u64 + 1) as usize));
    let shuffled: Vec<Vec<Labels>> = shuffled.chunks(size.metrics).map(<[_]>::to_vec).collect();
    for (name, batches) in [("in order", &targets), ("shuffled", &shuffled)] {
        let mut encoder = RecordEncoder::new();
        let mut records = Vec::new();
        let encode_ns = best_ns(size, || {
            records.clear();
            for (t, batch) in batches.iter().enumerate() {
                encoder.begin(&TenantId::anonymous());
                for (i, labels) in batch.iter().enumerate() {
                    encoder.define(SeriesRef((t * size.metrics + i) as u32), labels.as_ref());
                }
                records.push(encoder.finish().to_vec());
            }
        });
        let bytes: usize = records.iter().map(Vec::len).sum();
        let mut record = Record::new();
        let decode_ns = best_ns(size, || {
            for bytes in &records {
                record.decode(bytes).expect("a record that this program encoded");
                black_box(record.definitions.iter().count());
            }
        });
        println!(
            "definitions, {name}: {:.1} bytes, encode {:.0} ns, decode {:.0} ns each",
            bytes as f64 / count,
            encode_ns / count,
            decode_ns / count
        );
    }
}

/// Lines of a web server's log with eleven attributes, as JSON and as records.
fn log_lines(count: u64) -> (usize, Records) {
    let mut builder = RecordsBuilder::new();
    let mut json_bytes = 0;
    for n in 0..count {
        let random = mix(n);
        let host = format!("ip-10-96-{}-17", random % 250);
        let path = ["/api/v1/orders", "/api/v1/users/self/sessions", "/healthz", "/static/app.js"];
        let path = path[(random >> 8) as usize % 4];
        let time = format!("2026-11-21T18:{:02}:{:02}.{:06}Z", n / 60 % 60, n % 60, random % 1_000_000);
        let message = format!("request of customer {} completed", random % 5000);
        let trace = format!("{random:016x}");
        let values = [
            ("@timestamp", AttributeValue::Text(&time)),
            ("level", AttributeValue::Text(if random.is_multiple_of(10) { "warn" } else { "info" })),
            ("service", AttributeValue::Text("checkout-api")),
            ("host.name", AttributeValue::Text(&host)),
            ("host.zone", AttributeValue::Text("eu-central-1a")),
            ("http.method", AttributeValue::Text("GET")),
            ("http.path", AttributeValue::Text(path)),
            ("http.status", AttributeValue::Int(if random.is_multiple_of(50) { 500 } else { 200 })),
            ("http.bytes", AttributeValue::Int((random % 100_000) as i64)),
            ("duration_ms", AttributeValue::Float((random % 1_000_000) as f64 / 1000.0)),
            ("trace_id", AttributeValue::Text(&trace)),
            ("message", AttributeValue::Text(&message)),
        ];
        for (path, value) in values {
            builder.put(path, value).expect("BUG: too many attributes");
            // "path":value, where the prefix of a nested path is there once for two attributes
            let text_bytes = match value {
                AttributeValue::Text(text) => text.len() + 2,
                AttributeValue::Int(value) => value.to_string().len(),
                _ => 7,
            };
            json_bytes += path.len() + 4 + text_bytes;
        }
        builder.end(1_795_284_000_000_000 + n as i64 * 1_000_000);
    }
    (json_bytes, builder.finish())
}

fn streams(size: &Size) {
    let (json_bytes, records) = log_lines(size.metrics as u64);
    let header = BatchHeader {
        tenant: TenantId::anonymous(),
        stream: StreamName::parse("nginx").expect("BUG: an invalid name"),
        arrival_us: 1_795_284_000_000_000,
        id: None,
        records: records.len() as u32,
    };
    let mut bytes = Vec::new();
    let encode_ns = best_ns(size, || {
        bytes.clear();
        records::encode(&mut bytes, &header, &records).unwrap();
    });
    let decode_ns = best_ns(size, || {
        black_box(records::decode(&bytes).expect("a batch that this program encoded"));
    });
    let speed = |ns: f64| json_bytes as f64 / ns * 1000.0;
    println!(
        "streams: {} bytes of JSON and {:.1} in the journal a record, encode {:.0} MB/s of JSON, decode {:.0} MB/s",
        json_bytes / records.len(),
        bytes.len() as f64 / records.len() as f64,
        speed(encode_ns),
        speed(decode_ns)
    );
}

fn sample_records(size: &Size) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1);
    let mut encoder = RecordEncoder::new();
    (0..size.targets)
        .map(|t| {
            encoder.begin(&TenantId::anonymous());
            for (i, value) in values(size.metrics, &mut rng).into_iter().enumerate() {
                let series = SeriesRef((t * size.metrics + i) as u32);
                encoder.sample(series, 1_795_276_800_000 + 733 * t as i64, value);
            }
            encoder.finish().to_vec()
        })
        .collect()
}

fn samples(size: &Size) {
    let columns: Vec<Vec<f64>> = {
        let mut rng = Rng::new(1);
        (0..size.targets).map(|_| values(size.metrics, &mut rng)).collect()
    };
    let count = (size.targets * size.metrics) as f64;
    let mut encoder = RecordEncoder::new();
    let tenant = TenantId::anonymous();
    let push_ns = best_ns(size, || {
        for (t, values) in columns.iter().enumerate() {
            encoder.begin(&tenant);
            for (i, &value) in values.iter().enumerate() {
                encoder.sample(SeriesRef((t * size.metrics + i) as u32), 1_795_276_800_000, value);
            }
            black_box(encoder.is_empty());
        }
    });
    let encode_ns = best_ns(size, || {
        for (t, values) in columns.iter().enumerate() {
            encoder.begin(&tenant);
            for (i, &value) in values.iter().enumerate() {
                encoder.sample(SeriesRef((t * size.metrics + i) as u32), 1_795_276_800_000, value);
            }
            black_box(encoder.finish());
        }
    });
    let records = sample_records(size);
    let bytes: usize = records.iter().map(Vec::len).sum();
    let mut record = Record::new();
    let decode_ns = best_ns(size, || {
        for bytes in &records {
            record.decode(bytes).expect("a record that this program encoded");
            black_box(&record.values);
        }
    });
    println!(
        "samples: {:.2} bytes, encode {:.1} ns ({:.1} of them to buffer the sample), decode {:.1} ns each",
        bytes as f64 / count,
        encode_ns / count,
        push_ns / count,
        decode_ns / count
    );
}

fn open(dir: &Path, durability: Durability) -> Files {
    Files::open(dir, 0, Options { durability, ..Options::default() }).expect("a journal in a new directory")
}

fn write_groups(journal: &mut Files, records: &[Vec<u8>], groups: usize) -> Vec<f64> {
    let mut seconds: Vec<f64> = (0..groups)
        .map(|g| {
            let begin = Instant::now();
            journal.begin().expect("room for a group");
            journal.append(&records[g % records.len()]).expect("room for a record");
            journal.sync().expect("a disk that works");
            begin.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_unstable_by(f64::total_cmp);
    seconds
}

fn report_groups(name: &str, seconds: &[f64], record_bytes: usize) {
    let quantile = |q: f64| 1e6 * seconds[((seconds.len() - 1) as f64 * q) as usize];
    let total: f64 = seconds.iter().sum();
    println!(
        "{name}: {:.0} MB/s, a group of {record_bytes} bytes takes {:.1} us (p50), {:.1} us (p99), {:.1} us (max)",
        record_bytes as f64 * seconds.len() as f64 / total / 1e6,
        quantile(0.5),
        quantile(0.99),
        quantile(1.0)
    );
}

fn append(size: &Size) {
    let records = sample_records(size);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut journal = open(dir.path(), Durability::Os);
    let groups = (size.journal_bytes as usize / records[0].len()).max(1);
    report_groups("append, os", &write_groups(&mut journal, &records, groups), records[0].len());
}

fn sync(size: &Size) {
    let records = sample_records(size);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut journal = open(dir.path(), Durability::Fsync);
    let groups = (size.journal_bytes as usize / records[0].len() / 8).max(1);
    report_groups("append, fsync", &write_groups(&mut journal, &records, groups), records[0].len());
}

fn read(size: &Size) {
    let records = sample_records(size);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut journal = open(dir.path(), Durability::Os);
    let groups = (size.journal_bytes as usize / records[0].len()).max(1);
    write_groups(&mut journal, &records, groups);
    let bytes = journal.stats().bytes as f64;
    let begin = Instant::now();
    let journal = drop_and_open(journal, dir.path());
    let open_s = begin.elapsed().as_secs_f64();

    let mut record = Record::new();
    for decoding in [false, true] {
        let begin = Instant::now();
        let mut reader = journal.read(Offset(0)).expect("an existing journal");
        let (mut count, mut samples) = (0, 0);
        while let Some(item) = reader.next().expect("a disk that works") {
            let Item::Entry(entry) = item else { panic!("damage in an undamaged journal") };
            count += 1;
            if decoding {
                record.decode(entry.payload).expect("a record that this program encoded");
                samples += record.values.len();
            }
        }
        assert_eq!(count, groups);
        let seconds = begin.elapsed().as_secs_f64();
        let what = if decoding { "read and decode" } else { "read" };
        println!(
            "{what}: {:.0} MB/s, {:.1} ns a sample",
            bytes / seconds / 1e6,
            if decoding { 1e9 * seconds / samples as f64 } else { 0.0 }
        );
    }
    println!("open after a restart: {:.0} ms", 1e3 * open_s);
}

fn drop_and_open(journal: Files, dir: &Path) -> Files {
    drop(journal);
    open(dir, Durability::Os)
}
