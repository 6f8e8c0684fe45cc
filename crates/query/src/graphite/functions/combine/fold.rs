//! Adds series to one result, without holding them.

use crate::QueryError;
use crate::graphite::bind::Node;
use crate::graphite::call::Call;
use crate::graphite::consolidate::{is_enough, percentile};
use crate::graphite::source::Order;
use crate::graphite::{Aggregate, Series, Tags};
use crate::meter::{Charge, Meter, VALUES_PER_CHECK};
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum size of the path expressions in the name of a result. graphite-web has no limit, so the names of large
/// aggregations have megabytes.
const PATHS_BYTES_MAX: usize = 64 << 10;

/// Aggregates all series of a parameter. Returns `None` if there are none. `label` is the name of the aggregation in
/// the name of the result.
pub(super) fn aggregate(
    call: &Call<'_>,
    param: &str,
    label: &str,
    method: Aggregate,
    x_files_factor: Option<f64>,
) -> Result<Option<Series>, QueryError> {
    let mut fold = Fold::new(call.meter(), method);
    fold.add_all(call, param, |_| Ok(()))?;
    let x_files_factor = x_files_factor.unwrap_or(call.context().x_files_factor());
    fold.finish(label, x_files_factor)
}

/// The order in which series must be added. The path expressions of series that come in any order are sorted, which
/// is right only if nothing else but their names decides their order.
pub(super) fn order_for(method: Aggregate, node: &Node) -> Order {
    match method {
        Aggregate::Diff | Aggregate::First | Aggregate::Last => Order::ByName,
        _ if node.has_sorted_paths() => Order::Any,
        _ => Order::ByName,
    }
}

/// The aggregation of the series so far. If they turn out to have different steps, they must be added again, because
/// each is first consolidated to the least common multiple of their steps.
#[derive(Debug)]
pub(super) struct Fold<'m> {
    method: Aggregate,
    /// Step of the result. Grows to a common multiple as series are added.
    step_s: i64,
    /// True if the series so far were not consolidated to `step_s`, so that their values are useless.
    is_stale: bool,
    start_s: i64,
    end_s: i64,
    /// Tags that all series have.
    tags: Option<Tags>,
    paths: Paths,
    count: usize,
    columns: Columns,
    charge: Charge<'m>,
}

impl<'m> Fold<'m> {
    pub(super) fn new(meter: &'m Meter<'m>, method: Aggregate) -> Self {
        Self {
            method,
            step_s: 0,
            is_stale: false,
            start_s: i64::MAX,
            end_s: i64::MIN,
            tags: None,
            paths: Paths::default(),
            count: 0,
            columns: Columns::default(),
            charge: meter.charge(),
        }
    }

    /// Adds all series of a parameter, a second time if their steps differ. `observe` sees each series first.
    pub(super) fn add_all(
        &mut self,
        call: &Call<'_>,
        param: &str,
        mut observe: impl FnMut(&Series) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let setting = call.context().x_files_factor_setting();
        let mut again = None;
        loop {
            for node in call.nodes_of(param) {
                let order = order_for(self.method, node);
                call.each_of(node, order, &mut |series| {
                    observe(&series)?;
                    self.add(series)
                })?;
                self.end_argument(order);
            }
            if !self.must_restart() {
                return Ok(());
            }
            self.restart();
            if again.is_none() {
                again = Some(call.evaluated_twice()?);
            }
            // arguments may have set it, and are evaluated again as before
            call.context().set_x_files_factor(setting);
        }
    }

    /// Adds series that are in memory, each as often as needed.
    pub(super) fn add_held(&mut self, all: &[&Series]) -> Result<(), QueryError> {
        loop {
            for series in all {
                let mut copied = self.charge.meter.charge();
                copied.add_bytes(series.bytes())?;
                self.add((*series).clone())?;
            }
            if !self.must_restart() {
                return Ok(());
            }
            self.restart();
        }
    }

