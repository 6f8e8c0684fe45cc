//! The dashboard and the alert rules in `deploy/`. The module `reference` checks that the metrics in them
//! exist.

use crate::harness::programs;
use crate::harness::wire::{self, Series};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use crate::reference::{anchors, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const DASHBOARD: &str = include_str!("../../../../deploy/grafana/floodmark.json");
const RULES: &str = include_str!("../../../../deploy/prometheus/floodmark-rules.yml");

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().expect("panels").iter()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn expressions_of_the_dashboard_are_queries() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let server = Server::new();
    let targets = panels(&dashboard).filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut count = 0;
    for target in targets {
        let expr = target["expr"].as_str().expect("an expression");
        assert!(
            expr.contains(r#"job=~"$job", instance=~"$instance""#),
            "{expr} does not select the nodes chosen in the dashboard"
        );
        let query = expr.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*");
        assert!(!query.contains('$'), "{query} has an unknown variable");
        server.send(&Request::form("/api/v1/query", &[("query", &query)])).expect(200, &[]);
        count += 1;
    }
    assert!(count > 40, "{count} expressions");
}

/// The row "Overview" must work with nothing but the metrics that a server stores about itself.
#[test]
fn the_overview_is_drawn_from_what_a_server_stores_of_itself() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut panels = panels(&dashboard).skip_while(|panel| panel["title"] != "Overview").skip(1);
    let overview: Vec<_> = panels.by_ref().take_while(|panel| panel["type"] != "row").collect();
    let titles: Vec<_> = overview.iter().map(|panel| panel["title"].as_str().expect("a title")).collect();
    let expected = [
        "Latency of writes of known series",
        "Series in memory",
        "Resident memory",
        "Write requests by answer",
        "Write requests in progress",
        "Heap objects",
    ];
    assert_eq!(titles, expected);
    let server = Server::start(Options::default().monitor_itself().arg("--self-monitoring-interval=1s"));
    let load = |round: i64| {
        let of = |i: i64| {
            let labels = [("__name__", "load"), ("series", &i.to_string())];
            Series::new(&labels).sample(now_ms(), (round * i) as f64)
        };
        server.send(&Request::write(&wire::v1(&(0..100).map(of).collect::<Vec<_>>()))).expect(204, &[]);
    };
    for panel in overview {
        for target in panel["targets"].as_array().expect("targets") {
            let expr = target["expr"].as_str().expect("an expression");
            let query = expr
                .replace("$__rate_interval", "1m")
                .replace("$job", "floodmark")
                .replace("$instance", ".*");
            let mut round = 0;
            wait_for(expr, || {
                (round, ()) = (round + 1, load(round));
                let data = server.query_as(Some("floodmark-system"), &query, now_ms());
                let series = data["result"].as_array().expect("a vector").iter();
                // a quantile is NaN if nothing was observed
                series.map(|series| &series["value"][1]).any(|value| *value != "NaN").then_some(())
            });
        }
    }
}

#[test]
fn the_dashboard_is_one_that_grafana_shows() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    assert!(number(&dashboard["schemaVersion"]) >= 38, "Grafana 10");
    assert!(dashboard["id"].is_null(), "the dashboard has an id, which is only valid in one Grafana");
    let variables: Vec<_> = dashboard["templating"]["list"].as_array().expect("variables").iter().collect();
    assert_eq!(variables[0]["type"], "datasource");
    let mut sources: Vec<_> = variables[1..].iter().map(|variable| &variable["datasource"]["uid"]).collect();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(number(&panel["id"])), "{title}: another panel has the same id");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|name| number(&panel["gridPos"][name]));
        assert!(x >= 0 && x + w <= 24, "{title} is outside of the grid");
        for cell in (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column))) {
            assert!(cells.insert(cell), "{title} overlaps another panel");
        }
        if panel["type"] != "row" {
            sources.push(&panel["datasource"]["uid"]);
            let targets = panel["targets"].as_array().expect("targets").iter();
            sources.extend(targets.map(|target| &target["datasource"]["uid"]));
            assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title}");
        }
    }
    assert!(sources.iter().all(|uid| *uid == "${datasource}"), "{sources:?}");
}

#[test]
fn promtool_accepts_the_rules() {
    let Some(promtool) = programs::find(&["promtool"]) else {
        stdx::skipped::for_want_of("promtool 3 (scripts/test-servers.sh)");
        return;
    };
    let check = |arguments: &[&str]| {
        let output =
            Command::new(&promtool).current_dir(root().join("deploy/prometheus")).args(arguments).output();
        let output = output.expect("run promtool");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
    };
    check(&["check", "rules", "--lint=all", "--lint-fatal", "floodmark-rules.yml"]);
    check(&["test", "rules", "floodmark-rules.test.yml"]);
}

#[test]
fn promtool_accepts_the_metrics() {
    let Some(promtool) = programs::find(&["promtool"]) else { return };
    let text = Server::new().send(&Request::get("/metrics")).expect(200, &[]).text();
    let mut promtool = Command::new(promtool);
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = promtool.spawn().expect("run promtool");
    process.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("promtool reads");
    let output = process.wait_with_output().expect("promtool ends");
    let lints = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // these metrics count days; they are not durations, which should be in seconds
    let is_meant = |lint: &str| lint.starts_with("floodmark_rollup_days_") && lint.contains("base unit");
    assert_eq!(lints.lines().filter(|lint| !is_meant(lint)).collect::<Vec<_>>(), [""; 0]);
    assert!(output.status.code().is_some_and(|code| [0, 3].contains(&code)), "{}", output.status);
}

#[test]
fn each_alert_has_a_severity_and_a_runbook() {
    let values = |key: &str| {
        let lines = RULES.lines().map(|line| line.trim().trim_start_matches("- "));
        let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    let (alerts, severities, runbooks) = (values("alert"), values("labels"), values("runbook"));
    assert!(alerts.len() >= 15 && alerts.len() == severities.len(), "{alerts:?} {severities:?}");
    assert_eq!(alerts.len(), runbooks.len());
    assert_eq!(alerts.iter().collect::<BTreeSet<_>>().len(), alerts.len(), "two alerts have the same name");
    for severity in severities {
        assert!(["{severity: critical}", "{severity: warning}"].contains(&severity.as_str()), "{severity}");
    }
    for (alert, runbook) in alerts.iter().zip(runbooks) {
        let (page, wanted) = runbook.split_once('#').expect("a section");
        assert!(anchors(Path::new(page)).any(|found| found == wanted), "{alert}: {runbook} does not exist");
    }
}
