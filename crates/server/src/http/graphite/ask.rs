//! What requests about names, tags and events have in common.

use super::answer::respond;
use super::find::invalid;
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::prometheus::label_queries::label_queries_of;
use crate::http::queries::admission::{allowance, on_query_thread, wait_for_series_of};
use crate::http::queries::description::{Description, Times};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::label_queries::LabelQueries;
use axum::http::StatusCode;
use axum::response::Response;
use model::TenantId;
use paths::{Pattern, PatternError};
use query::Allowance;
use std::sync::Arc;

/// A pattern of paths may take 1/`PATTERN_PART` of a query's memory.
const PATTERN_PART: u64 = 4;

/// A request about a tenant's names or events.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) tenant: TenantId,
    pub(super) path: &'static str,
    /// What is asked, for the list of queries.
    pub(super) text: Arc<str>,
    pub(super) peer: Peer,
}

/// A request on its query thread.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) app: &'a App,
    pub(super) tenant: &'a TenantId,
    pub(super) turn: &'a Arc<Turn>,
}

impl Ask {
    /// Runs `work` on a query thread, and answers with what it writes.
    pub(super) async fn answer(
        self,
        app: &App,
        content_type: &'static str,
        work: impl Fn(&Asked<'_>, &mut Json) -> Result<(), ApiError> + Send + 'static,
    ) -> Result<Response, TextError> {
        Ok(respond(self.json(app, work).await?, content_type))
    }

    pub(super) async fn json(
        self,
        app: &App,
        work: impl Fn(&Asked<'_>, &mut Json) -> Result<(), ApiError> + Send + 'static,
    ) -> Result<Json, ApiError> {
        wait_for_series_of(app, &self.tenant).await?;
        self.at_once(app, work).await
    }

    /// Like [`Self::json`], without waiting until the tenant's series can be read.
    pub(super) async fn at_once(
        self,
        app: &App,
        work: impl Fn(&Asked<'_>, &mut Json) -> Result<(), ApiError> + Send + 'static,
    ) -> Result<Json, ApiError> {
        let Self { tenant, path, text, peer } = self;
        let description =
            Description { tenants: tenant.clone().into(), path, text, times: Times::default(), peer };
        let answer = on_query_thread(app, description, move |app, turn| {
            let mut json = Json::within(&turn.limits.answers);
            work(&Asked { app, tenant: &tenant, turn }, &mut json)?;
            Ok(json.finish()?)
        });
        answer.await
    }
}

impl Asked<'_> {
    /// Memory for the request's parsed expressions.
    pub(super) fn allowance(&self) -> Allowance {
        allowance(self.turn)
    }

    /// Queries with the memory that these have left.
    pub(super) fn queries(&self, parsed: &Allowance) -> LabelQueries<'_> {
        label_queries_of(self.app, self.tenant, self.turn, parsed)
    }

    /// Queries beside one pattern of [`Self::parse`].
    pub(super) fn path_queries(&self) -> LabelQueries<'_> {
        let queries = self.queries(&self.allowance());
        LabelQueries { memory_bytes: queries.memory_bytes - self.pattern_bytes(), ..queries }
    }

    /// Parses a pattern of paths.
    pub(super) fn parse(&self, pattern: &str) -> Result<Pattern, ApiError> {
        let bytes_max = usize::try_from(self.pattern_bytes()).unwrap_or(usize::MAX);
        Pattern::parse_within(pattern, bytes_max).map_err(|error| match error {
            PatternError::Memory { .. } => {
                let message = format!(
                    "Invalid value for param query: {error}, which is 1/{PATTERN_PART} of the setting query_memory: \
                    use fewer alternatives and wildcards, or raise the setting"
                );
                ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "execution", message)
            }
            error => invalid(&error),
        })
    }

    fn pattern_bytes(&self) -> u64 {
        self.turn.limits.memory_bytes / PATTERN_PART
    }
}
