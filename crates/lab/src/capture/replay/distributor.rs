//! Reads a recording and hands each sample to the writer of its series.

use super::Replay;
use crate::capture::file::{Ending, Event, Item, Reader, RequestEvent};
use crate::drive::send::sender::Times;
use crate::drive::stop::Stop;
use crate::generate::protocol::Protocol;
use crate::scenario::SampleTimes;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::rng::mix;
use tokio::sync::mpsc::Sender as Queue;

/// A batch that is not full is sent anyway after this time.
const LINGER: Duration = Duration::from_secs(1);

/// Maximum number of samples in all batches that are not sent yet. It bounds the memory.
const OPEN_SAMPLES_MAX: usize = 1_000_000;

/// Samples of a series.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) labels: Arc<[u8]>,
    pub(crate) samples: Vec<(i64, u64)>,
    pub(super) histograms: Vec<(i64, Vec<u8>)>,
}

#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) due: Instant,
    pub(super) protocol: Protocol,
    pub(super) tenant: Arc<str>,
    /// Number of this copy, from 1. `None` if the recording is sent only once.
    pub(crate) copy: Option<u32>,
    pub(crate) parts: Vec<Arc<Part>>,
    pub(super) samples: usize,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Distributed {
    /// Number of distributed samples, including those of copies.
    pub(super) samples: u64,
    pub(super) series: u64,
    /// Samples whose timestamp was moved by milliseconds, because another sample of the series already had that
    /// timestamp.
    pub(super) moved: u64,
    pub(super) unsent: u64,
    pub(super) whole: bool,
    pub(super) ending: Option<Ending>,
}

struct Known {
    labels: Arc<[u8]>,
    hash: u64,
    last: Option<(i64, i64)>,
}

/// Samples with the same writer, copy, protocol version and tenant can share a batch.
type Address = (usize, u32, Protocol, Arc<str>);

pub(super) struct Distributor {
    reader: Reader<BufReader<File>>,
    queues: Vec<Queue<Batch>>,
    begun: Instant,
    clock: SampleClock,
    speed: f64,
    copies: u32,
    batch: usize,
    /// Protocol of all requests. Without it, each request has the protocol in which it was recorded.
    protocol: Option<Protocol>,
    end: Option<Instant>,
    stop: Stop,
    series: Vec<Known>,
    open: HashMap<Address, (Instant, Batch)>,
    open_samples: usize,
    distributed: Distributed,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SampleClock {
    times: SampleTimes,
    speed: f64,
    recorded_ms: i64,
    begun_ms: i64,
    shift_ms: i64,
}

impl SampleClock {
    pub(super) fn new(
        times: SampleTimes,
        speed: f64,
        recorded_ms: i64,
        length_ms: i64,
        begun_ms: i64,
    ) -> Self {
        let ends_ms = begun_ms + (length_ms as f64 / speed) as i64;
        Self { times, speed, recorded_ms, begun_ms, shift_ms: ends_ms - (recorded_ms + length_ms) }
    }

    /// Timestamp in the replay for a sample that was recorded with the timestamp `t`.
    pub(super) fn at(&self, t: i64) -> i64 {
        match self.times {
            SampleTimes::Shifted => t.saturating_add(self.shift_ms),
            SampleTimes::Scaled => {
                let since = t.saturating_sub(self.recorded_ms) as f64 / self.speed;
                self.begun_ms.saturating_add(since.floor() as i64)
            }
        }
    }
}

impl Distributor {
    pub(super) fn new(
        replay: &Replay,
        queues: Vec<Queue<Batch>>,
        times: Times,
        begun_ms: i64,
        stop: &Stop,
    ) -> Result<Self> {
        let Replay { spec, summary, path, batch, protocol, .. } = replay;
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let length_ms = (summary.length_s * 1000.0) as i64;
        Ok(Self {
            reader: Reader::open(BufReader::new(file))?,
            queues,
            begun: times.begin,
            clock: SampleClock::new(spec.times, spec.speed, summary.begun_ms, length_ms, begun_ms),
            speed: spec.speed,
            copies: spec.copies,
            batch: *batch,
            protocol: *protocol,
            end: times.end,
            stop: stop.clone(),
            series: Vec::new(),
            open: HashMap::new(),
            open_samples: 0,
            distributed: Distributed::default(),
        })
    }

