//! Labels in the paths of the Pushgateway.
//!
//! ```text
//!   /metrics/job/backup/instance/web1          job="backup", instance="web1"
//!   /metrics/job/backup/path@base64/L3Zhcg     job="backup", path="/var"
//! ```
//!
//! Source: <https://github.com/prometheus/pushgateway/blob/master/README.md>.

use crate::refusal::Refusal;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use model::caps::SERIES_LABELS_MAX;

/// Names with this suffix have their value in base64.
const ENCODED: &str = "@base64";

/// Padding may be missing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the labels after `/metrics/` in a path. The first is `job`.
pub(super) fn labels(path: &str) -> Result<Vec<(String, String)>, Refusal> {
    let invalid = |why: &str| Refusal::invalid("bad_data", format!("invalid path: {why}"));
    let (_, all) = path.split_once("/metrics/").unwrap_or_default();
    let mut parts = all.trim_end_matches('/').split('/');
    let mut found = Vec::new();
    while let Some(name) = parts.next() {
        if found.len() >= SERIES_LABELS_MAX {
            return Err(invalid("too many labels"));
        }
        let value = parts.next().ok_or_else(|| invalid("a label has no value"))?;
        let name = decoded(name).ok_or_else(|| invalid("the name of a label is not UTF-8"))?;
        let (name, value) = match name.strip_suffix(ENCODED) {
            Some(name) => {
                // "=" is the empty text, because a path cannot have empty parts
                let bytes = BASE64.decode(value.trim_end_matches('='));
                let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
                (name.to_owned(), text.ok_or_else(|| invalid("a value is not base64 of UTF-8"))?)
            }
            None => (name, decoded(value).ok_or_else(|| invalid("a value is not UTF-8"))?),
        };
        if name.is_empty() || name.starts_with("__") {
            return Err(invalid("the name of a label is empty or begins with __"));
        }
        found.push((name, value));
    }
    match found.first() {
        Some((name, value)) if name == "job" && !value.is_empty() => Ok(found),
        _ => Err(invalid("the first label must be job, with a value")),
    }
}

/// Decodes `%` and two hex digits.
fn decoded(text: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                bytes.push(digit(*high)? << 4 | digit(*low)?);
                rest = after;
            }
            (b'%', _) => return None,
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_paths() {
        let check = |path: &str, expected: &[(&str, &str)]| {
            let expected: Vec<_> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(labels(path).unwrap(), expected, "{path}");
        };
        check("/metrics/job/backup", &[("job", "backup")]);
        check("/metrics/job/backup/", &[("job", "backup")]);
        check("/metrics/job/a%2Fb/instance/web%201", &[("job", "a/b"), ("instance", "web 1")]);
        check(
            "/api/v1/import/prometheus/metrics/job/x/path@base64/L3Zhcg",
            &[("job", "x"), ("path", "/var")],
        );
        check("/metrics/job@base64/w7Y=/x@base64/=", &[("job", "ö"), ("x", "")]);
        for bad in [
            "/metrics/",
            "/metrics/job",
            "/metrics/job/",
            "/metrics/job/a/b",
            "/metrics/instance/a",
            "/metrics/job/a//b",
            "/metrics/job/%ff",
            "/metrics/job/%2",
            "/metrics/job/%zz",
            "/metrics/job/a/__name__/b",
            "/metrics/job@base64/!",
            "/metrics/job@base64/=",
        ] {
            assert_eq!(labels(bad).unwrap_err().reason, "bad_data", "{bad}");
        }
        let many = format!("/metrics/job/x{}", "/a/b".repeat(SERIES_LABELS_MAX));
        assert!(labels(&many).is_err());
    }
}
