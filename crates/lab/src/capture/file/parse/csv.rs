//! Tables of comma-separated values, with a map of their columns: `1:label:host,2:metric:load,3:time:unix_s`.

use super::super::request::Parsed;
use super::{Extra, integer, lines, number};
use anyhow::Result;

/// Limit on the number of a column.
const COLUMNS_MAX: usize = 1_024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    columns: Vec<(usize, Column)>,
    /// True if the first line has names of columns.
    pub(crate) has_header: bool,
    /// Time of rows without a time. `None` for the time of arrival.
    pub(crate) timestamp_ms: Option<i64>,
    /// Labels of all series, which replace those of the rows.
    pub(crate) extra: Vec<Extra>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    Metric(String),
    Label(String),
    Time(Form),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Number of units in a second.
    Unix(i64),
    Rfc3339,
}

impl Options {
    /// `None` if the map is not valid, or has no metric.
    pub(crate) fn of(map: &str) -> Option<Self> {
        let mut columns = Vec::new();
        for entry in map.split(',') {
            let (number, rest) = entry.split_once(':')?;
            let (kind, name) = rest.split_once(':')?;
            let number = number.trim().parse().ok().filter(|number| (1..=COLUMNS_MAX).contains(number))?;
            let column = match (kind, name) {
                (_, "") => return None,
                ("metric", name) => Column::Metric(name.to_owned()),
                ("label", name) => Column::Label(name.to_owned()),
                ("time", "unix_s") => Column::Time(Form::Unix(1)),
                ("time", "unix_ms") => Column::Time(Form::Unix(1_000)),
                ("time", "unix_us") => Column::Time(Form::Unix(1_000_000)),
                ("time", "unix_ns") => Column::Time(Form::Unix(1_000_000_000)),
                ("time", "rfc3339") => Column::Time(Form::Rfc3339),
                _ => return None,
            };
            columns.push((number, column));
        }
        let has_metric = columns.iter().any(|(_, column)| matches!(column, Column::Metric(_)));
        has_metric.then(|| Self { columns, has_header: false, timestamp_ms: None, extra: Vec::new() })
    }
}

pub(super) fn parse(piece: &[u8], options: &Options, arrival_ms: i64, out: &mut Parsed) -> Result<()> {
    for line in lines(piece) {
        match Row::of(line, options, arrival_ms) {
            Some(row) => row.put(options, out)?,
            None => out.refuse_line(),
        }
    }
    Ok(())
}

struct Row<'a> {
    labels: Vec<(&'a str, Vec<u8>)>,
    values: Vec<(&'a str, f64)>,
    timestamp_ms: i64,
}

impl<'a> Row<'a> {
    fn of(line: &[u8], options: &'a Options, arrival_ms: i64) -> Option<Self> {
        let cells = cells(line)?;
        let timestamp_ms = options.timestamp_ms.unwrap_or(arrival_ms);
        let mut row = Self { labels: Vec::new(), values: Vec::new(), timestamp_ms };
        for (column, what) in &options.columns {
            let cell = cells.get(column - 1)?;
            match what {
                Column::Label(name) => row.labels.push((name, cell.clone())),
                Column::Time(form) => row.timestamp_ms = form.ms(cell.trim_ascii())?,
                Column::Metric(_) if cell.is_empty() => {}
                Column::Metric(name) => {
                    row.values.push((name, number(cell.trim_ascii()).filter(|value| !value.is_nan())?));
                }
            }
        }
        Some(row)
    }

    fn put(&self, options: &Options, out: &mut Parsed) -> Result<()> {
        let mut labels = Vec::with_capacity(self.labels.len() + options.extra.len() + 1);
        for (name, value) in &self.labels {
            labels.push(out.put_label(name.as_bytes(), value)?);
        }
        for (name, value) in &options.extra {
            labels.push(out.put_label(name.as_bytes(), value.as_bytes())?);
        }
        for (name, value) in &self.values {
            labels.push(out.put_name(&[name.as_bytes()])?);
            out.put_series(&labels, [(self.timestamp_ms, *value)])?;
            labels.pop();
        }
        Ok(())
    }
}

impl Form {
    fn ms(self, cell: &[u8]) -> Option<i64> {
        match (self, integer(cell)) {
            (Self::Rfc3339, _) => {
                let time: jiff::Timestamp = std::str::from_utf8(cell).ok()?.parse().ok()?;
                Some(time.as_millisecond())
            }
            (Self::Unix(units), Some(whole)) => {
                i64::try_from((i128::from(whole) * 1000).div_euclid(units.into())).ok()
            }
            (Self::Unix(units), None) => {
                let ms = (number(cell)? * 1000.0 / units as f64).round();
                (-1e15..1e15).contains(&ms).then_some(ms as i64)
            }
        }
    }
}

/// The cells of a row, without quotes. `None` if a quote is not closed, or if there are too many cells.
fn cells(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut cells, mut rest) = (Vec::new(), line);
    loop {
        let mut cell = Vec::new();
        if let Some(mut quoted) = rest.strip_prefix(b"\"") {
            loop {
                let end = quoted.iter().position(|byte| *byte == b'"')?;
                cell.extend_from_slice(&quoted[..end]);
                quoted = &quoted[end + 1..];
                // two quotes stand for one
                match quoted.strip_prefix(b"\"") {
                    Some(after) => (quoted, _) = (after, cell.push(b'"')),
                    None => break,
                }
            }
            rest = quoted;
            if !rest.is_empty() && rest[0] != b',' {
                return None;
            }
        } else {
            let end = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
            cell.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        cells.push(cell);
        if cells.len() > COLUMNS_MAX {
            cells.pop();
            return Some(cells);
        }
        match rest.strip_prefix(b",") {
            Some(after) => rest = after,
            None => return Some(cells),
        }
    }
}
