//! Settings in effect, in the form of the configuration file, without secrets. `mode=diff` lists only settings
//! that are not defaults.

use crate::http::App;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::settings::{EffectiveSetting, Origin};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

pub(super) async fn all(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let settings = &app.node.settings().listing;
    listing(&app, settings.iter(), &params)
}

pub(super) async fn of_tenants(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    listing(&app, app.node.overrides().current().rows().iter(), &params)
}

fn listing<'a>(
    app: &App,
    rows: impl Iterator<Item = &'a EffectiveSetting>,
    params: &Params,
) -> Result<Response, ApiError> {
    let is_diff = match params.get("mode") {
        None => false,
        Some("diff") => true,
        Some(_) => return Err(ApiError::bad_param("mode", "must be diff, or absent")),
    };
    let is_default = |origin: &Origin| matches!(origin, Origin::Default | Origin::Derived(_));
    let mut text = Json::within(&app.node.reads().answers);
    for EffectiveSetting { key, value, origin } in rows.filter(|row| !(is_diff && is_default(&row.origin))) {
        let detail = origin.detail().map_or_else(String::new, |detail| format!(": {detail}"));
        // a file name may contain a newline, which would end the comment
        let detail = detail.replace('\n', " ");
        text.raw(&format!("{key} = {value}  # {}{detail}\n", origin.kind()));
    }
    let mut response = text.finish()?.into_response();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}
