//! Decodes requests with decoders that are reused.

use super::Context;
use super::known::WaitingSeries;
use super::route::{Arrival, Load, Prepared, Route, Routed};
use super::totals::Unsummed;
use super::turns::{Turn, Work};
use crate::graphite_rules::Rules;
use crate::ingest_rules::TenantList;
use crate::refusal::Refusal;
use bytes::Bytes;
use model::{Batch, LabelsBuilder, Principal, TotalsPart, TotalsPlace};
use protocol::{Body, DecodeError, Decoder, Encoding};
use std::sync::{Arc, Mutex};
use stdx::budget::{Account, Reservation};

/// A body is decoded in place if its decoded length is at most this. Other tasks are then delayed by at most 0.5 ms.
const INLINE_BYTES_MAX: usize = 1 << 20;

/// For encodings other than snappy, the limits are lower: the body may be text, where each line is a series and costs
/// more than its bytes.
const INLINE_COMPRESSED_BYTES_MAX: usize = 64 << 10;
pub(super) const INLINE_TEXT_BYTES_MAX: usize = 64 << 10;

/// Memory that a body takes until it is stored, as a multiple of its decoded length.
pub(super) const NEED_FACTOR: u64 = 2;

/// If a body does not declare its decoded length, it is assumed to be this many times its encoded length.
const INFLATION: usize = 8;

/// Where points come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Sender,
    /// They were computed from the points of others, and have their final names.
    Aggregator,
}

/// What is known of the points of a body, besides their encoding.
#[derive(Debug)]
pub(super) struct Points {
    pub(super) origin: Origin,
    /// When they arrived first, in milliseconds since the Unix epoch. `None` if it is now.
    pub(super) arrived_ms: Option<i64>,
    /// Whether they have counted against the tenant's rate limit.
    pub(super) is_counted: bool,
    /// Series that count as new.
    pub(super) waiting: Option<Arc<dyn WaitingSeries>>,
    /// They apply only to the protocols of Graphite.
    pub(super) carbon_rules: Arc<Rules>,
    /// The tenant's rules on what is stored.
    pub(super) rules: Option<TenantList>,
}

#[derive(Debug)]
pub(crate) struct Encoded<D: Decoder> {
    pub(crate) principal: Principal,
    pub(crate) format: D::Format,
    pub(crate) encoding: Encoding,
    pub(crate) bytes: Bytes,
    /// Reservation for `bytes`, unless the caller keeps them. It grows with the memory that decoding takes.
    pub(crate) memory: Reservation,
}

impl<D: Decoder> Encoded<D> {
    /// True if the body is large or has no declared length. Such a body is decoded on a blocking thread.
    pub(crate) fn is_large(&self) -> Result<bool, DecodeError> {
        let decoded_max = match self.encoding {
            Encoding::Snappy => INLINE_BYTES_MAX,
            _ if self.bytes.len() > INLINE_COMPRESSED_BYTES_MAX => return Ok(true),
            _ => INLINE_TEXT_BYTES_MAX,
        };
        Ok(self.body().decoded_len()?.is_none_or(|bytes| bytes > decoded_max))
    }

    /// Reserves the memory that a large body will probably need. Otherwise, many requests could start and none
    /// complete.
    ///
    /// Reserves nothing if the estimate exceeds the account, because the body may need less.
    pub(crate) fn take_memory_ahead(&mut self) -> Result<(), Refusal> {
        let length = self.body().decoded_len()?.unwrap_or_else(|| self.bytes.len().saturating_mul(INFLATION));
        match self.memory.advance(NEED_FACTOR * length as u64) {
            Err(full) if !full.is_for_good() => Err(full.into()),
            _ => Ok(()),
        }
    }

