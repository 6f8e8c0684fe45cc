//! Evaluation of selectors. Each series is read once, for all steps.

use super::ast::{Call, Node, Selector, Subquery};
use super::eval::Evaluator;
use super::float::{ABSENT, drop_stale, is_present};
use super::functions::Function;
use super::functions::range::window::Spec;
use super::functions::range::{Windows, rolled};
use super::grid::Grid;
use super::matrix::{Column, Merged, same_labelset};
use super::row::{Row, RowLabels, Sink};
use super::{ANNOTATIONS_MAX, QueryError};
use crate::matcher::Matcher;
use crate::meter::Charge;
use crate::source::{Bucket, BucketSet, RangeWindows, Rolled, RolledSelect, Select, SeriesSet};
use hashbrown::HashSet;
use model::labels::METRIC_NAME;
use model::{LabelsRef, Samples, SeriesKey, SeriesSamples, TimeRange};
use std::ops::Range;

struct SetLabels<'s>(&'s mut dyn SeriesSet);

impl RowLabels for SetLabels<'_> {
    fn get(&mut self) -> LabelsRef<'_> {
        self.0.labels()
    }
}

struct BucketLabels<'s, 'b>(&'s mut (dyn BucketSet + 'b));

impl RowLabels for BucketLabels<'_, '_> {
    fn get(&mut self) -> LabelsRef<'_> {
        self.0.labels()
    }
}

/// Charge for a bucket and its end time, in values of 16 bytes.
const BUCKET_VALUES: usize = (size_of::<Bucket>() + size_of::<i64>()).div_ceil(16);

/// Charge for a key in a growing hash set, in values of 16 bytes.
const SEEN_VALUES: usize = 4;

fn no_histograms(labels: LabelsRef<'_>) -> QueryError {
    let name = labels.get(METRIC_NAME).unwrap_or_default();
    QueryError::Execution(format!("{name} has native histograms, which cannot be evaluated yet"))
}

impl<'a> Evaluator<'a> {
    pub(super) fn each_series(
        &mut self,
        matchers: &[Matcher],
        range: TimeRange,
        visit: &mut dyn FnMut(&mut dyn SeriesSet, &mut Samples) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let mut set = self.source.select(&Select { matchers, range })?;
        let (mut samples, mut charge) =
            std::mem::replace(&mut self.samples, (SeriesSamples::default(), self.meter.charge()));
        loop {
            set.limit(self.meter.left() + charge.values());
            if !set.next(&mut samples)? {
                break;
            }
            self.check_canceled()?;
            let floats = match &mut samples {
                SeriesSamples::Floats(floats) => floats,
                SeriesSamples::Histograms(histograms) if histograms.is_empty() => continue,
                SeriesSamples::Histograms(_) => return Err(no_histograms(set.labels())),
            };
            let grown = (floats.timestamps.capacity() as u64).saturating_sub(charge.values());
            charge.add(grown as usize)?;
            self.meter.count_samples(floats.len());
            visit(&mut *set, floats)?;
        }
        self.samples = (samples, charge);
        Ok(())
    }

    /// Evaluates an instant selector: the newest sample within the lookback at each step. With `times`, the
    /// values are the samples' times in seconds.
    pub(super) fn select_instant(
        &mut self,
        selector: &Selector,
        grid: &Grid,
        times: bool,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let (shift, lookback_ms) = (self.shift(&selector.time), self.options.lookback_delta_ms);
        let first_ms = shift.apply(grid.start_ms).saturating_sub(lookback_ms.saturating_sub(1));
        let range = TimeRange::new(first_ms, shift.apply(grid.last_ms()));
        let mut row = Column::new(self.meter, grid.count, ABSENT)?;
        self.each_series(&selector.matchers, range, &mut |set, samples| {
            let mut any = false;
            let mut next = 0;
            for (step, cell) in row.values.iter_mut().enumerate() {
                let at_ms = shift.apply(grid.time_ms(step));
                while next < samples.len() && samples.timestamps[next] <= at_ms {
                    next += 1;
                }
                let newest = next
                    .checked_sub(1)
                    .filter(|i| samples.timestamps[*i] > at_ms.saturating_sub(lookback_ms));
                *cell = match newest {
                    Some(i) if is_present(samples.values[i]) => {
                        any = true;
                        if times { samples.timestamps[i] as f64 / 1000.0 } else { samples.values[i] }
                    }
                    _ => ABSENT,
                };
            }
            if !any {
                return Ok(());
            }
            let mut labels = SetLabels(set);
            sink(Row { labels: &mut labels, strip: false, drop_name: false, values: &mut row.values })
        })
    }

