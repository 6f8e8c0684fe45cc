//! Harmful requests for Graphite's paths.

use super::{Attack, BAD, Row, of};
use crate::harness::wire::{self, Series};
use crate::harness::{Request, Server};
use stdx::rng::Rng;

/// Statuses that may answer a request that is valid but expensive.
const COSTLY: &[u16] = &[200, 400, 422, 503];

/// Statuses that may answer a request that is too expensive.
const REFUSED: &[u16] = &[400, 422, 503];

/// The longest name, and the longest text of a target.
const LONG: usize = 250_000;

/// A pattern for which a regex engine keeps thousands of states in mind.
const SLOW: &str = "[ab]*a[ab]{2000}c";

fn render(target: &str, variables: &[(&str, &str)]) -> Request {
    let params = [&[("target", target), ("format", "json"), ("from", "-1min")][..], variables].concat();
    Request::form("/render", &params)
}

fn list(one: &str, count: usize) -> String {
    vec![one; count].join(",")
}

/// A text for which an automaton with few states does not help.
fn random(bytes: usize) -> String {
    let mut rng = Rng::new(bytes as u64);
    (0..bytes).map(|_| if rng.chance(0.5) { 'a' } else { 'b' }).collect()
}

/// Writes values of a tag that are slow to test. All of them together take much longer than a query may.
pub(super) fn fill(server: &Server, now_ms: i64) {
    let mut rng = Rng::new(1);
    for _ in 0..20 {
        let value = |_| (0..16_000).map(|_| if rng.chance(0.5) { 'a' } else { 'b' }).collect::<String>();
        let values: Vec<_> = (0..20).map(value).collect();
        let series =
            values.into_iter().map(|value| Series::named("own").label("t", value).sample(now_ms, 1.0));
        let body = wire::v1(&series.collect::<Vec<_>>());
        server.send(&of("hostile", Request::write(&body))).expect(204, &[]);
    }
}

pub(super) fn attacks() -> Vec<Attack> {
    super::attacks([variables(), groups(), patterns(), others()].concat())
}

/// A text that is written once and used thousands of times.
fn variables() -> Vec<Row> {
    let (uses, long) = (list("$a", 9_900), "x".repeat(LONG));
    let of_tags = format!("template(aliasByTags(randomWalk('x'),{uses}),a='')");
    let with = |value: &str| render(&of_tags, &[("template[a]", value)]);
    let own = |call: &str, value: &str| {
        render(&format!("template({},a='{value}')", call.replace("$a", &uses)), &[])
    };
    let half = &long[..LONG / 2];
    vec![
        ("graphite: a variable of 900 KB", with(&"x".repeat(900_000)), BAD),
        ("graphite: a variable used 9,900 times", with(&long), COSTLY),
        ("graphite: a text used 9,900 times", own("aliasByTags(randomWalk('x'),$a)", half), COSTLY),
        ("graphite: a legend used 9,900 times", own("legendValue(randomWalk('x'),$a)", half), COSTLY),
        ("graphite: tags of events", own("events($a)", half), COSTLY),
        ("graphite: tags of groups", own("groupByTags(randomWalk('x'),'sum',$a)", half), COSTLY),
        ("graphite: digits used 9,900 times", own("events($a)", &"7".repeat(LONG / 2)), COSTLY),
    ]
}

/// Groups that hold long tags under short names.
fn groups() -> Vec<Row> {
    let walks = |count: usize| (0..count).map(|i| format!("randomWalk('{i}')")).collect::<Vec<_>>().join(",");
    let of_names = |callback: &str| {
        let stacked = format!("alias(timeStack(randomWalk('{}'),'1s',0,1000),'a')", "x".repeat(LONG - 1_000));
        render(&format!("countSeries(groupByNodes({stacked},'{callback}','timeShift'))"), &[])
    };
    let unit = "a".repeat(200_000);
    let of_units = format!("alias(timeStack(group({}),'1s{unit}',0,1000),'a')", walks(50));
    vec![
        (
            "graphite: intervals of 200 KB",
            render(&format!("groupByTags({of_units},'sum','name','timeShift')"), &[]),
            BAD,
        ),
        ("graphite: names in groups", of_names("sum"), &[422, 503]),
        ("graphite: names in collected groups", of_names("countSeries"), &[422, 503]),
    ]
}

fn patterns() -> Vec<Row> {
    let named = format!("alias(constantLine(1),'{}')", random(LONG - 1_000));
    vec![
        ("graphite: values that are slow to test", Request::ask("/tags/t", &[("filter", SLOW)]), &[503]),
        // the threads must be free again: the one for small queries gives up before this is refused for its steps
        ("graphite: a name that is slow to test", render(&format!("grep({named},'{SLOW}')"), &[]), &[400]),
        ("graphite: a name to exclude", render(&format!("exclude({named},'{SLOW}')"), &[]), REFUSED),
    ]
}

fn others() -> Vec<Row> {
    let completed = |query: &str| {
        let params = [("format", "completer"), ("automatic_variants", "1"), ("query", query)];
        Request::form("/metrics/find", &params)
    };
    let tags: String = (0..80_000).map(|i| format!(";a{i}=b")).collect();
    vec![
        ("graphite: a million levels", completed(&".".repeat(1_000_000)), BAD),
        ("graphite: a target of a megabyte", render(&"x".repeat(1_000_000), &[]), BAD),
        (
            "graphite: a series of 80,000 tags",
            Request::form("/tags/tagSeries", &[("path", &format!("own{tags}"))]),
            BAD,
        ),
    ]
}
