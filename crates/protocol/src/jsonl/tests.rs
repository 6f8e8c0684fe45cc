use super::*;
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
