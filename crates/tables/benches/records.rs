//! Measures the speed of writing, merging and reading records, and their bytes on disk: `cargo bench -p tables --bench
//! records [-- logs|rare|mixed|tiny]`.
//!
//! `logs` is the log of a web service with 16 attributes, in batches of 1,000 records. `rare` has as many attributes of
//! which 11 have no column. In `mixed`, 64 senders' batches overlap in time. `tiny` is `logs` in batches of ten records.
//! Speeds are MB of JSON lines per second of CPU time of this process. The scans read the merged file.
//!
//! Measured on two shared cores (dependencies at opt-level 2 with checks, this crate at 3:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo bench --profile dev -p tables --bench records`), 1,000,000 records:
//!
//! ```text
//! data   JSON B/rec  disk B/rec  merged B/rec  files  columns  write MB/s  merge MB/s  scan MB/s  column MB/s
//! logs          454        41.9          40.8      8       16       443.8       165.6     1909.7     136944.0
//! rare          480        70.7          62.2      9        5       287.3       129.4     1360.7     168553.3
//! mixed         454        42.0          40.8      8       16       285.8       165.8     1929.2     148757.6
//! tiny          454        42.6          41.0     14       16       299.1       163.4     1802.2     149891.0
//! ```

use model::{AttributeValue, Records, RecordsBuilder};
use std::sync::Arc;
use stdx::rng::Rng;
use tables::compact::{self, CompactLimits};
use tables::write::records::RecordBatch;
use tables::{
    Date, FileStem, Location, RECORDS, RecordLimits, RecordScan, RecordSelect, RecordsStager, StagedBlock,
    Stop, Table,
};

/// 2026-11-21T00:00:00Z
const START_US: i64 = 1_795_219_200_000_000;

/// Files of together half of this size are merged into one that is compressed with more effort.
const FILE_BYTES: u64 = 64 << 20;

fn main() {
    // cargo passes --bench under `cargo bench` only
    let full = std::env::args().any(|a| a == "--bench");
    let records = if full { 1_000_000 } else { 2_000 };
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    println!("{records} records");
    println!(
        "data   JSON B/rec  disk B/rec  merged B/rec  files  columns  write MB/s  merge MB/s  scan MB/s  column MB/s"
    );
    for data in ["logs", "rare", "mixed", "tiny"] {
        if wanted.is_empty() || wanted.iter().any(|w| w == data) {
            run(data, records);
        }
    }
}

/// Time that this process has used on all cores.
fn cpu_seconds() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

fn run(data: &str, records: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let location = Location::open(&url, [], runtime.handle().clone()).unwrap();
    let table = Arc::new(Table::open_or_create(&RECORDS, location).unwrap());
    let per_batch = if data == "tiny" { 10 } else { 1000 };
    let mut rng = Rng::new(1);
    let mut json_bytes = 0;
    let batches: Vec<RecordBatch> = (0..records / per_batch)
        .map(|n| RecordBatch {
            stream: ["web", "api"][n % 2].into(),
            arrival_us: START_US + n as i64 * 1_000_000,
            id: Some((n as u64).to_be_bytes().as_slice().into()),
            records: Arc::new(batch(data, n, per_batch, &mut rng, &mut json_bytes)),
        })
        .collect();
    let begun = cpu_seconds();
    let mut stager = RecordsStager::new(&table, FileStem::sealed(1), RecordLimits::default(), None);
    batches.iter().for_each(|batch| stager.push(batch.clone()).unwrap());
    let files = stager.finish().unwrap().files;
    let written = cpu_seconds() - begun;
    let (bytes, count) = (files.iter().map(|f| f.summary.bytes).sum::<u64>(), files.len());
    let block = StagedBlock { source: "j".into(), after: None, upto: 1, through: None, files };
    table.commit(&[block], START_US / 1000).unwrap();
    let columns = table.attributes().list().len();
    let (tomorrow, limits) = (
        Date(Date::of(START_US / 1000).0 + 1),
        CompactLimits { file_bytes: FILE_BYTES, ..CompactLimits::for_records() },
    );
    let begun = cpu_seconds();
    for job in compact::plan(&RECORDS, table.files().unwrap().all(), tomorrow, &limits, |_| false) {
        let stem = FileStem::rewritten(2);
        assert!(compact::run(&table, &job, &stem, limits, &Stop::NEVER, |_| true).unwrap().is_some());
    }
    let merged = cpu_seconds() - begun;
    let scan = |select| {
        let begun = cpu_seconds();
        let scan = RecordScan::open(&table, select).unwrap();
        let rows: usize = scan.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, records);
        json_bytes as f64 / 1e6 / (cpu_seconds() - begun)
    };
    println!(
        "{data:6} {:10.0} {:11.1} {:13.1} {count:6} {columns:8} {:11.1} {:11.1} {:10.1} {:12.1}",
        json_bytes as f64 / records as f64,
        bytes as f64 / records as f64,
        table.data_bytes() as f64 / records as f64,
        json_bytes as f64 / 1e6 / written,
        json_bytes as f64 / 1e6 / merged,
        scan(RecordSelect::ALL),
        scan(RecordSelect { columns: Some(vec!["status".into()]), ..RecordSelect::ALL }),
    );
}

