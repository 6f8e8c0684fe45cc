use super::*;

/// Applies a list of rules to labels. Returns the labels sorted by name, or `None` if the series is dropped.
fn applied(rules: &str, labels: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    let rules = IngestRules::parse(rules).unwrap();
    let mut labels = labels.to_vec();
    labels.sort_unstable();
    let mut set = LabelSet::new(labels.iter().copied());
    match rules.of(&TenantId::anonymous()).unwrap().apply(&mut set).unwrap() {
        Decision::Dropped(_) => None,
        Decision::Kept => {
            let mut labels: Vec<_> = set.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            labels.sort_unstable();
            Some(labels)
        }
    }
}

fn check(rules: &str, labels: &[(&str, &str)], expected: Option<&[(&str, &str)]>) {
    let found = applied(rules, labels);
    let found = found
        .as_ref()
        .map(|labels| labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>());
    assert_eq!(found.as_deref(), expected, "{rules}");
}

/// The cases and results are those that Prometheus' own relabelling gives.
#[test]
fn actions_do_what_prometheus_does() {
    let abc: &[(&str, &str)] = &[("a", "foo"), ("b", "bar"), ("c", "baz")];
    check(
        "[{source_labels: [a], regex: 'f(.*)', target_label: d, replacement: 'ch${1}-ch${1}'}]",
        abc,
        Some(&[("a", "foo"), ("b", "bar"), ("c", "baz"), ("d", "choo-choo")]),
    );
    check(
        "[{source_labels: [a, b], regex: 'f(.*);(.*)r', target_label: a, replacement: 'b${1}${2}m'}, \
          {source_labels: [c, a], regex: '(b).*b(.*)ba(.*)', target_label: d, replacement: '$1$2$2$3'}]",
        abc,
        Some(&[("a", "boobam"), ("b", "bar"), ("c", "baz"), ("d", "boooom")]),
    );
    check("[{source_labels: [a], regex: '.*o.*', action: drop}]", abc, None);
    check("[{source_labels: [a], regex: o, action: drop}]", abc, Some(abc));
    check("[{source_labels: [a], regex: 'no-match', action: keep}]", abc, None);
    check("[{source_labels: [a], regex: 'f.*', action: KEEP}]", abc, Some(abc));
    check("[{source_labels: [nope], action: drop}]", abc, None);
    check("[{source_labels: [nope], regex: '.+', action: drop}]", abc, Some(abc));
    check(
        "[{source_labels: [a, b, c], separator: ',', target_label: d}]",
        abc,
        Some(&[("a", "foo"), ("b", "bar"), ("c", "baz"), ("d", "foo,bar,baz")]),
    );
    check("[{target_label: b, replacement: ''}]", abc, Some(&[("a", "foo"), ("c", "baz")]));
    check("[{target_label: env, replacement: prod}]", &[("a", "1")], Some(&[("a", "1"), ("env", "prod")]));
    check("[{source_labels: [b], regex: 'x', target_label: a, replacement: no}]", abc, Some(abc));
    check("[{source_labels: [a], target_label: '$2', replacement: x}]", abc, Some(abc));
    check(
        "[{source_labels: [a, b], regex: '(.*);(.*)', target_label: '${1}_$2', replacement: '1'}]",
        &[("a", "x"), ("b", "y")],
        Some(&[("a", "x"), ("b", "y"), ("x_y", "1")]),
    );
    check(
        "[{source_labels: [c], target_label: d, action: hashmod, modulus: 1000}]",
        abc,
        Some(&[("a", "foo"), ("b", "bar"), ("c", "baz"), ("d", "976")]),
    );
    check(
        "[{source_labels: [a], target_label: d, action: hashmod, modulus: 1000}]",
        &[("a", "foo\nbar")],
        Some(&[("a", "foo\nbar"), ("d", "734")]),
    );
    let meta: &[(&str, &str)] =
        &[("__meta_my_bar", "aaa"), ("__meta_my_baz", "bbb"), ("__meta_other", "ccc")];
    check(
        "[{regex: '__meta_(my.*)', action: labelmap}]",
        meta,
        Some(&[
            ("__meta_my_bar", "aaa"),
            ("__meta_my_baz", "bbb"),
            ("__meta_other", "ccc"),
            ("my_bar", "aaa"),
            ("my_baz", "bbb"),
        ]),
    );
    // the last one wins, in the order of names
    check(
        "[{regex: '__meta_.*', replacement: x, action: labelmap}, {regex: '__meta_.*', action: labeldrop}]",
        meta,
        Some(&[("x", "ccc")]),
    );
    check("[{regex: '(b|c)', action: labeldrop}]", abc, Some(&[("a", "foo")]));
    check("[{regex: '(b|c)', action: labelkeep}]", abc, Some(&[("b", "bar"), ("c", "baz")]));
    check(
        "[{source_labels: [f], target_label: lo, action: lowercase}, {source_labels: [f], target_label: up, action: uppercase}]",
        &[("f", "bAr123Foo ßÉ")],
        Some(&[("f", "bAr123Foo ßÉ"), ("lo", "bar123foo ßé"), ("up", "BAR123FOO ßÉ")]),
    );
    let ports: &[(&str, &str)] = &[("p", "1234"), ("q", "1234"), ("r", "5")];
    check("[{source_labels: [p], target_label: q, action: keepequal}]", ports, Some(ports));
    check("[{source_labels: [p], target_label: r, action: keepequal}]", ports, None);
    check("[{source_labels: [p], target_label: q, action: dropequal}]", ports, None);
    check("[{source_labels: [p], target_label: r, action: dropequal}]", ports, Some(ports));
}

