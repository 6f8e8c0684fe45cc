//! Bulk requests of Elasticsearch, and the answers that its clients expect at their start. An index is a stream.
//!
//! | path, also under `/elasticsearch` | |
//! | --- | --- |
//! | POST PUT `/_bulk`, `/INDEX/_bulk` | documents, which become records |
//! | GET `/` | the version of the API |
//! | GET `/_license`, `/_xpack`, `/_cluster/health`, `/_cat/health` | that nothing is missing |
//! | GET PUT `/_ilm/policy/NAME`, `/_index_template/NAME` | accepted, without an effect |
//!
//! `/` without the prefix is the start page, unless the client asks for JSON.

use super::apply_limit_status;
use super::otlp_records::report;
use super::records::{self, ENCODINGS, Options, Outcome, Overflow};
use crate::http::App;
use crate::http::error::{WriteError, in_elastic_form, partly_refused};
use crate::http::json::Json;
use crate::http::principal::RequestPrincipal;
use crate::refusal::Refusal;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::{Body as HttpBody, Frame};
use model::Principal;
use protocol::Encoding;
use protocol::records::StreamsRequest;
use protocol::records::bulk::{self, Items};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use stdx::budget::Reservation;

/// The release of Elasticsearch whose API this server follows.
const VERSION: &str = "8.19.0";

/// Clients refuse answers without this header.
const PRODUCT: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-elastic-product"), HeaderValue::from_static("Elasticsearch"));

const PREFIXES: [&str; 2] = ["", "/elasticsearch"];

/// Routes of writes.
pub(super) fn write_routes(identified: impl Fn(Router<App>) -> Router<App>) -> Router<App> {
    let at = |routes: Router<App>, prefix| {
        routes
            .route(&format!("{prefix}/_bulk"), post(bulk).put(bulk))
            .route(&format!("{prefix}/{{index}}/_bulk"), post(bulk).put(bulk))
    };
    answered(identified(PREFIXES.into_iter().fold(Router::new(), at))).route_layer(from_fn(cut_off))
}

/// Cuts off the answer to a request that was refused for a while and had no `User-Agent`. rsyslog sends none, and does not look
/// at the status: it would take any whole answer for its last one, and drop the documents. It repeats the request if the
/// connection fails.
async fn cut_off(request: Request, next: Next) -> Response {
    let has_agent = request.headers().contains_key(header::USER_AGENT);
    let mut response = next.run(request).await;
    let is_temporary =
        matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    if is_temporary && !has_agent {
        let body = std::mem::take(response.body_mut());
        *response.body_mut() = Body::new(CutOff { body, has_waited: false });
    }
    response
}

/// A body that fails at its end.
struct CutOff {
    body: Body,
    has_waited: bool,
}

impl HttpBody for CutOff {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_some() {
            return Poll::Ready(frame);
        }
        // what was written before is sent first
        if !std::mem::replace(&mut self.has_waited, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(axum::Error::new(io::Error::other("the answer is cut off")))))
    }
}

