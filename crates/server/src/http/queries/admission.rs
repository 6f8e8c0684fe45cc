//! Limits how many requests read at the same time, for how long, and with how much memory.

use super::description::Description;
use super::query_log::Ending;
use super::query_threads::{Lane, Outcome, QueryLimits, QueryTenant, Turn};
use super::running_queries::{CancelOnDrop, RunningQuery};
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::limits::gate::{Gate, Pass};
use crate::limits::tenant_state::TenantState;
use crate::limits::tenant_usage::{Peak, Peaks};
use crate::settings::TenantSettings;
use ::admission::gate::{Entrant, Full, Inside};
use ::admission::retry::Wait;
use axum::http::StatusCode;
use model::{TenantId, TenantSet};
use query::{Allowance, Interrupt, Options, QueryError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stdx::budget::Account;
use tokio::sync::oneshot;

/// A read starts again if samples were sealed while it ran. After this many attempts it fails.
pub(crate) const TRIES_MAX: usize = 4;

/// Waits for the end of replay, because an answer without the series that are still missing would look
/// complete. Fails with 503 if replay takes too long.
pub(crate) async fn wait_for_all_series(app: &App) -> Result<(), ApiError> {
    app.node.readiness().wait_for_replay().await;
    match app.node.is_ready() || app.node.readiness().is_stopping() {
        true => Ok(()),
        false => {
            Err(ApiError::unavailable(app.node.reads().partitions.replaying().message).until(Wait::Replay))
        }
    }
}

/// Like [`wait_for_all_series`], but also fails if the tenant is closed.
pub(crate) async fn wait_for_series_of(app: &App, tenant: &TenantId) -> Result<(), ApiError> {
    wait_for_all_series(app).await?;
    Ok(app.node.reads().lake.closed.check(tenant)?)
}

pub(crate) async fn wait_for_series_of_all(app: &App, tenants: &TenantSet) -> Result<(), ApiError> {
    wait_for_all_series(app).await?;
    let closed = &app.node.reads().lake.closed;
    Ok(tenants.iter().try_for_each(|tenant| closed.check(tenant))?)
}

/// Limit on the memory of one query: its share of the query account, or the limit of its tenant if that is
/// less.
fn share_bytes(app: &App, own: &TenantSettings) -> u64 {
    let settings = app.node.settings();
    let share_bytes = settings.budget.query_share_bytes(settings.query_concurrency);
    own.limits.query_memory_bytes.map_or(share_bytes, |bytes| bytes.min(share_bytes))
}

pub(crate) fn allowance(turn: &Arc<Turn>) -> Allowance {
    Allowance::new(turn.limits.memory_bytes).until(Arc::clone(turn) as _)
}

pub(crate) fn left_bytes(turn: &Turn, parsed: &Allowance) -> u64 {
    turn.limits.memory_bytes.saturating_sub(parsed.spent_bytes())
}

/// The setting that limits the memory of a query which may hold `samples_max` samples.
pub(crate) fn limit_of(app: &App, turn: &Turn, samples_max: u64) -> &'static str {
    let settings = app.node.settings();
    if turn.limits.samples <= samples_max {
        "query_samples"
    } else if turn.limits.memory_bytes < settings.budget.query_share_bytes(settings.query_concurrency) {
        "query_memory"
    } else {
        "memory"
    }
}

/// Fails if the query was canceled. Encoding a large answer takes long, so encoders call this now and then.
pub(crate) fn check_canceled(turn: &Turn) -> Result<(), ApiError> {
    if turn.is_set() { Err(QueryError::Canceled.into()) } else { Ok(()) }
}

/// Limits on the evaluation of a query. The samples it may hold follow from its memory, at sixteen bytes per
/// sample.
pub(crate) fn options<'a>(
    app: &App,
    turn: &'a Turn,
    lookback_ms: Option<i64>,
    parsed: &Allowance,
) -> Options<'a> {
    Options {
        lookback_delta_ms: lookback_ms.filter(|ms| *ms > 0).unwrap_or(app.node.settings().query_lookback_ms),
        samples_max: (left_bytes(turn, parsed) / 16).min(turn.limits.samples),
        usage: Some(turn.usage()),
        ..Options::new(turn)
    }
}

