//! Random searches for metrics, tags and events, compared with graphite-web.

use super::graphite_web::GraphiteWeb;
use super::lines;
use crate::harness::http::encoded;
use crate::harness::{Request, Server};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use stdx::rng::Rng;

/// 2026-01-01 01:00:00 UTC.
const NOW_S: i64 = 1_767_229_200;

const SEARCHES: usize = 300;

/// Nodes that share beginnings or ends with others.
const NODES: &[&str] = &["a", "b", "ab", "a-b", "abc", "x_y", "web1", "web10", "B", "0"];

const TAGS: &[(&str, &[&str])] =
    &[("dc", &["a", "b"]), ("host", &["web1", "web2", "db.1"]), ("rack", &["7"]), ("h", &["a=b", "-"])];

fn pick<'a, T: ?Sized>(rng: &mut Rng, all: &[&'a T]) -> &'a T {
    all[rng.below(all.len() as u64) as usize]
}

fn path(rng: &mut Rng, node: impl Fn(&mut Rng) -> String) -> String {
    let nodes: Vec<_> = (0..=rng.below(4)).map(|_| node(rng)).collect();
    nodes.join(".")
}

fn name(rng: &mut Rng) -> String {
    path(rng, |rng| pick(rng, NODES).to_owned())
}

fn tagged_name(rng: &mut Rng) -> String {
    let mut name = name(rng);
    for (tag, values) in TAGS {
        if rng.below(2) == 0 {
            name.push_str(&format!(";{tag}={}", pick(rng, values)));
        }
    }
    if name.contains(';') { name } else { name + ";rack=7" }
}

/// A pattern for the nodes of a path.
fn pattern(rng: &mut Rng) -> String {
    path(rng, |rng| {
        let (node, other) = (pick(rng, NODES), pick(rng, NODES));
        let begin = &node[..1 + rng.below(node.len() as u64) as usize];
        match rng.below(10) {
            0 | 1 => "*".to_owned(),
            2 => format!("{begin}*"),
            3 => format!("*{begin}"),
            4 => "?".repeat(1 + rng.below(4) as usize),
            5 => format!("[{}]*", pick(rng, &["ab", "a-w", "!a", "xB0"])),
            6 => format!("{{{node},{other}}}"),
            7 => format!("{{{begin}*,{other}}}"),
            _ => node.to_owned(),
        }
    })
}

/// A condition of `/tags/findSeries`.
fn condition(rng: &mut Rng) -> String {
    let (tag, values) = TAGS[rng.below(TAGS.len() as u64) as usize];
    let (operator, value) = (pick(rng, &["=", "!=", "=~", "!=~"]), pick(rng, values));
    match rng.below(6) {
        0 => format!("{tag}{operator}"),
        1 => format!("name{operator}{}", pick(rng, NODES)),
        2 => format!("{tag}=~{}", pick(rng, &["web.*", ".+", "a|b", "(db", "[^a]"])),
        _ => format!("{tag}{operator}{value}"),
    }
}

fn find(rng: &mut Rng) -> String {
    let query = pattern(rng);
    let format = pick(rng, &["treejson", "completer", "json", "nodelist"]);
    let mut params = vec![("query", query.as_str()), ("format", format)];
    for flag in ["wildcards", "leavesOnly", "automatic_variants"] {
        if rng.below(4) == 0 {
            params.push((flag, "1"));
        }
    }
    if format == "nodelist" && rng.below(2) == 0 {
        params.push(("position", "0"));
    }
    format!("/metrics/find?{}", encoded(&params))
}

fn expand(rng: &mut Rng) -> String {
    let (first, second) = (pattern(rng), pattern(rng));
    let mut params = vec![("query", first.as_str())];
    if rng.below(2) == 0 {
        params.push(("query", &second));
    }
    for flag in ["groupByExpr", "leavesOnly"] {
        if rng.below(3) == 0 {
            params.push((flag, "1"));
        }
    }
    format!("/metrics/expand?{}", encoded(&params))
}

fn tags(rng: &mut Rng) -> String {
    let conditions = [condition(rng), condition(rng)];
    let conditions = conditions.iter().take(rng.below(3) as usize).map(|text| ("expr", text.as_str()));
    let conditions: Vec<_> = conditions.collect();
    let tag = pick(rng, &["dc", "host", "rack", "h", "name", "none"]);
    let prefix = pick(rng, &["", "h", "a", "we"]);
    let limit = pick(rng, &["1", "2", "100"]);
    let with = |params: &[(&str, &str)]| encoded(&[&conditions, params].concat());
    match rng.below(5) {
        0 => format!("/tags?{}", encoded(&[("filter", prefix), ("limit", limit)])),
        1 => format!("/tags/{tag}?{}", encoded(&[("filter", prefix), ("limit", limit)])),
        2 => format!("/tags/findSeries?{}", with(&[])),
        3 => format!("/tags/autoComplete/tags?{}", with(&[("tagPrefix", prefix), ("limit", limit)])),
        _ => {
            let params = [("tag", tag), ("valuePrefix", prefix), ("limit", limit)];
            format!("/tags/autoComplete/values?{}", with(&params))
        }
    }
}

