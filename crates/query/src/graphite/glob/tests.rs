use super::*;
use crate::Matcher;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn paths_match_as_a_whole() {
    let check = |glob: &str, matching: &[&str], others: &[&str]| {
        let glob = Glob::parse(glob, &mut Allowance::new(1 << 20)).unwrap();
        for path in matching.iter().chain(others) {
            assert_eq!(glob.matches(path), matching.contains(path), "{} and {path}", glob.text());
            assert!(!matching.contains(path) || path.starts_with(&glob.prefix()), "{}", glob.text());
        }
    };
    check("a.b", &["a.b"], &["a", "a.b.c", "a.bc"]);
    check("a.*", &["a.b", "a."], &["a.b.c", "a", "ab.c"]);
    check("a.*x*y", &["a.xy", "a.1x2y", "a.xxyy"], &["a.yx", "a.xyz"]);
    check("a.{b,c?}.[0-2]", &["a.b.0", "a.cd.2"], &["a.c.0", "a.b.3"]);
    check("a.[!0-2]", &["a.3", "a.x"], &["a.0", "a.33"]);
    check("a.[]x]", &["a.]", "a.x"], &["a.y"]);
    check("a.[x", &["a.[x"], &["a.x"]);
    check("[[x][", &["[[", "x["], &["[", "[[x["]);
    check("[x][][!]", &["x]", "x!"], &["x", "x[][!]"]);
    check("a.**.z", &["a.z", "a.b.z", "a.b.c.z"], &["a.b", "z"]);
    check("a.**", &["a.b", "a.b.c"], &["a", "b.c"]);
    check("ä?.ö*", &["äé.ö", "äx.öx"], &["ä.ö"]);
}

/// The matcher backtracks only to the last `**`. Backtracking to all of them would take C(8000, 7) steps.
#[test]
fn several_double_stars_do_not_backtrack_exponentially() {
    let matches =
        |glob: &str, path: &str| Glob::parse(glob, &mut Allowance::new(1 << 20)).unwrap().matches(path);
    let path = "a.".repeat(8000) + "b";
    let glob = "**.a.".repeat(7);
    assert!(matches(&format!("{glob}**.b"), &path));
    assert!(!matches(&format!("{glob}**.c"), &path));
}

/// Compares with all ways in which `**` can be replaced by nodes.
#[test]
fn any_depth_is_matched_like_all_its_replacements() {
    fn matches(glob: &[&str], path: &[&str]) -> bool {
        match glob {
            [] => path.is_empty(),
            ["**"] => !path.is_empty(),
            ["**", rest @ ..] => (0..=path.len()).any(|skipped| matches(rest, &path[skipped..])),
            [node, rest @ ..] => {
                path.first().is_some_and(|first| *node == "*" || node == first) && matches(rest, &path[1..])
            }
        }
    }
    let mut rng = stdx::rng::Rng::announced();
    let mut found = 0;
    for _ in 0..50_000 {
        let mut any = |of: &[&'static str], most| -> Vec<_> {
            (0..=rng.below(most)).map(|_| of[rng.below(of.len() as u64) as usize]).collect()
        };
        let (nodes, path) = (any(&["**", "**", "*", "a", "b"], 5), any(&["a", "b"], 7));
        let glob = Glob::parse(&nodes.join("."), &mut Allowance::new(1 << 20)).unwrap();
        let expected = matches(&nodes, &path);
        assert_eq!(glob.matches(&path.join(".")), expected, "{} and {}", glob.text(), path.join("."));
        found += usize::from(expected);
    }
    assert!(found > 1000, "{found} matches");
}

/// An interrupt that is set from the third question on.
#[derive(Debug, Default)]
struct Third(AtomicUsize);

impl Interrupt for Third {
    fn is_set(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) >= 2
    }
}

