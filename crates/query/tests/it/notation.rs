//! Parser for the series and durations of scripts: `up{job="a"} 1 2 _ 3+1x4 stale`.

use model::{Labels, LabelsBuilder, STALE_NAN_BITS};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Point {
    Omitted,
    Value(f64),
    Histogram,
}

pub(crate) fn series(line: &str) -> Result<(Labels, Vec<Point>), String> {
    let (labels, rest) = labels(line)?;
    Ok((labels, sequence(rest)?))
}

/// Milliseconds of `1h30m`, `0`, `-5m`.
pub(crate) fn duration_ms(text: &str) -> Result<i64, String> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    if let Ok(number) = rest.parse::<f64>() {
        return Ok(sign * (number * 1000.0) as i64);
    }
    let mut total = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let number: i64 = rest[..digits].parse().map_err(|_| format!("bad duration {text:?}"))?;
        total += number
            * match &rest[digits..digits + letters] {
                "ms" => 1,
                "s" => 1000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                "w" => 7 * 86_400_000,
                "y" => 365 * 86_400_000,
                _ => return Err(format!("bad duration {text:?}")),
            };
        rest = &rest[digits + letters..];
    }
    Ok(sign * total)
}

/// A number in Go's syntax.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match rest.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok().map(|n| n as f64),
        None if rest.eq_ignore_ascii_case("inf") || rest.eq_ignore_ascii_case("infinity") => {
            Some(f64::INFINITY)
        }
        None if rest.eq_ignore_ascii_case("nan") => Some(f64::NAN),
        None if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') => rest.parse().ok(),
        None => None,
    };
    value.map(|v| sign * v).ok_or_else(|| format!("bad number {text:?}"))
}

/// Parses the labels at the beginning of a line. Returns them with the rest of the line.
fn labels(line: &str) -> Result<(Labels, &str), String> {
    let mut builder = LabelsBuilder::new();
    let name_len = line.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(line.len());
    builder.push("__name__", &line[..name_len]);
    let mut rest = line[name_len..].trim_start();
    if let Some(inside) = rest.strip_prefix('{').filter(|r| !r.starts_with('{')) {
        rest = inside.trim_start();
        while !rest.starts_with('}') {
            let (name, after) = if rest.starts_with(['"', '\'', '`']) {
                quoted(rest)?
            } else {
                let len = rest.find(['=', ',', '}', ' ']).unwrap_or(rest.len());
                (rest[..len].to_owned(), &rest[len..])
            };
            rest = after.trim_start();
            match rest.strip_prefix('=') {
                Some(after) => {
                    let (value, after) = quoted(after.trim_start())?;
                    builder.push(&name, &value);
                    rest = after.trim_start();
                }
                None => builder.push("__name__", &name),
            }
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
            if rest.is_empty() {
                return Err(format!("unclosed braces in {line:?}"));
            }
        }
        rest = &rest[1..];
    }
    let labels = builder.build().map_err(|e| format!("{e} in {line:?}"))?;
    Ok((labels, rest.trim()))
}

/// Parses the quoted text at the beginning. Returns its value with the rest of the text.
pub(crate) fn quoted(text: &str) -> Result<(String, &str), String> {
    let quote = text.chars().next().filter(|c| "\"'`".contains(*c));
    let quote = quote.ok_or_else(|| format!("expected a quoted text: {text:?}"))?;
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((out, &text[at + 1..])),
            '\\' if quote != '`' => {
                let escaped = chars.next().map(|(_, c)| c);
                let mut hex = |len: usize| {
                    let digits: String = chars.by_ref().take(len).map(|(_, c)| c).collect();
                    u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
                };
                let c = match escaped {
                    Some('n') => Some('\n'),
                    Some('t') => Some('\t'),
                    Some('r') => Some('\r'),
                    Some('x') => hex(2),
                    Some('u') => hex(4),
                    Some('U') => hex(8),
                    other => other,
                };
                out.push(c.ok_or_else(|| format!("bad escape in {text:?}"))?);
            }
            c => out.push(c),
        }
    }
    Err(format!("unterminated text: {text:?}"))
}

