//! What an answer says about its request, over HTTP and over gRPC.

use crate::grpc;
use crate::http::Answer;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Answered {
    Http(Answer),
    Grpc(grpc::Answer),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    Stored,
    StoredInPart,
    /// The request should be repeated, after this pause if the target asked for one.
    Again(Option<Duration>),
    /// A repetition would be refused, too.
    Refused,
}

impl Answered {
    /// The status, under which the answer is counted.
    pub(crate) fn outcome(&self) -> &str {
        match self {
            Self::Http(answer) => answer.status.as_str(),
            Self::Grpc(answer) => answer.code.name(),
        }
    }

    pub(crate) fn text(&self) -> String {
        match self {
            Self::Http(answer) => answer.text(),
            Self::Grpc(answer) => answer.message.clone(),
        }
    }

    /// `floats` is the number of the request's samples that are not native histograms.
    pub(crate) fn says(&self, floats: u64) -> Said {
        match self {
            Self::Http(answer) => http_says(answer, floats),
            Self::Grpc(answer) => grpc_says(answer),
        }
    }
}

fn http_says(answer: &Answer, floats: u64) -> Said {
    let status = answer.status;
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Said::Again(answer.retry_after());
    }
    if !status.is_success() {
        return Said::Refused;
    }
    let content_type = answer.headers.get(CONTENT_TYPE);
    let is = |kind: &str| content_type.is_some_and(|value| value.as_bytes().starts_with(kind.as_bytes()));
    let is_short = samples_written(answer).is_some_and(|written| written < floats)
        || is("application/x-protobuf") && has_rejected_points(&answer.body)
        || is("application/json") && has_rejected_points_in_json(&answer.body);
    if is_short { Said::StoredInPart } else { Said::Stored }
}

/// Repeats what OpenTelemetry's protocol allows to repeat: RESOURCE_EXHAUSTED only if the target says when.
fn grpc_says(answer: &grpc::Answer) -> Said {
    use grpc::Code;
    match answer.code {
        Code::OK if has_rejected_points(&answer.body) => Said::StoredInPart,
        Code::OK => Said::Stored,
        Code::RESOURCE_EXHAUSTED if answer.retry_after.is_none() => Said::Refused,
        Code::RESOURCE_EXHAUSTED
        | Code::CANCELLED
        | Code::DEADLINE_EXCEEDED
        | Code::ABORTED
        | Code::OUT_OF_RANGE
        | Code::UNAVAILABLE
        // a delay of zero would be no pause at all
        | Code::DATA_LOSS => Said::Again(answer.retry_after.filter(|delay| !delay.is_zero())),
        _ => Said::Refused,
    }
}

/// Number of samples that the target says it has written. Only answers of remote write 2.0 say so.
fn samples_written(answer: &Answer) -> Option<u64> {
    let header = answer.headers.get("x-prometheus-remote-write-samples-written")?;
    header.to_str().ok()?.parse().ok()
}

/// Whether an answer of OpenTelemetry's protocol says that points were rejected.
fn has_rejected_points(message: &[u8]) -> bool {
    // the answer has one field, which begins with the number of rejected points if there are any
    let Some(mut partial) = message.strip_prefix(&[0x0a]) else { return false };
    stdx::varint::take(&mut partial).is_some() && partial.first() == Some(&0x08)
}

/// The same for an answer in JSON. Numbers of 64 bits are texts there, but need not be.
fn has_rejected_points_in_json(text: &[u8]) -> bool {
    let Ok(answer) = serde_json::from_slice::<serde_json::Value>(text) else { return false };
    let rejected = &answer["partialSuccess"]["rejectedDataPoints"];
    rejected.as_str().map_or_else(|| rejected.as_f64().is_some_and(|n| n > 0.0), |n| n.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::Code;
    use bytes::Bytes;

    #[test]
    fn answers_in_json_say_what_was_rejected() {
        for (answer, expected) in [
            ("{}", false),
            ("", false),
            (r#"{"partialSuccess":{}}"#, false),
            (r#"{"partialSuccess":{"rejectedDataPoints":"0","errorMessage":"a note"}}"#, false),
            (r#"{"partialSuccess":{"rejectedDataPoints":"3"}}"#, true),
            (r#"{"partialSuccess":{"rejectedDataPoints":3}}"#, true),
        ] {
            assert_eq!(has_rejected_points_in_json(answer.as_bytes()), expected, "{answer}");
        }
    }

    #[test]
    fn grpc_is_repeated_as_opentelemetry_says() {
        let says = |code, retry_after_s: Option<u64>, body: &'static [u8]| {
            let retry_after = retry_after_s.map(Duration::from_secs);
            let (message, body) = (String::new(), Bytes::from_static(body));
            Answered::Grpc(grpc::Answer { code, message, retry_after, body }).says(1)
        };
        let second = Some(Duration::from_secs(1));
        for (code, retry_after_s, body, expected) in [
            (Code::OK, None, &b""[..], Said::Stored),
            (Code::OK, None, b"\x0a\x02\x12\x00", Said::Stored),
            (Code::OK, None, b"\x0a\x02\x08\x01", Said::StoredInPart),
            (Code::RESOURCE_EXHAUSTED, Some(1), b"", Said::Again(second)),
            (Code::RESOURCE_EXHAUSTED, Some(0), b"", Said::Again(None)),
            (Code::RESOURCE_EXHAUSTED, None, b"", Said::Refused),
            (Code::UNAVAILABLE, None, b"", Said::Again(None)),
            (Code::UNAVAILABLE, Some(1), b"", Said::Again(second)),
            (Code::of(3), None, b"", Said::Refused),
            (Code::of(99), None, b"", Said::Refused),
        ] {
            assert_eq!(says(code, retry_after_s, body), expected, "{code:?} {retry_after_s:?}");
        }
    }
}