    /// Distributes the whole recording. Blocks while the queues of the writers are full.
    pub(super) fn run(mut self) -> Result<Distributed> {
        loop {
            if self.stop.is_set() {
                break;
            }
            match self.reader.next()? {
                None => {
                    self.distributed.whole = true;
                    break;
                }
                Some(Event::Forget) => self.series.clear(),
                Some(Event::Series(labels)) => {
                    self.distributed.series += 1;
                    let hash = model::SeriesKey::of(&labels, 0).0 as u64;
                    self.series.push(Known { labels, hash, last: None });
                }
                Some(Event::Gap(..)) => {}
                Some(Event::Request(request)) => {
                    let due = self.due(request.arrival_us);
                    if self.end.is_some_and(|end| due >= end) {
                        break;
                    }
                    self.request(request, due);
                    self.send_lingering(due);
                }
            }
        }
        let open = std::mem::take(&mut self.open);
        let mut rest: Vec<_> = open.into_iter().map(|((writer, ..), (_, batch))| (writer, batch)).collect();
        rest.sort_by_key(|(_, batch)| batch.due);
        rest.into_iter().for_each(|(writer, batch)| self.send(writer, batch));
        self.distributed.ending = self.reader.ending().cloned();
        Ok(self.distributed)
    }

    fn due(&self, arrival_us: i64) -> Instant {
        let seconds = (arrival_us.max(0) as f64 / 1e6 / self.speed).min(1e9);
        self.begun + Duration::from_secs_f64(seconds)
    }

    fn request(&mut self, request: RequestEvent, due: Instant) {
        // what was recorded in another protocol is sent to a target of remote write in the older version, which every target
        // understands
        let usual = request.message.version().map_or(Protocol::V1, Protocol::from);
        let protocol = self.protocol.unwrap_or(usual);
        for item in request.items {
            let Some((hash, part)) = self.part(item) else { continue };
            for copy in 0..self.copies {
                let writer = (mix(hash) as usize).wrapping_add(copy as usize) % self.queues.len();
                self.distribute(writer, copy, protocol, &request.tenant, Arc::clone(&part), due);
            }
        }
    }

    fn part(&mut self, item: Item) -> Option<(u64, Arc<Part>)> {
        // the reader returns the labels of a series before its samples, so the series is known here
        let known = self.series.get_mut(item.series as usize)?;
        let (clock, moved) = (self.clock, &mut self.distributed.moved);
        let mut at = |t: i64| {
            let mut new = clock.at(t);
            if let Some((recorded, given)) = known.last
                && t > recorded
                && new <= given
            {
                new = given + 1;
                *moved += 1;
            }
            if known.last.is_none_or(|(recorded, _)| t > recorded) {
                known.last = Some((t, new));
            }
            new
        };
        let samples = item.samples.into_iter().map(|(t, bits)| (at(t), bits)).collect();
        let histograms = item.histograms.into_iter().map(|(t, bytes)| (at(t), bytes)).collect();
        Some((known.hash, Arc::new(Part { labels: Arc::clone(&known.labels), samples, histograms })))
    }

    fn distribute(
        &mut self,
        writer: usize,
        copy: u32,
        protocol: Protocol,
        tenant: &Arc<str>,
        part: Arc<Part>,
        due: Instant,
    ) {
        let address = (writer, copy, protocol, Arc::clone(tenant));
        let (_, batch) = self.open.entry(address.clone()).or_insert_with(|| {
            let copy = (self.copies > 1).then_some(copy + 1);
            let tenant = Arc::clone(tenant);
            (due, Batch { due, protocol, tenant, copy, parts: Vec::new(), samples: 0 })
        });
        let samples = part.samples.len() + part.histograms.len();
        batch.due = batch.due.max(due);
        batch.samples += samples;
        batch.parts.push(part);
        self.open_samples += samples;
        if batch.samples >= self.batch || self.open_samples >= OPEN_SAMPLES_MAX {
            self.close(&address);
        }
    }

    fn close(&mut self, address: &Address) {
        let Some((_, batch)) = self.open.remove(address) else { return };
        self.open_samples -= batch.samples;
        self.send(address.0, batch);
    }

    /// Sends batches that have been open for at least [`LINGER`]. `now` is a time in the schedule of the replay.
    fn send_lingering(&mut self, now: Instant) {
        let old = |(since, _): &(Instant, Batch)| now.saturating_duration_since(*since) >= LINGER;
        let addresses: Vec<Address> =
            self.open.iter().filter(|(_, open)| old(open)).map(|(address, _)| address.clone()).collect();
        for address in addresses {
            if let Some((since, batch)) = self.open.get_mut(&address) {
                // move the due time, so that waiting for a full batch does not count as latency of the target
                batch.due = batch.due.max(*since + LINGER);
            }
            self.close(&address);
        }
    }

    fn send(&mut self, writer: usize, batch: Batch) {
        self.distributed.samples += batch.samples as u64;
        // this fails only if the writer was stopped or gave up on its target
        if self.queues[writer].blocking_send(batch).is_err() {
            self.distributed.unsent += 1;
        }
    }
}
