use super::*;

fn outputs(rules: &str, name: &str) -> Vec<String> {
    Aggregations::parse(rules).unwrap().of(name).map(|(_, output)| output).collect()
}

#[test]
fn a_rule_names_its_output() {
    let check = |rule: &str, name: &str, output: Option<&str>| {
        assert_eq!(outputs(rule, name), Vec::from_iter(output.map(str::to_owned)), "{rule}, {name}");
    };
    let requests = "<env>.apps.<app>.all.requests (60) = sum <env>.apps.<app>.*.requests";
    check(requests, "prod.apps.web.www1.requests", Some("prod.apps.web.all.requests"));
    check(requests, "prod.apps.web.www1.x.requests", None);
    check(requests, "prod.apps.web.www1.requests.more", None);
    check(requests, "x.prod.apps.web.www1.requests", None);
    check(requests, "prod.apps.web..requests", None);
    let rest = "<env>.all.<rest> (10) = p99 <env>.host*.<<rest>>";
    check(rest, "prod.host17.cpu.user", Some("prod.all.cpu.user"));
    check(rest, "prod.host.cpu", Some("prod.all.cpu"));
    check(rest, "prod.cpu.user", None);
    let expression = r"<app>.<domain>.n (60) = count <app>.<domain>\d{2}.n";
    check(expression, "web.www01.n", Some("web.www.n"));
    check(expression, "web.www1.n", None);
    check("all (60) = avg *.load", "a.load", Some("all"));
    check("100%%.<a><a> (60) = avg <a>.load", "x.load", Some("100%.xx"));
    // fields are as short as possible, and the first of them is the shortest
    check("<a>-<b> (1) = sum <<a>>.x<<b>>", "p.x.xq.xr", Some("p-.xq.xr"));
    // tags are part of the name
    check("all.<tags> (1) = sum cpu;<tags>", "cpu;host=web1", Some("all.host=web1"));
    check("all (1) = sum cpu", "cpu;host=web1", None);
    // only the last alternative must reach the end
    check("all (1) = sum a|b.c", "a.other", Some("all"));
    check("all (1) = sum a|b.c", "b.c.d", None);
    check("all.<n> (1) = sum dev|b<n>.c", "dev.other", Some("all.None"));
    // a star beside a field is one of the expression
    check("<a> (1) = sum <a>x*.y", "1.y", Some("1"));
    check("<a> (1) = sum <a>x*.y", "1xx.y", Some("1"));
}

#[test]
fn all_rules_that_match_count() {
    let text =
        "# c\n\n a.<x>  (60)=sum\t<x>.in \nb (1) = max *.in\nc (+5 = p999 other\n".replace("(+5", "(+5)");
    let rules = Aggregations::parse(&text).unwrap();
    assert_eq!(outputs(&text, "q.in"), ["a.q", "b"]);
    assert_eq!(rules.rules()[0].text, "a.<x> (60) = sum <x>.in");
    let found: Vec<_> = rules.rules().iter().map(|rule| (rule.interval_s, rule.function)).collect();
    assert_eq!(found, [(60, Function::Sum), (1, Function::Max), (5, Function::Quantile(0.999))]);
    assert!(Aggregations::parse("# nothing\n").unwrap().is_empty());
}

#[test]
fn many_rules_are_matched_one_by_one_if_they_are_too_large_together() {
    let text: String = (0..100).map(|i| format!("out{i}.<x> (1) = sum \\w{{5}}{i}.<x>\n")).collect();
    let rules = Aggregations::parse(&text).unwrap();
    assert!(rules.inputs.is_none(), "the test needs larger rules");
    assert_eq!(outputs(&text, &format!("{}7.q", "w".repeat(5))), ["out7.q"]);
}

#[test]
fn names_stay_bounded() {
    let rules = format!("{} (1) = sum <<a>>", "<a>".repeat(100));
    assert_eq!(outputs(&rules, &"x".repeat(600)).len(), 1);
    assert!(outputs(&rules, &"x".repeat(700)).is_empty());
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("a", "line 1: \"a\" is not of the form \"output (seconds) = function input\""),
        ("a (60) = sum b c", "is not of the form"),
        ("a(60) = sum b", "is not of the form"),
        ("a (0) = sum b", "\"(0)\" is not a number of seconds from 1 to 86400"),
        ("a (1m) = sum b", "\"(1m)\" is not a number of seconds"),
        ("a (60) = median b", "unknown function \"median\"; there are avg, count,"),
        ("\na.<x> (60) = sum b.<y>", "line 2: the input has no field <x>"),
        ("a.<<x>> (60) = sum b.<<x>>", "the input has no field <<x>"),
        ("<b> (60) = sum <a>-<b>", "the input has no field <b>"),
        ("a.<x (60) = sum b.<x>", "\"<\" has no \">\" in the output"),
        ("a.x> (60) = sum b.<x>", "\">\" has no \"<\" in the output"),
        ("a.%x (60) = sum b", "\"%\" must be written as \"%%\""),
        ("a (60) = sum b.(", "unclosed group"),
        ("a (60) = sum <x>.<x>", "duplicate capture group name"),
        ("a (60) = sum <x-y>", "invalid capture group character"),
        ("a (60) = sum <>", "empty capture group name"),
        ("a (60) = sum (?!b).c", "look-around"),
    ] {
        let found = Aggregations::parse(text).unwrap_err().to_string();
        assert!(found.contains(error), "{text}: {found}");
    }
    let many = "a (1) = sum b\n".repeat(RULES_MAX + 1);
    assert_eq!(Aggregations::parse(&many).unwrap_err().to_string(), "line 1001: more than 1000 rules");
}
