use super::*;

/// Saturday, 2026-11-28 at 00:30 in Berlin, which is 23:30 UTC on Friday.
const NOW_S: i64 = 1_795_822_200;

fn check(text: &str, zone: &TimeZone, expected: Result<&str, &str>) {
    let found = parse(text, NOW_S, zone);
    match (found, expected) {
        (Ok(seconds), Ok(expected)) => {
            let time = jiff::Timestamp::from_second(seconds).unwrap();
            assert_eq!(time.to_string(), expected, "{text:?}");
        }
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text:?}: {error}"),
        (found, _) => panic!("{text:?}: {found:?}, expected {expected:?}"),
    }
}

#[test]
fn references_and_offsets() {
    let utc = |text: &str, expected: &str| check(text, &TimeZone::UTC, Ok(expected));
    utc("now", "2026-11-27T23:30:00Z");
    utc("", "2026-11-27T23:30:00Z");
    utc("-1h", "2026-11-27T22:30:00Z");
    utc("now-2d", "2026-11-25T23:30:00Z");
    utc("-1h30min", "2026-11-27T22:00:00Z");
    utc("-5mon", "2026-06-30T23:30:00Z");
    utc("-1y", "2025-11-27T23:30:00Z");
    utc("+10 seconds", "2026-11-27T23:30:10Z");
    utc("1795284000", "2026-11-21T18:00:00Z");
    utc("20261127", "2026-11-27T00:00:00Z");
    utc("04:00_20261127", "2026-11-27T04:00:00Z");
    utc("19001301", "1970-08-08T22:08:21Z");
    utc("11/27/26", "2026-11-27T00:00:00Z");
    utc("1/2/1999", "1999-01-02T00:00:00Z");
    utc("midnight", "2026-11-27T00:00:00Z");
    utc("noon+1day", "2026-11-28T12:00:00Z");
    utc("teatime yesterday", "2026-11-26T16:00:00Z");
    utc("6pm", "2026-11-27T18:00:00Z");
    utc("6:05pm today", "2026-11-27T18:05:00Z");
    utc("6am_tomorrow", "2026-11-28T06:00:00Z");
    utc("12am", "2026-11-27T12:00:00Z");
    utc("friday", "2026-11-27T00:00:00Z");
    utc("Monday-1w", "2026-11-16T00:00:00Z");
    utc("jan 5", "2026-01-05T00:00:00Z");
    utc("December31", "2026-12-31T00:00:00Z");
}

#[test]
fn days_are_those_of_the_time_zone() {
    let Ok(berlin) = TimeZone::get("Europe/Berlin") else { return };
    let berlin = |text: &str, expected: &str| check(text, &berlin, Ok(expected));
    berlin("now", "2026-11-27T23:30:00Z");
    berlin("midnight", "2026-11-27T23:00:00Z");
    berlin("yesterday", "2026-11-26T23:00:00Z");
    berlin("20260701", "2026-06-30T22:00:00Z");
    // clocks are set forward and back
    berlin("02:30_20260329", "2026-03-29T01:30:00Z");
    berlin("02:30_20261025", "2026-10-25T01:30:00Z");
}

#[test]
fn invalid_times_are_refused() {
    let wrong = |text: &str, part: &str| check(text, &TimeZone::UTC, Err(part));
    wrong("soon", "\"soon\" is not a day");
    wrong("-1", "\"\" is not a unit of time");
    wrong("-h", "expected a number");
    wrong("-1parsec", "\"parsec\" is not a unit");
    wrong("25:00", "out of range");
    wrong("5x:00", "\"5x\" is not an hour");
    wrong("20260230", "2026-02-30 is not a date");
    wrong("02/30/2026", "2026-02-30 is not a date");
    wrong("a/b/c", "\"a/b/c\" is not a date");
    wrong("january", "a day must follow");
    wrong("-99999999y", "a thousand years");
    wrong("99999999999999999999", "too large");
    wrong(&"1".repeat(300), "more than 256 bytes");
    wrong("ä:b", "is not an hour");
    wrong("1:ää", "is not an hour or minute");
}

#[test]
fn offsets_have_signs() {
    assert_eq!(parse_offset("1h"), Ok(3600));
    assert_eq!(parse_offset("-1d6h"), Ok(-108_000));
    assert_eq!(parse_offset(""), Ok(0));
    assert!(parse_offset("h").is_err());
    let unit = |bytes: usize| parse_offset(&format!("1s{}", "a".repeat(bytes - 2)));
    assert_eq!(unit(256), Ok(1));
    assert!(unit(257).unwrap_err().to_string().contains("more than 256 bytes"));
}
