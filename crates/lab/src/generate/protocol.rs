//! The protocols in which samples can be sent.

use super::driver::{DRIVERS, Driver, Prepared, Transport};
use super::plan::Plan;
use super::template::{SlotTarget, Version};
use crate::capture::replay::{Batch, Encoder};
use crate::scenario::ReadApi;
use serde::{Deserialize, Serialize};

/// Protocol of a target. What is known of it is in its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Protocol {
    #[default]
    V1,
    V2,
    Otlp,
    OtlpGrpc,
    OtlpJson,
    Graphite,
    GraphitePickle,
    Influx,
    JsonLines,
    Text,
    Csv,
    Statsd,
}

/// Resolution of Graphite's timestamps.
pub const GRAPHITE_RESOLUTION_MS: u32 = 1_000;

impl Protocol {
    pub fn all() -> impl Iterator<Item = Self> {
        DRIVERS.iter().map(|driver| driver.protocol)
    }

    fn driver(self) -> &'static Driver {
        let driver = DRIVERS.iter().find(|driver| driver.protocol == self);
        driver.expect("BUG: a protocol is not in the list of all drivers")
    }

    pub fn name(self) -> &'static str {
        self.driver().name
    }

    pub fn about(self) -> &'static str {
        self.driver().about
    }

    /// The usual address of a target on this machine.
    pub fn usual_address(self) -> &'static str {
        self.driver().address
    }

    /// The path of this address. `None` if it has none.
    pub(crate) fn usual_path(self) -> Option<&'static str> {
        let (_, host) = self.usual_address().split_once("://")?;
        host.find('/').map(|at| &host[at..])
    }

    /// The header `Content-Type` of a write request over HTTP.
    pub fn content_type(self) -> &'static str {
        self.driver().content_type
    }

    pub(crate) fn transport(self) -> Transport {
        self.driver().transport
    }

    /// True if a socket takes the samples, and no answers come back.
    pub fn has_no_answers(self) -> bool {
        matches!(self.transport(), Transport::Lines | Transport::Stream | Transport::Flushed)
    }

    /// True if the target stores values at times of its own, so that only queries tell what it owes.
    pub fn is_flushed(self) -> bool {
        self.transport() == Transport::Flushed
    }

    /// Version of remote write. `None` for other protocols.
    pub fn version(self) -> Option<Version> {
        match self {
            Self::V1 => Some(Version::V1),
            Self::V2 => Some(Version::V2),
            _ => None,
        }
    }

    /// Timestamps are multiples of this many milliseconds.
    pub fn resolution_ms(self) -> u32 {
        self.driver().resolution_ms
    }

    /// The usual API to read from.
    pub(crate) fn read_api(self) -> ReadApi {
        self.driver().read_api
    }

    /// Why series without labels, whose names are paths, cannot be sent. `None` if they can.
    pub(crate) fn no_timers(self) -> Option<&'static str> {
        self.driver().no_timers
    }

    /// Prepares the requests of a slot. `None` for remote write.
    pub(super) fn prepare(
        self,
        plan: &Plan,
        targets: &[SlotTarget],
        metric_generation: u64,
    ) -> Option<Box<dyn Prepared>> {
        self.driver().prepare.map(|prepare| prepare(plan, targets, metric_generation))
    }

    pub(crate) fn can_replay(self) -> bool {
        self.driver().encode.is_some()
    }

    /// Encodes a batch of a replay.
    pub(crate) fn encode(self, encoder: &mut Encoder, batch: &Batch) -> Vec<u8> {
        let encode = self.driver().encode.expect("BUG: this protocol cannot be replayed");
        encode(encoder, batch)
    }

    /// Number of the protocol in a recording.
    pub fn number(self) -> u8 {
        self.driver().number
    }

    pub fn of_number(number: u8) -> Option<Self> {
        DRIVERS.iter().find(|driver| driver.number == number).map(|driver| driver.protocol)
    }

    fn of_name(name: &str) -> Option<Self> {
        DRIVERS.iter().find(|driver| driver.name == name).map(|driver| driver.protocol)
    }
}

impl From<Version> for Protocol {
    fn from(version: Version) -> Self {
        match version {
            Version::V1 => Self::V1,
            Version::V2 => Self::V2,
        }
    }
}

impl From<Protocol> for &'static str {
    fn from(protocol: Protocol) -> Self {
        protocol.name()
    }
}

impl TryFrom<String> for Protocol {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // as serde says it of an enumeration
        let names = || Self::all().map(|protocol| format!("`{}`", protocol.name())).collect::<Vec<_>>();
        Self::of_name(&name)
            .ok_or_else(|| format!("unknown variant `{name}`, expected one of {}", names().join(", ")))
    }
}

impl std::str::FromStr for Protocol {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match Self::of_name(text) {
            Some(protocol) => Ok(protocol),
            None => Ok(text.parse::<Version>()?.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_protocol_has_a_name_and_a_number_of_its_own() {
        for protocol in Protocol::all() {
            assert_eq!(protocol.name().parse::<Protocol>().unwrap(), protocol);
            assert_eq!(Protocol::of_number(protocol.number()), Some(protocol));
            // scenarios have the same names
            assert_eq!(serde_json::to_value(protocol).unwrap(), protocol.name());
            assert_eq!(serde_json::from_value::<Protocol>(protocol.name().into()).unwrap(), protocol);
            if let Some(version) = protocol.version() {
                assert_eq!(version.content_type(), protocol.content_type());
            }
        }
        let numbers: HashSet<u8> = Protocol::all().map(Protocol::number).collect();
        assert_eq!(numbers.len(), Protocol::all().count());
        let said = serde_json::from_value::<Protocol>("3.0".into()).unwrap_err().to_string();
        assert!(said.contains("`3.0`, expected one of `1.0`, `2.0`, `otlp`,"), "{said}");
    }
}
