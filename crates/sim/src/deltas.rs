//! Sends points with delta temporality to a tenant of their own, and checks that each of them counts once.
//!
//! A sender repeats a request until it is acknowledged, and sometimes afterwards. So at any time, the node must have the sums
//! of all acknowledged points, or of these and those of the one request without an answer.
//!
//! Every second series is an exponential histogram. Its points are added up first, and then stored in many parts, so the node may die
//! in between.

use crate::trace::Trace;
use crate::traffic::Times;
use model::{SeriesRefusal, TenantId};
use server::sim::{Content, Outcome, Stepped, Written};
use std::fmt::Write;
use stdx::rng::Rng;

const STREAMS: usize = 5;

/// A node may forget the sum of a series that got nothing for longer. Then another series begins.
const IDLE_MS: i64 = 600_000;

#[derive(Debug)]
pub struct Deltas {
    rng: Rng,
    tenant: TenantId,
    /// The last [`STREAMS`] of them are still sent.
    streams: Vec<Stream>,
    underway: Vec<Underway>,
}

#[derive(Debug, Default)]
struct Stream {
    number: usize,
    is_histogram: bool,
    /// In ascending order.
    acknowledged: Vec<Delta>,
    /// The points of the last request, until it is acknowledged.
    pending: Vec<Delta>,
    /// The points of the last acknowledged request, in the order in which they were sent.
    last: Vec<Delta>,
    newest_ms: i64,
    sent_ms: i64,
    is_underway: bool,
}

#[derive(Debug, Clone, Copy)]
struct Delta {
    start_ms: i64,
    end_ms: i64,
    value: u64,
}

#[derive(Debug)]
struct Underway {
    written: Written,
    stream: usize,
    points: usize,
    is_histogram: bool,
    is_repeated: bool,
    /// How many partitions have not answered yet. The metadata of a metric is in another one than its series.
    unanswered: usize,
    has_failed: bool,
    stored: u64,
    refused: u64,
}

impl Deltas {
    pub fn new(rng: Rng) -> Self {
        let tenant = TenantId::parse("deltas").expect("BUG: the tenant's name is invalid");
        Self { rng, tenant, streams: Vec::new(), underway: Vec::new() }
    }

    /// Sends a request of one series. `steady_ms` is a time that always passes.
    pub fn write(&mut self, node: &Stepped, trace: &mut Trace, now: Times, steady_ms: i64) {
        let number = self.choose(now.senders_ms, steady_ms);
        let stream = &mut self.streams[number];
        if stream.is_underway {
            return;
        }
        let is_repeated = stream.pending.is_empty() && !stream.last.is_empty() && self.rng.chance(0.2);
        if !is_repeated && stream.pending.is_empty() {
            stream.pending = draw(&mut self.rng, stream.newest_ms, now.senders_ms);
            stream.newest_ms =
                stream.pending.iter().map(|delta| delta.end_ms).fold(stream.newest_ms, i64::max);
        }
        let points = if is_repeated { &stream.last } else { &stream.pending };
        if points.is_empty() {
            return;
        }
        trace.note(format!("deltas of series {number}, again: {is_repeated}: {points:?}"));
        stream.sent_ms = steady_ms;
        match node.write_points(&self.tenant, body(number, stream.is_histogram, points).into_bytes()) {
            Ok(written) => {
                stream.is_underway = true;
                self.underway.push(Underway {
                    points: points.len(),
                    is_histogram: stream.is_histogram,
                    unanswered: written.partitions().count(),
                    written,
                    stream: number,
                    is_repeated,
                    has_failed: false,
                    stored: 0,
                    refused: 0,
                });
            }
            Err(refusal) => trace.note(refusal),
        }
    }

    /// Chooses a series that is sent. Ends those that were not sent for long.
    fn choose(&mut self, now_ms: i64, steady_ms: i64) -> usize {
        let chosen = self.streams.len().saturating_sub(STREAMS) + self.rng.below(STREAMS as u64) as usize;
        match self.streams.get(chosen) {
            Some(stream) if stream.is_underway || steady_ms - stream.sent_ms < IDLE_MS => chosen,
            _ => {
                let number = self.streams.len();
                let (newest_ms, is_histogram) = (now_ms - 60_000, number % 2 == 1);
                self.streams.push(Stream { number, is_histogram, newest_ms, ..Stream::default() });
                number
            }
        }
    }

