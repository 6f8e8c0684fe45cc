//! Tables of comma-separated values, over HTTP. A row has the samples of a target, and the URL says once for the table what
//! each column means:
//!
//! ```text
//!   ?format=1:time:unix_ms,2:label:instance,3:label:job,4:label:le,5:metric:metric_0,6:metric:metric_1
//!   1795284000123,10.96.0.1:9102,checkout-api,,17,0.5
//! ```
//!
//! The buckets of histograms with the same `le` have a row of their own.

use super::{Driver, LINES_OVER_HTTP, POINT_BYTES, Prepared};
use crate::generate::fleet::{BOUND_LABEL, Fleet};
use crate::generate::plan::Plan;
use crate::generate::protocol::Protocol;
use crate::generate::template::SlotTarget;
use crate::http::percent;
use std::io::Write;

pub(super) static DRIVER: Driver = Driver {
    protocol: Protocol::Csv,
    name: "csv",
    about: "tables of comma-separated values over HTTP",
    number: 11,
    address: "http://127.0.0.1:9009/api/v1/import/csv",
    content_type: "text/csv",
    no_timers: Some("the names of timers differ, and each would need a column of the table"),
    prepare: Some(|plan, targets, generation| Box::new(Table::of(plan, targets, generation))),
    ..LINES_OVER_HTTP
};

/// Most columns of a table that Floodmark reads.
pub(crate) const COLUMNS_MAX: usize = 1_024;

/// Limit on the length of the map of columns. Floodmark reads at most 64 KiB of a request before its body.
pub(crate) const MAP_BYTES_MAX: usize = 48 << 10;

#[derive(Debug)]
struct Table {
    /// The map of columns, as a parameter of the URL.
    query: String,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    /// Index of the target among those of the slot.
    part: usize,
    /// The cells of the labels, with a comma before each.
    labels: Box<[u8]>,
    cells: Vec<Cell>,
    /// Commas behind the last value.
    commas_after: usize,
}

/// A value, and how many commas come before it.
#[derive(Debug)]
struct Cell {
    commas: usize,
    metric: u32,
}

/// The column of a value, and its metric.
type Place = (usize, u32);

/// The columns of some metrics. Metrics with the same name share one.
#[derive(Debug)]
struct Columns {
    names: Vec<String>,
    first_metric: u32,
    /// Index of the column of each metric from the first on.
    of_metric: Vec<usize>,
}

impl Columns {
    fn of(fleet: &Fleet, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let first_metric = targets.iter().map(|part| part.first_metric).min().unwrap_or(0);
        let end = targets.iter().map(|part| part.first_metric + part.metrics).max().unwrap_or(0);
        let (mut names, mut of_metric): (Vec<String>, _) = (Vec::new(), Vec::new());
        for metric in first_metric..end {
            let name = fleet.metric_name(metric, metric_generation);
            if names.last() != Some(&name) {
                names.push(name);
            }
            of_metric.push(names.len() - 1);
        }
        Self { names, first_metric, of_metric }
    }

    fn has(&self, metric: u32) -> usize {
        self.of_metric[(metric - self.first_metric) as usize]
    }
}

impl Table {
    fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let fleet = &plan.fleet;
        let columns = Columns::of(fleet, targets, metric_generation);
        let bounds = |part: &SlotTarget| part.first_metric..part.first_metric + part.metrics;
        let has_bounds = targets.iter().flat_map(bounds).any(|metric| fleet.histograms.le(metric).is_some());
        let (mut rows, mut names) = (Vec::new(), Vec::new());
        for (number, part) in targets.iter().enumerate() {
            let labels = fleet.target_labels(part.target, part.generation);
            if number == 0 {
                names = labels.iter().map(|(name, _)| name.clone()).collect();
            }
            // the rows of a target by their `le`; that of the first row may be missing
            let mut of_target: Vec<(Option<String>, Vec<Place>)> = Vec::new();
            for metric in bounds(part) {
                let le = fleet.histograms.le(metric);
                let cell = (columns.has(metric), metric);
                match of_target.iter_mut().find(|(bound, _)| *bound == le) {
                    Some((_, cells)) => cells.push(cell),
                    None => of_target.push((le, vec![cell])),
                }
            }
            for (le, cells) in of_target {
                let mut head = Vec::new();
                let values = labels.iter().map(|(_, value)| value.as_str());
                let le = has_bounds.then(|| le.as_deref().unwrap_or_default());
                values.chain(le).for_each(|value| put_cell(&mut head, value));
                rows.push(Row::of(number, head, &cells, columns.names.len()));
            }
        }
        names.extend(has_bounds.then(|| BOUND_LABEL.to_owned()));
        Self { query: map(&names, &columns.names), rows }
    }
}

