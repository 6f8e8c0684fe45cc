//! OpenTelemetry's points in protobuf.
//!
//! ```text
//!   Request   1 ResourceMetrics*     ResourceMetrics  1 Resource   2 ScopeMetrics*     Resource      1 KeyValue*
//!   ScopeMetrics  2 Metric*          Metric   1 name   5 Gauge   7 Sum   9 Histogram   10 Exponential   11 Summary
//!   Gauge, Sum, Histogram, Summary   1 points*         Sum  3 is monotonic
//!   NumberDataPoint     7 attributes*   3 time   4 double   6 int         8 flags
//!   HistogramDataPoint  9 attributes*   3 time   4 count    5 sum         6 bucket counts*   7 bounds*   10 flags
//!   ExponentialHistogramDataPoint  1 attributes*  3 time  4 count  5 sum  6 scale  7 zero count  8, 9 Buckets  10 flags  14 threshold
//!   Buckets             1 offset      2 counts*
//!   SummaryDataPoint    7 attributes*   3 time   4 count    5 sum         6 quantiles*       8 flags
//! ```
//!
//! A point becomes the series of Prometheus' text. Their names have no units, and `target_info` is left out.

use super::super::request::Parsed;
use super::super::sink::Label;
use super::exponential::{Exponential, Sign};
use crate::fields::{Field, Fields};
use anyhow::{Result, bail};
use bytes::Buf;
use model::STALE_NAN_BITS;
use prost::encoding::decode_varint;
use std::borrow::Cow;

const NS_PER_MS: u64 = 1_000_000;

/// Flag of a point that says that there is no value any more.
const NO_RECORDED_VALUE: u64 = 1;

/// Text of an attribute's value. Lists, maps and bytes have none, and are left out.
pub(super) type Attribute<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

#[derive(Debug, Default)]
pub(super) struct Point<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    pub(super) time_ns: u64,
    pub(super) flags: u64,
    pub(super) value: Option<f64>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) buckets: Vec<u64>,
    pub(super) bounds: Vec<f64>,
    pub(super) quantiles: Vec<(f64, f64)>,
    pub(super) exponential: Exponential,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    Gauge,
    Sum,
    MonotonicSum,
    Histogram,
    /// An exponential histogram, which becomes a classic one.
    Exponential,
    Summary,
}

pub(super) fn parse(message: &[u8], out: &mut Parsed) -> Result<()> {
    each(message, 1, |resource_metrics| {
        let mut attributes = Vec::new();
        each(resource_metrics, 1, |resource| {
            each(resource, 1, |pair| read_attribute(pair, &mut attributes))
        })?;
        let resource = resource_labels(&attributes, out)?;
        each(resource_metrics, 2, |scope| each(scope, 2, |metric| read_metric(metric, &resource, out)))
    })
}

/// Calls `read` with each submessage in a field.
fn each<'a>(message: &'a [u8], wanted: u32, mut read: impl FnMut(&'a [u8]) -> Result<()>) -> Result<()> {
    let mut fields = Fields::of(message);
    while let Some((number, field)) = fields.next()? {
        if let (true, Field::Bytes(content)) = (number == wanted, field) {
            read(content)?;
        }
    }
    Ok(())
}

fn read_metric(metric: &[u8], resource: &[Label], out: &mut Parsed) -> Result<()> {
    let (mut name, mut data): (&[u8], _) = (b"", None);
    let mut fields = Fields::of(metric);
    while let Some((number, field)) = fields.next()? {
        let Field::Bytes(content) = field else { continue };
        match number {
            1 => name = content,
            5 => data = Some((Data::Gauge, content)),
            7 => data = Some((Data::Sum, content)),
            9 => data = Some((Data::Histogram, content)),
            10 => data = Some((Data::Exponential, content)),
            11 => data = Some((Data::Summary, content)),
            _ => {}
        }
    }
    let Some((mut kind, content)) = data else { return Ok(()) };
    let mut fields = Fields::of(content);
    while let Some((number, field)) = fields.next()? {
        if let (Data::Sum, 3, Field::Number(1)) = (kind, number, field) {
            kind = Data::MonotonicSum;
        }
    }
    each(content, 1, |point| {
        let point = match kind {
            Data::Exponential => read_exponential(point)?,
            _ => read_point(point, kind)?,
        };
        put(name, kind, point, resource, out)
    })
}

