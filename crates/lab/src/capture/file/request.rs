//! Parser of remote-write bodies, independent of the decoder that the server uses.
//!
//! ```text
//!   1.0  WriteRequest   1 TimeSeries*                    TimeSeries  1 Label*   2 Sample*  4 Histogram*
//!   2.0  Request        4 symbols*    5 TimeSeries*      TimeSeries  1 refs     2 Sample*  3 Histogram*
//!   both Sample         1 value       2 timestamp
//!        Histogram      15 timestamp  17 start           (everything else is kept as it is)
//! ```
//!
//! Exemplars, metadata and start times are passed over.

use crate::generate::template::Version;
use anyhow::{Context, Result, bail, ensure};
use model::caps;
use std::ops::Range;

/// A body, taken apart. Ranges of bytes are those of the decompressed body. Its memory is used again.
#[derive(Debug, Default)]
pub struct Parsed {
    body: Vec<u8>,
    symbols: Vec<Range<usize>>,
    labels: Vec<[Range<usize>; 2]>,
    samples: Vec<(i64, u64)>,
    histograms: Vec<(i64, Range<usize>)>,
    /// Bytes of histograms without their times, behind each other.
    histogram_bytes: Vec<u8>,
    series: Vec<SeriesParts>,
}

#[derive(Debug, Default)]
struct SeriesParts {
    labels: Range<usize>,
    samples: Range<usize>,
    histograms: Range<usize>,
}

/// One series of a request.
#[derive(Debug, Clone, Copy)]
pub struct ParsedSeries<'a> {
    parsed: &'a Parsed,
    parts: &'a SeriesParts,
}

impl<'a> ParsedSeries<'a> {
    /// Labels as they stand there: not necessarily sorted, nor UTF-8.
    pub fn labels(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let labels = &self.parsed.labels[self.parts.labels.clone()];
        labels.iter().map(|[n, v]| (&self.parsed.body[n.clone()], &self.parsed.body[v.clone()]))
    }

    /// Times in milliseconds since 1970, and the bits of the values.
    pub fn samples(self) -> &'a [(i64, u64)] {
        &self.parsed.samples[self.parts.samples.clone()]
    }

    /// Native histograms: time, and the message without it.
    pub fn histograms(self) -> impl Iterator<Item = (i64, &'a [u8])> {
        let histograms = &self.parsed.histograms[self.parts.histograms.clone()];
        histograms.iter().map(|(t, bytes)| (*t, &self.parsed.histogram_bytes[bytes.clone()]))
    }
}

impl Parsed {
    /// Takes a snappy-compressed body apart. After an error there are no series.
    pub fn read(&mut self, message: Version, compressed: &[u8]) -> Result<()> {
        self.series.clear();
        self.symbols.clear();
        self.labels.clear();
        self.samples.clear();
        self.histograms.clear();
        self.histogram_bytes.clear();
        let len = snap::raw::decompress_len(compressed).context("read the body's length")?;
        ensure!(len <= caps::BODY_BYTES_MAX, "a body of {len} bytes");
        self.body.resize(len, 0);
        let written = snap::raw::Decoder::new().decompress(compressed, &mut self.body);
        self.body.truncate(written.context("decompress the body")?);
        let body = std::mem::take(&mut self.body);
        let walked = self.request(message, &body);
        self.body = body;
        if walked.is_err() {
            self.series.clear();
        }
        walked
    }