fn sequence(text: &str) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if rest.starts_with("{{") {
            let end = rest.find("}}").ok_or_else(|| format!("unclosed histogram in {text:?}"))? + 2;
            let times = rest[end..].split_whitespace().next().unwrap_or("");
            let repeats = if rest[end..].starts_with([' ', '\t']) { "" } else { times };
            let count = repeats.rsplit('x').next().and_then(|n| n.parse::<usize>().ok()).map_or(1, |n| n + 1);
            points.resize(points.len() + count, Point::Histogram);
            // a histogram that grows: `{{..}}+{{..}}x5`
            rest = match repeats.starts_with(['+', '-']) {
                true => &rest[end + 1..],
                false => rest[end + repeats.len()..].trim_start(),
            };
            continue;
        }
        let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
        item(&rest[..len], &mut points)?;
        rest = rest[len..].trim_start();
    }
    Ok(points)
}

/// Parses an item of a series and appends its points: `1`, `1x5`, `1+2x5`, `_`, `_x5`, `stale` or `stalex3`.
fn item(text: &str, points: &mut Vec<Point>) -> Result<(), String> {
    let repeated = text.rsplit_once('x').and_then(|(head, n)| Some((head, n.parse::<usize>().ok()?)));
    let (head, times) = match repeated {
        Some((head, times)) => (head, Some(times)),
        None => (text, None),
    };
    if head == "_" {
        points.resize(points.len() + times.unwrap_or(1), Point::Omitted);
        return Ok(());
    }
    let count = times.map_or(1, |n| n + 1);
    let sign_at = |(at, c): (usize, char)| {
        let after_exponent = head[..at].ends_with(['e', 'E'])
            && head[..at].starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        (at > 0 && (c == '+' || c == '-') && !after_exponent).then_some(at)
    };
    let (first, step) = match head.char_indices().find_map(sign_at) {
        Some(at) if times.is_some() => (&head[..at], number(&head[at..])?),
        _ => (head, 0.0),
    };
    if first == "stale" {
        points.resize(points.len() + count, Point::Value(f64::from_bits(STALE_NAN_BITS)));
        return Ok(());
    }
    let mut value = number(first)?;
    for _ in 0..count {
        points.push(Point::Value(value));
        value += step;
    }
    Ok(())
}

#[test]
fn notation_is_read() {
    let check = |text: &str, expected: &[f64]| {
        let values: Vec<f64> = sequence(text)
            .unwrap()
            .into_iter()
            .map(|p| match p {
                Point::Value(v) => v,
                Point::Omitted => -1.0,
                Point::Histogram => -2.0,
            })
            .collect();
        assert_eq!(values, expected, "{text}");
    };
    check("1 2 _ 3", &[1.0, 2.0, -1.0, 3.0]);
    check("1x2 1+2x2 9-3x2 _x2", &[1.0, 1.0, 1.0, 1.0, 3.0, 5.0, 9.0, 6.0, 3.0, -1.0, -1.0]);
    check("-1 0x1 1e2+1e-1x1 -2-2x1", &[-1.0, 0.0, 0.0, 100.0, 100.1, -2.0, -4.0]);
    check("{{count:1 sum:2}} {{sum:1}}x2 5", &[-2.0, -2.0, -2.0, -2.0, 5.0]);
    let (labels, _) = series(r#"a:b{x="\"", "y.z"='ü', w=`\`} 1"#).unwrap();
    assert_eq!(labels, Labels::from_pairs(&[("__name__", "a:b"), ("x", "\""), ("y.z", "ü"), ("w", "\\")]));
    assert_eq!(duration_ms("1h2m3s4ms"), Ok(3_723_004));
}
