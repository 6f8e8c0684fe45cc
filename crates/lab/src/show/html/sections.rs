use super::escape::text;
use super::table::{Cell, list, section, table};
use crate::result::Quantiles;
use crate::result::figures::{FIGURES, show};
use crate::result::{AccountFigure, EventKind, RunResult};
use stdx::calendar::Date;

/// Maximum number of events that the report lists. The charts show all events.
const EVENTS_MAX: usize = 60;

pub(super) fn report(result: &RunResult) -> String {
    let charts = "<section><h2>Over time</h2>\n<div class=\"charts\" id=\"charts\"></div>\n\
                  <noscript><p class=\"soft\">The charts are drawn by a script of this page, which is not allowed to run.</p>\
                  </noscript></section>\n";
    [
        head(result),
        tiles(result),
        section("Verdict", &verdict(result)),
        section("Reasons to mistrust these figures", &list("warn", &result.warnings)),
        // a result of `lab write` has no timeline, and so no charts
        (if result.timeline.points > 0 { charts } else { "" }).to_owned(),
        section("Events", &events(result)),
        section("Compared with the published account", &account(result)),
        section("Steps", &steps(result)),
        section("Outcomes of requests", &reasons(result)),
        section("Latencies", &latencies(result)),
        section("Queries", &reads(result)),
        section("Read back", &verified(result)),
        section("All figures", &figures(result)),
        section("What this run does not show", &list("not", &result.notes)),
        section("How to repeat the run", &configuration(result)),
        format!(
            "<footer>floodmark lab {} · one file, nothing is loaded from anywhere</footer>\n",
            text(result.versions.get("lab").map_or("", String::as_str))
        ),
    ]
    .concat()
}

fn head(result: &RunResult) -> String {
    let word = result.verdict_word();
    let class = match word {
        "PASS" => "pass",
        "FAIL" => "fail",
        _ => "none",
    };
    let target = result.versions.get("target").map_or_else(String::new, |version| format!(" · {version}"));
    let part = match result.part {
        (0 | 1, 0 | 1) => String::new(),
        (part, of) => format!(" · part {part} of {of}"),
    };
    let mut out = format!(
        "<header><div><h1>{}</h1>\n<p class=\"sub\">{}{} · {} · {}{part}</p></div>\n\
         <div class=\"badge {class}\" id=\"verdict\">{word}</div></header>\n",
        text(if result.name.is_empty() { "a run" } else { &result.name }),
        text(&result.target),
        text(&target),
        date(result.begun_ms),
        show(result.wall_s, "s"),
    );
    if result.partial {
        out += "<p class=\"banner\">This run ended early. The figures are valid for the part that took place, \
                but are no verdict on the whole run.</p>\n";
    }
    out
}

/// Date and time in UTC.
pub(crate) fn date(ms: i64) -> String {
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1000);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{} {h:02}:{m:02}:{s:02} UTC", Date::of_days(days))
}

fn tiles(result: &RunResult) -> String {
    let t = &result.totals;
    let mut tiles: Vec<(&str, &str, String, String)> = Vec::new();
    let offered = match t.achieved() {
        Some(part) => format!("{} of the schedule", show(part, "part")),
        None => "closed loop".to_owned(),
    };
    tiles.push(("samples_per_s", "samples acknowledged", show(t.samples_per_s, "1/s"), offered));
    if t.latency.count > 0 {
        let rest = format!("p50 {}, longest {}", show(t.latency.p50_s, "s"), show(t.latency.max_s, "s"));
        tiles.push(("p99_s", "latency p99", show(t.latency.p99_s, "s"), rest));
    }
    if let Some(rate) = t.pass_rate() {
        let attempts = format!("of {} attempts", show(t.attempts as f64, ""));
        tiles.push(("pass_rate", "requests accepted", show(rate, "part"), attempts));
    }
    match &result.verify {
        Some(verify) => {
            let rest = format!("of {} read back", show(verify.acknowledged as f64, ""));
            tiles.push(("lost", "samples lost", show(verify.lost as f64, ""), rest));
        }
        None => {
            tiles.push(("lost", "samples lost", "not checked".to_owned(), "nothing was read back".to_owned()))
        }
    }
    tiles.push(("restarts", "restarts of the target", show(t.restarts as f64, ""), String::new()));
    let distinct = format!("{} different series", show(t.series_distinct as f64, ""));
    tiles.push(("series_active", "series at a time", show(t.series_active as f64, ""), distinct));
    if let Some(queries) = result.queries_per_s() {
        let rest = result.read_p99_s().map(|p99_s| format!("p99 {}", show(p99_s, "s")));
        tiles.push(("queries_per_s", "queries", show(queries, "1/s"), rest.unwrap_or_default()));
    }
    if let Some(bytes) = result.figure("rss_peak_bytes") {
        let rest = result.figure("bytes_per_series").map(|b| format!("{} a series", show(b, "bytes")));
        tiles.push((
            "rss_peak_bytes",
            "target memory, maximum",
            show(bytes, "bytes"),
            rest.unwrap_or_default(),
        ));
    }
    if let Some(cores) = result.figure("cpu_cores_mean") {
        let rest =
            result.figure("samples_per_s_per_core").map(|n| format!("{} for each core", show(n, "1/s")));
        tiles.push(("cpu_cores_mean", "target CPU, mean", show(cores, "cores"), rest.unwrap_or_default()));
    }
    if let Some(first) = &result.saturated {
        let rest = format!("after {:.0} s: {}", first.at_s, first.why);
        tiles.push(("saturated", "used up first", first.resource.clone(), rest));
    }
    let tile = |(name, what, value, rest): &(&str, &str, String, String)| {
        format!(
            "<div class=\"tile\"><div class=\"k\">{}</div><div class=\"v\" data-figure=\"{name}\">{}</div>\
             <div class=\"n\">{}</div></div>\n",
            text(what),
            text(value),
            text(rest)
        )
    };
    format!("<div class=\"tiles\">\n{}</div>\n", tiles.iter().map(tile).collect::<String>())
}

