//! A result as one self-contained HTML file.
//!
//! ```text
//!   RunResult ─┬─ text, tables ─ escape::text ─▶ HTML
//!              └─ panels ─ JSON ─ escape::json ─▶ a script's content ─ charts.js ─▶ SVG
//! ```
//!
//! [`escape`] escapes all text from targets and scenarios. A content security policy forbids loading anything.

pub(crate) mod escape;
pub(crate) mod panel;
pub(crate) mod sections;
pub(crate) mod table;

use crate::result::{EventKind, RunResult};
use anyhow::Context;
use escape::{json, text};
use panel::Panel;
use serde::Serialize;
use std::path::Path;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/charts.js");

#[derive(Debug, Serialize)]
pub(crate) struct Data {
    pub(crate) length_s: f64,
    pub(crate) panels: Vec<Panel>,
    pub(crate) events: Vec<Mark>,
}

/// A vertical line in the charts.
#[derive(Debug, Serialize)]
pub(crate) struct Mark {
    pub(crate) at_s: f64,
    pub(crate) kind: EventKind,
    pub(crate) text: String,
}

impl Data {
    fn of(result: &RunResult) -> Self {
        let timeline = &result.timeline;
        let marks = result.events.iter().map(|e| Mark { at_s: e.at_s, kind: e.kind, text: e.text.clone() });
        Self {
            length_s: (timeline.points as f64 * timeline.step_s).max(1.0),
            panels: panel::panels(&[("", timeline)]),
            events: marks.collect(),
        }
    }
}

pub fn of(result: &RunResult) -> String {
    let title = if result.name.is_empty() { "a run" } else { &result.name };
    document(&format!("{title} – Floodmark lab"), &sections::report(result), &Data::of(result))
}

/// Writes a page to `path`. After an error, an older page stays unchanged.
pub fn save(page: &str, path: &Path) -> anyhow::Result<()> {
    crate::result::files::replace(path, page)
        .with_context(|| format!("cannot write the report {}", path.display()))
}

pub(crate) fn document(title: &str, content: &str, data: &Data) -> String {
    let data = serde_json::to_string(data).expect("BUG: the data of the panels cannot be encoded as JSON");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"generator\" content=\"floodmark {version}\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n{content}</main>\n<script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        title = text(title),
        data = json(&data),
    )
}

#[cfg(test)]
pub(crate) mod tests;
