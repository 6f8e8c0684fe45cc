//! Records of datastreams: POST `/api/v1/streams/NAME`.
//!
//! | content type | a body |
//! | --- | --- |
//! | `application/json`, `application/x-ndjson`, `application/jsonl` | one object, a list of objects, or an object in each line |
//! | `text/csv` | a table with a header |
//! | others | lines of text |
//!
//! The parameter `format` (`json`, `csv`, `lines`) has precedence. The answer says how many records are stored, and which are
//! refused. A body is stored whole or not at all, except for records that are refused by themselves.

use super::{apply_limit_status, receive};
use crate::http::App;
use crate::http::error::WriteError;
use crate::http::json::Json;
use crate::http::principal::RequestPrincipal;
use crate::limits::budget::Budget;
use crate::refusal::Refusal;
use crate::streams::batch::{BATCH_BYTES, Batch, ROW_BYTES, Stored};
use crate::streams::known::StreamLimit;
use crate::write_path;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use journal::records::BatchHeader;
use model::{BatchId, ErrorKind, Principal, Records, StreamName, TenantId};
use protocol::records::{Decoded, Format, Refusals};
use protocol::{Body as EncodedBody, Encoding, records};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, IncrementalReservation, Reservation};
use tokio::time::timeout;

/// The client's name for a batch. If it repeats a batch with the same name within an hour, the batch is not stored again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

const KEY_BYTES_MAX: usize = 256;

/// A body is decoded in place if it has at most this many bytes.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Limit on the days of the records of one request.
const DAYS_MAX: usize = 100;

/// A new stream waits this long for the object store.
const LISTING_WAIT: Duration = Duration::from_secs(10);

const DAY_US: i64 = tables::DAY_MS * 1000;

const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

pub(super) async fn records(
    State(app): State<App>,
    RequestPrincipal(principal): RequestPrincipal,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let tenant = principal.tenant.clone();
    match store(&app, principal, &name, &uri, &headers, body).await {
        Ok(answer) => answer,
        Err(mut refusal) => {
            apply_limit_status(&mut refusal, app.node.overrides().current().of(&tenant).limit_status);
            WriteError(refusal).into_response()
        }
    }
}

/// A body that was read, and what is known of it.
struct Received {
    stream: StreamName,
    id: Option<BatchId>,
    format: Format,
    encoding: Encoding,
    bytes: Vec<u8>,
    memory: Reservation,
    arrival_us: i64,
}

async fn store(
    app: &App,
    principal: Principal,
    name: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let stream = StreamName::parse(name).map_err(|error| Refusal::invalid("bad_data", error.to_string()))?;
    let format = format(text(header::CONTENT_TYPE), uri)?;
    let id = id(&principal, &stream, headers)?;
    let encoding = Encoding::negotiate(text(header::CONTENT_ENCODING), ENCODINGS)?;
    let declared = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    app.node.streams().wait_until_ready().await?;
    let (bytes, memory) = receive(app, &principal.tenant, declared, body).await?;
    let context = app.node.writes();
    write_path::admit(context, &principal, bytes.len()).await?;
    let streams = app.node.streams();
    streams.shared.metrics.body_bytes.add(bytes.len() as u64);
    let arrival_us = context.clock.now_ms().saturating_mul(1000);
    let received = Received { stream, id, format, encoding, bytes, memory, arrival_us };
    let Prepared { header, payload, refused, memory: _memory } = prepare(app, &principal, received).await?;
    streams.shared.metrics.refused_records.add(refused.count);
    let stored = match header {
        Some(BatchHeader { tenant, stream, arrival_us, records, .. }) => {
            let account = account_of(app, &tenant, &stream).await?;
            let memory = account.reserve((payload.len() + BATCH_BYTES) as u64)?;
            let payload = payload.into();
            streams.store(Batch { tenant, stream, id, arrival_us, records, payload, memory }).await?
        }
        None => Stored { records: 0, was_known: false },
    };
    match refused.first.first() {
        Some(first) if stored.records == 0 => {
            let others = refused.count - 1;
            Err(Refusal::invalid("bad_data", format!("no record is stored: {first} (and {others} others)")))
        }
        _ => Ok(answer(stored, &refused)),
    }
}

/// The account in which a stream's records take memory. Fails if the stream is new and the tenant has too many.
async fn account_of(app: &App, tenant: &TenantId, stream: &StreamName) -> Result<Account, Refusal> {
    let (shared, key) = (&app.node.streams().shared, (tenant.clone(), stream.clone()));
    if let Some(account) = shared.known.part_of(&key) {
        return Ok(account);
    }
    let settings = app.node.overrides().current();
    let limits = &settings.of(tenant).limits;
    let limit = StreamLimit { streams: limits.streams, is_given: limits.streams_is_given };
    let listings = Arc::clone(&shared.known.listings);
    let Ok(listing) = timeout(LISTING_WAIT, listings.acquire_owned()).await else {
        return Err(Refusal::busy(
            "table_unreadable",
            "the object store does not say which streams the tenant has",
        ));
    };
    let (shared, lake) = (Arc::clone(shared), Arc::clone(&app.node.reads().lake));
    let add = tokio::task::spawn_blocking(move || {
        let added = shared.known.add(&lake.tables, &key, limit);
        drop(listing); // the permit is held until the thread is free, also if the client goes away
        added
    });
    add.await.map_err(|error| {
        Refusal::new(ErrorKind::Internal, "bug", format!("a stream was not added: {error}"))
    })?
}

