//! Random targets over random data: Floodmark answers them as a real graphite-web does.

use super::data::Data;
use super::oracle::{Line, Oracle, Range, Reply};
use super::ours::Floodmark;
use super::rules::{RULES, Rule};
use super::targets::Targets;
use serde_json::Value;
use stdx::rng::Rng;

/// Number of targets that are compared for each function as the outermost one.
const COMPARED: usize = 13;

/// Seed of the usual run. `TEST_SEED` is another one.
const SEED: u64 = 13_957_624_936_793_198_801;

/// Factor on the number of compared targets if `FLOODMARK_LONG=1`.
const LONG: usize = 30;

/// Attempts to find a target that graphite-web answers with a series, for each target that is compared.
const ATTEMPTS: usize = 12;

/// Differences that are printed before the test ends.
const DIFFERENCES_MAX: usize = 10;

/// Largest relative difference of two values.
pub(super) const PRECISION: f64 = 1e-9;

/// Difference that rounding may cause where large numbers cancel each other out, relative to the largest value.
pub(super) const CANCELLATION: f64 = 1e-13;

/// Difference of very small numbers that rounding may cause.
pub(super) const UNDERFLOW: f64 = 1e-18;

/// What is in targets that combine series of different steps, or of which some may be missing.
const OF_OTHER_STEPS: [&str; 2] = ["mix.", "nothing."];

/// Functions whose times are off in graphite-web if the time zone of the request is not that of the server.
const OF_SERVERS_ZONE: [&str; 8] = [
    "integralByInterval",
    "linearRegression",
    "sin",
    "time",
    "timeFunction",
    "timeShift",
    "timeSlice",
    "verticalLine",
];

const TIME_ZONES: [&str; 4] = ["America/New_York", "Asia/Kolkata", "Pacific/Auckland", "Europe/Berlin"];

/// Functions with intervals that begin at days or hours, which depend on the time zone.
const OF_DAYS: [&str; 3] = [
    "hitcount(app.*.cpu.user,'7h',true)",
    "hitcount(mix.*.x,'1d',true)",
    "smartSummarize(app.web1.cpu.*,'50min','avg',UNIT)",
];

