//! `/events`: stores and finds events, which dashboards show as annotations.

use super::answer::{Callback, respond};
use super::ask::{Ask, Asked};
use crate::events::{
    BODY_BYTES_MAX, Event, EventQuery, EventsError, Place, Record, TAGS_BYTES_MAX, TAGS_MAX, TagSet,
    WHEN_MS_MAX, expired_before_ms,
};
use crate::http::App;
use crate::http::body::BodyReader;
use crate::http::error::{ApiError, TextError, WriteError};
use crate::http::ingest::apply_limit_status;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::{ReadTenant, RequestPrincipal};
use crate::http::queries::admission::check_canceled;
use crate::listen::Peer;
use crate::listen::patience::Patience;
use crate::refusal::{Refusal, grow};
use crate::write_path::admit;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use model::TenantId;
use query::graphite::at_time;
use query::{QueryError, SourceError};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Memory of a body while it is parsed, per byte: a value of JSON takes two bytes in the body, and 32 bytes in a list that
/// grows by doubling.
const PARSE_COST: u64 = 33;

/// Memory of the wanted tags while events are compared with them: a list that grows by doubling, and a sorted one.
const WANTED_BYTES: u64 = 64 << 10;

const _: () = assert!(TAGS_MAX * (2 * size_of::<&str>() + size_of::<(&str, u64)>()) <= WANTED_BYTES as usize);

/// Stores the event in the body. Answers once it is durable.
pub(super) async fn store(
    State(app): State<App>,
    RequestPrincipal(principal): RequestPrincipal,
    body: Body,
) -> Result<StatusCode, WriteError> {
    let (writes, settings) = (app.node.writes(), app.node.settings());
    let tenants = app.node.overrides().current();
    let own = tenants.of(&principal.tenant);
    let state = writes.tenant(&principal.tenant);
    let timeout = Duration::from_millis(settings.body_timeout_ms);
    let patience = Patience::new(timeout, settings.transfer_rate);
    let account = state.inflight(own);
    let reader = BodyReader { account, bytes_max: BODY_BYTES_MAX, step_bytes: 4 << 10, patience };
    let (bytes, mut memory) = reader
        .read(body)
        .await
        .map_err(|error| error.refusal(BODY_BYTES_MAX, timeout.as_secs_f64(), settings.transfer_rate))?;
    if let Err(mut refusal) = admit(writes, &principal, bytes.len()).await {
        apply_limit_status(&mut refusal, own.limit_status);
        return Err(refusal.into());
    }
    grow(&mut memory, bytes.len() as u64 * PARSE_COST)?;
    let event = event_of(&bytes, writes.clock.now_ms()).map_err(|why| Refusal::invalid("decode", why))?;
    app.node.reads().events.append(&principal.tenant, event, own.limits.events_bytes).await?;
    Ok(StatusCode::OK)
}

fn event_of(body: &[u8], now_ms: i64) -> Result<Event, String> {
    let parsed = serde_json::from_slice(body).map_err(|error| format!("invalid JSON: {error}"))?;
    let Value::Object(mut event) = parsed else { return Err("an event must be an object of JSON".into()) };
    let Some(Value::String(what)) = event.remove("what") else {
        return Err("an event needs \"what\", which must be a string".into());
    };
    let data = match event.remove("data") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    Ok(Event { when_ms: when_of(&event, now_ms)?, what, tags: tags_of(&event)?, data })
}

fn when_of(event: &Map<String, Value>, now_ms: i64) -> Result<i64, String> {
    let Some(when) = event.get("when") else { return Ok(now_ms) };
    let when_ms = when.as_f64().map(|seconds| (seconds * 1000.0).floor());
    match when_ms {
        Some(when_ms) if (0.0..=WHEN_MS_MAX as f64).contains(&when_ms) => Ok(when_ms as i64),
        _ => Err("\"when\" must be a number: seconds since 1970, before the year 10000".into()),
    }
}

/// The tags, separated by single spaces.
fn tags_of(event: &Map<String, Value>) -> Result<String, String> {
    let (mut tags, mut count) = (String::new(), 0);
    let mut add = |text: &str| {
        for tag in text.split_ascii_whitespace() {
            count += 1;
            if count > TAGS_MAX {
                return Err(format!("an event may have at most {TAGS_MAX} tags"));
            }
            if count > 1 {
                tags.push(' ');
            }
            tags.push_str(tag);
        }
        Ok(())
    };
    let wrong = || "\"tags\" must be an array of strings or a string with spaces between the tags".to_owned();
    match event.get("tags") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => add(text)?,
        Some(Value::Array(texts)) => {
            texts.iter().try_for_each(|text| add(text.as_str().ok_or_else(wrong)?))?;
        }
        Some(_) => return Err(wrong()),
    }
    Ok(tags)
}

/// Lists the events of a time range with certain tags, in the order of their times.
pub(super) async fn list(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let callback = Callback::of(&params, app.node.settings())?;
    let mut request = ListRequest::of(&params, app.node.reads().clock.now_ms())?;
    request.from_ms = request.from_ms.max(expired(&app, &tenant));
    let content_type = callback.content_type();
    let ask = Ask { tenant, path: "/events/get_data", text: Arc::clone(&request.tags), peer };
    let answer = ask.at_once(&app, move |asked, json| {
        callback.begin(json);
        write_events(asked, &request, json)?;
        callback.end(json);
        Ok(())
    });
    Ok(respond(answer.await?, content_type))
}

