//! Shows a result as Markdown, for the summary of a CI job.

use crate::result::RunResult;
use crate::result::figures::{FIGURES, show};

pub fn text(result: &RunResult) -> String {
    let mut out =
        format!("## {}: {}\n\n{}\n", cell(&result.name), result.verdict_word(), cell(&result.target));
    let rules = result.verdict.iter().map(|j| [&j.rule, &j.limit, &j.measured, j.outcome()].map(cell));
    out += &table(["rule", "allowed", "measured", ""], rules);
    let figures = FIGURES.iter().filter_map(|figure| {
        let value = show(figure.of(result)?, figure.unit);
        Some([cell(figure.label), cell(&value)])
    });
    out += &table(["figure", ""], figures);
    if !result.warnings.is_empty() {
        out += "\n";
    }
    for warning in &result.warnings {
        out += &format!("- {}\n", cell(warning));
    }
    out
}

/// Builds a table. Without rows, the result is empty.
fn table<const N: usize>(headings: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: String = rows.map(|row| format!("| {} |\n", row.join(" | "))).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n| {} |\n|{}\n{rows}", headings.join(" | "), " --- |".repeat(N)),
    }
}

/// Escapes `text` so that it stays on one line of a table and contains no markup.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '#' | '!' | '~' => out.extend(['\\', c]),
            '<' => out += "&lt;",
            '&' => out += "&amp;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Judgement;
    use expect_test::expect;

    #[test]
    fn text_of_a_target_is_escaped() {
        let judged = Judgement {
            rule: "p99".into(),
            limit: "≤ 1 s".into(),
            measured: "a|b\n<c>".into(),
            pass: false,
            unmeasured: false,
        };
        let mut result = RunResult { name: "x".into(), verdict: vec![judged], ..RunResult::default() };
        result.warnings.push("late & *slow*".into());
        expect![[r#"
            ## x: FAIL



            | rule | allowed | measured |  |
            | --- | --- | --- | --- |
            | p99 | ≤ 1 s | a\|b &lt;c> | broken |

            | figure |  |
            | --- | --- |
            | samples acknowledged a second | 0/s |
            | samples acknowledged | 0 |
            | series at a time | 0 |
            | different series | 0 |
            | restarts of the target | 0 |
            | longest time without success | 0 s |
            | samples on the schedule | 0 |
            | duration of the run | 0 s |

            - late &amp; \*slow\*
        "#]]
        .assert_eq(&text(&result));
    }
}
