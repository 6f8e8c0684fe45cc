//! Sends one request, with retries, until it is accepted, refused for good, or given up. A socket without answers
//! accepts a request by taking its bytes.

use super::answered::{Answered, Said};
use super::wire::Wire;
use crate::drive::stop::Stop;
use crate::drive::tally::Tally;
use crate::http::Failure;
use crate::socket::{Ending, Socket};
use bytes::Bytes;
use hyper::Method;
use std::time::{Duration, Instant};

/// Retries like Prometheus: 5xx, 429 and broken connections are retried, and other refusals are final. Over gRPC, like
/// OpenTelemetry ([`Answered`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// First pause between attempts. Each further pause is twice as long.
    pub(crate) backoff_min: Duration,
    pub(crate) backoff_max: Duration,
    /// A longer pause in a `Retry-After` header is shortened to this.
    pub(crate) retry_after_max: Duration,
    pub(crate) give_up_after: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) path: &'a str,
    pub(crate) retry: &'a RetryPolicy,
    pub(crate) stop: &'a Stop,
    pub(crate) tally: &'a Tally,
    /// No retry begins after this time.
    pub(crate) until: Option<Instant>,
    /// A connection gives up once all connections of its tenant together have had this many final refusals and no
    /// success.
    pub(crate) rejected_max: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Payload {
    pub(crate) body: Bytes,
    /// Bytes of the body, and of what the request adds to the URL.
    pub(crate) bytes: u64,
    pub(crate) samples: u64,
    /// Number of samples in the request that are not native histograms.
    pub(crate) floats: u64,
    /// When the request should have been sent according to the schedule. Latency counts from this time.
    pub(crate) intended: Instant,
}

/// Keeps track of the samples that a target got and acknowledged.
pub(crate) trait Account {
    /// Called when the target may have received the request. Returns how many of its series are new.
    fn sent(&mut self) -> u64;

    fn acknowledged(&mut self);

    /// Called when a socket without answers has taken the request.
    fn taken(&mut self, at: Instant);

    /// Called while the connection of the taken requests is open. At `at`, the target was known to be alive.
    fn alive_until(&mut self, at: Instant);

    /// Called when the connection of the taken requests has ended.
    fn ended(&mut self, ending: Ending);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    /// The request is settled, but the connection gave up and must send no further request.
    Last,
    /// The load ended before the request was sent.
    End,
}

enum Verdict {
    Done(Flow),
    /// The attempt failed and should be repeated, after a pause if the target asked for one.
    Again(Option<Duration>),
}

pub(crate) async fn exchange(
    wire: &mut Wire,
    payload: Payload,
    terms: Terms<'_>,
    account: &mut impl Account,
) -> Flow {
    let Terms { retry, stop, tally, .. } = terms;
    let give_up = Instant::now() + retry.give_up_after;
    let give_up = terms.until.map_or(give_up, |until| give_up.min(until));
    let mut pause = retry.backoff_min;
    tally.lock().offer(payload.samples);
    loop {
        let begin = Instant::now();
        let verdict = match wire {
            Wire::Http(client) => {
                let answer = client.send(Method::POST, terms.path, payload.body.clone()).await;
                settle(answer.map(Answered::Http), begin.elapsed(), &payload, terms, account)
            }
            Wire::Grpc(client) => {
                let answer = client.call(terms.path, &payload.body).await;
                settle(answer.map(Answered::Grpc), begin.elapsed(), &payload, terms, account)
            }
            Wire::Socket(socket) => hand_over(socket, begin, &payload, terms, account).await,
        };
        let wait = match verdict {
            Verdict::Done(flow) => return flow,
            Verdict::Again(asked) => asked.unwrap_or(pause),
        };
        if stop.is_set() || Instant::now() + wait > give_up {
            return give_up_after(tally, retry.give_up_after);
        }
        pause = (pause * 2).min(retry.backoff_max);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.wait() => {}
        }
    }
}

/// Outcome of a request that a socket has taken.
const TAKEN: &str = "taken";

async fn hand_over(
    socket: &mut Socket,
    begin: Instant,
    payload: &Payload,
    terms: Terms<'_>,
    account: &mut impl Account,
) -> Verdict {
    let sent = socket.send(&payload.body).await;
    let at = Instant::now();
    // requests of earlier connections are settled before the new connection takes one
    if let Some(at) = socket.take_broken() {
        account.ended(Ending::Broken(at));
    }
    let mut tally = terms.tally.lock();
    tally.totals.attempts += 1;
    if let Err(failure @ Failure::Connect(_)) = &sent {
        tally.failed(failure);
        return Verdict::Again(None);
    }
    let new = account.sent();
    tally.totals.series_distinct += new;
    tally.totals.bytes += payload.bytes;
    tally.samples_sent += payload.samples;
    if let Err(failure) = &sent {
        tally.failed(failure);
        return Verdict::Again(None);
    }
    tally.count_outcome(TAKEN);
    tally.success(payload.intended.elapsed(), at - begin, payload.samples, new > 0);
    drop(tally);
    account.taken(at);
    if let Some(at) = socket.alive_until() {
        account.alive_until(at);
    }
    Verdict::Done(Flow::Next)
}

fn settle(
    answer: Result<Answered, Failure>,
    took: Duration,
    payload: &Payload,
    terms: Terms<'_>,
    account: &mut impl Account,
) -> Verdict {
    let mut tally = terms.tally.lock();
    tally.totals.attempts += 1;
    let mut new = 0;
    // if the connection broke after it was established, the target may have received the request
    if !matches!(answer, Err(Failure::Connect(_))) {
        new = account.sent();
        tally.totals.series_distinct += new;
        tally.totals.bytes += payload.bytes;
        tally.samples_sent += payload.samples;
    }
    let answer = match answer {
        Ok(answer) => answer,
        Err(failure) => {
            tally.failed(&failure);
            return Verdict::Again(None);
        }
    };
    let (outcome, said) = (answer.outcome(), answer.says(payload.floats));
    tally.count_outcome(outcome);
    if matches!(said, Said::Again(_) | Said::Refused) {
        tally.refused(outcome, took, || answer.text());
    }
    match said {
        Said::Stored => {
            tally.success(payload.intended.elapsed(), took, payload.samples, new > 0);
            account.acknowledged();
            Verdict::Done(Flow::Next)
        }
        Said::StoredInPart => {
            tally.totals.short += 1;
            Verdict::Done(Flow::Next)
        }
        Said::Again(asked) => {
            tally.totals.without_retry_after += u64::from(asked.is_none());
            Verdict::Again(asked.map(|asked| asked.min(terms.retry.retry_after_max)))
        }
        Said::Refused => {
            tally.totals.rejected += 1;
            let totals = &tally.totals;
            let hopeless = totals.samples_acknowledged == 0 && totals.rejected >= terms.rejected_max;
            Verdict::Done(if hopeless { Flow::Last } else { Flow::Next })
        }
    }
}

/// Gives up a request that failed for too long. If no other request succeeded meanwhile, the target is considered
/// gone, and the connection ends.
fn give_up_after(tally: &Tally, after: Duration) -> Flow {
    let mut counts = tally.lock();
    counts.totals.given_up += 1;
    let dead = counts.last_success.is_none_or(|at| at.elapsed() >= after);
    if dead { Flow::Last } else { Flow::Next }
}
