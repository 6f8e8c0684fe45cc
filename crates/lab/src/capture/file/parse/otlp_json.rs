//! OpenTelemetry's points in JSON, which have the names of the fields in [`super::otlp`]. Whole numbers may be strings.
//!
//! The members of an object have no order, so what is needed first is read first, and the rest after that.

use super::super::request::Parsed;
use super::super::sink::Label;
use super::exponential::Sign;
use super::otlp::{Attribute, Data, Point, put, resource_labels};
use crate::json::{Json, unescape};
use anyhow::{Result, ensure};
use std::borrow::Cow;

pub(super) fn parse(body: &[u8], out: &mut Parsed) -> Result<()> {
    let mut json = Json::new(std::str::from_utf8(body)?);
    json.object(|json, key| match key {
        "resourceMetrics" => json.list(|json| read_resource(json, out)),
        _ => json.skip(),
    })?;
    json.end()
}

fn read_resource(json: &mut Json<'_>, out: &mut Parsed) -> Result<()> {
    let (mut attributes, mut scopes) = (Vec::new(), Vec::new());
    json.object(|json, key| match key {
        "resource" => json.object(|json, key| match key {
            "attributes" => read_attributes(json, &mut attributes),
            _ => json.skip(),
        }),
        "scopeMetrics" => later(json, &mut scopes),
        _ => json.skip(),
    })?;
    let resource = resource_labels(&attributes, out)?;
    scopes.iter_mut().try_for_each(|scopes| {
        scopes.list(|json| {
            json.object(|json, key| match key {
                "metrics" => json.list(|json| read_metric(json, &resource, out)),
                _ => json.skip(),
            })
        })
    })
}

/// Skips a value, and keeps its place.
fn later<'a>(json: &mut Json<'a>, places: &mut Vec<Json<'a>>) -> Result<()> {
    ensure!(places.is_empty(), "a member occurs twice");
    places.push(json.clone());
    json.skip()
}

fn read_metric(json: &mut Json<'_>, resource: &[Label], out: &mut Parsed) -> Result<()> {
    let (mut name, mut kind, mut places) = (Cow::Borrowed(""), Data::Gauge, Vec::new());
    json.object(|json, key| {
        kind = match key {
            "name" => {
                name = unescape(json.string()?)?;
                return Ok(());
            }
            "gauge" => Data::Gauge,
            "sum" => Data::Sum,
            "histogram" => Data::Histogram,
            "exponentialHistogram" => Data::Exponential,
            "summary" => Data::Summary,
            _ => return json.skip(),
        };
        later(json, &mut places)
    })?;
    let Some(mut data) = places.pop() else { return Ok(()) };
    data.object(|json, key| match key {
        "isMonotonic" => {
            let is_monotonic = json.word()? == "true";
            if is_monotonic && kind == Data::Sum {
                kind = Data::MonotonicSum;
            }
            Ok(())
        }
        "dataPoints" => later(json, &mut places),
        _ => json.skip(),
    })?;
    places.iter_mut().try_for_each(|points| {
        points.list(|json| {
            let point = read_point(json)?;
            put(name.as_bytes(), kind, point, resource, out)
        })
    })
}

/// Reads a point of any kind.
fn read_point<'a>(json: &mut Json<'a>) -> Result<Point<'a>> {
    let mut point = Point::default();
    json.object(|json, key| {
        match key {
            "attributes" => return read_attributes(json, &mut point.attributes),
            "timeUnixNano" => point.time_ns = json.scalar()?.parse()?,
            "flags" => point.flags = json.scalar()?.parse()?,
            "asDouble" => point.value = Some(json.scalar()?.parse()?),
            "asInt" => point.value = Some(json.scalar()?.parse::<i64>()? as f64),
            "count" => point.count = json.scalar()?.parse()?,
            "sum" => point.sum = Some(json.scalar()?.parse()?),
            "bucketCounts" => return read_numbers(json, &mut point.buckets),
            "scale" => point.exponential.scale = json.scalar()?.parse()?,
            "zeroCount" => point.exponential.zero_count = json.scalar()?.parse()?,
            "zeroThreshold" => point.exponential.zero_threshold = json.scalar()?.parse()?,
            "positive" => return read_sign(json, &mut point.exponential.positive),
            "negative" => return read_sign(json, &mut point.exponential.negative),
            "explicitBounds" => return read_numbers(json, &mut point.bounds),
            "quantileValues" => {
                return json.list(|json| {
                    let (mut at, mut value) = (0.0, 0.0);
                    json.object(|json, key| {
                        match key {
                            "quantile" => at = json.scalar()?.parse()?,
                            "value" => value = json.scalar()?.parse()?,
                            _ => json.skip()?,
                        }
                        Ok(())
                    })?;
                    point.quantiles.push((at, value));
                    Ok(())
                });
            }
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(point)
}

fn read_numbers<T>(json: &mut Json<'_>, numbers: &mut Vec<T>) -> Result<()>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    json.list(|json| {
        numbers.push(json.scalar()?.parse()?);
        Ok(())
    })
}

fn read_sign(json: &mut Json<'_>, sign: &mut Sign) -> Result<()> {
    json.object(|json, key| match key {
        "offset" => {
            sign.offset = json.scalar()?.parse()?;
            Ok(())
        }
        "bucketCounts" => json.list(|json| sign.push(json.scalar()?.parse()?)),
        _ => json.skip(),
    })
}

fn read_attributes<'a>(json: &mut Json<'a>, attributes: &mut Vec<Attribute<'a>>) -> Result<()> {
    json.list(|json| {
        let (mut name, mut value) = (Cow::Borrowed(""), None);
        json.object(|json, key| match key {
            "key" => {
                name = unescape(json.string()?)?;
                Ok(())
            }
            "value" => json.object(|json, key| {
                value = match key {
                    "stringValue" => Some(unescape(json.string()?)?),
                    "boolValue" => Some(json.word()?.into()),
                    "intValue" => Some(json.scalar()?.into()),
                    "doubleValue" => Some(json.scalar()?.parse::<f64>()?.to_string().into()),
                    _ => return json.skip(),
                };
                Ok(())
            }),
            _ => json.skip(),
        })?;
        attributes.extend(value.map(|value| (bytes(name), bytes(value))));
        Ok(())
    })
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