    pub(super) const fn series_count(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, mut series: Series) -> Result<(), QueryError> {
        let step_s =
            if self.step_s == 0 { series.step_s } else { common_multiple(self.step_s, series.step_s)? };
        self.is_stale |= self.count > 0 && step_s != self.step_s;
        self.step_s = step_s;
        self.count += 1;
        self.charge.check()?;
        if self.is_stale {
            return Ok(());
        }
        self.start_s = self.start_s.min(series.start_s);
        self.end_s = self.end_s.max(series.end_s);
        match &mut self.tags {
            Some(tags) => tags.keep_common(&series.tags),
            None => {
                self.charge.add_bytes(series.tags.bytes())?;
                self.tags = Some(std::mem::take(&mut series.tags));
            }
        }
        self.charge.add_bytes(self.paths.add(&series.path_expression))?;
        series.coarsen((step_s / series.step_s) as usize);
        self.columns.add(self.method, series.values, &mut self.charge)
    }

    /// Completes the series of one argument.
    pub(super) fn end_argument(&mut self, order: Order) {
        self.paths.end_argument(order);
    }

    /// True if all series must be added again after [`Self::restart`].
    pub(super) const fn must_restart(&self) -> bool {
        self.is_stale
    }

    /// Forgets the series, but not the step of the result.
    pub(super) fn restart(&mut self) {
        let (step_s, meter) = (self.step_s, self.charge.meter);
        *self = Self { step_s, ..Self::new(meter, self.method) };
    }

    pub(super) fn finish(self, label: &str, x_files_factor: f64) -> Result<Option<Series>, QueryError> {
        let name = format!("{label}Series({})", self.paths.text());
        let Some(mut tags) = self.tags else { return Ok(None) };
        if tags.get("name").is_none() {
            tags.set("name", name.as_str());
        }
        tags.set("aggregatedBy", label);
        let end_s = self.end_s - (self.end_s - self.start_s) % self.step_s;
        let values = self.columns.finish(self.method, self.count, x_files_factor, self.charge.meter)?;
        let computed = Series::computed(name, self.start_s, end_s, self.step_s, values);
        Ok(Some(Series { tags, x_files_factor, ..computed }))
    }
}

/// Least common multiple of two steps.
pub(super) fn common_multiple(a: i64, b: i64) -> Result<i64, QueryError> {
    let (mut x, mut rest) = (a, b);
    while rest != 0 {
        (x, rest) = (rest, x % rest);
    }
    (a / x)
        .checked_mul(b)
        .ok_or_else(|| QueryError::Invalid("the steps of the series have no common multiple".into()))
}

/// What is known of each point.
#[derive(Debug, Default)]
struct Columns {
    /// Number of values that are present.
    counts: Vec<u32>,
    /// Accumulator of the aggregation. For `Range`, the minimum; for `Stddev`, the running mean.
    first: Vec<f64>,
    /// For `Range`, the maximum; for `Stddev`, the sum of squared deviations from the mean (Welford). Empty
    /// for other aggregations.
    second: Vec<f64>,
    /// All values, series by series. Only for aggregations that need them.
    all: Vec<Vec<f64>>,
}

impl Columns {
    fn add(
        &mut self,
        method: Aggregate,
        values: Vec<f64>,
        charge: &mut Charge<'_>,
    ) -> Result<(), QueryError> {
        let has_second = matches!(method, Aggregate::Range | Aggregate::Stddev);
        if values.len() > self.counts.len() {
            let more = values.len() - self.counts.len();
            charge.add_bytes(more * (size_of::<u32>() + size_of::<f64>() * (1 + usize::from(has_second))))?;
            self.counts.resize(values.len(), 0);
            self.first.resize(values.len(), f64::NAN);
            self.second.resize(if has_second { values.len() } else { 0 }, f64::NAN);
        }
        for (i, value) in values.iter().copied().enumerate().filter(|(_, value)| !value.is_nan()) {
            self.counts[i] += 1;
            let first = &mut self.first[i];
            if self.counts[i] == 1 {
                *first = value;
                if has_second {
                    self.second[i] = if method == Aggregate::Stddev { 0.0 } else { value };
                }
                continue;
            }
            match method {
                Aggregate::Average | Aggregate::AvgZero | Aggregate::Sum => *first += value,
                Aggregate::Min => *first = first.min(value),
                Aggregate::Max => *first = first.max(value),
                Aggregate::Last => *first = value,
                Aggregate::Diff => *first -= value,
                Aggregate::Multiply => *first *= value,
                Aggregate::AbsMax if value.abs() > first.abs() => *first = value,
                Aggregate::AbsMin if value.abs() < first.abs() => *first = value,
                Aggregate::Range => {
                    *first = first.min(value);
                    self.second[i] = self.second[i].max(value);
                }
                // by Welford's method, because the values are seen only once
                Aggregate::Stddev => {
                    let distance = value - *first;
                    *first += distance / f64::from(self.counts[i]);
                    self.second[i] += distance * (value - *first);
                }
                Aggregate::AbsMax
                | Aggregate::AbsMin
                | Aggregate::First
                | Aggregate::Count
                | Aggregate::Median
                | Aggregate::Percentile(_) => {}
            }
        }
        if matches!(method, Aggregate::Median | Aggregate::Percentile(_)) {
            charge.add_bytes(values.capacity() * size_of::<f64>() + 2 * size_of::<Vec<f64>>())?;
            self.all.push(values);
        }
        Ok(())
    }

