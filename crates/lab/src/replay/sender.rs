//! One connection: sends its batches in order, each when it is due, until it is taken.

use super::ReplayOptions;
use super::dealer::Batch;
use super::encode::Encoder;
use super::tally::Tally;
use crate::http::{Client, Failure};
use crate::options::RetryPolicy;
use crate::recording::request::Message;
use crate::stop::Stop;
use crate::timer::Timer;
use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, StatusCode};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");

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
                self.tally.unsent(batch.samples);
                continue;
            }
            let body = Bytes::from(self.encoder.body(&batch));
            let free = Instant::now();
            tokio::select! {
                () = timer.sleep_until(batch.due) => {}
                () = stop.wait() => return,
            }
            self.tally.lag(free.max(batch.due).elapsed());
            if !self.exchange(&batch, body, &stop).await {
                return;
            }
        }
    }

    /// False where to go on makes no sense.
    async fn exchange(&mut self, batch: &Batch, body: Bytes, stop: &Stop) -> bool {
        let give_up = Instant::now() + self.retry.give_up_after;
        let mut pause = self.retry.backoff_min;
        self.tally.request(batch.samples);
        self.set_headers(batch);
        loop {
            let begun = Instant::now();
            let answer = self.client.send(Method::POST, &self.path, body.clone()).await;
            let samples = batch.samples as u64;
            if !matches!(answer, Err(Failure::Connect(_))) {
                self.tally.sent(samples, body.len() as u64);
            }
            let asked = match answer {
                Ok(answer) if answer.status.is_success() => {
                    self.tally.success(answer.status.as_u16(), batch.due.elapsed(), begun.elapsed(), samples);
                    return true;
                }
                Ok(answer) => {
                    self.tally.refused(&answer, begun.elapsed());
                    let again =
                        answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS;
                    if !again {
                        return self.tally.rejected();
                    }
                    answer.retry_after().map(|asked| asked.min(self.retry.retry_after_max))
                }
                Err(failure) => {
                    self.tally.failed(&failure);
                    None
                }
            };
            let wait = asked.unwrap_or(pause);
            if stop.is_set() || Instant::now() + wait > give_up {
                return self.tally.give_up(self.retry.give_up_after) && !stop.is_set();
            }
            pause = (pause * 2).min(self.retry.backoff_max);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.wait() => {}
            }
        }
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
