//! Encodes lines of Influx' protocol.
//!
//! ```text
//!   head       measurement,tag=value      escaped once, and used for many lines
//!   line       head field=value,field=value time\n
//! ```

use std::io::Write;

/// Appends a measurement and its tags. Tags without a value are left out.
pub fn head<'a>(out: &mut Vec<u8>, measurement: &str, tags: impl IntoIterator<Item = (&'a str, &'a str)>) {
    escaped(out, measurement);
    for (name, value) in tags.into_iter().filter(|(_, value)| !value.is_empty()) {
        out.push(b',');
        escaped(out, name);
        out.push(b'=');
        escaped(out, value);
    }
}

/// Appends a field of a line, after the head or another field. The value must be finite, and is written as the shortest
/// decimal that parses to the same bits.
pub fn field(out: &mut Vec<u8>, is_first: bool, name: &str, value: f64) {
    out.push(if is_first { b' ' } else { b',' });
    escaped(out, name);
    write!(out, "={value}").expect("BUG: writing to memory failed");
}

/// Ends a line with its time, in nanoseconds.
pub fn end(out: &mut Vec<u8>, timestamp_ms: i64) {
    writeln!(out, " {timestamp_ms}000000").expect("BUG: writing to memory failed");
}

fn escaped(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        if matches!(byte, b',' | b' ' | b'=' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::influx::{Decoder, Format, Names, Precision};
    use crate::{Body, Decoder as _, Encoding, LabelForm as _, Request};
    use model::{Batch, Labels, LabelsBuilder};
    use std::sync::Arc;
    use stdx::budget::Account;

    /// What is encoded is decoded to the same samples.
    #[test]
    fn lines_are_decoded_to_what_they_encode() {
        let mut text = Vec::new();
        head(&mut text, r"a,b c\d=e", [("t ag", r"v,a=l\ue "), ("empty", ""), ("ö", "é")]);
        field(&mut text, true, "f,i=e ld", 0.1 + 0.2);
        field(&mut text, false, "n", -1e300);
        end(&mut text, 1_795_284_000_123);
        let names = Arc::new(Names::default());
        let format = Format { precision: Precision::default(), arrival_ms: 0, names: Arc::clone(&names) };
        let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
        let mut batch = Batch::default();
        let body = Body { encoding: Encoding::Identity, bytes: &text };
        Decoder::new(1).decode(Request { format, body }, &mut batch, &mut memory).unwrap();
        let labels =
            |name: &str| Labels::from_pairs(&[("__name__", name), ("t ag", r"v,a=l\ue "), ("ö", "é")]);
        let found: Vec<_> = batch
            .floats
            .series
            .iter()
            .map(|series| names.labels_of(&batch.bytes, &series.labels, &mut LabelsBuilder::new()).unwrap())
            .collect();
        assert_eq!(found, [labels(r"a,b c\d=e_f,i=e ld"), labels(r"a,b c\d=e_n")]);
        assert_eq!(batch.floats.timestamps, [1_795_284_000_123; 2]);
        assert_eq!(batch.floats.values, [0.1 + 0.2, -1e300]);
    }
}
