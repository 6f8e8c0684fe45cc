//! Extracts queries from Grafana dashboards and query logs.

use crate::scenario::Values;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const FILE_BYTES_MAX: u64 = 64 << 20;

const QUERIES_MAX: usize = 10_000;

const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dashboard {
    /// Queries in PromQL, in which `$name` is a variable.
    pub queries: Vec<String>,
    /// Values that the dashboard saves for each variable. Some variables have only a regular expression that matches
    /// all values.
    pub variables: BTreeMap<String, Values>,
}

pub fn read(path: &Path) -> Result<String> {
    let context = || format!("cannot read {}", path.display());
    let bytes = std::fs::metadata(path).with_context(context)?.len();
    ensure!(bytes <= FILE_BYTES_MAX, "{}: {bytes} bytes, the limit is {FILE_BYTES_MAX}", path.display());
    std::fs::read_to_string(path).with_context(context)
}

pub fn grafana(json: &str) -> Result<Dashboard> {
    let root: Value = serde_json::from_str(json).context("the dashboard is not valid JSON")?;
    // Grafana's API returns the dashboard inside another object, and an export contains it directly
    let root = root.get("dashboard").unwrap_or(&root);
    let mut dashboard = Dashboard::default();
    collect(root, &mut dashboard.queries, 0);
    ensure!(!dashboard.queries.is_empty(), "the dashboard has no panel with a PromQL query (targets, expr)");
    for variable in root.pointer("/templating/list").and_then(Value::as_array).into_iter().flatten() {
        let Some(name) = variable.get("name").and_then(Value::as_str) else { continue };
        dashboard.variables.insert(name.to_owned(), Values::List(values_of(variable)));
    }
    Ok(dashboard)
}

/// Collects every `expr` under `targets`. Panels can be nested.
fn collect(value: &Value, queries: &mut Vec<String>, depth: usize) {
    if depth > DEPTH_MAX || queries.len() >= QUERIES_MAX {
        return;
    }
    match value {
        Value::Object(fields) => {
            for target in fields.get("targets").and_then(Value::as_array).into_iter().flatten() {
                if let Some(expr) = target.get("expr").and_then(Value::as_str)
                    && !expr.trim().is_empty()
                    && !queries.iter().any(|known| known == expr)
                {
                    queries.push(expr.to_owned());
                }
            }
            fields.values().for_each(|value| collect(value, queries, depth + 1));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, queries, depth + 1)),
        _ => {}
    }
}

/// Values that a dashboard saves for a variable: its options or, without options, its current value. If the value is
/// "All", or there is none because Grafana gets the values by a query, the regular expression for "All" is returned.
fn values_of(variable: &Value) -> Vec<String> {
    let texts = |value: &Value| match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().filter_map(|i| i.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    let options = variable.get("options").and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<String> = options.filter_map(|option| option.get("value")).flat_map(texts).collect();
    if values.is_empty() {
        values = variable.pointer("/current/value").map(texts).unwrap_or_default();
    }
    values.retain(|value| value != "$__all" && !value.is_empty());
    if values.is_empty() {
        let all = variable.get("allValue").and_then(Value::as_str).filter(|all| !all.is_empty());
        values.push(all.unwrap_or(".*").to_owned());
    }
    values
}

/// Reads the queries of a log, which has either the JSON lines of Prometheus' query log or one query per line.
pub fn query_log(text: &str) -> Result<Vec<String>> {
    let mut queries = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if queries.len() >= QUERIES_MAX {
            break;
        }
        let query = match serde_json::from_str::<Value>(line) {
            Ok(json @ Value::Object(_)) => {
                let places = ["/params/query", "/query", "/param_query", "/expr"];
                let found = places.iter().find_map(|place| json.pointer(place)?.as_str().map(str::to_owned));
                match found {
                    Some(query) => query,
                    None => continue,
                }
            }
            _ => line.to_owned(),
        };
        queries.push(query);
    }
    ensure!(!queries.is_empty(), "the log has no query");
    Ok(queries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboards() {
        let json = r#"{"dashboard":{"panels":[
            {"targets":[{"expr":"up"},{"expr":" "},{"rawSql":"x"}]},
            {"type":"row","panels":[{"targets":[{"expr":"rate(x{c=\"$c\"}[5m])"},{"expr":"up"}]}]}],
            "templating":{"list":[
              {"name":"c","options":[{"value":"$__all"},{"value":"a"},{"value":"b"}]},
              {"name":"d","current":{"value":["e"]}},{"name":"f"},
              {"name":"g","allValue":"x.+","current":{"value":"$__all"}}]}}}"#;
        let dashboard = grafana(json).unwrap();
        assert_eq!(dashboard.queries, ["up", "rate(x{c=\"$c\"}[5m])"]);
        let list = |values: &[&str]| Values::List(values.iter().map(|v| (*v).to_owned()).collect());
        let expected =
            [("c", list(&["a", "b"])), ("d", list(&["e"])), ("f", list(&[".*"])), ("g", list(&["x.+"]))];
        assert_eq!(dashboard.variables, expected.map(|(name, values)| (name.to_owned(), values)).into());
        for bad in ["", "{}", "[]", r#"{"panels":[{"targets":"x"}]}"#] {
            assert!(grafana(bad).is_err(), "{bad}");
        }
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert!(grafana(&deep).is_err());
    }

    #[test]
    fn logs() {
        let text = "{\"params\":{\"query\":\"up\"},\"stats\":{}}\n# a remark\n\nsum(x)\n{\"other\":1}\nup\n";
        assert_eq!(query_log(text).unwrap(), ["up", "sum(x)", "up"]);
        assert!(query_log("{}\n").is_err());
    }
}