    fn finish(
        self,
        method: Aggregate,
        series: usize,
        x_files_factor: f64,
        meter: &Meter<'_>,
    ) -> Result<Vec<f64>, QueryError> {
        // memory of the result, which exists beside the columns
        let mut charge = meter.charge();
        charge.add_bytes(self.counts.len() * size_of::<f64>())?;
        // memory of the values at one point, and of a copy of them
        charge.add_bytes(2 * self.all.len() * size_of::<f64>())?;
        let mut row = Vec::with_capacity(self.all.len());
        let point = |i: usize| {
            let present = &self.counts[i];
            if !is_enough(*present as usize, series, x_files_factor) {
                return f64::NAN;
            }
            match method {
                // a sum is never a negative zero, as in Python
                Aggregate::Sum => self.first[i] + 0.0,
                Aggregate::Average => (self.first[i] + 0.0) / f64::from(*present),
                Aggregate::AvgZero => (self.first[i] + 0.0) / series as f64,
                Aggregate::Count => f64::from(*present),
                Aggregate::Multiply if (*present as usize) < series => f64::NAN,
                Aggregate::Range => self.second[i] - self.first[i],
                Aggregate::Stddev => (self.second[i] / f64::from(*present)).sqrt(),
                Aggregate::Median | Aggregate::Percentile(_) => {
                    row.clear();
                    row.extend(
                        self.all.iter().filter_map(|values| values.get(i)).filter(|value| !value.is_nan()),
                    );
                    match method {
                        Aggregate::Percentile(percent) => percentile(&mut row, percent, false),
                        _ => method.of(&row),
                    }
                }
                _ => self.first[i],
            }
        };
        // at each point, as many values as there are series may be sorted
        let points_per_check = VALUES_PER_CHECK / self.all.len().clamp(1, VALUES_PER_CHECK);
        meter.collect(self.counts.len(), points_per_check, point)
    }
}

/// Distinct path expressions, for the name of the result, in order of arrival; sorted within an argument
/// whose series come in any order. Limited to `PATHS_BYTES_MAX`.
#[derive(Debug, Default)]
struct Paths {
    all: Vec<Arc<str>>,
    known: HashSet<Arc<str>>,
    bytes: usize,
    /// Number of path expressions of the arguments that are complete.
    complete: usize,
    /// True if some are left out.
    is_cut: bool,
}

impl Paths {
    /// Returns the memory that was taken.
    fn add(&mut self, path: &Arc<str>) -> usize {
        if self.all.last() == Some(path) || self.is_cut || self.known.contains(path) {
            return 0;
        }
        if self.bytes + path.len() > PATHS_BYTES_MAX {
            self.is_cut = true;
            return 0;
        }
        self.bytes += path.len() + 1;
        self.known.insert(Arc::clone(path));
        self.all.push(Arc::clone(path));
        path.len() + 4 * size_of::<Arc<str>>()
    }

    /// Brings the path expressions of an argument into order, if its series came in another.
    fn end_argument(&mut self, order: Order) {
        if order == Order::Any {
            self.all[self.complete..].sort_unstable();
        }
        self.complete = self.all.len();
    }

    fn text(&self) -> String {
        let mut text = self.all.join(",");
        if self.is_cut {
            text.push_str(CUT);
        }
        text
    }
}

/// Shows that some texts of a list are left out.
const CUT: &str = ",…";

/// Joins texts by commas, and cuts the list like the path expressions of an aggregation.
pub(super) fn joined<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let mut out = String::new();
    for (number, text) in texts.into_iter().enumerate() {
        if out.len() + text.len() > PATHS_BYTES_MAX {
            return out + CUT;
        }
        if number > 0 {
            out.push(',');
        }
        out.push_str(text);
    }
    out
}
