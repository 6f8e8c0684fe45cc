//! `/render`: evaluates targets, and encodes their series.

mod format;
mod request;

use super::answer::respond;
use super::events::expired;
use crate::events::EventSource;
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::http::queries::admission::{
    TRIES_MAX, allowance, left_bytes, limit_of, wait_for_series_of, within,
};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::Source;
use crate::query_source::paths::{BuildWait, GlobSource};
use axum::extract::State;
use axum::response::Response;
use model::ErrorKind;
use query::graphite::{LabelSource, Options, Series, Target, parse, render as evaluate};
use query::{Allowance, Interrupt, QueryError, QueryErrorKind};
use request::RenderRequest;
use std::sync::Arc;
use std::time::Duration;

/// Part of a query's memory that targets may take which functions build during the evaluation.
const BUILT_TARGETS: u64 = 16;

pub(super) async fn render(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let ReadTenant(tenant) = tenant?;
    let request = RenderRequest::of(params?, app.node.settings(), app.node.reads().clock.now_ms())?;
    wait_for_series_of(&app, &tenant).await?;
    let description = request.description(&tenant, peer);
    let duration_s = request.until_s - request.from_s;
    // without the start, so that each refresh of a dashboard has the same fingerprint
    let fingerprint = app.queries.fingerprint(&(&tenant, &request.targets, duration_s));
    let content_type = request.content_type();
    let answer = within(&app, description, None, Some(fingerprint), move |app, turn| {
        let mut parsed = allowance(turn);
        let parse = |target: &String| parse(target, &request.variables, &mut parsed);
        let targets = request.targets.iter().map(parse).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let memory_bytes = left_bytes(turn, &parsed);
        let samples_max = (memory_bytes / 16).min(turn.limits.samples);
        let options = Options {
            from_s: request.from_s,
            until_s: request.until_s,
            now_s: request.now_s,
            time_zone: &request.time_zone,
            x_files_factor: request.x_files_factor,
            max_data_points: request.max_data_points,
            variables: &request.variables,
            samples_max,
            kept_free: samples_max / 2,
            listed_bytes: GlobSource::listed_bytes(16 * samples_max),
            built: &Allowance::new(memory_bytes / BUILT_TARGETS).until(Arc::clone(turn) as _),
            canceled: &**turn,
            usage: Some(turn.usage()),
        };
        let (series, warnings) = series_of(app, turn, &tenant, &targets, &options).map_err(refused)?;
        let mut encoded = request.format.encode(series, &request, turn)?;
        encoded.warn(&warnings);
        Ok(encoded)
    });
    Ok(respond(answer.await?, content_type))
}

/// Evaluates the targets. Starts again if samples were sealed meanwhile, and without metrics that have no values in the range, if there is
/// not enough memory with them. Returns the series, and warnings about data that could not be read or was left out.
fn series_of(
    app: &App,
    turn: &Arc<Turn>,
    tenant: &model::TenantId,
    targets: &[Target],
    options: &Options<'_>,
) -> Result<(Vec<Series>, Vec<String>), QueryError> {
    let (mut tries, expired_before_ms) = (0, expired(app, tenant));
    let timeout = Duration::from_millis(app.node.settings().query_timeout_ms);
    let wait = BuildWait::of_request(turn.arrived() + timeout);
    let mut options = *options;
    loop {
        tries += 1;
        let (reads, canceled) = (app.node.reads(), Arc::clone(turn) as Arc<dyn Interrupt>);
        let stored =
            Source::new(reads, tenant.clone(), options.samples_max, Arc::clone(&canceled)).recording();
        let limit = limit_of(app, turn, options.samples_max);
        let globs = GlobSource::new(&stored, reads, tenant, canceled, &wait).limited_by(limit);
        let rules = app.node.rules().current();
        let source = EventSource {
            series: LabelSource::new(&globs, &rules.schemas),
            events: &reads.events,
            tenant,
            expired_before_ms,
            interrupt: options.canceled,
        };
        match evaluate(targets, &source, &options) {
            Err(_) if stored.is_expired() && tries < TRIES_MAX => {}
            Err(error) if is_too_large(&error) && globs.has_optional() && options.kept_free < u64::MAX => {
                options.kept_free = u64::MAX;
            }
            Err(error) if is_too_large(&error) => {
                return Err(match globs.needed() {
                    Some(why) => QueryError::Execution(format!("{error}; {why}")),
                    None => error,
                });
            }
            // first what may make numbers wrong, because the header has only so many characters
            answer => return Ok((answer?, globs.left_out().into_iter().chain(stored.left_out()).collect())),
        }
    }
}

fn is_too_large(error: &QueryError) -> bool {
    match error {
        QueryError::TooLarge => true,
        QueryError::Source(error) => error.kind == ErrorKind::TooLarge,
        _ => false,
    }
}

/// Maps an evaluation error. Unlike `ApiError::from`, a 400 does not blame the parameter `query`, which this path lacks.
fn refused(error: QueryError) -> ApiError {
    match error.kind() {
        QueryErrorKind::BadData => ApiError::bad_data(error.to_string()),
        _ => error.into(),
    }
}
