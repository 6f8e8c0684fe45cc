//! What requests about names, tags and events have in common.

use super::answer::respond;
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::prometheus::label_queries::label_queries_of;
use crate::http::queries::admission::{allowance, on_query_thread, wait_for_series_of};
use crate::http::queries::description::{Description, Times};
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::query_source::label_queries::LabelQueries;
use axum::response::Response;
use model::TenantId;
use query::Allowance;
use std::sync::Arc;

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
    /// What the request's parsed expressions may take.
    pub(super) fn allowance(&self) -> Allowance {
        allowance(self.turn)
    }

    /// Queries that may take what the expressions left.
    pub(super) fn queries(&self, parsed: &Allowance) -> LabelQueries<'_> {
        label_queries_of(self.app, self.tenant, self.turn, parsed)
    }
}
