//! Records of datastreams: POST `/api/v1/streams/NAME`.
//!
//! | content type | a body |
//! | --- | --- |
//! | `application/json`, `application/x-ndjson`, `application/jsonl` | one object, a list of objects, or an object in each line |
//! | `text/csv` | a table with a header |
//! | others | lines of text |
//!
//! The parameter `format` (`json`, `csv`, `lines`) has precedence. The answer says how many records are stored, and which are
//! refused. A body is stored whole or not at all, except for records that are refused by themselves.

use super::apply_limit_status;
use super::records::{self, ENCODINGS, Options, Outcome};
use crate::http::App;
use crate::http::error::WriteError;
use crate::http::json::Json;
use crate::http::principal::RequestPrincipal;
use crate::refusal::Refusal;
use crate::streams::batch::Stored;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use model::{Principal, StreamName};
use protocol::Encoding;
use protocol::records::{DecodedStreams, Format, Refusals, Request, StreamsRequest, decode};
use stdx::budget::Reservation;

pub(super) async fn records(
    State(app): State<App>,
    RequestPrincipal(principal): RequestPrincipal,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match store(&app, &principal, &name, &uri, &headers, body).await {
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
    name: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let stream = StreamName::parse(name).map_err(|error| Refusal::invalid("bad_data", error.to_string()))?;
    let format = format(text(header::CONTENT_TYPE), uri)?;
    let options = Options { stream: None, ..Options::of(headers)? };
    let encoding = Encoding::negotiate(text(header::CONTENT_ENCODING), ENCODINGS)?;
    let received = records::read(app, &principal.tenant, encoding, headers, body).await?;
    let decode = move |request: StreamsRequest<'_>, memory: &mut Reservation| {
        let StreamsRequest { body, arrival_us, times, .. } = request;
        let decoded = decode(format, Request { body, arrival_us, times, first_line: 1 }, memory)?;
        let found = Some((stream.clone(), decoded.records)).filter(|(_, records)| !records.is_empty());
        let streams = found.into_iter().collect();
        Ok((DecodedStreams { streams, without_days: Vec::new(), refused: decoded.refused }, ()))
    };
    let Outcome { stored, refused, .. } = records::store(app, principal, options, received, decode).await?;
    match refused.first.first() {
        Some(first) if stored.records == 0 => {
            let others = refused.count - 1;
            Err(Refusal::invalid("bad_data", format!("no record is stored: {first} (and {others} others)")))
        }
        _ => Ok(answer(stored, &refused)),
    }
}

fn format(content_type: Option<&str>, uri: &Uri) -> Result<Format, Refusal> {
    let query = uri.query().unwrap_or_default().as_bytes();
    let given = form_urlencoded::parse(query).find(|(name, _)| name == "format").map(|(_, value)| value);
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match (given.as_deref(), media_type.to_ascii_lowercase().as_str()) {
        (Some("json"), _) => Ok(Format::Json),
        (Some("csv"), _) => Ok(Format::Csv),
        (Some("lines"), _) => Ok(Format::Lines),
        (Some(_), _) => {
            Err(Refusal::invalid("bad_data", "invalid parameter \"format\": it must be json, csv or lines"))
        }
        (None, "application/json" | "application/x-ndjson" | "application/jsonl") => Ok(Format::Json),
        (None, "text/csv") => Ok(Format::Csv),
        (None, _) => Ok(Format::Lines),
    }
}

fn answer(stored: Stored, refused: &Refusals) -> Response {
    let mut json = Json::new();
    json.raw(r#"{"stored":"#);
    json.integer(i64::from(stored.records));
    json.raw(if stored.was_known { r#","repeated":true"# } else { r#","repeated":false"# });
    json.raw(r#","refused":"#);
    json.integer(refused.count as i64);
    json.raw(r#","errors":["#);
    for (i, refusal) in refused.first.iter().enumerate() {
        json.comma(i);
        json.string(&refusal.to_string());
    }
    json.raw("]}");
    json.into_response()
}