#[test]
fn names_become_labels() {
    let rules = "
- match: servers.*.cpu.*
  name: cpu_seconds
  labels: {host: $1, mode: '${2}', path: $0, fixed: x}
- match: '*.tmp'
  action: drop
";
    check(
        rules,
        &[("__name__", "servers.web1.cpu.user"), ("host", "old")],
        Some(&[
            ("__name__", "cpu_seconds"),
            ("fixed", "x"),
            ("host", "web1"),
            ("mode", "user"),
            ("path", "servers.web1.cpu.user"),
        ]),
    );
    for name in ["servers.web1.cpu", "servers.web1.cpu.user.x", "xservers.web1.cpu.user", "a.tmp.b", "tmp"] {
        check(rules, &[("__name__", name)], Some(&[("__name__", name)]));
    }
    check(rules, &[("__name__", "a.tmp")], None);
}

#[test]
fn each_tenant_has_one_list() {
    let text = "
default:
  - {target_label: l, replacement: default}
classes:
  - tenants: [team-*, lab]
    rules: [{target_label: l, replacement: teams}]
  - tenants: ['*-x']
    rules: []
tenants:
  team-a: [{target_label: l, replacement: a}]
  bare:
";
    let rules = IngestRules::parse(text).unwrap();
    for (tenant, list) in [
        ("team-a", Some("tenant team-a")),
        ("team-b", Some("class 1")),
        ("team-x", Some("class 1")),
        ("lab", Some("class 1")),
        ("other", Some("default")),
        ("other-x", None),
        ("bare", None),
    ] {
        let found = rules.of(&TenantId::parse(tenant).unwrap());
        assert_eq!(found.map(|list| list.name.as_str()), list, "{tenant}");
    }
    for empty in ["", "# nothing\n", "default:\n", "[]"] {
        assert!(IngestRules::parse(empty).unwrap().of(&TenantId::anonymous()).is_none(), "{empty}");
    }
    assert_eq!(rules.lists()[1].rules()[0].line, 6);
}

