//! Influx' line protocol, and the answers that its clients expect at their start.
//!
//! | path | |
//! | --- | --- |
//! | POST `/write`, `/influx/write`, `/api/v1/push/influx/write` | lines, as InfluxDB 1 receives them |
//! | POST `/api/v2/write`, `/influx/api/v2/write` | lines, as InfluxDB 2 receives them |
//! | GET POST `/query`, `/influx/query` | statements with which clients prepare a database |
//! | GET `/ping`, `/influx/ping`, `/influx/health` | whether the server answers |

use super::{WarmDecoders, outcome_response, write};
use crate::http::App;
use crate::http::error::{InfluxErrors, WriteError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::RequestPrincipal;
use crate::refusal::Refusal;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use protocol::SharedLabels;
use protocol::influx::{ENCODINGS, Format, Names, Precision};
use std::borrow::Cow;
use std::sync::Arc;

/// The release of InfluxDB 1 whose API this server follows.
const VERSION: &str = "1.8.10";

const VERSION_HEADER: &str = "x-influxdb-version";

pub(super) fn write_routes(identified: impl Fn(Router<App>) -> Router<App>) -> Router<App> {
    let v1 = ["/write", "/influx/write", "/api/v1/push/influx/write"];
    let v2 = ["/api/v2/write", "/influx/api/v2/write"];
    let routes = |paths: &[&str], errors: InfluxErrors| {
        let routes = paths.iter().fold(Router::new(), |routes, path| routes.route(path, post(lines)));
        answered(identified(routes), errors)
    };
    routes(&v1, InfluxErrors::V1).merge(routes(&v2, InfluxErrors::V2))
}

pub(super) fn query_routes(identified: impl Fn(Router<App>) -> Router<App>) -> Router<App> {
    let routes = Router::new()
        .route("/query", get(statement).post(statement))
        .route("/influx/query", get(statement).post(statement));
    answered(identified(routes), InfluxErrors::V1)
}

/// Routes that are open to everyone.
pub(super) fn open_routes() -> Router<App> {
    Router::new()
        .route("/ping", get(ping))
        .route("/influx/ping", get(ping))
        .route("/influx/health", get(health))
}

fn answered(routes: Router<App>, errors: InfluxErrors) -> Router<App> {
    routes.route_layer(map_response(move |response| async move { errors.convert(response) }))
}

/// Answers 204, or 400 if lines or fields were refused. All others are stored.
async fn lines(
    State(app): State<App>,
    principal: RequestPrincipal,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answer = match format(&app, &principal, uri.query().unwrap_or_default()) {
        Ok(format) => {
            let WarmDecoders { influx, .. } = &*app.decoders;
            write(&app, influx, format, ENCODINGS, principal, &headers, body).await
        }
        Err(refusal) => Err(refusal.into()),
    };
    match answer {
        Ok(outcome) => outcome_response(&outcome),
        Err(unwritten) => WriteError(unwritten.refusal).into_response(),
    }
}

/// Reads the parameters of a write. `db` becomes a label; those that say where InfluxDB stores the lines have no meaning
/// here.
fn format(app: &App, RequestPrincipal(principal): &RequestPrincipal, query: &str) -> Result<Format, Refusal> {
    let (mut precision, mut database) = (Precision::default(), Cow::Borrowed(""));
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "precision" => {
                precision = Precision::parse(&value).ok_or_else(|| {
                    let shown: String = value.chars().take(SHOWN_CHARS_MAX).collect();
                    let message = format!("invalid precision {shown:?}: must be {}", Precision::NAMES);
                    Refusal::invalid("bad_data", message)
                })?;
            }
            "db" if value.len() > SharedLabels::BYTES_MAX => {
                let (bytes, limit) = (value.len(), SharedLabels::BYTES_MAX);
                let message = format!("invalid db: it has {bytes} bytes, the limit is {limit}");
                return Err(Refusal::invalid("bad_data", message));
            }
            "db" => database = value,
            _ => {}
        }
    }
    let settings = app.node.overrides().current();
    let own = settings.of(&principal.tenant);
    let shared = own.influx_db_label.as_ref().map(|label| (&*label.0, &*database));
    let names = Arc::new(Names::new(own.influx_names, shared));
    Ok(Format { precision, arrival_ms: app.node.writes().clock.now_ms(), names })
}

/// The limit on how many characters of a parameter are quoted in an error message.
const SHOWN_CHARS_MAX: usize = 100;

async fn ping(uri: Uri) -> Response {
    let version = [(VERSION_HEADER, VERSION)];
    let is_verbose = |(name, value): (Cow<'_, str>, Cow<'_, str>)| name == "verbose" && value != "false";
    match form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).any(is_verbose) {
        true => (version, json(&format!(r#"{{"version":"{VERSION}"}}"#))).into_response(),
        false => (StatusCode::NO_CONTENT, version).into_response(),
    }
}

/// Liveness in the form of InfluxDB.
pub(crate) async fn health() -> Response {
    json(&format!(
        r#"{{"name":"influxdb","message":"ready for queries and writes","status":"pass","checks":[],"version":"{VERSION}"}}"#
    ))
}

/// True if the client prefers InfluxDB's form of the answer to `/health` to plain text.
pub(crate) fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.trim_start().starts_with("application/json")
}

fn json(text: &str) -> Response {
    let mut json = Json::new();
    json.raw(text);
    json.into_response()
}

/// Answers the statements that clients send before they write. There are no databases, so that creating one succeeds
/// without an effect.
async fn statement(params: Params) -> Response {
    let statement = params.get("q").unwrap_or_default();
    let mut words = statement.split([' ', '\t', '\r', '\n', ';']).filter(|word| !word.is_empty());
    let mut next = || words.next().unwrap_or_default().to_ascii_uppercase();
    let result = match (next().as_str(), next().as_str()) {
        ("CREATE", "DATABASE" | "RETENTION") | ("ALTER", "RETENTION") => "",
        ("SHOW", "DATABASES") => r#","series":[{"name":"databases","columns":["name"],"values":[]}]"#,
        ("SHOW", "RETENTION") => concat!(
            r#","series":[{"columns":["name","duration","shardGroupDuration","replicaN","default"],"#,
            r#""values":[["autogen","0s","168h0m0s",1,true]]}]"#
        ),
        _ => {
            let message = "error parsing query: InfluxQL is not supported, except for the statements with which clients \
                prepare a database; PromQL is, at /api/v1/query";
            return WriteError(Refusal::invalid("bad_data", message)).into_response();
        }
    };
    let version = [(VERSION_HEADER, VERSION)];
    (version, json(&format!(r#"{{"results":[{{"statement_id":0{result}}}]}}"#))).into_response()
}
