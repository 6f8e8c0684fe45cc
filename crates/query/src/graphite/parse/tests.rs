use super::*;
use crate::graphite::ast::Literal;

/// Writes a tree so that tests can compare it.
fn shown(ast: &Ast) -> String {
    match &ast.kind {
        Kind::Path(path) => path.clone(),
        Kind::Literal(Literal::Text(text)) => format!("{text:?}"),
        Kind::Literal(literal) => format!("{literal:?}"),
        Kind::Template { body, variables } => format!("template({}, {variables:?})", shown(body)),
        Kind::Call(call) => {
            let positional = call.positional.iter().map(shown);
            let named = call.named.iter().map(|(name, value)| format!("{name}={}", shown(value)));
            format!("{}({})", call.name, positional.chain(named).collect::<Vec<_>>().join(" "))
        }
    }
}

fn check(text: &str, expected: Result<&str, &str>) {
    match (target(text, &mut Allowance::new(1 << 20)), expected) {
        (Ok(ast), Ok(expected)) => assert_eq!(shown(&ast), expected, "{text}"),
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
        (found, _) => panic!("{text}: {found:?}, expected {expected:?}"),
    }
}

#[test]
fn paths_and_calls() {
    let good = |text: &str, expected: &str| check(text, Ok(expected));
    good("a.b-c:d", "a.b-c:d");
    good(" a.{b,c}.[0-9].*?  ", "a.{b,c}.[0-9].*?");
    good("a;k=v;l=w", "a;k=v;l=w");
    good("123", "123");
    good(r"a\.b\(c\)", "a.b(c)");
    good("f()", "f()");
    good("f( a , 1 )", "f(a Integer(1))");
    good("f(a.b, 'x,y)', \"it's\")", r#"f(a.b "x,y)" "it's")"#);
    good("f(a,-1.5,1e3,inf,True,none)", "f(a Float(-1.5) Float(1000.0) Float(inf) Boolean(true) None)");
    good("f(1.a, 12min, true.b, -x)", "f(1.a 12min true.b -x)");
    good("f(a, n=2, t = 'x')", "f(a n=Integer(2) t=\"x\")");
    good("f(a;k=v, b)", "f(a;k=v b)");
    good("f(g(h(a)),{x,y}z)", "f(g(h(a)) {x,y}z)");
    good("f({é,b}{}{c,d}e.{g}, h)", "f({é,b}{}{c,d}e.{g} h)");
    good("a | f(2) | g()", "g(f(a Integer(2)))");
    good("f(a|g(1), b)", "f(g(a Integer(1)) b)");
    good("template(a.$x.f, x='y', 2)", "template(a.$x.f, [(\"x\", Text(\"y\")), (\"2\", Integer(2))])");
    good(r"f(a,'\'x\'')", r#"f(a "\\'x\\'")"#);
    good("sum(é.ü)", "sum(é.ü)");
}

#[test]
fn errors_have_a_place() {
    let bad = |text: &str, part: &str| check(text, Err(part));
    bad("", "it is empty");
    bad("  ", "it is empty");
    bad("f(a", "expected a comma or a closing bracket, at character 4, at the end");
    bad("f(a b)", "expected a comma or a closing bracket, at character 5, near \"b)\"");
    bad("f(a,)", "expected a path or a function, at character 5");
    bad("f(é,'x", "no closing quote, at character 5");
    bad("a b", "expected a pipe or the end, at character 3");
    bad("a)", "at character 2");
    bad("a | b", "expected a function, at character 5");
    bad("a.{b,c", "braces are not closed");
    bad("servers.{web{1,2},old1}.load", "a target cannot have braces in braces, at character 9");
    bad("{a,{b}}", "a target cannot have braces in braces, at character 1");
    bad("f(a, n=1, 2)", "expected a named argument");
    bad("template(a, b)", "a number or a text in quotes");
    bad("a{é,b}{}.{c(d}", "the braces are not closed, at character 10");
    bad(&format!("template(a{})", ",1".repeat(11_000)), "parsing the request takes");
    bad(&"f(".repeat(70), "nests deeper than 64 levels");
    bad(&format!("a{}", "|f()".repeat(70)), "nests deeper than 64 levels");
    bad(&"a".repeat(300 << 10), "the limit is 262144");
    bad(&format!("f({}a)", "a,".repeat(11_000)), "parsing the request takes");
}

#[test]
fn names_of_series_have_a_first_path() {
    let check =
        |name: &str, expected: Option<&str>| assert_eq!(first_path(name).as_deref(), expected, "{name}");
    check("scale(sumSeries(a.{b,c}),2)", Some("a.{b,c}"));
    check("f(a|g(),1)", Some("a"));
    check("f('text',a)", None);
    check("f()", None);
    // what is not a call begins with a path
    check("f(a b)", Some("f"));
    check("a b)", Some("a"));
    // no node may be empty
    check("f(x..x,11)", Some("f"));
    check("f(a.,11)", Some("f"));
    check("f(g(.a))", Some("f"));
    check("x.y..z)", Some("x.y"));
    check("f(a.{b.c})", Some("f"));
    check("f(a.{b,})", Some("f"));
    check("f(a.{b,c}é.\\.d)", Some("a.{b,c}é..d"));
    check("", None);
}
