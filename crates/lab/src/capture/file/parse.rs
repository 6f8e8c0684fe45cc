//! Parsers of the protocols that are recorded besides remote write and Graphite's lines, independent of the server's decoders.
//!
//! | | |
//! | --- | --- |
//! | `influx` | Influx' lines |
//! | `text` | Prometheus' text and OpenMetrics |
//! | `json_lines` | VictoriaMetrics' JSON lines |
//! | `csv` | tables |
//! | `pickle` | Graphite's pickled points |
//! | `otlp` | OpenTelemetry's points, from protobuf or (`otlp_json`) JSON; `exponential` makes classic histograms |
//! | `statsd` | lines of statsd |
//!
//! A line or a point that cannot be read is counted, and the others are kept.

pub(crate) mod csv;
mod exponential;
pub(crate) mod influx;
mod json_lines;
mod otlp;
mod otlp_json;
pub(crate) mod pickle;
mod statsd;
pub(crate) mod text;

use super::request::Parsed;
use crate::generate::protocol::Protocol;
use crate::generate::template::Version;
use anyhow::Result;

/// Label that is added to all series of a request.
pub(crate) type Extra = (String, String);

/// Lines are parsed in pieces of about this size, so that a large body takes no more memory than a small one.
const PIECE_BYTES: usize = 256 << 10;

/// What the body of a request contains, once it is decompressed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    RemoteWrite(Version),
    GraphiteLines,
    GraphitePickle,
    Otlp,
    OtlpGrpc,
    OtlpJson,
    Statsd,
    Influx(influx::Options),
    Text(text::Options),
    JsonLines(Vec<Extra>),
    Csv(csv::Options),
}

impl Kind {
    /// The protocol under which the request is recorded.
    pub(crate) const fn protocol(&self) -> Protocol {
        match self {
            Self::RemoteWrite(Version::V1) => Protocol::V1,
            Self::RemoteWrite(Version::V2) => Protocol::V2,
            Self::GraphiteLines => Protocol::Graphite,
            Self::GraphitePickle => Protocol::GraphitePickle,
            Self::Otlp => Protocol::Otlp,
            Self::OtlpGrpc => Protocol::OtlpGrpc,
            Self::OtlpJson => Protocol::OtlpJson,
            Self::Statsd => Protocol::Statsd,
            Self::Influx(_) => Protocol::Influx,
            Self::Text(_) => Protocol::Text,
            Self::Csv(_) => Protocol::Csv,
            Self::JsonLines(_) => Protocol::JsonLines,
        }
    }

    const fn has_lines(&self) -> bool {
        use Kind::{GraphitePickle, Otlp, OtlpGrpc, OtlpJson, RemoteWrite};
        !matches!(self, RemoteWrite(_) | GraphitePickle | Otlp | OtlpGrpc | OtlpJson)
    }

    /// Parts of a body that can be parsed one after the other.
    pub(crate) fn pieces<'a>(&self, mut body: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let has_lines = self.has_lines();
        if matches!(self, Self::Csv(options) if options.has_header) {
            body = body.iter().position(|byte| *byte == b'\n').map_or(&[], |end| &body[end + 1..]);
        }
        std::iter::from_fn(move || {
            if body.is_empty() {
                return None;
            }
            let mut end = body.len();
            if has_lines && end > PIECE_BYTES {
                // the end of the last line that begins in the piece
                let line_end = body[PIECE_BYTES..].iter().position(|byte| *byte == b'\n');
                end = line_end.map_or(end, |at| PIECE_BYTES + at + 1);
            }
            let (piece, rest) = body.split_at(end);
            body = rest;
            Some(piece)
        })
    }
}

impl Parsed {
    /// Parses a piece of a body, and replaces the previous content. After an error there are no series. Samples without a
    /// time get the time of arrival.
    pub(crate) fn read_piece(&mut self, kind: &Kind, piece: &[u8], arrival_ms: i64) -> Result<()> {
        self.begin();
        let read = match kind {
            Kind::RemoteWrite(version) => self.read_message(*version, piece),
            Kind::GraphiteLines => self.read(Protocol::Graphite, piece),
            Kind::GraphitePickle => pickle::parse(piece, self),
            Kind::Otlp | Kind::OtlpGrpc => otlp::parse(piece, self),
            Kind::OtlpJson => otlp_json::parse(piece, self),
            Kind::Statsd => {
                let members = self.members.clone();
                statsd::parse(piece, &members, arrival_ms, self)
            }
            Kind::Influx(options) => influx::parse(piece, options, arrival_ms, self),
            Kind::Text(options) => text::parse(piece, options, arrival_ms, self),
            Kind::JsonLines(extra) => json_lines::parse(piece, extra, self),
            Kind::Csv(options) => csv::parse(piece, options, arrival_ms, self),
        };
        if read.is_err() {
            self.clear();
        }
        read
    }
}

/// The lines of a piece without their ends and surrounding blanks, and without those that are empty.
fn lines(piece: &[u8]) -> impl Iterator<Item = &[u8]> {
    piece.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
