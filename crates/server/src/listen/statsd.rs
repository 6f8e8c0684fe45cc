//! Receives statsd's datagrams, and stores what they add up to at an interval.
//!
//! ```text
//!   socket ─▶ lines ─▶ Totals (in memory) ─ every interval ─▶ batches ─▶ write path ─▶ durable
//! ```
//!
//! Nothing is durable before the end of its interval. Counters, and the counts and sums of timers, go on from interval to
//! interval, so an interval that cannot be stored is contained in the next one. A series that has no new values is kept until the
//! last one is stored.

mod totals;

use super::overflow::Overflow;
use super::unstored::{Line, Recorder, Unstored};
use crate::http::App;
use crate::partition::submission::Outcome;
use crate::refusal::Refusal;
use crate::write_path;
use admission::Postponed;
use model::{Principal, Rights};
use std::fmt::{self, Display};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use stdx::telemetry::{Counter, Registry};
use tokio::net::UdpSocket;
use tokio::task::yield_now;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use totals::{Dropped, Limits, Part, Totals};
use tracing::field::display;

/// Length of the longest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Datagrams, and their bytes, that are read before other tasks have their turn. This takes less than half a millisecond.
const READS_MAX: usize = 128;
const READ_BYTES_MAX: usize = 32 << 10;

/// What is stored in one request. Its memory comes from the account of which the totals hold a part, so it must be small
/// enough for the smallest budget. Sorting is done between two turns of other tasks: 32,768 random values, 1,024 at a time, were
/// sorted in 0.6 ms.
const BATCH: Limits = Limits { series: 1000, label_bytes: 128 << 10, values: 24 << 10 };

/// When the server stops, this is the time to store the last interval.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait between two attempts to store it, if a refusal does not say how long to wait.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Time between two lines of the log for the same reason.
const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Metrics {
    lines: Counter,
    malformed: Counter,
    memory: Counter,
    set_size: Counter,
    invalid: Counter,
    refused: Counter,
    overflowed_datagrams: Counter,
}

impl Metrics {
    fn new(r: &Registry) -> Self {
        let dropped = |reason| {
            let help = "Values of statsd that were dropped, by reason.";
            r.counter_with("floodmark_statsd_dropped_total", help, &[("reason", reason)])
        };
        Self {
            lines: r.counter("floodmark_statsd_lines_total", "Lines of statsd that were received."),
            malformed: dropped("malformed"),
            memory: dropped("memory"),
            set_size: dropped("set_size"),
            invalid: dropped("invalid"),
            refused: dropped("refused"),
            overflowed_datagrams: r.counter(
                "floodmark_statsd_overflowed_datagrams_total",
                "Datagrams that the kernel dropped, because the buffer of the socket was full.",
            ),
        }
    }

    fn count(&self, dropped: Dropped) {
        match dropped {
            Dropped::Malformed => &self.malformed,
            Dropped::Memory => &self.memory,
            Dropped::SetSize => &self.set_size,
            Dropped::Invalid => &self.invalid,
        }
        .inc();
    }
}

pub(crate) struct Statsd {
    socket: Option<UdpSocket>,
    context: Arc<write_path::Context>,
    principal: Principal,
    every: Duration,
    totals: Totals,
    /// Bytes of datagrams since the last interval was admitted.
    received_bytes: usize,
    metrics: Metrics,
    overflow: Overflow,
    unstored: Recorder,
}

impl Statsd {
    pub(crate) fn new(app: &App, socket: Option<UdpSocket>) -> Self {
        let context = Arc::clone(app.node.writes());
        let settings = &context.settings.statsd;
        let principal =
            Principal { tenant: settings.tenant.clone(), rights: Rights { read: false, write: true } };
        let metrics = Metrics::new(app.node.registry());
        let totals = Totals::new(context.unwritten.clone(), context.seed);
        let every = settings.flush_interval;
        Self {
            socket,
            principal,
            every,
            totals,
            received_bytes: 0,
            overflow: Overflow::new(metrics.overflowed_datagrams.clone()),
            metrics,
            unstored: Recorder::new(app, LOG_EVERY, write),
            context,
        }
    }

