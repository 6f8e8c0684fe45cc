//! Writes messages as JSON.

use super::proto::*;
use std::fmt::Write as _;

/// Writes a request as JSON. With `is_snake`, keys are in snake case, and numbers are written in other ways that are
/// allowed.
pub(crate) fn request(request: &Request, is_snake: bool) -> String {
    let mut json = Json { out: String::new(), is_snake };
    json.object(|json| {
        json.list("resourceMetrics", &request.resource_metrics, |json, metrics| {
            json.list("scopeMetrics", &metrics.scope_metrics, |json, scope| {
                json.list("metrics", &scope.metrics, Json::metric);
                json.string("schemaUrl", &scope.schema_url);
                if let Some(Scope { name, version, attributes }) = &scope.scope {
                    json.member("scope");
                    json.object(|json| {
                        json.attributes("attributes", attributes);
                        json.string("name", name);
                        json.string("version", version);
                    });
                }
            });
            if let Some(resource) = &metrics.resource {
                json.member("resource");
                json.object(|json| json.attributes("attributes", &resource.attributes));
            }
            json.string("schemaUrl", &metrics.schema_url);
        });
        json.raw("unknown", r#"{"a":[1,"\u0041\"",null,{"b":true}]}"#);
    });
    json.out
}

struct Json {
    out: String,
    is_snake: bool,
}

impl Json {
    fn separate(&mut self) {
        if !self.out.ends_with(['{', '[', ':']) && !self.out.is_empty() {
            self.out.push(',');
        }
    }

    fn object(&mut self, members: impl FnOnce(&mut Self)) {
        self.out.push('{');
        members(self);
        self.out.push('}');
    }

    fn member(&mut self, name: &str) {
        self.separate();
        self.out.push('"');
        for c in name.chars() {
            match c.is_ascii_uppercase() && self.is_snake {
                true => self.out.extend(['_', c.to_ascii_lowercase()]),
                false => self.out.push(c),
            }
        }
        self.out.push_str("\":");
    }

    fn raw(&mut self, name: &str, value: &str) {
        self.member(name);
        self.out.push_str(value);
    }

    fn list<T>(&mut self, name: &str, values: &[T], mut each: impl FnMut(&mut Self, &T)) {
        if values.is_empty() && self.is_snake {
            return self.raw(name, "null");
        }
        self.elements(name, values, |json, value| json.object(|json| each(json, value)));
    }

    fn elements<T>(&mut self, name: &str, values: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.member(name);
        self.out.push('[');
        for value in values {
            self.separate();
            each(self, value);
        }
        self.out.push(']');
    }

    fn string(&mut self, name: &str, text: &str) {
        self.member(name);
        self.text(text);
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => self.out.extend(['\\', c]),
                '\0'..' ' => write!(self.out, "\\u{:04x}", u32::from(c)).unwrap(),
                '\u{10000}'.. if self.is_snake => {
                    for half in c.encode_utf16(&mut [0; 2]) {
                        write!(self.out, "\\u{half:04X}").unwrap();
                    }
                }
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// A 64-bit integer.
    fn integer(&mut self, name: &str, n: impl std::fmt::Display) {
        self.member(name);
        self.integer_value(n);
    }

    fn integer_value(&mut self, n: impl std::fmt::Display) {
        match self.is_snake {
            true => write!(self.out, "{n}").unwrap(),
            false => write!(self.out, "\"{n}\"").unwrap(),
        }
    }

    fn double(&mut self, name: &str, n: f64) {
        self.member(name);
        self.double_value(n);
    }

    fn double_value(&mut self, n: f64) {
        match n {
            f64::INFINITY => self.out.push_str("\"Infinity\""),
            f64::NEG_INFINITY => self.out.push_str("\"-Infinity\""),
            _ if n.is_nan() => self.out.push_str("\"NaN\""),
            _ if self.is_snake => write!(self.out, "\"{n:e}\"").unwrap(),
            _ => write!(self.out, "{n}").unwrap(),
        }
    }

    fn attributes(&mut self, name: &str, attributes: &[KeyValue]) {
        self.list(name, attributes, Self::key_value);
    }

    fn key_value(&mut self, KeyValue { key, value }: &KeyValue) {
        if let Some(value) = value {
            self.member("value");
            self.object(|json| json.any_value(value));
        }
        self.string("key", key);
    }

    fn any_value(&mut self, AnyValue { value }: &AnyValue) {
        match value {
            None => {}
            Some(Value::Text(text)) => self.string("stringValue", text),
            Some(Value::Bool(value)) => self.raw("boolValue", if *value { "true" } else { "false" }),
            Some(Value::Int(n)) => self.integer("intValue", n),
            Some(Value::Double(n)) => self.double("doubleValue", *n),
            Some(Value::Bytes(bytes)) => {
                self.member("bytesValue");
                self.text(&base64(bytes));
            }
            Some(Value::List(List { values })) => {
                self.member("arrayValue");
                self.object(|json| json.list("values", values, Self::any_value));
            }
            Some(Value::Map(Map { values })) => {
                self.member("kvlistValue");
                self.object(|json| json.list("values", values, Self::key_value));
            }
        }
    }

    fn metric(&mut self, metric: &Metric) {
        match &metric.data {
            None => {}
            Some(Data::Gauge(gauge)) => {
                self.member("gauge");
                self.object(|json| json.list("dataPoints", &gauge.points, Self::number));
            }
            Some(Data::Sum(sum)) => {
                self.member("sum");
                self.object(|json| {
                    json.raw("isMonotonic", if sum.is_monotonic { "true" } else { "false" });
                    json.temporality(sum.temporality);
                    json.list("dataPoints", &sum.points, Self::number);
                });
            }
            Some(Data::Histogram(histogram)) => {
                self.member("histogram");
                self.object(|json| {
                    json.list("dataPoints", &histogram.points, Self::histogram);
                    json.temporality(histogram.temporality);
                });
            }
            Some(Data::Exponential(histogram)) => {
                self.member("exponentialHistogram");
                self.object(|json| {
                    json.list("dataPoints", &histogram.points, Self::exponential);
                    json.temporality(histogram.temporality);
                });
            }
            Some(Data::Summary(summary)) => {
                self.member("summary");
                self.object(|json| json.list("dataPoints", &summary.points, Self::summary));
            }
        }
        self.string("unit", &metric.unit);
        self.string("name", &metric.name);
        self.string("description", &metric.description);
    }

    fn temporality(&mut self, n: i32) {
        let name = ["UNSPECIFIED", "DELTA", "CUMULATIVE"].get(n as usize).filter(|_| self.is_snake);
        match name {
            Some(name) => self.raw("aggregationTemporality", &format!("\"AGGREGATION_TEMPORALITY_{name}\"")),
            None => self.raw("aggregationTemporality", &n.to_string()),
        }
    }

    fn number(&mut self, point: &NumberPoint) {
        match point.value {
            Some(Number::Double(n)) => self.double("asDouble", n),
            Some(Number::Int(n)) => self.integer("asInt", n),
            None => {}
        }
        self.integer("timeUnixNano", point.time);
        self.integer("startTimeUnixNano", point.start);
        self.raw("flags", &point.flags.to_string());
        self.list("exemplars", &point.exemplars, Self::exemplar);
        self.attributes("attributes", &point.attributes);
    }

    fn histogram(&mut self, point: &HistogramPoint) {
        self.attributes("attributes", &point.attributes);
        self.elements("explicitBounds", &point.bounds, |json, bound| json.double_value(*bound));
        self.elements("bucketCounts", &point.counts, |json, count| json.integer_value(count));
        self.integer("timeUnixNano", point.time);
        self.integer("startTimeUnixNano", point.start);
        self.integer("count", point.count);
        for (name, n) in [("sum", point.sum), ("min", point.min), ("max", point.max)] {
            if let Some(n) = n {
                self.double(name, n);
            }
        }
        self.raw("flags", &point.flags.to_string());
        self.list("exemplars", &point.exemplars, Self::exemplar);
    }

    fn exponential(&mut self, point: &ExponentialPoint) {
        self.attributes("attributes", &point.attributes);
        for (name, buckets) in [("positive", &point.positive), ("negative", &point.negative)] {
            let Some(Buckets { offset, counts }) = buckets else { continue };
            self.member(name);
            self.object(|json| {
                json.elements("bucketCounts", counts, |json, count| json.integer_value(count));
                json.raw("offset", &offset.to_string());
            });
        }
        self.integer("timeUnixNano", point.time);
        self.integer("count", point.count);
        self.integer("zeroCount", point.zero_count);
        self.double("zeroThreshold", point.zero_threshold);
        self.raw("scale", &point.scale.to_string());
        if let Some(sum) = point.sum {
            self.double("sum", sum);
        }
        self.raw("flags", &point.flags.to_string());
        self.list("exemplars", &point.exemplars, Self::exemplar);
    }

    fn summary(&mut self, point: &SummaryPoint) {
        self.integer("count", point.count);
        self.double("sum", point.sum);
        self.list("quantileValues", &point.quantiles, |json, Quantile { quantile, value }| {
            json.double("quantile", *quantile);
            json.double("value", *value);
        });
        self.raw("flags", &point.flags.to_string());
        self.attributes("attributes", &point.attributes);
        self.integer("timeUnixNano", point.time);
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        self.string("traceId", &hex(&exemplar.trace_id));
        self.string("spanId", &hex(&exemplar.span_id).to_uppercase());
        match exemplar.value {
            Some(ExemplarNumber::Double(n)) => self.double("asDouble", n),
            Some(ExemplarNumber::Int(n)) => self.integer("asInt", n),
            None => {}
        }
        self.integer("timeUnixNano", exemplar.time);
        self.attributes("filteredAttributes", &exemplar.attributes);
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let mut text = String::new();
    for six in bits.as_bytes().chunks(6) {
        let six = format!("{:0<6}", std::str::from_utf8(six).unwrap());
        text.push(DIGITS[usize::from_str_radix(&six, 2).unwrap()] as char);
    }
    text + &"="[..].repeat((4 - text_len(bytes) % 4) % 4)
}

fn text_len(bytes: &[u8]) -> usize {
    (bytes.len() * 8).div_ceil(6)
}
