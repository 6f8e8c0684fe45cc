use super::counts;
use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::seal::flush::flush as seal;
use crate::seal::flushed::Flushed;
use axum::extract::State;

/// Seals all samples and loads all records accepted so far, then answers how much was sealed.
pub(super) async fn flush(State(app): State<App>) -> Result<Json, ApiError> {
    app.node.readiness().wait_for_replay().await;
    let Flushed { tables, commits, files, rows, samples, bytes, .. } = seal(&app.node).await?;
    app.node.streams().flush().await?;
    Ok(counts(&[
        ("tables", tables),
        ("commits", commits),
        ("files", files),
        ("rows", rows),
        ("samples", samples),
        ("bytes", bytes),
    ]))
}
