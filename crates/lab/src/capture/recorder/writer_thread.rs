//! Writes the recorded requests to the file on a separate thread, so that a slow disk does not delay traffic.

use super::recognize::WriteRequest;
use crate::capture::file::conceal::Concealer;
use crate::capture::file::request::Parsed;
use crate::capture::file::{Appended, Writer};
use anyhow::{Context, Result};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stdx::budget::{Account, Reservation};
use stdx::clock::{Clock, SystemClock};

const QUEUE_REQUESTS_MAX: usize = 16_384;

/// A block is written at least this often. If the process is killed, only requests since then are lost.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

const REPAIR_INTERVAL: Duration = Duration::from_secs(5);

const WRITE_ERROR: &str = "the file could not be written";
const UNREADABLE: &str = "cannot be parsed";

pub(super) trait RecordingFile: Write + Seek + Send + 'static {
    fn cut(&mut self, len: u64) -> std::io::Result<()>;
    fn sync(&mut self) -> std::io::Result<()>;
}

impl RecordingFile for File {
    fn cut(&mut self, len: u64) -> std::io::Result<()> {
        self.set_len(len)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.sync_data()
    }
}

#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) arrival_us: i64,
    pub(super) write: WriteRequest,
    pub(super) pieces: Vec<Bytes>,
    /// Memory that the pieces take. It is released when the request is written.
    pub(super) memory: Reservation,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Contents {
    pub requests: u64,
    /// Number of samples, including native histograms.
    pub samples: u64,
    pub series: u64,
    pub bytes: u64,
    pub series_refused: u64,
    pub histograms_refused: u64,
    /// Lines, fields and points that were left out.
    pub lines_refused: u64,
    pub trouble: Option<String>,
}

/// Passes requests to the writer thread. It never blocks: requests that do not fit are counted as missing.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    requests: SyncSender<QueuedRequest>,
    account: Account,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    contents: Contents,
    missing: BTreeMap<&'static str, u64>,
    /// Requests that were lost since the file last recorded a gap.
    gap: u64,
    gap_bytes: u64,
}

impl Queue {
    /// Returns an empty reservation that grows with a request's body, or `None` if the queue is full.
    pub(super) fn memory(&self) -> Option<Reservation> {
        self.account.reserve(0).ok().filter(|_| !self.account.is_full())
    }

    pub(super) fn put(&self, request: QueuedRequest) {
        if self.requests.try_send(request).is_err() {
            self.lost("the queue was full");
        }
    }

    /// Queues a copy of what has been passed on.
    pub(super) fn put_copy(&self, arrival_us: i64, write: WriteRequest, copy: Vec<u8>) {
        let reserved = self.memory().and_then(|mut memory| {
            memory.resize(copy.len() as u64).ok()?;
            Some(memory)
        });
        let Some(memory) = reserved else { return self.lost("the queue was full") };
        self.put(QueuedRequest { arrival_us, write, pieces: vec![Bytes::from(copy)], memory });
    }

    pub(super) fn lost(&self, why: &'static str) {
        lock(&self.shared).lose(why, 0);
    }
}

