//! Statements over tables in memory.

use crate::answer::{Answer, Format};
use crate::error::SqlError;
use crate::run::{Done, Interrupt, Limits, Observer, Runner, STACK_BYTES};
use crate::source::{Batches, Catalog, Memory, Select, Source, SourceError, Times};
use datafusion::arrow::array::{
    ArrayRef, Date32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::StreamReader;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const DAY_US: i64 = 86_400_000_000;
const NOW_MS: i64 = 1_795_284_000_000;

/// Wanted columns and times of each scan.
type Scans = Arc<Mutex<Vec<(Vec<String>, [i64; 2])>>>;

#[derive(Debug, Clone)]
struct Table {
    batches: Vec<RecordBatch>,
    /// Columns and range of each scan.
    scans: Scans,
}

#[derive(Debug, Default)]
struct Tables(BTreeMap<String, Table>);

impl Catalog for Tables {
    fn names(&self) -> Result<Vec<String>, SourceError> {
        Ok(self.0.keys().cloned().collect())
    }

    fn open(&self, name: &str, _: Memory) -> Result<Option<Arc<dyn Source>>, SourceError> {
        Ok(self.0.get(name).map(|table| Arc::new(table.clone()) as _))
    }
}

impl Source for Table {
    fn schema(&self) -> SchemaRef {
        self.batches[0].schema()
    }

    fn times(&self) -> Times {
        Times { time: Some("time"), date: Some("date") }
    }

    fn scan(&self, select: Select) -> Result<Box<dyn Batches>, SourceError> {
        self.scans.lock().unwrap().push((select.columns.clone(), select.range_us));
        let schema = self.schema();
        let columns: Vec<usize> = select.columns.iter().map(|name| schema.index_of(name).unwrap()).collect();
        let project = |batch: &RecordBatch| batch.project(&columns).unwrap();
        Ok(Box::new(Rows(self.batches.iter().map(project).collect(), select)))
    }
}

struct Rows(VecDeque<RecordBatch>, Select);

impl Batches for Rows {
    fn next(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        match self.1.stop.is_set() {
            true => Err(SourceError::Stopped),
            false => Ok(self.0.pop_front()),
        }
    }
}

#[derive(Debug, Default)]
struct Client {
    peak: AtomicUsize,
    held: AtomicUsize,
}

impl Interrupt for Client {
    fn is_set(&self) -> bool {
        false
    }
}

impl Observer for Client {
    fn holds(&self, bytes: usize) {
        self.held.store(bytes, Ordering::Relaxed);
        self.peak.fetch_max(bytes, Ordering::Relaxed);
    }

    fn read(&self, _: usize) {}
}

/// A table of log lines over some days, with the columns date, time, level and n.
fn logs(batches: i64, rows: i64) -> Table {
    let batch = |number: i64| {
        let n = number * rows..(number + 1) * rows;
        let time = n.clone().map(|n| n * DAY_US / 10);
        let level = n.clone().map(|n| ["info", "warn", "error"][n as usize % 3]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("date", Arc::new(Date32Array::from_iter_values(time.clone().map(|us| (us / DAY_US) as i32)))),
            ("time", Arc::new(TimestampMicrosecondArray::from_iter_values(time).with_timezone("UTC"))),
            ("level", Arc::new(StringArray::from_iter_values(level))),
            ("n", Arc::new(Int64Array::from_iter_values(n))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    Table { batches: (0..batches).map(batch).collect(), scans: Arc::default() }
}

struct Run {
    done: Result<Done, SqlError>,
    out: Vec<u8>,
    peak_bytes: usize,
}

/// Runs a statement on a thread like those of the server.
fn run_as(format: Format, memory_bytes: usize, tables: &[(&str, &Table)], text: &str) -> Run {
    run_until(Arc::new(Client::default()), format, memory_bytes, tables, text)
}

fn run_until(
    interrupt: Arc<dyn Interrupt>,
    format: Format,
    memory_bytes: usize,
    tables: &[(&str, &Table)],
    text: &str,
) -> Run {
    std::thread::scope(|threads| {
        let run = || run_here(interrupt, format, memory_bytes, tables, text);
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(threads, run)
            .unwrap()
            .join()
            .unwrap()
    })
}

fn run_here(
    interrupt: Arc<dyn Interrupt>,
    format: Format,
    memory_bytes: usize,
    tables: &[(&str, &Table)],
    text: &str,
) -> Run {
    let blocking = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let client = Arc::new(Client::default());
    let catalog = tables.iter().map(|(name, table)| ((*name).to_owned(), (*table).clone())).collect();
    let runner = Runner {
        catalog: Arc::new(Tables(catalog)),
        limits: Limits { memory_bytes },
        now_ms: NOW_MS,
        blocking: blocking.handle().clone(),
        interrupt,
        observer: Arc::clone(&client) as _,
    };
    let mut out = Vec::new();
    let done = runner.run(text, &mut Answer::new(&mut out, format));
    assert_eq!(client.held.load(Ordering::Relaxed), 0, "memory was not given back: {text}");
    Run { done, out, peak_bytes: client.peak.load(Ordering::Relaxed) }
}

const MEMORY: usize = 16 << 20;

#[track_caller]
fn rows(table: &Table, text: &str) -> Value {
    let run = run_as(Format::Json, MEMORY, &[("logs", table)], text);
    run.done.unwrap_or_else(|error| panic!("{text}: {error}"));
    let json = format!("{{{}}}", String::from_utf8(run.out).unwrap());
    serde_json::from_str::<Value>(&json).unwrap_or_else(|error| panic!("{error}: {json}"))["rows"].take()
}

#[track_caller]
fn error(table: &Table, text: &str) -> SqlError {
    run_as(Format::Json, MEMORY, &[("logs", table)], text).done.expect_err(text)
}

#[test]
fn statements_read_tables() {
    let logs = logs(3, 10);
    let check = |text: &str, expected: Value| assert_eq!(rows(&logs, text), expected, "{text}");
    check("SELECT count(*) FROM logs", json!([[30]]));
    check(
        "SELECT level, sum(n) FROM logs GROUP BY level ORDER BY 1",
        json!([["error", 155], ["info", 135], ["warn", 145]]),
    );
    check("SELECT time, n FROM logs WHERE n = 12", json!([["1970-01-02T04:48:00Z", 12]]));
    check("SELECT date FROM logs ORDER BY n DESC LIMIT 1", json!([["1970-01-03"]]));
    check("SELECT a.n FROM logs a JOIN logs b ON a.n = b.n + 28 ORDER BY 1", json!([[28], [29]]));
    check(
        "SELECT upper(level) || '-' || n FROM logs WHERE n < 2 ORDER BY n",
        json!([["INFO-0"], ["WARN-1"]]),
    );
    check(
        "SELECT 'a' || 'b' || NULL, 'a' || 1 || 'b', concat('a', NULL, 1), concat_ws('-', 'a', 'b')",
        json!([[null, "a1b", "a1", "a-b"]]),
    );
    check("SELECT now()", json!([["2026-11-21T18:00:00Z"]]));
    check("WITH x AS (SELECT 1 AS a) SELECT a, a + 1 FROM x", json!([[1, 2]]));
    check("SELECT count(*) FROM logs WHERE n = (SELECT max(n) FROM logs)", json!([[1]]));
    check(
        "SELECT level, max(n) FROM logs GROUP BY level ORDER BY max(n) DESC LIMIT 1000000000000",
        json!([["error", 29], ["warn", 28], ["info", 27]]),
    );
    check("SELECT n FROM logs ORDER BY n LIMIT 1000000000000 OFFSET 29", json!([[29]]));
    check(
        "SELECT upper(left(level, 2)), to_char(time, '%H:%M'), extract(hour FROM time), substring(level FROM 2 FOR 2), \
         translate(level, 'w', 'W'), initcap(level), reverse(level), split_part(level, 'a', 1), trim(' ' || level) \
         FROM logs WHERE n = 1",
        json!([["WA", "02:24", 2, "ar", "Warn", "Warn", "nraw", "w", "warn"]]),
    );
    check(
        "SELECT count(*) FROM logs WHERE level ~ '^w' AND level LIKE '%rn' AND regexp_like(level, 'ar') \
         AND regexp_count(level, '[a-z]') = 4",
        json!([[10]]),
    );
    check("SELECT median(n), approx_median(n), count(DISTINCT level) FROM logs", json!([[14.5, 14.5, 3]]));
    check(
        "SELECT DISTINCT level, upper(level) FROM logs ORDER BY upper(level), level LIMIT 1",
        json!([["error", "ERROR"]]),
    );
    check("SELECT count(*) FROM generate_series(1, 100000)", json!([[100_000]]));
    check("SELECT count(*) FROM logs a LEFT JOIN logs b ON a.n = b.n AND a.n + b.n > 10", json!([[30]]));
    check(
        "SELECT count(*) FROM logs WHERE n IN (SELECT n + 1 FROM logs) AND n NOT IN (1, 2, 3, 4)",
        json!([[25]]),
    );
    check(
        "SELECT count(*) FROM logs a WHERE EXISTS (SELECT 1 FROM logs b WHERE b.n = a.n + 1)",
        json!([[29]]),
    );
    check("SELECT count(*) FROM logs WHERE n NOT IN (SELECT n + 1 FROM logs)", json!([[1]]));
    check(
        "SELECT count(*) FROM logs a WHERE NOT EXISTS (SELECT 1 FROM logs b WHERE b.n = a.n + 1)",
        json!([[1]]),
    );
    check(
        "SELECT count(*) FROM logs a WHERE n > 28 OR EXISTS (SELECT 1 FROM logs b WHERE b.n = a.n + 25)",
        json!([[6]]),
    );
    check("SELECT n FROM logs UNION SELECT n + 1 FROM logs ORDER BY n DESC LIMIT 1", json!([[30]]));
    let long = "x".repeat(40);
    check(&format!("VALUES ('a'), ('{long}')"), json!([["a"], [long]]));
    check(&format!("SELECT max(column1) FROM (VALUES ('{long}'))"), json!([[long]]));
    check(
        "SELECT CAST('NaN' AS DOUBLE), CAST('inf' AS DOUBLE), -CAST('inf' AS DOUBLE), CAST('inf' AS REAL) AS r, 0.5::real",
        json!([["NaN", "Infinity", "-Infinity", "Infinity", 0.5]]),
    );
    check(
        "SELECT regexp_replace('abc', 'b', 'x'), replace('aaa', 'a', 'bb'), lpad('x', 3, '-')",
        json!([["axc", "bbbbbb", "--x"]]),
    );
    check(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
        json!([["logs"]]),
    );
    check(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'logs' AND data_type LIKE 'Int%'",
        json!([["n"]]),
    );
    check(
        "SELECT DISTINCT routine_name FROM information_schema.routines WHERE routine_name = 'upper'",
        json!([["upper"]]),
    );
    assert_eq!(rows(&logs, "DESCRIBE logs").as_array().unwrap().len(), 4);
    let shown = rows(&logs, "SHOW TABLES").to_string();
    assert!(shown.contains(r#""public","logs""#), "{shown}");
    assert!(rows(&logs, "EXPLAIN SELECT n FROM logs").to_string().contains("projection=[n]"));
    assert_eq!(rows(&logs, "SELECT n FROM logs WHERE false"), json!([]));
}

#[test]
fn scans_read_only_the_wanted_columns_and_times() {
    let logs = logs(1, 30);
    let all = [i64::MIN, i64::MAX];
    let hour_us = DAY_US / 24;
    let check = |condition: &str, range: [i64; 2]| {
        logs.scans.lock().unwrap().clear();
        rows(&logs, &format!("SELECT n FROM logs WHERE {condition}"));
        let [(columns, found)] = &logs.scans.lock().unwrap()[..] else {
            panic!("{condition}: several scans")
        };
        assert!(columns.contains(&"n".to_owned()) && !columns.contains(&"level".to_owned()), "{columns:?}");
        assert_eq!(*found, range, "{condition}");
    };
    check("n > 3", all);
    check("time >= '1970-01-02T00:00:00Z'", [DAY_US, i64::MAX]);
    check("time >= '1970-01-02' AND time < '1970-01-02T01:00:00Z' AND n > 1", [DAY_US, DAY_US + hour_us]);
    check("time BETWEEN '1970-01-02' AND '1970-01-03'", [DAY_US, 2 * DAY_US]);
    check("'1970-01-02' > time", [i64::MIN, DAY_US]);
    check("date = '1970-01-02'", [DAY_US, 2 * DAY_US - 1]);
    check("date > '1970-01-02'", [DAY_US, i64::MAX]);
    check("time > now() - INTERVAL '1 hour'", [NOW_MS * 1000 - hour_us, i64::MAX]);
    check("time > '1970-01-02' OR n = 1", all);
    check("date_trunc('day', time) = '1970-01-02T00:00:00Z'", all);
    check("date <= '+294247-01-10'", [i64::MIN, i64::MAX]);
    // a cast to a coarser unit has the same value for all times of a second
    check("time::timestamp(0) = '1970-01-02T00:00:00'", [DAY_US, DAY_US + 999_999]);
    check("time::timestamp(0) <= '1970-01-02T00:00:00'", [i64::MIN, DAY_US + 999_999]);
    check("time::timestamp(3) > '1970-01-02T00:00:00'", [DAY_US, i64::MAX]);
    check("time::timestamp(3) = '1970-01-02T00:00:00'", [DAY_US, DAY_US + 999]);
}

#[test]
fn a_statement_can_only_read() {
    let logs = logs(1, 3);
    for text in [
        "INSERT INTO logs VALUES (1)",
        "DELETE FROM logs",
        "UPDATE logs SET n = 1",
        "DROP TABLE logs",
        "CREATE TABLE x AS SELECT 1",
        "CREATE VIEW x AS SELECT 1",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/x.csv'",
        "COPY logs TO 'file:///tmp/x.json'",
        "SET datafusion.execution.batch_size = 1",
        "PREPARE p AS SELECT 1",
        "EXPLAIN INSERT INTO logs VALUES (1)",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/x.csv'",
        "EXPLAIN ANALYZE SELECT 1",
        "EXPLAIN VERBOSE SELECT 1",
        "BEGIN",
        "TRUNCATE logs",
        "RESET datafusion.execution.batch_size",
        "CREATE FUNCTION f() RETURNS INT RETURN 1",
    ] {
        let error = error(&logs, text);
        assert!(matches!(error, SqlError::Statement(_)), "{text}: {error:?}");
    }
    for (text, says) in [
        ("", "no statement"),
        ("SELECT 1; SELECT 2", "more than one"),
        ("SELEC 1", "Line: 1, Column: 1"),
        ("SELECT x FROM logs", "No field named x"),
        ("SELECT * FROM other", "other"),
        ("SELECT * FROM other.public.logs", "not found"),
        ("SELECT * FROM '/etc/passwd'", "/etc/passwd"),
        ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"),
        ("SELECT nothing(1)", "nothing"),
    ] {
        let error = error(&logs, text);
        assert!(
            matches!(error, SqlError::Statement(_)) && error.to_string().contains(says),
            "{text}: {error}"
        );
    }
    assert!(matches!(error(&logs, "SELECT 1 / 0"), SqlError::Statement(_) | SqlError::Execution(_)));
}

/// What would take memory that nobody counts, or time that nobody can end.
#[test]
fn what_cannot_be_bounded_is_refused() {
    let logs = logs(1, 3);
    for text in [
        "SELECT array_agg(n) FROM logs",
        "SELECT string_agg(level, ',') FROM logs",
        "SELECT approx_percentile_cont(n, 0.5, 1000000000000) FROM logs",
        "SELECT make_array(n) FROM logs",
        "SELECT [n] FROM logs",
        "SELECT ARRAY[1, 2]",
        "SELECT (n, level) FROM logs",
        "SELECT struct(n) FROM logs",
        "SELECT {a: n} FROM logs",
        "SELECT n FROM logs WHERE n = ANY([1])",
        "SELECT arrow_cast(level, 'FixedSizeBinary(1000000000)') FROM logs",
        "SELECT CAST(level AS BYTEA) FROM logs",
        "SELECT CAST(n AS INT[1000000000]) FROM logs",
        "SELECT n::INT[] FROM logs",
        "SELECT levenshtein(level, level) FROM logs",
        "SELECT overlay(level placing 'x' from 1) FROM logs",
        "SELECT count(*) FROM logs WHERE level ~ level",
        "SELECT count(*) FROM logs WHERE level LIKE level",
        "SELECT count(*) FROM logs WHERE level SIMILAR TO level",
        "SELECT count(*) FROM logs a JOIN logs b ON a.level ~* b.level",
        "SELECT regexp_count(level, level) FROM logs",
        "SELECT regexp_replace(level, 'a', level) FROM logs",
        "SELECT regexp_match(level, 'a') FROM logs",
        "SELECT translate(level, level, 'x') FROM logs",
        "SELECT to_char(time, level) FROM logs",
        "SHOW FUNCTIONS",
        "SHOW COLUMNS FROM logs",
        "SELECT count(*) FROM logs GROUP BY CUBE (level, n, time, date)",
        "SELECT count(*) FROM logs GROUP BY ROLLUP (level, n)",
        "SELECT count(*) FROM logs GROUP BY GROUPING SETS ((level), (n))",
        "SELECT level, count(*) FROM logs GROUP BY level WITH ROLLUP",
        "SELECT sum(n) OVER (ORDER BY n) FROM logs",
        "SELECT n FROM logs ORDER BY row_number() OVER ()",
        "SELECT sum(n) OVER w FROM logs WINDOW w AS (ORDER BY n)",
        "SELECT n FROM logs QUALIFY n > 1",
        "SELECT nth_value(level, 2) FROM logs",
        "SELECT n, X'00ff' FROM logs",
        "SELECT count(*) FROM logs a, logs b",
        "SELECT count(*) FROM logs a CROSS JOIN logs b",
        "SELECT count(*) FROM logs a JOIN logs b ON a.n < b.n",
        "SELECT count(*) FROM logs a LEFT JOIN logs b ON true",
    ] {
        let error = error(&logs, text);
        assert!(matches!(error, SqlError::Statement(_)), "{text}: {error:?}");
    }
}

/// A short text can stand for a very large plan.
#[test]
fn a_plan_that_grows_is_refused() {
    let logs = logs(1, 3);
    let nested = |open: &str, inner: &str, close: &str| {
        format!("SELECT {}{inner}{} FROM logs", open.repeat(40), close.repeat(40))
    };
    let with = |of: &str, count: usize, end: &str| {
        let parts: Vec<_> =
            (0..count).map(|n| format!("t{} AS ({})", n + 1, of.replace('@', &format!("t{n}")))).collect();
        format!("WITH t0 AS (SELECT n AS a FROM logs), {} {end}", parts.join(", "))
    };
    for text in [
        with("SELECT x.a FROM @ x, @ y", 20, "SELECT count(*) FROM t20"),
        with("SELECT x.a FROM @ x, @ y, @ z, @ w", 3, "SELECT count(*) FROM t3"),
        with("SELECT a FROM @ UNION ALL SELECT a FROM @", 9, "SELECT count(*) FROM t9"),
        with("SELECT a FROM @ WHERE a IN (SELECT a FROM @)", 9, "SELECT count(*) FROM t9"),
        with("SELECT a + a AS a FROM @", 22, "SELECT count(*) FROM t22 WHERE a > 5"),
        with("SELECT a + a + a + a + a + a + a + a AS a FROM @", 6, "SELECT a FROM t6 WHERE a > 5"),
        with("SELECT max(a) AS m, a + a AS a FROM @ GROUP BY a + a", 20, "SELECT a FROM t20 WHERE a > 5"),
        with("SELECT a || a AS a FROM @", 22, "SELECT max(octet_length(a)) FROM t22"),
        format!("SELECT count(*) FROM logs {}", ", logs".repeat(2000)),
        format!("SELECT 1 {}", "UNION ALL SELECT 1".repeat(40)),
        nested("coalesce(", "n", ", 1)"),
        nested("nvl(", "n", ", 1)"),
        nested("(", "(n > 1)", " BETWEEN false AND (n > 2))"),
        nested("CASE WHEN ", "n > 1", " THEN n > 2 ELSE n > 3 END"),
        nested("regexp_like(", "level", "::text, 'a|b')"),
        nested("(", "level", " ~ 'a|b')::text"),
        nested("position(", "'a'", ")"),
        nested("ceil(", "1 1", ")"),
        nested("cast(", "1 1", " AS int)"),
    ] {
        let error = error(&logs, &text);
        assert!(
            matches!(&error, SqlError::Statement(message) if message.contains("too long")),
            "{}: {error}",
            &text[..80]
        );
    }
    let count = rows(&logs, &with("SELECT a + 1 AS a FROM @", 22, "SELECT min(a) FROM t22 WHERE a > 5"));
    assert_eq!(count, json!([[22]]));
    let count = rows(&logs, &with("SELECT x.a FROM @ x JOIN @ y ON x.a = y.a", 3, "SELECT count(*) FROM t3"));
    assert_eq!(count, json!([[3]]));
}

#[test]
fn a_long_or_deep_statement_is_refused_or_planned() {
    let logs = logs(1, 3);
    let deep = |open: &str, inner: &str, close: &str, n: usize| {
        format!("SELECT {}{inner}{}", open.repeat(n), close.repeat(n))
    };
    for n in [400, 10_000] {
        for text in [
            deep("(", "1", ")", n),
            deep("-", "1", "", n),
            deep("NOT ", "true", "", n),
            deep("abs(", "1", ")", n),
            deep("[", "1", "]", n),
            deep("(SELECT ", "1", ")", n),
            deep("CASE WHEN true THEN ", "1", " END", n),
            deep("1 + ", "1", "", n),
            deep("true OR ", "true", "", n),
            deep("'a' || ", "'a'", "", n),
            deep("1", "", "::int", n),
            deep("SELECT 1 UNION ALL ", "SELECT 1", "", n)[7..].to_owned(),
            deep("EXPLAIN ", "", "", n)[7..].to_owned(),
            deep("1", "", " IS NULL", n),
            deep("x", "", ".x", n),
            deep("x", "", "[1]", n),
            deep("'", "x", "'", n),
            deep("INTERVAL ", "'1'", "", n),
            deep("DATE ", "'1'", "", n),
            deep("INTERVAL PRIOR ", "'1'", "", n),
            deep("EXISTS ", "(SELECT 1)", "", n),
            deep("CAST(1 AS ", "INT", ")", n),
            deep("CAST(1 AS ARRAY<", "INT", ">)", n),
            format!("SELECT * FROM {}logs{}", "(".repeat(n), ")".repeat(n)),
            format!("SELECT * FROM logs {}", "JOIN logs ".repeat(n)),
            format!("{} SELECT 1", "WITH x AS (SELECT 1)".repeat(n)),
            format!("SELECT 1 FROM logs {}", "WHERE ".repeat(n)),
            format!("SELECT 1 {}", "ORDER BY 1 ".repeat(n)),
            format!("{{{}", "{".repeat(n)),
        ] {
            let run = run_as(Format::Json, MEMORY, &[("logs", &logs)], &text);
            assert!(run.done.is_err(), "{}", &text[..40]);
        }
    }
    // what is allowed must fit into the stack
    for text in [
        deep("1 + ", "1", "", 290),
        deep("'a' || ", "'a'", "", 290),
        deep("n = 1 OR ", "true FROM logs", "", 140),
        deep("- ", "1", "", 100),
        format!("SELECT count(*) FROM logs WHERE n IN ({}1)", "1,".repeat(4_900)),
        format!("SELECT count(*) FROM logs WHERE n IN ({}1)", "abs(1),".repeat(1_900)),
        format!("SELECT {}1", "1,".repeat(900)),
        deep("SELECT 1 UNION ALL ", "SELECT 1", "", 24)[7..].to_owned(),
    ] {
        let run = run_as(Format::Json, 64 << 20, &[("logs", &logs)], &text);
        if let Err(error) = run.done {
            assert!(!matches!(error, SqlError::Bug(_)) && !error.to_string().contains("too long"), "{error}");
        }
    }
}

#[test]
fn a_query_stays_within_its_memory() {
    let logs = logs(40, 8192);
    let check = |text: &str| {
        let run = run_as(Format::Json, 4 << 20, &[("logs", &logs)], text);
        let error = run.done.expect_err(text);
        let is_constant = matches!(&error, SqlError::Execution(message) if message.contains("is too large"));
        assert!(matches!(error, SqlError::Memory(_)) || is_constant, "{text}: {error:?}");
        assert!(run.peak_bytes <= 8 << 20, "{text}: {}", run.peak_bytes);
    };
    check("SELECT n FROM logs ORDER BY level, time, date, n");
    check("SELECT n, time, count(*) FROM logs GROUP BY n, time");
    check("SELECT count(*) FROM logs a JOIN logs b ON a.n = b.n");
    check("SELECT median(n), median(n + 1), median(n + 2), median(n + 3) FROM logs");
    check("SELECT count(DISTINCT n), count(DISTINCT level || n) FROM logs");
    check("SELECT length(repeat('x', 1000000000))");
    check("SELECT length(repeat(level, 10000000)) FROM logs");
    check("SELECT sum(length(repeat(level, n * 1000))) FROM logs");
    check("SELECT length(lpad(level, 1000000000)) FROM logs");
    check("SELECT max(octet_length(upper(CASE WHEN n > 0 THEN repeat('x', 30000) END))) FROM logs");
    check(
        "SELECT max(octet_length(reverse(t))) FROM (SELECT nullif(repeat('x', 30000), level) AS t FROM logs)",
    );
    check("SELECT length(concat_ws(repeat('x', 30000), level, level, level)) FROM logs");
    check("SELECT length(replace(repeat(level, 1000), 'o', repeat(level, 1000))) FROM logs");
    let shared = "(SELECT n, CASE WHEN n >= 0 THEN repeat('x', 30000) END AS t FROM logs)";
    check(&format!("SELECT max(t) FROM {shared} GROUP BY n"));
    check(&format!("SELECT count(DISTINCT t || n) FROM {shared}"));
    check(&format!("SELECT first_value(t ORDER BY n) FROM {shared} GROUP BY n"));
    check(&format!("SELECT DISTINCT ON (n) t FROM {shared}"));
    check(&format!("SELECT n FROM {shared} ORDER BY t, n"));
    check(&format!("SELECT t, n FROM {shared} ORDER BY n"));
    let keys: Vec<_> = (0..20)
        .map(|n| format!("CASE WHEN n >= 0 THEN repeat('{}', 30000) END", (b'a' + n) as char))
        .collect();
    check(&format!("SELECT count(*) FROM logs GROUP BY n, {}", keys.join(", ")));
    check(&format!("SELECT n FROM logs ORDER BY {}, n LIMIT 10", keys.join(", ")));
    let columns: Vec<_> = (0..200).map(|n| format!("t AS c{n}")).collect();
    check(&format!("SELECT {} FROM {shared}", columns.join(", ")));
    let constants: Vec<_> = (0..200).map(|n| format!("repeat('{n}', 10000) AS c{n}")).collect();
    check(&format!("SELECT {}", constants.join(", ")));
    let doubled: Vec<_> = (0..12).map(|n| format!("t{} AS (SELECT a || a AS a FROM t{n})", n + 1)).collect();
    let doubled = doubled.join(", ");
    check(&format!(
        "WITH t0 AS (SELECT level AS a FROM logs), {doubled} SELECT max(octet_length(a)) FROM t12"
    ));
}

/// A long constant is in memory once, and not once for each row.
#[test]
fn a_long_constant_is_shared_by_all_rows() {
    let logs = logs(4, 8192);
    let long = "x".repeat(50_000);
    for text in [
        format!(
            "SELECT max(octet_length(a)) FROM (SELECT '{long}' AS a, n FROM logs ORDER BY n LIMIT 30000)"
        ),
        format!("SELECT count(*) FROM logs a JOIN (SELECT '{long}' AS long, 1 AS n) b ON a.n % 2 = b.n"),
        "SELECT max(octet_length(a)) FROM (SELECT repeat('x', 30000) AS a, n FROM logs)".to_owned(),
    ] {
        let run = run_as(Format::Json, 8 << 20, &[("logs", &logs)], &text);
        assert!(run.done.is_ok(), "{:?}", run.done);
    }
}

#[test]
fn all_formats_have_the_same_rows() {
    let logs = logs(2, 3);
    let text = "SELECT n, level, time, n = 1 AS is_one, NULL AS nothing FROM logs ORDER BY n LIMIT 2";
    let as_format = |format| {
        let run = run_as(format, MEMORY, &[("logs", &logs)], text);
        run.done.unwrap();
        run.out
    };
    assert_eq!(
        String::from_utf8(as_format(Format::Csv)).unwrap(),
        "n,level,time,is_one,nothing\n0,info,1970-01-01T00:00:00Z,false,\n1,warn,1970-01-01T02:24:00Z,true,\n"
    );
    let json: Value =
        serde_json::from_str(&format!("{{{}}}", String::from_utf8(as_format(Format::Json)).unwrap()))
            .unwrap();
    assert_eq!(
        json,
        json!({
            "columns": [
                {"name": "n", "type": "Int64"},
                {"name": "level", "type": "Utf8"},
                {"name": "time", "type": "Timestamp(µs, \"UTC\")"},
                {"name": "is_one", "type": "Boolean"},
                {"name": "nothing", "type": "Null"},
            ],
            "rows": [
                [0, "info", "1970-01-01T00:00:00Z", false, null],
                [1, "warn", "1970-01-01T02:24:00Z", true, null],
            ],
        })
    );
    let arrow = as_format(Format::Arrow);
    let batches: Vec<_> = StreamReader::try_new(&*arrow, None).unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
}

/// Is canceled when it has been asked some times.
#[derive(Debug)]
struct Impatient(AtomicUsize);

impl Interrupt for Impatient {
    fn is_set(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) >= 20
    }
}

/// A time that has no text is an error in each format that has texts.
#[test]
fn times_that_cannot_be_written_are_errors() {
    let logs = logs(1, 3);
    for text in [
        "SELECT to_timestamp_seconds(n + 9999999999999) FROM logs",
        "SELECT CAST(n + 9999999999999 AS TIMESTAMP(0) WITH TIME ZONE) FROM logs",
    ] {
        for format in [Format::Json, Format::Csv] {
            let error = run_as(format, MEMORY, &[("logs", &logs)], text).done.expect_err(text);
            assert!(matches!(error, SqlError::Execution(_)), "{text}: {error:?}");
        }
    }
}

/// Queries that produce rows without end stop when nobody waits for them.
#[test]
fn a_query_ends_when_it_is_canceled() {
    // pairs of rows fit into memory, and triples take seconds
    let logs = logs(1, 500);
    for text in [
        "SELECT sum(value % 7) FROM generate_series(1, 1000000000000)",
        "SELECT sum(a.n * b.n * c.n) FROM logs a JOIN logs b ON a.level = b.level JOIN logs c ON a.level = c.level",
        "SELECT count(*) FROM logs a JOIN logs b ON a.level = b.level JOIN logs c ON a.level = c.level AND a.n + c.n < b.n - 999",
        "SELECT n + 1 FROM (SELECT value AS n FROM generate_series(1, 1000000000000)) WHERE n % 7 = 8",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
        "SELECT * FROM generate_series(1, 1000000000000) a(n) WHERE n < 0 ORDER BY n",
        "SELECT count(DISTINCT n % 7) FROM generate_series(1, 1000000000000) a(n)",
    ] {
        let run = run_until(
            Arc::new(Impatient(AtomicUsize::new(0))),
            Format::Json,
            MEMORY,
            &[("logs", &logs)],
            text,
        );
        assert_eq!(run.done, Err(SqlError::Canceled), "{text}");
    }
}
