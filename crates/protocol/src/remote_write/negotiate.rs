//! Finds the version in the header `Content-Type`.

use super::Version;
use crate::DecodeError;
use crate::body::shown;

const MEDIA_TYPE: &str = "application/x-protobuf";
const V1_NAME: &str = Version::V1.message();
const V2_NAME: &str = Version::V2.message();

/// Finds the protocol version in the header `Content-Type`. As in Prometheus, the default is 1.0, and an
/// unsupported value is an error (HTTP 415). Unlike Prometheus, this function also accepts the variations in
/// case, spaces and quotes that RFC 9110 allows.
pub fn version_of(content_type: Option<&str>) -> Result<Version, DecodeError> {
    let content_type = content_type.unwrap_or("").trim();
    if content_type.is_empty() {
        return Ok(Version::V1);
    }
    named(content_type).ok_or_else(|| DecodeError::ContentType(shown(content_type)))
}

fn named(content_type: &str) -> Option<Version> {
    let mut parts = content_type.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(MEDIA_TYPE) {
        return None;
    }
    for parameter in parts.filter(|p| !p.is_empty()) {
        let (name, value) = parameter.split_once('=')?;
        if name.eq_ignore_ascii_case("proto") {
            return match unquoted(value) {
                V1_NAME => Some(Version::V1),
                V2_NAME => Some(Version::V2),
                _ => None,
            };
        }
    }
    Some(Version::V1)
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ErrorKind;

    #[test]
    fn content_types() {
        let check = |content_type: Option<&str>, expected: Option<Version>| {
            let got = version_of(content_type);
            assert!(got.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Unsupported));
            assert_eq!(got.ok(), expected, "{content_type:?}");
        };
        check(None, Some(Version::V1));
        check(Some(""), Some(Version::V1));
        check(Some("application/x-protobuf"), Some(Version::V1));
        check(Some("application/x-protobuf;"), Some(Version::V1));
        check(Some("Application/X-Protobuf"), Some(Version::V1));
        check(Some("application/x-protobuf;charset=utf-8"), Some(Version::V1));
        check(Some("application/x-protobuf;proto=prometheus.WriteRequest"), Some(Version::V1));
        check(Some("application/x-protobuf;proto=io.prometheus.write.v2.Request"), Some(Version::V2));
        check(Some(" application/x-protobuf ; Proto=\"io.prometheus.write.v2.Request\" "), Some(Version::V2));
        check(Some("application/x-protobuf;a=b;proto=io.prometheus.write.v2.Request"), Some(Version::V2));
        check(Some("application/x-protobuf;proto=io.prometheus.write.v3.Request"), None);
        check(Some("application/x-protobuf;proto="), None);
        check(Some("application/x-protobuf;proto"), None);
        check(Some("application/json"), None);
        check(Some("application/x-protobuffer"), None);
        check(Some("text/plain;proto=prometheus.WriteRequest"), None);
    }

    #[test]
    fn a_long_header_is_not_repeated_whole() {
        let error = version_of(Some(&"é".repeat(10_000))).unwrap_err();
        assert!(error.to_string().len() < 500);
    }
}