/// Runs `work` on a query thread, within the limits on concurrency and time. `work` may be started twice. It
/// should include parsing and encoding, because they can take long.
pub(crate) async fn on_query_thread(
    app: &App,
    description: Description,
    work: impl Fn(&App, &Arc<Turn>) -> Result<Json, ApiError> + Send + 'static,
) -> Result<Json, ApiError> {
    within(app, description, None, None, work).await
}

/// Like [`on_query_thread`], with a timeout of the client. Queries with the same `fingerprint` should take
/// about the same time.
pub(crate) async fn within(
    app: &App,
    description: Description,
    timeout: Option<Duration>,
    fingerprint: Option<u64>,
    work: impl Fn(&App, &Arc<Turn>) -> Result<Json, ApiError> + Send + 'static,
) -> Result<Json, ApiError> {
    let query = app.running.begin(description);
    let ending = Ending::of(&app.query_log, &query);
    let result = bounded(app, &query, timeout, fingerprint, work).await;
    ending.with(result.as_ref().err());
    app.metrics.query_seconds.observe(app.running.age(&query).as_secs_f64());
    if result.is_err() {
        app.metrics.queries_failed.inc();
    }
    result
}

async fn bounded(
    app: &App,
    query: &Arc<RunningQuery>,
    allowed: Option<Duration>,
    fingerprint: Option<u64>,
    work: impl Fn(&App, &Arc<Turn>) -> Result<Json, ApiError> + Send + 'static,
) -> Result<Json, ApiError> {
    wait_for_all_series(app).await?;
    let most = Duration::from_millis(app.node.settings().query_timeout_ms);
    let timeout = allowed.unwrap_or(most).min(most);
    let settings = app.node.overrides().current();
    let tenants = &query.description.tenants;
    let payer = Payer::of(app, &app.waiting, tenants);
    let entered = payer.enter(&app.waiting, |peaks| &peaks.queries_inside);
    let pass = entered.map_err(|full| payer.crowded(app, "queries", &app.waiting, full))?;
    let limits = QueryLimits {
        memory_bytes: tenants.iter().map(|tenant| share_bytes(app, settings.of(tenant))).min().unwrap_or(0),
        samples: tenants
            .iter()
            .filter_map(|tenant| settings.of(tenant).limits.query_samples)
            .min()
            .unwrap_or(usize::MAX) as u64,
        answers: payer.answers,
    };
    let query_tenant = QueryTenant {
        tenant: payer.tenant,
        weight: payer.weight,
        limit: tenants.iter().filter_map(|tenant| settings.of(tenant).limits.concurrent_queries).min(),
    };
    let _cancel = CancelOnDrop(Arc::clone(query));
    let entry = app.running.enter(query);
    let began = Arc::new(AtomicBool::new(false));
    let (answer, answered) = oneshot::channel();
    let (mut answer, begin) = (Some((answer, pass, entry)), Arc::clone(&began));
    let (of_query, asked) = (app.clone(), Arc::clone(query));
    let run = Box::new(move |lane| {
        begin.fetch_or(lane == Lane::Whole, Ordering::Relaxed);
        let shortage = of_query.node.reads().headroom.check().err();
        // while memory is short, only small queries are answered
        let lane = if shortage.is_some() { Lane::Small } else { lane };
        let turn = Arc::new(Turn::new(of_query.node.reads(), Arc::clone(&asked), limits.clone(), lane));
        if turn.is_canceled() {
            return Outcome::Done;
        }
        asked.run(of_query.running.age(&asked));
        note_peaks(&of_query, &asked);
        let (mut result, mut is_refused) = (work(&of_query, &turn), false);
        note_peaks(&of_query, &asked);
        if turn.is_over() && result.is_err() && !turn.is_canceled() {
            match shortage {
                Some(refusal) => (result, is_refused) = (Err(refusal.into()), true),
                None => {
                    asked.wait();
                    return Outcome::Again;
                }
            }
        }
        if let Some((answer, mut pass, _entry)) = answer.take() {
            pass.is_served = !is_refused;
            let _ = answer.send(result); // the client may be gone
        }
        Outcome::Done
    });
    let place = app.queries.submit(query_tenant, fingerprint, run);
    let ended = tokio::select! {
        biased;
        () = query.canceled() => return Err(canceled(query)),
        ended = tokio::time::timeout(timeout, answered) => ended,
    };
    drop(place);
    match ended {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => {
            Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the query's thread panicked"))
        }
        Err(_) => {
            let has_begun = began.load(Ordering::Relaxed);
            let place = if has_begun { "expression evaluation" } else { "query queue" };
            let bound = if timeout < most { "parameter timeout" } else { "setting query_timeout" };
            let message = format!("query timed out in {place} after {} s ({bound})", timeout.as_secs_f64());
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", message);
            Err(match has_begun {
                true => error,
                // those that wait or run have kept the query from its turn
                false => error.after(app.waiting.refused(app.node.writes().clock.instant())),
            })
        }
    }
}

