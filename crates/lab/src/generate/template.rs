//! A request of remote write that is encoded once and then patched with each round's samples. What other protocols prepare
//! is in their [drivers](super::driver).
//!
//! The encoders of `protocol` encode placeholder samples. The placeholders are not zero, because protobuf omits
//! zeros. [`crate::generate::snappy`] compresses the message so that they can be overwritten.

use crate::generate::driver::Prepared;
use crate::generate::fleet::{series_labels, target_bytes};
use crate::generate::plan::{Plan, SlotRange, TIMESTAMP_MS_END, TIMESTAMP_MS_MIN};
use crate::generate::protocol::Protocol;
use crate::generate::snappy::{Compressor, Packed, STAMP_BYTES, SampleSpot, VALUE_BYTES};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use model::LabelsRef;
use protocol::encode::{V1Encoder, V2Encoder};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Version {
    /// Version 1.0, in which every series contains its labels.
    #[default]
    #[serde(rename = "1.0")]
    V1,
    /// Version 2.0, in which a request has a table of strings and the series refer to it.
    #[serde(rename = "2.0")]
    V2,
}

impl Version {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::V1 => "application/x-protobuf",
            Self::V2 => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }

    pub fn header(self) -> &'static str {
        match self {
            Self::V1 => "0.1.0",
            Self::V2 => "2.0.0",
        }
    }

    /// Version that a request's `Content-Type` header names, as specified in remote write 2.0.
    pub fn of_content_type(content_type: &str) -> Self {
        match content_type.contains("io.prometheus.write.v2.Request") {
            true => Self::V2,
            false => Self::V1,
        }
    }

    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Protobuf tag of a time series in a request: field 1 or 5, length-delimited.
    fn series_tag(self) -> u8 {
        match self {
            Self::V1 => 1 << 3 | 2,
            Self::V2 => 5 << 3 | 2,
        }
    }
}

impl std::str::FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "1" | "1.0" | "v1" => Ok(Self::V1),
            "2" | "2.0" | "v2" => Ok(Self::V2),
            _ => anyhow::bail!("remote-write version {text:?} is neither 1.0 nor 2.0"),
        }
    }
}

/// Request body of a slot. It can be reused in all rounds in which the slot has the same series.
#[derive(Debug)]
pub struct Template {
    slot: SlotRange,
    targets: Vec<SlotTarget>,
    metric_generation: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Packed(Packed),
    Prepared {
        prepared: Box<dyn Prepared>,
        /// Length of the body that was built last.
        body_bytes: usize,
    },
}

/// Some metrics of a target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotTarget {
    pub(super) target: u64,
    pub(super) generation: u64,
    pub(super) first_metric: u32,
    pub(super) metrics: u32,
}

#[derive(Debug)]
pub struct Renderer {
    protocol: Protocol,
    v1: V1Encoder,
    v2: V2Encoder,
    compressor: Compressor,
    labels: Vec<u8>,
    message: Vec<u8>,
    spots: Vec<SampleSpot>,
}

impl Renderer {
    pub fn new(protocol: impl Into<Protocol>) -> Self {
        Self {
            protocol: protocol.into(),
            v1: V1Encoder::new(),
            v2: V2Encoder::new(),
            compressor: Compressor::default(),
            labels: Vec::new(),
            message: Vec::new(),
            spots: Vec::new(),
        }
    }

    /// Prepares the request body of a slot for `round`. Values and timestamps are added later.
    pub fn render(&mut self, plan: &Plan, slot: SlotRange, round: u32) -> Template {
        let targets = slot_targets(plan, slot, round);
        let metric_generation = plan.metric_generation(round);
        let content = match self.protocol.prepare(plan, &targets, metric_generation) {
            Some(prepared) => Content::Prepared { prepared, body_bytes: 0 },
            None => {
                let version = self.protocol.version().expect("BUG: this protocol prepares nothing");
                Content::Packed(self.pack(version, plan, slot, &targets, round))
            }
        };
        Template { slot, targets, metric_generation, content }
    }

