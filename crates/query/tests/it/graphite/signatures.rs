//! Functions have the groups and parameters of graphite-web's, because clients such as Grafana ask for them.

use super::oracle::Oracle;
use query::graphite::functions::{self, Param};
use serde_json::Value;

/// Functions of which graphite-web declares an argument as required that it does not need.
const NOT_REQUIRED: [&str; 2] = ["highest", "lowest"];

#[test]
fn functions_have_the_parameters_of_graphite_web() {
    let Some(mut oracle) = Oracle::start() else { return };
    let theirs = oracle.functions();
    let mut differences = Vec::new();
    for (name, theirs) in theirs.as_object().expect("no functions") {
        let Some(ours) = functions::find(name) else { continue };
        if ours.group.name() != theirs["group"] {
            differences.push(format!("{name} is in group {}, and {}", theirs["group"], ours.group.name()));
        }
        let theirs: Vec<String> =
            theirs["params"].as_array().expect("no parameters").iter().map(of_theirs).collect();
        let is_exempt = |param: &Param| NOT_REQUIRED.contains(&name.as_str()) && param.name == "n";
        let ours: Vec<String> = ours.params.iter().map(|param| of_ours(param, is_exempt(param))).collect();
        if theirs != ours {
            differences.push(format!("{name} has parameters\n  {theirs:?}, and\n  {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn of_theirs(param: &Value) -> String {
    let is = |field: &str| param[field].as_bool().unwrap_or(false);
    let (name, kind) =
        (param["name"].as_str().unwrap_or_default(), param["type"].as_str().unwrap_or_default());
    described(name, kind, is("required"), is("multiple"))
}

fn of_ours(param: &Param, is_exempt: bool) -> String {
    described(param.name, param.kind.name(), param.is_required || is_exempt, param.is_multiple)
}

fn described(name: &str, kind: &str, is_required: bool, is_multiple: bool) -> String {
    let (required, multiple) =
        (if is_required { " required" } else { "" }, if is_multiple { " multiple" } else { "" });
    format!("{name}: {kind}{required}{multiple}")
}
