use super::*;

#[test]
fn fast_paths_agree_with_the_engine() {
    let values = [
        "", "a", "b", "ab", "abc", "a.c", "prod", "prod-1", "pro", "x\ny", "prod\n", "é", "a{b}", "aab",
        "(a)", "a|b", "b.c", "q",
    ];
    let patterns = [
        ".*",
        ".+",
        "",
        "a",
        "a|b",
        "(a|b)",
        "(?:a|b|)",
        "prod.*",
        "prod.+",
        "a\\.c",
        "a.c",
        "pro(d)?",
        "prod?",
        "a*b",
        "a+b",
        "[ab]+",
        "x.y",
        "^a$",
        "(?i)PROD",
        "a(b|c)",
        "(a)(b)",
        "(a)|(b)",
        "ab|(b)",
        "é",
        "\\(a\\)",
        "a\\|b",
        "|a",
        "[b)].c",
        "a[(]|b",
        "a{1,2}b",
        "(prod|pre)(-1)?",
    ];
    for pattern in patterns {
        let plain = regex::Regex::new(&format!("^(?s:{pattern})$")).unwrap();
        let matcher = Matcher::new("l", MatchOp::Regex, pattern).unwrap();
        let not = Matcher::new("l", MatchOp::NotRegex, pattern).unwrap();
        for value in values {
            assert_eq!(matcher.matches(value), plain.is_match(value), "{pattern:?} on {value:?}");
            assert_eq!(not.matches(value), !matcher.matches(value));
            if matcher.matches(value) {
                assert!(value.starts_with(matcher.prefix()), "{pattern:?}: prefix {:?}", matcher.prefix());
                if let Some(set) = matcher.set_matches() {
                    assert!(set.iter().any(|s| s == value), "{pattern:?}: {set:?}");
                }
            }
        }
    }
}

#[test]
fn prefixes_and_sets_are_extracted_for_an_index() {
    let check = |pattern: &str, prefix: &str, set: Option<&[&str]>| {
        let m = Matcher::new("l", MatchOp::Regex, pattern).unwrap();
        assert_eq!(m.prefix(), prefix, "{pattern}");
        assert_eq!(m.set_matches().map(|s| s.iter().map(String::as_str).collect::<Vec<_>>()).as_deref(), set);
    };
    check("metric_1.*", "metric_1", None);
    check("metric_1.+x", "metric_1", None);
    check("b|a|a", "", Some(&["a", "b"]));
    check("ab(c|d)", "ab", None);
    check("ab?", "a", None);
    check("ab{0}", "a", None);
    check("ab|cd.*", "", None);
    check("only", "only", Some(&["only"]));
}

#[test]
fn bad_and_huge_expressions_are_refused() {
    for bad in ["(", ")", "a)|(b", "[", "*", "((((a{99}){99}){99}){99})", "\\", "(?P<n"] {
        let error = Matcher::new("l", MatchOp::Regex, bad).unwrap_err();
        assert!(matches!(error, MatcherError::Regex(_)), "{bad}: {error}");
    }
    let long = "a".repeat(REGEX_BYTES_MAX + 1);
    assert_eq!(Matcher::new("l", MatchOp::Regex, &long).unwrap_err(), MatcherError::TooLong(long.len()));
    let deep = "(".repeat(10_000) + &")".repeat(10_000);
    assert!(Matcher::new("l", MatchOp::Regex, &deep).is_err());
}

#[test]
fn braces_that_repeat_nothing_are_literal_as_in_go() {
    assert!(Matcher::new("l", MatchOp::Regex, "a{b}.").unwrap().matches("a{b}x"));
    assert!(Matcher::new("l", MatchOp::Regex, "[a]{2}").unwrap().matches("aa"));
    assert!(Matcher::new("l", MatchOp::Regex, "\\pL+{x").unwrap().matches("é{x"));
}

#[test]
fn a_missing_label_is_the_empty_value() {
    assert!(Matcher::new("l", MatchOp::NotEqual, "x").unwrap().matches_empty());
    assert!(!Matcher::new("l", MatchOp::Regex, ".+").unwrap().matches_empty());
    let labels = model::Labels::from_pairs(&[("__name__", "up"), ("job", "a")]);
    assert!(matches_all(&[Matcher::equal("job", "a"), Matcher::equal("zone", "")], labels.as_ref()));
    assert!(!matches_all(&[Matcher::equal("zone", "x")], labels.as_ref()));
}