fn read_point(message: &[u8], kind: Data) -> Result<Point<'_>> {
    let mut point = Point::default();
    let mut fields = Fields::of(message);
    while let Some((number, field)) = fields.next()? {
        match (kind, number, field) {
            (Data::Histogram, 9, Field::Bytes(pair)) => read_attribute(pair, &mut point.attributes)?,
            (Data::Histogram, 6, Field::Bytes(counts)) => packed(counts, |n| point.buckets.push(n))?,
            (Data::Histogram, 6, Field::Fixed64(count)) => point.buckets.push(count),
            (Data::Histogram, 7, Field::Bytes(bounds)) => {
                packed(bounds, |n| point.bounds.push(f64::from_bits(n)))?;
            }
            (Data::Histogram, 7, Field::Fixed64(bound)) => point.bounds.push(f64::from_bits(bound)),
            (Data::Histogram, 10, Field::Number(flags)) => point.flags = flags,
            (Data::Histogram | Data::Summary, 4, Field::Fixed64(count)) => point.count = count,
            (Data::Histogram | Data::Summary, 5, Field::Fixed64(sum)) => {
                point.sum = Some(f64::from_bits(sum));
            }
            (Data::Summary, 6, Field::Bytes(quantile)) => {
                let (mut at, mut value) = (0.0, 0.0);
                let mut fields = Fields::of(quantile);
                while let Some((number, field)) = fields.next()? {
                    match (number, field) {
                        (1, Field::Fixed64(bits)) => at = f64::from_bits(bits),
                        (2, Field::Fixed64(bits)) => value = f64::from_bits(bits),
                        _ => {}
                    }
                }
                point.quantiles.push((at, value));
            }
            (Data::Gauge | Data::Sum | Data::MonotonicSum, 4, Field::Fixed64(bits)) => {
                point.value = Some(f64::from_bits(bits));
            }
            (Data::Gauge | Data::Sum | Data::MonotonicSum, 6, Field::Fixed64(bits)) => {
                point.value = Some(bits.cast_signed() as f64);
            }
            (_, 3, Field::Fixed64(time)) => point.time_ns = time,
            (Data::Histogram, ..) => {}
            (_, 7, Field::Bytes(pair)) => read_attribute(pair, &mut point.attributes)?,
            (_, 8, Field::Number(flags)) => point.flags = flags,
            _ => {}
        }
    }
    Ok(point)
}

fn read_exponential(message: &[u8]) -> Result<Point<'_>> {
    let mut point = Point::default();
    let mut fields = Fields::of(message);
    while let Some((number, field)) = fields.next()? {
        let exponential = &mut point.exponential;
        match (number, field) {
            (1, Field::Bytes(pair)) => read_attribute(pair, &mut point.attributes)?,
            (3, Field::Fixed64(time)) => point.time_ns = time,
            (4, Field::Fixed64(count)) => point.count = count,
            (5, Field::Fixed64(sum)) => point.sum = Some(f64::from_bits(sum)),
            (6, Field::Number(scale)) => exponential.scale = signed(scale),
            (7, Field::Fixed64(count)) => exponential.zero_count = count,
            (8, Field::Bytes(buckets)) => exponential.positive = read_sign(buckets)?,
            (9, Field::Bytes(buckets)) => exponential.negative = read_sign(buckets)?,
            (10, Field::Number(flags)) => point.flags = flags,
            (14, Field::Fixed64(threshold)) => exponential.zero_threshold = f64::from_bits(threshold),
            _ => {}
        }
    }
    Ok(point)
}

fn read_sign(buckets: &[u8]) -> Result<Sign> {
    let mut sign = Sign::default();
    let mut fields = Fields::of(buckets);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Number(offset)) => sign.offset = signed(offset),
            (2, Field::Bytes(mut counts)) => {
                while !counts.is_empty() {
                    sign.push(decode_varint(&mut counts)?)?;
                }
            }
            (2, Field::Number(count)) => sign.push(count)?,
            _ => {}
        }
    }
    Ok(sign)
}

/// A zigzagged number, of which only the low 32 bits count.
fn signed(number: u64) -> i32 {
    let number = number as u32;
    (number >> 1) as i32 ^ -((number & 1) as i32)
}

fn packed(mut numbers: &[u8], mut put: impl FnMut(u64)) -> Result<()> {
    while !numbers.is_empty() {
        put(numbers.try_get_u64_le()?);
    }
    Ok(())
}