    fn body(&self) -> Body<'_> {
        Body { encoding: self.encoding, bytes: &self.bytes }
    }

    /// What is needed to decode the request again.
    pub(super) fn again(&self) -> Again<D> {
        let Self { principal, format, encoding, bytes, memory: _ } = self;
        Again {
            principal: principal.clone(),
            format: format.clone(),
            encoding: *encoding,
            bytes: bytes.clone(),
        }
    }
}

/// A request that may have to be decoded again.
#[derive(Debug)]
pub(super) struct Again<D: Decoder> {
    pub(super) principal: Principal,
    format: D::Format,
    encoding: Encoding,
    bytes: Bytes,
}

impl<D: Decoder> Again<D> {
    /// From now on, the request is this message, without an encoding.
    pub(super) fn set_message(&mut self, message: Vec<u8>) {
        (self.encoding, self.bytes) = (Encoding::Identity, message.into());
    }

    /// A part of what the increments of the request have added up to, instead of all its points. `memory` grows with the memory that
    /// decoding takes; the caller keeps that of the message.
    pub(super) fn part(&self, part: TotalsPart, memory: Reservation) -> Encoded<D> {
        Encoded {
            principal: self.principal.clone(),
            format: D::with_totals(self.format.clone(), part),
            encoding: self.encoding,
            bytes: self.bytes.clone(),
            memory,
        }
    }
}

/// Decoders of one protocol that no request is using.
///
/// Their memory has an account of its own. A request pays only for memory by which it makes a decoder grow.
#[derive(Debug)]
pub(crate) struct Decoders<D> {
    seed: u64,
    account: Account,
    idle: Mutex<Vec<Workspace<D>>>,
}

/// A body that was decoded and is being divided among the partitions.
pub(super) struct Decoded<D: Decoder> {
    decoders: Arc<Decoders<D>>,
    /// `None` once it is back among the idle ones.
    workspace: Option<Workspace<D>>,
    format: D::Format,
    unsummed: Unsummed,
    left: Option<TotalsPlace>,
    memory: Reservation,
    route: Route,
}

const IDLE_MAX: usize = 16;

const KEPT_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
struct Workspace<D> {
    decoder: D,
    batch: Batch,
    labels: LabelsBuilder,
    kept: Reservation,
}

impl<D: Decoder> Decoders<D> {
    pub(crate) const fn new(seed: u64, account: Account) -> Self {
        Self { seed, account, idle: Mutex::new(Vec::new()) }
    }