impl Shared {
    fn lose(&mut self, why: &'static str, bytes: u64) {
        *self.missing.entry(why).or_default() += 1;
        self.gap += 1;
        self.gap_bytes += bytes;
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().expect("BUG: the recording panicked while counting")
}

#[derive(Debug)]
pub(super) struct WriterThread {
    queue: Queue,
    thread: JoinHandle<()>,
}

impl WriterThread {
    pub(super) fn start<F: RecordingFile>(
        file: F,
        concealer: Concealer,
        file_bytes_max: u64,
        queue_bytes_max: u64,
    ) -> Result<Self> {
        let started_ms = SystemClock.now_ms();
        let writer = Writer::begin(file, started_ms, concealer)?;
        let (requests, received) = sync_channel(QUEUE_REQUESTS_MAX);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let account = Account::new("recording", queue_bytes_max);
        let queue = Queue { requests, account, shared: Arc::clone(&shared) };
        let writer = RecordingWriter {
            writer,
            started_ms,
            shared,
            file_bytes_max,
            full: false,
            broken_since: None,
            pending: Contents::default(),
        };
        let thread = std::thread::Builder::new().name("recording".to_owned());
        let thread =
            thread.spawn(move || writer.run(&received)).context("cannot start the recording's thread")?;
        Ok(Self { queue, thread })
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    pub(super) fn contents(&self) -> Contents {
        lock(&self.queue.shared).contents.clone()
    }

    /// Waits until all queued requests are written. All clones of the [`Queue`] must have been dropped.
    pub(super) fn end(self) -> (Contents, BTreeMap<&'static str, u64>) {
        let Queue { requests, shared, .. } = self.queue;
        drop(requests);
        self.thread.join().expect("BUG: the recording's thread panicked");
        let shared = lock(&shared);
        (shared.contents.clone(), shared.missing.clone())
    }
}

struct RecordingWriter<F> {
    writer: Writer<F>,
    started_ms: i64,
    shared: Arc<Mutex<Shared>>,
    file_bytes_max: u64,
    full: bool,
    broken_since: Option<Instant>,
    pending: Contents,
}

impl<F: RecordingFile> RecordingWriter<F> {
    fn run(mut self, requests: &Receiver<QueuedRequest>) {
        // the writer should yield to the traffic; if its priority cannot be lowered, that does no harm
        #[cfg(target_os = "linux")]
        rustix::process::setpriority_process(None, 10).ok();
        let mut parsed = Parsed::default();
        let mut flushed = Instant::now();
        loop {
            let wait = FLUSH_INTERVAL.saturating_sub(flushed.elapsed());
            match requests.recv_timeout(wait) {
                Ok(request) => self.write(&request, &mut parsed),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if flushed.elapsed() >= FLUSH_INTERVAL {
                flushed = Instant::now();
                self.flush();
            }
        }
        self.end();
    }

    /// Writes the current block and syncs the file. If the file is broken, tries a last repair first.
    fn end(&mut self) {
        if self.broken_since.is_some() && self.writer.repair(F::cut).is_ok() {
            self.broken_since = None;
        }
        self.flush();
        if let Err(why) = self.writer.sync(F::sync) {
            self.handle_error(&why);
        }
    }

    fn write(&mut self, request: &QueuedRequest, parsed: &mut Parsed) {
        let bytes = request.memory.bytes();
        if let Err(why) = self.ready() {
            return lock(&self.shared).lose(why, bytes);
        }
        let (body, kind) = (request.pieces.concat(), &request.write.kind);
        let Ok(content) = request.write.content(&body) else {
            return lock(&self.shared).lose(UNREADABLE, bytes);
        };
        let arrival_ms = self.started_ms.wrapping_add(request.arrival_us / 1000);
        let (mut done, mut is_begun) = (Appended::default(), false);
        let before = self.writer.bytes();
        for piece in kind.pieces(&content) {
            if parsed.read_piece(kind, piece, arrival_ms).is_err() {
                lock(&self.shared).lose(UNREADABLE, bytes);
                break;
            }
            if !std::mem::replace(&mut is_begun, true) {
                self.note_gap();
            }
            let (arrival_us, tenant) = (request.arrival_us, &request.write.tenant);
            match self.writer.append(arrival_us, kind.protocol(), tenant, parsed) {
                Ok(appended) => done.add(appended),
                Err(why) => {
                    lock(&self.shared).lose(WRITE_ERROR, bytes);
                    return self.handle_error(&why);
                }
            }
        }
        if self.writer.bytes() > before {
            self.settle();
        }
        if is_begun {
            self.count(done);
        }
    }

    /// Called after a block was written. Adds its requests to the counts in the report.
    fn settle(&mut self) {
        let Contents { requests, samples, series, series_refused, histograms_refused, lines_refused, .. } =
            std::mem::take(&mut self.pending);
        let contents = &mut lock(&self.shared).contents;
        contents.requests += requests;
        contents.samples += samples;
        contents.series += series;
        contents.series_refused += series_refused;
        contents.histograms_refused += histograms_refused;
        contents.lines_refused += lines_refused;
        contents.bytes = self.writer.bytes();
    }

    /// Called before a request is appended. Repairs the file if a repair is due, and returns the reason if the file
    /// still cannot be written.
    fn ready(&mut self) -> Result<(), &'static str> {
        if self.writer.bytes() >= self.file_bytes_max && !self.full {
            self.full = true;
            self.flush();
        }
        if self.full {
            return Err("the recording has reached its size limit");
        }
        let Some(since) = self.broken_since else { return Ok(()) };
        let repaired = since.elapsed() >= REPAIR_INTERVAL && self.writer.repair(F::cut).is_ok();
        if !repaired {
            return Err(WRITE_ERROR);
        }
        self.broken_since = None;
        Ok(())
    }

    fn note_gap(&mut self) {
        let mut shared = lock(&self.shared);
        if shared.gap > 0 {
            self.writer.gap(shared.gap, shared.gap_bytes);
            (shared.gap, shared.gap_bytes) = (0, 0);
        }
    }

    fn flush(&mut self) {
        if self.broken_since.is_some() {
            return;
        }
        if !self.full {
            self.note_gap();
        }
        match self.writer.flush() {
            Ok(()) => self.settle(),
            Err(why) => self.handle_error(&why),
        }
    }

    fn count(&mut self, done: Appended) {
        self.pending.requests += 1;
        self.pending.samples += done.samples;
        self.pending.series += done.series_new;
        self.pending.series_refused += done.series_refused;
        self.pending.histograms_refused += done.histograms_refused;
        self.pending.lines_refused += done.lines_refused;
    }

    /// Called when a block could not be written. Its requests count as missing.
    fn handle_error(&mut self, why: &anyhow::Error) {
        self.broken_since = Some(Instant::now());
        let pending = std::mem::take(&mut self.pending);
        let mut shared = lock(&self.shared);
        if pending.requests > 0 {
            *shared.missing.entry(WRITE_ERROR).or_default() += pending.requests;
            shared.gap += pending.requests;
        }
        shared.contents.trouble.get_or_insert_with(|| format!("{why:#}"));
    }
}