/// Notes how many queries each of the query's tenants runs, and how much memory the query took.
fn note_peaks(app: &App, query: &RunningQuery) {
    for tenant in query.description.tenants.iter() {
        let Some(state) = app.node.writes().tenants.get(tenant) else { continue };
        state.peaks.queries.note(app.queries.running_of(tenant) as u64);
        state.peaks.query_bytes.note(query.usage.peak_memory_bytes());
    }
}

/// The tenant that a request counts for, at gates and in turns.
///
/// A query over several tenants counts for the one with the most queries, with the lowest weight of all of them, so that
/// a client gains nothing by naming more tenants. All tenants without data count as one: anybody can invent their names,
/// and a tenant that has no query always gets a place at the gate and comes next.
#[derive(Debug)]
pub(crate) struct Payer {
    pub(crate) tenant: TenantId,
    pub(crate) weight: usize,
    pub(crate) answers: Account,
    /// `None` for tenants without data.
    state: Option<Arc<TenantState>>,
}

impl Payer {
    pub(crate) fn of(app: &App, gate: &Gate, tenants: &TenantSet) -> Self {
        let load = |tenant: &&TenantId| gate.inside_of(tenant).requests;
        let with_data = tenants.iter().filter(|tenant| has_data_or_settings(app, tenant));
        let Some(tenant) = with_data.max_by_key(load) else {
            let answers = app.node.writes().tenants.answers_without_data().clone();
            return Self { tenant: TenantId::without_data(), weight: 1, answers, state: None };
        };
        let settings = app.node.overrides().current();
        let weight = tenants.iter().map(|tenant| settings.of(tenant).share_weight).min().unwrap_or(1);
        let state = app.node.writes().tenant(tenant);
        let answers = state.answers(settings.of(tenant)).clone();
        Self { tenant: tenant.clone(), weight, answers, state: Some(state) }
    }

    /// Enters a gate, and notes in one of the `peaks` how many requests the tenant has inside.
    pub(crate) fn enter(&self, gate: &Gate, peak: impl FnOnce(&Peaks) -> &Peak) -> Result<Pass, Full> {
        let pass = gate.enter(self.entrant())?;
        if let Some(state) = &self.state {
            peak(&state.peaks).note(pass.number as u64);
        }
        Ok(pass)
    }