    /// Decodes a request and looks up its series in one turn. `rules` are the tenant's rules on what is stored.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        context: &Arc<Context>,
        request: Encoded<D>,
        rules: Option<TenantList>,
    ) -> Result<Prepared, Refusal> {
        let mut decoded = self.begin_request(context, (request, None), rules)?;
        while !decoded.decide(&Turn::WHOLE)? {}
        let (routed, memory) = decoded.finish()?;
        routed.finish(memory)
    }

    /// Like [`Self::prepare`], for a request that may have increments of histograms, or for a part of one.
    pub(super) fn prepare_step(
        self: &Arc<Self>,
        context: &Arc<Context>,
        request: (Encoded<D>, Option<i64>),
    ) -> Result<(Routed, Reservation), Refusal> {
        let mut decoded = self.begin_request(context, request, None)?;
        while !decoded.decide(&Turn::WHOLE)? {}
        decoded.finish()
    }

    /// Like [`Self::begin`], for a request, whose body is not needed any more once it is decoded.
    pub(super) fn begin_request(
        self: &Arc<Self>,
        context: &Arc<Context>,
        (request, arrived_ms): (Encoded<D>, Option<i64>),
        rules: Option<TenantList>,
    ) -> Result<Box<Decoded<D>>, Refusal> {
        let Encoded { principal, format, encoding, bytes, memory } = request;
        let body = Body { encoding, bytes: &bytes };
        let (origin, carbon_rules) = (Origin::Sender, context.rules.current());
        let points = Points { origin, arrived_ms, is_counted: false, waiting: None, carbon_rules, rules };
        self.begin(context, principal, (format, body), points, memory)
    }

    /// Decodes a body, and checks its timestamps.
    pub(super) fn begin(
        self: &Arc<Self>,
        context: &Arc<Context>,
        principal: Principal,
        (format, body): (D::Format, Body<'_>),
        points: Points,
        mut memory: Reservation,
    ) -> Result<Box<Decoded<D>>, Refusal> {
        let Points { origin, arrived_ms, is_counted, waiting, carbon_rules, rules } = points;
        let now_ms = context.clock.now_ms();
        let mut workspace = self.take();
        let Workspace { decoder, batch, labels, .. } = &mut workspace;
        let has_carbon_rules = D::HAS_GRAPHITE_NAMES && origin == Origin::Sender;
        let arrival = Arrival {
            now_ms,
            arrived_ms: Some(arrived_ms.unwrap_or(now_ms)),
            is_counted,
            is_final: false,
            is_aggregated: has_carbon_rules,
            carbon_rules: has_carbon_rules.then_some(carbon_rules),
            rules,
            waiting,
        };
        let request = protocol::Request { format: format.clone(), body };
        let decoded = decoder.decode(request, batch, &mut memory).map_err(Refusal::from);
        let (mut unsummed, mut left) = (Unsummed::default(), None);
        let route = decoded.and_then(|()| {
            left = batch.left;
            if !batch.exponentials.is_empty() {
                unsummed = Unsummed::take(batch);
            }
            let mut load = Load { form: D::label_form(&format), batch, labels, memory: &mut memory };
            Route::begin(context, principal, arrival, &mut load)
        });
        match route {
            Ok(route) => {
                let (decoders, workspace) = (Arc::clone(self), Some(workspace));
                Ok(Box::new(Decoded { decoders, workspace, format, unsummed, left, memory, route }))
            }
            Err(refusal) => {
                self.put(workspace);
                Err(refusal)
            }
        }
    }

    fn take(&self) -> Workspace<D> {
        let idle = self.idle.lock().expect("BUG: a decoder panicked").pop();
        idle.unwrap_or_else(|| Workspace {
            decoder: D::new(self.seed),
            batch: Batch::default(),
            labels: LabelsBuilder::new(),
            kept: self.account.reserve(0).expect("BUG: cannot reserve 0 bytes"),
        })
    }

    /// Returns a decoder to the pool. If its memory cannot be reserved in the pool's account, it is freed instead.
    fn put(&self, mut workspace: Workspace<D>) {
        workspace.batch.clear();
        let Workspace { decoder, batch, labels, .. } = &workspace;
        let bytes = batch.memory_bytes() + decoder.memory_bytes() + labels.memory_bytes();
        if bytes > KEPT_BYTES_MAX || workspace.kept.resize(bytes as u64).is_err() {
            return;
        }
        let mut idle = self.idle.lock().expect("BUG: a decoder panicked");
        if idle.len() < IDLE_MAX {
            idle.push(workspace);
        }
    }
}

impl<D: Decoder> Decoded<D> {
    fn load(&mut self) -> (&mut Route, Load<'_>) {
        let Self { workspace, format, memory, route, .. } = self;
        let Workspace { batch, labels, .. } = workspace.as_mut().expect("BUG: a body is routed twice");
        (route, Load { form: D::label_form(format), batch, labels, memory })
    }
}

impl<D: Decoder> Work for Decoded<D> {
    fn decide(&mut self, turn: &Turn) -> Result<bool, Refusal> {
        let (route, mut load) = self.load();
        route.decide(&mut load, turn)
    }

    /// Afterwards, the memory of the decoder belongs to the pool's account.
    fn finish(mut self: Box<Self>) -> Result<(Routed, Reservation), Refusal> {
        let (route, mut load) = self.load();
        let mut routed = route.finish(&mut load)?;
        (routed.unsummed, routed.left) = (std::mem::take(&mut self.unsummed), self.left);
        self.memory.settle();
        let bytes = self.memory.bytes();
        Ok((routed, self.memory.split(bytes)))
    }