#[test]
fn a_match_of_one_path_can_be_interrupted() {
    // the longest value of a label
    let path = "a".repeat(16 << 10);
    let stars = format!("*{}b*", "?a".repeat(1 << 10));
    let listed: Vec<_> = (0..500).map(|number| format!("*a*{number}")).collect();
    let class = format!("*[{}]", "b".repeat(1 << 10));
    let text = format!("*{}b*", "a".repeat(8 << 10));
    for glob in [stars, format!("{{{}}}", listed.join(",")), class, text] {
        let third = Arc::new(Third::default());
        let mut allowance = Allowance::new(1 << 20).until(Arc::clone(&third) as _);
        assert!(!Glob::parse(&glob, &mut allowance).unwrap().matches(&path));
        assert_eq!(third.0.load(Ordering::Relaxed), 3, "{}", excerpt(&glob));
    }
}

#[test]
fn literals_are_listed() {
    let check = |glob: &str, expected: Option<&[&str]>| {
        let paths = Glob::parse(glob, &mut Allowance::new(1 << 20)).unwrap().literals(4, 15);
        let paths = paths.as_ref().map(|paths| paths.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(paths.as_deref(), expected, "{glob}");
    };
    check("a.b", Some(&["a.b"]));
    check("{b,a}.{d,c}", Some(&["a.c", "a.d", "b.c", "b.d"]));
    check("a.{1,2,3,4,5}", None);
    check("aa.{bbbb,c}.d", Some(&["aa.bbbb.d", "aa.c.d"]));
    check("aa.{bbbbb,c}.d", None);
    check("{a,b}.{c,d}.{e,f}", None);
    check("a.{b*,c}", None);
    check("a.**.b", None);
}

/// The list of the first glob would take 240 MB, and that of the second has more paths than there are numbers.
#[test]
fn literals_are_counted_before_they_are_listed() {
    let (hosts, digit) = ((0..3000).map(|i| format!("{i},")).collect::<String>(), "{0,1,2,3,4,5,6,7,8,9}");
    let check = |glob: String, list_bytes: usize| {
        let glob = Glob::parse(&glob, &mut Allowance::new(1 << 24)).unwrap();
        let matcher = Matcher::glob("__name__", &glob);
        assert_eq!(matcher.set_matches().is_some(), list_bytes > 0, "{}", excerpt(glob.text()));
        assert_eq!(Matcher::glob_list_bytes(&glob), list_bytes, "{}", excerpt(glob.text()));
    };
    check(format!("{}.{{{hosts}}}", "x".repeat(80_000)), 0);
    check(format!("{}a", format!("{digit}.").repeat(200)), 0);
    check(format!("{}a.{digit}{digit}{digit}", "x.".repeat(200)), 3 * 1000 * (40 + 405));
}

/// If each bracket were searched for its counterpart, this would take minutes.
#[test]
fn brackets_that_are_not_closed_take_little_time() {
    let brackets = "[".repeat(1 << 20);
    let parse = |glob: &str| Glob::parse(glob, &mut Allowance::new(1 << 24));
    assert!(parse(&brackets).unwrap().matches(&brackets));
    assert!(matches!(parse(&format!("[a]{brackets}")), Err(GlobError::AlternativesTooLarge(_))));
    let brackets = &brackets[..60_000];
    assert!(parse(&format!("[a]{brackets}?")).unwrap().matches(&format!("a{brackets}b")));
}

#[test]
fn patterns_with_wildcards_have_a_limit_of_their_own() {
    let hosts = (0..2000).map(|i| format!("host{i:036}")).collect::<Vec<_>>().join(",");
    let parse = |glob: &str| Glob::parse(glob, &mut Allowance::new(1 << 20));
    assert!(parse(&format!("a.{{{hosts}}}")).is_ok());
    let error = parse(&format!("a.{{{hosts}}}*")).unwrap_err().to_string();
    assert!(error.contains("the patterns with wildcards"), "{error}");
}

#[test]
fn hostile_globs_are_refused() {
    let check = |glob: &str, part: &str| {
        let error = Glob::parse(glob, &mut Allowance::new(100 << 10)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    check(&"{a,b}".repeat(20), "more than 10000 patterns");
    check(&"a.".repeat(300), "more than 256 nodes");
    check(&format!("a.{}", "{a}".repeat(65)), "a node with more than 64 braces");
    check("{a,{b,c}}", "braces in braces");
    check("{a.b,c}", "a dot in braces");
    check(&format!("{{{}}}", vec!["host*"; 900].join(",")).replace("host", &"x".repeat(100)), "takes");
}