fn id(principal: &Principal, stream: &StreamName, headers: &HeaderMap) -> Result<Option<BatchId>, Refusal> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::as_bytes) else { return Ok(None) };
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let message =
            format!("the header Idempotency-Key has {} bytes instead of 1 to {KEY_BYTES_MAX}", key.len());
        return Err(Refusal::invalid("bad_data", message));
    }
    Ok(Some(BatchId::of(&principal.tenant, stream, key)))
}

fn format(content_type: Option<&str>, uri: &Uri) -> Result<Format, Refusal> {
    let query = uri.query().unwrap_or_default().as_bytes();
    let given = form_urlencoded::parse(query).find(|(name, _)| name == "format").map(|(_, value)| value);
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match (given.as_deref(), media_type.to_ascii_lowercase().as_str()) {
        (Some("json"), _) => Ok(Format::Json),
        (Some("csv"), _) => Ok(Format::Csv),
        (Some("lines"), _) => Ok(Format::Lines),
        (Some(_), _) => {
            Err(Refusal::invalid("bad_data", "invalid parameter \"format\": it must be json, csv or lines"))
        }
        (None, "application/json" | "application/x-ndjson" | "application/jsonl") => Ok(Format::Json),
        (None, "text/csv") => Ok(Format::Csv),
        (None, _) => Ok(Format::Lines),
    }
}

/// A decoded body.
struct Prepared {
    /// `None` if there are no records.
    header: Option<BatchHeader>,
    /// The batch as the journal has it.
    payload: Vec<u8>,
    refused: Refusals,
    /// The request's memory, until it is answered.
    memory: Reservation,
}

/// Decodes a body, on a blocking thread if it is large.
async fn prepare(app: &App, principal: &Principal, received: Received) -> Result<Prepared, Refusal> {
    let gates = &app.node.writes().gates;
    let (tenant, budget) = (principal.tenant.clone(), app.node.budget().clone());
    let body = EncodedBody { encoding: received.encoding, bytes: &received.bytes };
    let is_small = body.decoded_len()?.is_some_and(|bytes| bytes <= INLINE_BYTES_MAX);
    if is_small {
        let _turn = gates.decoding_turn(&principal.tenant).await;
        return decode(tenant, received, &budget);
    }
    let thread = gates.decoding_permit(&principal.tenant).await;
    let task = tokio::task::spawn_blocking(move || {
        let prepared = decode(tenant, received, &budget);
        drop(thread); // the permit is held until decoding ends
        prepared
    });
    task.await
        .map_err(|error| Refusal::new(ErrorKind::Internal, "bug", format!("decoding failed: {error}")))?
}

/// Decodes a body, and encodes its records for the journal.
fn decode(tenant: TenantId, received: Received, budget: &Budget) -> Result<Prepared, Refusal> {
    let Received { stream, id, format, encoding, bytes, mut memory, arrival_us } = received;
    let mut inflated = Vec::new();
    let body = match encoding {
        Encoding::Identity => &bytes,
        _ => {
            let body = EncodedBody { encoding, bytes: &bytes };
            body.decompress(&mut inflated, &mut IncrementalReservation::new(&mut memory))?;
            &inflated
        }
    };
    check_size("body has", body.len(), budget.records_body_bytes())?;
    let request = records::Request { body, arrival_us, first_line: 1 };
    let Decoded { records, refused } = records::decode(format, request, &mut memory)?;
    let mut payload = Vec::new();
    if records.is_empty() {
        return Ok(Prepared { header: None, payload, refused, memory });
    }
    let load_bytes = records.memory_bytes() + ROW_BYTES * records.len();
    check_size("records take", load_bytes, budget.loading_bytes() as usize / 2)?;
    check_days(&records)?;
    let id = id.map(BatchId::to_bytes);
    let header = BatchHeader { tenant, stream, arrival_us, id, records: records.len() as u32 };
    IncrementalReservation::new(&mut memory).reserve(journal::records::encode_memory(&records))?;
    journal::records::encode(&mut payload, &header, &records);
    payload.shrink_to_fit();
    Ok(Prepared { header: Some(header), payload, refused, memory })
}

fn check_size(what: &str, bytes: usize, bytes_max: usize) -> Result<(), Refusal> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!(
        "the {what} {bytes} bytes, the limit is {bytes_max}; send smaller bodies, or raise the limit with --memory"
    );
    Err(Refusal::too_large("body_size", message))
}

/// Refuses records of too many days, because each day is a file.
fn check_days(records: &Records) -> Result<(), Refusal> {
    let mut days = HashSet::new();
    for time_us in &records.times_us {
        days.insert(time_us.div_euclid(DAY_US));
        if days.len() > DAYS_MAX {
            let message =
                format!("records of more than {DAYS_MAX} days in one request; send them in several");
            return Err(Refusal::invalid("bad_data", message));
        }
    }
    Ok(())
}

fn answer(stored: Stored, refused: &Refusals) -> Response {
    let mut json = Json::new();
    json.raw(r#"{"stored":"#);
    json.integer(i64::from(stored.records));
    json.raw(if stored.was_known { r#","repeated":true"# } else { r#","repeated":false"# });
    json.raw(r#","refused":"#);
    json.integer(refused.count as i64);
    json.raw(r#","errors":["#);
    for (i, refusal) in refused.first.iter().enumerate() {
        json.comma(i);
        json.string(&refusal.to_string());
    }
    json.raw("]}");
    json.into_response()
}
