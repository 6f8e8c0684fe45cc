//! The protocols in which samples can be sent.

use super::template::Version;
use serde::{Deserialize, Serialize};

/// Protocol of a target. Graphite's protocols have no answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Protocol {
    #[default]
    #[serde(rename = "1.0")]
    V1,
    #[serde(rename = "2.0")]
    V2,
    /// OpenTelemetry's protocol, over HTTP.
    #[serde(rename = "otlp")]
    Otlp,
    /// OpenTelemetry's protocol, over gRPC.
    #[serde(rename = "otlp-grpc")]
    OtlpGrpc,
    /// Carbon's plaintext protocol.
    #[serde(rename = "graphite")]
    Graphite,
    /// Carbon's pickle protocol.
    #[serde(rename = "graphite-pickle")]
    GraphitePickle,
    /// Influx' line protocol, over HTTP.
    #[serde(rename = "influx")]
    Influx,
    /// VictoriaMetrics' JSON lines, over HTTP.
    #[serde(rename = "json-lines")]
    JsonLines,
    /// Prometheus' text format, over HTTP.
    #[serde(rename = "text")]
    Text,
}

/// Resolution of Graphite's timestamps.
pub const GRAPHITE_RESOLUTION_MS: u32 = 1_000;

/// What is known of a protocol without its encoding.
struct Facts {
    protocol: Protocol,
    name: &'static str,
    about: &'static str,
    /// The header `Content-Type` of a write request over HTTP.
    content_type: &'static str,
    /// The usual address of a target on this machine.
    address: &'static str,
    /// Number in a recording.
    number: u8,
}

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

const ALL: [Facts; 9] = [
    Facts {
        protocol: Protocol::V1,
        name: "1.0",
        about: "remote write 1.0",
        content_type: "application/x-protobuf",
        address: "http://127.0.0.1:9009/api/v1/write",
        number: 1,
    },
    Facts {
        protocol: Protocol::V2,
        name: "2.0",
        about: "remote write 2.0",
        content_type: "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        address: "http://127.0.0.1:9009/api/v1/write",
        number: 2,
    },
    Facts {
        protocol: Protocol::Otlp,
        name: "otlp",
        about: "OpenTelemetry's protocol over HTTP",
        content_type: "application/x-protobuf",
        address: "http://127.0.0.1:9009/v1/metrics",
        number: 8,
    },
    Facts {
        protocol: Protocol::OtlpGrpc,
        name: "otlp-grpc",
        about: "OpenTelemetry's protocol over gRPC",
        content_type: "application/grpc",
        address: "http://127.0.0.1:4317",
        number: 9,
    },
    Facts {
        protocol: Protocol::Graphite,
        name: "graphite",
        about: "Graphite's lines",
        content_type: PLAIN_TEXT,
        address: "tcp://127.0.0.1:2003",
        number: 3,
    },
    Facts {
        protocol: Protocol::GraphitePickle,
        name: "graphite-pickle",
        about: "Graphite's pickled points",
        content_type: PLAIN_TEXT,
        address: "tcp://127.0.0.1:2004",
        number: 4,
    },
    Facts {
        protocol: Protocol::Influx,
        name: "influx",
        about: "Influx' line protocol over HTTP",
        content_type: PLAIN_TEXT,
        address: "http://127.0.0.1:9009/write",
        number: 5,
    },
    Facts {
        protocol: Protocol::JsonLines,
        name: "json-lines",
        about: "VictoriaMetrics' JSON lines over HTTP",
        content_type: PLAIN_TEXT,
        address: "http://127.0.0.1:9009/api/v1/import",
        number: 6,
    },
    Facts {
        protocol: Protocol::Text,
        name: "text",
        about: "Prometheus' text over HTTP",
        content_type: PLAIN_TEXT,
        address: "http://127.0.0.1:9009/api/v1/import/prometheus",
        number: 7,
    },
];

impl Protocol {
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|facts| facts.protocol)
    }

    fn facts(self) -> &'static Facts {
        ALL.iter().find(|facts| facts.protocol == self).expect("BUG: a protocol is not in the list of all")
    }

    pub fn name(self) -> &'static str {
        self.facts().name
    }

    pub fn about(self) -> &'static str {
        self.facts().about
    }

    /// The usual address of a target on this machine.
    pub fn usual_address(self) -> &'static str {
        self.facts().address
    }

    /// The header `Content-Type` of a write request over HTTP.
    pub fn content_type(self) -> &'static str {
        self.facts().content_type
    }

    /// Version of remote write. `None` for other protocols.
    pub fn version(self) -> Option<Version> {
        match self {
            Self::V1 => Some(Version::V1),
            Self::V2 => Some(Version::V2),
            _ => None,
        }
    }

    pub const fn is_graphite(self) -> bool {
        matches!(self, Self::Graphite | Self::GraphitePickle)
    }

    pub const fn is_otlp(self) -> bool {
        matches!(self, Self::Otlp | Self::OtlpGrpc)
    }

    /// Timestamps are multiples of this many milliseconds.
    pub fn resolution_ms(self) -> u32 {
        if self.is_graphite() { GRAPHITE_RESOLUTION_MS } else { 1 }
    }

    /// Number of the protocol in a recording.
    pub fn number(self) -> u8 {
        self.facts().number
    }

    pub fn of_number(number: u8) -> Option<Self> {
        ALL.iter().find(|facts| facts.number == number).map(|facts| facts.protocol)
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

impl std::str::FromStr for Protocol {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match ALL.iter().find(|facts| facts.name == text) {
            Some(facts) => Ok(facts.protocol),
            None => Ok(text.parse::<Version>()?.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_a_name_and_a_number_of_its_own() {
        for protocol in Protocol::all() {
            assert_eq!(protocol.name().parse::<Protocol>().unwrap(), protocol);
            assert_eq!(Protocol::of_number(protocol.number()), Some(protocol));
            // scenarios have the same names
            assert_eq!(serde_json::to_value(protocol).unwrap(), protocol.name());
            if let Some(version) = protocol.version() {
                assert_eq!(version.content_type(), protocol.content_type());
            }
        }
    }
}
