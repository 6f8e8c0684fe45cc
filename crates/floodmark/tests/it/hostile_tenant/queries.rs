//! Harmful read requests.

use super::Attack;
use crate::harness::Request;

/// Statuses that may answer a request that is invalid.
const BAD: &[u16] = &[400, 413];

/// The same for a large request. Four at a time may take more than the tenant's share of the memory for answers.
const LARGE_BAD: &[u16] = &[400, 413, 503];

/// Statuses that may answer a request that is valid but expensive: it is either answered or refused because
/// of its cost.
const COSTLY: &[u16] = &[200, 422, 503];

fn query(text: &str) -> Request {
    Request::form("/api/v1/query", &[("query", text)])
}

fn range(text: &str, start: &str, end: &str, step: &str) -> Request {
    let params = [("query", text), ("start", start), ("end", end), ("step", step)];
    Request::form("/api/v1/query_range", &params)
}

fn list(one: &str, count: usize) -> String {
    vec![one; count].join(",")
}

fn nested(open: &str, close: &str, depth: usize) -> String {
    open.repeat(depth) + "own" + &close.repeat(depth)
}

pub(super) fn attacks(now_ms: i64) -> Vec<Attack> {
    [expressions(), patterns(), costly(now_ms), parameters(), lists(), others()]
        .into_iter()
        .flatten()
        .collect()
}

fn expressions() -> Vec<Attack> {
    vec![
        Attack::new("parentheses", query(&nested("(", ")", 50_000)), BAD),
        Attack::new("functions in functions", query(&nested("abs(", ")", 20_000)), BAD),
        Attack::new("signs", query(&("-".repeat(100_000) + "own")), &[200, 400, 422]),
        Attack::new("subqueries in subqueries", query(&nested("max_over_time(", "[1h:1s])", 1_000)), BAD),
        Attack::new("a long expression", query(&vec!["own"; 60_000].join(" + ")), LARGE_BAD),
        Attack::new("many matchers", query(&format!("count({{{}}})", list("i=~\".+\"", 8_000))), LARGE_BAD),
        Attack::new(
            "many arguments",
            query(&format!("sort_by_label(own,{})", list("\"i\"", 30_000))),
            LARGE_BAD,
        ),
        Attack::new(
            "a huge literal",
            query(&format!("own{{i=\"{}\"}}", "x".repeat(250_000))),
            &[200, 400, 503],
        ),
        Attack::new("a form without end", query(&"a".repeat(2 << 20)), LARGE_BAD),
        Attack::new("no UTF-8", Request::get("/api/v1/query?query=%ff%fe%00"), BAD),
    ]
}

fn patterns() -> Vec<Attack> {
    let matching = |pattern: &str| query(&format!("count(own{{text=~\"{pattern}\"}})"));
    vec![
        Attack::new("nested repetition", matching("(a|ab|b)*(a|ab|b)*(a|ab|b)*c"), COSTLY),
        Attack::new("huge repetition", matching("((a{1000}){1000}){1000}"), BAD),
        Attack::new("large classes", matching(&"\\\\pL".repeat(5_000)), BAD),
        Attack::new("slow to match", matching("[ab]*a[ab]{3000}"), &[200, 400, 422, 503]),
        Attack::new(
            "many patterns",
            Request::ask("/api/v1/labels", &[("match[]", "{i=~\"\\\\w{8}\"}"); 900]),
            BAD,
        ),
    ]
}

