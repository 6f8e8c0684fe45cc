use super::*;
use crate::{Body, Decoder as _, Encoding, SharedLabels};
use model::{LabelsBuilder, SeriesRefusal};
use stdx::budget::Account;

type Decoded = (Vec<(String, i64, f64)>, Vec<String>);

const ARRIVAL_MS: i64 = 77;

/// Decodes rows, and returns their columns too.
fn batch_of(map: &str, rows: &str) -> (Arc<Columns>, Result<Batch, DecodeError>) {
    let columns = Arc::new(Columns::parse(map, SharedLabels::default()).unwrap());
    let format = Format { columns: Arc::clone(&columns), arrival_ms: ARRIVAL_MS, first_line: 1 };
    let mut memory = Account::new("test", 256 << 20).reserve(0).unwrap();
    let mut batch = Batch::default();
    let body = Body { encoding: Encoding::Identity, bytes: rows.as_bytes() };
    let decoded = Decoder::new(1).decode(Request { format, body }, &mut batch, &mut memory);
    (columns, decoded.map(|()| batch))
}

fn decoded_with(map: &str, labels: SharedLabels, rows: &str) -> Decoded {
    let columns = Arc::new(Columns::parse(map, labels).unwrap());
    let format = Format { columns: Arc::clone(&columns), arrival_ms: ARRIVAL_MS, first_line: 1 };
    let mut memory = Account::new("test", 64 << 20).reserve(0).unwrap();
    let mut batch = Batch::default();
    let body = Body { encoding: Encoding::Identity, bytes: rows.as_bytes() };
    Decoder::new(1).decode(Request { format, body }, &mut batch, &mut memory).unwrap();
    let mut errors: Vec<_> = batch.refused.iter().map(|(error, _)| error.to_string()).collect();
    let mut samples = Vec::new();
    for series in &batch.floats.series {
        match columns.labels_of(&batch.bytes, &series.labels, &mut LabelsBuilder::new()) {
            Ok(labels) => {
                let at = series.samples.start as usize;
                samples.push((labels.to_string(), batch.floats.timestamps[at], batch.floats.values[at]));
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    (samples, errors)
}

fn decoded(map: &str, rows: &str) -> Decoded {
    decoded_with(map, SharedLabels::default(), rows)
}

const MAP: &str = "2:metric:ask,3:metric:bid,1:label:ticker,5:label:market,4:time:unix_s";

#[test]
fn rows_are_samples_of_all_metrics() {
    let check = |row: &str, expected: &[(&str, i64, f64)]| {
        let expected = expected.iter().map(|(labels, time, value)| ((*labels).to_owned(), *time, *value));
        assert_eq!(decoded(MAP, row), (expected.collect(), vec![]), "{row:?}");
    };
    let (ask, bid) = (r#"ask{market="NYSE", ticker="GOOG"}"#, r#"bid{market="NYSE", ticker="GOOG"}"#);
    check(
        "GOOG,1.23,4.56,1795284000,NYSE\r\n",
        &[(ask, 1_795_284_000_000, 1.23), (bid, 1_795_284_000_000, 4.56)],
    );
    check("GOOG,,4e2,1795284000.5,NYSE,more,columns", &[(bid, 1_795_284_000_500, 400.0)]);
    check("GOOG, ,,1795284000,NYSE", &[]);
    check(r#"GOOG,"1.5",-2,"7","NYSE""#, &[(ask, 7000, 1.5), (bid, 7000, -2.0)]);
    check(r#""a, ""b""",1,,7,"#, &[(r#"ask{ticker="a, \"b\""}"#, 7000, 1.0)]);
    check("a\"b,1,,7,", &[(r#"ask{ticker="a\"b"}"#, 7000, 1.0)]);
    check("\n\nx,1,,7,\n\n", &[(r#"ask{ticker="x"}"#, 7000, 1.0)]);
    let shared = SharedLabels::new([("job", "csv"), ("market", "all")]);
    let (samples, errors) = decoded_with("1:metric:m,2:label:market,3:label:x", shared, "5,NYSE,y");
    assert_eq!(samples, [(r#"m{job="csv", market="all", x="y"}"#.to_owned(), ARRIVAL_MS, 5.0)]);
    assert_eq!(errors, [""; 0]);
}

#[test]
fn rows_that_cannot_be_read_are_named_and_the_others_go_on() {
    let check = |row: &str, expected: &str| {
        let (samples, errors) = decoded(MAP, &format!("a,1,,7,\n\n{row}\nb,,2,7,"));
        assert_eq!((samples.len(), errors), (2, vec![expected.to_owned()]), "{row:?}");
    };
    check("x,1,2,7", "line 3: 4 columns, but the table has 5");
    check("x", "line 3: 1 columns, but the table has 5");
    check("ticker,ask,bid,time,market", r#"line 3: value "ask" of metric "ask" is not a number"#);
    check("x,1,NaN,7,y", r#"line 3: value "NaN" of metric "bid" is not a number"#);
    check("x,1,2,soon,y", r#"line 3: time "soon" is not of the form unix_s"#);
    check("x,1,2,,y", r#"line 3: time "" is not of the form unix_s"#);
    check("\"x,1,2,7,y", "line 3: the quoted text of column 1 does not end");
    check("x,1,2,7,\"y", "line 3: the quoted text of column 5 does not end");
}

/// The labels of each metric are parsed on their own. This must not read the other columns again.
#[test]
fn labels_are_apart_from_the_rest_of_the_row() {
    let rows = format!("x,1,2,\"{}\",y\nx,one,2,,y\n,,,,y\n,3,4,,\n", ",".repeat(1 << 20));
    let (columns, batch) = batch_of("1:label:a,2:metric:m,3:metric:n,5:label:b", &rows);
    let batch = batch.unwrap();
    let labels_of = |labels| columns.labels_of(&batch.bytes, labels, &mut LabelsBuilder::new()).unwrap();
    let found: Vec<_> = batch.floats.series.iter().map(|s| labels_of(&s.labels).to_string()).collect();
    assert_eq!(found, [r#"m{a="x", b="y"}"#, r#"n{a="x", b="y"}"#, "m{}", "n{}"]);
    assert_eq!(batch.refused_series, 1);
    for series in &batch.floats.series {
        assert!(series.labels.start as usize >= rows.len(), "within the rows: {:?}", series.labels);
    }
    assert!(batch.bytes.len() < rows.len() + 50, "{} bytes", batch.bytes.len());
}

#[test]
fn labels_that_metrics_share_are_bounded() {
    let metrics: String = (2..=1023).map(|column| format!(",{column}:metric:m{column}")).collect();
    let map = format!("1:label:a{metrics},1024:label:b");
    let decoded = |label_bytes: usize, rows: usize| {
        let row = format!("{}{},\n", "x".repeat(label_bytes), ",1".repeat(1022));
        let (_, batch) = batch_of(&map, &row.repeat(rows));
        let limit = ((1 << 20) + 256 * row.len() * rows).min(256 << 20);
        (batch.map(|batch| batch.floats.series.len()), limit)
    };
    assert_eq!(decoded(480, 200).0, Ok(200 * 1022));
    for (label_bytes, rows) in [(60_000, 1), (60_000, 40)] {
        let (counted, limit) = decoded(label_bytes, rows);
        let what = "bytes of labels, counted for each value";
        assert_eq!(counted, Err(DecodeError::TooMany { what, limit }), "{label_bytes} {rows}");
    }
}

/// Labels that are invalid are named by their text.
#[test]
fn invalid_labels_are_described() {
    let map: String = (2..=200).map(|column| format!(",{column}:label:l{column}")).collect();
    let (columns, batch) = batch_of(&format!("1:metric:m{map}"), &format!("1{}\n", ",x".repeat(199)));
    let batch = batch.unwrap();
    let labels = &batch.floats.series[0].labels;
    let error = columns.labels_of(&batch.bytes, labels, &mut LabelsBuilder::new()).unwrap_err();
    assert_eq!(error, SeriesRefusal::TooManyLabels(129));
    assert!(columns.describe(&batch.bytes, labels).starts_with("m of x,x,x"));
}

#[test]
fn maps_of_columns_are_checked() {
    let check = |map: &str, expected: &str| {
        let error = Columns::parse(map, SharedLabels::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{map:?}: {error}");
    };
    check("", "form");
    check("1:metric", "form");
    check("0:metric:a", "must be 1 to 1024");
    check("1025:metric:a", "must be 1 to 1024");
    check("x:metric:a", "must be 1 to 1024");
    check("1:metric:a,1:label:b", "more than once");
    check("1:value:a", "metric, label or time");
    check("1:metric:a,2:time:unix", "unix_s, unix_ms");
    check("1:metric:", "empty or too long");
    check("1:label:a", "no column has a metric");
    check("1:metric:a,2:time:unix_s,3:time:unix_s", "more than one column has the time");
}

/// The key of a series does not depend on its other columns, and differs between series and maps.
#[test]
fn keys_tell_series_apart() {
    let keys = |map: &str, row: &str| -> Vec<_> {
        let columns = Arc::new(Columns::parse(map, SharedLabels::default()).unwrap());
        let format = Format { columns, arrival_ms: 0, first_line: 1 };
        let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
        let mut batch = Batch::default();
        let body = Body { encoding: Encoding::Identity, bytes: row.as_bytes() };
        Decoder::new(1).decode(Request { format, body }, &mut batch, &mut memory).unwrap();
        batch.floats.series.iter().map(|series| series.key).collect()
    };
    let first = keys(MAP, "a,1,2,7,m");
    assert_eq!(keys(MAP, "a,3,4,8,m,x"), first);
    let others = [
        keys(MAP, "b,1,2,7,m"),
        keys(MAP, "a,1,2,7,n"),
        keys(MAP, "am,1,2,7,"),
        keys(MAP, ",1,2,7,am"),
        keys("2:metric:x,3:metric:y,1:label:ticker,5:label:market,4:time:unix_s", "a,1,2,7,m"),
        keys("2:metric:ask,3:metric:bid,1:label:t,5:label:market,4:time:unix_s", "a,1,2,7,m"),
    ];
    let mut all: Vec<_> = others.into_iter().flatten().chain(first).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), count), (14, 14));
}
