use super::*;
use crate::{Body, Decoder as _};
use model::caps::REQUEST_SERIES_MAX;
use model::{LabelsBuilder, SeriesKey};
use std::collections::BTreeMap;
use stdx::budget::Account;
use stdx::rng::Rng;

/// The samples, each with the labels of its series, and the errors.
type Decoded = (Vec<(String, i64, f64)>, Vec<String>);

const ARRIVAL_MS: i64 = 77;

fn format(precision: Precision, names: Names) -> Format {
    Format { precision, arrival_ms: ARRIVAL_MS, names: Arc::new(names) }
}

fn decode(format: Format, text: &[u8]) -> Result<Batch, DecodeError> {
    let mut memory = Account::new("test", 256 << 20).reserve(0).unwrap();
    let mut batch = Batch::default();
    let body = Body { encoding: Encoding::Identity, bytes: text };
    Decoder::new(1).decode(Request { format, body }, &mut batch, &mut memory)?;
    Ok(batch)
}

/// Decodes lines. Errors include those of labels, which the caller of the decoder parses.
fn decoded(format: &Format, text: &str) -> Decoded {
    let batch = decode(format.clone(), text.as_bytes()).unwrap();
    let mut samples = Vec::new();
    let mut errors: Vec<_> = batch.refused.iter().map(|(error, _)| error.to_string()).collect();
    for series in &batch.floats.series {
        match format.names.labels_of(&batch.bytes, &series.labels, &mut LabelsBuilder::new()) {
            Ok(labels) => {
                for at in series.samples.start as usize..series.samples.end as usize {
                    samples.push((labels.to_string(), batch.floats.timestamps[at], batch.floats.values[at]));
                }
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    (samples, errors)
}

fn lines(text: &str) -> Decoded {
    decoded(&format(Precision::Nanoseconds, Names::default()), text)
}

#[test]
fn lines_are_read_in_all_their_forms() {
    let check = |line: &str, expected: &[(&str, i64, f64)]| {
        let expected = expected.iter().map(|(labels, time, value)| ((*labels).to_owned(), *time, *value));
        assert_eq!(lines(line), (expected.collect(), vec![]), "{line:?}");
    };
    let time = 1_795_284_000_123;
    check("cpu usage=0.7 1795284000123456789", &[("cpu_usage{}", time, 0.7)]);
    check("cpu usage=0.7", &[("cpu_usage{}", ARRIVAL_MS, 0.7)]);
    check(
        "cpu,host=web1,cpu=0 user=1.5,sys=2i 1795284000123999999\r\n",
        &[(r#"cpu_user{cpu="0", host="web1"}"#, time, 1.5), (r#"cpu_sys{cpu="0", host="web1"}"#, time, 2.0)],
    );
    check(" \t cpu  a=1  1000000  \n\n# a comment\n", &[("cpu_a{}", 1, 1.0)]);
    check("cpu a=1 -1", &[("cpu_a{}", -1, 1.0)]);
    check("cpu a=1 -9223372036854775808", &[("cpu_a{}", -9_223_372_036_855, 1.0)]);
    check("a b=1 1000000\n\n\na b=2 2000000", &[("a_b{}", 1, 1.0), ("a_b{}", 2, 2.0)]);
    check("a,empty=,x=1 b=1 1", &[(r#"a_b{x="1"}"#, 0, 1.0)]);
    check("a,x=1=2 b=1 1", &[(r#"a_b{x="1=2"}"#, 0, 1.0)]);
    // escaped and quoted text
    check(
        r"a\,b\ c,ta\=g\,\ x=v\=a\,l\ ue\x\\ f\=i\,e\ ld=1 1",
        &[(r#"a,b c_f=i,e ld{ta=g, x="v=a,l ue\\x\\"}"#, 0, 1.0)],
    );
    check("a,\"q\"=\"r\" \"s\"=1 1", &[(r#"a_"s"{"q"="\"r\""}"#, 0, 1.0)]);
    check("größe,ort=köln wert=1 1", &[(r#"größe_wert{ort="köln"}"#, 0, 1.0)]);
}

#[test]
fn values_are_numbers_and_booleans() {
    let check = |value: &str, expected: f64| {
        let (samples, errors) = lines(&format!("a b={value},c=1 1"));
        assert_eq!(errors, [""; 0], "{value:?}");
        assert_eq!(samples[0].2.to_bits(), expected.to_bits(), "{value:?}");
    };
    check("1", 1.0);
    check("-1.25", -1.25);
    check("1.", 1.0);
    check(".5", 0.5);
    check("+1.5", 1.5);
    check("1e-3", 0.001);
    check("-1.5E+10", -1.5e10);
    check("123456789012345678901234567890", 123_456_789_012_345_678_901_234_567_890.0);
    check("42i", 42.0);
    check("-0i", 0.0);
    check("-9223372036854775808i", -9_223_372_036_854_775_808.0);
    check("9223372036854775807i", 9_223_372_036_854_775_807.0);
    check("18446744073709551615u", 18_446_744_073_709_551_615.0);
    ["t", "T", "true", "True", "TRUE"].iter().for_each(|text| check(text, 1.0));
    ["f", "F", "false", "False", "FALSE"].iter().for_each(|text| check(text, 0.0));
}

#[test]
fn lines_that_cannot_be_read_are_named_and_the_others_go_on() {
    let check = |line: &str, expected: &str| {
        let (samples, refused) = lines(&format!("first a=1 1\n\n{line}\nlast a=2 2"));
        assert_eq!(samples.len(), 2, "{line:?}");
        assert_eq!(refused, [expected], "{line:?}");
    };
    check("cpu", "line 3: no field");
    check("cpu ", "line 3: no field");
    check("cpu,host=a\r", "line 3: no field");
    check(",host=a x=1", "line 3: no measurement");
    check("cpu x", r#"line 3: field "x" has no value"#);
    check("cpu x 1", r#"line 3: field "x" has no value"#);
    check("cpu x=", r#"line 3: field "x" has no value"#);
    check("cpu x=,y=1", r#"line 3: field "x" has no value"#);
    check("cpu =1", "line 3: a field has no name");
    check("cpu x=1,", "line 3: no field");
    check("cpu x=1,y=one", r#"line 3: value "one" of field "y" is neither a number nor a boolean"#);
    for value in
        ["nan", "NaN", "inf", "-Inf", "infinity", "1e400", "0x10", "1_000", "1.5i", "i", "-1u", "tRUE"]
    {
        let why = format!("line 3: value {value:?} of field \"x\" is neither a number nor a boolean");
        check(&format!("cpu x={value} 7"), &why);
    }
    check(
        "cpu x=9223372036854775808i",
        r#"line 3: value "9223372036854775808i" of field "x" is neither a number nor a boolean"#,
    );
    check("cpu x=1 now", r#"line 3: time "now" is not an integer"#);
    check("cpu x=1 1.5", r#"line 3: time "1.5" is not an integer"#);
    check("cpu x=1 99999999999999999999", r#"line 3: time "99999999999999999999" is not an integer"#);
    check("cpu x=1 1 2", r#"line 3: unexpected text "2" after the fields and the time"#);
    check(r#"cpu x="a"b 1"#, r#"line 3: unexpected text after the string of field "x""#);
    check(r#"cpu x="a 1"#, r#"line 3: the string of field "x" does not end"#);
    check("cpu,host x=1 1", r#"tag "host" is not of the form name=value"#);
    check("cpu,=a x=1 1", r#"tag "=a" is not of the form name=value"#);
    check("cpu, x=1 1", r#"tag "" is not of the form name=value"#);
    check("cpu,a=1,a=2 x=1 1", r#"label name "a" is not unique"#);
    check("cpu,__name__=1 x=1 1", r#"label name "__name__" is not unique"#);
    let long = "x".repeat(HEAD_BYTES_MAX);
    check(&format!("{long}y a=1"), "line 3: measurement and tags have 131073 bytes, the limit is 131072");
    let long = "x".repeat(FIELD_NAME_BYTES_MAX + 1);
    check(&format!("a {long}=1"), "line 3: name of a field has 32769 bytes, the limit is 32768");
}

#[test]
fn strings_are_refused_by_name_and_the_other_fields_are_kept() {
    let text = concat!(
        "cpu,host=a state=\"on, \\\"= 1\nx y=2\",load=1,note=\"\" 1000000\n",
        "cpu,host=a load=x 2\n",
        "cpu,host=a load=2 3000000",
    );
    let (samples, errors) = lines(text);
    assert_eq!(
        samples,
        [(r#"cpu_load{host="a"}"#.to_owned(), 1, 1.0), (r#"cpu_load{host="a"}"#.to_owned(), 3, 2.0)]
    );
    assert_eq!(
        errors,
        [
            r#"line 1: field "state" of "cpu" is a string, which cannot be stored"#,
            r#"line 2: field "note" of "cpu" is a string, which cannot be stored"#,
            r#"line 3: value "x" of field "load" is neither a number nor a boolean"#,
        ]
    );
    // a line that cannot be read counts as one error, whatever its fields are
    let batch =
        decode(format(Precision::Seconds, Names::default()), b"a b=\"x\",c=1,d=\"y\" z\na b=1 1").unwrap();
    assert_eq!((batch.refused_series, batch.refused_samples, batch.refused.len()), (1, 1, 1));
    assert_eq!((&batch.floats.values[..], &batch.floats.timestamps[..]), (&[1.0][..], &[1000][..]));
    assert_eq!(batch.floats.series.len(), 1);
}

#[test]
fn times_have_the_precision_of_the_request() {
    for (name, time, expected) in [
        ("", 1_999_999, 1),
        ("n", 1_999_999, 1),
        ("ns", -1, -1),
        ("u", 1999, 1),
        ("us", 1999, 1),
        ("µ", -1, -1),
        ("ms", 1795, 1795),
        ("s", 1795, 1_795_000),
        ("m", 2, 120_000),
        ("h", 2, 7_200_000),
        ("h", i64::MAX, i64::MAX),
        ("s", i64::MIN, i64::MIN),
    ] {
        let format = format(Precision::parse(name).unwrap(), Names::default());
        let (samples, errors) = decoded(&format, &format!("a b=1 {time}\n"));
        assert_eq!((samples[0].1, errors.len()), (expected, 0), "{name} {time}");
    }
    for name in ["x", "NS", "sec", " s"] {
        assert_eq!(Precision::parse(name), None, "{name:?}");
    }
}

#[test]
fn names_follow_the_rule_of_the_tenant() {
    let check = |names: Names, line: &str, expected: &str| {
        let (samples, errors) = decoded(&format(Precision::Nanoseconds, names), line);
        assert_eq!(
            (samples.iter().map(|(l, ..)| l.as_str()).collect::<Vec<_>>(), errors),
            (vec![expected], vec![])
        );
    };
    let (joined, label) = (NameRule::MeasurementAndField, NameRule::FieldAsLabel);
    check(Names::new(joined, None), "cpu,a=1 b=2 1", r#"cpu_b{a="1"}"#);
    check(Names::new(label, None), "cpu,a=1 b=2 1", r#"cpu{a="1", field="b"}"#);
    check(Names::new(joined, Some(("db", "telegraf"))), "cpu b=2 1", r#"cpu_b{db="telegraf"}"#);
    check(Names::new(joined, Some(("db", "telegraf"))), "cpu,db=own b=2 1", r#"cpu_b{db="own"}"#);
    check(Names::new(joined, Some(("db", ""))), "cpu b=2 1", "cpu_b{}");
    check(Names::new(joined, Some(("", "x"))), "cpu b=2 1", "cpu_b{}");
    let (_, errors) = decoded(&format(Precision::Nanoseconds, Names::new(label, None)), "cpu,field=1 b=2 1");
    assert_eq!(errors, [r#"label name "field" is not unique"#]);
}

/// Each series has one key as it is sent, and different series or rules have different keys.
#[test]
fn keys_tell_series_apart() {
    let mut seen: BTreeMap<SeriesKey, (String, Names)> = BTreeMap::new();
    let all = [
        Names::default(),
        Names::new(NameRule::FieldAsLabel, None),
        Names::new(NameRule::default(), Some(("db", "a"))),
        Names::new(NameRule::default(), Some(("db", "b"))),
    ];
    let mut rng = Rng::announced();
    for _ in 0..20_000 {
        let names = all[rng.below(4) as usize].clone();
        let (host, rack, field) = (rng.below(5), rng.below(3), rng.below(6));
        let line = format!("cpu,host={host},rack={rack} x=1,f{field}={}i,y=2 {}", rng.below(9), rng.below(9));
        let batch = decode(format(Precision::Seconds, names.clone()), line.as_bytes()).unwrap();
        assert_eq!(batch.floats.series.len(), 3);
        let uppers: Vec<_> = batch.floats.series.iter().map(|series| series.key.0 >> 64).collect();
        assert!(uppers.iter().all(|upper| *upper == uppers[0]), "fields of one line are found together");
        for series in &batch.floats.series {
            let labels = names.labels_of(&batch.bytes, &series.labels, &mut LabelsBuilder::new()).unwrap();
            let now = (labels.to_string(), names.clone());
            let before = seen.entry(series.key).or_insert_with(|| now.clone());
            assert_eq!(*before, now);
        }
    }
    let count = 4 * 5 * 3 * 8;
    assert_eq!(seen.len(), count);
}

#[test]
fn fields_are_bounded_in_number() {
    let seconds = || format(Precision::Seconds, Names::default());
    let limit = DecodeError::TooMany { what: "fields", limit: REQUEST_SERIES_MAX };
    for line in ["a b=1 1\n", "a\n", "a b=\"x\"\n"] {
        let text = line.repeat(REQUEST_SERIES_MAX + 1);
        assert_eq!(decode(seconds(), text.as_bytes()).unwrap_err(), limit, "{line:?}");
    }
    let text = format!("a b=1{} 1", ",b=1".repeat(REQUEST_SERIES_MAX - 1));
    assert_eq!(decode(seconds(), text.as_bytes()).unwrap().floats.values.len(), REQUEST_SERIES_MAX);
    let text = format!("a b=1{} 1", ",b=1".repeat(REQUEST_SERIES_MAX));
    assert_eq!(decode(seconds(), text.as_bytes()).unwrap_err(), limit);
}

const LABEL_BYTES: &str = "bytes of labels, counted for each value";

/// The labels of each field are parsed on their own, so a large head with many fields would take seconds.
#[test]
fn labels_that_fields_share_are_bounded() {
    let check = |head_bytes: usize, fields: usize, limit: Option<usize>| {
        let head = (0..).map(|i| format!(",t{i}=1")).scan(1, |bytes, tag| {
            *bytes += tag.len();
            (*bytes <= head_bytes).then_some(tag)
        });
        let text = format!("m{} {}", head.collect::<String>(), vec!["a=1"; fields].join(","));
        let decoded = decode(format(Precision::Seconds, Names::default()), text.as_bytes());
        let counted = decoded.map(|batch| batch.floats.values.len());
        let limit = limit.map(|base| base.min((1 << 20) + 128 * text.len()));
        let expected =
            limit.map_or(Ok(fields), |limit| Err(DecodeError::TooMany { what: LABEL_BYTES, limit }));
        assert_eq!(counted, expected, "{head_bytes} {fields}");
    };
    check(32 << 10, 8000, Some(usize::MAX));
    check(128 << 10, REQUEST_SERIES_MAX, Some(256 << 20));
    check(32 << 10, 100, None);
    check(500, 8000, None);
    check(500, REQUEST_SERIES_MAX, None);
    // the largest body of a sender with 300 bytes of tags and 100 fields a line
    let fields = (0..100).map(|i| format!("usage_of_the_cpu_{i}=1.5")).collect::<Vec<_>>().join(",");
    let text = format!("m,host={} {fields} 1\n", "x".repeat(300)).repeat(REQUEST_SERIES_MAX / 100);
    let batch = decode(format(Precision::Seconds, Names::default()), text.as_bytes()).unwrap();
    assert_eq!(batch.floats.values.len(), REQUEST_SERIES_MAX);
    // nobody parses the labels of lines that cannot be read
    let bad = format!("{} {} never\n", "x".repeat(30 << 10), vec!["a=1"; 200].join(","));
    let batch = decode(format(Precision::Seconds, Names::default()), bad.repeat(50).as_bytes()).unwrap();
    assert_eq!((batch.refused_series, batch.floats.values.len()), (50, 0));
}

/// Labels are read only until it is clear that they are invalid.
#[test]
fn labels_are_not_read_to_their_end_if_they_are_invalid() {
    let errors = |tags: &[(usize, usize)]| {
        let tags = tags.iter().flat_map(|(count, bytes)| (0..*count).map(|i| (i, "x".repeat(*bytes))));
        let head: String = tags.map(|(i, value)| format!(",t{i}={value}")).collect();
        lines(&format!("m{head},end x=1 1")).1
    };
    assert_eq!(errors(&[(128, 1)]), [r#"tag "end" is not of the form name=value"#]);
    assert_eq!(errors(&[(1000, 1)]), ["series has 129 labels, the limit is 128"]);
    assert_eq!(errors(&[(1000, 0)]), [r#"tag "end" is not of the form name=value"#], "no labels");
    let bytes = 5 * (2 + (15 << 10));
    assert_eq!(errors(&[(8, 15 << 10)]), [format!("labels take {bytes} bytes together, the limit is 65536")]);
}

/// A string without an end costs its own line only.
#[test]
fn a_quote_without_an_end_does_not_take_the_following_lines() {
    let text = format!("a b=\"x 1\n{}", "a b=1 1\n".repeat(1000));
    let batch = decode(format(Precision::Seconds, Names::default()), text.as_bytes()).unwrap();
    assert_eq!((batch.floats.values.len(), batch.refused_series), (1000, 1));
}
