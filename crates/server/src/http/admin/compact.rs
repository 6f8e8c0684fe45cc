use super::counts;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::upkeep::{Compacted, compact as merge};
use axum::extract::State;

/// Compacts all tables until nothing is left to do, then answers how much was done.
pub(super) async fn compact(State(app): State<App>) -> Result<Json, ApiError> {
    let Compacted { merges, files, bytes, rollups, failures, damaged } = merge(&app.node).await?;
    Ok(counts(&[
        ("merges", merges),
        ("files", files),
        ("bytes", bytes),
        ("rollups", rollups),
        ("failures", failures),
        ("damaged", damaged),
    ]))
}
