//! Answers to OTLP requests, in the form of the request.
//!
//! ```text
//!   Export…ServiceResponse   1 partial_success
//!   partial_success          1 rejected_data_points, rejected_log_records, rejected_spans   2 error_message
//!   google.rpc.Status        1 code   2 message   3 details*
//! ```

use super::Media;
use crate::json::put_string;
use stdx::varint;

/// What a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Items {
    Points,
    LogRecords,
    Spans,
}

impl Items {
    /// The name of their number in JSON.
    const fn rejected(self) -> &'static str {
        match self {
            Self::Points => "rejectedDataPoints",
            Self::LogRecords => "rejectedLogRecords",
            Self::Spans => "rejectedSpans",
        }
    }
}

/// Encodes the answer to a request that was accepted, at least in part. `message` says why items were left out, or, if
/// `rejected` is 0, is a warning. It is empty if there is nothing to say.
pub fn success(media: Media, items: Items, rejected: u64, message: &str) -> Vec<u8> {
    let is_full = rejected == 0 && message.is_empty();
    match media {
        Media::Protobuf if is_full => Vec::new(),
        Media::Protobuf => {
            let mut partial = Vec::new();
            put_number(&mut partial, 1, rejected);
            put_bytes(&mut partial, 2, message.as_bytes());
            let mut answer = Vec::new();
            put_bytes(&mut answer, 1, &partial);
            answer
        }
        Media::Json if is_full => b"{}".to_vec(),
        Media::Json => {
            let mut answer = b"{\"partialSuccess\":{\"".to_vec();
            answer.extend_from_slice(items.rejected().as_bytes());
            answer.extend_from_slice(b"\":\"");
            answer.extend_from_slice(itoa::Buffer::new().format(rejected).as_bytes());
            answer.extend_from_slice(b"\",\"errorMessage\":");
            put_string(&mut answer, message);
            answer.extend_from_slice(b"}}");
            answer
        }
    }
}

/// Encodes the answer to a request that failed. `code` is one of gRPC's codes.
pub fn status(media: Media, code: u8, message: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    match media {
        Media::Protobuf => {
            put_number(&mut answer, 1, u64::from(code));
            put_bytes(&mut answer, 2, message.as_bytes());
        }
        Media::Json => {
            answer.extend_from_slice(b"{\"code\":");
            answer.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
            answer.extend_from_slice(b",\"message\":");
            put_string(&mut answer, message);
            answer.push(b'}');
        }
    }
    answer
}

/// Encodes the status of a call that failed, as gRPC's details have it. `retry_after_s` says when a retry can succeed. Without it, senders do not retry.
pub fn status_with_retry(code: u8, message: &str, retry_after_s: Option<u64>) -> Vec<u8> {
    const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
    let mut answer = status(Media::Protobuf, code, message);
    if let Some(seconds) = retry_after_s {
        let (mut duration, mut info, mut any) = (Vec::new(), Vec::new(), Vec::new());
        put_number(&mut duration, 1, seconds);
        put_bytes(&mut info, 1, &duration);
        put_bytes(&mut any, 1, RETRY_INFO);
        put_bytes(&mut any, 2, &info);
        put_bytes(&mut answer, 3, &any);
    }
    answer
}

fn put_number(out: &mut Vec<u8>, field: u8, n: u64) {
    if n > 0 {
        out.push(field << 3);
        varint::put(out, n);
    }
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_form_of_the_request() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert_eq!(success(Media::Protobuf, Items::Points, 0, ""), b"");
        assert_eq!(text(success(Media::Json, Items::Spans, 0, "")), "{}");
        assert_eq!(success(Media::Protobuf, Items::Points, 300, "no"), b"\x0a\x07\x08\xac\x02\x12\x02no");
        assert_eq!(success(Media::Protobuf, Items::Points, 0, "hm"), b"\x0a\x04\x12\x02hm");
        assert_eq!(
            text(success(Media::Json, Items::LogRecords, 300, "a \"b\"")),
            r#"{"partialSuccess":{"rejectedLogRecords":"300","errorMessage":"a \"b\""}}"#
        );
        assert_eq!(status(Media::Protobuf, 8, "full"), b"\x08\x08\x12\x04full");
        let retry = status_with_retry(8, "no", Some(5));
        assert!(retry.starts_with(b"\x08\x08\x12\x02no\x1a\x30\x0a\x28type.googleapis.com/"), "{retry:x?}");
        assert!(retry.ends_with(b"RetryInfo\x12\x04\x0a\x02\x08\x05"), "{retry:x?}");
        assert_eq!(text(status(Media::Json, 14, "later\n")), r#"{"code":14,"message":"later\n"}"#);
    }
}