    pub(super) fn select_range(
        &mut self,
        call: &Call,
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let (mut params, mut range) = (Vec::new(), None);
        for arg in &call.args {
            match arg {
                Node::Range(..) | Node::Subquery(_) => range = Some(arg),
                scalar => params.push(self.scalar(scalar, grid)?),
            }
        }
        let arg = range.expect("BUG: types were checked, but there is no range vector");
        self.check_range_params(call.function, &params)?;
        let params = params.iter().map(|p| &**p).collect();
        let mut windows = Windows::new(call.function, params, self.meter);
        let mut out = Column::new(self.meter, grid.count, ABSENT)?;
        let mut finish = RangeRows::new(self, call.function, arg);
        match arg {
            Node::Range(selector, range_ms) => {
                let shift = self.shift(&selector.time);
                let spec = Spec { grid: *grid, shift, range_ms: *range_ms };
                let all = 0..grid.count;
                match self.rolled(call.function, &selector.matchers, &spec)? {
                    Some((rolled, steps)) if steps == all => {
                        self.bucket_rows(rolled, call.function, &spec, steps, &mut out.values, &mut |row| {
                            finish.pass(row, sink)
                        })?;
                    }
                    Some((rolled, steps)) => {
                        let mut merged = Merged::new(self.meter, grid.count);
                        for steps in [0..steps.start, steps.end..grid.count] {
                            let part = spec.part(&steps);
                            self.sample_rows(
                                &selector.matchers,
                                &mut windows,
                                &part,
                                steps,
                                &mut out.values,
                                &mut |row| merged.add_row(row),
                            )?;
                        }
                        let part = spec.part(&steps);
                        self.bucket_rows(rolled, call.function, &part, steps, &mut out.values, &mut |row| {
                            merged.add_row(row)
                        })?;
                        merged.matrix.emit(&mut |row| finish.pass(row, sink))?;
                    }
                    None => {
                        self.sample_rows(
                            &selector.matchers,
                            &mut windows,
                            &spec,
                            all,
                            &mut out.values,
                            &mut |row| finish.pass(row, sink),
                        )?;
                    }
                }
            }
            Node::Subquery(subquery) => {
                let shift = self.shift(&subquery.time);
                let spec = Spec { grid: *grid, shift, range_ms: subquery.range_ms };
                let inner = self.subquery_grid(subquery, grid)?;
                let mut charge = self.meter.charge();
                charge.add(inner.count)?;
                let room = inner.count;
                let mut samples =
                    Samples { timestamps: Vec::with_capacity(room), values: Vec::with_capacity(room) };
                self.stream(&subquery.expr, &inner, &mut |row| {
                    samples.clear();
                    for (step, value) in row.values.iter().copied().enumerate() {
                        if is_present(value) {
                            samples.push(inner.time_ms(step), value);
                        }
                    }
                    windows.compute(&samples, &spec, &mut out.values)?;
                    finish.pass(row.with_values(&mut out.values), sink)
                })?;
            }
            _ => panic!("BUG: a range vector is neither a selector nor a subquery"),
        }
        let not_counters = finish.not_counters;
        for name in not_counters {
            self.info(format_args!(
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {name:?}"
            ));
        }
        Ok(())
    }

    /// Computes the rows of a function from samples. `spec` describes the windows of `steps`. Other steps get
    /// no value.
    fn sample_rows(
        &mut self,
        matchers: &[Matcher],
        windows: &mut Windows<'_>,
        spec: &Spec,
        steps: Range<usize>,
        out: &mut [f64],
        put: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        if steps.is_empty() {
            return Ok(());
        }
        out.fill(ABSENT);
        self.each_series(matchers, spec.covers(), &mut |set, samples| {
            drop_stale(samples);
            windows.compute(samples, spec, &mut out[steps.clone()])?;
            let mut labels = SetLabels(set);
            put(Row { labels: &mut labels, strip: false, drop_name: false, values: out })
        })
    }

    fn bucket_rows(
        &mut self,
        mut rolled: Rolled<'_>,
        function: Function,
        spec: &Spec,
        steps: Range<usize>,
        out: &mut [f64],
        put: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        out.fill(ABSENT);
        let (mut buckets, mut ends, mut charge) = (Vec::new(), Vec::new(), self.meter.charge());
        while rolled.set.next(&mut buckets)? {
            self.check_canceled()?;
            let values = (buckets.capacity() * BUCKET_VALUES) as u64;
            charge.add(values.saturating_sub(charge.values()) as usize)?;
            ends.clear();
            ends.extend(buckets.iter().map(|bucket| bucket.end_ms));
            rolled::compute(self.meter, function, &buckets, &ends, spec, &mut out[steps.clone()])?;
            let mut labels = BucketLabels(&mut *rolled.set);
            put(Row { labels: &mut labels, strip: false, drop_name: false, values: out })?;
        }
        Ok(())
    }

