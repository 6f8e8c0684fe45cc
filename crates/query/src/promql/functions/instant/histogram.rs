//! Quantiles and fractions of classic histograms.

use crate::meter::Charge;
use crate::promql::ast::Node;
use crate::promql::eval::Evaluator;
use crate::promql::float::{almost_equal, is_present, to_text};
use crate::promql::grid::Grid;
use crate::promql::label_set::{is_metadata, keep, with};
use crate::promql::matrix::{Matrix, Merged};
use crate::promql::row::{Row, RowName, Sink};
use crate::promql::{ANNOTATION_BYTES_MAX, ANNOTATIONS_MAX, QueryError};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use model::Labels;
use model::labels::METRIC_NAME;

const BUCKET_LABEL: &str = "le";

/// If the relative difference between the counts of two buckets is below this limit, it is a rounding error.
const SMALL_DELTA: f64 = 1e-12;

/// A bucket: the number of observations up to `upper`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bucket {
    upper: f64,
    count: f64,
}

struct Histogram {
    name: RowName,
    /// For each bucket, its upper bound and its row in the matrix.
    rows: Vec<(f64, usize)>,
}

struct Histograms<'m> {
    matrix: Matrix<'m>,
    all: Vec<Histogram>,
    _charge: Charge<'m>,
}

impl<'a> Evaluator<'a> {
    pub(super) fn histogram_quantile(
        &mut self,
        args: &[Node],
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let quantiles = self.scalar(&args[0], grid)?;
        self.warn_quantiles(&quantiles);
        let histograms = self.histograms(&args[1], grid)?;
        let mut out = Merged::new(self.meter, grid.count);
        self.quantiles(&histograms, |h| Ok(h.name.clone()), &quantiles, &mut out)?;
        out.matrix.emit(sink)
    }

    pub(super) fn histogram_quantiles(
        &mut self,
        args: &[Node],
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let Node::Text(label) = &args[1] else {
            panic!("BUG: types were checked, but an argument is not a string")
        };
        let histograms = self.histograms(&args[0], grid)?;
        let mut out = Merged::new(self.meter, grid.count);
        for arg in &args[2..] {
            let quantiles = self.scalar(arg, grid)?;
            self.warn_quantiles(&quantiles);
            let value = open_metrics(quantiles[0]);
            let name = |histogram: &Histogram| {
                let labels = with(histogram.name.labels.as_ref(), &[(label, &value)])?;
                Ok(RowName { labels, drop_name: histogram.name.drop_name })
            };
            self.quantiles(&histograms, name, &quantiles, &mut out)?;
        }
        out.matrix.emit(sink)
    }

    pub(super) fn histogram_fraction(
        &mut self,
        args: &[Node],
        grid: &Grid,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let (lower, upper) = (self.scalar(&args[0], grid)?, self.scalar(&args[1], grid)?);
        let histograms = self.histograms(&args[2], grid)?;
        let mut out = Merged::new(self.meter, grid.count);
        let mut buckets = Vec::new();
        for histogram in &histograms.all {
            let row = out.row_of(&histogram.name)?;
            for step in 0..grid.count {
                self.check_canceled()?;
                if histogram.buckets_at(&histograms.matrix, step, &mut buckets) {
                    out.set(row, step, fraction(lower[step], upper[step], &mut buckets))?;
                }
            }
        }
        out.matrix.emit(sink)
    }

    fn quantiles(
        &mut self,
        histograms: &Histograms<'_>,
        name_of: impl Fn(&Histogram) -> Result<RowName, QueryError>,
        quantiles: &[f64],
        out: &mut Merged<'_>,
    ) -> Result<(), QueryError> {
        let mut buckets = Vec::new();
        for histogram in &histograms.all {
            let name = name_of(histogram)?;
            let row = out.row_of(&name)?;
            let mut forced = false;
            for (step, q) in quantiles.iter().enumerate() {
                self.check_canceled()?;
                if histogram.buckets_at(&histograms.matrix, step, &mut buckets) {
                    let (value, was_forced) = quantile(*q, &mut buckets);
                    out.set(row, step, value)?;
                    forced |= was_forced;
                }
            }
            if forced {
                self.info_forced_monotonicity(&name.labels);
            }
        }
        Ok(())
    }

    fn info_forced_monotonicity(&mut self, labels: &Labels) {
        let metric = match labels.get(METRIC_NAME) {
            Some(name) if self.options.delayed_name_removal => format!(" for metric name {name:?}"),
            _ => String::new(),
        };
        self.info(format_args!(
            "input to histogram_quantile needed to be fixed for monotonicity (see \
             https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile){metric}"
        ));
    }

