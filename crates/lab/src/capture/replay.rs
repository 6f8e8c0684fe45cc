//! Plays a recording against any target, faster and more than it was.
//!
//! ```text
//!   file ─▶ dealer (a thread): when it is due, which times it gets, which writer it belongs to
//!             └─▶ batches ─▶ writer 0 … n: wait until due, encode, send, repeat if refused
//! ```
//!
//! **Order.** A series belongs to one writer, by the hash of its labels, and a writer has one connection
//! and repeats a refused request until it is taken: a series' samples arrive in the order in which they were
//! recorded.
//!
//! **When.** A request that came `a` after the recording began is due `a / speed` after the replay began,
//! whatever the target does; latency counts from then.
//!
//! **Times of samples.** [`Times::Scaled`]: a sample at `t` gets `begin + (t - begun) / speed`, where `begin`
//! is now and `begun` is when the recording began. So samples are as fresh as they were (divided by the
//! speed), and intervals shrink with the speed: 15 s become 1.5 s at tenfold speed. Where two samples of a
//! series would fall on one millisecond the later one moves on by one. [`Times::Shifted`]: all times move by
//! the same, so that the end of the recording falls on the end of the replay: intervals stay, and the first
//! samples are as old as the recording is long, less the replay.
//!
//! **More series.** With `copies` above 1 each series is sent so many times, told apart by the label
//! [`COPY_LABEL`].

mod dealer;
mod encode;
mod report;
mod sender;

pub use report::RecordingSummary;

use crate::capture::file::request::Message;
use crate::drive::meter::Meter;
use crate::drive::send::exchange::RetryPolicy;
use crate::drive::stop::Stop;
use crate::drive::tally::Tally;
use crate::http::{Access, Client, Endpoint, headers};
use crate::observe::{Observation, ObserveOptions};
use crate::result::{RunResult, SeriesKind, Timeline, names};
use crate::show::progress::{Observer, Phase, Progress};
use anyhow::{Context, Result, ensure};
use dealer::{Batch, Dealer};
use sender::Sender;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::{Clock, SystemClock};
use tokio::sync::mpsc;

/// Tells the copies of a series apart: `1` to `copies`.
pub const COPY_LABEL: &str = "floodmark_copy";

/// Batches that wait for one writer. Together with what is under way they bound the memory.
const QUEUE: usize = 8;

const WRITERS_MAX: usize = 1_024;
const COPIES_MAX: u32 = 10_000;
const SPEED_MAX: f64 = 10_000.0;
const BATCH_MAX: usize = 100_000;

/// What becomes of the times of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Times {
    /// They shrink with the speed.
    #[default]
    Scaled,
    /// They keep their distances.
    Shifted,
}

impl std::str::FromStr for Times {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "scaled" => Ok(Self::Scaled),
            "shifted" => Ok(Self::Shifted),
            _ => Err(format!("{text:?} is neither scaled nor shifted")),
        }
    }
}

/// What to play, and how.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// The recording.
    pub file: PathBuf,
    /// Where to.
    pub url: String,
    /// Sent with each request. `X-Scope-OrgID` here goes before the recorded tenant.
    pub headers: Vec<(String, String)>,
    /// What may be reached.
    pub access: Access,
    /// Remote write 1.0 or 2.0 for all; as recorded without it.
    pub message: Option<Message>,
    /// How many times as fast.
    pub speed: f64,
    /// How many copies of each series.
    pub copies: u32,
    /// Connections, over which the series are spread.
    pub writers: usize,
    /// What becomes of the times of samples.
    pub times: Times,
    /// Samples in a request, about.
    pub batch: usize,
    /// Ends the replay after so long.
    pub duration: Option<Duration>,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// What to do with refusals.
    pub retry: RetryPolicy,
    /// What of the target to watch.
    pub observe: ObserveOptions,
    /// Ends it early.
    pub stop: Stop,
}

impl ReplayOptions {
    /// Plays `file` to `url` as it was recorded.
    pub fn new(file: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            url: url.into(),
            headers: Vec::new(),
            access: Access::default(),
            message: None,
            speed: 1.0,
            copies: 1,
            writers: 4,
            times: Times::Scaled,
            batch: 2_000,
            duration: None,
            timeout: crate::http::TIMEOUT_DEFAULT,
            retry: RetryPolicy::default(),
            observe: ObserveOptions::default(),
            stop: Stop::default(),
        }
    }

    fn check(&self) -> Result<()> {
        let speed = self.speed;
        ensure!(speed > 0.001 && speed <= SPEED_MAX, "speed: {speed} is not between 0.001 and {SPEED_MAX}");
        let between = |what: &str, n: usize, max: usize| {
            ensure!((1..=max).contains(&n), "{what}: {n} is not between 1 and {max}");
            Ok(())
        };
        between("writers", self.writers, WRITERS_MAX)?;
        between("copies", self.copies as usize, COPIES_MAX as usize)?;
        between("batch", self.batch, BATCH_MAX)
    }
}