#[test]
fn intervals_begin_with_days_of_the_time_zone() {
    let Some(mut oracle) = Oracle::start() else { return };
    if jiff::tz::TimeZone::get("Asia/Kolkata").is_err() {
        return stdx::skipped::for_want_of("time zones (apt-get install tzdata)");
    }
    let mut rng = Rng::announced();
    let data = Data::random(&mut rng);
    oracle.load(data.now_s, &data.series);
    let floodmark = Floodmark::new(&data);
    for _ in 0..60 {
        let pick =
            |rng: &mut Rng, choices: &[&'static str]| choices[rng.below(choices.len() as u64) as usize];
        let unit =
            pick(&mut rng, &["'min'", "'hours'", "'days'", "'weeks'", "'weeks4'", "'weeks7'", "'mon'"]);
        let target = pick(&mut rng, &OF_DAYS).replace("UNIT", unit);
        let time_zone = pick(&mut rng, &TIME_ZONES);
        let until_s = data.now_s - rng.below(86_400) as i64;
        let range =
            Range { now_s: data.now_s, from_s: until_s - rng.below(86_400) as i64, until_s, time_zone };
        let case = Case { target, range, x_files_factor: None };
        let reply = oracle.render(&case.target, range, None);
        assert_eq!(case.check(reply, &floodmark), Ok(Found::Same), "{case:?}");
    }
}

/// Windows of many points are aggregated in another way than short ones.
#[test]
fn long_windows_are_aggregated_as_by_graphite_web() {
    let Some(mut oracle) = Oracle::start() else { return };
    let is_long = std::env::var_os("FLOODMARK_LONG").is_some();
    let mut rng = if is_long { Rng::announced() } else { Rng::new(SEED) };
    let data = Data::random(&mut rng);
    oracle.load(data.now_s, &data.series);
    let floodmark = Floodmark::new(&data);
    let functions =
        ["average", "count", "diff", "last", "max", "median", "min", "multiply", "range", "stddev", "sum"];
    let (mut differences, mut compared) = (Vec::new(), 0);
    for function in functions.iter().cycle().take(functions.len() * if is_long { 40 } else { 4 }) {
        let window = if rng.chance(0.3) { 513 + rng.below(300) } else { 65 + rng.below(200) };
        let paths =
            ["app.*.cpu.*", "mix.*.x", "net.*.bytes", "gap.*", "const.*", "ratio.*"][rng.below(6) as usize];
        let factor = ["", ",0.3", ",0.9"][rng.below(3) as usize];
        let target = format!("movingWindow({paths},{window},'{function}'{factor})");
        let until_s = data.now_s - rng.below(7200) as i64;
        let from_s = until_s - 120 - rng.below(6 * 3600) as i64;
        let range = Range { now_s: data.now_s, from_s, until_s, time_zone: "UTC" };
        let case = Case { target, range, x_files_factor: None };
        match case.check(oracle.render(&case.target, range, None), &floodmark) {
            Ok(Found::Same) => compared += 1,
            Ok(_) => {}
            Err(difference) => differences.push(format!("{case:?}\n{difference}")),
        }
    }
    assert!(
        differences.is_empty() && compared >= 2 * functions.len(),
        "{compared}: {}",
        differences.join("\n\n")
    );
}

/// Targets of templates, and the arguments with the values of their variables. A word in capitals stands for a random value.
const TEMPLATES: [(&str, &str); 8] = [
    ("app.$host.cpu.$what", "host='HOST',what='WHAT'"),
    ("app.$1.cpu.$2", "'HOST','WHAT'"),
    ("full.$1.load", "'LETTER'"),
    ("scale(app.$host.cpu.user,$factor)", "host='HOST',factor=FACTOR"),
    ("scale(app.$host.cpu.*,$factor)", "host='HOST',factor='FACTOR'"),
    ("alias(full.$1.load,$2)", "'LETTER','a name'"),
    ("sumSeries(group(app.$host.cpu.*,full.$letter.load))", "host='HOST',letter='LETTER'"),
    ("aliasByNode(app.$host.cpu.$what,1)", "host='HOST'"),
];

#[test]
fn templates_are_filled_as_by_graphite_web() {
    let Some(mut oracle) = Oracle::start() else { return };
    let mut rng = Rng::announced();
    let data = Data::random(&mut rng);
    oracle.load(data.now_s, &data.series);
    let floodmark = Floodmark::new(&data);
    let mut compared = 0;
    for _ in 0..25 {
        for (inner, arguments) in TEMPLATES {
            let words = ["HOST", "WHAT", "LETTER", "FACTOR"];
            let arguments = words
                .iter()
                .fold(arguments.to_owned(), |text, word| text.replace(word, random_value(word, &mut rng)));
            let target = format!("template({inner},{arguments})");
            // a value of the request replaces the one of the target
            let mut of_request: Vec<(String, String)> = Vec::new();
            for (name, word) in [("host", "HOST"), ("what", "WHAT"), ("1", "LETTER"), ("factor", "FACTOR")] {
                if rng.chance(0.3) {
                    of_request.push((name.into(), random_value(word, &mut rng).into()));
                }
            }
            let until_s = data.now_s - rng.below(7200) as i64;
            let range = Range { now_s: data.now_s, from_s: until_s - 3600, until_s, time_zone: "UTC" };
            let reply = oracle.render_with(&target, range, None, &of_request);
            let ours = floodmark.render_with(&target, range, None, &of_request);
            let case = Case { target, range, x_files_factor: None };
            match case.compare(reply, ours) {
                Ok(found) => compared += usize::from(found == Found::Same),
                Err(difference) => panic!("{case:?} with {of_request:?}\n{difference}"),
            }
        }
    }
    assert!(compared > 100, "only {compared} targets had series");
}

fn random_value(word: &str, rng: &mut Rng) -> &'static str {
    let choices: &[&str] = match word {
        "HOST" => &["web1", "db1", "web*", "{web2,db10}", "none"],
        "WHAT" => &["user", "system", "*"],
        "LETTER" => &["a", "b", "?"],
        _ => &["2", "-1", "0.5"],
    };
    choices[rng.below(choices.len() as u64) as usize]
}

#[derive(Debug, Default)]
struct Tally {
    compared: usize,
    /// graphite-web had no series.
    empty: usize,
    /// graphite-web answered with status 400, as Floodmark did.
    refused: usize,
    /// graphite-web failed with an exception.
    crashed: usize,
}

