//! Turns the batches of one writer into the requests of its connection.

use super::distributor::Batch;
use super::encode::Encoder;
use crate::drive::send::exchange::Account;
use crate::drive::send::sender::{Lane, Request, Source, Times};
use crate::generate::protocol::Protocol;
use crate::socket::Ending;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");

#[derive(Debug)]
pub(crate) struct Recorded {
    batches: mpsc::Receiver<Batch>,
    lane: Arc<Lane>,
    encoder: Encoder,
    /// True if a header in the scenario names a tenant. It replaces the recorded tenants.
    tenant_given: bool,
    protocol: Protocol,
    tenant: Arc<str>,
    samples: u64,
}

impl Recorded {
    pub(super) fn new(
        batches: mpsc::Receiver<Batch>,
        lane: &Arc<Lane>,
        headers: &[(String, String)],
    ) -> Self {
        Self {
            batches,
            lane: Arc::clone(lane),
            encoder: Encoder::default(),
            tenant_given: headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(TENANT.as_str())),
            protocol: Protocol::V1,
            tenant: "".into(),
            samples: 0,
        }
    }
}

/// A replay keeps no account of samples: it does not know which series are new, and reads nothing back.
impl Account for Recorded {
    fn sent(&mut self) -> u64 {
        0
    }

    fn acknowledged(&mut self) {}

    fn taken(&mut self, _: Instant) {}

    fn alive_until(&mut self, _: Instant) {}

    fn ended(&mut self, _: Ending) {}
}

impl Source for Recorded {
    async fn next(&mut self, times: Times) -> Option<Request> {
        loop {
            let batch = tokio::select! {
                batch = self.batches.recv() => batch?,
                () = self.lane.stop.wait() => return None,
            };
            let (free, samples) = (Instant::now(), batch.samples as u64);
            if times.is_over(free) {
                self.lane.tally.lock().leave_out(1, samples);
                continue;
            }
            let floats = batch.parts.iter().map(|part| part.samples.len() as u64).sum();
            let body = Bytes::from(self.encoder.body(&batch));
            (self.protocol, self.tenant, self.samples) = (batch.protocol, batch.tenant, samples);
            return Some(Request { body, samples, floats, query: None, due: Some(batch.due), free });
        }
    }

    fn set_headers(&self, headers: &mut HeaderMap) {
        if let Some(version) = self.protocol.version() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(version.content_type()));
            headers.insert(VERSION, HeaderValue::from_static(version.header()));
        }
        if !self.tenant_given {
            match HeaderValue::try_from(&*self.tenant) {
                Ok(tenant) if !tenant.is_empty() => headers.insert(TENANT, tenant),
                _ => headers.remove(TENANT),
            };
        }
    }

    fn end(&mut self, _: Times, begun: bool) {
        if !begun && !self.lane.stop.is_set() {
            self.lane.tally.lock().leave_out(1, self.samples);
        }
    }
}