#[test]
fn errors_name_the_line() {
    for (text, error) in [
        ("default:\n  - action: drop\n    regx: a\n", "line 3: unknown key \"regx\""),
        ("- action: drop\n  regex: 'a('\n", "line 2: expression \"a(\": unclosed group"),
        ("- action: dropp\n", "line 1: unknown action \"dropp\"; there are replace, keep"),
        (
            "- source_labels: [a]\n  action: hashmod\n  target_label: b\n",
            "line 1: action hashmod needs a modulus",
        ),
        ("- action: hashmod\n  target_label: b\n  modulus: -1\n", "line 3: modulus is not a whole number"),
        ("- source_labels: [a]\n", "line 1: action replace needs a target_label"),
        ("- source_labels: a\n", "line 1: source_labels is a text, not a list"),
        ("- source_labels: ['']\n", "line 1: a source label is empty"),
        (
            "- regex: a\n  action: labeldrop\n  target_label: b\n",
            "line 3: action labeldrop has only regex, not target_label",
        ),
        ("- match: a.*b\n  name: c\n", "line 1: \"*b\": a star stands for a whole part"),
        ("- match: a.*\n  name: $2\n", "line 2: name \"$2\" has $2, but match has 1 stars"),
        ("- match: a.*\n", "line 1: a rule with match needs a name"),
        ("- match: a.*\n  name: b\n  regex: c\n", "line 3: unknown key \"regex\""),
        ("- match: a.*\n  name: b\n  labels: {__name__: c}\n", "line 3: the metric's name belongs in name"),
        ("rules: []\n", "line 1: unknown key \"rules\"; there are default, classes and tenants"),
        ("tenants:\n  a/b: []\n", "line 2: "),
        ("tenants:\n  a: []\n  a: []\n", "line 3: the key \"a\" occurs twice"),
        ("classes:\n  - rules: []\n", "line 2: a class needs 1 to 100 patterns"),
        ("classes:\n  - tenants: [a]\n", "line 2: a class needs rules"),
        ("text\n", "line 1: the file is a text, not a mapping"),
        ("default:\n  - &x {regex: a}\n", "line 2: anchors"),
        ("default: [*x]\n", "line 1: "),
        ("default: !!set {}\n", "line 1: tags"),
        ("a: [\n", "line 2: invalid YAML: "),
        ("[]\n---\n[]\n", "there is a second document"),
        ("[[[[[[[[[]]]]]]]]]\n", "line 1: more than 8 levels"),
    ] {
        let found = IngestRules::parse(text).unwrap_err().to_string();
        assert!(found.contains(error), "{text}: {found}");
    }
}

#[test]
fn rules_and_their_memory_are_bounded() {
    let many = "- {regex: a, action: labeldrop}\n".repeat(RULES_MAX);
    assert_eq!(IngestRules::parse(&many).unwrap().lists()[0].rules().len(), RULES_MAX);
    let error = IngestRules::parse(&format!("{many}- {{regex: a, action: labeldrop}}\n")).unwrap_err();
    assert_eq!((error.line, error.reason.as_str()), (RULES_MAX + 1, "more than 1000 rules"));
    let large = "- {regex: '(\\pL{1,3})?x', action: labeldrop}\n".repeat(RULES_MAX);
    let error = IngestRules::parse(&large).unwrap_err();
    assert!(error.reason.contains("more than 16 MiB"), "{error}");
}

/// Without limits, the labels would grow threefold or twofold with each rule.
#[test]
fn labels_stay_bounded() {
    let check = |rule: &str, reason: TooMuch| {
        let rules = IngestRules::parse(&rule.repeat(100)).unwrap();
        let labels = [("__name__", "a"), ("a", "aaaaaaaa"), ("b", "b")];
        let mut set = LabelSet::new(labels.into_iter());
        let error = rules.of(&TenantId::anonymous()).unwrap().apply(&mut set).unwrap_err();
        assert_eq!((error.list.as_str(), error.reason), ("default", reason));
        assert!(set.iter().count() <= 512);
    };
    check("- {source_labels: [a], target_label: a, replacement: $1$1$1}\n", TooMuch::Source(64 << 10));
    let map = |to: &str| format!("- {{regex: (.*), replacement: {to}$1, action: labelmap}}\n");
    check(&[map("x"), map("y")].concat(), TooMuch::Labels);
    check(
        "- {source_labels: [b], target_label: b, replacement: '${1}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'}\n"
            .repeat(3)
            .as_str(),
        TooMuch::Bytes,
    );
}

