//! Random rules and points, aggregated by the real carbon (`aggregator.py`) and by this crate.

use crate::oracle::Oracle;
use rules::Aggregations;
use rules::aggregations::Buffer;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use stdx::rng::Rng;

const NOW_S: i64 = 1_795_284_003;
const KEPT: u32 = 3;
const CASES: usize = 12;

/// The value of each output and interval. Times are in seconds.
type Computed = BTreeMap<(String, i64), f64>;

#[derive(Debug)]
enum Step {
    Point {
        name: String,
        at_ms: i64,
        value: f64,
    },
    /// Moves the clock.
    At(i64),
}

#[test]
fn random_points_have_the_aggregates_of_carbon() {
    let Some(oracle) = Oracle::find() else { return };
    let mut rng = Rng::announced();
    let mut compared = 0;
    for case in 0..CASES {
        let rules = random_rules(&mut rng);
        let steps = random_steps(&mut rng);
        let (expected, forwarded) = by_carbon(&oracle, &rules, &steps);
        let (computed, stored) = by_us(&rules, &steps);
        assert_eq!(
            computed.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "case {case}:\n{rules}"
        );
        for (key, value) in &computed {
            let other = expected[key];
            let is_close = (value - other).abs() <= 1e-9 * value.abs().max(1.0);
            assert!(is_close, "case {case}: {key:?} is {value}, and {other} in carbon:\n{rules}");
        }
        assert_eq!(stored, forwarded, "case {case}:\n{rules}");
        compared += computed.len();
    }
    assert!(compared > 50 * CASES, "only {compared} values were compared");
    println!("{compared} values are those of carbon");
}

fn random_rules(rng: &mut Rng) -> String {
    const FUNCTIONS: [&str; 12] =
        ["avg", "count", "max", "min", "p50", "p75", "p80", "p90", "p95", "p99", "p999", "sum"];
    const INPUTS: [(&str, &[&str]); 12] = [
        ("<env>.<app>.*.requests", &["env", "app"]),
        ("<env>.<app>.<<rest>>", &["env", "app", "rest"]),
        ("<<all>>", &["all"]),
        ("*.web*.host<n>.latency", &["n"]),
        (r"<env>.<app>\d.host\d{1,2}.<metric>", &["env", "app", "metric"]),
        ("prod.<<middle>>.requests", &["middle"]),
        ("<env>.(web|db)1.<<rest>>", &["env", "rest"]),
        ("*.*.host7*.*", &[]),
        ("<a>.<b>-x.<c>", &["a", "b", "c"]),
        ("dev|prod.db<n>.host1.requests", &["n"]),
        (r"<env>.<app>.host[1-3].\w+", &["env", "app"]),
        ("<env>.<app>.<host>.requests;<tags>", &["env", "tags"]),
    ];
    let mut rules = String::from("# random\n");
    for number in 0..1 + rng.below(6) {
        let (input, fields) = INPUTS[rng.below(INPUTS.len() as u64) as usize];
        let (function, interval_s) =
            (FUNCTIONS[rng.below(12) as usize], [5, 10, 30, 60][rng.below(4) as usize]);
        // rules with the same output would share a buffer with the interval and function of the first of them
        let mut output = format!("out{number}");
        for field in fields {
            if rng.chance(0.7) {
                output.push_str(&format!(".{}<{field}>", if rng.chance(0.1) { "100%%" } else { "" }));
            }
        }
        rules.push_str(&format!("{output} ({interval_s}) = {function} {input}\n"));
    }
    if rng.chance(0.3) {
        rules.push_str("<all> (10) = sum <<all>>\n"); // replaces all points
    }
    if rng.chance(0.3) {
        // two rules share an output
        rules.push_str("both (10) = sum prod.<<x>>\nboth (10) = sum *.web1.<<x>>\n");
    }
    rules
}

fn random_steps(rng: &mut Rng) -> Vec<Step> {
    let (mut steps, mut now_s) = (Vec::new(), NOW_S);
    for _ in 0..400 {
        if rng.chance(0.15) {
            now_s += rng.below(9) as i64;
            steps.push(Step::At(now_s));
            continue;
        }
        let (env, app) =
            (["prod", "dev"][rng.below(2) as usize], ["web1", "db2", "web-x"][rng.below(3) as usize]);
        let (host, metric) = (rng.below(20), ["requests", "latency"][rng.below(2) as usize]);
        let tags = if rng.chance(0.1) { ";rack=a" } else { "" };
        let name = format!("{env}.{app}.host{host}.{metric}{tags}");
        // all intervals of these times are still kept
        let at_ms = now_s * 1000 - rng.below(12_000) as i64;
        steps.push(Step::Point { name, at_ms, value: (rng.unit() * 1e4).round() / 8.0 - 100.0 });
    }
    for _ in 0..2 * KEPT + 4 {
        now_s += 60;
        steps.push(Step::At(now_s));
    }
    steps
}

fn by_carbon(oracle: &Oracle, rules: &str, steps: &[Step]) -> (Computed, BTreeSet<String>) {
    let step = |step: &Step| match step {
        Step::Point { name, at_ms, value } => json!(["point", name, *at_ms as f64 / 1000.0, value]),
        Step::At(now_s) => json!(["at", now_s]),
    };
    let steps: Vec<_> = steps.iter().map(step).collect();
    let request = json!({"rules": rules, "kept": KEPT, "now": NOW_S, "steps": steps});
    let answer = oracle.ask("aggregator.py", &request);
    let computed = answer["computed"].as_array().expect("no points").iter().map(|point| {
        let name = point[0].as_str().expect("no name").to_owned();
        ((name, point[1].as_f64().expect("no time") as i64), point[2].as_f64().expect("no value"))
    });
    let forwarded = answer["forwarded"].as_array().expect("no names").iter();
    (computed.collect(), forwarded.map(|name| name.as_str().expect("no name").to_owned()).collect())
}

/// Returns the computed points, and the names of which points would be stored.
fn by_us(rules: &str, steps: &[Step]) -> (Computed, BTreeSet<String>) {
    let rules = Aggregations::parse(rules).expect("carbon accepts these rules");
    let mut buffers: HashMap<String, Buffer> = HashMap::new();
    let (mut computed, mut stored, mut now_ms) = (Computed::new(), BTreeSet::new(), NOW_S * 1000);
    for step in steps {
        match step {
            Step::Point { name, at_ms, value } => {
                let mut is_replaced = false;
                for (rule, output) in rules.of(name) {
                    is_replaced |= output == *name;
                    let new = || Buffer::new(rule.interval_s, rule.function, KEPT, i64::MIN);
                    let buffer = buffers.entry(output).or_insert_with(new);
                    buffer.add(*at_ms, *value, now_ms, |_| Ok::<_, ()>(())).expect("the interval is kept");
                }
                if !is_replaced {
                    stored.insert(name.clone());
                }
            }
            Step::At(now_s) => {
                now_ms = now_s * 1000;
                for (output, buffer) in &mut buffers {
                    let points = buffer.compute(now_ms, 1000).finish().points;
                    computed
                        .extend(points.into_iter().map(|(ms, value)| ((output.clone(), ms / 1000), value)));
                }
            }
        }
    }
    assert!(buffers.values().all(|buffer| buffer.is_idle(now_ms)), "an interval is kept too long");
    (computed, stored)
}
