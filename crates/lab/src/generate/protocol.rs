//! The protocols in which samples can be sent.

use super::template::Version;
use ::protocol::otlp::Media;
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

impl Protocol {
    /// Version of remote write. `None` for other protocols.
    pub fn version(self) -> Option<Version> {
        match self {
            Self::V1 => Some(Version::V1),
            Self::V2 => Some(Version::V2),
            Self::Otlp
            | Self::Graphite
            | Self::GraphitePickle
            | Self::Influx
            | Self::JsonLines
            | Self::Text => None,
        }
    }

    /// The header `Content-Type` of a write request over HTTP.
    pub fn content_type(self) -> &'static str {
        match self.version() {
            Some(version) => version.content_type(),
            None if matches!(self, Self::Otlp) => Media::Protobuf.content_type(),
            None => "text/plain; charset=utf-8",
        }
    }

    pub const fn is_graphite(self) -> bool {
        matches!(self, Self::Graphite | Self::GraphitePickle)
    }

    /// True for lines that are sent over HTTP.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Influx | Self::JsonLines | Self::Text)
    }

    /// Timestamps are multiples of this many milliseconds.
    pub fn resolution_ms(self) -> u32 {
        if self.is_graphite() { GRAPHITE_RESOLUTION_MS } else { 1 }
    }

    /// Number of the protocol in a recording. Only protocols that [`Self::of_number`] returns are recorded.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::Graphite => 3,
            Self::GraphitePickle => 4,
            Self::Influx => 5,
            Self::JsonLines => 6,
            Self::Text => 7,
            Self::Otlp => 8,
        }
    }

    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            3 => Some(Self::Graphite),
            _ => None,
        }
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
        match text {
            "otlp" => Ok(Self::Otlp),
            "graphite" => Ok(Self::Graphite),
            "graphite-pickle" => Ok(Self::GraphitePickle),
            "influx" => Ok(Self::Influx),
            "json-lines" => Ok(Self::JsonLines),
            "text" => Ok(Self::Text),
            version => Ok(version.parse::<Version>()?.into()),
        }
    }
}