    pub fn collect_answers(&mut self, node: &Stepped, trace: &mut Trace) -> Result<(), String> {
        for mut underway in std::mem::take(&mut self.underway) {
            for (_, answer) in underway.written.answers() {
                underway.unanswered -= 1;
                match answer {
                    Ok(outcome) => underway.add(&outcome)?,
                    Err(refusal) => {
                        trace.note(refusal);
                        underway.has_failed = true;
                    }
                }
            }
            if underway.unanswered == 0 && !underway.has_failed {
                underway.check_totals()?;
                match node.go_on(&mut underway.written) {
                    Ok(Some(unanswered)) => {
                        underway.unanswered = unanswered;
                        self.underway.push(underway);
                        continue;
                    }
                    Ok(None) => {}
                    Err(refusal) => {
                        trace.note(refusal);
                        underway.has_failed = true;
                    }
                }
            }
            match underway.unanswered {
                0 => self.streams[underway.stream].answered(&underway)?,
                _ => self.underway.push(underway),
            }
        }
        Ok(())
    }

    /// Requests without an answer will never get one, because the process has died.
    pub fn lose_connection(&mut self) {
        self.underway.clear();
        self.streams.iter_mut().for_each(|stream| stream.is_underway = false);
    }

    pub const fn is_answered(&self) -> bool {
        self.underway.is_empty()
    }

    pub fn check(&self, node: &Stepped) -> Result<(), String> {
        let found = node.read(&self.tenant).map_err(|e| format!("cannot read {}: {e}", self.tenant))?;
        for stream in &self.streams {
            if stream.is_histogram {
                stream.check_histogram(&found)?;
                continue;
            }
            let labels = format!("d_total{{series=\"{}\"}}", stream.number);
            let found = found.get(&labels).map_or(&[][..], Vec::as_slice);
            let without = sums(stream.acknowledged.iter());
            let mut all = [&stream.acknowledged[..], &stream.pending].concat();
            all.sort_by_key(|delta| delta.end_ms);
            if found != without && found != sums(all.iter()) {
                return Err(format!("the sums of {labels} are {found:?} after {stream:?}"));
            }
        }
        Ok(())
    }
}

impl Underway {
    fn check_totals(&mut self) -> Result<(), String> {
        for refusal in self.written.refused_increments() {
            if let SeriesRefusal::IncrementTooLate | SeriesRefusal::IncrementOverlaps = refusal {
                return Err(format!("unexpected refusal {refusal} in {self:?}"));
            }
        }
        self.refused += self.written.refused_increments().count() as u64;
        Ok(())
    }

    fn add(&mut self, outcome: &Outcome) -> Result<(), String> {
        self.stored += outcome.samples;
        self.refused += outcome.refused_samples;
        let is_wrong = outcome.errors.iter().any(|(error, _)| {
            matches!(error, SeriesRefusal::IncrementTooLate | SeriesRefusal::IncrementOverlaps)
        });
        if is_wrong { Err(format!("unexpected answer {outcome:?} to {self:?}")) } else { Ok(()) }
    }
}

impl Stream {
    fn answered(&mut self, underway: &Underway) -> Result<(), String> {
        self.is_underway = false;
        if underway.has_failed {
            return Ok(());
        }
        if !underway.is_histogram && underway.stored + underway.refused != underway.points as u64 {
            return Err(format!("unexpected answers {underway:?} to {self:?}"));
        }
        if underway.refused == 0 && !underway.is_repeated {
            self.last = std::mem::take(&mut self.pending);
            self.acknowledged.extend(&self.last);
            self.acknowledged.sort_by_key(|delta| delta.end_ms);
        }
        Ok(())
    }

