//! Answers of graphite-web that were recorded, for machines without it: `recorded.jsonl` has a line for each function.

use super::data::Data;
use super::differential::Case;
use super::oracle::{Oracle, Reply, lines};
use super::ours::Floodmark;
use super::rules::RULES;
use serde_json::{Value, json};
use stdx::rng::Rng;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/graphite/recorded.jsonl");

/// The recorded answers are those to data of this seed.
const SEED: u64 = 1;

/// Ranges of recorded targets have at most this length, so that the answers are short.
const RANGE_S_MAX: i64 = 300;

/// With `UPDATE_EXPECT=1`, records answers first.
#[test]
fn recorded_answers_are_given() {
    let data = Data::random(&mut Rng::new(SEED));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let Some(oracle) = Oracle::start() else { return };
        std::fs::write(PATH, record(oracle, &data)).expect("cannot write the recorded answers");
    }
    let floodmark = Floodmark::new(&data);
    let recorded = std::fs::read_to_string(PATH).expect("cannot read the recorded answers");
    for line in recorded.lines() {
        let line: Value = serde_json::from_str(line).expect("not JSON");
        let case = Case::read(&line, &data);
        case.check(Reply::Series(lines(&line["series"])), &floodmark)
            .unwrap_or_else(|error| panic!("{case:?}\n{error}"));
    }
}

fn record(mut oracle: Oracle, data: &Data) -> String {
    oracle.load(data.now_s, &data.series);
    data.events.iter().for_each(|event| oracle.event(event));
    let mut rng = Rng::new(SEED);
    let mut recorded = String::new();
    for rule in RULES {
        loop {
            let mut case = Case::random(rule, data, &mut rng);
            case.range.from_s = case.range.from_s.max(case.range.until_s - RANGE_S_MAX);
            let answer = oracle.answer(&case.target, case.range, case.x_files_factor);
            if answer["series"].as_array().is_none_or(Vec::is_empty) {
                continue;
            }
            let (from, until) = (case.range.from_s, case.range.until_s);
            let line = json!({
                "target": case.target, "from": from, "until": until, "xFilesFactor": case.x_files_factor,
                "series": answer["series"],
            });
            recorded.push_str(&format!("{line}\n"));
            break;
        }
    }
    recorded
}
