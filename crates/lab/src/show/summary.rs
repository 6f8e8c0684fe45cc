//! Shows a result as text, with a table on a terminal and plain lines in a pipe.

use crate::result::RunResult;
use crate::result::figures::{FIGURES, show};
use crate::show::steps;
use crate::show::text::{Row, examples, render, verify_rows};

/// Figures that the summary shows. The HTML report shows all.
const SHOWN: [&str; 28] = [
    "samples_per_s",
    "samples_acknowledged",
    "series_active",
    "series_distinct",
    "pass_rate",
    "p50_s",
    "p90_s",
    "p99_s",
    "max_s",
    "service_p99_s",
    "refusal_p99_s",
    "lag_p99_s",
    "bytes_per_sample",
    "p99_known_s",
    "p99_new_s",
    "freshness_p99_s",
    "queries_per_s",
    "read_pass_rate",
    "read_p99_s",
    "restarts",
    "cpu_cores_mean",
    "rss_peak_bytes",
    "samples_per_s_per_core",
    "bytes_per_series",
    "disk_util_peak",
    "disk_bytes_per_sample",
    "disk_bytes_per_series",
    "files_per_series",
];

/// Formats the result as a table if `table` is true, otherwise as plain lines. The verdict comes last.
pub fn text(result: &RunResult, table: bool) -> String {
    let mut rows: Vec<Row> = vec![("run", result.name.clone()), ("target", target(result))];
    for figure in FIGURES.iter().filter(|figure| SHOWN.contains(&figure.name)) {
        rows.extend(figure.of(result).map(|value| (figure.label, show(value, figure.unit))));
    }
    let statuses: Vec<String> = result.totals.by_reason.iter().map(|(r, n)| format!("{n} × {r}")).collect();
    if !statuses.is_empty() {
        rows.push(("answers", statuses.join(", ")));
    }
    rows.extend(result.verify.as_ref().map(verify_rows).unwrap_or_default());
    if let Some(first) = &result.saturated {
        rows.push(("used up first", format!("{} after {:.0} s: {}", first.resource, first.at_s, first.why)));
    }
    for j in &result.verdict {
        rows.push((
            "rule",
            match (j.pass, j.unmeasured) {
                (true, _) => format!("kept: {} {} (measured: {})", j.rule, j.limit, j.measured),
                (false, false) => format!("BROKEN: {} {} (measured: {})", j.rule, j.limit, j.measured),
                (false, true) => format!("UNKNOWN: {} {} ({})", j.rule, j.limit, j.measured),
            },
        ));
    }
    let mut out = render(&rows, table);
    out += &steps::text(result);
    for (reason, said) in &result.totals.said {
        out += &format!("first message of {reason}: {}\n", printable(said));
    }
    for warning in &result.warnings {
        out += &format!("warning: {warning}\n");
    }
    out += &result.verify.as_ref().map(examples).unwrap_or_default();
    out + verdict(result)
}

fn target(result: &RunResult) -> String {
    match result.versions.get("target") {
        Some(version) => format!("{} ({version})", result.target),
        None => result.target.clone(),
    }
}

fn verdict(result: &RunResult) -> &'static str {
    match () {
        () if result.partial => "PARTIAL: the run ended early, no verdict\n",
        () if result.verdict.is_empty() => "",
        () if result.passed() => "PASS\n",
        () => "FAIL\n",
    }
}

