use crate::promql::{EXPR_BYTES_MAX, QueryError, ValueKind, instant, parse, parse_selector};
use crate::{Matcher, Options, memory::MemorySource};
use std::sync::atomic::AtomicBool;
use stdx::rng::Rng;

fn message(text: &str) -> String {
    match parse(text) {
        Err(QueryError::Parse(message)) => message,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn expressions_have_types() {
    let check = |text: &str, kind: ValueKind| assert_eq!(parse(text).unwrap().kind(), kind, "{text}");
    check("1 + 2", ValueKind::Scalar);
    check("-(time())", ValueKind::Scalar);
    check("up", ValueKind::Vector);
    check("up > bool 1", ValueKind::Vector);
    check("rate(up[5m] offset 1h)", ValueKind::Vector);
    check("up[5m]", ValueKind::Matrix);
    check("rate(up[5m])[1h:]", ValueKind::Matrix);
    check("\"a\"", ValueKind::String);
}

#[test]
fn errors_say_what_is_wrong() {
    let check = |text: &str, part: &str| {
        let message = message(text);
        assert!(message.contains("parse error: ") && message.contains(part), "{text}: {message}");
    };
    check("", "no expression found in input");
    check("  # nothing", "no expression found in input");
    check("sum(up", "unclosed left parenthesis");
    check("foo(up)", "unknown function with name");
    check("rate(up)", "expected type");
    check("rate(up[5m], 1)", "expected 1 argument(s) in call to");
    check("up[5m] + 1", "binary expression must contain only scalar and instant vector types");
    check("1 == 1", "comparisons between scalars must use BOOL modifier");
    check("1 and up", "not allowed in binary scalar expression");
    check("up and on(a) group_left() up", "no grouping allowed for");
    check("up + on(a) group_left(a) up", "must not occur in ON and GROUP clause at once");
    check("{}", "vector selector must contain at least one non-empty matcher");
    check(r#"{job=~".*"}"#, "vector selector must contain at least one non-empty matcher");
    check(r#"up{job=~"("}"#, "");
    check("up[0s]", "duration");
    check("topk(up, up)", "expected type scalar");
    check("count_values(1, up)", "expected type string");
    check("ln(0)", "expected type");
    check("exp(NaN)", "expected type");
    check("up{a=\"b\" or c=\"d\"}", "");
}

#[test]
fn selectors_of_the_api() {
    let names = |text: &str| -> Vec<String> {
        parse_selector(text).unwrap().iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(r#"up{job=~"a|b",zone!="x"}"#), [r#"__name__="up""#, r#"job=~"a|b""#, r#"zone!="x""#]);
    assert_eq!(names(r#"{"a.b", "c.d"="e"}"#), [r#"__name__="a.b""#, r#"c.d="e""#]);
    for bad in ["up[5m]", "up offset 5m", "up @ 1", "sum(up)", "1", "", "{}"] {
        assert!(parse_selector(bad).is_err(), "{bad}");
    }
}

#[test]
fn selectors_of_an_expression() {
    let names = |text: &str| {
        let expr = parse(text).unwrap();
        let name = |matchers: &&[Matcher]| matchers[0].value.clone();
        expr.selectors().iter().map(name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("histogram_quantile(0.9, sum by (le) (rate(a[5m]))) / on() -b"), "a b");
    assert_eq!(names("topk(scalar(a), max_over_time(rate(b[1m])[1h:]) > bool c offset 1h)"), "a b c");
    assert_eq!(names("1 + time()"), "");
}

/// At least one matcher must refuse the empty string: Prometheus' rule.
#[test]
fn a_selector_must_not_select_everything() {
    for text in [
        r#"{a!=""}"#,
        r#"{a!="", b=""}"#,
        r#"{a=~".+"}"#,
        r#"{a!~".*"}"#,
        r#"{a!~"|b"}"#,
        r#"{a="0"}"#,
        r#"{a=~"0|1"}"#,
        r#"{"a"!=""}"#,
        r#"{"a"}"#,
        r#"sum({a !~ ".*" , }) + rate({a != ''}[5m])"#,
    ] {
        assert!(parse(text).is_ok(), "{text}: {:?}", parse(text));
    }
    for text in [
        "{}",
        r#"{a=""}"#,
        r#"{a!="b"}"#,
        r#"{a!="0"}"#,
        r#"{a!~".+"}"#,
        r#"{a=~".*"}"#,
        r#"{a=~"b|"}"#,
        r#"{a=~"(b)?"}"#,
        r#"{a="", b!="c"}"#,
        r#"{__name__=~".*"}"#,
        r#"up or {a=""}"#,
    ] {
        assert!(
            message(text).contains("vector selector must contain at least one non-empty matcher"),
            "{text}"
        );
    }
}

#[test]
fn numbers_are_read_as_go_does() {
    let (cancelled, source) = (AtomicBool::new(false), MemorySource::new());
    let options = Options::new(&cancelled);
    let value = |text: &str| match instant(&parse(text).unwrap(), 0, &source, &options).unwrap().value {
        crate::Value::Scalar { value, .. } => value,
        other => panic!("{text}: {other:?}"),
    };
    for (text, expected) in [
        ("1_000", 1000.0),
        ("1_000*2", 2000.0),
        ("1e3", 1000.0),
        ("1e-3-1", 1e-3 - 1.0),
        ("1.5E+2", 150.0),
        ("0x1F", 31.0),
        ("0x1f-1", 30.0),
        ("0755", 493.0),
        ("08", 8.0),
        (".5+5.", 5.5),
        ("1e300", 1e300),
        ("5e-324", 5e-324),
        ("1e-12", 1e-12),
        ("9007199254740993", 9007199254740992.0),
        ("18446744073709551616", 18446744073709551616.0),
        ("0.1", 0.1),
        ("-Inf", f64::NEG_INFINITY),
        ("0", 0.0),
    ] {
        assert_eq!(value(text).to_bits(), expected.to_bits(), "{text}");
    }
    for bad in ["1__0", "1_", "0xg", "1e", "1.2.3", "0x"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn strings_are_read_as_go_does() {
    let names =
        |text: &str| parse_selector(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(r#"{'a"b'=`c\d`, e="\x41"}"#), [r#"a"b="c\\d""#, r#"e="A""#]);
    assert!(message(r#"up{a="\xff"}"#).contains("1:6: parse error: invalid UTF-8"));
    assert!(message(r#"up{__name__="down"}"#).contains("metric name must not be set twice"));
    let many = |count: usize| vec![r#"a=~"a[bc]""#; count].join(",");
    assert!(parse(&format!("up{{{}}}", many(64))).is_ok());
    assert!(message(&format!("up{{{}}}", many(65))).contains("regular expressions"));
}

#[test]
fn nesting_is_bounded() {
    let deep = 10_000;
    let repeat = |head: &str, middle: &str, tail: &str| head.repeat(deep) + middle + &tail.repeat(deep);
    for text in [
        repeat("(", "1", ")"),
        repeat("(", "", ""),
        repeat("sum(", "up", ")"),
        repeat("-", "up", ""),
        repeat("- ", "1", ""),
        repeat("up + ", "up", ""),
        repeat("1 ^ ", "1", ""),
        repeat("up or ", "up", ""),
        repeat("((1) + ", "1", ")"),
        repeat("abs(", "up", ""),
        repeat("", "up", "[5m:]"),
        repeat("max_over_time(", "up", "[5m:])"),
        repeat("[", "up", "]"),
        repeat("{", "up", "}"),
        repeat("up{a=~\"(\"}", "", ""),
    ] {
        assert!(parse(&text).is_err(), "{}", &text[..40]);
    }
    let long = format!("{}1", " ".repeat(EXPR_BYTES_MAX));
    assert!(message(&long).contains("the limit is"));
}

/// What is allowed to nest must also be evaluated within the smallest stack a thread gets.
#[test]
fn the_deepest_expressions_can_be_evaluated() {
    let cancelled = AtomicBool::new(false);
    let source = MemorySource::new();
    let mut accepted = 0;
    for count in 1..=crate::promql::EXPR_DEPTH_MAX {
        let nested = |head: &str, middle: &str, tail: &str| head.repeat(count) + middle + &tail.repeat(count);
        for text in [
            nested("(", "1", ")"),
            nested("-", "up", ""),
            nested("up + ", "up", ""),
            nested("1 ^ ", "1", ""),
            nested("sum by (x) (", "up", ")"),
            nested("abs(1 + ", "up", ")"),
            nested("label_replace(", "up", r#", "a", "b", "c", "d")"#),
            nested("sort(", "up", ")"),
            nested("max_over_time(", "up", "[1m:1m])"),
            nested("scalar(vector(", "1", "))"),
        ] {
            let interesting = count % 49 == 1 || count + 10 > crate::promql::EXPR_DEPTH_MAX;
            if let Some(expr) = parse(&text).ok().filter(|_| interesting) {
                let _ = instant(&expr, 0, &source, &Options::new(&cancelled));
                accepted += 1;
            }
        }
    }
    assert!(accepted > 40, "{accepted}");
}

/// Random words in random order: errors, never panics.
#[test]
fn garbage_is_refused_in_order() {
    const WORDS: [&str; 78] = [
        "up",
        "sum",
        "avg",
        "topk",
        "quantile",
        "count_values",
        "limitk",
        "rate",
        "ln",
        "exp",
        "label_replace",
        "vector",
        "time",
        "start",
        "end",
        "(",
        ")",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        "=",
        "!=",
        "=~",
        "!~",
        "==",
        ">",
        "<=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "^",
        "@",
        ":",
        "offset",
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "bool",
        "and",
        "or",
        "unless",
        "atan2",
        "1",
        "0",
        "-5",
        "1e300",
        "0x",
        "0x1f",
        "08",
        "1_000",
        ".5",
        "5.",
        "inf",
        "NaN",
        "5m",
        "1h30m",
        "9999999999y",
        "\"a\"",
        "'b'",
        "`c`",
        "\"\\x\"",
        "\"\\u12\"",
        "\"",
        "é",
        "#",
        "\n",
        "[5m]",
        "[5m:]",
        "[1e300]",
        "\0",
    ];
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (cancelled, source) = (AtomicBool::new(false), MemorySource::new());
    let options = Options { samples_max: 10_000, ..Options::new(&cancelled) };
    let mut parsed = 0;
    for _ in 0..30_000 {
        let mut text = String::new();
        for _ in 0..=rng.below(9) {
            text.push_str(WORDS[rng.below(WORDS.len() as u64) as usize]);
            if rng.chance(0.7) {
                text.push(' ');
            }
        }
        if let Ok(expr) = parse(&text) {
            parsed += 1;
            let _ = instant(&expr, 1_000_000, &source, &options);
        }
    }
    assert!(parsed > 0);
}
