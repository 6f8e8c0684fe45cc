use super::{ArgumentKind, Invocation, Node, Value};
use crate::allowance::Allowance;
use crate::graphite::test_store::Store;
use crate::graphite::{TARGET_BYTES_MAX, parse};
use crate::{Interrupt, QueryError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[track_caller]
fn refused(target: &str, part: &str) {
    let error = parse(target, &[], &mut Allowance::new(1 << 20)).expect_err(target).to_string();
    assert!(error.contains(part), "{target}: {error}");
}

#[test]
fn arguments_are_checked_against_parameters() {
    refused("nothing(a)", "there is no function \"nothing\", at character 1");
    refused("scale(a)", "argument \"factor\" of function \"scale\" is missing");
    refused("scale(a,2,3)", "too many arguments of function \"scale\", at character 11");
    refused("scale(a,'x')", "must be a number");
    refused("scale(a,None)", "must be a number");
    refused("scale(1,2)", "must be series");
    refused("scale(a,b)", "must be a number; texts need quotes");
    refused("scale(a,factor=2,more=3)", "takes no argument \"more\"");
    refused("scale(a,seriesList=b)", "takes no argument \"seriesList\" here");
    refused("aliasByNode(a,1.5)", "must be an integer, or a tag in quotes");
    refused("aggregate(a,'best')", "must be the name of an aggregation");
    refused("movingAverage(a,'5 parsecs')", "must be an integer, or an interval in quotes");
    refused(&format!("timeShift(a,'1s{}')", "x".repeat(255)), "must be an interval in quotes");
    refused("consolidateBy(a,'median')", "must be one of sum, average");
    refused("lower(a,1.5)", "must be an integer");
    refused("seriesByTag('a=b',c)", "expected a tag expression in quotes");
    refused("seriesByTag('a')", "invalid tag expression \"a\"");
    refused("seriesByTag('a=','b=~.*')", "must require a value");
    refused("a;b", "\"b\" is not tag=value");
    refused("a;b=", "empty name, tag or value");
}

#[test]
fn arguments_are_converted() {
    let store = Store::new().with("a", &[1.0]).with("b", &[1.0]);
    let name = |target: &str| store.render(target)[0].name.clone();
    assert_eq!(name("scale(a,'2')"), "scale(a,2)");
    assert_eq!(name("scale(a,factor=true)"), "scale(a,1)");
    assert_eq!(name("alias(a,5)"), "5");
    assert_eq!(name("alias(a,5.0)"), "5.0");
    assert_eq!(name("transformNull(a,default=3)"), "transformNull(a,3)");
}

#[test]
fn variables_are_replaced_in_paths() {
    let store = Store::new().with("web.a", &[1.0]).with("web.b", &[2.0]);
    let check = |target: &str, name: &str| assert_eq!(store.render(target)[0].name, name, "{target}");
    check("template(web.$host, host='b')", "web.b");
    check("template(web.$1, 'a')", "web.a");
    check("template(scale(web.$h, $factor), h='a', factor=3)", "scale(web.a,3)");
    check("template(scale(web.$h, $factor), h='a', factor='2.5')", "scale(web.a,2.5)");
    check("template(alias(web.a, $name), name='x y')", "x y");
    check("template(web.$h, h='a') | scale(2)", "scale(web.a,2)");
    let long = format!("template({}, x='{}')", "$x.".repeat(1000) + "a", "y".repeat(1000));
    assert!(store.try_render(&long).is_err());
}

/// Templates in each other hold their variables at the same time.
#[test]
fn variables_of_nested_templates_are_charged() {
    let parse = |depth: usize| {
        let target = "template(".repeat(depth) + "a" + &")".repeat(depth);
        let variables = [("x".to_owned(), "y".repeat(100_000))];
        parse(&target, &variables, &mut Allowance::new(1 << 20)).map(drop)
    };
    assert_eq!(parse(5), Ok(()));
    assert!(parse(50).unwrap_err().to_string().contains("of memory"));
}

/// A text may be long, and used thousands of times.
#[test]
fn uses_of_a_variable_share_its_text() {
    let (text, uses) = ("x".repeat(100_000), vec!["$a"; 1000].join(","));
    let given = [("a".to_owned(), text.clone())];
    for (target, variables) in [
        (format!("template(legendValue(b,{uses}),a='')"), &given[..]),
        (format!("template(aliasByTags(b,{uses}),a='{text}')"), &[]),
        (format!("template(groupByTags(b,'sum',{uses}),a='{text}')"), &[]),
    ] {
        let target = parse(&target, variables, &mut Allowance::new(16 << 20)).unwrap();
        let Node::Call(Invocation { arguments, .. }) = &target.root else { panic!("no call") };
        let texts = arguments.iter().filter_map(|argument| match &argument.kind {
            ArgumentKind::Value(Value::Text(shown)) if **shown == text => Some(shown),
            _ => None,
        });
        let texts: Vec<_> = texts.collect();
        assert_eq!(texts.len(), 1000);
        assert!(texts.iter().all(|text| Arc::ptr_eq(text, texts[0])));
    }
}

#[test]
fn long_variables_are_refused() {
    let refused = |target: &str, bytes: usize, part: &str| {
        let variables = [("a".to_owned(), "7".repeat(bytes))];
        let error = parse(target, &variables, &mut Allowance::new(64 << 20)).unwrap_err().to_string();
        assert!(error.contains(part), "{target}: {error}");
    };
    let part = "the variable \"a\" has 262145 bytes, the limit is 262144, at character 1";
    refused("template(alias(b,$a))", TARGET_BYTES_MAX + 1, part);
    // a number is read once for each use
    refused("template(scale(b,$a))", 401, "must be a number");
    refused("template(lower(b,$a))", 401, "must be an integer");
    let variables = [("a".to_owned(), "7".repeat(TARGET_BYTES_MAX))];
    parse("template(alias(b,$a))", &variables, &mut Allowance::new(1 << 20)).unwrap();
}

#[derive(Debug)]
struct Canceled {
    asked: AtomicUsize,
    at: usize,
}

impl Interrupt for Canceled {
    fn is_set(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.at
    }
}

#[test]
fn variables_are_not_used_once_the_request_is_canceled() {
    let target = format!("template(events({}),a='b')", vec!["$a"; 1000].join(","));
    let canceled = Arc::new(Canceled { asked: AtomicUsize::new(0), at: 500 });
    let mut allowance = Allowance::new(1 << 20).until(Arc::clone(&canceled) as _);
    assert_eq!(parse(&target, &[], &mut allowance).map(drop), Err(QueryError::Canceled));
    let asked = canceled.asked.load(Ordering::Relaxed);
    assert!(asked < 510, "{asked}");
}

#[test]
fn values_of_the_request_replace_those_of_the_target() {
    let text = "template(web.$host, host='a')";
    let variables = [("host".to_owned(), "b".to_owned())];
    let target = parse(text, &variables, &mut Allowance::new(1 << 20)).unwrap();
    assert!(format!("{target:?}").contains("web.b"));
}
