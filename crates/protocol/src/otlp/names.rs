//! Names of metrics and labels, as Prometheus names them.
//!
//! ```text
//!   name "http.server.duration", unit "ms", histogram  ─▶ http_server_duration_milliseconds
//!   name "requests", unit "{request}", counter         ─▶ requests_total
//!   attribute "http.method"                            ─▶ http_method
//! ```
//!
//! Source: the module `otlptranslator` that Prometheus 3.5 uses.

use super::translation::Naming;
use std::borrow::Cow;

/// The types of metrics to which naming pays attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A monotonic sum.
    Counter,
    Gauge,
    Other,
}

/// Appends the name of a metric. The name may become empty, if it has no character that is allowed.
pub(super) fn put_metric_name(out: &mut Vec<u8>, sent: &[u8], unit: &[u8], kind: NameKind, naming: Naming) {
    let (name, unit) = (&*String::from_utf8_lossy(sent), &*String::from_utf8_lossy(unit));
    match naming {
        Naming::EscapedWithSuffixes => put_escaped_with_suffixes(out, name, unit, kind),
        Naming::Escaped => {
            let is_valid = |c: char| is_letter_or_digit(c) || matches!(c, ':' | '_');
            let words = name.split(|c| !is_valid(c)).filter(|word| !word.is_empty());
            put_joined(out, words);
        }
        Naming::WithSuffixes => {
            out.extend_from_slice(sent);
            put_suffixes(out, unit, kind);
        }
        Naming::Unchanged => out.extend_from_slice(sent),
    }
}

/// Appends the name of a label.
pub(super) fn put_label_name(out: &mut Vec<u8>, key: &[u8], naming: Naming) {
    if !naming.escapes() {
        return out.extend_from_slice(key);
    }
    match key {
        [b'0'..=b'9', ..] => out.extend_from_slice(b"key_"),
        [first, ..] if !first.is_ascii_alphanumeric() => {
            // a name may begin with two underscores, but not with one
            let mut chars = key.utf8_chunks().flat_map(|chunk| {
                let invalid = std::iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len());
                chunk.valid().chars().chain(invalid)
            });
            if chars.nth(1).is_none_or(is_letter_or_digit) {
                out.extend_from_slice(b"key");
            }
        }
        _ => {}
    }
    for chunk in key.utf8_chunks() {
        let replaced = chunk.valid().chars().map(|c| if is_letter_or_digit(c) { c as u8 } else { b'_' });
        out.extend(replaced);
        // each byte that is not valid counts as one character, as it does in Go
        out.extend(std::iter::repeat_n(b'_', chunk.invalid().len()));
    }
}

const fn is_letter_or_digit(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

fn put_escaped_with_suffixes(out: &mut Vec<u8>, name: &str, unit: &str, kind: NameKind) {
    let is_valid = |c: char| is_letter_or_digit(c) || c == ':';
    let mut words: Vec<Cow<'_, str>> =
        name.split(|c| !is_valid(c)).filter(|word| !word.is_empty()).map(Cow::Borrowed).collect();
    let Unit { main, per } = Unit::of(unit);
    let mut main = cleaned(main);
    let per = if per.is_empty() { String::new() } else { cleaned(&format!("per_{per}")) };
    let per = per.strip_suffix('_').unwrap_or(&per);
    let per = if per == "per" { "" } else { per };
    if words.iter().any(|word| *word == main) {
        main.clear();
    }
    if !per.is_empty()
        && let Some(end) = main.strip_suffix('_').map(str::len)
    {
        main.truncate(end);
    }
    let suffixes = [main.as_str(), per].into_iter().filter(|suffix| !suffix.is_empty());
    words.extend(suffixes.map(|suffix| Cow::Owned(suffix.to_owned())));
    let last = match kind {
        NameKind::Counter => Some("total"),
        NameKind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(last) = last {
        words.retain(|word| word != last);
        words.push(Cow::Borrowed(last));
    }
    put_joined(out, words.iter().map(AsRef::as_ref));
}

/// Joins words by underscores. A name must not begin with a digit.
fn put_joined<'a>(out: &mut Vec<u8>, words: impl Iterator<Item = &'a str>) {
    for (number, word) in words.enumerate() {
        if number > 0 || word.starts_with(|c: char| c.is_ascii_digit()) {
            out.push(b'_');
        }
        out.extend_from_slice(word.as_bytes());
    }
}

/// Appends the suffixes of a name that is not escaped.
fn put_suffixes(out: &mut Vec<u8>, unit: &str, kind: NameKind) {
    let Unit { main, per } = Unit::of(unit);
    let mut put = |pieces: [&str; 2]| {
        out.push(b'_');
        pieces.iter().for_each(|piece| out.extend_from_slice(piece.as_bytes()));
    };
    if !main.is_empty() {
        put([main, ""]);
    }
    if !per.is_empty() {
        put(["per_", per]);
    }
    match kind {
        NameKind::Counter => put(["total", ""]),
        NameKind::Gauge if unit == "1" => put(["ratio", ""]),
        _ => {}
    }
}

/// A unit in words, such as `bytes` per `second`. Both parts may be empty.
struct Unit<'a> {
    main: &'a str,
    per: &'a str,
}

impl<'a> Unit<'a> {
    /// Parses a unit in the notation of UCUM, such as `By/s`. Annotations in braces are no unit.
    fn of(unit: &'a str) -> Self {
        let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
        let known = |part: &'a str| Some(part.trim()).filter(|part| !part.contains(['{', '}']));
        Self {
            main: known(main).map_or("", |main| main_word(main).unwrap_or(main)),
            per: known(per).map_or("", |per| per_word(per).unwrap_or(per)),
        }
    }
}

