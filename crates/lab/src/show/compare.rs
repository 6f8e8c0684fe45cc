//! Compares the results of two runs side by side.

use crate::result::RunResult;
use crate::result::figures::{Better, FIGURES, ratio, show};
use crate::show::html::panel::panels;
use crate::show::html::table::{Cell, section, table};
use crate::show::html::{Data, document, escape, sections};
use serde::Serialize;

/// If two values differ by less than this share, the difference counts as noise.
const NOISE: f64 = 0.05;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub a: String,
    pub b: String,
    /// All figures that were measured in at least one of the runs.
    pub figures: Vec<Compared>,
    pub rules: Vec<ComparedRule>,
    /// Whether each run has passed. `None` if the run was incomplete or had no rules.
    pub passed: (Option<bool>, Option<bool>),
    /// Reasons why the two runs cannot be compared directly, for example different machines.
    pub caveats: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// Name of the figure, as in [`RunResult::figure`].
    pub name: &'static str,
    pub label: &'static str,
    pub unit: &'static str,
    pub a: Option<f64>,
    pub b: Option<f64>,
    /// Second value divided by the first.
    pub ratio: Option<f64>,
    /// `a` or `b`, whichever run has the better value. `None` if the difference is only noise.
    pub better: Option<char>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedRule {
    pub rule: String,
    /// Value that the first run measured, and true if it kept the rule.
    pub a: Option<(String, bool)>,
    pub b: Option<(String, bool)>,
}

impl Comparison {
    /// Compares two results. Each gets a name that tells it from the other.
    pub fn of(a: &RunResult, b: &RunResult) -> Self {
        let (name_a, name_b) = names(a, b);
        let figure = |f: &crate::result::figures::Figure| {
            let (a, b) = (f.of(a), f.of(b));
            if a.is_none() && b.is_none() {
                return None;
            }
            let ratio = a.zip(b).filter(|(a, _)| *a != 0.0).map(|(a, b)| b / a);
            let better = better(f.better, a, b);
            Some(Compared { name: f.name, label: f.label, unit: f.unit, a, b, ratio, better })
        };
        let passed = |r: &RunResult| (!r.verdict.is_empty() && !r.partial).then(|| r.passed());
        Self {
            figures: FIGURES.iter().filter_map(figure).collect(),
            rules: rules(a, b),
            passed: (passed(a), passed(b)),
            caveats: caveats(a, b),
            a: name_a,
            b: name_b,
        }
    }

    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Formats the comparison for people, as a table for a terminal if `table` is true, otherwise as plain lines.
    pub fn to_text(&self, table: bool) -> String {
        let value = |v: Option<f64>, unit: &str| v.map_or_else(|| "–".to_owned(), |v| show(v, unit));
        let mut rows =
            vec![["".to_owned(), self.a.clone(), self.b.clone(), "B / A".to_owned(), "better".to_owned()]];
        for f in &self.figures {
            let better = f.better.map_or_else(String::new, |c| c.to_ascii_uppercase().to_string());
            let r = f.ratio.map_or_else(|| "–".to_owned(), ratio);
            rows.push([f.label.to_owned(), value(f.a, f.unit), value(f.b, f.unit), r, better]);
        }
        for rule in &self.rules {
            let cell = |side: &Option<(String, bool)>| match side {
                Some((measured, kept)) => format!("{} ({measured})", if *kept { "kept" } else { "BROKEN" }),
                None => "–".to_owned(),
            };
            let [a, b] = [&rule.a, &rule.b].map(cell);
            rows.push([rule.rule.clone(), a, b, String::new(), String::new()]);
        }
        let word = |passed: Option<bool>| match passed {
            Some(true) => "PASS",
            Some(false) => "FAIL",
            None => "–",
        };
        let [a, b] = [self.passed.0, self.passed.1].map(|p| word(p).to_owned());
        rows.push(["verdict".to_owned(), a, b, String::new(), String::new()]);
        let mut out = columns(&rows, table);
        for caveat in &self.caveats {
            out += &format!("note: {caveat}\n");
        }
        out
    }

    /// Formats the comparison as one HTML file. It needs the two results again for their charts.
    pub fn to_html(&self, a: &RunResult, b: &RunResult) -> String {
        let content = [
            format!(
                "<header><div><h1>{} and {}</h1>\n<p class=\"sub\">A: {} · {} · {}<br>B: {} · {} · {}</p></div></header>\n",
                escape::text(&self.a),
                escape::text(&self.b),
                escape::text(&a.name),
                escape::text(&a.target),
                sections::date(a.begun_ms),
                escape::text(&b.name),
                escape::text(&b.target),
                sections::date(b.begun_ms),
            ),
            section("Before you compare", &crate::show::html::table::list("warn", &self.caveats)),
            section("Figures", &self.figures_table()),
            section("Verdicts", &self.rules_table()),
            "<section><h2>Over time</h2>\n<p class=\"soft\">A is drawn solid, B dashed.</p>\n\
             <div class=\"charts\" id=\"charts\"></div></section>\n"
                .to_owned(),
            "<footer>floodmark lab · one file, nothing is loaded from anywhere</footer>\n".to_owned(),
        ];
        let length = |r: &RunResult| r.timeline.points as f64 * r.timeline.step_s;
        let data = Data {
            length_s: length(a).max(length(b)).max(1.0),
            panels: panels(&[("A", &a.timeline), ("B", &b.timeline)]),
            events: Vec::new(),
        };
        document(&format!("{} and {} – Floodmark lab", self.a, self.b), &content.concat(), &data)
    }

