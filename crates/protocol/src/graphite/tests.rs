use super::*;
use crate::labels::{describe_labels, labels_of};
use crate::{Body, Decoder as _, Encoding};
use model::LabelsBuilder;
use model::caps::REQUEST_SERIES_MAX;
use stdx::budget::Account;
use stdx::excerpt::EXCERPT_BYTES_MAX;

/// The samples, each with the labels of its series, and the errors.
pub(super) type Decoded = (Vec<(String, i64, f64)>, Vec<String>);

pub(super) fn decoded<D: crate::Decoder>(format: D::Format, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut memory = Account::new("test", 64 << 20).reserve(0).unwrap();
    let (mut batch, mut builder) = (Batch::default(), LabelsBuilder::new());
    let body = Body { encoding: Encoding::Identity, bytes };
    D::new(1).decode(Request { format, body }, &mut batch, &mut memory)?;
    let mut samples = Vec::new();
    for series in &batch.floats.series {
        let raw = batch.label_bytes(series);
        let labels =
            labels_of(raw, &mut builder).unwrap_or_else(|error| panic!("{error}: {}", describe_labels(raw)));
        assert_eq!(labels.as_bytes(), raw, "decoded label bytes are not canonical");
        for at in series.samples.start as usize..series.samples.end as usize {
            samples.push((labels.to_string(), batch.floats.timestamps[at], batch.floats.values[at]));
        }
    }
    Ok((samples, batch.refused.iter().map(|(error, _)| error.to_string()).collect()))
}

fn lines(text: &str) -> Decoded {
    decoded::<Decoder>(TimeOfArrival::Refused, text.as_bytes()).unwrap()
}

#[test]
fn lines_are_read_in_all_their_forms() {
    let check = |line: &str, labels: &str, timestamp_ms, value| {
        assert_eq!(lines(line), (vec![(labels.to_owned(), timestamp_ms, value)], vec![]), "{line:?}");
    };
    check("servers.web1.load 0.7 1795284000", "servers.web1.load{}", 1_795_284_000_000, 0.7);
    check("a 1 7\r\n", "a{}", 7000, 1.0);
    check("\n \n\ta\t-1e3 \t 12.3456 \n", "a{}", 12_346, -1000.0);
    check("a inf 5", "a{}", 5000, f64::INFINITY);
    check("a 1 -1", "a{}", -1000, 1.0);
    let arrival = decoded::<Decoder>(TimeOfArrival::Is(77), b"a 1 -1\nb 2 -1.0\nc 3 -2\n").unwrap().0;
    assert_eq!(arrival.iter().map(|(_, time_ms, _)| *time_ms).collect::<Vec<_>>(), [77, 77, -2000]);
    check("a 1 -2", "a{}", -2000, 1.0); // before 1970: refused later, as for any protocol
    check("a 1 99999999999999999999", "a{}", i64::MAX, 1.0);
    check("a 1 9999999999999999", "a{}", i64::MAX, 1.0);
    let tagged = r#"disk.used{Zone="é", host="web1", path="/a=b"}"#;
    check("disk.used;path=/a=b;Zone=é;host=web1 42 7", tagged, 7000, 42.0);
    check("disk.used;host=web1;empty=;Zone=é;path=/a=b 42 7", tagged, 7000, 42.0);
    check("disk.used;name=a;path=/a=b;Zone=é;host=web1;name=b 42 7", tagged, 7000, 42.0);
}

#[test]
fn lines_that_cannot_be_read_are_named_and_the_others_go_on() {
    let check = |line: &str, expected: &str| {
        let (samples, refused) = lines(&format!("first 1 1\n\n{line}\nlast 2 2"));
        assert_eq!(samples.len(), 2, "{line:?}");
        let excerpt: String = line.chars().take(EXCERPT_BYTES_MAX).collect();
        let cut = if line.len() > EXCERPT_BYTES_MAX { "…" } else { "" };
        assert_eq!(refused, [format!("line 3: {expected}, in \"{excerpt}{cut}\"")], "{line:?}");
        assert!(refused[0].len() <= 256, "longer than a text in the list of refusals: {refused:?}");
    };
    check("a", "no value");
    check("a one 1", r#"value "one" is not a number"#);
    check("a nan 1", r#"value "nan" is not a number"#);
    check("a 1", "no time");
    check("a 1 now", r#"time "now" is not a number of seconds"#);
    check("a 1 nan", r#"time "nan" is not a number of seconds"#);
    check("a 1 inf", r#"time "inf" is not a number of seconds"#);
    check("a 1 1 b", r#"unexpected text "b" after the time"#);
    check(";host=a 1 1", "no metric name before the tags");
    check("a;host 1 1", r#"tag "host" is not of the form name=value"#);
    check("a;=x 1 1", r#"tag "=x" is not of the form name=value"#);
    check("a; 1 1", r#"tag "" is not of the form name=value"#);
    check(&format!("a {} 1", "e".repeat(200)), &format!("value \"{}…\" is not a number", "e".repeat(48)));
    check(
        &format!("a 1 1 {}", "e".repeat(200)),
        &format!("unexpected text \"{}…\" after the time", "e".repeat(48)),
    );
    check(&format!("{} 1 1", "x".repeat(70_000)), "70004 bytes, the limit is 66560");
}

#[test]
fn only_the_errors_that_are_kept_have_excerpts() {
    let refused = lines(&"a\x07b one 1\n".repeat(100)).1;
    assert_eq!(refused.len(), Batch::REFUSED_KEPT_MAX);
    assert_eq!(refused[9], r#"line 10: value "one" is not a number, in "a\u{7}b one 1""#);
}

#[test]
fn lines_are_bounded_in_number() {
    let mut memory = Account::new("test", 64 << 20).reserve(0).unwrap();
    for line in ["a 1 1\n", "a\n"] {
        let bytes = line.repeat(REQUEST_SERIES_MAX + 1);
        let body = Body { encoding: Encoding::Identity, bytes: bytes.as_bytes() };
        let request = Request { format: TimeOfArrival::Refused, body };
        let decoded = Decoder::new(1).decode(request, &mut Batch::default(), &mut memory);
        assert_eq!(decoded, Err(DecodeError::TooMany { what: "lines", limit: REQUEST_SERIES_MAX }));
    }
}

#[test]
fn compressed_bodies_are_the_same_lines() {
    use std::io::Write as _;
    let text = b"a;b=c 1 1\nd 2 2\n";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text).unwrap();
    let bodies = [
        (Encoding::Identity, text.to_vec()),
        (Encoding::Gzip, gzip.finish().unwrap()),
        (Encoding::Zstd, zstd::bulk::compress(text, 3).unwrap()),
    ];
    let mut memory = Account::new("test", 64 << 20).reserve(0).unwrap();
    let (mut decoder, mut batch) = (Decoder::new(1), Batch::default());
    for (encoding, bytes) in bodies {
        let request = Request { format: TimeOfArrival::Refused, body: Body { encoding, bytes: &bytes } };
        decoder.decode(request, &mut batch, &mut memory).unwrap();
        assert_eq!(
            (&batch.floats.timestamps[..], &batch.floats.values[..]),
            (&[1000, 2000][..], &[1.0, 2.0][..]),
            "{encoding:?}"
        );
    }
}
