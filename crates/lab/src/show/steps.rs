//! Shows the steps of a load as a table of text, with the published figures of each step beside ours.

use crate::result::figures::show;
use crate::result::{AccountFigure, RunResult, Step};

/// Formats the steps as lines with aligned columns. Empty if there is only one step.
pub(crate) fn text(result: &RunResult) -> String {
    if result.steps.len() < 2 {
        return String::new();
    }
    let mut published: Vec<&str> = Vec::new();
    for figure in result.account.iter().filter(|figure| figure.step.is_some()) {
        if !published.contains(&figure.what.as_str()) {
            published.push(&figure.what);
        }
    }
    let ours = ["step", "offered", "acknowledged", "p99", "await", "busy", "CPU", "memory"];
    let mut rows: Vec<Vec<String>> = vec![ours.map(str::to_owned).to_vec()];
    rows[0].extend(published.iter().map(|what| format!("account: {what}")));
    for (number, step) in (1..).zip(&result.steps) {
        let mut row = own(step);
        row.extend(published.iter().map(|what| {
            let of = |figure: &&AccountFigure| figure.step == Some(number) && figure.what == **what;
            result.account.iter().find(of).map_or_else(|| "–".to_owned(), value)
        }));
        rows.push(row);
    }
    align(&rows)
}

fn own(step: &Step) -> Vec<String> {
    let cell = |value: Option<f64>, unit| value.map_or_else(|| "–".to_owned(), |value| show(value, unit));
    vec![
        step.name.clone(),
        per_minute(step.offered_samples_per_s),
        per_minute(step.samples_per_s),
        cell(step.figure("p99_s"), "s"),
        cell(step.disk_await_s, "s"),
        cell(step.disk_util, "part"),
        cell(step.cpu_cores, "cores"),
        cell(step.memory_bytes, "bytes"),
    ]
}

fn per_minute(per_s: f64) -> String {
    format!("{}/min", show((per_s * 60.0).round(), ""))
}

/// Formats a published figure, with its range if there is one.
pub(crate) fn value(figure: &AccountFigure) -> String {
    let number = |value: f64| show(value, "");
    let range = match figure.low {
        Some(low) => format!("{} – {}", number(low), number(figure.value)),
        None => number(figure.value),
    };
    match figure.unit.as_str() {
        "" => range,
        unit => {
            unit.strip_prefix("1/").map_or_else(|| format!("{range} {unit}"), |per| format!("{range}/{per}"))
        }
    }
}

fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn steps_are_beside_those_of_the_account() {
        let step = |n: f64| Step {
            name: format!("step {n} of 2"),
            offered_samples_per_s: 192.0 * n,
            samples_per_s: 191.99 * n,
            disk_await_s: (n > 1.0).then_some(0.0021),
            disk_util: Some(0.012 * n),
            memory_bytes: Some(f64::from(80 << 20)),
            ..Step::default()
        };
        let account = |step, what: &str, low, value, unit: &str| AccountFigure {
            what: what.into(),
            value,
            low,
            unit: unit.into(),
            step,
            ..AccountFigure::default()
        };
        let mut result = RunResult {
            steps: vec![step(1.0)],
            account: vec![
                account(None, "elsewhere", None, 1.0, ""),
                account(Some(1), "await", Some(5.0), 40.0, "ms"),
                account(Some(1), "busy", None, 4.0, "%"),
                account(Some(2), "busy", None, 41.0, "%"),
                account(Some(2), "metrics", None, 23_040.0, "1/min"),
            ],
            ..RunResult::default()
        };
        assert_eq!(text(&result), "");
        result.steps.push(step(2.0));
        expect![[r#"
            step         offered     acknowledged  p99  await   busy   CPU  memory  account: await  account: busy  account: metrics
            step 1 of 2  11 520/min  11 519/min    –    –       1.2 %  –    80 MiB  5 – 40 ms       4 %            –
            step 2 of 2  23 040/min  23 039/min    –    2.1 ms  2.4 %  –    80 MiB  –               41 %           23 040/min
        "#]].assert_eq(&text(&result));
    }
}