/// Replaces control characters, which could change the user's terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::html::tests::sample;
    use expect_test::expect;

    #[test]
    fn a_pipe_gets_lines_and_a_terminal_a_table() {
        let result = sample(110_000.0);
        expect![[r#"
            run                                  spike
            target                               http://127.0.0.1:9009/api/v1/push?</script><script>document.title='owned'</script><img src=x onerror="alert(1)">'"&<!-- (Floodmark 0.1.0)
            samples acknowledged a second        110k/s
            samples acknowledged                 26 000 000
            series at a time                     100 000
            different series                     500 000
            requests accepted                    97.74 %
            latency p50                          4 ms
            latency p90                          8 ms
            latency p99                          36 ms
            longest latency                      120 ms
            latency p99, known series            27 ms
            latency p99, new series              180 ms
            one attempt p99                      27 ms
            one refusal p99                      3.6 ms
            time until visible, p99              900 ms
            restarts of the target               0
            queries a second                     40/s
            queries answered                     99 %
            query latency p99                    180 ms
            target CPU, mean                     1.05 cores
            target memory, maximum               1.02 GiB
            samples a second for each core used  105k/s
            memory a series                      10.7 KiB
            sent for each acknowledged sample    0 B
            generator lag p99                    270 µs
            answers                              13000 × 204, 250 × 503, 50 × </script><script>document.title='owned'</script><img src=x onerror="alert(1)">'"&<!--
            verified                             26000000 acknowledged samples in 0.0 s
            read back                            26000000
            lost                                 0
            doubled                              0
            wrong                                0
            unexpected                           0
            used up first                        machine CPU after 121 s: 95 % for 3 s
            rule                                 kept: p99 ≤ 1 s (measured: 36 ms)
            rule                                 kept: lost = 0 (measured: 0)
            rule                                 BROKEN: pass rate ≥ 99 % (measured: 97.74 %)
            step    offered  acknowledged  p99    await  busy  CPU  memory
            before  0/min    0/min         36 ms  –      –     –    –
            spike   0/min    0/min         36 ms  –      –     –    –
            after   0/min    0/min         36 ms  –      –     –    –
            first message of 503: </script><script>document.title='owned'</script><img src=x onerror="alert(1)">'"&<!--
            warning: target and generator together used all 2 cores
            FAIL
        "#]].assert_eq(&text(&result, false));
        expect![[r#"
            ┌─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┐
            │ run                                   spike                                                                                                                                     │
            │ target                                http://127.0.0.1:9009/api/v1/push?</script><script>document.title='owned'</script><img src=x onerror="alert(1)">'"&<!-- (Floodmark 0.1.0) │
            │ samples acknowledged a second         110k/s                                                                                                                                    │
            │ samples acknowledged                  26 000 000                                                                                                                                │
            │ series at a time                      100 000                                                                                                                                   │
            │ different series                      500 000                                                                                                                                   │
            │ requests accepted                     97.74 %                                                                                                                                   │
            │ latency p50                           4 ms                                                                                                                                      │
            │ latency p90                           8 ms                                                                                                                                      │
            │ latency p99                           36 ms                                                                                                                                     │
            │ longest latency                       120 ms                                                                                                                                    │
            │ latency p99, known series             27 ms                                                                                                                                     │
            │ latency p99, new series               180 ms                                                                                                                                    │
            │ one attempt p99                       27 ms                                                                                                                                     │
            │ one refusal p99                       3.6 ms                                                                                                                                    │
            │ time until visible, p99               900 ms                                                                                                                                    │
            │ restarts of the target                0                                                                                                                                         │
            │ queries a second                      40/s                                                                                                                                      │
            │ queries answered                      99 %                                                                                                                                      │
            │ query latency p99                     180 ms                                                                                                                                    │
            │ target CPU, mean                      1.05 cores                                                                                                                                │
            │ target memory, maximum                1.02 GiB                                                                                                                                  │
            │ samples a second for each core used   105k/s                                                                                                                                    │
            │ memory a series                       10.7 KiB                                                                                                                                  │
            │ sent for each acknowledged sample     0 B                                                                                                                                       │
            │ generator lag p99                     270 µs                                                                                                                                    │
            │ answers                               13000 × 204, 250 × 503, 50 × </script><script>document.title='owned'</script><img src=x onerror="alert(1)">'"&<!--                        │
            │ verified                              26000000 acknowledged samples in 0.0 s                                                                                                    │
            │ read back                             26000000                                                                                                                                  │
            │ lost                                  0                                                                                                                                         │
            │ doubled                               0                                                                                                                                         │
            │ wrong                                 0                                                                                                                                         │
            │ unexpected                            0                                                                                                                                         │
            │ used up first                         machine CPU after 121 s: 95 % for 3 s                                                                                                     │
            │ rule                                  kept: p99 ≤ 1 s (measured: 36 ms)                                                                                                         │
            │ rule                                  kept: lost = 0 (measured: 0)                                                                                                              │
            │ rule                                  BROKEN: pass rate ≥ 99 % (measured: 97.74 %)                                                                                              │
            └─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────┘
            step    offered  acknowledged  p99    await  busy  CPU  memory
            before  0/min    0/min         36 ms  –      –     –    –
            spike   0/min    0/min         36 ms  –      –     –    –
            after   0/min    0/min         36 ms  –      –     –    –
            first message of 503: </script><script>document.title='owned'</script><img src=x onerror="alert(1)">'"&<!--
            warning: target and generator together used all 2 cores
            PARTIAL: the run ended early, no verdict
        "#]].assert_eq(&text(&RunResult { partial: true, ..result }, true));
    }

    #[test]
    fn control_characters_of_a_target_are_not_printed() {
        let mut hostile = sample(1.0);
        hostile.totals.said.insert("500".into(), "\u{1b}[2Jgone".into());
        assert!(!text(&hostile, false).contains('\u{1b}'));
    }
}