fn events(rng: &mut Rng) -> String {
    let tags = pick(rng, &["a", "b", "a b", "b c a", "none"]);
    let mut params = vec![("tags", tags)];
    match rng.below(4) {
        0 => params.push(("set", "union")),
        1 => params.push(("set", "intersection")),
        2 => params.clear(),
        _ => {}
    }
    let from = (NOW_S - rng.below(2000) as i64).to_string();
    if rng.below(2) == 0 {
        params.push(("from", &from));
    }
    let until = (NOW_S - rng.below(1000) as i64).to_string();
    params.push(("until", &until));
    format!("/events/get_data?{}", encoded(&params))
}

/// The answer without what is different by choice: see `docs/graphite.md`.
fn comparable(path: &str, text: &str) -> Value {
    let mut answer: Value = match serde_json::from_str(text) {
        Ok(answer) => answer,
        Err(_) => return Value::String(text.to_owned()),
    };
    remove(&mut answer, if path.starts_with("/tags") { "id" } else { "intervals" });
    // of nodes with the same name below a pattern, graphite-web shows the one that comes first on its disk
    if path.contains("format=treejson")
        && path.contains('.')
        && let Some(nodes) = answer.as_array()
    {
        let ids: BTreeSet<_> = nodes.iter().map(|node| node["id"].to_string()).collect();
        return json!(ids);
    }
    if path.contains("format=completer")
        && let Some(nodes) = answer["metrics"].as_array_mut()
    {
        nodes.sort_by_key(Value::to_string);
    }
    answer
}

fn remove(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(key);
            fields.values_mut().for_each(|value| remove(value, key));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove(item, key)),
        _ => {}
    }
}

#[test]
fn searches_are_answered_as_by_graphite_web() {
    let Some(mut graphite_web) = GraphiteWeb::start(NOW_S) else { return };
    let mut rng = Rng::announced();
    let server = Server::new();
    let paths: BTreeSet<_> = (0..60).map(|_| name(&mut rng)).collect();
    let series: Vec<_> = paths.iter().map(|name| (name.as_str(), 60, NOW_S - 60, &[Some(1.0)][..])).collect();
    graphite_web.load(&series);
    // graphite-web would find files of them as paths below `_tagged`
    let tagged: Vec<_> = (0..40).map(|_| tagged_name(&mut rng)).collect();
    graphite_web.add_tagged(&tagged);
    let names = paths.iter().chain(&tagged);
    let text: String = names.map(|name| format!("{name} 1 {}\n", NOW_S - 60)).collect();
    server.send(&lines(&text)).expect(204, &[]);
    for i in 0..20 {
        // each tag is that of an event, because graphite-web ignores others
        let tags = if i == 0 { "a b c" } else { pick(&mut rng, &["a", "b", "a b", "c", "b c"]) };
        let when_s = NOW_S - 3000 + 100 * i;
        graphite_web.add_event(when_s, &format!("e{i}"), tags);
        let event = json!({"what": format!("e{i}"), "tags": tags, "when": when_s});
        server.send(&Request::post("/events/", event.to_string().into_bytes())).expect(200, &[]);
    }
    let (mut wrong, mut found) = (Vec::new(), 0);
    let index = ["/metrics/index.json", "/tags", "/events/get_data"].map(str::to_owned);
    let kinds = [find, find, expand, tags, tags, events];
    for path in index.into_iter().chain((0..SEARCHES).map(|i| kinds[i % kinds.len()](&mut rng))) {
        let ours = server.send(&Request::get(path.clone()));
        let (status, _, theirs) = graphite_web.get(&path);
        // where graphite-web fails, there is nothing to compare with
        if status == 500 {
            continue;
        }
        let [our_answer, their_answer] = [&ours.text(), &theirs].map(|text| comparable(&path, text));
        let is_same = match status {
            200 => ours.status == 200 && our_answer == their_answer,
            _ => u64::from(ours.status) == status,
        };
        found += usize::from(status == 200 && !theirs.contains("[]") && theirs != "null");
        if !is_same {
            wrong.push(format!(
                "{path}\n  ours: {} {our_answer}\n  theirs: {status} {their_answer}",
                ours.status
            ));
        }
    }
    assert!(wrong.is_empty(), "{} different:\n{}", wrong.len(), wrong.join("\n"));
    assert!(found > SEARCHES / 3, "only {found} answers have something to compare");
}
