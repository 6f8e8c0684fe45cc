//! Random times in the style of `at`: they mean what they mean to graphite-web, and are refused if graphite-web refuses them.

use super::oracle::Oracle;
use jiff::tz::TimeZone;
use query::graphite::at_time;
use stdx::rng::Rng;

/// The first and the last year of dates. The time zones of graphite-web have no summer time after 2037.
const YEARS: (u64, u64) = (1970, 2036);

/// Times in each request to graphite-web. All of them have the same present time and time zone.
const TIMES: usize = 300;

const REQUESTS: usize = 24;

/// With `FLOODMARK_LONG=1`, this many times as many requests.
const LONG: usize = 50;

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "America/Sao_Paulo"];

const DAYS: [&str; 24] = [
    "today",
    "yesterday",
    "tomorrow",
    "mon",
    "Monday",
    "tue",
    "tuesday",
    "wed",
    "thu",
    "Thursday",
    "fri",
    "Saturday",
    "sun",
    "jan 5",
    "January31",
    "feb 29",
    "feb 30",
    "march 1",
    "Apr31",
    "may 10",
    "Jul 04",
    "October 25",
    "dec31",
    "december",
];

const UNITS: [&str; 23] = [
    "s", "sec", "second", "seconds", "min", "mins", "minute", "minutes", "h", "hour", "hours", "d", "day",
    "days", "w", "week", "weeks", "mon", "month", "months", "y", "year", "years",
];

/// What is put anywhere in a text that would mean something without it. A minus is not among them: graphite-web takes numbers
/// with a sign as years, such as `05/21/-1970+1h`. Digits would lead to later [`YEARS`].
const NOISE: [&str; 11] = ["_", " ", ",", ":", "/", "+", "am", "pm", "x", "noon", "now"];

#[test]
fn times_mean_what_they_mean_to_graphite_web() {
    let Some(mut oracle) = Oracle::start() else { return };
    if ZONES.iter().any(|zone| TimeZone::get(zone).is_err()) {
        return stdx::skipped::for_want_of("time zones (apt-get install tzdata)");
    }
    let mut rng = Rng::announced();
    let requests = REQUESTS * if std::env::var_os("FLOODMARK_LONG").is_some() { LONG } else { 1 };
    let (mut same, mut refused, mut differences) = (0, 0, Vec::new());
    for _ in 0..requests {
        let zone = ZONES[rng.below(ZONES.len() as u64) as usize];
        // September 2001 to May 2033
        let now_s = 1_000_000_000 + rng.below(1_000_000_000) as i64;
        let texts: Vec<String> = (0..TIMES).map(|_| random_time(&mut rng)).collect();
        let theirs = oracle.times(&texts, now_s, zone);
        let time_zone = TimeZone::get(zone).expect("BUG: the zone was found before");
        for (text, theirs) in texts.iter().zip(theirs) {
            match (at_time::parse(text, now_s, &time_zone), theirs) {
                (Ok(ours), Some(theirs)) if ours == theirs => same += 1,
                (Err(_), None) => refused += 1,
                (ours, theirs) => differences.push(format!(
                    "{text:?} at {now_s} in {zone}: graphite-web {theirs:?}, floodmark {ours:?}"
                )),
            }
        }
    }
    stdx::skipped::score(&format!(
        "Graphite: {same} random times mean what they mean to graphite-web, {refused} are refused by both"
    ));
    differences.truncate(40);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(same > requests * TIMES / 2, "only {same} times mean something");
}

fn random_time(rng: &mut Rng) -> String {
    let mut text = match rng.below(10) {
        // not eight digits, which may be a date
        0 => format!(
            "{}",
            if rng.chance(0.5) { rng.below(10_000_000) } else { 1_000_000_000 + rng.below(1 << 30) }
        ),
        1 => format!("{}{:04}", year(rng), rng.below(2000)),
        _ => reference(rng) + &offset(rng),
    };
    if rng.chance(0.1) {
        let noise = NOISE[rng.below(NOISE.len() as u64) as usize];
        let at = rng.below(text.len() as u64 + 1) as usize;
        text.insert_str(at, noise);
    }
    if rng.chance(0.1) { text.to_uppercase() } else { text }
}

fn reference(rng: &mut Rng) -> String {
    if rng.chance(0.3) {
        return ["", "now"][rng.below(2) as usize].into();
    }
    let separator = ["", " ", "_", ", "][rng.below(4) as usize];
    let hours = if rng.chance(0.1) { 30 } else { 24 };
    let (hour, minute) = (rng.below(hours), rng.below(60));
    let time = match rng.below(9) {
        0 | 1 => String::new(),
        2 => format!("{hour}:{minute:02}"),
        3 => format!("{hour:02}:{minute:02}"),
        4 => format!("{}:{minute:02}{}", 1 + hour % 12, ["am", "pm"][rng.below(2) as usize]),
        5 => format!("{}{}", 1 + hour % 12, ["am", "pm"][rng.below(2) as usize]),
        6 => "noon".into(),
        7 => "midnight".into(),
        _ => "teatime".into(),
    };
    let (month, day) = (1 + rng.below(12), 1 + rng.below(31));
    let day = match rng.below(6) {
        0 => String::new(),
        1 => format!("{month}/{day}/{:02}", year(rng) % 100),
        2 => format!("{month:02}/{day:02}/{}", year(rng)),
        3 => format!("{}{month:02}{day:02}", year(rng)),
        _ => DAYS[rng.below(DAYS.len() as u64) as usize].into(),
    };
    time + separator + &day
}

fn year(rng: &mut Rng) -> u64 {
    YEARS.0 + rng.below(YEARS.1 - YEARS.0 + 1)
}

fn offset(rng: &mut Rng) -> String {
    if rng.chance(0.4) {
        return String::new();
    }
    let mut text = String::from(["-", "+"][rng.below(2) as usize]);
    for _ in 0..=rng.below(2) {
        let unit = UNITS[rng.below(UNITS.len() as u64) as usize];
        // the years stay those of both programs
        let most = if unit.starts_with('y') { 20 } else { 400 };
        text += &format!("{}{unit}", rng.below(most));
    }
    text
}