/// Routes of what clients ask before they write.
pub(super) fn start_routes(identified: impl Fn(Router<App>) -> Router<App>) -> Router<App> {
    let acknowledged = || async { json(r#"{"acknowledged":true}"#) };
    let nothing = || async { json("{}") };
    let at = |routes: Router<App>, prefix| {
        routes
            .route(&format!("{prefix}/_license"), get(license))
            .route(&format!("{prefix}/_xpack"), get(license))
            .route(&format!("{prefix}/_cluster/health"), get(health))
            .route(&format!("{prefix}/_cat/health"), get(|| async { "green\n" }))
            .route(&format!("{prefix}/_ilm/policy/{{name}}"), get(nothing).put(acknowledged))
            .route(&format!("{prefix}/_index_template/{{name}}"), get(nothing).put(acknowledged))
    };
    answered(identified(PREFIXES.into_iter().fold(Router::new(), at)))
}

/// Routes that are open to everyone.
pub(super) fn open_routes() -> Router<App> {
    Router::new().route("/elasticsearch", get(info)).route("/elasticsearch/", get(info))
}

fn answered(routes: Router<App>) -> Router<App> {
    routes.route_layer(map_response(|response| async move {
        let mut response = in_elastic_form(response);
        let (name, value) = PRODUCT;
        response.headers_mut().insert(name, value);
        response
    }))
}

/// True if the client prefers the answer of Elasticsearch to `/` to a page.
pub(crate) fn wants_info(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accepted = accepted.trim_start();
    ["application/json", "application/vnd.elasticsearch+json"].iter().any(|form| accepted.starts_with(form))
}

/// The version of the API.
pub(crate) async fn info() -> Response {
    let text = format!(
        concat!(
            r#"{{"name":"floodmark","cluster_name":"floodmark","cluster_uuid":"floodmark","version":{{"number":"{}","#,
            r#""build_flavor":"default","lucene_version":"9.12.0","minimum_wire_compatibility_version":"7.17.0","#,
            r#""minimum_index_compatibility_version":"7.0.0"}},"tagline":"You Know, for Search"}}"#
        ),
        VERSION
    );
    ([PRODUCT], json(&text)).into_response()
}

async fn license() -> Response {
    const LICENSE: &str = r#""uid":"floodmark","type":"basic","mode":"basic","status":"active""#;
    json(&format!(
        r#"{{"license":{{{LICENSE}}},"features":{{"ilm":{{"available":false,"enabled":false}}}}}}"#
    ))
}

async fn health() -> Response {
    json(
        r#"{"cluster_name":"floodmark","status":"green","timed_out":false,"number_of_nodes":1,"number_of_data_nodes":1}"#,
    )
}

fn json(text: &str) -> Response {
    let mut json = Json::new();
    json.raw(text);
    json.into_response()
}

async fn bulk(
    State(app): State<App>,
    RequestPrincipal(principal): RequestPrincipal,
    path: RawPathParams,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let index = path.iter().find(|(name, _)| *name == "index").map(|(_, index)| index.to_owned());
    match stored(&app, &principal, index, &uri, &headers, body).await {
        Ok(answer) => answer,
        Err(mut refusal) => {
            let limit_status = app.node.overrides().current().of(&principal.tenant).limit_status;
            apply_limit_status(&mut refusal, limit_status);
            WriteError(refusal).into_response()
        }
    }
}

async fn stored(
    app: &App,
    principal: &Principal,
    index: Option<String>,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let began = app.node.writes().clock.instant();
    let query = uri.query().unwrap_or_default().as_bytes();
    let is_brief =
        form_urlencoded::parse(query).any(|(name, value)| name == "filter_path" && !value.is_empty());
    let bulk = bulk::Options { index, is_brief };
    let options = Options { overflow: Overflow::LeaveOut, ..Options::of(headers)? };
    let named = headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    let encoding = Encoding::negotiate(named, ENCODINGS)?;
    let received = records::read(app, &principal.tenant, encoding, headers, body).await?;
    let decode =
        move |request: StreamsRequest<'_>, memory: &mut Reservation| bulk::decode(&bulk, request, memory);
    let outcome = records::store(app, principal, options, received, decode).await?;
    let Outcome { refused, made: Items { json: items, has_errors }, mut memory, .. } = outcome;
    let took_ms = app.node.writes().clock.instant().saturating_duration_since(began).as_millis();
    let mut pieces = Vec::with_capacity(items.len() + 2);
    pieces.push(format!(r#"{{"took":{took_ms},"errors":{has_errors},"items":["#).into_bytes());
    pieces.extend(items);
    pieces.push(b"]}".to_vec());
    memory.resize(pieces.iter().map(|piece| piece.capacity() as u64).sum())?;
    let response = Json::of_pieces(pieces, memory).into_response();
    Ok(match refused.count {
        0 => response,
        _ => partly_refused(response, Refusal::invalid("partial_write", report(&refused))),
    })
}
