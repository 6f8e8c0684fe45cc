//! Rules beside the real carbon, and damaged files. `scripts/test-servers.sh` installs carbon.

mod aggregations;
mod files;
mod oracle;

use rules::{Aggregations, NameList, Rewrites, Schemas};
use stdx::damage::each_damaged;

const MUTATIONS: usize = 3000;

#[test]
fn damaged_ingest_rules() {
    const FILE: &str = r#"
default:
  - {source_labels: [a, b], separator: '-', regex: '(?i)(f.*)-(?P<n>[a-z]{1,3}\d?)', target_label: 'x_$1', replacement: "${n}$$"}
  - {regex: '(a|é)', action: labelmap, replacement: 'm_$1'}
  - match: servers.*.cpu.*
    name: cpu
    labels: {host: $1, mode: '${2}'}
classes:
  - tenants: ["team-*"]
    rules:
      - {source_labels: [__name__], regex: go_.+|up, action: drop}
      - {source_labels: [b], modulus: 8, target_label: shard, action: hashmod}
      - regex: >
          x
        action: labeldrop
tenants:
  lab: []
"#;
    let list = "- {action: keep, regex: 'a[[:alpha:]]+|b', source_labels: [a]} # c\n- {target_label: b, replacement: }\n";
    let corpus = [FILE.as_bytes().to_vec(), list.as_bytes().to_vec(), list.repeat(20).into_bytes()];
    each_damaged(&corpus, MUTATIONS / 3, rules::fuzz::ingest_rules);
}

/// Whatever a file contains, it is an error or rules, and no name makes rules panic.
#[test]
fn damaged_files() {
    let check = |corpus: &[&str], target: fn(&str)| {
        let corpus: Vec<_> = corpus.iter().map(|text| text.as_bytes().to_vec()).collect();
        each_damaged(&corpus, MUTATIONS, |bytes| target(&String::from_utf8_lossy(bytes)));
    };
    check(
        &["<e>.a.<x>.all (60) = sum <e>.a.<x>.*.b\nx (1) = p99 <<y>>.z\n# c\n<d>.n (60) = avg <d>\\d{2}.n\n"],
        |text| {
            if let Ok(rules) = Aggregations::parse(text) {
                ["p.a.web.www1.b", "", "q.z", "www07.n;h=\u{e9}"]
                    .iter()
                    .for_each(|name| assert!(rules.of(name).count() < 9));
            }
        },
    );
    check(&["[pre]\n^collectd\\.([a-z]+)\\. = \\1.system.\n[post]\n_sum$ =\n(?P<a>x) = \\g<a>\n"], |text| {
        if let Ok(rules) = Rewrites::parse(text) {
            let _ = rules.pre("collectd.web.cpu").map(|name| rules.post(&name).is_ok());
        }
    });
    check(&["^collectd\\.\n# c\n[a-z]{2,3}\\Z\n"], |text| {
        let _ = NameList::parse(text).map(|list| list.contains("collectd.a"));
    });
    check(
        &["[a]\npattern = ^a\nretentions = 10s:1d,\n  60:7d\n[b]\npattern: .*\nretentions = 1m:1y\n"],
        |text| {
            let _ = Schemas::default().with_schemas(text).map(|schemas| schemas.of("a.b").archives.len());
        },
    );
}
