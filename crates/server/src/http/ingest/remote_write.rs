//! Remote write over HTTP.

use super::{count, outcome_response, write};
use crate::http::App;
use crate::http::error::WriteError;
use crate::refusal::Refusal;
use crate::write_path::Unwritten;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use protocol::remote_write::{ENCODINGS, Version, version_of};

#[cfg(test)]
mod tests;

pub(crate) async fn remote_write(State(app): State<App>, headers: HeaderMap, body: Body) -> Response {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let version = version_of(content_type).map_err(Refusal::from);
    let answer = match &version {
        Ok(version) => write(&app, &app.decoders.remote_write, *version, ENCODINGS, &headers, body).await,
        Err(refusal) => Err(refusal.clone().into()),
    };
    let (mut response, samples, exemplars) = match answer {
        // Prometheus takes an answer without anything written for one of a receiver that does not know version 2.0
        Ok(outcome) => {
            let samples = outcome.samples + outcome.deduplicated_samples;
            let exemplars = outcome.exemplars + outcome.deduplicated_exemplars;
            (outcome_response(&outcome), samples, exemplars)
        }
        Err(Unwritten { refusal, samples, exemplars }) => {
            (WriteError(refusal).into_response(), samples, exemplars)
        }
    };
    count(&app.metrics, &response);
    if version.is_ok_and(|version| version == Version::V2) {
        put_written(&mut response, samples, exemplars);
    }
    response
}

/// Adds the headers that remote write 2.0 requires in every answer: the durable part of the request.
fn put_written(response: &mut Response, samples: u64, exemplars: u64) {
    let written = [
        ("x-prometheus-remote-write-samples-written", samples),
        ("x-prometheus-remote-write-histograms-written", 0),
        ("x-prometheus-remote-write-exemplars-written", exemplars),
    ];
    for (name, count) in written {
        response.headers_mut().insert(name, HeaderValue::from(count));
    }
}
