use super::*;
use crate::SharedLabels;
use proptest::prelude::*;

fn read(line: &str) -> Result<(Labels, Samples), String> {
    let mut samples = Samples::default();
    let labels =
        parse(line.as_bytes(), &mut LabelsBuilder::new(), &mut samples).map_err(|e| e.to_string())?;
    Ok((labels.map_err(|e| e.to_string())?, samples))
}

fn bits(samples: &Samples) -> Vec<u64> {
    samples.values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn reads_what_victoriametrics_writes() {
    let line = r#"{"metric":{"__name__":"up","job":"a\"\u00e9\ud83d\ude00"},"values":[1,2.5e-3,null,"Infinity","-Infinity"],"timestamps":[1000,2000,3000,4000,5000]}"#;
    let (labels, samples) = read(line).unwrap();
    assert_eq!(labels, Labels::from_pairs(&[("__name__", "up"), ("job", "a\"é😀")]));
    assert_eq!(samples.timestamps, [1000, 2000, 3000, 4000, 5000]);
    assert_eq!(samples.values[..2], [1.0, 0.0025]);
    assert_eq!(samples.values[2].to_bits(), STALE_NAN_BITS);
    assert_eq!(samples.values[3..], [f64::INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn says_what_is_wrong() {
    let check = |line: &str, expected: &str| {
        let error = read(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    };
    check("", "expected an object");
    check("{}", "missing \"metric\"");
    check(r#"{"metric":{}}"#, "no metric name");
    check(r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[]}"#, "the numbers of values");
    check(r#"{"metric":{"__name__":"up"},"values":[true]}"#, "expected a number");
    check(r#"{"metric":{"__name__":"up"},"values":["x"]}"#, "a string that is not NaN or Infinity");
    check(r#"{"metric":{"__name__":"up"}} x"#, "trailing characters");
    check(r#"{"metric":{"__name__":"\ud800"}}"#, "unpaired surrogate");
    check(&"[".repeat(100_000), "expected an object");
    check(&format!(r#"{{"x":{}"#, "[".repeat(100_000)), "nested too deeply");
}

proptest! {
    #[test]
    fn round_trips(
        value in ".{0,20}",
        samples in prop::collection::vec((any::<i64>(), any::<u64>()), 0..20),
    ) {
        let value = format!("x{value}");
        let labels = Labels::from_pairs(&[("__name__", "m"), ("l", &value)]);
        let timestamps: Vec<i64> = samples.iter().map(|s| s.0).collect();
        let mut values: Vec<f64> = samples.iter().map(|s| f64::from_bits(s.1)).collect();
        values.extend([f64::from_bits(STALE_NAN_BITS), -0.0, f64::MAX, f64::MIN_POSITIVE]);
        let timestamps = [timestamps, vec![0, 1, 2, i64::MAX]].concat();
        let mut line = Vec::new();
        put_line(&mut line, labels.as_ref(), &timestamps, &values);
        let (read_labels, read) = read(std::str::from_utf8(&line).unwrap()).unwrap();
        // the text has a single NaN, so the different bits of other NaNs are lost
        for v in &mut values {
            if v.is_nan() && v.to_bits() != STALE_NAN_BITS {
                *v = NAN;
            }
        }
        prop_assert_eq!(read_labels, labels);
        prop_assert_eq!(bits(&read), bits(&Samples { timestamps: timestamps.clone(), values }));
        prop_assert_eq!(read.timestamps, timestamps);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, &mut LabelsBuilder::new(), &mut Samples::default());
    }
}

fn decoded(text: &str, labels: SharedLabels) -> (Vec<(String, i64, u64)>, Vec<String>) {
    use crate::{Body, Decoder as _, Encoding, LabelForm as _};
    let labels = std::sync::Arc::new(labels);
    let format = Format { labels: std::sync::Arc::clone(&labels), first_line: 11 };
    let mut memory = stdx::budget::Account::new("test", 64 << 20).reserve(0).unwrap();
    let mut batch = model::Batch::default();
    let body = Body { encoding: Encoding::Identity, bytes: text.as_bytes() };
    Decoder::new(1).decode(crate::Request { format, body }, &mut batch, &mut memory).unwrap();
    let mut errors: Vec<_> = batch.refused.iter().map(|(error, _)| error.to_string()).collect();
    let mut samples = Vec::new();
    for series in &batch.floats.series {
        match labels.labels_of(&batch.bytes, &series.labels, &mut LabelsBuilder::new()) {
            Ok(labels) => {
                for at in series.samples.start as usize..series.samples.end as usize {
                    let bits = batch.floats.values[at].to_bits();
                    samples.push((labels.to_string(), batch.floats.timestamps[at], bits));
                }
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    (samples, errors)
}

/// A request has the samples of its lines, as they are read one by one.
#[test]
fn requests_are_lines() {
    let lines = [
        r#"{"metric":{"__name__":"up","job":"a\"\u00e9"},"values":[1,2.5e-3,null,"Infinity","NaN"],"timestamps":[1,2,3,4,5]}"#,
        r#" { "timestamps" : [ 7 , 8 ] , "more" : [{}] , "values" : [ -1.50 , 7.0 ] , "metric" : { "__name__" : "x" } } "#,
        r#"{"metric":{"__name__":"y"},"values":[],"timestamps":[]}"#,
        r#"{"metric":{"__name__":"z"},"values":[9],"values":[1,2],"timestamps":[1,2],"timestamps":[3,4]}"#,
        r#"{"metric":{"__name__":"z"},"values":[123456789012345678901234567890,0.1],"timestamps":[-1,9223372036854775807]}"#,
    ];
    let mut expected = Vec::new();
    for line in lines {
        let (labels, samples) = read(line).unwrap();
        let values = samples.timestamps.iter().zip(bits(&samples));
        expected.extend(values.map(|(time, bits)| (labels.to_string(), *time, bits)));
    }
    let text = lines.join("\r\n\n");
    assert_eq!(decoded(&text, SharedLabels::default()), (expected, vec![]));
    let (samples, errors) = decoded(lines[1], SharedLabels::new([("job", "new"), ("__name__", "name")]));
    assert_eq!((samples[0].0.as_str(), errors), (r#"name{job="new"}"#, vec![]));
}

/// Whatever is wrong with a line, it has the same samples in a request as alone, or none.
#[test]
fn damaged_lines_of_requests_are_read_as_they_are_alone() {
    let mut rng = stdx::rng::Rng::announced();
    let mut lines: Vec<String> = [
        r#"{"metric":{"__name__":"up","job":"a\"}b"},"values":[1,2],"timestamps":[1,2]}"#,
        r#"{"metric":{"__name__":"up","job":"}","a":"}\\"},"values":[1],"timestamps":[1]}"#,
        r#"{"values":[1],"metric":{"__name__":"up","job":"},"},"timestamps":[1]}"#,
        r#"{ "metric" : { "__name__" : "up" } , "values" : [ 1 ] , "timestamps" : [ 1 ] }"#,
    ]
    .map(str::to_owned)
    .into();
    for _ in 0..20_000 {
        let mut line = lines[rng.below(4) as usize].clone();
        let with = r#"{}"\:,[] 1a"#.as_bytes();
        for _ in 0..=rng.below(3) {
            let at = rng.below(line.len() as u64) as usize;
            let text = char::from(with[rng.below(with.len() as u64) as usize]).to_string();
            match rng.below(3) {
                0 => line.replace_range(at..=at, &text),
                1 => line.insert_str(at, &text),
                _ => drop(line.remove(at)),
            }
        }
        lines.push(line);
    }
    let mut good = 0;
    for line in lines.iter().filter(|line| !line.trim().is_empty()) {
        let expected = match read(line) {
            Ok((labels, samples)) => {
                good += 1;
                let values = samples.timestamps.iter().zip(bits(&samples));
                (values.map(|(time, bits)| (labels.to_string(), *time, bits)).collect(), 0)
            }
            Err(_) => (vec![], 1),
        };
        let (samples, errors) = decoded(line, SharedLabels::default());
        assert_eq!((samples, errors.len()), expected, "{line}: {errors:?}");
    }
    assert!(good > 1000, "only {good} lines are good");
}

#[test]
fn lines_of_requests_that_cannot_be_read_are_named() {
    let check = |line: &str, expected: &str| {
        let good = r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[1]}"#;
        let (samples, errors) = decoded(&format!("{good}\n{line}\n{good}"), SharedLabels::default());
        assert_eq!((samples.len(), errors.len()), (2, 1), "{line}: {errors:?}");
        assert!(errors[0].contains(expected), "{line}: {}", errors[0]);
    };
    check(r#"{"metric":{"__name__":"x"},"values":[1,2],"timestamps":[1]}"#, "line 12: unexpected JSON");
    check(r#"{"metric":{"__name__":"x"},"values":[1,2],"timestamps":[1]}"#, "differ");
    check(r#"{"metric":{"__name__":"x"},"values":[1],"timestamps":[1.5]}"#, "integer");
    check(r#"{"metric":{"__name__":"x"},"values":["x"],"timestamps":[1]}"#, "line 12");
    check(r#"{"metric":[],"values":[1],"timestamps":[1]}"#, "object");
    check(r#"{"values":[1],"timestamps":[1]}"#, "metric");
    check(r#"{"metric":{"__name__":"x"},"values":[1],"timestamps":[1]} x"#, "trailing");
    check(r#"{"metric":{"__name__":7},"values":[1],"timestamps":[1]}"#, "labels cannot be read");
    check(r#"{"metric":{"job":"x"},"values":[1],"timestamps":[1]}"#, "no metric name");
    check(r#"{"metric":{"__name__":"x","__name__":"y"},"values":[1],"timestamps":[1]}"#, "not unique");
    check("{", "line 12");
    check(&"[".repeat(1000), "line 12");
}