    /// The selected series as buckets, if the source has them, and the steps at which buckets replace
    /// samples.
    fn rolled(
        &mut self,
        function: Function,
        matchers: &[Matcher],
        spec: &Spec,
    ) -> Result<Option<(Rolled<'a>, Range<usize>)>, QueryError> {
        let Some(statistics) = rolled::needs(function).filter(|_| spec.grid.count > 0) else {
            return Ok(None);
        };
        let end_ms = |step| spec.shift.apply(spec.grid.time_ms(step));
        let windows = RangeWindows {
            first_ms: end_ms(0),
            last_ms: end_ms(spec.grid.count - 1),
            step_ms: spec.grid.step_ms,
            range_ms: spec.range_ms,
        };
        let source = self.source;
        let Some(rolled) = source.select_rolled(&RolledSelect { matchers, statistics, windows })? else {
            return Ok(None);
        };
        let complete = rolled.complete;
        let within = |step: &usize| {
            let end_ms = end_ms(*step);
            end_ms.saturating_sub(spec.range_ms - 1) >= complete.start_ms && end_ms <= complete.end_ms
        };
        let Some(first) = (0..spec.grid.count).find(within) else { return Ok(None) };
        let end = (first..spec.grid.count).find(|step| !within(step)).unwrap_or(spec.grid.count);
        self.info(format_args!(
            "{} of {} steps of {} are answered from the rollup of {}",
            end - first,
            spec.grid.count,
            function.name(),
            rolled.resolution
        ));
        Ok(Some((rolled, first..end)))
    }

    fn check_range_params(&mut self, function: Function, params: &[Column<'_>]) -> Result<(), QueryError> {
        match function {
            Function::QuantileOverTime => self.warn_quantiles(&params[0]),
            Function::DoubleExponentialSmoothing => {
                for (param, what) in params.iter().zip(["smoothing", "trend"]) {
                    if let Some(bad) = param.iter().find(|v| !(**v > 0.0 && **v < 1.0)) {
                        let short = if what == "smoothing" { "sf" } else { "tf" };
                        return Err(QueryError::Execution(format!(
                            "invalid {what} factor. Expected: 0 < {short} < 1, got: {bad:.6}"
                        )));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Times at which a subquery evaluates its inner expression: multiples of its step within all windows.
    pub(super) fn subquery_grid(&self, subquery: &Subquery, grid: &Grid) -> Result<Grid, QueryError> {
        let shift = self.shift(&subquery.time);
        let step_ms = subquery.step_ms.unwrap_or(self.options.subquery_step_ms);
        let before_ms = shift.apply(grid.start_ms).saturating_sub(subquery.range_ms);
        let start_ms = (before_ms.div_euclid(step_ms)).saturating_add(1).saturating_mul(step_ms);
        Grid::new(start_ms, shift.apply(grid.last_ms()), step_ms, self.meter.max())
    }
}

/// Passes on the rows of a range function. Drops metric names, and checks that the remaining labels are
/// unique. Collects the names of counters that lack a counter's suffix, such as `_total`.
struct RangeRows<'m> {
    delayed: bool,
    drops_name: bool,
    /// Hashes of the label sets passed on so far; `None` if no two series can differ in their names only.
    seen: Option<HashSet<SeriesKey>>,
    charge: Charge<'m>,
    buffer: Vec<u8>,
    counter: bool,
    /// Metric name of all series, if they share one name.
    name: Option<String>,
    not_counters: HashSet<String>,
}

impl<'m> RangeRows<'m> {
    fn new(eval: &Evaluator<'m>, function: Function, arg: &Node) -> Self {
        let delayed = eval.options.delayed_name_removal;
        let drops_name = !matches!(function, Function::LastOverTime | Function::FirstOverTime);
        let unsure = drops_name && !delayed && arg.may_collide_without_name();
        let name = match arg {
            Node::Range(selector, _) => selector.metric_name().map(str::to_owned),
            _ => None,
        };
        Self {
            delayed,
            drops_name,
            seen: unsure.then(HashSet::new),
            charge: eval.meter.charge(),
            buffer: Vec::new(),
            counter: matches!(function, Function::Rate | Function::Increase),
            name,
            not_counters: HashSet::new(),
        }
    }

    fn pass(&mut self, mut row: Row<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        if row.is_empty() {
            return Ok(());
        }
        if self.counter {
            self.check_counter(&mut row);
        }
        if self.drops_name {
            row.without_name(self.delayed);
        }
        if let Some(seen) = &mut self.seen {
            let labels = row.labels(&mut self.buffer);
            self.charge.add(SEEN_VALUES)?;
            if !seen.insert(SeriesKey::of(labels.as_bytes(), 0)) {
                return Err(same_labelset());
            }
        }
        sink(row)
    }

    fn check_counter(&mut self, row: &mut Row<'_>) {
        let mut check = |name: &str| {
            let counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|s| name.ends_with(s));
            let is_room = self.not_counters.len() < ANNOTATIONS_MAX;
            if !counter && is_room && !name.is_empty() && !self.not_counters.contains(name) {
                self.not_counters.insert(name.to_owned());
            }
        };
        match &self.name {
            Some(name) => check(name),
            None if row.strip => {}
            None => check(row.labels.get().get(METRIC_NAME).unwrap_or("")),
        }
    }
}
