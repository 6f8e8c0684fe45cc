use super::*;

#[test]
fn expressions_select_values() {
    let check = |expression: &str, matching: &[&str], others: &[&str]| {
        let matcher = parse(expression, &mut Allowance::new(1 << 20)).unwrap();
        for value in matching.iter().chain(others) {
            assert_eq!(matcher.matches(value), matching.contains(value), "{expression} and {value:?}");
        }
    };
    check("dc=west", &["west"], &["", "westend"]);
    check("dc!=west", &["", "westend"], &["west"]);
    check("dc=~w", &["w", "west"], &["", "aw"]);
    check("dc=~^west$", &["west"], &["westend"]);
    check("dc=~a|b$", &["a", "b", "ac"], &["bc", "xa"]);
    check("dc=~we.*", &["we", "west"], &["a"]);
    check("dc!=~w", &["", "aw"], &["west"]);
    check("dc=", &[""], &["a"]);
    check(r"dc=~a\$", &["a$", "a$b"], &["a"]);
}

#[test]
fn the_name_is_a_label_too() {
    let matcher = parse("name=cpu", &mut Allowance::new(1 << 20)).unwrap();
    assert_eq!(matcher.name, METRIC_NAME);
    assert_eq!((tag_of(METRIC_NAME), tag_of("dc"), label_of("dc")), ("name", "dc", "dc"));
}

/// The expected names are those of `TaggedSeries.format` in carbon.
#[test]
fn full_names_have_their_tags_in_the_order_of_carbon() {
    let check = |tags: &[(&str, &str)], expected: &str| {
        let mut name = String::new();
        write_full_name(&mut name, "cpu", tags.iter().copied());
        assert_eq!(name, expected);
    };
    check(&[], "cpu");
    check(&[("dc", "west"), ("host", "a")], "cpu;dc=west;host=a");
    check(&[("dc", "b"), ("dc1", "a"), ("host", "a")], "cpu;dc1=a;dc=b;host=a");
    check(&[("a", "1"), ("a-b", "2"), ("a-b.c", "3"), ("a_b", "4")], "cpu;a-b.c=3;a-b=2;a=1;a_b=4");
}

#[test]
fn invalid_expressions_are_refused() {
    let check = |expressions: &[&str], part: &str| {
        let error = parse_all(expressions.iter().copied(), &mut Allowance::new(1 << 20)).unwrap_err();
        assert!(error.contains(part), "{expressions:?}: {error}");
    };
    check(&["dc"], "invalid tag expression \"dc\"");
    check(&["=x"], "invalid tag expression");
    check(&["dc!x"], "invalid tag expression");
    check(&["dc=~("], "error parsing regexp");
    check(&["dc=", "a!=b", "c=~.*"], "must require a value");
    check(&[], "must require a value");
    check(&["a=b"; 2000], "at most 1000 matchers");
}
