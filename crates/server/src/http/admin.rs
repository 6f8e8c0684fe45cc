//! Operations for operators and tests.

use super::App;
use super::error::ApiError;
use super::json::Json;
use crate::seal::flush::flush as seal;
use crate::seal::flushed::Flushed;
use crate::upkeep::{Compacted, compact as merge};
use axum::extract::State;

/// Seals and commits everything accepted before. Answers with the totals.
pub(crate) async fn flush(State(app): State<App>) -> Result<Json, ApiError> {
    app.node.readiness().wait_for_replay().await;
    let Flushed { tables, commits, files, rows, samples, bytes, .. } = seal(&app.node).await?;
    Ok(counts(&[
        ("tables", tables),
        ("commits", commits),
        ("files", files),
        ("rows", rows),
        ("samples", samples),
        ("bytes", bytes),
    ]))
}

/// Compacts all tables until nothing is left to do. Answers with the totals.
pub(crate) async fn compact(State(app): State<App>) -> Result<Json, ApiError> {
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
