//! What all endpoints that receive records have in common.
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
use crate::streams::Shared;
use crate::streams::batch::{BATCH_BYTES, Batch, ROW_BYTES, Stored};
use crate::streams::known::{Added, StreamLimit};
use crate::write_path;
use admission::age::{Doubt, EARLIEST_MS};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use journal::JournalError;
use journal::records::BatchHeader;
use model::caps::BODY_BYTES_MAX;
use model::{BatchId, ErrorKind, Principal, Records, StreamName, TenantId};
use protocol::records::{DAYS_MAX, DecodedStreams, LeftOut, Reason, Refusals, StreamsRequest, Times};
use protocol::{Body as EncodedBody, DecodeError, Encoding};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, IncrementalReservation, Reservation};
use tokio::time::timeout;

/// Header with the client's key for a batch. A batch whose key was stored within the last hour is not stored again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

const KEY_BYTES_MAX: usize = 256;

/// Header that names the stream of all records of a request.
const STREAM: &str = "x-floodmark-stream";

/// A body is decoded in place if it has at most this many bytes, and records are encoded in place if they take at most so much.
pub(super) const INLINE_BYTES_MAX: usize = 64 << 10;

/// Limit on the records of a request, for each byte of its body. Records, with the path of each value, are larger than the body,
/// because what they have in common, such as a resource or the path of an object, is in the body only once.
const EXPANSION_MAX: usize = 32;

/// Added to the limit on records, so that small requests whose records have much in common are accepted.
const EXPANDED_BYTES_MIN: usize = 16 << 20;

/// Limit on the records of a request, however large its body is.
const EXPANDED_BYTES_MAX: usize = 4 * BODY_BYTES_MAX;

/// How far the time of a record may be after its arrival: logs of machines whose clock is wrong by less than a day are kept. More
/// days would be more files. In the past, the setting `past_limit` is the limit.
const FUTURE_LIMIT_MS: i64 = tables::DAY_MS;

/// A new stream waits this long for the object store.
const LISTING_WAIT: Duration = Duration::from_secs(10);

const DAY_US: i64 = tables::DAY_MS * 1000;

pub(super) const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

/// How a request is to be stored.
#[derive(Debug)]
pub(super) struct Options {
    /// The stream of all records.
    pub(super) stream: Option<StreamName>,
    /// What becomes of records whose stream cannot be added.
    pub(super) overflow: Overflow,
    /// The client's name for the batch.
    pub(super) key: Option<Vec<u8>>,
    /// The body is decoded in place if it has at most this many bytes.
    pub(super) inline_bytes_max: usize,
}