fn verdict(result: &RunResult) -> String {
    let rows = result.verdict.iter().map(|j| {
        let mark = Cell::Classed(if j.pass { "yes" } else { "no" }, j.outcome().into());
        vec![Cell::text(&j.rule), Cell::text(&j.limit), Cell::text(&j.measured), mark]
    });
    table("rules", &["rule", "allowed", "measured", ""], rows)
}

fn events(result: &RunResult) -> String {
    let word = |kind: EventKind| format!("{kind:?}").to_lowercase();
    let row = |(at, e): (usize, &crate::result::Event)| {
        let number = Cell::Number((at + 1).to_string());
        vec![number, Cell::number(Some(e.at_s), "s"), Cell::text(word(e.kind)), Cell::text(&e.text)]
    };
    let rows = result.events.iter().enumerate().take(EVENTS_MAX).map(row);
    let more = result.events.len().saturating_sub(EVENTS_MAX);
    let more = if more > 0 { format!("<p class=\"soft\">and {more} more</p>\n") } else { String::new() };
    table("events", &["#", "#after", "who", "what"], rows) + &more
}

fn account(result: &RunResult) -> String {
    let rows = result.account.iter().map(|figure| {
        let unit = if figure.unit == "1" { "" } else { &figure.unit };
        let ours = result.ours(figure).map(|value| in_unit(value, unit));
        let part = ours.filter(|_| figure.value != 0.0).map(|ours| ours / figure.value);
        vec![
            Cell::text(about(figure)),
            Cell::Number(published(figure, unit)),
            Cell::number(ours, unit),
            Cell::ratio(part),
            Cell::text(&figure.note),
        ]
    });
    table("account", &["", "#the account", "#here", "#here / account", "conditions"], rows)
}

fn published(figure: &AccountFigure, unit: &str) -> String {
    match figure.low {
        Some(low) => format!("{} – {}", show(low, unit), show(figure.value, unit)),
        None => show(figure.value, unit),
    }
}

fn about(figure: &AccountFigure) -> String {
    match figure.step {
        Some(step) => format!("step {step}: {}", figure.what),
        None => figure.what.clone(),
    }
}

/// Converts bytes or seconds to the unit in which a figure was published, such as GiB or ms.
fn in_unit(value: f64, unit: &str) -> f64 {
    match unit {
        "MB" => value / 1e6,
        "KiB" => value / 1024.0,
        "MiB" => value / f64::from(1 << 20),
        "GiB" => value / f64::from(1 << 30),
        "TiB" => value / f64::from(1 << 30) / 1024.0,
        "ms" => value * 1e3,
        "min" => value / 60.0,
        "h" => value / 3600.0,
        "%" => value * 100.0,
        _ => value,
    }
}

fn steps(result: &RunResult) -> String {
    if result.steps.len() < 2 {
        return String::new();
    }
    let rows = result.steps.iter().map(|s| {
        let time = |time_s| Cell::number((s.latency.count > 0).then_some(time_s), "s");
        vec![
            Cell::text(&s.name),
            Cell::Number(format!("{} – {}", show(s.from_s, "s"), show(s.to_s, "s"))),
            Cell::number(Some(s.offered_samples_per_s), "1/s"),
            Cell::number(Some(s.samples_per_s), "1/s"),
            time(s.latency.p50_s),
            time(s.latency.p99_s),
            Cell::count(s.refused),
            Cell::number(s.disk_await_s, "s"),
            Cell::number(s.disk_util, "part"),
            Cell::number(s.cpu_cores, "cores"),
            Cell::number(s.memory_bytes, "bytes"),
        ]
    });
    let columns = [
        "step",
        "#when",
        "#offered",
        "#acknowledged",
        "#p50",
        "#p99",
        "#refused",
        "#disk await",
        "#disk busy",
        "#CPU",
        "#memory",
    ];
    table("steps", &columns, rows)
}