/// Plays a recording.
///
/// Errors are for replays that did not take place. A target that refuses or breaks is a result.
pub async fn replay(options: &ReplayOptions, observer: &dyn Observer) -> Result<RunResult> {
    options.check()?;
    let (path, stop) = (options.file.clone(), options.stop.clone());
    let summary = tokio::task::spawn_blocking(move || RecordingSummary::of(&path, &stop)).await??;
    check_memory(options, &summary)?;
    observer.note(&summary.announcement(options));
    let endpoint = Endpoint::resolve(&options.url, &options.access).await?;
    let tally = Arc::new(Tally::new());
    let mut senders = Vec::new();
    for _ in 0..options.writers {
        let mut client = Client::new(endpoint.clone(), headers(&options.headers)?, options.timeout);
        client.connect().await.with_context(|| format!("cannot reach {}", options.url))?;
        senders.push(Sender::new(client, endpoint.path().to_owned(), options, Arc::clone(&tally)));
    }
    let mut observation = Observation::begin(&options.observe).await?;

    let begun_ms = SystemClock.now_ms();
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let mut queues = Vec::new();
    for sender in senders {
        let (queue, batches) = mpsc::channel::<Batch>(QUEUE);
        queues.push(queue);
        tasks.spawn(sender.run(batches, options.stop.clone()));
    }
    let dealer = Dealer::new(options, &summary, begun, begun_ms, queues)?;
    let dealing = tokio::task::spawn_blocking(move || dealer.run());

    let mut watch =
        Watch { timeline: Timeline::default(), meter: Meter::new(begun), length: summary.length(options) };
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    second.tick().await;
    loop {
        tokio::select! {
            _ = second.tick() => {
                watch.second(&tally, observer);
                observation.second(&mut watch.timeline).await;
            }
            ended = tasks.join_next() => match ended {
                Some(sent) => sent.context("a writer ended badly")?,
                None => break,
            },
        }
    }
    let dealt = dealing.await.context("the dealer ended badly")??;
    // the last part of a second, which may be all there is
    watch.second(&tally, observer);
    observation.second(&mut watch.timeline).await;
    watch.timeline.finish();
    let run = report::Run {
        options,
        summary: &summary,
        begun_ms,
        wall: begun.elapsed(),
        dealt,
        meter: &watch.meter,
    };
    let mut result = report::build(run, watch.timeline, &tally);
    observation.end(&mut result).await;
    Ok(result)
}

/// Says no before the machine does: each series of a dictionary is held once, with its labels.
fn check_memory(options: &ReplayOptions, summary: &RecordingSummary) -> Result<()> {
    const SAMPLE_BYTES: u64 = 64;
    let batches = (options.writers * (QUEUE + 2) * options.batch) as u64 * SAMPLE_BYTES;
    let needed = summary.dictionary_bytes_max + batches;
    let available = crate::observe::procfs::memory_available_bytes().unwrap_or(u64::MAX);
    ensure!(
        needed < available / 2,
        "this replay takes about {} MiB of memory, and {} are available: take fewer writers or a smaller batch",
        needed >> 20,
        available >> 20
    );
    Ok(())
}

/// Looks at the figures once a second.
struct Watch {
    timeline: Timeline,
    meter: Meter,
    length: Duration,
}

impl Watch {
    fn second(&mut self, tally: &Tally, observer: &dyn Observer) {
        let second = self.meter.second(std::iter::once(tally), &mut self.timeline);
        self.timeline.set(names::RATE_OFFERED, "1/s", SeriesKind::Sum, second.offered_per_s);
        observer.progress(&Progress {
            phase: Phase::Replaying,
            part: second.at_s / self.length.as_secs_f64().max(0.001),
            elapsed: Duration::from_secs_f64(second.at_s),
            samples: second.sums.acknowledged,
            samples_per_s: second.acknowledged_per_s,
            p99_s: second.p99_s(),
            refused: second.sums.refused,
            broken: second.sums.broken,
        });
    }
}

#[cfg(test)]
mod tests;
