//! Runs scripts.

use crate::notation::Point;
use crate::report::Report;
use crate::script::{self, Annotations, Command, Eval};
use model::{Labels, Samples};
use query::memory_source::MemorySource;
use query::{Answer, Options, QueryError, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Relative error that Prometheus' own runner allows.
const EPSILON: f64 = 1e-6;

/// Time at which metric names are dropped: early by default in Prometheus, late in its scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Early,
    Late,
}

#[derive(Default)]
struct State {
    source: MemorySource,
    series: BTreeMap<Labels, Samples>,
    /// Metric names with native histograms.
    histograms: BTreeSet<String>,
}

pub(crate) fn run_file(path: &Path, names: Names) -> Report {
    let name = path.file_name().expect("a script has a name").to_string_lossy().into_owned();
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
    let commands = script::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut report = Report { name, ..Report::default() };
    let mut state = State::default();
    for command in commands {
        match command {
            Command::Clear => state = State::default(),
            Command::Load(gap_ms, series) => state.load(gap_ms, series),
            Command::LoadWithHistograms(gap_ms, series) => {
                let names = series.iter().filter_map(|(labels, _)| labels.get("__name__"));
                let names = names.filter_map(|name| name.strip_suffix("_bucket")).map(str::to_owned);
                state.histograms.extend(names);
                state.load(gap_ms, series);
            }
            Command::Eval(eval) => match (Engine { source: &state.source, names }).check(&eval) {
                Ok(()) => report.passed += 1,
                Err(_) if state.is_about_histograms(&eval) => report.excluded += 1,
                Err(reason) => report.failed.push((eval.line, eval.expr, reason)),
            },
        }
    }
    report
}

impl State {
    fn load(&mut self, gap_ms: i64, series: Vec<(Labels, Vec<Point>)>) {
        for (labels, points) in series {
            let samples = self.series.entry(labels.clone()).or_default();
            for (i, point) in points.into_iter().enumerate() {
                match point {
                    Point::Omitted => {}
                    Point::Value(value) => insert(samples, i as i64 * gap_ms, value),
                    Point::Histogram => {
                        self.histograms.insert(labels.get("__name__").unwrap_or("").to_owned());
                    }
                }
            }
        }
        self.source.clear();
        for (labels, samples) in &self.series {
            self.source.add(labels.clone(), samples.clone());
        }
    }

    fn is_about_histograms(&self, eval: &Eval) -> bool {
        let words = |name: &str| {
            eval.expr
                .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .any(|word| !name.is_empty() && word == name)
        };
        let nameless =
            ["__name__", "({", " {"].iter().any(|p| eval.expr.contains(p)) || eval.expr.starts_with('{');
        let by_pattern = nameless && !self.histograms.is_empty();
        let expected = eval.series.iter().any(|(_, points)| points.contains(&Point::Histogram));
        expected || by_pattern || self.histograms.iter().any(|name| words(name))
    }
}

fn insert(samples: &mut Samples, timestamp_ms: i64, value: f64) {
    match samples.timestamps.binary_search(&timestamp_ms) {
        Ok(i) => samples.values[i] = value,
        Err(i) => {
            samples.timestamps.insert(i, timestamp_ms);
            samples.values.insert(i, value);
        }
    }
}

struct Engine<'s> {
    source: &'s MemorySource,
    names: Names,
}

impl Engine<'_> {
    fn evaluate(
        &self,
        expr: &str,
        start_ms: i64,
        end_ms: i64,
        step_ms: Option<i64>,
    ) -> Result<Answer, QueryError> {
        let canceled = AtomicBool::new(false);
        let options = Options { delayed_name_removal: self.names == Names::Late, ..Options::new(&canceled) };
        let expr = query::parse(expr)?;
        match step_ms {
            None => query::instant(&expr, start_ms, self.source, &options),
            Some(step_ms) => query::range(&expr, start_ms, end_ms, step_ms, self.source, &options),
        }
    }

    fn check(&self, eval: &Eval) -> Result<(), String> {
        let answer = match self.evaluate(&eval.expr, eval.start_ms, eval.end_ms, eval.step_ms) {
            Ok(answer) => answer,
            Err(error) if eval.fail => return check_failure(eval, &error.to_string()),
            Err(error) => return Err(format!("failed: {error}")),
        };
        if eval.fail {
            return Err("should have failed".into());
        }
        check_annotations("warning", &eval.warn, &answer.warnings)?;
        check_annotations("info", &eval.info, &answer.infos)?;
        check_value(eval, &answer.value)?;
        if eval.step_ms.is_none() {
            self.check_in_range(eval, &answer.value)?;
        }
        Ok(())
    }

    /// Checks that a range query around the same time has the instant query's answer in its middle.
    fn check_in_range(&self, eval: &Eval, value: &Value) -> Result<(), String> {
        let depends = ["start()", "end()", "step()", "range()"].iter().any(|f| eval.expr.contains(f));
        if depends || !matches!(value, Value::Vector(_) | Value::Scalar { .. }) {
            return Ok(());
        }
        let (from, to) = (eval.start_ms - 60_000, eval.start_ms + 60_000);
        let in_range = |e: String| format!("as a range query: {e}");
        let answer =
            self.evaluate(&eval.expr, from, to, Some(60_000)).map_err(|e| in_range(e.to_string()))?;
        if eval.ordered {
            return Ok(());
        }
        let Value::Matrix(rows) = answer.value else { return Err(in_range("not a matrix".into())) };
        let middle = |(labels, samples): (Labels, Samples)| {
            let at = samples.timestamps.binary_search(&eval.start_ms).ok()?;
            Some((labels, eval.start_ms, samples.values[at]))
        };
        let rows: Vec<_> = rows.into_iter().filter_map(middle).collect();
        match value {
            Value::Scalar { .. } => match (rows.as_slice(), eval.scalar) {
                ([(_, _, got)], Some(expected)) if almost_equal(expected, *got) => Ok(()),
                other => Err(in_range(format!("{other:?}"))),
            },
            _ => check_vector(eval, &rows).map_err(in_range),
        }
    }
}

