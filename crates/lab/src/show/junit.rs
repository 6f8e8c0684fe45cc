//! Shows a verdict as JUnit XML, which CI servers understand. Each rule is a test case, and each figure a property.

use super::html::escape;
use crate::result::RunResult;
use crate::result::figures::FIGURES;

/// Formats a result as one test suite. A broken rule is a failure, and a rule that could not be measured is an error.
pub fn text(result: &RunResult) -> String {
    let name = xml(&result.name);
    let failures = result.verdict.iter().filter(|j| !j.pass && !j.unmeasured).count();
    let errors = result.verdict.iter().filter(|j| j.unmeasured).count() + usize::from(result.partial);
    let tests = result.verdict.len() + usize::from(result.partial);
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{name}\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"{errors}\" time=\"{:.3}\">\n<properties>\n",
        result.wall_s
    );
    for figure in &FIGURES {
        if let Some(value) = figure.of(result) {
            out += &format!("<property name=\"{}\" value=\"{value}\"/>\n", figure.name);
        }
    }
    out += "</properties>\n";
    for judged in &result.verdict {
        let message = xml(&format!("{}, limit: {}", judged.measured, judged.limit));
        let rest = match (judged.pass, judged.unmeasured) {
            (true, _) => "/>".to_owned(),
            (false, false) => format!("><failure message=\"{message}\"/></testcase>"),
            (false, true) => format!("><error message=\"{message}\"/></testcase>"),
        };
        out += &format!("<testcase classname=\"{name}\" name=\"{}\"{rest}\n", xml(&judged.rule));
    }
    if result.partial {
        out += &format!(
            "<testcase classname=\"{name}\" name=\"complete\"><error message=\"the run ended early\"/></testcase>\n"
        );
    }
    out + "</testsuite>\n"
}

/// Escapes text for an attribute. Control characters are replaced, because XML forbids them.
fn xml(text: &str) -> String {
    let printable: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    escape::text(&printable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Judgement;
    use expect_test::expect;

    #[test]
    fn rules_are_test_cases() {
        let judged = |rule: &str, pass, unmeasured| Judgement {
            rule: rule.into(),
            limit: "≤ 1".into(),
            measured: "2 \"<\u{1}".into(),
            pass,
            unmeasured,
        };
        let verdict =
            vec![judged("lost", true, false), judged("p99", false, false), judged("memory", false, true)];
        let result =
            RunResult { name: "a&b".into(), wall_s: 1.5, partial: true, verdict, ..RunResult::default() };
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuite name="a&amp;b" tests="4" failures="1" errors="2" time="1.500">
            <properties>
            <property name="samples_per_s" value="0"/>
            <property name="samples_acknowledged" value="0"/>
            <property name="series_active" value="0"/>
            <property name="series_distinct" value="0"/>
            <property name="restarts" value="0"/>
            <property name="silence_s" value="0"/>
            <property name="samples_offered" value="0"/>
            <property name="wall_s" value="1.5"/>
            </properties>
            <testcase classname="a&amp;b" name="lost"/>
            <testcase classname="a&amp;b" name="p99"><failure message="2 &quot;&lt;�, limit: ≤ 1"/></testcase>
            <testcase classname="a&amp;b" name="memory"><error message="2 &quot;&lt;�, limit: ≤ 1"/></testcase>
            <testcase classname="a&amp;b" name="complete"><error message="the run ended early"/></testcase>
            </testsuite>
        "#]].assert_eq(&text(&result));
    }
}