/// What a request for events asks for.
#[derive(Debug)]
struct ListRequest {
    from_ms: i64,
    until_ms: i64,
    /// Separated by whitespace, at most [`TAGS_MAX`]. They stay one text, whose memory [`Params`] has reserved, until
    /// it is the request's turn.
    tags: Arc<str>,
    set: TagSet,
}

impl ListRequest {
    fn of(params: &Params, now_ms: i64) -> Result<Self, ApiError> {
        let time = |name| {
            let parse = |text| at_time::parse(text, now_ms.div_euclid(1000), &TimeZone::UTC);
            params.last(name).map(parse).transpose().map_err(|error| ApiError::bad_param(name, error))
        };
        let until_ms = time("until")?.map_or(now_ms, |until_s| until_s.saturating_mul(1000));
        let tags = params.last("tags").unwrap_or_default();
        if tags.len() > TAGS_BYTES_MAX || tags.split_ascii_whitespace().count() > TAGS_MAX {
            let limits = format!("more than {TAGS_MAX} tags, or than {TAGS_BYTES_MAX} bytes");
            return Err(ApiError::bad_param("tags", limits));
        }
        Ok(Self {
            from_ms: time("from")?.unwrap_or(0).saturating_mul(1000),
            // answers have whole seconds, so an event within the last second belongs to it
            until_ms: until_ms.saturating_add(999),
            tags: tags.into(),
            set: if params.last("set") == Some("union") { TagSet::Any } else { TagSet::All },
        })
    }
}

/// Returns the time, in milliseconds since the epoch, before which the tenant's events have expired.
pub(super) fn expired(app: &App, tenant: &TenantId) -> i64 {
    let (writes, tenants) = (app.node.writes(), app.node.overrides().current());
    expired_before_ms(tenants.of(tenant), &writes.rules.current(), &writes.wall, &*writes.clock)
}

fn write_events(asked: &Asked<'_>, request: &ListRequest, json: &mut Json) -> Result<(), ApiError> {
    let turn = &**asked.turn;
    let tags: Vec<_> = request.tags.split_ascii_whitespace().collect();
    let (from_ms, until_ms) = (request.from_ms, request.until_ms);
    let query = EventQuery { from_ms, until_ms, tags: &tags, set: request.set };
    let mut places: Vec<(i64, u64, Place)> = Vec::new();
    // while the list grows by doubling, the old and the new one take memory
    let left_bytes = turn.limits.memory_bytes.saturating_sub(WANTED_BYTES);
    let most = left_bytes as usize / size_of::<(i64, u64, Place)>() / 3;
    let events = &asked.app.node.reads().events;
    let file = events.find(asked.tenant, &query, turn, |place, record| {
        if places.len() >= most {
            return Err(EventsError::Memory);
        }
        places.push((record.when_ms, record.id, place));
        Ok(())
    });
    let file = file.map_err(failed)?;
    places.sort_unstable_by_key(|(when_ms, id, _)| (*when_ms, *id));
    json.raw("[");
    let (mut buffer, mut written) = (Vec::new(), 0);
    for (i, (.., place)) in places.iter().enumerate() {
        if i % 100 == 0 {
            check_canceled(turn)?;
        }
        if let Some(file) = &file
            && let Some(record) = file.read(*place, &mut buffer).map_err(failed)?
        {
            json.comma(written);
            written += 1;
            write_event(json, &record, |json| json.integer(record.when_ms.div_euclid(1000)));
        }
    }
    json.raw("]");
    Ok(())
}

/// One event, in which `when` has milliseconds.
pub(super) async fn details(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    Path(id): Path<String>,
) -> Result<Response, TextError> {
    let ReadTenant(tenant) = tenant?;
    let from_ms = expired(&app, &tenant);
    let ask = Ask { tenant, path: "/events/<id>", text: id.as_str().into(), peer };
    let answer = ask.at_once(&app, move |asked, json| {
        let all = EventQuery { from_ms, until_ms: i64::MAX, tags: &[], set: TagSet::All };
        let (wanted, mut is_found) = (id.parse::<u64>().ok(), false);
        let events = &asked.app.node.reads().events;
        let found = events.find(asked.tenant, &all, &**asked.turn, |_, record| {
            if Some(record.id) == wanted {
                write_event(json, record, |json| json.string(&iso_time(record.when_ms)));
                is_found = true;
            }
            Ok(())
        });
        found.map_err(failed)?;
        if !is_found {
            return Err(ApiError::new(
                StatusCode::NOT_FOUND,
                "not_found",
                format!("no event has the id {id}"),
            ));
        }
        Ok(())
    });
    Ok(respond(answer.await?, "application/json"))
}

pub(in crate::http) fn iso_time(ms: i64) -> String {
    // `DateTime` is used because `Timestamp` ends 26 hours before the year 9999 does
    let time = DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(SignedDuration::from_millis(ms));
    let time = time.expect("BUG: an event is after the year 9999");
    let text = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    match ms.rem_euclid(1000) {
        0 => format!("{text}Z"),
        ms => format!("{text}.{ms:03}Z"),
    }
}

fn write_event(json: &mut Json, record: &Record<'_>, when: impl FnOnce(&mut Json)) {
    json.raw(r#"{"when":"#);
    when(json);
    json.raw(r#","what":"#);
    json.string(&record.what);
    json.raw(r#","data":"#);
    json.string(&record.data);
    json.raw(r#","tags":"#);
    json.raw("[");
    for (i, tag) in record.tags.split_ascii_whitespace().enumerate() {
        json.comma(i);
        json.string(tag);
    }
    json.raw(r#"],"id":"#);
    json.integer(record.id as i64);
    json.raw("}");
}

fn failed(error: EventsError) -> ApiError {
    QueryError::from(SourceError::from(error)).into()
}