/// Reads a `KeyValue` (1 key, 2 value). The value is a string (1), boolean (2), integer (3), double (4), or something else.
fn read_attribute<'a>(pair: &'a [u8], attributes: &mut Vec<Attribute<'a>>) -> Result<()> {
    let (mut key, mut value): (&[u8], Option<Cow<'a, [u8]>>) = (b"", None);
    let mut fields = Fields::of(pair);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => key = bytes,
            (2, Field::Bytes(any)) => {
                let mut fields = Fields::of(any);
                while let Some((number, field)) = fields.next()? {
                    value = match (number, field) {
                        (1, Field::Bytes(text)) => Some(text.into()),
                        (2, Field::Number(flag)) => {
                            Some(if flag == 0 { b"false" as &[u8] } else { b"true" }.into())
                        }
                        (3, Field::Number(n)) => Some(n.cast_signed().to_string().into_bytes().into()),
                        (4, Field::Fixed64(bits)) => {
                            Some(f64::from_bits(bits).to_string().into_bytes().into())
                        }
                        _ => None,
                    };
                }
            }
            _ => {}
        }
    }
    attributes.extend(value.map(|value| (key.into(), value)));
    Ok(())
}

/// The labels that a resource gives to its series: `job` and `instance`.
pub(super) fn resource_labels(attributes: &[Attribute<'_>], out: &mut Parsed) -> Result<Vec<Label>> {
    let value = |wanted: &str| {
        let mut found = attributes.iter().filter(|(key, _)| **key == *wanted.as_bytes());
        found.next_back().map(|(_, value)| &**value)
    };
    let mut labels = Vec::new();
    if let Some(name) = value("service.name") {
        let key = out.put_text(&[b"job"])?;
        let job = match value("service.namespace") {
            Some(namespace) => out.put_text(&[namespace, b"/", name])?,
            None => out.put_text(&[name])?,
        };
        labels.push([key, job]);
    }
    if let Some(instance) = value("service.instance.id") {
        labels.push(out.put_label(b"instance", instance)?);
    }
    Ok(labels)
}

/// Adds the series of a point.
pub(super) fn put(
    name: &[u8],
    kind: Data,
    mut point: Point<'_>,
    resource: &[Label],
    out: &mut Parsed,
) -> Result<()> {
    if point.time_ns == 0 {
        out.refuse_line();
        return Ok(());
    }
    if kind == Data::Exponential {
        (point.bounds, point.buckets) = point.exponential.classic();
    }
    let timestamp_ms = (point.time_ns / NS_PER_MS) as i64;
    let is_stale = point.flags & NO_RECORDED_VALUE != 0;
    let value = |value: f64| (timestamp_ms, if is_stale { f64::from_bits(STALE_NAN_BITS) } else { value });
    let mut labels = resource.to_vec();
    for (key, text) in &point.attributes {
        let key = plain(key, false);
        labels.push(out.put_label(&key, text)?);
    }
    let name = plain(name, true);
    let mut series = |suffix: &[u8], label: Option<(&[u8], f64)>, this: f64| -> Result<()> {
        let kept = labels.len();
        if let Some((name, number)) = label {
            let number = if number == f64::INFINITY { "+Inf".into() } else { number.to_string() };
            labels.push(out.put_label(name, number.as_bytes())?);
        }
        labels.push(out.put_name(&[&name, suffix])?);
        out.put_series(&labels, [value(this)])?;
        labels.truncate(kept);
        Ok(())
    };
    match kind {
        Data::Gauge | Data::Sum | Data::MonotonicSum => {
            let Some(value) = point.value.or(is_stale.then_some(0.0)) else {
                out.refuse_line();
                return Ok(());
            };
            let is_total = kind == Data::MonotonicSum && !name.ends_with(b"_total");
            series(if is_total { b"_total" } else { b"" }, None, value)
        }
        Data::Histogram | Data::Exponential => {
            if !point.buckets.is_empty() && point.buckets.len() != point.bounds.len() + 1 {
                bail!("a histogram has {} buckets and {} bounds", point.buckets.len(), point.bounds.len());
            }
            let mut below: u64 = 0;
            for (count, bound) in point.buckets.iter().zip(&point.bounds) {
                below = below.saturating_add(*count);
                series(b"_bucket", Some((b"le", *bound)), below as f64)?;
            }
            series(b"_bucket", Some((b"le", f64::INFINITY)), point.count as f64)?;
            if let Some(sum) = point.sum {
                series(b"_sum", None, sum)?;
            }
            series(b"_count", None, point.count as f64)
        }
        Data::Summary => {
            for (at, value) in &point.quantiles {
                series(b"", Some((b"quantile", *at)), *value)?;
            }
            series(b"_sum", None, point.sum.unwrap_or(0.0))?;
            series(b"_count", None, point.count as f64)
        }
    }
}

/// Replaces the characters that names did not have before Prometheus 3.
fn plain(name: &[u8], is_metric: bool) -> Vec<u8> {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || is_metric && byte == b':';
    let mut plain: Vec<u8> = name.iter().map(|byte| if keeps(*byte) { *byte } else { b'_' }).collect();
    if plain.first().is_some_and(u8::is_ascii_digit) {
        plain.insert(0, b'_');
    }
    plain
}
