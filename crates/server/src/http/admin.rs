//! Operations for operators and tests, one module each.
//!
//! | path | |
//! | --- | --- |
//! | POST `/api/v1/admin/flush` | seal everything now |
//! | POST `/api/v1/admin/compact` | compact until nothing is left to do |

mod compact;
mod flush;

use super::App;
use super::json::Json;
use axum::Router;
use axum::routing::post;

/// Routes of the operations. All of them change the node.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/api/v1/admin/flush", post(flush::flush))
        .route("/api/v1/admin/compact", post(compact::compact))
}

/// Answer with the totals of an operation.
fn counts(counts: &[(&str, u64)]) -> Json {
    let mut json = Json::new();
    json.raw(r#"{"status":"success","data":{"#);
    for (i, (name, count)) in counts.iter().enumerate() {
        json.comma(i);
        json.string(name);
        json.raw(":");
        json.raw(&count.to_string());
    }
    json.raw("}}");
    json
}
