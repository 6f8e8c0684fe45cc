use crate::promql::{EXPR_BYTES_MAX, QueryError, ValueType, instant, parse, parse_selector};
use crate::{Allowance, Matcher, Options, memory_source::MemorySource};
use std::sync::atomic::AtomicBool;
use stdx::rng::Rng;

mod oracle;

fn message(text: &str) -> String {
    match parse(text) {
        Err(QueryError::Parse(message)) => message,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn expressions_have_types() {
    let check =
        |text: &str, expected: ValueType| assert_eq!(parse(text).unwrap().value_type(), expected, "{text}");
    check("1 + 2", ValueType::Scalar);
    check("-(time())", ValueType::Scalar);
    check("up", ValueType::Vector);
    check("up > bool 1", ValueType::Vector);
    check("rate(up[5m] offset 1h)", ValueType::Vector);
    check("up[5m]", ValueType::Matrix);
    check("rate(up[5m])[1h:]", ValueType::Matrix);
    check("\"a\"", ValueType::String);
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
    assert_eq!(names(r#"{"a", __name__="b"}"#), [r#"__name__="a""#, r#"__name__="b""#]);
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

/// As in Prometheus, at least one matcher must refuse the empty string.
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
    let (canceled, source) = (AtomicBool::new(false), MemorySource::new());
    let options = Options::new(&canceled);
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

/// Expressions at the nesting limit can be evaluated in the smallest stack.
#[test]
fn the_deepest_expressions_can_be_evaluated() {
    let canceled = AtomicBool::new(false);
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
            let interesting = count % 49 == 1 || (90..=101).contains(&count) || count > 190;
            if let Some(expr) = parse(&text).ok().filter(|_| interesting) {
                let _ = instant(&expr, 0, &source, &Options::new(&canceled));
                accepted += 1;
            }
        }
    }
    assert!(accepted > 40, "{accepted}");
}

#[test]
fn random_words_are_errors_and_never_panics() {
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
    let mut rng = Rng::announced();
    let (canceled, source) = (AtomicBool::new(false), MemorySource::new());
    let options = Options { samples_max: 10_000, ..Options::new(&canceled) };
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

#[test]
fn errors_say_where() {
    let check = |text: &str, expected: &str| assert_eq!(message(text), expected, "{text}");
    check("", "unknown position: parse error: no expression found in input");
    check("sum(a", "1:6: parse error: unclosed left parenthesis");
    check("a)", "1:2: parse error: unexpected right parenthesis ')'");
    check("a +\n b{x='y", "2:6: parse error: unterminated quoted string");
    check("a[5mm]", "1:3: parse error: bad number or duration syntax: \"5mm\"");
    check("a offset -1e99", "1:11: parse error: duration out of range");
    check("a[5m", "1:5: parse error: unclosed left bracket");
    check("a[0s]", "1:3: parse error: duration must be greater than 0");
    check(
        "a[b]",
        "1:3: parse error: unexpected identifier \"b\" in subquery or range, expected number or duration",
    );
    check(
        "a[5m 5m]",
        "1:6: parse error: unexpected duration \"5m\" in subquery or range, expected \":\" or \"]\"",
    );
    check("sum(a)[5m]", "1:7: parse error: ranges only allowed for vector selectors");
    check("1 + 1 == 1", "1:7: parse error: comparisons between scalars must use BOOL modifier");
    check("a[]", "1:3: parse error: unexpected \"]\" in subquery or range, expected number or duration");
    check("a b", "1:3: parse error: unexpected identifier \"b\"");
    check("1 +", "1:4: parse error: unexpected end of input");
    check("* 1", "1:1: parse error: unexpected <op:*>");
    check("a and", "1:6: parse error: unexpected end of input");
    check("a + group_left b", "1:5: parse error: unexpected <group_left>");
    check("a =~ 1", "1:3: parse error: unexpected character after '=': '~'");
    check("a é", "1:3: parse error: unexpected character: 'é'");
    check("a{b}", "1:4: parse error: unexpected \"}\" in label matching, expected label matching operator");
    check("a{b=1}", "1:5: parse error: unexpected character inside braces: '1'");
    check("a{b=c}", "1:5: parse error: unexpected identifier \"c\" in label matching, expected string");
    check(
        "a{b='c' d='e'}",
        "1:9: parse error: unexpected identifier \"d\" in label matching, expected \",\" or \"}\"",
    );
    check("a{", "1:3: parse error: unexpected end of input inside braces");
    check("x + {}", "1:5: parse error: vector selector must contain at least one non-empty matcher");
    check("{\"a\", \"b\"}", "1:1: parse error: metric name must not be set twice: \"a\" or \"b\"");
    check("sum by a (b)", "1:8: parse error: unexpected identifier \"a\" in grouping opts, expected \"(\"");
    check("sum by (1) (b)", "1:9: parse error: unexpected number \"1\" in grouping opts, expected label");
    check(
        "rate(a)",
        "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector",
    );
    check("1 + foo(a)", "1:5: parse error: unknown function with name \"foo\"");
    check("abs(a,)", "1:6: parse error: trailing commas not allowed in function call args");
    check(
        "topk(a)",
        "1:1: parse error: wrong number of arguments for aggregate expression provided, expected 2, got 1",
    );
    check("sum()", "1:1: parse error: no arguments for aggregate expression provided");
    check(
        "1 offset 5m",
        "1:1: parse error: offset modifier must be preceded by an instant vector selector or range vector selector or a subquery",
    );
    check("a offset 1m offset 2m", "1:1: parse error: offset may not be set multiple times");
    check("a @ inf", "1:5: parse error: timestamp out of bounds for @ modifier: inf");
}

struct Maker(Rng);

impl Maker {
    fn one(&mut self, of: &[&str]) -> String {
        of[self.0.below(of.len() as u64) as usize].to_owned()
    }

    fn number(&mut self) -> String {
        self.one(&["1", "0", "2.5", "1e3", "0x1f", ".5", "3.", "Inf", "nan", "5m", "1_000", "017"])
    }

    fn selector(&mut self) -> String {
        let name = self.one(&["up", "a:b", "sum", "by", "offset_x", "and_more", "foo", ""]);
        let matchers = self.one(&[
            "{a=\"b\"}",
            "{a!='b', c=~\"d|e\",}",
            "{a!~\"f.*\", x!=\"\"}",
            "{\"quoted name\"}",
            "{'l.x'=\"y\"}",
            "{by=\"1\", on=\"2\"}",
            "{}",
            "",
            "",
            "",
        ]);
        name + &matchers
    }

    fn modifiers(&mut self) -> String {
        self.one(&[
            "",
            "",
            "",
            " offset 5m",
            " offset -1h",
            " @ 10",
            " @ start()",
            " offset 1m @ end()",
            " @ -1.5 offset 2",
        ])
    }

    fn labels(&mut self) -> String {
        self.one(&["()", "(a)", "(a, b)", "(b,a,)", "(\"x.y\")", "(sum, by)"])
    }

    fn expr(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.0.below(3) {
                0 => self.number(),
                _ => self.selector() + &self.modifiers(),
            };
        }
        let inner = |maker: &mut Self| maker.expr(depth - 1);
        match self.0.below(12) {
            0 => format!("({})", inner(self)),
            1 => format!("{}{}", self.one(&["-", "- "]), inner(self)),
            2 => format!("rate({}[5m]{})", self.selector(), self.modifiers()),
            3 => format!(
                "{}({}[1h:{}]{})",
                self.one(&["max_over_time", "rate"]),
                inner(self),
                self.one(&["", "1m", "30"]),
                self.modifiers()
            ),
            4 => format!("{}({})", self.one(&["abs", "ceil", "scalar", "vector", "sort"]), inner(self)),
            5 => format!("clamp({}, {}, {})", inner(self), self.number(), self.number()),
            6 => format!("{} by {} ({})", self.one(&["sum", "COUNT", "avg"]), self.labels(), inner(self)),
            7 => format!("{}({}) without {}", self.one(&["sum", "max", "group"]), inner(self), self.labels()),
            8 => format!("topk({}, {})", self.number(), inner(self)),
            9 => {
                let matching = self.one(&["on", "ignoring"]) + " " + &self.labels();
                let many = self.one(&["", "", " group_left", " group_right (z)", " group_left ()"]);
                let op = self.one(&["+", "*", "and", "unless", "==", "> bool", "or"]);
                format!("{} {op} {matching}{many} {}", inner(self), inner(self))
            }
            _ => {
                let op = self.one(&[
                    "+", "-", "*", "/", "%", "^", "atan2", "==", "!=", ">", "<=", "< bool", "and", "OR",
                    "unless",
                ]);
                format!("{} {op} {}", inner(self), inner(self))
            }
        }
    }
}

/// Two independent parsers produce the same tree, or both refuse.
#[test]
fn the_parser_crate_agrees() {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut maker = Maker(Rng::new(seed));
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let depth = 1 + maker.0.below(3) as u32;
        let text = maker.expr(depth);
        let (ours, theirs) =
            (super::expression(&text, &mut Allowance::new(u64::MAX)), oracle::expression(&text));
        match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{text}");
                accepted += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            // the crate leaves out a plus before an expression, also before a range, where Prometheus refuses it
            (Err(ours), Ok(_)) if ours.to_string().contains("unary expression") && text.contains('+') => {
                refused += 1;
            }
            _ => panic!("{text}\nours {ours:?}\ntheirs {theirs:?}"),
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 500 && refused > 100);
}