fn reasons(result: &RunResult) -> String {
    let t = &result.totals;
    let answers = t.by_reason.iter().map(|(reason, n)| {
        let said = t.said.get(reason).map_or("", String::as_str);
        vec![Cell::text(reason), Cell::count(*n), Cell::text(said)]
    });
    let outcomes = [
        ("refusals without Retry-After", t.without_retry_after),
        ("requests refused for good", t.rejected),
        ("requests given up", t.given_up),
        ("requests never sent", t.unsent),
        ("requests with fewer samples written than sent", t.short),
    ];
    let outcomes = outcomes.into_iter().filter(|(_, n)| *n > 0);
    let outcomes = outcomes.map(|(what, n)| vec![Cell::text(what), Cell::count(n), Cell::text("")]);
    table("reasons", &["answer", "#attempts", "first message"], answers.chain(outcomes))
}

fn latencies(result: &RunResult) -> String {
    let t = &result.totals;
    let row = |(what, q): (&str, &Quantiles)| {
        let time = |s| Cell::number(Some(s), "s");
        vec![
            Cell::text(what),
            Cell::count(q.count),
            time(q.p50_s),
            time(q.p90_s),
            time(q.p99_s),
            time(q.max_s),
        ]
    };
    let kinds = [
        ("from the scheduled start to success", &t.latency),
        ("… of requests with known series only", &t.latency_known),
        ("… of requests with new series", &t.latency_new),
        ("one successful attempt", &t.service),
        ("one refused attempt", &t.refusal),
        ("from acknowledged to visible", &t.freshness),
        ("generator lag", &t.lag),
    ];
    let rows = kinds.into_iter().filter(|(_, q)| q.count > 0).map(row);
    table("latencies", &["", "#count", "#p50", "#p90", "#p99", "#longest"], rows)
}

fn reads(result: &RunResult) -> String {
    let rows = result.reads.iter().map(|r| {
        let failed = r.by_reason.iter().filter(|(reason, _)| !reason.starts_with('2'));
        let failed = failed.map(|(reason, n)| match r.said.get(reason) {
            Some(said) => format!("{n} × {reason}: {said}"),
            None => format!("{n} × {reason}"),
        });
        vec![
            Cell::text(&r.name),
            Cell::count(r.queries),
            Cell::number(r.pass_rate(), "part"),
            Cell::number(Some(r.queries_per_s), "1/s"),
            Cell::number(Some(r.latency.p50_s), "s"),
            Cell::number(Some(r.latency.p99_s), "s"),
            Cell::count(r.empty),
            Cell::text(failed.collect::<Vec<_>>().join("; ")),
        ]
    });
    table("reads", &["mix", "#queries", "#answered", "#rate", "#p50", "#p99", "#empty", "failures"], rows)
}

fn verified(result: &RunResult) -> String {
    let Some(v) = &result.verify else { return String::new() };
    let row = |what: &str, n: u64, means: &str| vec![Cell::text(what), Cell::count(n), Cell::text(means)];
    let rows = [
        row("acknowledged", v.acknowledged, "samples whose request was answered with success"),
        row("read back", v.read_back, "found, with any value"),
        row("lost", v.lost, "acknowledged, but not found"),
        row("doubled", v.doubled, "found more than once"),
        row("wrong", v.wrong, "found with a wrong value"),
        row("rounded", v.rounded, "found with a value that differs within the scenario's tolerance"),
        row("unexpected", v.unexpected, "found, but never sent"),
        row("late", v.late, "found only by a repeated query"),
        row("unacknowledged", v.unacknowledged, "found, although their request was not acknowledged"),
    ];
    let examples: Vec<String> = v.examples.iter().map(ToString::to_string).collect();
    table("verified", &["samples", "#", ""], rows) + &list("examples", &examples)
}

fn figures(result: &RunResult) -> String {
    let row = |f: &crate::result::figures::Figure| {
        let value = f.of(result)?;
        Some(vec![
            Cell::text(f.label),
            Cell::number(Some(value), f.unit),
            Cell::Classed("soft", f.name.into()),
        ])
    };
    let rows: Vec<Vec<Cell>> = FIGURES.iter().filter_map(row).collect();
    format!(
        "<details><summary>{} figures</summary>\n{}</details>\n",
        rows.len(),
        table("figures", &["", "#", "name"], rows)
    )
}

fn configuration(result: &RunResult) -> String {
    let m = &result.machine;
    let mut rows = vec![
        vec![Cell::text("seed"), Cell::text(result.seed.to_string())],
        vec![
            Cell::text("generator's machine"),
            Cell::text(format!(
                "{} cores, {}, {}, {} {}",
                m.cores,
                show(m.memory_bytes as f64, "bytes"),
                if m.cpu.is_empty() { "processor unknown" } else { &m.cpu },
                m.kernel,
                m.arch
            )),
        ],
    ];
    rows.extend(
        result.versions.iter().map(|(who, v)| vec![Cell::text(format!("version of {who}")), Cell::text(v)]),
    );
    if !result.overrides.is_empty() {
        rows.push(vec![Cell::text("changed on the command line"), Cell::text(result.overrides.join(", "))]);
    }
    let scenario = match result.scenario.is_empty() {
        true => String::new(),
        false => format!("<h2>The scenario</h2>\n<pre id=\"scenario\">{}</pre>\n", text(&result.scenario)),
    };
    table("configuration", &["", ""], rows) + &scenario
}