fn main_word(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "d" => "days",
        "h" => "hours",
        "min" => "minutes",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "ns" => "nanoseconds",
        "By" => "bytes",
        "KiBy" => "kibibytes",
        "MiBy" => "mebibytes",
        "GiBy" => "gibibytes",
        "TiBy" => "tibibytes",
        "KBy" => "kilobytes",
        "MBy" => "megabytes",
        "GBy" => "gigabytes",
        "TBy" => "terabytes",
        "m" => "meters",
        "V" => "volts",
        "A" => "amperes",
        "J" => "joules",
        "W" => "watts",
        "g" => "grams",
        "Cel" => "celsius",
        "Hz" => "hertz",
        "1" => "",
        "%" => "percent",
        _ => return None,
    })
}

fn per_word(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "s" => "second",
        "m" => "minute",
        "h" => "hour",
        "d" => "day",
        "w" => "week",
        "mo" => "month",
        "y" => "year",
        _ => return None,
    })
}

/// Replaces characters that names may not have by underscores, of which none is at the beginning and no two are side by
/// side.
fn cleaned(unit: &str) -> String {
    let mut clean = String::with_capacity(unit.len());
    for c in unit.chars() {
        if is_letter_or_digit(c) || c == ':' {
            clean.push(c);
        } else if !clean.is_empty() && !clean.ends_with('_') {
            clean.push('_');
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, unit: &str, kind: NameKind, naming: Naming) -> String {
        let mut out = Vec::new();
        put_metric_name(&mut out, name.as_bytes(), unit.as_bytes(), kind, naming);
        String::from_utf8(out).unwrap()
    }

    /// The expected names are those of `otlptranslator` at the version that Prometheus 3.5 uses.
    #[test]
    fn metrics() {
        use NameKind::{Counter, Gauge, Other};
        let check = |name: &str, unit: &str, kind, expected: [&str; 4]| {
            let namings =
                [Naming::EscapedWithSuffixes, Naming::Escaped, Naming::WithSuffixes, Naming::Unchanged];
            assert_eq!(namings.map(|naming| metric(name, unit, kind, naming)), expected);
        };
        check(
            "http.server.duration",
            "ms",
            Other,
            [
                "http_server_duration_milliseconds",
                "http_server_duration",
                "http.server.duration_milliseconds",
                "http.server.duration",
            ],
        );
        check("requests", "{request}", Counter, ["requests_total", "requests", "requests_total", "requests"]);
        check(
            "total.of.total",
            "",
            Counter,
            ["of_total", "total_of_total", "total.of.total_total", "total.of.total"],
        );
        check("use", "1", Gauge, ["use_ratio", "use", "use_ratio", "use"]);
        check("use", "1", Counter, ["use_total", "use", "use_total", "use"]);
        check("use", "1", Other, ["use", "use", "use", "use"]);
        check("disk.bytes", "By", Other, ["disk_bytes", "disk_bytes", "disk.bytes_bytes", "disk.bytes"]);
        check("io", "By/s", Gauge, ["io_bytes_per_second", "io", "io_bytes_per_second", "io"]);
        check("io", "{packet}/min", Gauge, ["io_per_min", "io", "io_per_min", "io"]);
        check("io", " s / m ", Gauge, ["io_seconds_per_minute", "io", "io_seconds_per_minute", "io"]);
        check("io", "a/b/c", Gauge, ["io_a_per_b_c", "io", "io_a_per_b/c", "io"]);
        check("x", "__a  b__", Gauge, ["x_a_b_", "x", "x___a  b__", "x"]);
        check("x", "a_/s", Gauge, ["x_a_per_second", "x", "x_a__per_second", "x"]);
        check("x", "1/€", Gauge, ["x", "x", "x_per_€", "x"]);
        check("2xx", "", Gauge, ["_2xx", "_2xx", "2xx", "2xx"]);
        check("__a__b:c__", "", Other, ["a_b:c", "__a__b:c__", "__a__b:c__", "__a__b:c__"]);
        check(
            "größe.ms",
            "ms",
            Other,
            ["gr_e_ms_milliseconds", "gr_e_ms", "größe.ms_milliseconds", "größe.ms"],
        );
        check("...", "", Gauge, ["", "", "...", "..."]);
        check("", "s", Gauge, ["seconds", "", "_seconds", ""]);
    }

    #[test]
    fn labels() {
        let check = |key: &[u8], expected: &str| {
            let mut out = Vec::new();
            put_label_name(&mut out, key, Naming::EscapedWithSuffixes);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{key:?}");
            out.clear();
            put_label_name(&mut out, key, Naming::Unchanged);
            assert_eq!(out, key);
        };
        check(b"", "");
        check(b"http.method", "http_method");
        check(b"job", "job");
        check(b"a:b", "a_b");
        check(b"0.5", "key_0_5");
        check(b"_x", "key_x");
        check(b".x", "key_x");
        check(b"_", "key_");
        check(b"__x", "__x");
        check(b"..x", "__x");
        check("é".as_bytes(), "key_");
        check("ééx".as_bytes(), "__x");
        check("xé".as_bytes(), "x_");
        check(b"\xff\xfex", "__x");
        check(b"\xffx", "key_x");
        check(b"\xe2\x82x", "__x");
    }
}
