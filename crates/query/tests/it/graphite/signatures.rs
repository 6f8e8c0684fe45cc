//! Functions have the groups and parameters of graphite-web's, because clients such as Grafana ask for them.

use super::oracle::Oracle;
use query::graphite::functions::{self, Function, Param};
use serde_json::Value;

/// Functions of which graphite-web declares an argument as required that it does not need.
const NOT_REQUIRED: [&str; 2] = ["highest", "lowest"];

/// Functions with options in graphite-web that are only suggestions, because it also accepts other values.
const SUGGESTED: [&str; 2] = ["legendValue", "smartSummarize"];

#[test]
fn functions_have_the_parameters_of_graphite_web() {
    let Some(mut oracle) = Oracle::start() else { return };
    let theirs = oracle.functions();
    let mut differences = Vec::new();
    for (name, theirs) in theirs.as_object().expect("no functions") {
        let Some(ours) = functions::find(name) else {
            differences.push(format!("{name} is missing"));
            continue;
        };
        if ours.group.name() != theirs["group"] {
            differences.push(format!("{name} is in group {}, and {}", theirs["group"], ours.group.name()));
        }
        let all = theirs["params"].as_array().expect("no parameters");
        let theirs: Vec<String> = all.iter().map(|param| of_theirs(name, param)).collect();
        let ours: Vec<String> = ours.params.iter().map(|param| of_ours(ours, param)).collect();
        if theirs != ours {
            differences.push(format!("{name} has parameters\n  {theirs:?}, and\n  {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn of_theirs(function: &str, param: &Value) -> String {
    let is = |field: &str| param[field].as_bool().unwrap_or(false);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let texts =
        |field: &str| param[field].as_array().map(|all| all.iter().map(text).collect::<Vec<_>>().join(","));
    let (name, kind) = (text(&param["name"]), text(&param["type"]));
    let [options, suggestions] = ["options", "suggestions"].map(|field| texts(field).unwrap_or_default());
    let words =
        if SUGGESTED.contains(&function) { String::new() } else { format!("{options};{suggestions}") };
    described(&name, &kind, is("required"), is("multiple"), &words)
}

fn of_ours(function: &Function, param: &Param) -> String {
    let is_required = param.is_required || (NOT_REQUIRED.contains(&function.name) && param.name == "n");
    let (options, suggestions) = (param.choices().join(","), param.suggestions.join(","));
    let words =
        if SUGGESTED.contains(&function.name) { String::new() } else { format!("{options};{suggestions}") };
    described(param.name, param.kind.name(), is_required, param.is_multiple, &words)
}

fn described(name: &str, kind: &str, is_required: bool, is_multiple: bool, words: &str) -> String {
    let (required, multiple) =
        (if is_required { " required" } else { "" }, if is_multiple { " multiple" } else { "" });
    format!("{name}: {kind}{required}{multiple} {words}")
}
