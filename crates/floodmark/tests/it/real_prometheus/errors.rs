//! Sends the same invalid requests to Floodmark and to Prometheus, and compares their errors.

use super::servers::Prometheus;
use crate::harness::{Reply, Request, Server};

/// Which parts of the two answers must be equal.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Alike {
    Text,
    /// Only the status and the error type, because the texts of parse errors differ.
    Kind,
}
use Alike::{Kind, Text};

const QUERY: &str = "/api/v1/query";
const RANGE: &str = "/api/v1/query_range";
const SERIES: &str = "/api/v1/series";

macro_rules! range {
    ($query:expr) => {
        &[("query", $query), ("start", "0"), ("end", "60"), ("step", "1")]
    };
    ($start:expr, $end:expr, $step:expr) => {
        &[("query", "1"), ("start", $start), ("end", $end), ("step", $step)]
    };
}

type Case = (&'static str, &'static [(&'static str, &'static str)], Alike);

const REQUESTS: &[Case] = &[
    (RANGE, range!("100", "99", "1"), Text),
    (RANGE, range!("0", "60", "0"), Text),
    (RANGE, range!("0", "60", "-5"), Text),
    (RANGE, range!("0", "60", "x"), Text),
    (RANGE, range!("0", "60", ""), Text),
    (RANGE, range!("0", "60", "1e300"), Kind),
    (RANGE, range!("", "60", "1"), Text),
    (RANGE, range!("0", "", "1"), Text),
    (RANGE, range!("noon", "60", "1"), Text),
    (RANGE, range!("0", "noon", "1"), Text),
    (RANGE, range!("0", "11001", "1"), Kind),
    (RANGE, range!("a[5m]"), Text),
    (RANGE, range!("\"text\""), Text),
    (RANGE, range!("sum("), Kind),
    (RANGE, range!(""), Kind),
    (QUERY, &[], Kind),
    (QUERY, &[("query", "")], Kind),
    (QUERY, &[("query", "1 +")], Kind),
    (QUERY, &[("query", "a{")], Kind),
    (QUERY, &[("query", "{}")], Kind),
    (QUERY, &[("query", "{a=~\".*\"}")], Kind),
    (QUERY, &[("query", "{a=~\"(\"}")], Kind),
    (QUERY, &[("query", "rate(a)")], Kind),
    (QUERY, &[("query", "rate(a[0s])")], Kind),
    (QUERY, &[("query", "nothing(a)")], Kind),
    (QUERY, &[("query", "1 == 1")], Kind),
    (QUERY, &[("query", "a and 1")], Kind),
    (QUERY, &[("query", "-\"text\"")], Kind),
    (QUERY, &[("query", "a offset b")], Kind),
    (QUERY, &[("query", "sum(a) by (b) by (c)")], Kind),
    (QUERY, &[("query", "topk(a, 1)")], Kind),
    (QUERY, &[("query", "1"), ("time", "noon")], Kind),
    (QUERY, &[("query", "1"), ("limit", "-1")], Kind),
    (QUERY, &[("query", "1"), ("limit", "x")], Kind),
    (QUERY, &[("query", "1"), ("lookback_delta", "x")], Kind),
    (SERIES, &[], Text),
    (SERIES, &[("match[]", "{a=~\".*\"}")], Kind),
    (SERIES, &[("match[]", "{")], Kind),
    (SERIES, &[("match[]", "a[5m]")], Kind),
    (SERIES, &[("match[]", "a"), ("limit", "x")], Kind),
    (SERIES, &[("match[]", "a"), ("start", "x")], Kind),
    ("/api/v1/labels", &[("match[]", "{")], Kind),
    ("/api/v1/labels", &[("match[]", "{}")], Kind),
    ("/api/v1/labels", &[("limit", "x")], Kind),
    ("/api/v1/label/a/values", &[("match[]", "{}")], Kind),
    ("/api/v1/label/a/values", &[("end", "x")], Kind),
    ("/api/v1/query_exemplars", &[("query", "a"), ("start", "2"), ("end", "1")], Kind),
    ("/api/v1/query_exemplars", &[("start", "1"), ("end", "2")], Kind),
    // these requests are valid
    (QUERY, &[("query", "a{b!~\".*\"}"), ("time", "1")], Text),
    (QUERY, &[("query", "vector(1) == bool 1"), ("time", "1")], Text),
    (QUERY, &[("query", "1"), ("time", "1"), ("limit", "0")], Text),
];

pub(crate) fn are_alike(server: &Server, prometheus: &Prometheus) {
    let mut wrong = Vec::new();
    for (path, params, alike) in REQUESTS {
        let request = Request::ask(path, params);
        let (ours, theirs) = (server.send(&request), prometheus.send(&request));
        let json = |reply: &Reply| match alike {
            Text => reply.json(),
            Kind => reply.json()["errorType"].take(),
        };
        if ours.status != theirs.status || json(&ours) != json(&theirs) {
            let of = |reply: &Reply| format!("{} {}", reply.status, reply.text());
            wrong.push(format!("{path} {params:?}\n    here:  {}\n    there: {}", of(&ours), of(&theirs)));
        }
    }
    assert!(wrong.is_empty(), "{} of {} answers differ:\n{}", wrong.len(), REQUESTS.len(), wrong.join("\n"));
}
