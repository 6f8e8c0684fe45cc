//! Parser of remote-write bodies and of Graphite's lines, independent of the server's decoder.
//!
//! ```text
//!   1.0  WriteRequest   1 TimeSeries*                    TimeSeries  1 Label*   2 Sample*  4 Histogram*
//!   2.0  Request        4 symbols*    5 TimeSeries*      TimeSeries  1 refs     2 Sample*  3 Histogram*
//!   both Sample         1 value       2 timestamp
//!        Histogram      15 timestamp  17 start           (everything else is kept as it is)
//! ```
//!
//! Exemplars, metadata and start times are skipped.

use super::lines;
use crate::fields::{Field, Fields};
use crate::generate::protocol::Protocol;
use crate::generate::template::Version;
use anyhow::{Context, Result, bail, ensure};
use model::caps;
use model::labels::METRIC_NAME;
use prost::encoding::decode_varint;
use std::hash::RandomState;
use std::ops::Range;

/// Series and samples of a remote-write body. Byte ranges refer to the decompressed body.
#[derive(Debug, Default)]
pub struct Parsed {
    pub(super) body: Vec<u8>,
    symbols: Vec<Range<usize>>,
    pub(super) labels: Vec<[Range<usize>; 2]>,
    pub(super) samples: Vec<(i64, u64)>,
    histograms: Vec<(i64, Range<usize>)>,
    /// Protobuf of all native histograms without their timestamps, one after the other.
    histogram_bytes: Vec<u8>,
    pub(super) series: Vec<SeriesParts>,
    lines_refused: u64,
    /// The key of the numbers that replace the members of statsd's sets.
    pub(super) members: RandomState,
}

#[derive(Debug, Default)]
pub(super) struct SeriesParts {
    pub(super) labels: Range<usize>,
    pub(super) samples: Range<usize>,
    pub(super) histograms: Range<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct ParsedSeries<'a> {
    parsed: &'a Parsed,
    parts: &'a SeriesParts,
}

impl<'a> ParsedSeries<'a> {
    /// Labels as the sender wrote them: they may be unsorted, and may not be UTF-8.
    pub fn labels(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let labels = &self.parsed.labels[self.parts.labels.clone()];
        labels.iter().map(|[n, v]| (&self.parsed.body[n.clone()], &self.parsed.body[v.clone()]))
    }

    /// Timestamps in ms since 1970, and the bits of the values.
    pub fn samples(self) -> &'a [(i64, u64)] {
        &self.parsed.samples[self.parts.samples.clone()]
    }

    /// Native histograms, each as its timestamp and its protobuf message without the timestamp.
    pub fn histograms(self) -> impl Iterator<Item = (i64, &'a [u8])> {
        let histograms = &self.parsed.histograms[self.parts.histograms.clone()];
        histograms.iter().map(|(t, bytes)| (*t, &self.parsed.histogram_bytes[bytes.clone()]))
    }
}

impl Parsed {
    /// Parses a snappy-compressed body or lines, and replaces the previous content. After an error there are no series.
    pub fn read(&mut self, message: impl Into<Protocol>, content: &[u8]) -> Result<()> {
        let message = message.into();
        self.clear();
        match (message.version(), message) {
            (Some(version), _) => self.read_compressed(version, content),
            (None, Protocol::Graphite) => self.read_lines(content),
            (None, _) => bail!("requests of this protocol cannot be recorded"),
        }
    }

    /// Removes everything but the text of labels.
    pub(super) fn clear(&mut self) {
        self.series.clear();
        self.symbols.clear();
        self.labels.clear();
        self.samples.clear();
        self.histograms.clear();
        self.histogram_bytes.clear();
        self.lines_refused = 0;
    }

    /// Number of lines, fields or points that were left out.
    pub fn lines_refused(&self) -> u64 {
        self.lines_refused
    }

    pub(super) fn refuse_line(&mut self) {
        self.lines_refused += 1;
    }

    /// Each line becomes a series with one sample.
    fn read_lines(&mut self, text: &[u8]) -> Result<()> {
        ensure!(
            text.len() <= caps::BODY_BYTES_MAX,
            "there are {} bytes of lines, the limit is {}",
            text.len(),
            caps::BODY_BYTES_MAX
        );
        self.body.clear();
        self.body.extend_from_slice(text);
        self.body.extend_from_slice(METRIC_NAME.as_bytes());
        let name = text.len()..self.body.len();
        for range in lines::split(text, 0..text.len(), b'\n') {
            if text[range.clone()].trim_ascii().is_empty() {
                continue;
            }
            let Some(line) = lines::parse(text, range) else {
                self.lines_refused += 1;
                continue;
            };
            let labels = self.labels.len();
            self.labels.push([name.clone(), line.path]);
            self.labels.extend(line.tags);
            let samples = self.samples.len();
            self.samples.push((line.timestamp_ms, line.value.to_bits()));
            self.series.push(SeriesParts {
                labels: labels..self.labels.len(),
                samples: samples..samples + 1,
                histograms: 0..0,
            });
        }
        Ok(())
    }

    fn read_compressed(&mut self, message: Version, compressed: &[u8]) -> Result<()> {
        let len = snap::raw::decompress_len(compressed).context("cannot read the length of the body")?;
        ensure!(
            len <= caps::BODY_BYTES_MAX,
            "the body decompresses to {len} bytes, the limit is {}",
            caps::BODY_BYTES_MAX
        );
        self.body.resize(len, 0);
        let written = snap::raw::Decoder::new().decompress(compressed, &mut self.body);
        self.body.truncate(written.context("cannot decompress the body")?);
        self.walk(message)
    }

