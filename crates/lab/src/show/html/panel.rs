//! Selects the charts of a report and their lines.

use crate::result::Timeline;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

const LINES_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: String,
    /// Allows a logarithmic scale, which is used if the values span several orders of magnitude.
    pub(crate) log: bool,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) color: usize,
    pub(crate) dash: bool,
    pub(crate) step_s: f64,
    #[serde(serialize_with = "short_numbers")]
    pub(crate) values: Vec<Option<f64>>,
}

/// Says which series of the timeline a chart shows. A name that ends with a slash selects all series of a group.
struct Recipe {
    title: &'static str,
    log: bool,
    names: &'static [&'static str],
}

const RECIPES: [Recipe; 20] = [
    Recipe {
        title: "Samples a second",
        log: false,
        names: &["rate/offered", "rate/acknowledged", "rate/sent"],
    },
    Recipe {
        title: "Latency from the scheduled start",
        log: true,
        names: &["latency/p50", "latency/p90", "latency/p99"],
    },
    Recipe { title: "Answers a second by status", log: false, names: &["status/"] },
    Recipe { title: "Freshness", log: true, names: &["freshness/"] },
    Recipe { title: "Series sent", log: false, names: &["series/active", "series/distinct"] },
    Recipe { title: "Queries a second", log: false, names: &["reads/rate", "reads/failed"] },
    Recipe { title: "Query latency", log: true, names: &["reads/p50", "reads/p90", "reads/p99"] },
    Recipe {
        title: "CPU",
        log: false,
        names: &["target/cpu", "cgroup/cpu", "cgroup/cpu_limit", "machine/cpu", "generator/cpu"],
    },
    Recipe {
        title: "Memory",
        log: false,
        names: &["target/memory", "cgroup/memory", "cgroup/memory_limit", "own/memory", "generator/rss"],
    },
    Recipe { title: "Disk busy", log: false, names: &["disk/util"] },
    Recipe { title: "Disk wait for a request", log: true, names: &["disk/await"] },
    Recipe { title: "Disk bytes", log: false, names: &["disk/written", "disk/read", "target/written"] },
    Recipe { title: "Network", log: false, names: &["network/received", "network/sent", "network/loopback"] },
    Recipe {
        title: "Series as the target counts them",
        log: false,
        names: &["own/series", "own/series_active"],
    },
    Recipe {
        title: "Rates as the target counts them",
        log: false,
        names: &["own/samples_in", "own/series_created", "own/refused"],
    },
    Recipe { title: "Waiting inside the target", log: false, names: &["own/inflight", "own/queue"] },
    Recipe {
        title: "Compactions and flushes a second",
        log: false,
        names: &["own/compactions", "own/flushes"],
    },
    Recipe { title: "Open files and threads", log: false, names: &["target/files", "target/threads"] },
    Recipe { title: "Generator lag (p99)", log: true, names: &["generator/lag"] },
    Recipe {
        title: "CPU waiting (iowait) or stolen",
        log: false,
        names: &["machine/iowait", "machine/stolen"],
    },
];

/// Series that get no chart, because other parts of the report show them or they are never close to a limit.
const PASSED_OVER: [&str; 3] = ["target/files_limit", "machine/memory_available", "disk/queue"];

/// Builds the charts of one or several timelines. The lines of the first timeline are solid, all others are dashed.
pub(crate) fn panels(timelines: &[(&str, &Timeline)]) -> Vec<Panel> {
    let all: BTreeSet<&str> =
        timelines.iter().flat_map(|(_, timeline)| timeline.series.keys().map(String::as_str)).collect();
    let mut left: BTreeSet<&str> = all.iter().copied().filter(|name| !PASSED_OVER.contains(name)).collect();
    let mut panels = Vec::new();
    for recipe in &RECIPES {
        let wanted = |name: &&str| {
            recipe.names.iter().any(|wanted| match wanted.strip_suffix('/') {
                Some(group) => name.strip_prefix(group).is_some_and(|rest| rest.starts_with('/')),
                None => name == wanted,
            })
        };
        let mut names: Vec<&str> = left.iter().copied().filter(wanted).collect();
        names.iter().for_each(|name| {
            left.remove(name);
        });
        // the lines have the order of the recipe
        names.sort_by_key(|name| recipe.names.iter().position(|wanted| wanted == name));
        panels.extend(panel(recipe.title, recipe.log, &names, timelines));
    }
    // series that no recipe mentions get a chart for each group and unit
    let mut others: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for name in left {
        let group = name.split('/').next().unwrap_or(name);
        others.entry((group, unit(name, timelines))).or_default().push(name);
    }
    for ((group, _), names) in others {
        for some in names.chunks(LINES_MAX) {
            panels.extend(panel(group, false, some, timelines));
        }
    }
    panels
}

fn unit(name: &str, timelines: &[(&str, &Timeline)]) -> String {
    let found = timelines.iter().find_map(|(_, timeline)| timeline.series.get(name));
    found.map_or_else(String::new, |series| series.unit.clone())
}

fn panel(title: &str, log: bool, names: &[&str], timelines: &[(&str, &Timeline)]) -> Option<Panel> {
    let several = timelines.len() > 1;
    let mut lines = Vec::new();
    for (color, name) in names.iter().enumerate() {
        for (number, (who, timeline)) in timelines.iter().enumerate() {
            let Some(series) = timeline.series.get(*name) else { continue };
            let what = label(title, name);
            lines.push(Line {
                label: if several { format!("{who} {what}") } else { what },
                color: if several && names.len() == 1 { number % 8 } else { color % 8 },
                dash: number > 0,
                step_s: timeline.step_s,
                values: series.values.clone(),
            });
        }
    }
    lines.truncate(LINES_MAX * timelines.len());
    let unit = names.first().map_or_else(String::new, |name| unit(name, timelines));
    (!lines.is_empty()).then(|| Panel { title: title.to_owned(), unit, log, lines })
}

fn label(title: &str, name: &str) -> String {
    let (group, what) = name.split_once('/').unwrap_or(("", name));
    let words = what.replace('_', " ");
    match title {
        "CPU" | "Memory" | "Disk bytes" => match what {
            "cpu" | "memory" | "rss" => {
                group.replace("cgroup", "control group").replace("own", "by its own count")
            }
            "cpu_limit" | "memory_limit" => "its limit".to_owned(),
            _ if group == "target" => format!("{words} by the target"),
            _ => words,
        },
        _ => words,
    }
}

/// Writes values with four significant digits, because a chart cannot show more.
fn short_numbers<S: serde::Serializer>(values: &[Option<f64>], to: S) -> Result<S::Ok, S::Error> {
    let short = |value: f64| {
        if value == 0.0 || !value.is_finite() {
            return 0.0;
        }
        let digits = 3 - value.abs().log10().floor() as i32;
        let factor = 10f64.powi(digits.clamp(-300, 300));
        let rounded = (value * factor).round() / factor;
        if rounded.is_finite() { rounded } else { value }
    };
    to.collect_seq(values.iter().map(|value| value.map(short)))
}
