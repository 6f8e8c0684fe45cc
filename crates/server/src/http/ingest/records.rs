//! What all doors for records have in common.
//!
//! ```text
//!   body ─ decode ─▶ records of each stream ─ account_of ─▶ accounts ─ encode ─▶ batches ─ owner ─▶ all durable, or none
//! ```
//!
//! A body is stored whole or not at all, except for records that are refused by themselves. If it has records of several
//! streams, they are in one group of the journal.

use super::receive;
use crate::http::App;
use crate::limits::budget::Budget;
use crate::refusal::Refusal;
use crate::streams::batch::{BATCH_BYTES, Batch, ROW_BYTES, Stored};
use crate::streams::known::StreamLimit;
use crate::write_path;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use journal::records::BatchHeader;
use model::{BatchId, ErrorKind, Principal, Records, StreamName, TenantId};
use protocol::records::{DecodedStreams, Refusals, StreamsRequest};
use protocol::{Body as EncodedBody, DecodeError, Encoding};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, IncrementalReservation, Reservation};
use tokio::time::timeout;

/// The client's name for a batch. If it repeats a batch with the same name within an hour, the batch is not stored again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

const KEY_BYTES_MAX: usize = 256;

/// The stream of all records of a request.
const STREAM: &str = "x-floodmark-stream";

/// A body is decoded in place if it has at most this many bytes.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Limit on the days of the records of one stream in one request.
const DAYS_MAX: usize = 100;

/// A new stream waits this long for the object store.
const LISTING_WAIT: Duration = Duration::from_secs(10);

const DAY_US: i64 = tables::DAY_MS * 1000;

pub(super) const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

/// How a request is to be stored.
#[derive(Debug)]
pub(super) struct Options {
    /// The stream of all records.
    pub(super) stream: Option<StreamName>,
    /// The stream of records whose own stream would be one more than the tenant may have.
    pub(super) spare: Option<StreamName>,
    /// The client's name for the batch.
    pub(super) key: Option<Vec<u8>>,
}

/// What became of a request.
#[derive(Debug)]
pub(super) struct Outcome<T> {
    pub(super) stored: Stored,
    pub(super) refused: Refusals,
    /// What the decoder made for the answer.
    pub(super) made: T,
    /// The request's memory.
    pub(super) memory: Reservation,
}

impl Options {
    /// Reads the headers that all doors have.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let stream = match headers.get(STREAM) {
            None => None,
            Some(name) => {
                let name = name.to_str().unwrap_or("\u{fffd}");
                let named = StreamName::parse(name);
                Some(named.map_err(|error| {
                    Refusal::invalid("bad_data", format!("the header X-Floodmark-Stream: {error}"))
                })?)
            }
        };
        Ok(Self { stream, spare: None, key: key(headers)? })
    }
}

fn key(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY).map(HeaderValue::as_bytes) else { return Ok(None) };
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let message =
            format!("the header Idempotency-Key has {} bytes instead of 1 to {KEY_BYTES_MAX}", key.len());
        return Err(Refusal::invalid("bad_data", message));
    }
    Ok(Some(key.to_vec()))
}

/// A body, and the reservation for its bytes.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) encoding: Encoding,
    pub(super) bytes: Vec<u8>,
    pub(super) memory: Reservation,
}

/// Reads a body once records can be stored.
pub(super) async fn read(
    app: &App,
    tenant: &TenantId,
    encoding: Encoding,
    headers: &HeaderMap,
    body: Body,
) -> Result<Received, Refusal> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let declared = length.and_then(|length| length.parse().ok());
    app.node.streams().wait_until_ready().await?;
    let (bytes, memory) = receive(app, tenant, declared, body).await?;
    Ok(Received { encoding, bytes, memory })
}

