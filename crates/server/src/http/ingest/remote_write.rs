use super::{outcome_response, write};
use crate::http::App;
use crate::http::error::{WriteError, partial_write_for_vmagent};
use crate::http::principal::RequestPrincipal;
use crate::refusal::Refusal;
use crate::write_path::Unwritten;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use protocol::DecodeError;
use protocol::remote_write::{ENCODINGS, Version, version_of};

#[cfg(test)]
mod tests;

pub(crate) async fn remote_write(
    State(app): State<App>,
    principal: RequestPrincipal,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let version = sent_version(&headers).map_err(Refusal::from);
    let answer = match &version {
        Ok(version) => {
            write(&app, &app.decoders.remote_write, *version, ENCODINGS, principal, &headers, body).await
        }
        Err(refusal) => Err(refusal.clone().into()),
    };
    let (mut response, samples, exemplars) = match answer {
        // deduplicated and dropped samples count as written: if the counts were zero, Prometheus would conclude that
        // the server does not support version 2.0
        Ok(outcome) => {
            let samples = outcome.samples + outcome.deduplicated_samples + outcome.dropped_samples;
            let exemplars = outcome.exemplars + outcome.deduplicated_exemplars + outcome.dropped_exemplars;
            (outcome_response(&outcome), samples, exemplars)
        }
        Err(Unwritten { refusal, samples, exemplars, .. }) => {
            (WriteError(refusal).into_response(), samples, exemplars)
        }
    };
    if headers.contains_key(VMAGENT) {
        response = partial_write_for_vmagent(response);
    }
    if version.is_ok_and(|version| version == Version::V2) {
        put_written(&mut response, samples, exemplars);
    }
    response
}

/// Header of requests that vmagent compresses with zstd.
const VMAGENT: &str = "x-victoriametrics-remote-write-version";

/// Adds the counts of written samples and exemplars, which remote write 2.0 requires in each answer, if they
/// are missing. They are zero, because the request was refused.
pub(super) async fn report_nothing_written(request: Request, next: Next) -> Response {
    let is_v2 = sent_version(request.headers()).is_ok_and(|version| version == Version::V2);
    let mut response = next.run(request).await;
    if is_v2 && !response.headers().contains_key(SAMPLES_WRITTEN) {
        put_written(&mut response, 0, 0);
    }
    response
}

fn sent_version(headers: &HeaderMap) -> Result<Version, DecodeError> {
    version_of(headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()))
}

const SAMPLES_WRITTEN: &str = "x-prometheus-remote-write-samples-written";

/// Adds the headers with which remote write 2.0 reports how many samples and exemplars are durable.
fn put_written(response: &mut Response, samples: u64, exemplars: u64) {
    let written = [
        (SAMPLES_WRITTEN, samples),
        ("x-prometheus-remote-write-histograms-written", 0),
        ("x-prometheus-remote-write-exemplars-written", exemplars),
    ];
    for (name, count) in written {
        response.headers_mut().insert(name, HeaderValue::from(count));
    }
}