    /// Serves until `stop` resolves, and returns once the last interval is stored or dropped.
    pub(crate) async fn serve(mut self, stop: impl Future<Output = ()> + Send) {
        let Some(socket) = self.socket.take() else { return stop.await };
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut due = interval_at(Instant::now() + self.every, self.every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                _ = due.tick() => {
                    let _ = self.flush(&socket, &mut buffer).await; // an interval that is refused goes on
                }
                ready = socket.readable() => {
                    if ready.is_ok() {
                        self.read(&socket, &mut buffer);
                        yield_now().await;
                    }
                }
            }
        }
        self.read(&socket, &mut buffer);
        let storing = async {
            while let Err(refusal) = self.flush(&socket, &mut buffer).await {
                sleep(refusal.pause().unwrap_or(LAST_WAIT)).await;
            }
        };
        if timeout(LAST_TIMEOUT, storing).await.is_err() {
            let series = self.totals.unstored();
            self.metrics.refused.add(series);
            tracing::warn!(series, "stopping before the last interval of statsd is stored");
        }
        self.unstored.log_rest();
    }

    /// Reads some of the datagrams that have arrived.
    fn read(&mut self, socket: &UdpSocket, buffer: &mut [u8]) {
        self.overflow.count(socket);
        let mut bytes = 0;
        for _ in 0..READS_MAX {
            if bytes >= READ_BYTES_MAX {
                return;
            }
            match socket.try_recv_from(buffer) {
                Ok((length, _)) => {
                    bytes += length;
                    self.datagram(&buffer[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {} // such as a late ICMP error, which concerns no datagram here
            }
        }
    }

    fn datagram(&mut self, datagram: &[u8]) {
        self.received_bytes += datagram.len();
        let lines = datagram.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        for line in lines.filter(|line| !line.is_empty()) {
            self.metrics.lines.inc();
            if let Err(dropped) = self.totals.add(line) {
                self.metrics.count(dropped);
            }
        }
    }

    /// Stores the values of the interval that ends now. What arrives meanwhile belongs to the next interval. After an error, the
    /// interval goes on.
    async fn flush(&mut self, socket: &UdpSocket, buffer: &mut [u8]) -> Result<(), Refusal> {
        self.unstored.log_due();
        let (context, principal) = (Arc::clone(&self.context), self.principal.clone());
        // the interval is one request, however many batches it has
        let received_bytes = self.received_bytes;
        let admitting = write_path::admit(&context, &principal, received_bytes);
        if let Err(refusal) = self.reading_meanwhile(socket, buffer, admitting).await {
            self.refused(0, &refusal);
            return Err(refusal);
        }
        self.received_bytes -= received_bytes;
        let now_ms = context.clock.now_ms();
        let mut from = Some(0);
        while let Some(first) = from {
            let memory = context.unwritten.reserve(0).expect("BUG: cannot reserve 0 bytes");
            let part = self.totals.batch(first, BATCH, now_ms, memory);
            let Part { mut batch, memory, series, next, left_out } = part;
            let is_left_out = left_out.is_some();
            from = next;
            if let Some(full) = left_out {
                // counters and gauges are in the next interval too; quantiles and sets are lost
                self.metrics.memory.inc();
                self.refused(1, &full.into());
            }
            if batch.floats.series.is_empty() {
                if !is_left_out {
                    self.totals.stored(series); // there is nothing to store
                }
                yield_now().await;
                continue;
            }
            let samples = batch.floats.values.len() as u64;
            let writing = write_path::write_admitted(&context, &principal, &mut batch, memory);
            match self.reading_meanwhile(socket, buffer, writing).await {
                Ok(outcome) => {
                    self.totals.stored(series);
                    self.left_out(&outcome);
                }
                Err(unwritten) => {
                    // it is not known which series a limit refuses, and the others must not be kept because of them
                    if unwritten.is_partial {
                        self.totals.stored(series);
                    }
                    let refused = samples - unwritten.samples.min(samples);
                    self.metrics.refused.add(refused);
                    self.refused(refused, &unwritten.refusal);
                }
            }
        }
        let lost = self.totals.forget_idle();
        if lost > 0 {
            self.metrics.memory.add(lost);
            let message = format!(
                "no memory to keep the values of {lost} series until they can be stored; raise --memory"
            );
            self.refused(lost, &Refusal::busy("memory", message));
        }
        Ok(())
    }

    /// Waits for the end of `work`, and reads the datagrams that arrive meanwhile.
    async fn reading_meanwhile<T>(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        work: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                ready = socket.readable() => {
                    if ready.is_ok() {
                        self.read(socket, buffer);
                        yield_now().await;
                    }
                }
            }
        }
    }

    /// Records samples that cannot be stored because of what they are, or because of a limit that nothing waits for.
    fn left_out(&self, outcome: &Outcome) {
        self.metrics.refused.add(outcome.refused_samples);
        if outcome.refused_samples == 0 {
            return;
        }
        let reason = outcome.postponed.first().copied().map_or("partial_write", Postponed::reason);
        let (message, series) = match outcome.errors.first() {
            Some((error, series)) => (error as &dyn Display, series.as_str()),
            None => (&"" as &dyn Display, ""),
        };
        self.record(reason, outcome.refused_samples, format_args!("{message}"), series);
    }

    /// Records a refusal. The samples of an interval that goes on are not counted.
    fn refused(&self, samples: u64, refusal: &Refusal) {
        let series = refusal.series.as_deref().unwrap_or_default();
        self.record(refusal.reason, samples, format_args!("{}", refusal.cause()), series);
    }

    fn record(&self, reason: &'static str, samples: u64, message: fmt::Arguments<'_>, series: &str) {
        let tenant = &self.principal.tenant;
        self.unstored.add(&Unstored { reason, tenant, count: samples, message, series, sender: None });
    }
}

fn write(Line { reason, tenant, count: samples, example }: Line) {
    let (tenant, series, why) = (tenant.map(display), &*example.series, &*example.message);
    tracing::warn!(reason, samples, tenant, series, why, "values of statsd were not stored");
}