    pub(crate) const fn entrant(&self) -> Entrant<'_> {
        Entrant { tenant: &self.tenant, weight: self.weight as u64, limit: None, bytes: 0 }
    }

    /// Error for a request that was refused because too many other queries or exports (named by `what`) run or
    /// wait.
    pub(crate) fn crowded(&self, app: &App, what: &str, gate: &Gate, full: Full) -> ApiError {
        let (limit, now) = (gate.limit(), app.node.writes().clock.instant());
        let (message, wait) = match full {
            Full::Share(Inside { requests, .. }) => {
                let (whose, share) = match self.state {
                    Some(_) => ("the tenant has", "its share"),
                    None => ("tenants without data have", "their share"),
                };
                let message = format!(
                    "too many {what}: {whose} {requests} running or waiting, which is {share} of {limit}"
                );
                (message, gate.refused_of(&self.tenant, now))
            }
            Full::Gate | Full::Limit(_) | Full::Waiting => {
                (format!("too many {what}: {limit} are running or waiting"), gate.refused(now))
            }
        };
        ApiError::unavailable(message).after(wait)
    }
}

/// False for a tenant whose name may have been invented. The tables of a tenant with data may not be listed yet, but nobody
/// can invent a name that has settings of its own.
fn has_data_or_settings(app: &App, tenant: &TenantId) -> bool {
    app.node.overrides().current().own.contains_key(tenant) || app.node.reads().has_data(tenant)
}

/// Returns the account for the parameters and answers of a tenant's queries.
pub(crate) fn answers_of(app: &App, tenant: &TenantId) -> Account {
    match has_data_or_settings(app, tenant) {
        true => {
            let settings = app.node.overrides().current();
            app.node.writes().tenant(tenant).answers(settings.of(tenant)).clone()
        }
        false => app.node.writes().tenants.answers_without_data().clone(),
    }
}

