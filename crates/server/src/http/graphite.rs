//! Graphite's HTTP API for readers, as graphite-web answers it. Errors are plain text.
//!
//! | path | |
//! | --- | --- |
//! | GET POST `/render` | values of targets |
//! | GET POST `/metrics/find`, `/metrics/expand` | nodes that patterns select |
//! | GET POST `/metrics/index.json` | all names |
//! | GET `/version` | version of graphite-web that this API follows |
//!
//! All paths also exist with a slash at their end, as in graphite-web.

mod answer;
mod expand;
mod find;
mod msgpack;
mod pickle;
mod render;

use super::App;
use axum::Router;
use axum::routing::{MethodRouter, get};

/// The release of graphite-web whose HTTP API this server follows.
const API_VERSION: &str = "1.1.10";

pub(super) fn routes() -> Router<App> {
    let routes: [(&str, MethodRouter<App>); 5] = [
        ("/render", get(render::render).post(render::render)),
        ("/metrics/find", get(find::find).post(find::find)),
        ("/metrics/expand", get(expand::expand).post(expand::expand)),
        ("/metrics/index.json", get(expand::index).post(expand::index)),
        ("/version", get(async || API_VERSION)),
    ];
    routes.into_iter().fold(Router::new(), |router, (path, handler)| {
        router.route(path, handler.clone()).route(&format!("{path}/"), handler)
    })
}
