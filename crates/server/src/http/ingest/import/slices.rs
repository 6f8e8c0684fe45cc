//! Stores a body of any length in slices of whole lines. A slice is durable before the next one is read.
//!
//! ```text
//!   body ─▶ inflate ─▶ buffer ─ whole lines ─▶ slice ─▶ write path ─┬─ durable ──────▶ next slice
//!                        ▲                       ▲                  ├─ try later ─▶ wait ─┐
//!                        └─ the last, cut line   └──────────────────┼─────────────────────┘
//!                                                                   └─ never ──────▶ the answer
//! ```
//!
//! While a slice waits for a limit of the tenant or for memory, the body is not read, so that the sender waits too.

use crate::http::App;
use crate::http::body::{BodyError, BodyReader};
use crate::http::ingest::apply_limit_status;
use crate::http::principal::RequestPrincipal;
use crate::listen::patience::Patience;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use crate::write_path::gates::Gates;
use crate::write_path::{self, Decoders, Encoded, Unwritten};
use admission::WriteRefusal;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use model::caps::REQUEST_SERIES_MAX;
use model::{Principal, TenantId};
use protocol::{Decoder, Encoding, INFLATED_BYTES_MAX, Inflater};
use std::sync::Arc;
use std::time::Duration;
use stdx::budget::{Account, Reservation};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

/// A slice is stored once it has this many bytes. Larger slices cost less time, but more memory.
const SLICE_BYTES: usize = 320 << 10;

// the shortest sample, a digit in a table, takes two bytes
const _: () = assert!((SLICE_BYTES + INFLATED_BYTES_MAX) / 2 <= REQUEST_SERIES_MAX);

/// Limit on the bytes of a line, and so on those of a slice.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Memory for a slice is reserved in steps of at least this size. If the body is shorter, they are as long as the body, but
/// not shorter than `STEP_BYTES_MIN`.
const STEP_BYTES: usize = INFLATED_BYTES_MAX;
const STEP_BYTES_MIN: usize = 16 << 10;

/// Bytes of the encoded body that are decompressed at once, so that other tasks wait for less than half a millisecond.
const INPUT_BYTES: usize = 16 << 10;

/// How long a slice, or the beginning of an import, is tried again after temporary refusals.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(super) struct Import<'a> {
    pub(super) app: &'a App,
    pub(super) principal: RequestPrincipal,
    /// Number of bytes at the start of the decompressed body that are not stored.
    pub(super) skip_bytes: u64,
    /// Whether the first line of the body is not stored.
    pub(super) has_header: bool,
}

/// What became of an import.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) outcome: Outcome,
    /// Number of bytes at the start of the decompressed body that are durable, or refused for good. They end with a line.
    pub(super) durable_bytes: u64,
    pub(super) durable_lines: u64,
    /// Why the rest was not stored.
    pub(super) refusal: Option<Refusal>,
}

/// The body, as it arrives.
struct Source {
    body: Body,
    encoding: Encoding,
    /// Begins with the first bytes, so that senders of nothing take no memory.
    inflating: Option<Inflating>,
    patience: Patience,
    timeout: Duration,
    transfer_rate: u64,
    step_bytes: usize,
    /// Bytes that have arrived and are not decompressed yet.
    pending: Bytes,
    has_ended: bool,
}

/// Where the tenant waits for its turn to decompress.
type Gate<'a> = Option<(&'a Gates, &'a TenantId)>;

struct Inflating {
    inflater: Inflater,
    /// Memory of the inflater.
    _memory: Reservation,
}

/// Lines that are not stored yet, and the memory for them.
struct Buffer {
    bytes: Vec<u8>,
    memory: Reservation,
}