    fn rest(&mut self) {
        self.route.rest();
        if let Some(Workspace { batch, .. }) = &self.workspace {
            self.memory.keep_ahead(self.route.need_bytes(batch));
        }
    }
}

impl<D: Decoder> Drop for Decoded<D> {
    fn drop(&mut self) {
        if let Some(workspace) = self.workspace.take()
            && !std::thread::panicking()
        {
            self.decoders.put(workspace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_decoders_are_reserved() {
        let account = Account::new("decoders", 100_000);
        let decoders = Decoders::<protocol::remote_write::Decoder>::new(1, account.clone());
        let grown = |bytes| {
            let mut workspace = decoders.take();
            workspace.batch.bytes.reserve_exact(bytes);
            workspace
        };
        let (small, large) = (grown(60_000), grown(120_000));
        decoders.put(small);
        assert_eq!(account.used_bytes(), 60_000);
        decoders.put(large);
        assert_eq!((account.used_bytes(), decoders.idle.lock().unwrap().len()), (60_000, 1));
        let warm = decoders.take();
        assert_eq!((warm.batch.memory_bytes(), account.used_bytes()), (60_000, 60_000));
        drop(warm);
        assert_eq!(account.used_bytes(), 0);
        let mut parsed = decoders.take();
        parsed.labels.push("a", &"x".repeat(50_000));
        let label_bytes = parsed.labels.memory_bytes();
        assert!(label_bytes >= 50_000, "{label_bytes} bytes");
        decoders.put(parsed);
        assert_eq!(account.used_bytes(), label_bytes as u64);
    }

    fn encoded(
        account: &Account,
        encoding: Encoding,
        bytes: Vec<u8>,
    ) -> Encoded<protocol::graphite::Decoder> {
        let principal = Principal::of(model::TenantId::anonymous());
        let memory = account.reserve(bytes.len() as u64).unwrap();
        Encoded {
            principal,
            format: protocol::graphite::TimeOfArrival::Refused,
            encoding,
            bytes: bytes.into(),
            memory,
        }
    }

    #[test]
    fn one_of_two_large_bodies_has_its_memory_and_the_other_is_refused() {
        let account = Account::new("inflight", 100_000);
        let large = || encoded(&account, Encoding::Identity, vec![b'x'; 20_000]);
        let (mut first, mut second) = (large(), large());
        first.take_memory_ahead().unwrap();
        assert_eq!((first.memory.bytes(), account.used_bytes()), (20_000, 80_000));
        assert_eq!(second.take_memory_ahead().unwrap_err().kind, model::ErrorKind::Unavailable);
        first.memory.resize(60_000).expect("the memory was reserved ahead");
        drop(first);
        second.take_memory_ahead().unwrap();
        drop(second);
        let mut never = encoded(&account, Encoding::Identity, vec![b'x'; 60_000]);
        never.take_memory_ahead().expect("the estimate alone refuses nothing");
        assert_eq!(account.used_bytes(), 60_000);
    }

    #[test]
    fn a_small_body_that_becomes_many_lines_takes_a_thread() {
        let account = Account::new("bodies", 1 << 20);
        let is_large = |encoding, bytes| encoded(&account, encoding, bytes).is_large().unwrap();
        let lines = b"a 1 1700000000\n";
        let compressed = zstd::bulk::compress(&lines.repeat(20_000), 1).unwrap();
        assert!(compressed.len() < 200, "{} bytes", compressed.len());
        assert!(is_large(Encoding::Zstd, compressed));
        assert!(!is_large(Encoding::Zstd, zstd::bulk::compress(&lines.repeat(1000), 1).unwrap()));
        assert!(is_large(Encoding::Identity, lines.repeat(20_000)));
        assert!(!is_large(Encoding::Identity, lines.repeat(1000)));
    }
}
