//! `/functions`: what functions there are, for function pickers.

use super::answer::respond;
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::http::queries::admission::answers_of;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use query::graphite::functions::table::Default;
use query::graphite::functions::{self, Function, Param};
use std::collections::BTreeMap;

/// The module that defines the functions in graphite-web. Some clients show it.
const MODULE: &str = "graphite.render.functions";

/// Lists all functions, or those of one group; with `grouped`, by their groups.
pub(super) async fn list(
    State(app): State<App>,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let is_grouped =
        params.last("grouped").is_some_and(|text| ["1", "true"].contains(&&*text.to_lowercase()));
    let group = params.last("group");
    // functions of pie charts are only for drawing, and do not exist here
    let is_pie = params.last("type") == Some("pie");
    let mut groups: BTreeMap<&str, BTreeMap<&str, &Function>> = BTreeMap::new();
    for function in functions::all().filter(|_| !is_pie) {
        let own = function.group.name();
        if group.is_none_or(|group| group == own) {
            let all = groups.entry(if is_grouped { own } else { "" }).or_default();
            let names = std::iter::once(function.name).chain(function.aliases.iter().copied());
            all.extend(names.map(|name| (name, function)));
        }
    }
    let mut json = Json::within(&answers_of(&app, &tenant));
    if !is_grouped {
        object(&mut json, groups.remove("").unwrap_or_default(), describe);
    } else {
        object(&mut json, groups, |json, _, all| {
            object(json, all, describe);
        });
    }
    Ok(respond(json.finish()?, "application/json"))
}

pub(super) async fn details(
    State(app): State<App>,
    tenant: Result<ReadTenant, ApiError>,
    Path(name): Path<String>,
) -> Result<Response, TextError> {
    let ReadTenant(tenant) = tenant?;
    let function = functions::find(&name).ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("Function not found: {name}"))
    })?;
    let mut json = Json::within(&answers_of(&app, &tenant));
    describe(&mut json, &name, function);
    Ok(respond(json.finish()?, "application/json"))
}

fn object<V>(json: &mut Json, all: BTreeMap<&str, V>, mut write: impl FnMut(&mut Json, &str, V)) {
    json.raw("{");
    for (i, (name, value)) in all.into_iter().enumerate() {
        json.comma(i);
        json.string(name);
        json.raw(":");
        write(json, name, value);
    }
    json.raw("}");
}

fn describe(json: &mut Json, name: &str, function: &Function) {
    json.raw(r#"{"name":"#);
    json.string(name);
    json.raw(r#","function":"#);
    let signature = function.signature();
    json.string(&[name, signature.strip_prefix(function.name).unwrap_or_default()].concat());
    json.raw(r#","description":"#);
    json.string(function.description);
    json.raw(r#","module":"#);
    json.string(MODULE);
    json.raw(r#","group":"#);
    json.string(function.group.name());
    json.raw(r#","params":["#);
    for (i, param) in function.params.iter().enumerate() {
        json.comma(i);
        parameter(json, param);
    }
    json.raw("]}");
}

fn parameter(json: &mut Json, param: &Param) {
    json.raw(r#"{"name":"#);
    json.string(param.name);
    json.raw(r#","type":"#);
    json.string(param.kind.name());
    if param.is_required {
        json.raw(r#","required":true"#);
    }
    if let Some(default) = &param.default {
        json.raw(r#","default":"#);
        match default {
            Default::Boolean(value) => json.raw(if *value { "true" } else { "false" }),
            // JSON has no infinity; a number that is too large reads as one
            Default::Float(value) if value.is_infinite() => json.raw("1e9999"),
            Default::Float(value) => json.raw(&value.to_string()),
            Default::Integer(value) => json.integer(*value),
            Default::Text(text) => json.string(text),
        }
    }
    if param.is_multiple {
        json.raw(r#","multiple":true"#);
    }
    for (name, texts) in [("options", &param.choices()[..]), ("suggestions", param.suggestions)] {
        if !texts.is_empty() {
            json.raw(&format!(r#","{name}":"#));
            json.strings(texts);
        }
    }
    json.raw("}");
}
