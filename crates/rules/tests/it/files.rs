//! Random files, applied to random names by the real carbon (`files.py`) and by this crate.

use crate::oracle::Oracle;
use rules::{NameList, Rewrites, Schemas};
use serde_json::json;
use std::fmt::Write;
use stdx::rng::Rng;

const CASES: usize = 20;
const NAMES: usize = 200;

const PATTERNS: [&str; 18] = [
    r"^carbon\.",
    r"\.count$",
    r"^stats\.(timers|gauges)\.",
    ".*",
    r"web[0-9]{1,2}",
    "(?i)CPU",
    r"^[^.]+\.web",
    r"\d+",
    "cpu|load",
    r"_sum\Z",
    r"\bcpu\b",
    r";host=web\d",
    r"^[[:alpha:]\]]",
    r"^(?P<first>\w+)\.(?:db|web)",
    "{a,b}",
    "o{2}",
    r"[\w-]+-x",
    "ü",
];

#[derive(Debug)]
struct Files {
    schemas: String,
    aggregation: String,
    rewrites: String,
    list: String,
}

#[test]
fn random_files_decide_as_in_carbon() {
    let Some(oracle) = Oracle::find() else { return };
    let mut rng = Rng::announced();
    for case in 0..CASES {
        let files = random_files(&mut rng);
        let names: Vec<_> = (0..NAMES).map(|_| random_name(&mut rng)).collect();
        let Files { schemas, aggregation, rewrites, list } = &files;
        let request = json!({
            "schemas": schemas, "aggregation": aggregation, "rewrites": rewrites, "list": list, "names": names,
        });
        let expected = oracle.ask("files.py", &request);
        let schemas = Schemas::default().with_schemas(schemas).expect("carbon accepts these schemas");
        let schemas = schemas.with_aggregation(aggregation).expect("carbon accepts this aggregation");
        let rewrites = Rewrites::parse(rewrites).expect("carbon accepts these rewrites");
        let list = NameList::parse(list).expect("carbon accepts this list");
        for (name, expected) in names.iter().zip(expected.as_array().expect("no decisions")) {
            let schema = schemas.of(name);
            let archives: Vec<_> =
                schema.archives.iter().map(|archive| (archive.step_s, archive.points)).collect();
            let factor = expected["x_files_factor"].as_f64().expect("no factor");
            assert_eq!(schema.x_files_factor, f64::from(factor as f32), "case {case}, {name}: {files:#?}");
            let ours = json!({
                "archives": archives,
                "x_files_factor": factor,
                "method": schema.method.name(),
                "pre": rewrites.pre(name).expect("the name is short"),
                "post": rewrites.post(name).expect("the name is short"),
                "is_listed": list.contains(name),
            });
            assert_eq!(&ours, expected, "case {case}, {name}: {files:#?}");
        }
    }
}

fn random_files(rng: &mut Rng) -> Files {
    let mut list = String::from("# list\n\n");
    for _ in 0..rng.below(4) {
        let _ = writeln!(list, "{}", pick(rng, &PATTERNS));
    }
    Files {
        schemas: random_sections(rng, |rng| {
            let retentions = [
                "60:90d",
                "10s:6h,1m:7d,10m:5y",
                "1m:1d, 5m:1w",
                "1h:10y,\n  60s:1d",
                "15:1440",
                "1d:1w,1h:1d",
                "120s:1h",
            ];
            vec![format!("{} = {}", pick(rng, &["retentions", "Retentions"]), pick(rng, &retentions))]
        }),
        aggregation: random_sections(rng, |rng| {
            let mut options = Vec::new();
            if rng.chance(0.7) {
                let factor = pick(rng, &["0", "0.1", "0.5", "1", ".3", "1e-1"]);
                options.push(format!("xFilesFactor: {factor}"));
            }
            if rng.chance(0.7) {
                let methods = ["average", "sum", "last", "max", "min", "avg_zero", "absmax", "absmin"];
                options.push(format!("aggregationMethod = {}", pick(rng, &methods)));
            }
            options
        }),
        rewrites: random_rewrites(rng),
        list,
    }
}

/// Sections of one or two patterns and the options, in random order.
fn random_sections(rng: &mut Rng, mut options: impl FnMut(&mut Rng) -> Vec<String>) -> String {
    let mut text = String::from("# random\n");
    for number in 0..rng.below(6) {
        let pattern = pick(rng, &PATTERNS).replace('%', "%%");
        let mut lines = options(rng);
        lines.push(format!("{} {} {pattern}", pick(rng, &["pattern", "PATTERN"]), pick(rng, &["=", ":"])));
        let first = rng.below(lines.len() as u64) as usize;
        lines.rotate_left(first);
        let _ = writeln!(text, "[section {number}]\n; {number}\n{}\n", lines.join("\n"));
    }
    text
}

fn random_rewrites(rng: &mut Rng) -> String {
    const RULES: [(&str, &str); 20] = [
        (r"^collectd\.([a-z]+)\.", r"\1.system."),
        (r"(\d+)", r"n\1"),
        (r"\.", "_"),
        ("_sum$", ""),
        (r"(?P<a>web)(\d*)", r"\g<2>\g<a>"),
        ("o*", "-"),
        ("(.*)", r"p.\1"),
        (".*", "x"),
        ("(a)|b", r"[\1]"),
        (r"\b", "|"),
        ("$", ".end"),
        ("^", "pre."),
        ("e", r"\\"),
        ("o", r"\g<0>\g<0>"),
        ("cpu", "a=b"),
        ("a?", "<>"),
        ("(?i)CPU|(load)", r"\g<1>!"),
        (r"\d*$", "#"),
        ("ü*", "u"),
        ("[.;]|", "+"),
    ];
    let mut text = String::from("# random\n");
    for _ in 0..rng.below(4) {
        let _ = writeln!(text, "[{}]", pick(rng, &["pre", "post", "PRE", "Post"]));
        for _ in 0..rng.below(3) {
            let (pattern, replacement) = pick(rng, &RULES);
            let _ = writeln!(text, "{pattern} = {replacement}");
        }
    }
    text
}

fn random_name(rng: &mut Rng) -> String {
    const PARTS: [&str; 16] = [
        "carbon", "collectd", "stats", "timers", "web1", "web27", "db2-x", "cpu", "CPU0", "load", "count",
        "foo_sum", "boot", "über", "{a,b}", "7",
    ];
    let parts: Vec<_> = (0..1 + rng.below(4)).map(|_| pick(rng, &PARTS)).collect();
    let tags = if rng.chance(0.2) { ";host=web1" } else { "" };
    parts.join(".") + tags
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}