fn canceled(query: &RunningQuery) -> ApiError {
    let message = format!("query {} was canceled by an operator", query.id);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "canceled", message)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::http::queries::running_queries::QueryId;
    use crate::limits::headroom::tests::FixedResident;
    use crate::seal::tests::{node_with, write_of};
    use crate::world::World;
    use crate::write_path::tests::small_settings;
    use ::admission::process::REASON;
    use query::Interrupt;
    use stdx::clock::{Clock, SystemClock};

    /// Occupies all query threads until what it returns is dropped.
    pub(crate) async fn occupy(
        app: &App,
    ) -> Vec<(std::sync::mpsc::Sender<()>, crate::http::queries::query_threads::Place)> {
        let mut held = Vec::new();
        for _ in 0..=app.node.settings().query_concurrency {
            let (end, ends) = std::sync::mpsc::channel();
            let place = app.queries.submit(
                QueryTenant { tenant: TenantId::without_data(), weight: 1, limit: None },
                None,
                Box::new(move |_| {
                    let _ = ends.recv();
                    Outcome::Done
                }),
            );
            held.push((end, place));
            while app.queries.waiting_and_running() != (0, held.len()) {
                tokio::task::yield_now().await;
            }
        }
        held
    }

    pub(crate) async fn until_idle(app: &App) {
        while app.queries.waiting_and_running() != (0, 0) {
            tokio::task::yield_now().await;
        }
    }

    /// The client gets an answer after the timeout. The thread is busy until the store answers.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_that_waits_for_a_store_or_for_its_turn_ends_with_its_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |settings| settings.query_timeout_ms = 1).await;
        let app = App::new(node.clone());
        for is_busy in [false, true] {
            let held = if is_busy { occupy(&app).await } else { Vec::new() };
            let place = if is_busy { "query queue" } else { "expression evaluation" };
            for (allowed, bound) in
                [(None, "setting query_timeout"), (Some(Duration::ZERO), "parameter timeout")]
            {
                let (answer, answered) = std::sync::mpsc::channel::<()>();
                let answered = std::sync::Mutex::new(answered);
                let work = move |_: &App, _: &Arc<Turn>| {
                    let _ = answered.lock().unwrap().recv(); // the store
                    Err(ApiError::unavailable("the client is gone"))
                };
                let error = within(&app, Description::for_test(), allowed, None, work)
                    .await
                    .expect_err("the store does not answer");
                let text = format!("{error:?}");
                assert!(text.contains("503") && text.contains(bound), "{text}");
                // it may take a millisecond until a thread has taken the query
                assert!(text.contains(place) || !is_busy && text.contains("query queue"), "{text}");
                drop(answer);
                if is_busy {
                    assert_eq!(
                        app.queries.waiting_and_running(),
                        (0, held.len()),
                        "the query left the queue"
                    );
                } else {
                    until_idle(&app).await;
                }
            }
        }
        until_idle(&app).await;
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }

    /// Whoever invents names of tenants gets one share for all of them, also beside a tenant with data.
    #[tokio::test(flavor = "multi_thread")]
    async fn tenants_without_data_count_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        let app = App::new(node.clone());
        let set = |text: &str| TenantSet::parse(text).unwrap();
        let payer = |text: &str| Payer::of(&app, &app.waiting, &set(text));
        let mut inside = Vec::new();
        let refused = loop {
            let of_one = payer(&format!("invented-{}|other-{0}", inside.len()));
            match app.waiting.enter(of_one.entrant()) {
                Ok(pass) => inside.push(pass),
                Err(full) => break of_one.crowded(&app, "queries", &app.waiting, full).to_string(),
            }
        };
        assert!(inside.len() < app.waiting.limit(), "{} of {}", inside.len(), app.waiting.limit());
        assert!(refused.contains("tenants without data"), "{refused}");
        write_of(&node, &TenantId::parse("known").unwrap(), SystemClock.now_ms()).await;
        for text in ["known", "invented-0|known"] {
            let of_known = payer(text);
            assert_eq!(of_known.tenant.as_str(), "known");
            assert!(app.waiting.enter(of_known.entrant()).is_ok(), "places are left for tenants with data");
        }
        let answers = [answers_of(&app, set("x").first()), answers_of(&app, set("y").first())];
        let _held = answers[0].reserve(1000).unwrap();
        assert_eq!(answers[1].used_bytes(), 1000, "they share one account");
        drop(inside);
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }

    /// After the client disconnects, the query ends, and its thread and its place at the gate become free.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_query_ends_when_its_client_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        let app = App::new(node.clone());
        let (begin, begun) = tokio::sync::mpsc::unbounded_channel();
        let mut begun = begun;
        let asked = app.clone();
        let request = tokio::spawn(async move {
            let work = move |_: &App, turn: &Arc<Turn>| {
                let _ = begin.send(());
                while !turn.is_set() {
                    std::thread::yield_now();
                }
                Err(ApiError::unavailable("the client is gone"))
            };
            on_query_thread(&asked, Description::for_test(), work).await
        });
        begun.recv().await.unwrap();
        request.abort();
        until_idle(&app).await;
        assert_eq!(app.waiting.inside(), 0);
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_canceled_query_is_answered_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        let app = App::new(node.clone());
        for is_waiting in [false, true] {
            let held = if is_waiting { occupy(&app).await } else { Vec::new() };
            let asked = app.clone();
            let request = tokio::spawn(async move {
                let work = move |_: &App, turn: &Arc<Turn>| {
                    while !turn.is_set() {
                        std::thread::yield_now();
                    }
                    Err(ApiError::unavailable("the client is gone"))
                };
                on_query_thread(&asked, Description::for_test(), work).await
            });
            let (state, id) = loop {
                tokio::task::yield_now().await;
                let mut json = Json::new();
                app.running.write(&mut json, |_| true);
                let list: serde_json::Value = serde_json::from_str(&json.text()).unwrap();
                let text = |name: &str| list[0][name].as_str().map(str::to_owned);
                if let (Some(state), Some(id)) = (text("state"), text("id"))
                    && is_waiting == (state == "waiting")
                {
                    break (state, id);
                }
            };
            let id = QueryId::parse(&id).unwrap();
            app.running.find(id).expect(&state).cancel();
            let text = format!("{:?}", request.await.unwrap().expect_err("it was canceled"));
            assert!(text.contains("503") && text.contains("by an operator"), "{text}");
            drop(held);
            until_idle(&app).await;
            assert_eq!(app.waiting.inside(), 0);
            assert!(app.running.find(id).is_none(), "a query that ended is not listed");
        }
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }

    /// While each thread runs a query that never ends, small queries are still answered. Other queries wait.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_small_query_is_answered_beside_queries_that_never_end() {
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        let app = App::new(node.clone());
        let all = node.settings().query_concurrency;
        let mut endless = Vec::new();
        for count in 1..=all {
            let asked = app.clone();
            let work = |_: &App, turn: &Arc<Turn>| {
                while !turn.is_set() {
                    std::thread::yield_now();
                }
                Err(ApiError::unavailable("interrupted"))
            };
            endless.push(tokio::spawn(async move {
                on_query_thread(&asked, Description::for_test(), work).await
            }));
            while app.queries.waiting_and_running() != (0, count) {
                tokio::task::yield_now().await;
            }
        }
        for _ in 0..100 {
            on_query_thread(&app, Description::for_test(), |_, _| Ok(Json::new()))
                .await
                .expect("a small query is answered");
        }
        // another query that never ends is tried, put back, and blocks no small query
        let asked = app.clone();
        let work = |_: &App, turn: &Arc<Turn>| {
            while !turn.is_set() {
                std::thread::yield_now();
            }
            Err(ApiError::unavailable("interrupted"))
        };
        endless
            .push(tokio::spawn(async move { on_query_thread(&asked, Description::for_test(), work).await }));
        while app.queries.set_back() == 0 {
            tokio::task::yield_now().await;
        }
        on_query_thread(&app, Description::for_test(), |_, _| Ok(Json::new()))
            .await
            .expect("a small query is answered");
        // a query that reads files is not small, however little it reads
        let asked = app.clone();
        let work = |_: &App, turn: &Arc<Turn>| match turn.may_wait() {
            true => Ok(Json::new()),
            false => Err(ApiError::unavailable("must run again")),
        };
        let reading =
            tokio::spawn(async move { on_query_thread(&asked, Description::for_test(), work).await });
        while app.queries.set_back() < 2 {
            tokio::task::yield_now().await;
        }
        endless.iter().for_each(tokio::task::JoinHandle::abort);
        reading.await.unwrap().expect("a query that reads files is answered later");
        until_idle(&app).await;
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_small_queries_are_answered_while_the_process_holds_too_much() {
        let dir = tempfile::tempdir().unwrap();
        let resident = Arc::new(FixedResident::default());
        let world =
            World { resident: Some(Arc::clone(&resident) as _), ..World::real(Arc::new(SystemClock)) };
        let node = crate::Node::start_in(small_settings(dir.path()), world).unwrap();
        let app = App::new(node.clone());
        resident.bytes.store(u64::MAX, Ordering::Relaxed);
        let endless = |_: &App, turn: &Arc<Turn>| {
            while !turn.is_set() {
                std::thread::yield_now();
            }
            Err(ApiError::unavailable("interrupted"))
        };
        let reads_files = |_: &App, turn: &Arc<Turn>| match turn.may_wait() {
            true => Ok(Json::new()),
            false => Err(ApiError::unavailable("interrupted")),
        };
        while node.reads().headroom.check().is_ok() {
            tokio::task::yield_now().await; // until the cached reading of memory is read again
        }
        for refused in [
            on_query_thread(&app, Description::for_test(), endless).await,
            on_query_thread(&app, Description::for_test(), reads_files).await,
        ] {
            let text = format!("{:?}", refused.expect_err("it is not small"));
            assert!(text.contains("503") && text.contains(REASON), "{text}");
        }
        on_query_thread(&app, Description::for_test(), |_, _| Ok(Json::new()))
            .await
            .expect("a small query is answered");
        resident.bytes.store(0, Ordering::Relaxed);
        while node.reads().headroom.check().is_err() {
            tokio::task::yield_now().await;
        }
        on_query_thread(&app, Description::for_test(), reads_files).await.expect("the shortage is over");
        until_idle(&app).await;
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