/// Stores the records of a body, which `decode` decodes. Returns once they are durable.
pub(super) async fn store<T, D>(
    app: &App,
    principal: &Principal,
    options: Options,
    received: Received,
    decode: D,
) -> Result<Outcome<T>, Refusal>
where
    T: Send + 'static,
    D: FnOnce(StreamsRequest<'_>, &mut Reservation) -> Result<(DecodedStreams, T), DecodeError>
        + Send
        + 'static,
{
    let context = app.node.writes();
    write_path::admit(context, principal, received.bytes.len()).await?;
    let (streams, tenant) = (app.node.streams(), &principal.tenant);
    streams.shared.metrics.body_bytes.add(received.bytes.len() as u64);
    let arrival_us = context.clock.now_ms().saturating_mul(1000);
    let body = EncodedBody { encoding: received.encoding, bytes: &received.bytes };
    let is_small = body.decoded_len()?.is_some_and(|bytes| bytes <= INLINE_BYTES_MAX);
    let budget = app.node.budget().clone();
    let Options { stream, spare, key } = options;
    let decoding = move || decoded(received, arrival_us, stream.as_ref(), &budget, decode);
    let ((decoded, made), memory) = work(app, tenant, is_small, decoding).await?;
    let DecodedStreams { streams: found, refused } = decoded;
    streams.shared.metrics.refused_records.add(refused.count);
    if found.is_empty() {
        return Ok(Outcome { stored: Stored { records: 0, was_known: false }, refused, made, memory });
    }
    let mut parts = Vec::with_capacity(found.len());
    for (stream, records) in found {
        let id = key.as_ref().map(|key| BatchId::of(tenant, &stream, key));
        let (stream, account) = stream_and_account(app, tenant, stream, spare.as_ref()).await?;
        parts.push(Part { stream, account, id, records });
    }
    let of = tenant.clone();
    let encoding = move || encoded(&of, arrival_us, parts, memory);
    let (batches, memory) = work(app, tenant, is_small, encoding).await?;
    let stored = streams.store(batches).await?;
    Ok(Outcome { stored, refused, made, memory })
}

/// Does work that takes memory and time: on a blocking thread, unless it is small.
async fn work<T: Send + 'static>(
    app: &App,
    tenant: &TenantId,
    is_small: bool,
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let gates = &app.node.writes().gates;
    if is_small {
        let _turn = gates.decoding_turn(tenant).await;
        return work();
    }
    let thread = gates.decoding_permit(tenant).await;
    let task = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(thread); // the permit is held until the work ends
        done
    });
    task.await
        .map_err(|error| Refusal::new(ErrorKind::Internal, "bug", format!("decoding failed: {error}")))?
}

/// Decodes a body, and checks that its records can be stored.
fn decoded<T>(
    received: Received,
    arrival_us: i64,
    stream: Option<&StreamName>,
    budget: &Budget,
    decode: impl FnOnce(StreamsRequest<'_>, &mut Reservation) -> Result<(DecodedStreams, T), DecodeError>,
) -> Result<((DecodedStreams, T), Reservation), Refusal> {
    let Received { encoding, bytes, mut memory } = received;
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
    let records_bytes_max = budget.loading_bytes() as usize;
    let request = StreamsRequest { body, arrival_us, stream, records_bytes_max };
    let decoded = decode(request, &mut memory)?;
    for (_, records) in &decoded.0.streams {
        let load_bytes = records.memory_bytes() + ROW_BYTES * records.len();
        check_size("records take", load_bytes, budget.loading_bytes() as usize / 2)?;
        check_days(records)?;
    }
    Ok((decoded, memory))
}

/// Records of one stream.
struct Part {
    stream: StreamName,
    account: Account,
    id: Option<BatchId>,
    records: Records,
}

/// Encodes records for the journal, stream by stream. Returns them with the request's memory, which is held until the request
/// is answered.
fn encoded(
    tenant: &TenantId,
    arrival_us: i64,
    parts: Vec<Part>,
    mut memory: Reservation,
) -> Result<(Vec<Batch>, Reservation), Refusal> {
    let mut batches = Vec::with_capacity(parts.len());
    for Part { stream, account, id, records } in parts {
        let count = records.len() as u32;
        let header = BatchHeader {
            tenant: tenant.clone(),
            stream: stream.clone(),
            arrival_us,
            id: id.map(BatchId::to_bytes),
            records: count,
        };
        let before = memory.bytes();
        IncrementalReservation::new(&mut memory).reserve(journal::records::encode_memory(&records))?;
        let mut payload = Vec::new();
        journal::records::encode(&mut payload, &header, &records);
        payload.shrink_to_fit();
        let own = account.reserve((payload.len() + BATCH_BYTES) as u64)?;
        drop(records);
        memory.resize(before)?;
        let (tenant, payload) = (tenant.clone(), payload.into());
        batches.push(Batch { tenant, stream, id, arrival_us, records: count, payload, memory: own });
    }
    Ok((batches, memory))
}

/// The stream, and the account in which its records take memory. If the stream is new and the tenant has too many, they are
/// those of `spare`.
async fn stream_and_account(
    app: &App,
    tenant: &TenantId,
    stream: StreamName,
    spare: Option<&StreamName>,
) -> Result<(StreamName, Account), Refusal> {
    match (account_of(app, tenant, &stream).await, spare) {
        (Ok(account), _) => Ok((stream, account)),
        (Err(refusal), Some(spare)) if refusal.reason == StreamLimit::REASON && *spare != stream => {
            Ok((spare.clone(), account_of(app, tenant, spare).await?))
        }
        (Err(refusal), _) => Err(refusal),
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
