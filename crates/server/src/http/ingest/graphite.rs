use super::{outcome_response, write};
use crate::http::App;
use crate::http::error::WriteError;
use crate::http::principal::RequestPrincipal;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use protocol::graphite::{ENCODINGS, Format, TimeOfArrival};

/// Answers 204, or 400 with the first refused line if lines were refused. All other lines are stored.
pub(super) async fn graphite(
    State(app): State<App>,
    principal: RequestPrincipal,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let decoders = &app.decoders;
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let answer = match media_type.as_str() {
        "application/python-pickle" | "application/x-python-pickle" => {
            let format = Format::default();
            write(&app, &decoders.graphite_pickle, format, ENCODINGS, principal, &headers, body).await
        }
        "application/protobuf" | "application/x-protobuf" => {
            let format = Format::default();
            write(&app, &decoders.graphite_protobuf, format, ENCODINGS, principal, &headers, body).await
        }
        _ => {
            write(&app, &decoders.graphite, TimeOfArrival::Refused, ENCODINGS, principal, &headers, body)
                .await
        }
    };
    match answer {
        Ok(outcome) => outcome_response(&outcome),
        Err(unwritten) => WriteError(unwritten.refusal).into_response(),
    }
}