    fn pack(
        &mut self,
        version: Version,
        plan: &Plan,
        slot: SlotRange,
        targets: &[SlotTarget],
        round: u32,
    ) -> Packed {
        for part in targets {
            self.encode_target(version, plan, *part, round);
        }
        let body = match version {
            Version::V1 => self.v1.finish(),
            Version::V2 => self.v2.finish(),
        };
        unpack(body, &mut self.message).expect("BUG: an encoder's body is not Snappy");
        find_samples(&self.message, version.series_tag(), &mut self.spots)
            .expect("BUG: a template cannot patch the layout of an encoder's message");
        assert_eq!(
            self.spots.len(),
            slot.len as usize,
            "BUG: the number of samples is not the number of series"
        );
        self.compressor.pack(&self.message, &self.spots)
    }

    fn encode_target(&mut self, version: Version, plan: &Plan, part: SlotTarget, round: u32) {
        let metric_generation = plan.metric_generation(round);
        let target = target_bytes(&plan.fleet.target_labels(part.target, part.generation));
        let stamp = [plan.timestamp_ms(part.target, round)];
        for metric in part.first_metric..part.first_metric + part.metrics {
            let name = plan.fleet.metric_name(metric, metric_generation);
            let name = plan.fleet.series_name(part.target, part.generation, &name);
            let le = plan.fleet.histograms.le(metric);
            series_labels(&mut self.labels, &name, le.as_deref(), &target);
            let labels = LabelsRef::from_canonical(&self.labels);
            match version {
                Version::V1 => self.v1.series(labels, &stamp, &[1.0]),
                Version::V2 => self.v2.series(labels, &stamp, &[1.0]),
            }
        }
    }
}

impl Template {
    /// True if the slot has the same series in `round` as when the template was built.
    pub fn fits(&self, plan: &Plan, round: u32) -> bool {
        self.metric_generation == plan.metric_generation(round)
            && ((plan.series_churn_ticks.is_none() && plan.relabel_ticks.is_empty())
                || self.targets.iter().all(|t| t.generation == plan.generation(t.target, round)))
    }

    /// The body with the samples of `round`. The template must [fit](Self::fits) the round.
    pub fn body(&mut self, plan: &Plan, round: u32) -> Bytes {
        match &mut self.content {
            Content::Prepared { prepared, body_bytes } => {
                let mut body = Vec::with_capacity(match *body_bytes {
                    0 => prepared.body_bytes_expected(&self.targets),
                    known => known + known / 16,
                });
                prepared.put(&mut body, plan, &self.targets, round);
                *body_bytes = body.len();
                body.into()
            }
            Content::Packed(_) => Bytes::copy_from_slice(self.fill(plan, round)),
        }
    }

    /// Parameters that each request adds to the URL of the target.
    pub(crate) fn query(&self) -> Option<&str> {
        match &self.content {
            Content::Prepared { prepared, .. } => prepared.query(),
            Content::Packed(_) => None,
        }
    }

    /// Writes the samples of `round` into a remote-write body.
    fn fill(&mut self, plan: &Plan, round: u32) -> &[u8] {
        let Content::Packed(packed) = &mut self.content else { return &[] };
        let bytes = &mut packed.bytes;
        let mut spots = packed.values.iter();
        for part in &self.targets {
            let key = plan.target_key(part.target, part.generation);
            let metrics = part.first_metric..part.first_metric + part.metrics;
            for (metric, at) in metrics.zip(spots.by_ref()) {
                let value = plan.value(key, metric, round).to_bits().to_le_bytes();
                bytes[*at as usize..][..VALUE_BYTES].copy_from_slice(&value);
            }
        }
        for &(at, sample) in &packed.stamps {
            let (target, _) = plan.series_at(self.slot, sample);
            let stamp = stamp_varint(plan.timestamp_ms(target, round));
            bytes[at as usize..][..STAMP_BYTES].copy_from_slice(&stamp);
        }
        bytes
    }

    /// Number of series that the slot did not have in `before`, its previous template.
    pub fn new_series(&self, before: Option<&Self>) -> u64 {
        let Some(before) = before.filter(|b| b.metric_generation == self.metric_generation) else {
            return u64::from(self.slot.len);
        };
        let both = self.targets.iter().zip(&before.targets);
        both.filter(|(now, then)| now.generation != then.generation)
            .map(|(now, _)| u64::from(now.metrics))
            .sum()
    }