    fn figures_table(&self) -> String {
        let row = |f: &Compared| {
            let better = match f.better {
                Some(c) => Cell::Classed(
                    if c == 'b' { "better" } else { "worse" },
                    c.to_ascii_uppercase().to_string(),
                ),
                None => Cell::text(""),
            };
            let [a, b] = [f.a, f.b].map(|v| Cell::number(v, f.unit));
            vec![Cell::text(f.label), a, b, Cell::ratio(f.ratio), better]
        };
        let [a, b] = [format!("#A: {}", self.a), format!("#B: {}", self.b)];
        table("figures", &["", &a, &b, "#B / A", "better"], self.figures.iter().map(row))
    }

    fn rules_table(&self) -> String {
        let cell = |side: &Option<(String, bool)>| match side {
            Some((measured, true)) => Cell::Classed("yes", format!("kept: {measured}")),
            Some((measured, false)) => Cell::Classed("no", format!("broken: {measured}")),
            None => Cell::text("–"),
        };
        let row = |rule: &ComparedRule| vec![Cell::text(&rule.rule), cell(&rule.a), cell(&rule.b)];
        let [a, b] = [format!("A: {}", self.a), format!("B: {}", self.b)];
        table("rules", &["rule", &a, &b], self.rules.iter().map(row))
    }
}

/// Chooses names that tell the runs apart: the first of target version, target URL and scenario name that differs. If
/// all are equal, `A` and `B`.
fn names(a: &RunResult, b: &RunResult) -> (String, String) {
    let target = |r: &RunResult| r.versions.get("target").cloned().unwrap_or_else(|| r.target.clone());
    for name in [&target as &dyn Fn(&RunResult) -> String, &|r| r.target.clone(), &|r| r.name.clone()] {
        let (of_a, of_b) = (name(a), name(b));
        if of_a != of_b && !of_a.is_empty() && !of_b.is_empty() {
            return (of_a, of_b);
        }
    }
    ("A".to_owned(), "B".to_owned())
}

fn better(better: Better, a: Option<f64>, b: Option<f64>) -> Option<char> {
    let (a, b) = a.zip(b)?;
    let largest = a.abs().max(b.abs());
    if largest == 0.0 || (a - b).abs() / largest < NOISE {
        return None;
    }
    match (better, b > a) {
        (Better::Neither, _) => None,
        (Better::Higher, true) | (Better::Lower, false) => Some('b'),
        (Better::Higher, false) | (Better::Lower, true) => Some('a'),
    }
}

fn rules(a: &RunResult, b: &RunResult) -> Vec<ComparedRule> {
    let mut rules: Vec<ComparedRule> = Vec::new();
    for (result, of_b) in [(a, false), (b, true)] {
        for j in &result.verdict {
            let name = format!("{} {}", j.rule, j.limit);
            let at = rules.iter().position(|known| known.rule == name).unwrap_or_else(|| {
                rules.push(ComparedRule { rule: name, a: None, b: None });
                rules.len() - 1
            });
            let measured = Some((j.measured.clone(), j.pass));
            if of_b { rules[at].b = measured } else { rules[at].a = measured }
        }
    }
    rules
}

fn caveats(a: &RunResult, b: &RunResult) -> Vec<String> {
    let mut caveats = Vec::new();
    let mut differ = |differs: bool, why: &str| {
        if differs {
            caveats.push(why.to_owned());
        }
    };
    differ(a.scenario != b.scenario, "the scenarios differ");
    differ(
        a.overrides != b.overrides,
        "the runs changed different settings of the scenario on the command line",
    );
    differ(a.seed != b.seed, "the seeds differ, and so the series and values");
    differ(a.machine != b.machine, "the generators ran on different machines");
    differ(a.versions.get("lab") != b.versions.get("lab"), "the versions of the lab differ");
    differ(a.part != b.part, "the results are of different parts of a fleet");
    for (name, result) in [("A", a), ("B", b)] {
        if result.partial {
            caveats.push(format!("{name} ended early"));
        }
        caveats.extend(result.warnings.iter().map(|warning| format!("{name}: {warning}")));
    }
    caveats
}

fn columns(rows: &[[String; 5]], table: bool) -> String {
    if table {
        let mut out = comfy_table::Table::new();
        out.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        rows.iter().for_each(|row| {
            out.add_row(row);
        });
        return format!("{out}\n");
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, w)| format!("{cell:w$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
