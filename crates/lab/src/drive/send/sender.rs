//! A connection that sends each request of its source when it is due.

use super::exchange::{Account, Flow, Payload, RetryPolicy, Terms, exchange};
use super::timer::Timer;
use super::wire::Wire;
use crate::drive::stop::Stop;
use crate::drive::tally::Tally;
use bytes::Bytes;
use hyper::HeaderMap;
use std::time::{Duration, Instant};

const GRACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) path: String,
    pub(crate) retry: RetryPolicy,
    pub(crate) stop: Stop,
    pub(crate) tally: Tally,
    /// A connection gives up once all connections of its tenant together have had this many final refusals and no
    /// success.
    pub(crate) rejected_max: u64,
    /// A connection without answers that has been open for this long is closed and opened again.
    pub(crate) reconnect: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) begin: Instant,
    pub(crate) end: Option<Instant>,
}

impl Times {
    pub(crate) fn is_over(self, moment: Instant) -> bool {
        self.end.is_some_and(|end| moment >= end)
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) body: Bytes,
    pub(crate) samples: u64,
    /// Number of samples in the request that are not native histograms.
    pub(crate) floats: u64,
    /// Parameters that the request adds to the URL of the target.
    pub(crate) query: Option<String>,
    /// When the schedule says that the request should be sent. `None` in a closed loop.
    pub(crate) due: Option<Instant>,
    /// When the connection became free for this request. If the request is sent later than both `free` and `due`, the
    /// generator was too slow.
    pub(crate) free: Instant,
}

/// Supplies the requests of a connection. The methods of [`Account`] refer to the request that [`Self::next`]
/// returned last.
pub(crate) trait Source: Account + Send {
    /// Builds the next request, if possible before it is due. `None` if there are no more.
    fn next(&mut self, times: Times) -> impl Future<Output = Option<Request>> + Send;

    fn set_headers(&self, _: &mut HeaderMap) {}

    /// Called when the connection ends. If `begun` is false, the latest request was never sent.
    fn end(&mut self, times: Times, begun: bool);
}

#[derive(Debug)]
pub(crate) struct Sender<S> {
    pub(crate) wire: Wire,
    pub(crate) source: S,
    /// True if the connection gave up before the end of the load, because the target refused everything or stopped
    /// answering with success.
    pub(crate) gave_up: bool,
}

impl<S: Source> Sender<S> {
    pub(crate) fn new(wire: Wire, source: S) -> Self {
        Self { wire, source, gave_up: false }
    }

    pub(crate) async fn run(mut self, lane: &Lane, times: Times) -> Self {
        let timer = Timer::new();
        let mut begun = true;
        while let Some(request) = self.source.next(times).await {
            match self.send(request, lane, times, &timer).await {
                Flow::Next => self.renew(lane.reconnect).await,
                Flow::Last => {
                    self.gave_up = true;
                    break;
                }
                Flow::End => {
                    begun = false;
                    break;
                }
            }
        }
        self.source.end(times, begun);
        self.close().await;
        self
    }

    async fn renew(&mut self, reconnect: Option<Duration>) {
        if let (Wire::Socket(socket), Some(age)) = (&self.wire, reconnect)
            && socket.is_older_than(age)
        {
            self.close().await;
        }
    }

    /// Waits until the target has read everything that a connection without answers has sent.
    async fn close(&mut self) {
        if let Wire::Socket(socket) = &mut self.wire
            && let Some(ending) = socket.close().await
        {
            self.source.ended(ending);
        }
    }

    async fn send(&mut self, request: Request, lane: &Lane, times: Times, timer: &Timer) -> Flow {
        let Request { body, samples, floats, query, due, free } = request;
        if let Some(due) = due {
            tokio::select! {
                () = timer.sleep_until(due) => {}
                () = lane.stop.wait() => return Flow::End,
            }
        }
        let start = Instant::now();
        if times.is_over(start) {
            return Flow::End;
        }
        lane.tally.lock().lag(start - due.map_or(free, |due| due.max(free)));
        let path = query.as_ref().map(|query| with_query(&lane.path, query));
        let bytes = (body.len() + query.map_or(0, |query| query.len())) as u64;
        let payload = Payload { body, bytes, samples, floats, intended: due.unwrap_or(start) };
        let terms = Terms {
            path: path.as_deref().unwrap_or(&lane.path),
            retry: &lane.retry,
            stop: &lane.stop,
            tally: &lane.tally,
            until: times.end.map(|end| end + GRACE),
            rejected_max: lane.rejected_max,
        };
        if let Some(headers) = self.wire.headers_mut() {
            self.source.set_headers(headers);
        }
        exchange(&mut self.wire, payload, terms, &mut self.source).await
    }
}

/// A path, which may have parameters, with further parameters.
fn with_query(path: &str, query: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{query}")
}
