use super::counts;
use crate::deletes;
use crate::http::App;
use crate::http::deleting::{Place, panicked, until_ended};
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::AdminTenant;
use crate::http::prometheus::label_queries::Selectors;
use crate::http::queries::admission::{
    TRIES_MAX, allowance, left_bytes, on_query_thread, wait_for_series_of,
};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::Source;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{LabelsRef, SeriesSamples, TenantId};
use query::{Allowance, Matcher, QueryError, Select, SeriesSource, SourceError};
use std::sync::Arc;
use tables::Delete;

const PATH: &str = "/api/v1/admin/tsdb/delete_series";

/// Deletes the samples of all series that match a `match[]` between `start` and `end`. With `dry_run=true`,
/// only counts them.
pub(super) async fn delete_series(
    State(app): State<App>,
    peer: Peer,
    AdminTenant(tenant): AdminTenant,
    params: Params,
) -> Result<Response, ApiError> {
    let is_dry = is_dry_run(&params, &["start", "end"], &["match[]"])?;
    let selectors = Selectors::of(&params, true)?;
    let range = params.range()?;
    wait_for_series_of(&app, &tenant).await?;
    if is_dry {
        let description = selectors.description(PATH, &tenant.clone().into(), range, peer);
        let answer = on_query_thread(&app, description, move |app, turn| {
            let mut parsed = allowance(turn);
            let selectors = selectors.parse(&mut parsed)?;
            count(app, turn, &tenant, &Delete { selectors, range }, left_bytes(turn, &parsed) / 16)
        });
        return Ok(answer.await?.into_response());
    }
    let place = Place::of(&app, &tenant)?.with_memory(&app)?;
    // on another thread, because compiling the patterns of selectors may take long
    let parse = move || (selectors.parse(&mut Allowance::new(place.bytes())), place);
    let (selectors, place) = tokio::task::spawn_blocking(parse).await.map_err(panicked)?;
    let (node, delete) = (app.node.clone(), Delete { selectors: selectors?, range });
    until_ended(place, async move { deletes::delete(&node, tenant, delete).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Reads the parameter `dry_run` of a request that deletes, and notes it for the audit log. Fails if the request has parameters
/// other than this one, `others` and `repeatable`.
pub(super) fn is_dry_run(params: &Params, others: &[&str], repeatable: &[&str]) -> Result<bool, ApiError> {
    params.only(&[others, &["dry_run"]].concat(), repeatable)?;
    let is_dry = match params.get("dry_run") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::bad_param("dry_run", "must be true or false")),
    };
    if let Some(operation) = params.operation() {
        operation.note_dry_run(is_dry);
    }
    Ok(is_dry)
}

/// Counts the series and samples that a delete would remove, and the files that it would rewrite.
fn count(
    app: &App,
    turn: &Arc<Turn>,
    tenant: &TenantId,
    delete: &Delete,
    samples_max: u64,
) -> Result<Json, ApiError> {
    let (series, samples) = count_samples(app, turn, tenant, delete, samples_max)?;
    let table = app.node.reads().lake.existing(tenant).and_then(|table| table.map(|t| t.files()).transpose());
    let files = match table {
        Ok(files) => files.map_or(0, |files| delete.files_concerned(files.all())),
        Err(error) => return Err(ApiError::unavailable(format!("cannot read the tenant's table: {error}"))),
    };
    Ok(counts(&[("series", series), ("samples", samples), ("files", files as u64)]))
}

pub(super) fn count_samples(
    app: &App,
    turn: &Arc<Turn>,
    tenant: &TenantId,
    delete: &Delete,
    samples_max: u64,
) -> Result<(u64, u64), ApiError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let source = Source::new(app.node.reads(), tenant.clone(), samples_max, Arc::clone(turn) as _);
        match count_in(&source, delete) {
            // try again: samples were sealed while they were counted
            Err(_) if source.is_expired() && tries < TRIES_MAX => {}
            done => return Ok(done.map_err(QueryError::from)?),
        }
    }
}

fn count_in(source: &Source<'_>, delete: &Delete) -> Result<(u64, u64), SourceError> {
    let (mut series, mut all) = (0, 0);
    let mut samples = SeriesSamples::default();
    for (i, matchers) in delete.selectors.iter().enumerate() {
        let mut set = source.select(&Select { matchers, range: delete.range })?;
        while set.next(&mut samples)? {
            let labels = set.labels();
            if !samples.is_empty() && !delete.selectors[..i].iter().any(|earlier| passes(earlier, labels)) {
                series += 1;
                all += samples.len() as u64;
            }
        }
    }
    Ok((series, all))
}

fn passes(matchers: &[Matcher], labels: LabelsRef<'_>) -> bool {
    matchers.iter().all(|m| m.matches(labels.get(&m.name).unwrap_or("")))
}