#[test]
fn random_targets_are_answered_as_by_graphite_web() {
    let Some(mut oracle) = Oracle::start() else { return };
    // new targets are tried by long runs, because a rare one shows a difference that has to be understood first
    let is_new = ["FLOODMARK_LONG", "TEST_SEED"].iter().any(|variable| std::env::var_os(variable).is_some());
    let mut rng = if is_new { Rng::announced() } else { Rng::new(SEED) };
    let data = Data::random(&mut rng);
    oracle.load(data.now_s, &data.series);
    data.events.iter().for_each(|event| oracle.event(event));
    let floodmark = Floodmark::new(&data);
    let compared = COMPARED * if std::env::var_os("FLOODMARK_LONG").is_some() { LONG } else { 1 };
    let only = std::env::var("TEST_FUNCTION").ok();
    let (mut total, mut differences) = (Tally::default(), Vec::new());
    let is_wanted = |rule: &&Rule| only.as_ref().is_none_or(|only| rule.name == only);
    for rule in RULES.iter().filter(is_wanted) {
        let mut of_rule = Tally::default();
        for _ in 0..compared * ATTEMPTS {
            if of_rule.compared == compared || differences.len() >= DIFFERENCES_MAX {
                break;
            }
            let case = Case::random(rule, &data, &mut rng);
            let reply = oracle.render(&case.target, case.range, case.x_files_factor);
            match case.check(reply, &floodmark) {
                Ok(Found::Same) => of_rule.compared += 1,
                Ok(Found::Empty) => of_rule.empty += 1,
                Ok(Found::Refused) => of_rule.refused += 1,
                Ok(Found::Crashed) => of_rule.crashed += 1,
                Err(difference) => differences.push(format!("{case:?}\n{difference}")),
            }
        }
        if of_rule.compared < compared && differences.len() < DIFFERENCES_MAX {
            differences.push(format!("{} was compared too rarely: {of_rule:?}", rule.name));
        }
        total.compared += of_rule.compared;
        total.empty += of_rule.empty;
        total.refused += of_rule.refused;
        total.crashed += of_rule.crashed;
    }
    stdx::skipped::score(&format!(
        "Graphite: {} random targets answered as by graphite-web, {} of them by no series and {} by status 400; \
         graphite-web failed at {} others",
        total.compared + total.empty + total.refused,
        total.empty,
        total.refused,
        total.crashed
    ));
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

/// What the comparison of two answers found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Same,
    /// Both have no series.
    Empty,
    Refused,
    Crashed,
}

/// A target, and when it is evaluated.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) target: String,
    pub(super) range: Range,
    pub(super) x_files_factor: Option<f64>,
}

impl Case {
    pub(super) fn random(rule: &Rule, data: &Data, rng: &mut Rng) -> Self {
        let until_s = data.now_s - if rng.chance(0.3) { 0 } else { rng.below(7200) as i64 };
        // a line over a single second has a step of zero in graphite-web
        let length_s = if rng.chance(0.1) { 2 + rng.below(120) } else { 120 + rng.below(4 * 3600) } as i64;
        let from_s = if rng.chance(0.5) { until_s - length_s } else { (until_s - length_s) / 60 * 60 };
        let target = Targets { rng, from_s, until_s }.of(rule);
        let is_of_server = OF_SERVERS_ZONE.iter().any(|function| target.contains(function));
        let time_zone =
            if is_of_server || rng.chance(0.5) { "UTC" } else { TIME_ZONES[rng.below(4) as usize] };
        let range = Range { now_s: data.now_s, from_s, until_s, time_zone };
        let x_files_factor = rng.chance(0.2).then(|| [0.0, 0.3, 0.5, 1.0][rng.below(4) as usize]);
        Self { target, range, x_files_factor }
    }

    /// Reads a recorded case.
    pub(super) fn read(line: &Value, data: &Data) -> Self {
        let time = |field: &str| line[field].as_i64().unwrap_or_else(|| panic!("no {field}"));
        Self {
            target: line["target"].as_str().expect("no target").into(),
            range: Range {
                now_s: data.now_s,
                from_s: time("from"),
                until_s: time("until"),
                time_zone: "UTC",
            },
            x_files_factor: line["xFilesFactor"].as_f64(),
        }
    }

    /// Compares an answer of graphite-web with Floodmark's.
    pub(super) fn check(&self, reply: Reply, floodmark: &Floodmark) -> Result<Found, String> {
        self.compare(reply, floodmark.render(&self.target, self.range, self.x_files_factor))
    }