/// What becomes of records whose stream cannot be added, because the tenant has too many, or one with that name in other case.
#[derive(Debug)]
pub(super) enum Overflow {
    /// The request is refused.
    Refuse,
    /// They are of this stream.
    Spare(StreamName),
    /// They are refused, unless all records of the request are.
    LeaveOut,
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
    /// Reads the headers that all of these endpoints accept.
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
        Ok(Self {
            stream,
            overflow: Overflow::Refuse,
            key: key(headers)?,
            inline_bytes_max: INLINE_BYTES_MAX,
        })
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
    D: Fn(StreamsRequest<'_>, &mut Reservation) -> Result<(DecodedStreams, T), DecodeError>
        + Send
        + Sync
        + 'static,
{
    let context = app.node.writes();
    let (streams, tenant) = (app.node.streams(), &principal.tenant);
    write_path::admit_records(context, principal, received.bytes.len()).await?;
    streams.shared.metrics.body_bytes.add(received.bytes.len() as u64);
    let now_ms = context.clock.now_ms();
    let (arrival_us, times) = (now_ms.saturating_mul(1000), times_at(context, now_ms));
    let body = EncodedBody { encoding: received.encoding, bytes: &received.bytes };
    let Options { stream, overflow, key, inline_bytes_max } = options;
    let is_small = body.decoded_len()?.is_some_and(|bytes| bytes <= inline_bytes_max);
    let budget = app.node.budget().clone();
    let (before, stream_and_decoder) = (received.memory.bytes(), Arc::new((stream, decode)));
    let run = |received, left_out| {
        let (budget, stream_and_decoder) = (budget.clone(), Arc::clone(&stream_and_decoder));
        work(app, tenant, is_small, move || {
            let (stream, decode) = &*stream_and_decoder;
            decoded(received, (arrival_us, times), stream.as_ref(), &left_out, &budget, decode)
        })
    };
    let ((mut decoded, mut made), mut received) = run(received, LeftOut::new()).await?;
    let mut admitted = None;
    if !decoded.streams.is_empty() {
        let names = decoded.streams.iter().map(|(name, _)| name.clone()).collect();
        let mut streams = admit(app, tenant, names).await?;
        match (streams.refusal(), overflow) {
            (None, _) => {}
            (Some(_), Overflow::Spare(spare)) => streams = streams.or_spare(app, tenant, spare).await?,
            // the others are stored, and the client is told which are not
            (Some(_), Overflow::LeaveOut) if streams.refused.len() < decoded.streams.len() => {
                let mut left_out = streams.left_out();
                // without the days of the streams that are left out, they would have records, but they are not admitted
                left_out.extend(decoded.without_days.iter().map(|name| (name.clone(), Reason::TooManyDays)));
                drop((decoded, made));
                received.memory.resize(before)?;
                ((decoded, made), received) = run(received, left_out).await?;
            }
            (Some(refusal), _) => return Err(refusal.clone()),
        }
        admitted = Some(streams);
    }
    let Received { memory, .. } = received;
    let DecodedStreams { streams: found, refused, .. } = decoded;
    streams.shared.metrics.refused_records.add(refused.count);
    let Some(admitted) = admitted.filter(|_| !found.is_empty()) else {
        return Ok(Outcome { stored: Stored { records: 0, was_known: false }, refused, made, memory });
    };
    let records_bytes: usize = found.iter().map(|(_, records)| records.memory_bytes()).sum();
    let is_small = records_bytes <= INLINE_BYTES_MAX;
    let part = |(name, records)| {
        let id = key.as_ref().map(|key| BatchId::of(tenant, &name, key));
        Part { stream: admitted.stream_of(name), account: admitted.part.clone(), id, records }
    };
    let (of, parts) = (tenant.clone(), found.into_iter().map(part).collect());
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

/// Which times records may have that arrive now. While the clock seems to be wrong, records with the right time are not refused for
/// good: it may be set back to the start of 2026, or ahead to any time.
fn times_at(context: &write_path::Context, now_ms: i64) -> Times {
    let past_ms = context.settings.past_ms;
    let (mut earliest_ms, mut latest_ms) =
        (now_ms.saturating_sub(past_ms), now_ms.saturating_add(FUTURE_LIMIT_MS));
    match context.wall.doubt(&*context.clock) {
        Some(Doubt::Ahead) => earliest_ms = earliest_ms.min(EARLIEST_MS.saturating_sub(past_ms)),
        Some(Doubt::Behind) => latest_ms = i64::MAX,
        Some(Doubt::Settling) | None => {}
    }
    Times { earliest_us: earliest_ms.saturating_mul(1000), latest_us: latest_ms.saturating_mul(1000) }
}

/// Decodes a body, and checks that its records can be stored. Returns them with the body, whose memory has that of the records.
fn decoded<T>(
    received: Received,
    (arrival_us, times): (i64, Times),
    stream: Option<&StreamName>,
    left_out: &LeftOut,
    budget: &Budget,
    decode: impl Fn(StreamsRequest<'_>, &mut Reservation) -> Result<(DecodedStreams, T), DecodeError>,
) -> Result<((DecodedStreams, T), Received), Refusal> {
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
    let expanded_bytes_max = expanded_bytes_max(body.len());
    let records_bytes_max = expanded_bytes_max.min(budget.loading_bytes() as usize);
    let request = StreamsRequest { body, arrival_us, times, stream, left_out, records_bytes_max };
    let decoded = decode(request, &mut memory)?;
    let mut expanded_bytes = 0;
    for (_, records) in &decoded.0.streams {
        let load_bytes = records.memory_bytes() + ROW_BYTES * records.len();
        check_size("records take", load_bytes, budget.loading_bytes() as usize / 2)?;
        check_days(records)?;
        expanded_bytes += expanded_bytes_of(records);
    }
    if expanded_bytes > expanded_bytes_max {
        let message = format!(
            "the records with the paths of their attributes have {expanded_bytes} bytes, the limit is {expanded_bytes_max}, \
             because the body has {}; send fewer records with so many long paths at a time",
            body.len()
        );
        return Err(Refusal::too_large("body_size", message));
    }
    Ok((decoded, Received { encoding, bytes, memory }))
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
        journal::records::encode(&mut payload, &header, &records).map_err(too_large)?;
        payload.shrink_to_fit();
        let own = account.reserve((payload.len() + BATCH_BYTES) as u64)?;
        drop(records);
        memory.resize(before)?;
        let (tenant, payload) = (tenant.clone(), payload.into());
        batches.push(Batch { tenant, stream, id, arrival_us, records: count, payload, memory: own });
    }
    Ok((batches, memory))
}

/// The streams of a request.
struct Admitted {
    /// The account in which their records take memory.
    part: Account,
    /// Streams that cannot be added, because the tenant has too many, or because of their name.
    refused: Vec<(StreamName, Refusal)>,
    /// The stream of their records.
    spare: Option<StreamName>,
    /// Dropped when the request is done.
    _new: Vec<NewStreams>,
}

/// Streams that the tenant did not have before. If nothing is stored in them, they do not count.
struct NewStreams {
    shared: Arc<Shared>,
    tenant: TenantId,
    names: Vec<StreamName>,
}

impl Drop for NewStreams {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            self.shared.known.forget(&self.tenant, &self.names);
        }
    }
}

impl Admitted {
    /// Puts the records of streams that cannot be added into the stream `spare`.
    async fn or_spare(mut self, app: &App, tenant: &TenantId, spare: StreamName) -> Result<Self, Refusal> {
        let Self { refused, _new, .. } = admit(app, tenant, vec![spare.clone()]).await?;
        if let Some((_, refusal)) = refused.into_iter().next() {
            return Err(refusal);
        }
        self._new.extend(_new);
        Ok(Self { spare: Some(spare), ..self })
    }