    /// Parses a message of remote write that is not compressed.
    pub(super) fn read_message(&mut self, message: Version, content: &[u8]) -> Result<()> {
        self.body.clear();
        self.body.extend_from_slice(content);
        self.walk(message)
    }

    fn walk(&mut self, message: Version) -> Result<()> {
        let body = std::mem::take(&mut self.body);
        let walked = self.request(message, &body);
        self.body = body;
        if walked.is_err() {
            self.series.clear();
        }
        walked
    }

    pub fn series(&self) -> impl Iterator<Item = ParsedSeries<'_>> {
        self.series.iter().map(|parts| ParsedSeries { parsed: self, parts })
    }

    fn request(&mut self, message: Version, body: &[u8]) -> Result<()> {
        let fields = || Fields { rest: body };
        if message == Version::V2 {
            let mut request = fields();
            while let Some((number, field)) = request.next()? {
                if let (4, Field::Bytes(symbol)) = (number, field) {
                    ensure!(
                        self.symbols.len() < caps::REQUEST_SYMBOLS_MAX,
                        "the request has more than {} symbols",
                        caps::REQUEST_SYMBOLS_MAX
                    );
                    self.symbols.push(range(body, symbol));
                }
            }
        }
        let series_field = if message == Version::V1 { 1 } else { 5 };
        let mut request = fields();
        while let Some((number, field)) = request.next()? {
            if let (n, Field::Bytes(series)) = (number, field)
                && n == series_field
            {
                ensure!(
                    self.series.len() < caps::REQUEST_SERIES_MAX,
                    "the request has more than {} series",
                    caps::REQUEST_SERIES_MAX
                );
                self.one_series(message, body, series)?;
            }
        }
        Ok(())
    }

    fn one_series(&mut self, message: Version, body: &[u8], series: &[u8]) -> Result<()> {
        let (labels, samples, histograms) = (self.labels.len(), self.samples.len(), self.histograms.len());
        let histogram_field = if message == Version::V1 { 4 } else { 3 };
        let mut fields = Fields { rest: series };
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(label)) if message == Version::V1 => self.label(body, label)?,
                (1, Field::Bytes(refs)) => self.label_refs(refs)?,
                (1, Field::Number(_)) => bail!("label references must be a packed field"),
                (2, Field::Bytes(sample)) => {
                    ensure!(
                        self.samples.len() < caps::REQUEST_SAMPLES_MAX,
                        "the request has more than {} samples",
                        caps::REQUEST_SAMPLES_MAX
                    );
                    self.samples.push(sample_at(sample)?);
                }
                (n, Field::Bytes(histogram)) if n == histogram_field => self.histogram(histogram)?,
                _ => {}
            }
            ensure!(
                self.labels.len() - labels <= caps::SERIES_LABELS_MAX,
                "a series has more than {} labels",
                caps::SERIES_LABELS_MAX
            );
        }
        self.series.push(SeriesParts {
            labels: labels..self.labels.len(),
            samples: samples..self.samples.len(),
            histograms: histograms..self.histograms.len(),
        });
        Ok(())
    }

    fn label(&mut self, body: &[u8], label: &[u8]) -> Result<()> {
        let mut fields = Fields { rest: label };
        let (mut name, mut value) = (0..0, 0..0);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(bytes)) => name = range(body, bytes),
                (2, Field::Bytes(bytes)) => value = range(body, bytes),
                _ => {}
            }
        }
        self.labels.push([name, value]);
        Ok(())
    }

    fn label_refs(&mut self, mut refs: &[u8]) -> Result<()> {
        let symbol = |refs: &mut &[u8]| -> Result<Range<usize>> {
            let reference = usize::try_from(decode_varint(refs)?)?;
            self.symbols.get(reference).cloned().context("a label refers to a symbol that is not defined")
        };
        while !refs.is_empty() {
            let label = [symbol(&mut refs)?, symbol(&mut refs)?];
            self.labels.push(label);
            ensure!(
                self.labels.len() <= caps::REQUEST_SYMBOLS_MAX,
                "the request has more than {} labels",
                caps::REQUEST_SYMBOLS_MAX
            );
        }
        Ok(())
    }

    /// Copies all fields of a histogram except its timestamps, which are stored separately.
    fn histogram(&mut self, histogram: &[u8]) -> Result<()> {
        const TIMESTAMP: u32 = 15;
        const START: u32 = 17;
        let mut fields = Fields { rest: histogram };
        let (mut time, start) = (0, self.histogram_bytes.len());
        loop {
            let before = fields.rest;
            let Some((number, field)) = fields.next()? else { break };
            match (number, field) {
                (TIMESTAMP, Field::Number(n)) => time = n as i64,
                (START, _) => {}
                _ => self.histogram_bytes.extend_from_slice(&before[..before.len() - fields.rest.len()]),
            }
        }
        ensure!(
            self.histograms.len() < caps::REQUEST_SAMPLES_MAX,
            "the request has more than {} histograms",
            caps::REQUEST_SAMPLES_MAX
        );
        self.histograms.push((time, start..self.histogram_bytes.len()));
        Ok(())
    }
}

fn sample_at(sample: &[u8]) -> Result<(i64, u64)> {
    let mut fields = Fields { rest: sample };
    let (mut time, mut bits) = (0, 0);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Fixed64(n)) => bits = n,
            (2, Field::Number(n)) => time = n as i64,
            _ => {}
        }
    }
    Ok((time, bits))
}

fn range(body: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - body.as_ptr().addr();
    start..start + part.len()
}