    /// The series, in the order of the request.
    pub fn series(&self) -> impl Iterator<Item = ParsedSeries<'_>> {
        self.series.iter().map(|parts| ParsedSeries { parsed: self, parts })
    }

    fn request(&mut self, message: Version, body: &[u8]) -> Result<()> {
        let fields = || Fields { body, at: 0, end: body.len() };
        if message == Version::V2 {
            let mut request = fields();
            while let Some((number, field)) = request.next()? {
                if let (4, Field::Bytes(symbol)) = (number, field) {
                    ensure!(self.symbols.len() < caps::REQUEST_SYMBOLS_MAX, "too many symbols");
                    self.symbols.push(symbol);
                }
            }
        }
        let series_field = if message == Version::V1 { 1 } else { 5 };
        let mut request = fields();
        while let Some((number, field)) = request.next()? {
            if let (n, Field::Bytes(series)) = (number, field)
                && n == series_field
            {
                ensure!(self.series.len() < caps::REQUEST_SERIES_MAX, "too many series");
                self.one_series(message, body, series)?;
            }
        }
        Ok(())
    }

    fn one_series(&mut self, message: Version, body: &[u8], range: Range<usize>) -> Result<()> {
        let (labels, samples, histograms) = (self.labels.len(), self.samples.len(), self.histograms.len());
        let histogram_field = if message == Version::V1 { 4 } else { 3 };
        let mut fields = Fields { body, at: range.start, end: range.end };
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(label)) if message == Version::V1 => self.label(body, label)?,
                (1, Field::Bytes(refs)) => self.label_refs(body, refs)?,
                (1, Field::Number(_)) => bail!("label references that are not packed"),
                (2, Field::Bytes(sample)) => {
                    ensure!(self.samples.len() < caps::REQUEST_SAMPLES_MAX, "too many samples");
                    self.samples.push(sample_at(body, sample)?);
                }
                (n, Field::Bytes(histogram)) if n == histogram_field => self.histogram(body, histogram)?,
                _ => {}
            }
            ensure!(self.labels.len() - labels <= caps::SERIES_LABELS_MAX, "too many labels");
        }
        self.series.push(SeriesParts {
            labels: labels..self.labels.len(),
            samples: samples..self.samples.len(),
            histograms: histograms..self.histograms.len(),
        });
        Ok(())
    }

    fn label(&mut self, body: &[u8], range: Range<usize>) -> Result<()> {
        let mut fields = Fields { body, at: range.start, end: range.end };
        let (mut name, mut value) = (0..0, 0..0);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(bytes)) => name = bytes,
                (2, Field::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        self.labels.push([name, value]);
        Ok(())
    }

    fn label_refs(&mut self, body: &[u8], range: Range<usize>) -> Result<()> {
        let mut refs = Fields { body, at: range.start, end: range.end };
        let symbol = |refs: &mut Fields<'_>| -> Result<Range<usize>> {
            let reference = usize::try_from(refs.varint()?)?;
            self.symbols.get(reference).cloned().context("a reference to no symbol")
        };
        while refs.at < refs.end {
            let label = [symbol(&mut refs)?, symbol(&mut refs)?];
            self.labels.push(label);
            ensure!(self.labels.len() <= caps::REQUEST_SYMBOLS_MAX, "too many labels");
        }
        Ok(())
    }

    /// Keeps all fields of a histogram but its times.
    fn histogram(&mut self, body: &[u8], range: Range<usize>) -> Result<()> {
        const TIMESTAMP: u64 = 15;
        const START: u64 = 17;
        let mut fields = Fields { body, at: range.start, end: range.end };
        let (mut time, start) = (0, self.histogram_bytes.len());
        loop {
            let before = fields.at;
            let Some((number, field)) = fields.next()? else { break };
            match (number, field) {
                (TIMESTAMP, Field::Number(n)) => time = n as i64,
                (START, _) => {}
                _ => self.histogram_bytes.extend_from_slice(&body[before..fields.at]),
            }
        }
        ensure!(self.histograms.len() < caps::REQUEST_SAMPLES_MAX, "too many histograms");
        self.histograms.push((time, start..self.histogram_bytes.len()));
        Ok(())
    }
}

fn sample_at(body: &[u8], range: Range<usize>) -> Result<(i64, u64)> {
    let mut fields = Fields { body, at: range.start, end: range.end };
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

/// Walks the fields of a protobuf message.
struct Fields<'a> {
    body: &'a [u8],
    at: usize,
    end: usize,
}

/// A field's content.
enum Field {
    Number(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(Range<usize>),
}

impl Fields<'_> {
    fn next(&mut self) -> Result<Option<(u64, Field)>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => {
                let bytes = self.skip(8)?;
                let bytes = self.body[bytes].try_into().expect("BUG: eight bytes");
                Field::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let len = usize::try_from(self.varint()?)?;
                Field::Bytes(self.skip(len)?)
            }
            5 => {
                self.skip(4)?;
                Field::Fixed32
            }
            other => bail!("wire type {other} at byte {}", self.at),
        };
        Ok(Some((tag >> 3, field)))
    }

    fn skip(&mut self, len: usize) -> Result<Range<usize>> {
        let start = self.at;
        let end =
            start.checked_add(len).filter(|end| *end <= self.end).context("a field beyond its message")?;
        self.at = end;
        Ok(start..end)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut rest = self.body.get(self.at..self.end).context("a number beyond its message")?;
        let before = rest.len();
        let n = super::varint::take(&mut rest).context("a broken number")?;
        self.at += before - rest.len();
        Ok(n)
    }
}