    /// The refusal of the whole request, if it is refused. A refusal for a while comes first, so that the client keeps the records
    /// that it can store later.
    fn refusal(&self) -> Option<&Refusal> {
        let mut all = self.refused.iter().map(|(_, refusal)| refusal);
        all.clone().find(|refusal| refusal.is_temporary()).or_else(|| all.next())
    }

    fn left_out(&self) -> LeftOut {
        let reason = |refusal: &Refusal| match refusal.reason == StreamLimit::REASON {
            true => Reason::TooManyStreams,
            false => Reason::StreamCase,
        };
        self.refused.iter().map(|(name, refusal)| (name.clone(), reason(refusal))).collect()
    }

    fn stream_of(&self, name: StreamName) -> StreamName {
        match &self.spare {
            Some(spare) if self.refused.iter().any(|(refused, _)| *refused == name) => spare.clone(),
            _ => name,
        }
    }
}

/// Adds streams, unless the tenant has too many.
async fn admit(app: &App, tenant: &TenantId, names: Vec<StreamName>) -> Result<Admitted, Refusal> {
    let shared = &app.node.streams().shared;
    if let Some(part) = shared.known.part_of(tenant, names.iter()) {
        return Ok(Admitted { part, refused: Vec::new(), spare: None, _new: Vec::new() });
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
    let tenant = tenant.clone();
    let add = tokio::task::spawn_blocking(move || {
        let added = shared.known.add(&lake.tables, &tenant, &names, limit);
        drop(listing); // the permit is held until the thread is free, also if the client goes away
        let Added { part, new, refused } = added?;
        let new = NewStreams { shared, tenant, names: new };
        Ok(Admitted { part, refused, spare: None, _new: vec![new] })
    });
    add.await.map_err(|error| {
        Refusal::new(ErrorKind::Internal, "bug", format!("streams were not added: {error}"))
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

/// Limit on the records of a body of this size.
fn expanded_bytes_max(body_bytes: usize) -> usize {
    (EXPANSION_MAX * body_bytes + EXPANDED_BYTES_MIN).min(EXPANDED_BYTES_MAX)
}

/// What records take in a form in which each value has its path, as in the column `attributes`.
fn expanded_bytes_of(records: &Records) -> usize {
    let paths = records.attributes.iter().map(|attribute| attribute.path.len() * attribute.rows.len());
    records.memory_bytes() + paths.sum::<usize>()
}

fn too_large(error: JournalError) -> Refusal {
    Refusal::too_large("body_size", format!("{error}; send fewer records at a time"))
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