impl Import<'_> {
    /// Stores all lines of a body. `format` returns the format of a slice whose first line has the given number.
    pub(super) async fn run<D: Decoder>(
        self,
        decoders: &Arc<Decoders<D>>,
        format: impl Fn(usize) -> D::Format + Send + Sync,
        headers: &HeaderMap,
        body: Body,
    ) -> Imported {
        self.run_with(PATIENCE, decoders, format, headers, body).await
    }

    async fn run_with<D: Decoder>(
        self,
        patience: Duration,
        decoders: &Arc<Decoders<D>>,
        format: impl Fn(usize) -> D::Format + Send + Sync,
        headers: &HeaderMap,
        body: Body,
    ) -> Imported {
        let mut imported = Imported::default();
        if let Err(refusal) = self.run_into(patience, decoders, format, headers, body, &mut imported).await {
            imported.refusal = Some(refusal);
        }
        imported
    }

    async fn run_into<D: Decoder>(
        self,
        patience: Duration,
        decoders: &Arc<Decoders<D>>,
        format: impl Fn(usize) -> D::Format + Send + Sync,
        headers: &HeaderMap,
        body: Body,
        imported: &mut Imported,
    ) -> Result<(), Refusal> {
        let Self { app, principal: RequestPrincipal(principal), mut skip_bytes, mut has_header } = self;
        // a body of which nothing can be stored is not read
        admit(app, &principal, patience).await?;
        let account = {
            let settings = app.node.overrides().current();
            app.node.writes().tenant(&principal.tenant).inflight(settings.of(&principal.tenant)).clone()
        };
        let mut source = Source::open(app, headers, body)?;
        let mut buffer = Buffer::new(&account)?;
        loop {
            // a small body may decompress without end, and skipped bytes count against no limit, so each step waits for its turn
            let gate = (skip_bytes > 0).then_some((&app.node.writes().gates, &principal.tenant));
            source.fill(&account, &mut buffer, gate).await?;
            let is_last = source.has_ended;
            let skipped =
                usize::try_from(skip_bytes).map_or(buffer.bytes.len(), |n| n.min(buffer.bytes.len()));
            if skipped > 0 {
                // skipped bytes are durable already
                imported.count(&buffer.bytes[..skipped]);
                buffer.bytes.drain(..skipped);
                skip_bytes -= skipped as u64;
                has_header = false;
                if !is_last {
                    continue;
                }
            }
            let end = match buffer.bytes.iter().rposition(|byte| *byte == b'\n') {
                _ if is_last => buffer.bytes.len(),
                Some(last) => last + 1,
                None if buffer.bytes.len() < LINE_BYTES_MAX => {
                    // a line that is longer than a slice
                    source.fill_line(&account, &mut buffer).await?;
                    continue;
                }
                None => {
                    let message = format!(
                        "line {} has more than {LINE_BYTES_MAX} bytes; {} bytes before it are stored",
                        imported.durable_lines + 1,
                        imported.durable_bytes
                    );
                    return Err(Refusal::too_large("body_size", message));
                }
            };
            if has_header && end > 0 {
                let header =
                    buffer.bytes[..end].iter().position(|byte| *byte == b'\n').map_or(end, |at| at + 1);
                imported.count(&buffer.bytes[..header]);
                buffer.bytes.drain(..header);
                has_header = false;
                if !is_last {
                    continue;
                }
                // the rest of the last slice follows
            }
            let end = end.min(buffer.bytes.len());
            if end > 0 {
                let rest = buffer.split_off(&account, end)?;
                let slice = std::mem::replace(&mut buffer, rest);
                let counted = Counted::of(&slice.bytes);
                let first_line = imported.durable_lines as usize + 1;
                let retries = Retries::new(app, &principal.tenant, patience);
                let outcome =
                    store(retries, &principal, decoders, &format, first_line, (slice, &account)).await?;
                imported.outcome.add(outcome);
                imported.add(counted);
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

fn line_breaks(bytes: &[u8]) -> u64 {
    // the number of one chunk fits into a byte, so that many bytes are compared and added at once
    let of_chunk = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    bytes.chunks(255).map(|chunk| u64::from(of_chunk(chunk))).sum()
}

/// The size of a part of the body.
#[derive(Debug, Clone, Copy)]
struct Counted {
    bytes: u64,
    lines: u64,
}

impl Counted {
    fn of(bytes: &[u8]) -> Self {
        let breaks = line_breaks(bytes);
        let has_cut_line = bytes.last().is_some_and(|last| *last != b'\n');
        Self { bytes: bytes.len() as u64, lines: breaks + u64::from(has_cut_line) }
    }
}

impl Imported {
    fn add(&mut self, counted: Counted) {
        self.durable_bytes += counted.bytes;
        self.durable_lines += counted.lines;
    }

    /// Counts bytes that need not be stored, of which the last line may be cut.
    fn count(&mut self, bytes: &[u8]) {
        self.durable_bytes += bytes.len() as u64;
        self.durable_lines += line_breaks(bytes);
    }
}

/// Time in which something is tried again after temporary refusals.
struct Retries<'a> {
    app: &'a App,
    tenant: &'a TenantId,
    deadline: Instant,
}

impl<'a> Retries<'a> {
    fn new(app: &'a App, tenant: &'a TenantId, patience: Duration) -> Self {
        Self { app, tenant, deadline: Instant::now() + patience }
    }

    /// Waits until the next try. Returns the refusal if there is none.
    async fn wait(&self, mut refusal: Refusal) -> Result<(), Refusal> {
        // no sender waits for Graphite's points, so these are tried until compaction or an operator makes room; the sender of an import
        // does wait, so it is told at once
        let is_lasting =
            refusal.is_lasting() || matches!(refusal.reason, "disk_bytes" | "streams" | "tenants");
        let may_end = refusal.is_temporary() && !is_lasting;
        let pause = refusal.pause().unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
        if !may_end || Instant::now() + pause > self.deadline {
            let settings = self.app.node.overrides().current();
            apply_limit_status(&mut refusal, settings.of(self.tenant).limit_status);
            return Err(refusal);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// Waits until the sender may write. Limits on rates do not count here, but for each slice.
async fn admit(app: &App, principal: &Principal, patience: Duration) -> Result<(), Refusal> {
    admission::write::rights(principal)?;
    let (context, retries) = (app.node.writes(), Retries::new(app, &principal.tenant, patience));
    loop {
        context.readiness.wait_for_replay().await;
        match write_path::check(context, principal) {
            Ok(()) => return Ok(()),
            Err(refusal) => retries.wait(refusal).await?,
        }
    }
}

/// Stores a slice, again and again while it is refused temporarily.
async fn store<D: Decoder>(
    retries: Retries<'_>,
    principal: &Principal,
    decoders: &Arc<Decoders<D>>,
    format: &(impl Fn(usize) -> D::Format + Sync),
    first_line: usize,
    (slice, account): (Buffer, &Account),
) -> Result<Outcome, Refusal> {
    // the slice is kept with its memory, in case it has to be stored again
    let Buffer { bytes, memory: _kept } = slice;
    let bytes = Bytes::from(bytes);
    loop {
        let stored = match account.reserve(0) {
            Ok(memory) => {
                let request = Encoded {
                    principal: principal.clone(),
                    format: format(first_line),
                    encoding: Encoding::Identity,
                    bytes: bytes.clone(),
                    memory,
                };
                write_path::write(retries.app.node.writes(), decoders, request).await
            }
            Err(full) => Err(full.into()),
        };
        let refusal = match stored {
            // during a long shortage, agents that send all the time must go on with their known series, so that series
            // without room are left out for good. An import goes on later, at the first byte that is not durable
            Ok(outcome) => match outcome.postponed.iter().min() {
                None => return Ok(outcome),
                Some(what) => WriteRefusal::Postponed { what: *what, report: outcome.report() }.into(),
            },
            Err(Unwritten { refusal, .. }) => refusal,
        };
        retries.wait(refusal).await?;
    }
}

impl Buffer {
    fn new(account: &Account) -> Result<Self, Refusal> {
        Ok(Self { bytes: Vec::new(), memory: account.reserve(0)? })
    }

    /// Moves what follows `end` to a buffer of its own.
    fn split_off(&mut self, account: &Account, end: usize) -> Result<Self, Refusal> {
        let length = self.bytes.len() - end;
        let mut rest = Self { bytes: Vec::new(), memory: account.reserve(length as u64)? };
        rest.bytes.reserve_exact(length);
        rest.bytes.extend_from_slice(&self.bytes[end..]);
        self.bytes.truncate(end);
        Ok(rest)
    }
}

impl Source {
    /// Begins to read a body.
    fn open(app: &App, headers: &HeaderMap, body: Body) -> Result<Self, Refusal> {
        let given = headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        let encoding = Encoding::negotiate(given, Inflater::ENCODINGS)?;
        let settings = app.node.settings();
        let timeout = Duration::from_millis(settings.body_timeout_ms);
        let step_bytes = match (encoding, body.size_hint().exact()) {
            (Encoding::Identity, Some(length)) => {
                length.clamp(STEP_BYTES_MIN as u64, STEP_BYTES as u64) as usize
            }
            _ => STEP_BYTES,
        };
        Ok(Self {
            body,
            encoding,
            inflating: None,
            patience: Patience::new(timeout, settings.transfer_rate),
            timeout,
            transfer_rate: settings.transfer_rate,
            step_bytes,
            pending: Bytes::new(),
            has_ended: false,
        })
    }

    /// Reads until the buffer has enough for a slice, or the body ends. If a gate is given, each step waits there for its turn.
    async fn fill(&mut self, account: &Account, buffer: &mut Buffer, gate: Gate<'_>) -> Result<(), Refusal> {
        while !self.has_ended && buffer.bytes.len() < SLICE_BYTES {
            self.step(account, buffer, gate).await?;
        }
        Ok(())
    }

    /// Reads until the buffer has a whole line, is full, or the body ends.
    async fn fill_line(&mut self, account: &Account, buffer: &mut Buffer) -> Result<(), Refusal> {
        while !self.has_ended && buffer.bytes.len() < LINE_BYTES_MAX {
            let before = buffer.bytes.len();
            self.step(account, buffer, None).await?;
            if buffer.bytes[before..].contains(&b'\n') {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads or decompresses a little more.
    async fn step(&mut self, account: &Account, buffer: &mut Buffer, gate: Gate<'_>) -> Result<(), Refusal> {
        if self.pending.is_empty() {
            let deadline = self.patience.waits(Instant::now());
            let frame = timeout_at(deadline, self.body.frame()).await;
            let frame = frame.map_err(|_| self.refusal(BodyError::TooSlow))?;
            let Some(frame) = frame else {
                self.begin(account)?;
                self.make_room(account, buffer)?;
                self.has_ended = self.inflater().finish(&mut buffer.bytes)?;
                return Ok(());
            };
            let frame = frame.map_err(|error| self.refusal(BodyError::Broken(error.to_string())))?;
            self.patience.moved(frame.data_ref().map_or(0, Bytes::len), Instant::now());
            if let Ok(data) = frame.into_data() {
                self.pending = data;
            }
            return Ok(());
        }
        self.begin(account)?;
        self.make_room(account, buffer)?;
        let input = self.pending.slice(..self.input_bytes(buffer));
        let turn = match gate {
            Some((gates, tenant)) => Some(gates.decoding_turn(tenant).await),
            None => None,
        };
        let taken = self.inflater().push(&input, &mut buffer.bytes)?;
        drop(turn);
        self.pending = self.pending.slice(taken..);
        if self.encoding != Encoding::Identity {
            yield_now().await; // bytes that are only copied take microseconds
        }
        Ok(())
    }

    /// Makes the inflater, unless there is one.
    fn begin(&mut self, account: &Account) -> Result<(), Refusal> {
        if self.inflating.is_none() {
            let memory = account.reserve(Inflater::memory_bytes(self.encoding) as u64)?;
            self.inflating = Some(Inflating { inflater: Inflater::new(self.encoding)?, _memory: memory });
        }
        Ok(())
    }

    const fn inflater(&mut self) -> &mut Inflater {
        &mut self.inflating.as_mut().expect("BUG: decompression has not begun").inflater
    }

    /// How many of the pending bytes the next step reads.
    fn input_bytes(&self, buffer: &Buffer) -> usize {
        let most = match self.encoding {
            // not much more than a slice needs
            Encoding::Identity => {
                SLICE_BYTES.saturating_sub(buffer.bytes.len()).clamp(INPUT_BYTES, INFLATED_BYTES_MAX)
            }
            _ => INPUT_BYTES,
        };
        self.pending.len().min(most)
    }

    /// Makes room in the buffer for what one step may append.
    fn make_room(&self, account: &Account, buffer: &mut Buffer) -> Result<(), Refusal> {
        let reader = BodyReader {
            account,
            bytes_max: LINE_BYTES_MAX + SLICE_BYTES + INFLATED_BYTES_MAX,
            step_bytes: self.step_bytes,
            patience: self.patience,
        };
        let more = match self.encoding {
            Encoding::Identity => self.input_bytes(buffer),
            _ => INFLATED_BYTES_MAX,
        };
        let made = reader.make_room(&mut buffer.bytes, more, &mut buffer.memory);
        made.map_err(|error| self.refusal(error))
    }

    fn refusal(&self, error: BodyError) -> Refusal {
        error.refusal(LINE_BYTES_MAX, self.timeout.as_secs_f64(), self.transfer_rate)
    }
}

#[cfg(test)]
mod tests;