    /// The sum has all points of the pending request, or none. Their samples may be missing, or have only the first points of the request.
    fn check_histogram(&self, found: &Content) -> Result<(), String> {
        let possible: Vec<Vec<Delta>> = (0..=self.pending.len())
            .map(|pending| [&self.acknowledged[..], &self.pending[..pending]].concat())
            .collect();
        let counts = |time_ms: i64, bound: f64| {
            possible.iter().map(move |deltas| {
                let of = deltas.iter().filter(|delta| delta.end_ms <= time_ms && delta.middle() <= bound);
                of.map(|delta| delta.value).sum::<u64>() as f64
            })
        };
        let series = format!("series=\"{}\"", self.number);
        for (labels, samples) in found.iter().filter(|(labels, _)| labels.contains(&series)) {
            let bound = match labels.split_once("le=\"") {
                Some((_, rest)) if !rest.starts_with("+Inf") => {
                    let (bound, _) = rest.split_once('"').expect("BUG: a label has no end");
                    bound.parse::<f64>().map_err(|_| format!("{labels} has no bound"))?
                }
                Some(_) => f64::INFINITY,
                None if labels.starts_with("h_count{") => f64::INFINITY,
                None => continue,
            };
            for (time_ms, bits) in samples {
                let value = f64::from_bits(*bits);
                if !value.is_nan() && !counts(*time_ms, bound).any(|count| count == value) {
                    return Err(format!("{labels} has {value} at {time_ms} after {self:?}"));
                }
            }
        }
        let stored = found.get(&format!("h_count{{{series}}}")).map_or(&[][..], Vec::as_slice);
        let is_stored = |delta: &Delta| stored.iter().any(|(time_ms, _)| *time_ms == delta.end_ms);
        match self.acknowledged.iter().find(|delta| !is_stored(delta)) {
            Some(missing) => Err(format!("the samples of {missing:?} are missing after {self:?}")),
            None => Ok(()),
        }
    }
}

impl Delta {
    /// Scale and index of the bucket with the values, if it is a point of a histogram.
    const fn bucket(self) -> (i32, i64) {
        ((self.value % 5) as i32 - 1, (self.value * 7 % 41) as i64 - 20)
    }

    /// A value in this bucket.
    fn middle(self) -> f64 {
        let (scale, index) = self.bucket();
        ((index as f64 + 0.5) / f64::from(scale).exp2()).exp2()
    }
}

/// Draws points of a series whose newest one ended at `newest_ms`. There may be a gap before the first, and they may be in the
/// wrong order. There are none if time has not gone on.
fn draw(rng: &mut Rng, newest_ms: i64, now_ms: i64) -> Vec<Delta> {
    let mut at_ms = newest_ms + if rng.chance(0.1) { 1 + rng.below(5) as i64 } else { 0 };
    let mut deltas = Vec::new();
    for _ in 0..1 + rng.below(3) {
        let end_ms = at_ms + 1 + rng.below(500) as i64;
        if end_ms > now_ms {
            break;
        }
        deltas.push(Delta { start_ms: at_ms, end_ms, value: rng.below(100) });
        at_ms = end_ms;
    }
    if rng.chance(0.3) {
        deltas.reverse();
    }
    deltas
}

fn body(series: usize, is_histogram: bool, points: &[Delta]) -> String {
    let mut text = String::from(r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"#);
    text.push_str(match is_histogram {
        true => r#""h","exponentialHistogram":{"aggregationTemporality":1,"dataPoints":["#,
        false => r#""d","sum":{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":["#,
    });
    for (number, delta) in points.iter().enumerate() {
        let Delta { start_ms, end_ms, value } = *delta;
        let separator = if number > 0 { "," } else { "" };
        let content = match (is_histogram, delta.bucket()) {
            (true, (scale, index)) => format!(
                r#""count":"{value}","scale":{scale},"positive":{{"offset":{index},"bucketCounts":["{value}"]}}"#
            ),
            (false, _) => format!(r#""asInt":"{value}""#),
        };
        let _ = write!(
            text,
            r#"{separator}{{"attributes":[{{"key":"series","value":{{"stringValue":"{series}"}}}}],"startTimeUnixNano":"{start_ms}000000","timeUnixNano":"{end_ms}000000",{content}}}"#
        );
    }
    text + "]}}]}]}]}"
}

fn sums<'a>(deltas: impl Iterator<Item = &'a Delta>) -> Vec<(i64, u64)> {
    let mut sum = 0;
    let sums = deltas.map(|delta| {
        sum += delta.value;
        (delta.end_ms, (sum as f64).to_bits())
    });
    sums.collect()
}
