//! One connection: sends its batches in order, each when it is due, until it is taken.

use super::ReplayOptions;
use super::dealer::Batch;
use super::encode::Encoder;
use crate::capture::file::request::Message;
use crate::drive::send::exchange::RetryPolicy;
use crate::drive::send::exchange::{Account, Flow, Payload, Terms, exchange};
use crate::drive::send::timer::Timer;
use crate::drive::stop::Stop;
use crate::drive::tally::Tally;
use crate::http::Client;
use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");

/// So many refusals for good and not one success: the target does not want this at all.
const REJECTED_MAX: u64 = 20;

/// A recording does not say which of its series are new, and nothing is read back.
struct NoAccount;

impl Account for NoAccount {
    fn sent(&mut self) -> u64 {
        0
    }

    fn acknowledged(&mut self) {}
}

pub(super) struct Sender {
    client: Client,
    path: String,
    retry: RetryPolicy,
    end: Option<std::time::Duration>,
    tenant_given: bool,
    tally: Arc<Tally>,
    encoder: Encoder,
}

impl Sender {
    pub(super) fn new(client: Client, path: String, options: &ReplayOptions, tally: Arc<Tally>) -> Self {
        Self {
            client,
            path,
            retry: options.retry,
            end: options.duration,
            tenant_given: options.headers.iter().any(|(name, _)| TENANT == name.to_lowercase().as_str()),
            tally,
            encoder: Encoder::default(),
        }
    }

    /// Sends until there is nothing more, or the run ends.
    pub(super) async fn run(mut self, mut batches: mpsc::Receiver<Batch>, stop: Stop) {
        let timer = Timer::new();
        let end = self.end.map(|end| Instant::now() + end);
        loop {
            let batch = tokio::select! {
                batch = batches.recv() => batch,
                () = stop.wait() => return,
            };
            let Some(batch) = batch else { return };
            if end.is_some_and(|end| Instant::now() >= end) {
                self.tally.lock().leave_out(batch.samples as u64);
                continue;
            }
            let body = Bytes::from(self.encoder.body(&batch));
            let free = Instant::now();
            tokio::select! {
                () = timer.sleep_until(batch.due) => {}
                () = stop.wait() => return,
            }
            self.tally.lock().lag(free.max(batch.due).elapsed());
            if !self.send(&batch, body, &stop).await {
                return;
            }
        }
    }

    /// False where to go on makes no sense.
    async fn send(&mut self, batch: &Batch, body: Bytes, stop: &Stop) -> bool {
        self.set_headers(batch);
        let floats = batch.parts.iter().map(|part| part.samples.len() as u64).sum();
        let payload = Payload { body, samples: batch.samples as u64, floats, intended: batch.due };
        let terms = Terms {
            path: &self.path,
            retry: &self.retry,
            stop,
            tally: &self.tally,
            until: None,
            rejected_max: REJECTED_MAX,
        };
        let flow = exchange(&mut self.client, payload, terms, &mut NoAccount).await;
        flow == Flow::Next && !stop.is_set()
    }

    fn set_headers(&mut self, batch: &Batch) {
        let (content, version) = match batch.message {
            Message::V1 => ("application/x-protobuf", "0.1.0"),
            Message::V2 => ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0"),
        };
        let headers: &mut HeaderMap = self.client.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        headers.insert(VERSION, HeaderValue::from_static(version));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("floodmark-lab/", env!("CARGO_PKG_VERSION"))),
        );
        if !self.tenant_given {
            match HeaderValue::try_from(&*batch.tenant) {
                Ok(tenant) if !tenant.is_empty() => headers.insert(TENANT, tenant),
                _ => headers.remove(TENANT),
            };
        }
    }
}