    fn histograms(&mut self, vector: &Node, grid: &Grid) -> Result<Histograms<'a>, QueryError> {
        let delayed = self.options.delayed_name_removal;
        let (mut matrix, mut charge) = (Matrix::new(self.meter, grid.count), self.meter.charge());
        let mut all: Vec<Histogram> = Vec::new();
        let mut found = HashMap::<Labels, usize>::new();
        let mut bad = Vec::new();
        self.stream(vector, grid, &mut |row: Row<'_>| {
            let (name, values) = row.into_name();
            let le = name.labels.get(BUCKET_LABEL).unwrap_or("");
            let Ok(upper) = le.parse::<f64>() else {
                if bad.len() < ANNOTATIONS_MAX {
                    let metric = name.labels.get(METRIC_NAME).unwrap_or("");
                    bad.push((
                        metric.to_owned(),
                        le[..le.floor_char_boundary(ANNOTATION_BYTES_MAX)].to_owned(),
                    ));
                }
                return Ok(());
            };
            let signature = keep(name.labels.as_ref(), |name| name != BUCKET_LABEL);
            let histogram = match found.entry(signature) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    charge.add_series(new.key().as_ref())?; // for the key of the map
                    charge.add_series(new.key().as_ref())?;
                    let labels = match delayed {
                        true => new.key().clone(),
                        false => keep(new.key().as_ref(), |name| !is_metadata(name)),
                    };
                    all.push(Histogram { name: RowName { labels, drop_name: delayed }, rows: Vec::new() });
                    *new.insert(all.len() - 1)
                }
            };
            all[histogram].rows.push((upper, matrix.len()));
            matrix.push(RowName { labels: Labels::empty(), drop_name: false }, values)
        })?;
        for (metric, le) in bad {
            let metric = if delayed && !metric.is_empty() {
                format!(" for metric name {metric:?}")
            } else {
                String::new()
            };
            self.warn(format_args!(
                "bucket label \"le\" is missing or has a malformed value of {le:?}{metric}"
            ));
        }
        for histogram in &mut all {
            self.check_canceled()?;
            histogram.rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        Ok(Histograms { matrix, all, _charge: charge })
    }
}

impl Histogram {
    /// Fills `out` with the buckets that have a value at this step, sorted by upper bound. Returns false if
    /// there are none.
    fn buckets_at(&self, matrix: &Matrix<'_>, step: usize, out: &mut Vec<Bucket>) -> bool {
        out.clear();
        for (upper, row) in &self.rows {
            let count = matrix.row(*row)[step];
            if is_present(count) {
                out.push(Bucket { upper: *upper, count });
            }
        }
        !out.is_empty()
    }
}

/// The `q`-quantile, and whether counts were made monotonic (`BucketQuantile` in Prometheus'
/// `promql/quantile.go`).
fn quantile(q: f64, buckets: &mut Vec<Bucket>) -> (f64, bool) {
    if q.is_nan() {
        return (f64::NAN, false);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, false);
    }
    if q > 1.0 {
        return (f64::INFINITY, false);
    }
    if buckets.last().is_none_or(|b| b.upper != f64::INFINITY) {
        return (f64::NAN, false);
    }
    coalesce(buckets);
    let forced = make_monotonic(buckets);
    let last = buckets.len() - 1;
    let observations = buckets[last].count;
    if last == 0 || observations == 0.0 {
        return (f64::NAN, forced);
    }
    let mut rank = q * observations;
    // like Go's sort.Search, which returns the end for a NaN rank
    let b = buckets[..last].partition_point(|b| b.count < rank || b.count.is_nan() || rank.is_nan());
    if b == last {
        return (buckets[last - 1].upper, forced);
    }
    if b == 0 && buckets[0].upper <= 0.0 {
        return (buckets[0].upper, forced);
    }
    let (mut start, end, mut count) = (0.0, buckets[b].upper, buckets[b].count);
    if b > 0 {
        start = buckets[b - 1].upper;
        count -= buckets[b - 1].count;
        rank -= buckets[b - 1].count;
    }
    (start + (end - start) * (rank / count), forced)
}

/// Share of observations between two values (Prometheus' `BucketFraction`).
fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if buckets.last().is_none_or(|b| b.upper != f64::INFINITY) {
        return f64::NAN;
    }
    coalesce(buckets);
    let count = buckets[buckets.len() - 1].count;
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (rank_of(upper, buckets).min(count) - rank_of(lower, buckets).min(count)) / count
}

fn rank_of(value: f64, buckets: &[Bucket]) -> f64 {
    let mut start = if buckets[0].upper <= 0.0 { f64::NEG_INFINITY } else { 0.0 };
    let mut rank = 0.0;
    for bucket in buckets {
        if start >= value {
            return rank;
        }
        if bucket.upper > value {
            if start == f64::NEG_INFINITY {
                return bucket.count;
            }
            return rank + (bucket.count - rank) * (value - start) / (bucket.upper - start);
        }
        (rank, start) = (bucket.count, bucket.upper);
    }
    f64::INFINITY
}

fn coalesce(buckets: &mut Vec<Bucket>) {
    buckets.dedup_by(|later, kept| {
        let same = later.upper == kept.upper;
        if same {
            kept.count += later.count;
        }
        same
    });
}

/// Makes cumulative counts monotonic: a count that is smaller than the previous bucket's count, or differs from it by a
/// rounding error only, becomes equal to it. Returns true if a count was smaller by more than a rounding error.
fn make_monotonic(buckets: &mut [Bucket]) -> bool {
    let (mut forced, mut previous) = (false, buckets[0].count);
    for bucket in &mut buckets[1..] {
        if bucket.count == previous {
            continue;
        }
        if almost_equal(previous, bucket.count, SMALL_DELTA) {
            bucket.count = previous;
        } else if bucket.count < previous {
            bucket.count = previous;
            forced = true;
        } else {
            previous = bucket.count;
        }
    }
    forced
}

/// Formats a float as in OpenMetrics, where integers end in `.0`.
fn open_metrics(value: f64) -> String {
    let text = to_text(value);
    if value.is_finite() && !text.contains(['.', 'e']) { text + ".0" } else { text }
}
