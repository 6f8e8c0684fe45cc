//! Reads samples back through the query API.

use super::http::{Reply, Request};
use super::process::Server;
use serde_json::Value;
use std::collections::BTreeMap;

/// Maps the labels of each series, as JSON with sorted names, to its samples: time in milliseconds, and the
/// bits of the value.
pub(crate) type Matrix = BTreeMap<String, Vec<(i64, u64)>>;

pub(crate) fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000))
}

impl Server {
    #[track_caller]
    pub(crate) fn query_as(&self, tenant: Option<&str>, query: &str, at_ms: i64) -> Value {
        let request = Request::form("/api/v1/query", &[("query", query), ("time", &seconds(at_ms))]);
        let request = match tenant {
            Some(tenant) => request.tenant(tenant),
            None => request,
        };
        data(&self.send(&request))
    }

    #[track_caller]
    pub(crate) fn query(&self, query: &str, at_ms: i64) -> Value {
        self.query_as(None, query, at_ms)
    }

    /// Returns all samples up to a time that a selector with a range, such as `a[1h]`, finds.
    #[track_caller]
    pub(crate) fn samples(&self, selector: &str, at_ms: i64) -> Matrix {
        matrix(&self.query(selector, at_ms))
    }

    /// Returns the samples of the only series that the selector finds. They are empty if there is no such
    /// series.
    #[track_caller]
    pub(crate) fn samples_of_one(&self, selector: &str, at_ms: i64) -> Vec<(i64, f64)> {
        let all = self.samples(selector, at_ms);
        assert!(all.len() <= 1, "more than one series: {all:?}");
        let bits = all.into_values().next().unwrap_or_default();
        bits.into_iter().map(|(t, v)| (t, f64::from_bits(v))).collect()
    }

    /// Returns the value of an instant query whose result has at most one series. `None` if there is none.
    #[track_caller]
    pub(crate) fn value(&self, query: &str, at_ms: i64) -> Option<f64> {
        let data = self.query(query, at_ms);
        let result = data["result"].as_array().expect("a vector");
        assert!(result.len() <= 1, "more than one series: {data}");
        result.first().map(|series| sample(&series["value"]).1)
    }
}

#[track_caller]
pub(crate) fn data(reply: &Reply) -> Value {
    let mut json = reply.json();
    assert_eq!((reply.status, &json["status"]), (200, &Value::from("success")), "{json}");
    json["data"].take()
}

#[track_caller]
pub(crate) fn matrix(data: &Value) -> Matrix {
    assert_eq!(data["resultType"], "matrix", "{data}");
    let mut all = Matrix::new();
    for series in data["result"].as_array().expect("a list of series") {
        let points = series["values"].as_array().expect("a list of samples");
        let points = points.iter().map(sample).map(|(t, v)| (t, v.to_bits())).collect();
        let twice = all.insert(series["metric"].to_string(), points);
        assert!(twice.is_none(), "an answer has a series twice: {}", series["metric"]);
    }
    all
}

#[track_caller]
pub(crate) fn sample(pair: &Value) -> (i64, f64) {
    let seconds = pair[0].as_f64().unwrap_or_else(|| panic!("no time in {pair}"));
    let text = pair[1].as_str().unwrap_or_else(|| panic!("no value in {pair}"));
    let value = match text {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().unwrap_or_else(|e| panic!("{number:?}: {e}")),
    };
    ((seconds * 1000.0).round() as i64, value)
}
