//! VictoriaMetrics' JSON lines: `{"metric":{"__name__":"up","job":"x"},"values":[1,null],"timestamps":[1000,2000]}`.

use super::super::request::Parsed;
use super::{Extra, lines};
use crate::json::{Json, unescape};
use anyhow::{Context, Result, ensure};
use model::STALE_NAN_BITS;
use model::caps::SERIES_LABELS_MAX;
use std::borrow::Cow;

pub(super) fn parse(piece: &[u8], extra: &[Extra], out: &mut Parsed) -> Result<()> {
    for line in lines(piece) {
        let Ok(line) = Line::of(line) else {
            out.refuse_line();
            continue;
        };
        let mut labels = Vec::with_capacity(line.metric.len() + extra.len());
        for (name, value) in &line.metric {
            labels.push(out.put_label(name.as_bytes(), value.as_bytes())?);
        }
        for (name, value) in extra {
            labels.push(out.put_label(name.as_bytes(), value.as_bytes())?);
        }
        out.put_series(&labels, line.timestamps.into_iter().zip(line.values))?;
    }
    Ok(())
}

#[derive(Default)]
struct Line<'a> {
    metric: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    values: Vec<f64>,
    timestamps: Vec<i64>,
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Result<Self> {
        let mut json = Json::new(std::str::from_utf8(line)?);
        let mut this = Self::default();
        json.object(|json, key| match key {
            "metric" => json.object(|json, name| {
                this.metric.push((unescape(name)?, unescape(json.string()?)?));
                Ok(())
            }),
            "values" => json.list(|json| {
                this.values.push(value(json.scalar()?).context("a value is not a number")?);
                Ok(())
            }),
            "timestamps" => json.list(|json| {
                this.timestamps.push(json.word()?.parse()?);
                Ok(())
            }),
            _ => json.skip(),
        })?;
        json.end()?;
        let (values, times, labels) = (this.values.len(), this.timestamps.len(), this.metric.len());
        ensure!(values == times, "there are {values} values and {times} timestamps");
        ensure!(labels <= SERIES_LABELS_MAX, "there are {labels} labels");
        Ok(this)
    }
}

fn value(text: &str) -> Option<f64> {
    match text {
        "null" => Some(f64::from_bits(STALE_NAN_BITS)),
        text => text.parse().ok(),
    }
}
