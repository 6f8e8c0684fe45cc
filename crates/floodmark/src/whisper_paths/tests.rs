use super::*;
use stdx::rng::Rng;

fn found(labels: &Labels) -> Option<WhisperPath> {
    let mut name = String::new();
    write_name(&mut name, labels.as_ref());
    WhisperPath::of(labels.as_ref(), &name)
}

#[test]
fn names_without_tags_are_paths() {
    let named = |name: &str| found(&Labels::from_pairs(&[(METRIC_NAME, name)]));
    let check = |name: &str, path: &str| {
        assert_eq!(named(name), Some(WhisperPath::Named(path.into())), "{name}");
    };
    check("a.b-1.c", "a/b-1/c.wsp");
    check("load", "load.wsp");
    for name in
        [".", "a..b", "..", "a/b", "/etc", "a.", "_tagged.a.b.c", &"x".repeat(252), &"x.".repeat(2000)]
    {
        assert_eq!(named(name), None, "{name}");
    }
}

#[test]
fn series_with_tags_are_where_carbon_looks_for_them() {
    let check = |tags: &[(&str, &str)], expected: Option<WhisperPath>| {
        let pairs: Vec<_> = [(METRIC_NAME, "some.metric")].into_iter().chain(tags.iter().copied()).collect();
        assert_eq!(found(&Labels::from_pairs(&pairs)), expected, "{tags:?}");
    };
    let named = |path: &str| Some(WhisperPath::Named(path.into()));
    // the example in carbon's documentation
    check(
        &[("tag1", "value2"), ("tag2", "value.2")],
        named("_tagged/eff/aae/some_DOT_metric;tag1=value2;tag2=value_DOT_2.wsp"),
    );
    // nothing leads out of the directory
    check(
        &[("k", "../../../etc")],
        named("_tagged/108/a11/some_DOT_metric;k=_DOT__DOT_/_DOT__DOT_/_DOT__DOT_/etc.wsp"),
    );
    for value in ["x_DOT_y", "/", "a//b", "a/", "a\0b", &"x".repeat(250)] {
        let name = format!("some.metric;k={value}");
        let hash = hash(&name);
        let path = format!("_tagged/{}/{}/{hash}.wsp", &hash[..3], &hash[3..6]);
        check(&[("k", value)], Some(WhisperPath::Hashed(path.into())));
    }
    for (tag, value) in [("k", "~x"), ("k", "a;b"), ("k=", "x"), ("k!", "x"), ("name", "x"), ("k", "{\"}")] {
        check(&[(tag, value)], None);
    }
}

#[test]
fn paths_are_names() {
    let check = |path: &str, expected: &str| {
        let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        let stem = parts.pop().unwrap();
        let found = TaggedNames::default().labels(&parts, &stem);
        assert_eq!(found.map_or_else(|error| error, |labels| labels.to_string()), expected, "{path}");
    };
    check("load", "load{}");
    check("servers/web-1/load", "servers.web-1.load{}");
    check("_tagged/0a1/b2c/disk_DOT_used;host=a_DOT_b;rack=1", r#"disk.used{host="a.b", rack="1"}"#);
    check("_tagged/0a1/b2c/disk;mount=/var/log", r#"disk{mount="/var/log"}"#);
    check("_tagged/0a1/b2c/disk;host", "a tag is not of the form name=value");
    check(&format!("_tagged/0a1/b2c/{}", "0a".repeat(32)), "named by a hash (--tagged-names names them)");
}

/// A series' file has the labels of the series, whatever they are.
#[test]
fn files_are_those_of_their_series() {
    const TEXTS: [&str; 12] = ["a", "b1", "b", ".", "_DOT_", "/", "=", "~", "é", "x y", "{", "\"}"];
    let mut rng = Rng::announced();
    let dir = tempfile::tempdir().unwrap();
    let (mut named, mut hashed) = (0, 0);
    for _ in 0..5000 {
        let mut text = || -> String {
            let count = 1 + rng.below(4);
            (0..count).map(|_| TEXTS[rng.below(TEXTS.len() as u64) as usize]).collect()
        };
        let pairs = [(METRIC_NAME.to_owned(), text()), (text(), text()), (text(), text())];
        let mut builder = LabelsBuilder::new();
        pairs.iter().for_each(|(label, value)| builder.push(label, value));
        let Ok(labels) = builder.build_series() else { continue };
        let mut names = TaggedNames::default();
        let path = match found(&labels) {
            None => continue,
            Some(WhisperPath::Named(path)) => {
                named += 1;
                path
            }
            Some(WhisperPath::Hashed(path)) => {
                hashed += 1;
                let mut name = String::new();
                write_name(&mut name, labels.as_ref());
                let list = dir.path().join("names.json");
                std::fs::write(&list, serde_json::to_string(&[name]).unwrap()).unwrap();
                names = TaggedNames::read(&list).unwrap();
                path
            }
        };
        let mut parts: Vec<_> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        let file = parts.pop().unwrap();
        assert_eq!(
            names.labels(&parts, file.strip_suffix(".wsp").unwrap()),
            Ok(labels),
            "{}",
            path.display()
        );
    }
    assert!(named > 100 && hashed > 100, "{named} paths with the name, {hashed} with its hash");
}
