//! Push requests of Loki: POST `/loki/api/v1/push`. Each entry becomes a record of a stream.
//!
//! | content type | content encoding | a body |
//! | --- | --- | --- |
//! | none, `application/x-protobuf` | none, `snappy` | protobuf, as a block of snappy |
//! | `application/json` | none, `gzip`, `zstd` | JSON |
//!
//! The answer is 204 once entries are durable. Entries that can never be stored are left out and counted, and the answer does not
//! say so: some senders repeat a request also after a 400 (Telegraf, winston-loki), so that the others would be stored again each
//! time, and whatever the sender has behind this request never.

use super::otlp_records::{INLINE_BYTES_MAX, report};
use super::records::{self, ENCODINGS, Options, Outcome, Overflow};
use super::{apply_limit_status, otlp};
use crate::http::App;
use crate::http::error::{PARTIAL_WRITE, WriteError, partly_refused};
use crate::http::principal::RequestPrincipal;
use crate::refusal::Refusal;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::Principal;
use protocol::Encoding;
use protocol::otlp::Media;
use protocol::records::{StreamsRequest, loki, stream_name};
use stdx::budget::Reservation;

/// Bodies in protobuf are always compressed.
const PROTOBUF_ENCODINGS: &[Encoding] = &[Encoding::Snappy];

pub(super) async fn push(
    State(app): State<App>,
    RequestPrincipal(principal): RequestPrincipal,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match store(&app, &principal, &headers, body).await {
        Ok(answer) => answer,
        Err(mut refusal) => {
            let limit_status = app.node.overrides().current().of(&principal.tenant).limit_status;
            apply_limit_status(&mut refusal, limit_status);
            WriteError(refusal).into_response()
        }
    }
}

async fn store(
    app: &App,
    principal: &Principal,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let media = match headers.contains_key(header::CONTENT_TYPE) {
        true => otlp::media_of(headers)?,
        false => Media::Protobuf,
    };
    let encodings = match media {
        Media::Protobuf => PROTOBUF_ENCODINGS,
        Media::Json => ENCODINGS,
    };
    let options = Options::of(headers)?;
    let named = headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    let encoding = Encoding::negotiate(named, encodings)?;
    // one service too many must not hold up the entries of all others that the sender has put into the same request
    let overflow = match options.stream {
        None => Overflow::Spare(stream_name(b"", loki::STREAM)),
        Some(_) => options.overflow,
    };
    let options = Options { overflow, inline_bytes_max: INLINE_BYTES_MAX, ..options };
    let received = records::read(app, &principal.tenant, encoding, headers, body).await?;
    let decode = move |request: StreamsRequest<'_>, memory: &mut Reservation| {
        Ok((loki::decode(media, request, memory)?, ()))
    };
    let Outcome { refused, .. } = records::store(app, principal, options, received, decode).await?;
    let answer = StatusCode::NO_CONTENT.into_response();
    Ok(match refused.count {
        0 => answer,
        _ => partly_refused(answer, Refusal::invalid(PARTIAL_WRITE, report(&refused))),
    })
}