/// The parameter with the map of columns: the time, some labels, and some metrics.
fn map(labels: &[String], metrics: &[String]) -> String {
    let labels = labels.iter().map(|name| ("label", name));
    let metrics = metrics.iter().map(|name| ("metric", name));
    let mut query = "format=1:time:unix_ms".to_owned();
    for (number, (kind, name)) in (2..).zip(labels.chain(metrics)) {
        query += &format!(",{number}:{kind}:{}", percent(name));
    }
    query
}

/// Number of columns, and length of the map, of a table with so many metrics.
pub(crate) fn size(fleet: &Fleet, metrics: usize) -> (usize, usize) {
    let labels = fleet.target_labels(0, 0);
    let label_bytes: usize = labels.iter().map(|(name, _)| percent(name).to_string().len()).sum();
    let columns = 2 + labels.len() + metrics;
    // the number and the kind of a column take up to 13 bytes, besides its name
    let longest = [0, metrics.saturating_sub(1) as u32].map(|metric| fleet.metric_name(metric, 0).len());
    (columns, label_bytes + metrics * longest[0].max(longest[1]) + 13 * columns)
}

/// Appends a comma and a cell, with quotes if it needs them.
fn put_cell(out: &mut Vec<u8>, text: &str) {
    out.push(b',');
    if text.contains(['"', ',']) {
        out.push(b'"');
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

impl Row {
    /// `cells` are the values by column, in ascending order.
    fn of(part: usize, labels: Vec<u8>, cells: &[Place], columns: usize) -> Self {
        // the first column follows the labels, or the time
        let mut reached = 0;
        let cell = |&(column, metric): &Place| {
            let commas = column + 1 - reached;
            reached = column + 1;
            Cell { commas, metric }
        };
        let cells = cells.iter().map(cell).collect();
        Self { part, labels: labels.into(), cells, commas_after: columns - reached }
    }
}

impl Prepared for Table {
    fn put(&mut self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let commas = |body: &mut Vec<u8>, count: usize| body.resize(body.len() + count, b',');
        for row in &self.rows {
            let part = targets[row.part];
            let key = plan.target_key(part.target, part.generation);
            write!(body, "{}", plan.timestamp_ms(part.target, round)).expect("BUG: writing to memory failed");
            body.extend_from_slice(&row.labels);
            for cell in &row.cells {
                commas(body, cell.commas);
                let value = plan.value(key, cell.metric, round);
                write!(body, "{value}").expect("BUG: writing to memory failed");
            }
            commas(body, row.commas_after);
            body.push(b'\n');
        }
    }

    fn body_bytes_expected(&self, _: &[SlotTarget]) -> usize {
        let row = |row: &Row| {
            let commas: usize = row.cells.iter().map(|cell| cell.commas).sum();
            row.labels.len() + commas + row.commas_after + (row.cells.len() + 1) * POINT_BYTES / 2
        };
        self.rows.iter().map(row).sum()
    }

    fn memory_bytes(&self) -> usize {
        let row = |row: &Row| size_of_val(row) + row.labels.len() + size_of_val(row.cells.as_slice());
        self.query.len() + self.rows.iter().map(row).sum::<usize>()
    }

    fn query(&self) -> Option<&str> {
        Some(&self.query)
    }
}
