//! The list of functions in `docs/graphite-functions.md`, which is made from the table of functions.

use super::choices::{CARBONAPI, CHOICES, Choice, OF_CARBONAPI};
use super::differential::{CANCELLATION, PRECISION, UNDERFLOW};
use super::rules::RULES;
use query::graphite::functions::{self, Function, Group};
use std::collections::BTreeMap;
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graphite-functions.md");

/// The version in `scripts/test-servers.sh`.
const REFERENCE: &str = "graphite-web 1.1.10";

/// About the functions of the group `Graph`.
const DRAWING: &str = "Most of these functions set options of pictures, which Floodmark does not draw. They are accepted, and what \
                       they do to names and series is compared.\n\n";

/// With `UPDATE_EXPECT=1`, writes the page.
#[test]
fn page_of_functions_is_current() {
    let page = page();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(PATH, &page).expect("cannot write the page");
    }
    let written = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(
        written == page,
        "docs/graphite-functions.md is old: UPDATE_EXPECT=1 cargo test -p query page_of_functions"
    );
}

fn page() -> String {
    let mut page = format!(
        "# Graphite's functions\n\n\
         This page lists the functions of Graphite's targets that Floodmark has. None of graphite-web's is missing, except `average`, \
         `maximum` and `minimum` of the slices of pies (`graphType=pie`), because no pictures are drawn. Random targets of \
         each function, over random data, are compared with the answers of {REFERENCE}: names, tags, times, and values to nine digits, in \
         several time zones. The test is `random_targets_are_answered_as_by_graphite_web`, of the crate `query`. Of {CARBONAPI}, times and values \
         are compared (`random_targets_are_answered_as_by_carbonapi`).\n\n\
         Two values are equal if they differ by at most {PRECISION:e} of the larger one. Sums may be added up in another order, \
         and so be rounded differently. So values are also equal if they differ by at most {CANCELLATION:e} of the series' largest \
         value, which is what remains when large numbers cancel each other out, or by at most {UNDERFLOW:e}.\n\n\
         Templates (`template`, and `template[NAME]` in a request) and times in the style of `at` are compared in tests of \
         their own: `templates_are_filled_as_by_graphite_web` and `times_mean_what_they_mean_to_graphite_web`.\n\n\
         <!-- generated from crates/query/src/graphite/functions: UPDATE_EXPECT=1 cargo test -p query page_of_functions -->\n"
    );
    let mut groups: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
    for function in functions::all() {
        for name in function.names() {
            let is_tested = RULES.iter().any(|rule| rule.name == name);
            let is_other = OF_CARBONAPI.iter().any(|choice| choice.functions.contains(&name));
            let tested = match (is_tested, is_other) {
                (false, _) => "not compared yet".to_owned(),
                (true, true) => REFERENCE.to_owned(),
                (true, false) => format!("{REFERENCE}, {CARBONAPI}"),
            };
            let what = match name == function.name {
                true => function.description.to_owned(),
                false => format!("Another name of `{}`.", function.name),
            };
            let status = match CHOICES.iter().any(|choice| choice.functions.contains(&name)) {
                true => "complete, with [differences](#differences)",
                false if function.group == Group::Graph => "complete, without drawing",
                false => "complete",
            };
            let row = format!("| `{name}` | {status} | {tested} | {} |\n", what.replace('|', "\\|"));
            groups.entry(function.group.name()).or_default().insert(name, row);
        }
    }
    for (group, rows) in groups {
        let rows: String = rows.into_values().collect();
        let note = if group == Group::Graph.name() { DRAWING } else { "" };
        let _ = write!(
            page,
            "\n## {group}\n\n{note}| function | status | compared with | what it does |\n| --- | --- | --- | --- |\n{rows}"
        );
    }
    page.push_str("\n## Differences\n\nFloodmark differs from graphite-web by choice in these cases.\n\n");
    table(&mut page, "what Floodmark does", CHOICES);
    let _ = write!(
        page,
        "\n## Where carbonapi differs\n\n{CARBONAPI} differs from {REFERENCE} in these cases, and Floodmark answers as \
         graphite-web. Where functions combine series of different steps or lengths, answers are not compared, because \
         carbonapi gives the series of one pattern the longest step, and aligns them differently. Nor are functions that \
         read names compared when they are applied to other functions, because carbonapi names the results of these \
         differently.\n\n"
    );
    table(&mut page, "what carbonapi does", OF_CARBONAPI);
    page
}

fn table(page: &mut String, what: &str, choices: &[Choice]) {
    let _ = writeln!(page, "| functions | {what} |\n| --- | --- |");
    for choice in choices {
        let functions: Vec<_> = choice.functions.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "| {} | {} |", functions.join(", "), choice.text);
    }
}

#[test]
fn every_function_has_a_rule_for_random_targets() {
    let names = functions::all().flat_map(Function::names);
    let missing: Vec<_> = names.filter(|name| !RULES.iter().any(|rule| rule.name == *name)).collect();
    assert!(missing.is_empty(), "functions without a rule in rules.rs: {missing:?}");
}
