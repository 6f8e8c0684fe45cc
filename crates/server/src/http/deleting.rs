//! Limits how many deletes run at a time, and the memory for their selectors.

use super::App;
use super::error::ApiError;
use super::queries::admission::Payer;
use crate::limits::gate::Pass;
use crate::refusal::Refusal;
use axum::http::StatusCode;
use model::TenantId;
use stdx::budget::Reservation;
use tables::tombstone::PATTERN_BYTES_MAX;

/// Number of deletes that may run at a time. Most of their time, they wait until samples are sealed.
pub(super) const DELETES_MAX: usize = 8;

/// A delete keeps at most [`PATTERN_BYTES_MAX`] of compiled patterns. Compiling takes more for a moment.
const PARSE_BYTES_MAX: u64 = 2 * PATTERN_BYTES_MAX as u64;

/// A place for a delete, kept until the delete has ended.
#[derive(Debug)]
pub(super) struct Place {
    pass: Pass,
    payer: Payer,
}

impl Place {
    pub(super) fn of(app: &App, tenant: &TenantId) -> Result<Self, ApiError> {
        let payer = Payer::of(app, &app.deleting, &tenant.clone().into());
        let pass = payer.enter(&app.deleting, |peaks| &peaks.deletes);
        let mut pass = pass.map_err(|full| payer.crowded(app, "deletes", &app.deleting, full))?;
        pass.is_served = true;
        Ok(Self { pass, payer })
    }

    /// Adds memory for parsing selectors to the place.
    pub(super) fn with_memory(mut self, app: &App) -> Result<PlaceWithMemory, Refusal> {
        let settings = app.node.settings();
        let share_bytes = settings.budget.query_share_bytes(settings.query_concurrency);
        let bytes = share_bytes.min(settings.budget.answers_bytes() / 2).min(PARSE_BYTES_MAX);
        self.pass.is_served = false;
        let memory = self.payer.answers.reserve(bytes)?;
        self.pass.is_served = true;
        Ok(PlaceWithMemory { memory, _pass: self.pass })
    }
}

/// Waits for a delete, which ends even if the client goes away. It keeps its `place` until then.
pub(super) async fn until_ended<T: Send + 'static>(
    place: impl Send + 'static,
    delete: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, ApiError> {
    let deleting = tokio::spawn(async move {
        let done = delete.await;
        drop(place);
        done
    });
    Ok(deleting.await.map_err(panicked)??)
}

pub(super) fn panicked(_: tokio::task::JoinError) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request panicked")
}

#[derive(Debug)]
pub(super) struct PlaceWithMemory {
    memory: Reservation,
    _pass: Pass,
}

impl PlaceWithMemory {
    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::tests::{node_with, write_of};

    #[tokio::test(flavor = "multi_thread")]
    async fn deletes_of_one_tenant_leave_places_and_memory_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        let app = App::new(node.clone());
        let [one, other] = ["one", "other"].map(|name| TenantId::parse(name).unwrap());
        for tenant in [&one, &other] {
            write_of(&node, tenant, 1000).await;
        }
        let mut places = Vec::new();
        while places.len() < DELETES_MAX
            && let Ok(place) = Place::of(&app, &one)
        {
            places.push(place);
        }
        assert_eq!(places.len(), DELETES_MAX / 2);
        let refused = format!("{:?}", Place::of(&app, &one).unwrap_err());
        assert!(refused.contains("503") && refused.contains("too many deletes"), "{refused}");
        assert!(Place::of(&app, &other).is_ok());

        let answers = places[0].payer.answers.clone();
        let place = places.pop().unwrap().with_memory(&app).unwrap();
        assert!(place.bytes() > 0 && answers.used_bytes() == place.bytes());
        drop(place);
        assert_eq!((answers.used_bytes(), app.deleting.inside()), (0, DELETES_MAX / 2 - 1));
        let all: Vec<_> = std::iter::from_fn(|| answers.reserve(1 << 10).ok()).collect();
        let refused = places.pop().unwrap().with_memory(&app).unwrap_err();
        assert_eq!(refused.kind, model::ErrorKind::Unavailable, "{refused}");
        drop((all, places));
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