/// Each match is linear, but there may be many of them.
#[test]
fn the_steps_for_one_series_are_bounded() {
    let check = |rule: &str, count: usize, labels: &[(&str, &str)], expected: Result<Decision, TooMuch>| {
        let rules = IngestRules::parse(&rule.repeat(count)).unwrap();
        let mut set = LabelSet::new(labels.iter().copied());
        let applied = rules.lists()[0].apply(&mut set).map_err(|error| error.reason);
        assert_eq!(applied, expected, "{count} times {rule}");
    };
    let long = "a".repeat(16 << 10);
    let (short, long) = (&[("__name__", "a"), ("a", "aaaaaaaa")][..], &[("__name__", "a"), ("a", &long)][..]);
    let (kept, too_much) = (Ok(Decision::Kept), Err(TooMuch::Steps));
    for (rule, count) in [
        ("- {source_labels: [a], regex: '(a?){100}b', target_label: c}\n", 300),
        ("- {source_labels: [a], regex: '(?:a?){400}b', action: drop}\n", 300),
        ("- {source_labels: [a, a, a], regex: '(?:a?){30}b', action: drop}\n", 1000),
        ("- {source_labels: [a, a, a], regex: x, action: drop}\n", 1000),
    ] {
        check(rule, 1, long, kept);
        check(rule, count, long, too_much);
        check(rule, count, short, kept);
    }
    let names: Vec<String> = (0..128).map(|n| format!("{}{n}", "a".repeat(2000))).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    check("- {regex: '(?:a?){20}b', action: labeldrop}\n", 100, &many, too_much);
}

#[test]
fn metadata_follows_rules_on_names() {
    let rules = IngestRules::parse(
        "
- {source_labels: [__name__], regex: go_.*, action: drop}
- {source_labels: [job], regex: x, action: keep}
- {source_labels: [__name__], regex: old_(.*), target_label: __name__, replacement: new_$1}
- {target_label: __name__, replacement: no}
- {match: a.*, name: $1}
",
    )
    .unwrap();
    let list = rules.of(&TenantId::anonymous()).unwrap();
    for (name, expected) in
        [("go_x", None), ("old_x", Some("new_x")), ("other", Some("other")), ("a.b", Some("b"))]
    {
        let mut set = LabelSet::new([("__name__", name)].into_iter());
        let decision = list.apply_to_name(&mut set).unwrap();
        let found = (decision == Decision::Kept).then(|| set.get("__name__"));
        assert_eq!(found, expected, "{name}");
    }
}

/// Verdicts are remembered by the fingerprint, so equal ones must mean equal rules, and a change elsewhere in the file must not
/// change it.
#[test]
fn the_fingerprint_of_a_list_depends_on_its_content_only() {
    let of = |text: &str, tenant: &str| {
        let rules = IngestRules::parse(text).unwrap();
        rules.of(&TenantId::parse(tenant).unwrap()).unwrap().fingerprint
    };
    let first = of("tenants:\n  a: [{regex: x, action: labeldrop}]\n", "a");
    for same in [
        "# other lines\n\ntenants:\n  b: [{regex: y, action: labeldrop}]\n  a:\n  - regex: \"x\"\n    action: labeldrop\n",
        "default: [{regex: z, action: labeldrop}]\ntenants: {a: [{regex: x, action: labeldrop}]}\n",
        "- {regex: x, action: labeldrop}\n",
        "classes: [{tenants: ['*'], rules: [{regex: x, action: labeldrop}]}]\n",
    ] {
        assert_eq!(of(same, "a"), first, "{same}");
    }
    let mut all = vec![first];
    for other in [
        "- {regex: y, action: labeldrop}\n",
        "- {regex: x, action: labelkeep}\n",
        "- {action: labeldrop, regex: x}\n",
        "- {regex: x, action: labeldrop}\n- {regex: x, action: labeldrop}\n",
        "- {source_labels: [a, b], target_label: c}\n",
        "- {source_labels: [ab], target_label: c}\n",
        "- {source_labels: [a], separator: , target_label: c}\n",
        "- {source_labels: [a], separator: '', target_label: c}\n",
        "- {match: a.*, name: a, labels: {b: $1}}\n",
        "- {match: a.*, name: b, labels: {a: $1}}\n",
    ] {
        let found = of(other, "a");
        assert!(!all.contains(&found), "{other}");
        all.push(found);
    }
}
