//! Random targets over random data beside a real carbonapi.

use super::carbonapi::Carbonapi;
use super::choices::OF_CARBONAPI;
use super::data::Data;
use super::differential::{Case, is_close, shown};
use super::oracle::{Line, Oracle, Reply};
use super::ours::Floodmark;
use super::rules::RULES;
use stdx::rng::Rng;

/// Number of targets that are compared for each function as the outermost one.
const COMPARED: usize = 10;

/// With `FLOODMARK_LONG=1`, this many times as many.
const LONG: usize = 20;

/// Attempts to find a target with a series as its answer, for each target that is compared.
const ATTEMPTS: usize = 8;

/// Seed of the usual run. `TEST_SEED` is another one.
const SEED: u64 = 7_046_029_254_386_353_131;

const DIFFERENCES_MAX: usize = 20;

#[derive(Debug, Default)]
struct Tally {
    same: usize,
    /// The target uses a function that answers in another way, or series of several steps or lengths.
    by_choice: usize,
    /// graphite-web failed, and carbonapi answers as Floodmark.
    only_carbonapi: usize,
}

#[test]
fn random_targets_are_answered_as_by_carbonapi() {
    let Some(mut oracle) = Oracle::start() else { return };
    let is_long = std::env::var_os("FLOODMARK_LONG").is_some();
    let mut rng =
        if is_long || std::env::var_os("TEST_SEED").is_some() { Rng::announced() } else { Rng::new(SEED) };
    let data = Data::random(&mut rng);
    oracle.load(data.now_s, &data.series);
    let Some(carbonapi) = Carbonapi::start(&mut oracle) else { return };
    let floodmark = Floodmark::new(&data);
    let compared = COMPARED * if is_long { LONG } else { 1 };
    let only = std::env::var("TEST_FUNCTION").ok();
    let (mut total, mut differences) = (Tally::default(), Vec::new());
    for rule in RULES.iter().filter(|rule| only.as_ref().is_none_or(|only| rule.name == only)) {
        let (mut of_rule, is_other) = (Tally::default(), is_of_carbonapi(rule.name));
        for _ in 0..compared * ATTEMPTS {
            if of_rule.same + of_rule.by_choice * usize::from(is_other) >= compared
                || differences.len() >= DIFFERENCES_MAX
            {
                break;
            }
            let mut case = Case::random(rule, &data, &mut rng);
            case.x_files_factor = None; // not a parameter of carbonapi
            let reply = oracle.render(&case.target, case.range, None);
            let theirs = carbonapi.render(&case.target, case.range);
            let ours = floodmark.render(&case.target, case.range, None);
            let is_crash = matches!(reply, Reply::Crashed);
            match (difference(theirs, &ours), is_empty(&ours)) {
                (None, true) => {}
                (None, false) => {
                    of_rule.same += 1;
                    of_rule.only_carbonapi += usize::from(is_crash);
                }
                (Some(_), _) if is_choice(&case.target) => of_rule.by_choice += 1,
                (Some(difference), _) => differences.push(format!("{case:?}\n{difference}")),
            }
        }
        if of_rule.same < compared && !is_other && differences.len() < DIFFERENCES_MAX {
            differences.push(format!("{} was compared too rarely: {of_rule:?}", rule.name));
        }
        if is_long && of_rule.by_choice == 0 && is_other {
            eprintln!("{} answers as graphite-web: {of_rule:?}", rule.name);
        }
        total.same += of_rule.same;
        total.by_choice += of_rule.by_choice;
        total.only_carbonapi += of_rule.only_carbonapi;
    }
    stdx::skipped::score(&format!(
        "Graphite: {} random targets answered as by carbonapi, {} of them where graphite-web fails; {} others differ as listed",
        total.same, total.only_carbonapi, total.by_choice
    ));
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

fn is_of_carbonapi(function: &str) -> bool {
    OF_CARBONAPI.iter().any(|choice| choice.functions.contains(&function))
}

/// Functions whose series have steps or times of their own. Functions around them may combine them with other series.
const OF_OTHER_TIMES: [&str; 14] = [
    "compressPeriodicGaps",
    "exponentialMovingAverage",
    "holtWintersConfidenceBands",
    "holtWintersForecast",
    "identity",
    "movingAverage",
    "movingMax",
    "movingMin",
    "movingSum",
    "movingWindow",
    "sin",
    "sinFunction",
    "time",
    "timeFunction",
];

/// Functions that look at names. Functions inside of them name series in carbonapi's style.
const OF_NAMES: [&str; 8] = [
    "aggregateWithWildcards",
    "applyByNode",
    "exclude",
    "grep",
    "groupByNode",
    "groupByNodes",
    "sortByName",
    "weightedAverage",
];

/// Whether carbonapi may answer in another way, because of a function, also a callback, or of series with
/// different names, steps or lengths.
fn is_choice(target: &str) -> bool {
    let words = || target.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let has_others = || words().skip(1).any(|word| OF_OTHER_TIMES.contains(&word));
    let has_names = || words().any(|word| OF_NAMES.contains(&word)) && target.matches('(').count() > 1;
    target.contains("mix.") || has_others() || has_names() || words().any(is_of_carbonapi)
}

fn is_empty(ours: &Result<Vec<Line>, query::QueryError>) -> bool {
    ours.as_ref().map_or(true, Vec::is_empty)
}

/// Compares the number and order of series, and their times and values.
fn difference(
    theirs: Result<Vec<Line>, String>,
    ours: &Result<Vec<Line>, query::QueryError>,
) -> Option<String> {
    let (theirs, ours) = match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (Err(_), Err(_)) => return None,
        (Ok(theirs), Err(error)) => {
            return Some(format!("carbonapi: {}\nfloodmark: {error}", shown(&theirs)));
        }
        // carbonapi refuses what selects nothing
        (Err(_), Ok(ours)) if ours.is_empty() => return None,
        (Err(error), Ok(ours)) => return Some(format!("carbonapi: {error}\nfloodmark: {}", shown(ours))),
    };
    let what = if theirs.len() == ours.len() {
        theirs.iter().zip(ours).find_map(|(theirs, ours)| difference_of(theirs, ours))?
    } else {
        format!("{} series, and {}", theirs.len(), ours.len())
    };
    Some(format!("{what}\ncarbonapi: {}\nfloodmark: {}", shown(&theirs), shown(ours)))
}

fn difference_of(theirs: &Line, ours: &Line) -> Option<String> {
    // the step of a single value is not known
    let shape = |line: &Line| match line.values.len() {
        0 => (0, 0, 0),
        1 => (line.start_s, 0, 1),
        length => (line.start_s, line.step_s, length),
    };
    if shape(theirs) != shape(ours) {
        return Some(format!("start, step and length: {:?}, and {:?}", shape(theirs), shape(ours)));
    }
    let place =
        theirs.values.iter().zip(&ours.values).position(|(a, b)| !is_close(*a, *b, &theirs.values))?;
    let (a, b) = (theirs.values[place], ours.values[place]);
    Some(format!("values of {} at {place}: {a:?}, and {b:?}", ours.name))
}