#[test]
fn classes_are_ascii_as_in_go_and_small() {
    let matches =
        |pattern: &str, value: &str| Matcher::new("l", MatchOp::Regex, pattern).unwrap().matches(value);
    for (pattern, yes, no) in [
        ("\\w+!", "a_1!", "é!"),
        ("\\W", "é", "a"),
        ("x\\d", "x1", "x\u{0661}"),
        ("[\\d.-]+", "1.2-3", "1.2-a"),
        ("[^\\s]+", "ab", "a b"),
        ("a\\sb", "a\tb", "a\u{a0}b"),
        ("\\\\w", "\\w", "\\a"),
        ("\\D\\S", "a\u{a0}", "1a"),
    ] {
        assert!(matches(pattern, yes) && !matches(pattern, no), "{pattern}");
    }
    // Unicode's `\\w` has 700 ranges, and would take much more memory
    let bytes = Matcher::new("l", MatchOp::Regex, "\\w{8}").unwrap().pattern_bytes();
    assert!(bytes < 200 << 10, "{bytes}");
}

#[test]
fn memory_of_a_pattern_is_bounded_and_known() {
    // memory of the largest repetition of `unit` that compiles
    let largest = |unit: &str| {
        let sizes = (1..12).rev().map(|power| Program::compile(&unit.repeat(1 << power)));
        sizes.into_iter().find_map(Result::ok).expect("the smallest pattern compiles").memory_bytes()
    };
    for unit in ["[ab]", "a*b*", "(a|b)", "\\pL"] {
        let bytes = largest(unit);
        assert!(
            (REGEX_COMPILED_BYTES_MAX / 8..8 * REGEX_COMPILED_BYTES_MAX).contains(&bytes),
            "{unit}: {bytes}"
        );
    }
}

#[test]
fn classes_that_take_long_to_compile_are_refused() {
    let wide = "[!-\u{10ffff}]";
    let chars =
        |first: u32, count: u32| (0..count).filter_map(|i| char::from_u32(first + 2 * i)).collect::<String>();
    let deep = format!("(?i){}!-\u{10ffff}{}", "[a".repeat(100), "]".repeat(100));
    let merged = format!("[{}{}]", chars(0x4e00, 8_000), "[b-d]".repeat(5_000));
    let alternatives = format!("[{}]{}", chars(0x4e00, 8_000), "|[bd]".repeat(5_000));
    for slow in [
        format!("(?i){}", wide.repeat(200)),
        format!("(?i:{})x", wide.repeat(3)),
        format!("a(?i)b{}", "[\\W_]".repeat(3)),
        format!("(?i){}", "\\pL".repeat(200)),
        format!("(?i)[{}]", "\\PL_".repeat(200)),
        format!("(?i)[a--{wide}&&{wide}~~{wide}]"),
        deep,
        merged,
        alternatives,
    ] {
        let error = Matcher::new("l", MatchOp::Regex, &slow).unwrap_err().to_string();
        assert!(error.contains("character classes take"), "{slow:.80}: {error:.200}");
    }
}

#[test]
fn classes_in_use_are_compiled_whatever_their_case() {
    let matches =
        |pattern: &str, value: &str| Matcher::new("l", MatchOp::Regex, pattern).unwrap().matches(value);
    for (pattern, yes) in [
        ("(?i)foo.*x", "FOO barX"),
        ("(?i)[^\"]+x", "éX"),
        ("(?i)\\W+\\S\\D", "- ax"),
        ("(?i)([\\s\\S]{2}[\\w\\W]){3}", "a b c def"),
        ("(?i)[\\W_]+a", "_-A"),
        ("(?i)\\pL+\\PL\\p{Greek}", "aÉ1Ω"),
        ("(?i)[[:alpha:]-]+[[:^digit:]]", "aB-c"),
        ("(?i)[a-zà-ÿ0-9&&[^aeiou]]+", "XYZ"),
        (&"[!-\u{10ffff}]".repeat(10), "0123456789"),
        (&"(?i)[a-z0-9]{1,3}[-_.]".repeat(50), &"aB1-".repeat(50)),
    ] {
        assert!(matches(pattern, yes), "{pattern}");
    }
}

#[test]
fn escaped_classes_cost_as_much_as_their_expansion() {
    for (escape, class) in [("\\s", "[\\t\\n\\f\\r ]"), ("\\W", "[^0-9A-Za-z_]")] {
        let [short, long] = [escape, class].map(|text| Program::compilation_bytes(&text.repeat(1_000)));
        assert_eq!(short, long, "{escape}");
    }
}