    pub fn memory_bytes(&self) -> usize {
        let content = match &self.content {
            Content::Packed(Packed { bytes, values, stamps }) => {
                bytes.capacity() + size_of_val(values.as_slice()) + size_of_val(stamps.as_slice())
            }
            Content::Prepared { prepared, .. } => prepared.memory_bytes(),
        };
        content + size_of_val(self.targets.as_slice())
    }
}

fn slot_targets(plan: &Plan, slot: SlotRange, round: u32) -> Vec<SlotTarget> {
    let mut targets = Vec::new();
    let mut index = 0;
    while index < slot.len {
        let (target, first_metric) = plan.series_at(slot, index);
        let metrics = (plan.metrics - first_metric).min(slot.len - index);
        targets.push(SlotTarget {
            target,
            generation: plan.generation(target, round),
            first_metric,
            metrics,
        });
        index += metrics;
    }
    targets
}

fn unpack(body: &[u8], message: &mut Vec<u8>) -> Result<()> {
    message.resize(snap::raw::decompress_len(body)?, 0);
    snap::raw::Decoder::new().decompress(body, message)?;
    Ok(())
}

fn stamp_varint(timestamp_ms: i64) -> [u8; STAMP_BYTES] {
    debug_assert!((TIMESTAMP_MS_MIN..TIMESTAMP_MS_END).contains(&timestamp_ms));
    let mut rest = timestamp_ms as u64;
    let mut bytes = [0; STAMP_BYTES];
    for byte in &mut bytes {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    bytes[STAMP_BYTES - 1] &= 0x7f;
    bytes
}

/// Reads the length-delimited fields of a protobuf message one after the other.
pub(super) struct Fields<'a> {
    pub(super) message: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Fields<'a> {
    /// Returns the tag and the content of the next field. Only tags of one byte are expected.
    pub(super) fn next(&mut self) -> Result<Option<(u8, std::ops::Range<usize>)>> {
        let Some(&tag) = self.message.get(self.at) else { return Ok(None) };
        ensure!(tag < 0x80 && tag & 7 == 2, "the tag {tag:#x} does not begin a length-delimited field");
        self.at += 1;
        let mut len = 0usize;
        for shift in (0..28).step_by(7) {
            let byte = *self.message.get(self.at).context("a length is cut off")?;
            self.at += 1;
            len |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let content = self.at..self.at + len;
                ensure!(content.end <= self.message.len(), "a field is cut off");
                self.at = content.end;
                return Ok(Some((tag, content)));
            }
        }
        anyhow::bail!("a length takes more than four bytes")
    }
}

/// Finds the sample of each time series in a message. It has the form `09 value 10 stamp` and is in field 2.
fn find_samples(message: &[u8], series_tag: u8, spots: &mut Vec<SampleSpot>) -> Result<()> {
    const SAMPLE_TAG: u8 = 2 << 3 | 2;
    spots.clear();
    let mut stamp_before: &[u8] = &[];
    let mut fields = Fields { message, at: 0 };
    while let Some((tag, series)) = fields.next()? {
        if tag != series_tag {
            continue;
        }
        let mut inner = Fields { message: &message[..series.end], at: series.start };
        while let Some((tag, sample)) = inner.next()? {
            if tag != SAMPLE_TAG {
                continue;
            }
            let (value_at, stamp) = match &message[sample.clone()] {
                [0x09, _, _, _, _, _, _, _, _, 0x10, stamp @ ..] if stamp.len() == STAMP_BYTES => {
                    (sample.start + 1, stamp)
                }
                other => anyhow::bail!(
                    "BUG: an encoded sample has {} bytes, which is not the layout that a template can patch",
                    other.len()
                ),
            };
            // two timestamps that are equal now always are, because a target is scraped at the same point of every
            // interval
            spots.push(SampleSpot { value_at: value_at as u32, same_stamp: stamp == stamp_before });
            stamp_before = stamp;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