fn costly(now_ms: i64) -> Vec<Attack> {
    let (start, end) = ((now_ms / 1000 - 10_900).to_string(), (now_ms / 1000).to_string());
    let of_long = |repeat| format!("label_replace(own,\"d\",\"{}\",\"text\",\"(.*)\")", "$1".repeat(repeat));
    vec![
        Attack::new("a subquery of ten years", query("count_over_time(vector(1)[10y:1ms])"), &[422, 503]),
        Attack::new("subqueries", query(&nested("max_over_time(", "[10m:1s])", 5)), COSTLY),
        Attack::new("a million steps", range("own", "0", "1000000", "1"), BAD),
        Attack::new("as many steps as possible", range("rate(own[10m])", &start, &end, "1"), COSTLY),
        Attack::new("quantiles at each step", range("quantile(0.5, own)", &start, &end, "1"), COSTLY),
        Attack::new("all ranges", query("own[1000y]"), COSTLY),
        Attack::new("every pair", query("own * on () group_left () own"), &[422]),
        Attack::new("long labels", query(&of_long(40)), COSTLY),
        Attack::new("longer labels", query(&of_long(60_000)), &[422, 503]),
        Attack::new(
            "joined labels",
            query(&format!(
                "label_join(vector(1),\"d\",\"{}\",{})",
                "x".repeat(200_000),
                list("\"i\"", 2_000)
            )),
            &[422, 503],
        ),
        Attack::new("a value for each series", query("count_values(\"v\", own)"), COSTLY),
        Attack::new("the largest of all", query("topk(1e18, own)"), COSTLY),
        Attack::new("medians of a subquery", query("count(mad_over_time(own[1h:100ms]))"), COSTLY),
        Attack::new(
            "sorted again and again",
            query(&format!("count(sort_by_label(own,{}))", list("\"text\"", 5_000))),
            COSTLY,
        ),
    ]
}

fn parameters() -> Vec<Attack> {
    let odd = |name: &str, value: &str| Request::ask("/api/v1/query", &[("query", "own"), (name, value)]);
    vec![
        Attack::new("a limit beyond all numbers", odd("limit", "99999999999999999999999"), &[200, 400]),
        Attack::new("a time beyond all times", odd("time", "1e300"), BAD),
        Attack::new("a timeout without end", odd("timeout", "290y"), &[200, 400, 422, 503]),
        Attack::new("a negative lookback", odd("lookback_delta", "-1h"), &[200, 400]),
        Attack::new("no step", range("own", "0", "60", "1e-12"), BAD),
        Attack::new("no numbers", range("own", "NaN", "Inf", "NaN"), BAD),
        Attack::new("all of time", range("own", "-9007199254740", "9007199254740", "1ms"), BAD),
    ]
}

fn lists() -> Vec<Attack> {
    let everything = [("match[]", "{__name__=~\".+\"}")];
    let of = |path: &str| Request::ask(path, &everything);
    let answer = &[200, 413, 503];
    vec![
        Attack::new("all series", of("/api/v1/series"), answer),
        Attack::new("all labels", of("/api/v1/labels"), answer),
        Attack::new("all values", of("/api/v1/label/text/values"), answer),
        Attack::new("many selectors", Request::form("/api/v1/series", &[("match[]", "own"); 20_000]), BAD),
        Attack::new(
            "a long name",
            Request::get(format!("/api/v1/label/{}/values", "n".repeat(20_000))),
            &[200, 400],
        ),
        Attack::new("all metadata", Request::get("/api/v1/metadata?limit=99999999"), &[200, 400]),
        Attack::new(
            "all exemplars",
            Request::ask("/api/v1/query_exemplars", &[("query", "own"), ("start", "0"), ("end", "1e10")]),
            &[200, 400],
        ),
        Attack::new(
            "the TSDB status with a large limit",
            Request::get("/api/v1/status/tsdb?limit=10000"),
            &[200],
        ),
        Attack::new(
            "all active series",
            Request::ask("/api/v1/cardinality/active_series", &[("selector", "own")]),
            answer,
        ),
        Attack::new(
            "too many names",
            Request::ask("/api/v1/cardinality/label_values", &[("label_names[]", "i"); 1_000]),
            BAD,
        ),
        Attack::new("an export", of("/api/v1/export"), &[200, 503]),
        Attack::new(
            "an export in one line",
            Request::ask("/api/v1/export", &[("match[]", "own"), ("max_rows_per_line", "999999999")]),
            &[200, 400, 503],
        ),
    ]
}

fn others() -> Vec<Attack> {
    let post = |path: &str| Request::post(path, Vec::new());
    let delete = "/api/v1/admin/tsdb/delete_series";
    vec![
        Attack::new("another tenant", query("watched").tenant("a"), &[403]),
        Attack::new("several tenants", query("watched").tenant("a|b|hostile"), &[403]),
        Attack::new("a flush", post("/api/v1/admin/flush"), &[403]),
        Attack::new("a compaction", post("/api/v1/admin/compact"), &[403]),
        Attack::new("deletes", Request::form(delete, &[("match[]", "own")]), &[403]),
        Attack::new("queries of all", Request::get("/api/v1/admin/queries"), &[403]),
        Attack::new("the configuration", Request::get("/config"), &[403]),
    ]
}