    fn compare(&self, reply: Reply, ours: Result<Vec<Line>, query::QueryError>) -> Result<Found, String> {
        match (reply, ours) {
            // an exception is not an answer to compare with, but Floodmark must survive the target
            (Reply::Crashed, _) => Ok(Found::Crashed),
            (Reply::Refused(_), Err(_)) => Ok(Found::Refused),
            (Reply::Refused(error), Ok(ours)) => {
                Err(format!("graphite-web refused: {error}\nfloodmark answered: {}", shown(&ours)))
            }
            // a choice of those in `choices.rs`
            (Reply::Series(theirs), Err(error))
                if theirs.iter().all(has_no_value) && error.to_string().contains("a season must have") =>
            {
                Ok(Found::Refused)
            }
            (Reply::Series(theirs), Err(error)) => {
                Err(format!("graphite-web answered: {}\nfloodmark refused: {error}", shown(&theirs)))
            }
            (Reply::Series(theirs), Ok(ours)) => match self.difference(&theirs, &ours) {
                Some(difference) => {
                    let (theirs, ours) = (shown(&theirs), shown(&ours));
                    Err(format!("{difference}\ngraphite-web: {theirs}\nfloodmark: {ours}"))
                }
                None if theirs.is_empty() => Ok(Found::Empty),
                None => Ok(Found::Same),
            },
        }
    }

    fn difference(&self, theirs: &[Line], ours: &[Line]) -> Option<String> {
        if theirs.len() != ours.len() {
            return Some(format!("{} series, and {}", theirs.len(), ours.len()));
        }
        theirs.iter().zip(ours).find_map(|(theirs, ours)| self.difference_of(theirs, ours))
    }

    /// In graphite-web, some functions make two series with one object for the tags of both, so that what is set for
    /// one is also set for the other. In Floodmark, each series has its own tags.
    fn shares_tags(&self) -> bool {
        ["areaBetween(", "holtWintersConfidence"].iter().any(|function| self.target.contains(function))
    }

    /// Whether graphite-web may have wrong times: those of percentages if the steps of the arguments differ, or a total is missing.
    fn has_wrong_times(&self) -> bool {
        let is_percent = ["asPercent(", "pct("].iter().any(|function| self.target.starts_with(function));
        is_percent && OF_OTHER_STEPS.iter().any(|text| self.target.contains(text))
    }

    fn difference_of(&self, theirs: &Line, ours: &Line) -> Option<String> {
        let shape = |line: &Line| match self.has_wrong_times() {
            true => (0, 0, 0, line.values.len()),
            false => (line.start_s, line.end_s, line.step_s, line.values.len()),
        };
        if theirs.name != ours.name {
            return Some(format!("names: {:?}, and {:?}", theirs.name, ours.name));
        }
        // functions that look back further than the data may begin after their end, and then have no values
        let is_empty = theirs.values.is_empty() && ours.values.is_empty();
        if shape(theirs) != shape(ours) && !is_empty {
            return Some(format!("start, end, step and length: {:?}, and {:?}", shape(theirs), shape(ours)));
        }
        if !self.shares_tags() && !are_same_tags(&theirs.tags, &ours.tags) {
            return Some(format!("tags: {:?}, and {:?}", theirs.tags, ours.tags));
        }
        if self.target.starts_with("randomWalk") {
            let is_walk = ours.values.windows(2).all(|pair| (pair[1] - pair[0]).abs() <= 0.5);
            return (!is_walk).then(|| "no random walk".into());
        }
        let mut values = theirs.values.iter().zip(&ours.values);
        let place = values.position(|(a, b)| !is_close(*a, *b, &theirs.values))?;
        let (a, b) = (theirs.values[place], ours.values[place]);
        Some(format!("values of {} at {place}: {a:?}, and {b:?}", theirs.name))
    }
}

fn has_no_value(line: &Line) -> bool {
    line.values.iter().all(|value| value.is_nan())
}

/// Compares two values, one of `theirs` and one of ours.
pub(super) fn is_close(a: f64, b: f64, theirs: &[f64]) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let largest = theirs.iter().filter(|v| v.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
    (a - b).abs() <= (PRECISION * a.abs().max(b.abs())).max(CANCELLATION * largest).max(UNDERFLOW)
}

/// Compares tags. Numbers may be written in another way, because graphite-web has integers too.
fn are_same_tags(theirs: &[(String, String)], ours: &[(String, String)]) -> bool {
    let number = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
    let is_same = |((tag, a), (our_tag, b)): (&(String, String), &(String, String))| {
        let (number, other) = (number(a), number(b));
        tag == our_tag && (a == b || (number - other).abs() <= PRECISION * number.abs().max(other.abs()))
    };
    theirs.len() == ours.len() && theirs.iter().zip(ours).all(is_same)
}

/// The beginning of an answer.
pub(super) fn shown(lines: &[Line]) -> String {
    let each = lines.iter().take(3).map(|line| {
        let values = &line.values[..line.values.len().min(20)];
        format!("\n  {} {}..{} by {}: {values:?}", line.name, line.start_s, line.end_s, line.step_s)
    });
    format!("{} series{}", lines.len(), each.collect::<String>())
}
