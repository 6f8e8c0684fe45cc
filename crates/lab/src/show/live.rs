//! Shows the current state of the load as some lines below the progress bar.

use crate::result::figures::show;
use crate::result::{Timeline, names};

use std::fmt::Write;

/// Some values are not measured each second. The latest value among this number of recent points is shown.
const RECENT_POINTS: usize = 5;

/// Formats the latest values and, if a rule is already broken, that rule.
pub(crate) fn block(timeline: &Timeline, broken: Option<&str>) -> String {
    let mut block = Block { timeline, text: String::new() };
    block.line("rate", |line| {
        line.put("", names::RATE_OFFERED, "1/s", "offered");
        line.put("", names::RATE_SENT, "1/s", "sent");
        line.put("", names::RATE_ACKNOWLEDGED, "1/s", "acknowledged");
    });
    block.line("answers", |line| {
        for name in timeline.series.keys().filter(|name| name.starts_with(names::STATUS_PREFIX)) {
            line.put(&format!("{}: ", &name[names::STATUS_PREFIX.len()..]), name, "1/s", "");
        }
    });
    block.line("latency", |line| {
        line.put("p50 ", names::LATENCY_P50, "s", "");
        line.put("p99 ", names::LATENCY_P99, "s", "");
        line.put("visible p99 ", names::FRESHNESS_P99, "s", "");
    });
    block.line("reads", |line| {
        line.put("", names::READS, "1/s", "answered");
        line.put("", names::READS_FAILED, "1/s", "failed");
        line.put("p99 ", names::READS_P99, "s", "");
    });
    block.line("target", |line| {
        line.put("", "target/cpu", "cores", "");
        line.put("", "target/memory", "bytes", "");
        line.put("limit ", "cgroup/memory_limit", "bytes", "");
    });
    block.line("generator", |line| {
        line.put("", names::GENERATOR_CPU, "cores", "");
        line.put("", names::GENERATOR_RSS, "bytes", "");
        line.put("late p99 ", names::GENERATOR_LAG, "s", "");
    });
    let rules = broken.unwrap_or("none is broken so far");
    write!(block.text, "\n{:>10}  {rules}", "rules").expect("BUG: writing to a string fails");
    block.text
}

struct Block<'a> {
    timeline: &'a Timeline,
    text: String,
}

impl Block<'_> {
    fn line(&mut self, subject: &str, fill: impl FnOnce(&mut Line<'_>)) {
        let mut line = Line { timeline: self.timeline, parts: Vec::new() };
        fill(&mut line);
        if !line.parts.is_empty() {
            let parts = line.parts.join(", ");
            write!(self.text, "\n{subject:>10}  {parts}").expect("BUG: writing to a string fails");
        }
    }
}

struct Line<'a> {
    timeline: &'a Timeline,
    parts: Vec<String>,
}

impl Line<'_> {
    fn put(&mut self, before: &str, name: &str, unit: &str, after: &str) {
        let first = self.timeline.points.saturating_sub(RECENT_POINTS);
        let recent = self.timeline.get(name).and_then(|values| values.get(first..)).unwrap_or_default();
        if let Some(value) = recent.iter().rev().flatten().next() {
            let gap = if after.is_empty() { "" } else { " " };
            self.parts.push(format!("{before}{}{gap}{after}", show(*value, unit)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::SeriesKind;
    use expect_test::expect;

    fn text(timeline: &Timeline, broken: Option<&str>) -> String {
        block(timeline, broken).lines().map(str::trim_start).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_subject_with_values_has_a_line() {
        let mut timeline = Timeline::default();
        timeline.advance(0.5);
        let mut set = |name: &str, value| timeline.set(name, "", SeriesKind::Sum, value);
        set(names::RATE_OFFERED, 110_000.0);
        set(names::RATE_SENT, 112_000.0);
        set(names::RATE_ACKNOWLEDGED, 109_500.0);
        set("status/204", 55.0);
        set("status/503", 2.0);
        set(names::LATENCY_P50, 0.0031);
        set(names::LATENCY_P99, 0.0123);
        set("target/cpu", 1.42);
        set("target/memory", 312.0 * 1_048_576.0);
        set("cgroup/memory_limit", 512.0 * 1_048_576.0);
        set(names::GENERATOR_CPU, 0.31);
        set(names::GENERATOR_LAG, 0.0002);
        expect![[r#"

            rate  110k/s offered, 112k/s sent, 110k/s acknowledged
            answers  204: 55/s, 503: 2/s
            latency  p50 3.1 ms, p99 12.3 ms
            target  1.42 cores, 312 MiB, limit 512 MiB
            generator  0.31 cores, late p99 200 µs
            rules  none is broken so far"#]]
        .assert_eq(&text(&timeline, None));
        timeline.advance(1.5);
        timeline.set(names::RATE_SENT, "", SeriesKind::Sum, 0.0);
        expect![[r#"

            rate  110k/s offered, 0/s sent, 110k/s acknowledged
            answers  204: 55/s, 503: 2/s
            latency  p50 3.1 ms, p99 12.3 ms
            target  1.42 cores, 312 MiB, limit 512 MiB
            generator  0.31 cores, late p99 200 µs
            rules  verdict.restarts is broken: 1, and 0 is allowed"#]]
        .assert_eq(&text(&timeline, Some("verdict.restarts is broken: 1, and 0 is allowed")));
        timeline.advance(20.5);
        expect![[r#"

            rules  none is broken so far"#]]
        .assert_eq(&text(&timeline, None));
    }
}