/// Builds a batch. Adds the size of its records as JSON lines to `json_bytes`.
fn batch(data: &str, number: usize, len: usize, rng: &mut Rng, json_bytes: &mut usize) -> Records {
    use AttributeValue::{Bool, Float, Int, Text};
    let mut builder = RecordsBuilder::new();
    let number = if data == "mixed" { number / 64 } else { number };
    for n in 0..len {
        let user = rng.below(20_000);
        let path = format!("/api/v1/items/{}", rng.below(3_000));
        let status = [200, 200, 200, 200, 204, 301, 404, 500][rng.below(8) as usize];
        let message = format!(
            "{} {path} answered {status} for user-{user} after {} attempts",
            ["GET", "POST", "PUT"][rng.below(3) as usize],
            rng.below(4)
        );
        let trace = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let (host, user_name) = (format!("web-{:03}", rng.below(200)), format!("user-{user}"));
        let pod = format!("checkout-7d9f8b6c5-{:05}", rng.below(500));
        let all: [(&str, AttributeValue<'_>); 16] = [
            ("level", Text(["info", "info", "info", "warn", "error"][rng.below(5) as usize])),
            ("service", Text("checkout")),
            ("host", Text(&host)),
            ("k8s.pod", Text(&pod)),
            ("k8s.namespace", Text("production")),
            ("region", Text(["eu-central-1", "us-east-1"][rng.below(2) as usize])),
            ("http.method", Text(&message[..3])),
            ("http.path", Text(&path)),
            ("status", Int(status)),
            ("bytes", Int(rng.below(100_000) as i64)),
            ("duration_ms", Float(rng.below(1_000_000) as f64 / 1000.0)),
            ("cached", Bool(rng.chance(0.3))),
            ("user", Text(&user_name)),
            ("trace_id", Text(&trace)),
            ("attempt", Int(rng.below(4) as i64)),
            ("message", Text(&message)),
        ];
        *json_bytes += r#"{"time":"2026-11-21T00:00:00.000000Z"}"#.len() + 1;
        for (at, (path, value)) in all.into_iter().enumerate() {
            let rare;
            let path = if data == "rare" && at >= 4 && path != "status" {
                rare = format!("{path}.{}", (n + at) % 16);
                &rare
            } else {
                path
            };
            builder.put(path, value).unwrap();
            *json_bytes += path.len() + 4 + size(value);
        }
        builder.end(START_US + (number * len + n) as i64 * 10_000);
    }
    builder.finish()
}

/// Size of a value in JSON.
fn size(value: AttributeValue<'_>) -> usize {
    match value {
        AttributeValue::Bool(value) => value.to_string().len(),
        AttributeValue::Int(value) => value.to_string().len(),
        AttributeValue::Float(value) => value.to_string().len(),
        AttributeValue::Text(text) => text.len() + 2,
        AttributeValue::Json(text) => text.len(),
    }
}
