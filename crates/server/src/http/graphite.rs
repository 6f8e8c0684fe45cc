//! Graphite's HTTP API for readers, as graphite-web answers it, and paths of go-carbon. Errors are plain text.
//!
//! | path | |
//! | --- | --- |
//! | GET POST `/render` | values of targets |
//! | GET POST `/metrics/find`, `/metrics/expand` | nodes that patterns select |
//! | GET POST `/metrics/index.json` | all names |
//! | GET POST `/metrics/details` | when metrics were last written |
//! | GET POST `/info` | steps and retention of a metric |
//! | GET `/tags`, `/tags/<tag>` | tags of series, and their values |
//! | GET POST `/tags/findSeries`, `/tags/autoComplete/tags`, `/tags/autoComplete/values` | series by tags, and suggestions |
//! | POST `/tags/tagSeries`, `/tags/tagMultiSeries` | names of tagged series |
//! | POST `/tags/delSeries` | delete series by their names; an operation of administration |
//! | GET `/functions`, `/functions/<name>` | functions of targets |
//! | POST `/events` | stores an event |
//! | GET POST `/events/get_data`, GET `/events/<id>` | events |
//! | GET `/version` | version of graphite-web that this API follows |
//! | GET `/lb_check` | whether the node is ready, in carbonapi's words |
//!
//! All paths also exist with a slash at their end, as in graphite-web.

mod answer;
mod ask;
mod delete;
mod details;
mod events;
mod expand;
mod find;
mod functions;
mod info;
mod msgpack;
mod pickle;
mod protobuf;
mod render;
mod tags;

pub(super) use events::iso_time;

use super::App;
use super::status::ready;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};

/// Paths that delete series.
pub(super) const DELETES: [&str; 4] =
    ["/tags/delSeries", "/tags/delSeries/", "/graphite/tags/delSeries", "/graphite/tags/delSeries/"];

/// The release of graphite-web whose HTTP API this server follows.
const API_VERSION: &str = "1.1.10";

/// Routes that only read.
pub(super) fn routes() -> Router<App> {
    with_slashes([
        ("/render", get(render::render).post(render::render)),
        ("/metrics/find", get(find::find).post(find::find)),
        ("/metrics/expand", get(expand::expand).post(expand::expand)),
        ("/metrics/index.json", get(expand::index).post(expand::index)),
        ("/metrics/details", get(details::details).post(details::details)),
        ("/info", get(info::info).post(info::info)),
        ("/tags", get(tags::list)),
        ("/tags/findSeries", get(tags::find_series).post(tags::find_series)),
        ("/tags/autoComplete/tags", get(tags::complete_tags).post(tags::complete_tags)),
        ("/tags/autoComplete/values", get(tags::complete_values).post(tags::complete_values)),
        ("/tags/tagSeries", post(tags::tag_series)),
        ("/tags/tagMultiSeries", post(tags::tag_multi_series)),
        ("/tags/{tag}", get(tags::details)),
        ("/functions", get(functions::list)),
        ("/functions/{name}", get(functions::details)),
        ("/events/get_data", get(events::list).post(events::list)),
        ("/events/{id}", get(events::details)),
        ("/version", get(async || API_VERSION)),
    ])
}

/// Routes without a tenant.
pub(super) fn open_routes() -> Router<App> {
    with_slashes([("/lb_check", get(lb_check))])
}

/// carbonapi always says `Ok`. This says it only while the node is ready.
async fn lb_check(app: State<App>) -> Response {
    match ready(app).await {
        ready if ready.status().is_success() => "Ok\n".into_response(),
        refused => refused,
    }
}

/// Routes that write.
pub(super) fn write_routes() -> Router<App> {
    with_slashes([("/events", post(events::store))])
}

fn with_slashes<const N: usize>(routes: [(&str, MethodRouter<App>); N]) -> Router<App> {
    routes.into_iter().fold(Router::new(), |router, (path, handler)| {
        router.route(path, handler.clone()).route(&format!("{path}/"), handler)
    })
}

/// Routes of operations, which are served where administration is.
pub(super) fn admin_routes() -> Router<App> {
    DELETES.into_iter().fold(Router::new(), |router, path| router.route(path, post(delete::delete_series)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::params::Params;
    use crate::http::principal::ReadTenant;
    use crate::http::queries::admission::tests::{occupy, until_idle};
    use crate::listen::Peer;
    use crate::seal::tests::node_with;
    use axum::body::Body;
    use axum::extract::FromRequest;
    use axum::http::Request;
    use axum::http::header::CONTENT_TYPE;
    use model::TenantId;

    /// Hundreds of requests may wait at the same time, each with a megabyte of texts.
    #[tokio::test(flavor = "multi_thread")]
    async fn parameters_stay_reserved_while_a_request_waits() {
        const BYTES: usize = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let node = node_with(dir.path(), |_| ()).await;
        let app = App::new(node.clone());
        let answers = node.reads().answers.clone();
        for name in ["target", "expr"] {
            let (held, before) = (occupy(&app).await, answers.used_bytes());
            let form = Body::from(format!("format=json&{name}=a={}", "x".repeat(BYTES)));
            let request = Request::post("/").header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            let params = Params::from_request(request.body(form).unwrap(), &app).await;
            let (state, peer) = (State(app.clone()), Peer::unknown());
            let answer = tokio::spawn(async move {
                let tenant = Ok(ReadTenant(TenantId::without_data()));
                match name {
                    "target" => render::render(state, peer, tenant, params).await,
                    _ => tags::find_series(state, peer, tenant, params).await,
                }
            });
            while app.queries.waiting_and_running().0 == 0 {
                assert!(!answer.is_finished(), "{:?}", answer.await);
                tokio::task::yield_now().await;
            }
            let reserved = answers.used_bytes() - before;
            assert!(reserved >= 3 * BYTES as u64, "{name}: {reserved} bytes are reserved");
            drop(held);
            drop(answer.await.unwrap());
            until_idle(&app).await;
            while answers.used_bytes() > before {
                tokio::task::yield_now().await;
            }
        }
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