fn check_failure(eval: &Eval, error: &str) -> Result<(), String> {
    match &eval.fail_message {
        Some(text) if !text.matches(error) => Err(format!("should have failed with {text:?}, but: {error}")),
        _ => Ok(()),
    }
}

fn check_annotations(kind: &str, expected: &Annotations, found: &[String]) -> Result<(), String> {
    if expected.none && !found.is_empty() {
        return Err(format!("expected no {kind}, found {found:?}"));
    }
    if expected.some && found.is_empty() {
        return Err(format!("expected a {kind}, found none"));
    }
    if expected.texts.is_empty() {
        return Ok(());
    }
    if let Some(missing) = expected.texts.iter().find(|t| !found.iter().any(|f| t.matches(f))) {
        return Err(format!("expected {kind} {missing:?}, found {found:?}"));
    }
    match found.iter().find(|f| !expected.texts.iter().any(|t| t.matches(f))) {
        Some(surprise) => Err(format!("unexpected {kind} {surprise:?}")),
        None => Ok(()),
    }
}

fn check_value(eval: &Eval, value: &Value) -> Result<(), String> {
    match value {
        Value::Scalar { value, .. } => match eval.scalar {
            Some(expected) if almost_equal(expected, *value) => Ok(()),
            other => Err(format!("expected {other:?}, got {value}")),
        },
        Value::String { value, .. } => match &eval.string {
            Some(expected) if expected == value => Ok(()),
            other => Err(format!("expected {other:?}, got {value:?}")),
        },
        Value::Vector(rows) => check_vector(eval, rows),
        Value::Matrix(rows) => check_matrix(eval, rows),
    }
}

fn check_vector(eval: &Eval, rows: &[(Labels, i64, f64)]) -> Result<(), String> {
    if eval.scalar.is_some() {
        return Err(format!("expected a scalar, got {rows:?}"));
    }
    for (position, (labels, _, value)) in rows.iter().enumerate() {
        let expected = eval.series.iter().position(|(l, _)| l == labels);
        let Some(at) = expected else { return Err(format!("unexpected {labels:?} {value}")) };
        if eval.ordered && at != position {
            return Err(format!("{labels:?} should be at {at}, is at {position}"));
        }
        match eval.series[at].1.first() {
            Some(Point::Value(expected)) if almost_equal(*expected, *value) => {}
            other => return Err(format!("expected {labels:?} {other:?}, got {value}")),
        }
    }
    match eval.series.iter().find(|(l, _)| !rows.iter().any(|(r, ..)| r == l)) {
        Some((labels, _)) => Err(format!("missing {labels:?}, got {rows:?}")),
        None => Ok(()),
    }
}

fn check_matrix(eval: &Eval, rows: &[(Labels, Samples)]) -> Result<(), String> {
    let (start_ms, end_ms, step_ms) =
        eval.matrix.unwrap_or((eval.start_ms, eval.end_ms, eval.step_ms.unwrap_or(1)));
    if !rows.is_sorted_by(|a, b| a.0.iter().le(b.0.iter())) {
        return Err("not sorted by labels".into());
    }
    let mut expected_rows = eval.series.clone();
    expected_rows.extend(eval.scalar.map(|v| (Labels::empty(), vec![Point::Value(v)])));
    for (labels, samples) in rows {
        let Some((_, points)) = expected_rows.iter().find(|(l, _)| l == labels) else {
            return Err(format!("unexpected {labels:?} {samples:?}"));
        };
        let mut expected = Samples::default();
        for (i, point) in points.iter().enumerate() {
            if let Point::Value(value) = point {
                expected.push(start_ms + i as i64 * step_ms, *value);
            }
        }
        let same = expected.timestamps == samples.timestamps
            && expected.values.iter().zip(&samples.values).all(|(a, b)| almost_equal(*a, *b))
            && expected.timestamps.last().is_none_or(|t| *t <= end_ms);
        if !same {
            return Err(format!("{labels:?}: expected {expected:?}, got {samples:?}"));
        }
    }
    match expected_rows.iter().find(|(l, _)| !rows.iter().any(|(r, _)| r == l)) {
        Some((labels, _)) => Err(format!("missing {labels:?}, got {rows:?}")),
        None => Ok(()),
    }
}

fn almost_equal(a: f64, b: f64) -> bool {
    if a.is_nan() && b.is_nan() || a == b {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < EPSILON * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < EPSILON
}
