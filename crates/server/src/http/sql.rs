//! GET and POST `/api/v1/sql`: a statement of SQL over the tenant's streams.

use super::App;
use super::error::ApiError;
use super::json::Json;
use super::params::Params;
use super::principal::ReadTenant;
use super::queries::admission::{TRIES_MAX, wait_for_series_of, within};
use super::queries::description::{Description, Times};
use super::queries::query_threads::{STACK_BYTES, Turn};
use crate::listen::Peer;
use crate::sql::TenantCatalog;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use model::TenantId;
use query::{Interrupt, QueryError};
use sql::{Answer, Format, Limits, Runner, SqlError};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

const PATH: &str = "/api/v1/sql";

const _: () = assert!(STACK_BYTES >= sql::STACK_BYTES);

pub(super) fn routes() -> Router<App> {
    Router::new().route(PATH, get(statement).post(statement))
}

async fn statement(
    State(app): State<App>,
    peer: Peer,
    ReadTenant(tenant): ReadTenant,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, ApiError> {
    let format = format_of(&headers, &params)?;
    let timeout = params.duration("timeout")?.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()));
    let text: Arc<str> = params.get("query").unwrap_or_default().into();
    wait_for_series_of(&app, &tenant).await?;
    app.node.streams().wait_until_complete().await?;
    let tenants = tenant.clone().into();
    let fingerprint = app.queries.fingerprint(&(PATH, &tenant, &text));
    let description =
        Description { tenants, path: PATH, text: Arc::clone(&text), times: Times::default(), peer };
    let request = Request { tenant, text, format, blocking: Handle::current() };
    let answer =
        within(&app, description, timeout, Some(fingerprint), move |app, turn| request.run(app, turn));
    let mut response = answer.await?.into_response();
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

/// The parameter decides, then the header `Accept`, of which the first type that is known counts.
fn format_of(headers: &HeaderMap, params: &Params) -> Result<Format, ApiError> {
    if let Some(name) = params.get("format") {
        let found = Format::ALL.into_iter().find(|format| format.name() == name);
        return found
            .ok_or_else(|| ApiError::bad_param("format", format!("{name:?} is not json, csv or arrow")));
    }
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accepted
        .flat_map(|value| value.split(','))
        .map(|one| one.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    let known = types.find_map(|one| {
        let is_same = |format: &Format| format.content_type().split(';').next() == Some(one.as_str());
        Format::ALL.into_iter().find(is_same)
    });
    Ok(known.unwrap_or(Format::Json))
}

struct Request {
    tenant: TenantId,
    text: Arc<str>,
    format: Format,
    blocking: Handle,
}

impl Request {
    /// Runs the statement, again if what it reads was moved meanwhile. The last attempt keeps what it reads.
    fn run(&self, app: &App, turn: &Arc<Turn>) -> Result<Json, ApiError> {
        if !turn.may_wait() {
            return Err(QueryError::Canceled.into());
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.attempt(app, turn, tries == TRIES_MAX) {
                Err(Failure::Sql(SqlError::Expired)) if tries < TRIES_MAX => {}
                Err(Failure::Sql(error)) => return Err(refusal(error)),
                Err(Failure::Api(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    fn attempt(&self, app: &App, turn: &Arc<Turn>, keeps_batches: bool) -> Result<Json, Failure> {
        let catalog = TenantCatalog {
            tenant: self.tenant.clone(),
            streams: Arc::clone(&app.node.streams().shared),
            lake: Arc::clone(&app.node.reads().lake),
            keeps_batches,
        };
        let asked = Arc::new(Asked(Arc::clone(turn)));
        let runner = Runner {
            catalog: Arc::new(catalog),
            limits: Limits { memory_bytes: usize::try_from(turn.limits.memory_bytes).unwrap_or(usize::MAX) },
            now_ms: app.node.reads().clock.now_ms(),
            blocking: self.blocking.clone(),
            interrupt: Arc::clone(&asked) as _,
            observer: asked,
        };
        let mut json = Json::within(&turn.limits.answers);
        if self.format == Format::Json {
            json.raw(r#"{"status":"success","data":{"#);
        }
        let mut out = Out(&mut json);
        let done = runner.run(&self.text, &mut Answer::new(&mut out, self.format));
        let warnings = match done {
            Ok(done) => done.warnings,
            Err(SqlError::Answer) => {
                let refused = json.finish().err().map(ApiError::from);
                return Err(refused.map_or(Failure::Sql(SqlError::Answer), Failure::Api));
            }
            Err(error) => return Err(error.into()),
        };
        if self.format == Format::Json {
            json.raw("}");
            if !warnings.is_empty() {
                json.raw(r#","warnings":"#);
                json.strings(&warnings);
            }
            json.raw("}\n");
        } else {
            json.warn(&warnings);
        }
        json.finish().map_err(|error| Failure::Api(error.into()))
    }
}

enum Failure {
    Sql(SqlError),
    Api(ApiError),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

fn refusal(error: SqlError) -> ApiError {
    let message = error.to_string();
    match error {
        SqlError::Statement(_) => ApiError::bad_param("query", message),
        SqlError::Execution(_) | SqlError::Answer => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message)
        }
        SqlError::Memory(_) => {
            let message = format!(
                "{message}; the limit depends on --memory and query_concurrency, and on the tenant's query_memory"
            );
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message)
        }
        SqlError::Canceled => QueryError::Canceled.into(),
        SqlError::Expired => ApiError::unavailable(message),
        SqlError::Source { kind, message } => QueryError::from(query::SourceError { kind, message }).into(),
        SqlError::Bug(_) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message),
    }
}

/// A turn, as SQL asks it and tells it.
#[derive(Debug)]
struct Asked(Arc<Turn>);

impl sql::Interrupt for Asked {
    fn is_set(&self) -> bool {
        self.0.is_set()
    }
}

impl sql::Observer for Asked {
    fn holds(&self, bytes: usize) {
        self.0.usage().hold(bytes as u64);
    }

    fn read(&self, rows: usize) {
        self.0.usage().read(rows as u64);
    }
}

/// Fails once the answer is too large.
struct Out<'a>(&'a mut Json);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        match self.0.is_refused() {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
