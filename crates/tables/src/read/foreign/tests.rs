//! Reads files with shuffled rows like those of other engines, and compares the result with a map.

use super::*;
use crate::date::Date;
use crate::kind::metrics::{self, METRICS};
use crate::read::{Cursor, Matcher};
use crate::write::FileWriter;
use crate::write::Stretch;
use arrow_schema::{DataType, Field, TimeUnit};
use bytes::Bytes;
use model::Labels;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use stdx::rng::Rng;

const DAY: i64 = 20_000 * 86_400_000;

type Content = BTreeMap<(String, i64), u64>;

/// Encodes the samples of a series as Floodmark's own writer does.
fn batch(labels: &Labels, samples: &Samples) -> RecordBatch {
    let mut writer = FileWriter::new(&METRICS, Date::of(DAY), Vec::new(), 1 << 20).unwrap();
    let stretch = Stretch {
        labels: labels.as_ref(),
        key: SeriesKey::of(labels.as_bytes(), 7),
        timestamps: &samples.timestamps,
        values: &samples.values,
    };
    writer.push(&stretch).unwrap();
    let (_, bytes) = writer.finish().unwrap();
    let mut rows = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes)).unwrap().build().unwrap();
    rows.next().unwrap().unwrap()
}

/// Schema of a file by another engine: times are in microseconds, and all columns are nullable.
fn foreign_schema() -> Arc<Schema> {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let ours = METRICS.schema();
    let fields = ours.fields().iter().map(|field| {
        let data_type = match field.name().as_str() {
            metrics::START | metrics::END => micros.clone(),
            metrics::TIMESTAMPS => DataType::List(Arc::new(Field::new("element", micros.clone(), true))),
            _ => field.data_type().clone(),
        };
        Field::new(field.name(), data_type, true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Writes a file as another engine does.
fn file(batches: &[RecordBatch]) -> Bytes {
    let (schema, mut bytes) = (foreign_schema(), Vec::new());
    let mut writer = ArrowWriter::try_new(&mut bytes, Arc::clone(&schema), None).unwrap();
    for (n, batch) in batches.iter().enumerate() {
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| arrow_cast::cast(column, field.data_type()).unwrap());
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap()).unwrap();
        if n % 250 == 249 {
            writer.flush().unwrap();
        }
    }
    writer.close().unwrap();
    bytes.into()
}

/// Reads a file, whose rows must come in order. Returns its content, and the number of samples with two different
/// values.
fn read(bytes: &Bytes, select: &Select, window_bytes: usize) -> (Content, u64) {
    let footer = Arc::new(Footer::read(&METRICS, bytes).unwrap());
    assert!(footer.is_foreign());
    let mut cursor = Cursor::new(bytes.clone(), footer, Arc::new(select.clone()), window_bytes);
    let mut order = Order::default();
    let mut content = Content::new();
    while cursor.advance().unwrap() {
        let labels = cursor.labels().to_owned();
        order.next(labels.as_bytes(), cursor.span()).unwrap();
        let mut samples = Samples::default();
        cursor.read(&mut samples).unwrap();
        for (time, value) in samples.iter_from(0) {
            assert!(content.insert((labels.to_string(), time), value.to_bits()).is_none(), "{labels} twice");
        }
    }
    (content, cursor.stats().conflicts)
}

#[test]
fn shuffled_and_overlapping_rows_come_in_order() {
    let mut rng = Rng::announced();
    let long = "x".repeat(1800);
    let mut rows = Vec::new();
    for n in 0..900u64 {
        // more series than a pass keeps, some of them with many overlapping rows
        let series = if n < 800 { n } else { 10_000 + n % 5 };
        let labels = Labels::from_pairs(&[
            ("__name__", &format!("m{}", series % 7)),
            ("i", &series.to_string()),
            ("long", &long),
        ]);
        let (mut samples, mut time) = (Samples::default(), DAY + rng.below(10_000) as i64);
        for _ in 0..1 + rng.below(20) {
            samples.push(time, rng.below(3) as f64 + if rng.chance(0.1) { 0.1 } else { 0.0 });
            time += 1 + rng.below(200) as i64;
        }
        rows.push((labels, samples));
    }
    for n in (1..rows.len()).rev() {
        rows.swap(n, rng.below(n as u64 + 1) as usize);
    }
    let mut expected = Content::new();
    let mut differing = BTreeSet::new();
    for (labels, samples) in &rows {
        for (time, value) in samples.iter_from(0) {
            // the first sample in the file wins
            let first = *expected.entry((labels.to_string(), time)).or_insert(value.to_bits());
            if first != value.to_bits() {
                differing.insert((labels.to_string(), time));
            }
        }
    }
    assert!(!differing.is_empty());
    let batches: Vec<_> = rows.iter().map(|(labels, samples)| batch(labels, samples)).collect();
    let bytes = file(&batches);
    for window_bytes in [1, 64 << 10, 16 << 20] {
        let (found, doubtful) = read(&bytes, &Select::ALL, window_bytes);
        assert!(found == expected, "window of {window_bytes}: {} of {}", found.len(), expected.len());
        assert_eq!(doubtful, differing.len() as u64);
    }
    let range = TimeRange::new(DAY + 3000, DAY + 5000);
    let names = Some(vec!["m3".to_string()]);
    let (found, _) = read(&bytes, &Select { names, range, ..Select::ALL }, 1 << 20);
    let is_m3 = |(labels, _): &&(String, i64)| labels.contains("\"m3\"") || labels.starts_with("m3");
    let wanted: Vec<_> =
        expected.keys().filter(is_m3).filter(|(_, t)| (range.start_ms..=range.end_ms).contains(t)).collect();
    assert!(!wanted.is_empty());
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted);
}

#[test]
fn a_file_with_other_columns_is_refused_by_its_footer() {
    let schema = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, true)]));
    let mut bytes = Vec::new();
    ArrowWriter::try_new(&mut bytes, schema, None).unwrap().close().unwrap();
    let error = Footer::read(&METRICS, &Bytes::from(bytes)).unwrap_err().to_string();
    assert!(error.contains("not the columns of a metrics table"), "{error}");
}

#[test]
fn a_read_ends_when_it_is_stopped() {
    let rows = (0..300).map(|n| {
        let samples = Samples { timestamps: vec![DAY + n], values: vec![1.0] };
        batch(&Labels::from_pairs(&[("__name__", "m"), ("i", &n.to_string())]), &samples)
    });
    let bytes = file(&rows.collect::<Vec<_>>());
    let stopped_at = |stop_at: u64, passes: bool| {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        let stop = Stop::when(move || counted.fetch_add(1, Relaxed) + 1 >= stop_at);
        let matchers = vec![Matcher::new("i", move |_| passes)];
        let footer = Arc::new(Footer::read(&METRICS, &bytes).unwrap());
        let select = Arc::new(Select { matchers, stop, ..Select::ALL });
        let mut cursor = Cursor::new(bytes.clone(), footer, select, 1 << 20);
        let end = loop {
            match cursor.advance() {
                Ok(true) => {}
                end => break end,
            }
        };
        (end, asked.load(Relaxed))
    };
    for passes in [false, true] {
        let (end, asked) = stopped_at(u64::MAX, passes);
        assert!(!end.unwrap());
        assert!(asked >= 300 / 64, "{asked} checks for 300 values");
        for stop_at in 1..=asked {
            let (end, _) = stopped_at(stop_at, passes);
            assert!(matches!(end, Err(TableError::Canceled)), "{end:?} at check {stop_at}");
        }
    }
}
