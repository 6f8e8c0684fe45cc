use super::conceal::Concealer;
use super::request::{Parsed, ParsedSeries};
use super::{
    BLOCK_BYTES, BLOCK_BYTES_MAX, DICTIONARY_SERIES_MAX, HEADER_BYTES, HISTOGRAM_BYTES_MAX,
    ITEM_HISTOGRAMS_MAX, ITEM_SAMPLES_MAX, MAGIC, STREAMS_MAX, TENANT_BYTES_MAX, VERSION, flag, kind, value,
    varint,
};
use crate::generate::protocol::Protocol;
use anyhow::{Context, Result};
use model::{LabelsBuilder, SeriesKey};
use std::collections::HashMap;
use std::io::{Seek, SeekFrom, Write};

/// Writes a recording.
///
/// A write error loses one block. [`Writer::repair`] continues after the last complete block.
#[derive(Debug)]
pub struct Writer<F> {
    file: F,
    concealer: Concealer,
    /// Offset in the file at which the last complete block ends.
    end: u64,
    block: Vec<u8>,
    compressed: Vec<u8>,
    dictionary: Dictionary,
    last_arrival_us: i64,
    builder: LabelsBuilder,
    texts: (String, String),
    started_ms: i64,
    series_max: usize,
}

#[derive(Debug, Default)]
struct Dictionary {
    streams: HashMap<(Protocol, String), u64>,
    series: HashMap<(u64, SeriesKey), u32>,
    last: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    pub samples: u64,
    pub series_new: u64,
    /// Series that were not recorded, because their labels were invalid.
    pub series_refused: u64,
    /// Histograms that were not recorded, because they were larger than [`HISTOGRAM_BYTES_MAX`].
    pub histograms_refused: u64,
    /// Lines, fields and points that were not recorded, because they are not valid, or no numbers, or exponential histograms.
    pub lines_refused: u64,
}

impl Appended {
    pub(crate) fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.series_new += other.series_new;
        self.series_refused += other.series_refused;
        self.histograms_refused += other.histograms_refused;
        self.lines_refused += other.lines_refused;
    }
}

impl<F: Write + Seek> Writer<F> {
    /// Writes the header of a new recording. Arrival times are relative to `started_ms`.
    pub fn begin(mut file: F, started_ms: i64, concealer: Concealer) -> Result<Self> {
        let what = concealer.what();
        let flags = [(what.values, flag::VALUES), (what.metrics, flag::METRICS), (what.labels, flag::LABELS)];
        let flags = flags.iter().filter(|(on, _)| *on).fold(0, |sum, (_, bit)| sum | bit);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&flags.to_le_bytes());
        header.extend_from_slice(&started_ms.to_le_bytes());
        header.resize(HEADER_BYTES - 4, 0);
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        file.write_all(&header).context("cannot write the recording's header")?;
        let mut writer = Self {
            file,
            concealer,
            end: HEADER_BYTES as u64,
            block: Vec::new(),
            compressed: Vec::new(),
            dictionary: Dictionary::default(),
            last_arrival_us: 0,
            builder: LabelsBuilder::new(),
            texts: Default::default(),
            started_ms,
            series_max: DICTIONARY_SERIES_MAX,
        };
        writer.forget();
        Ok(writer)
    }

    #[cfg(test)]
    pub(super) fn into_file(self) -> F {
        self.file
    }

    #[cfg(test)]
    pub(super) fn file_mut(&mut self) -> &mut F {
        &mut self.file
    }

    #[cfg(test)]
    pub(super) fn with_series_max(mut self, series_max: usize) -> Self {
        self.series_max = series_max;
        self
    }

    pub fn append(
        &mut self,
        arrival_us: i64,
        message: impl Into<Protocol>,
        tenant: &str,
        request: &Parsed,
    ) -> Result<Appended> {
        let message = message.into();
        let mut done = Appended { lines_refused: request.lines_refused(), ..Appended::default() };
        let mut part = Part::default();
        let mut stream = None;
        for series in request.series() {
            // a full dictionary may be emptied in the middle of a request, and series are then numbered from 0 again
            if self.dictionary.last.len() >= self.series_max || self.dictionary.streams.len() >= STREAMS_MAX {
                self.put_part(arrival_us, stream.take(), &mut part);
                self.forget();
            }
            let number = match stream {
                Some(number) => number,
                None => *stream.insert(self.stream(message, tenant)),
            };
            let Some((id, new)) = self.series_number(number, series) else {
                done.series_refused += 1;
                continue;
            };
            done.series_new += u64::from(new);
            for piece in pieces(series, &mut done) {
                self.put_item(arrival_us, id, piece, &mut part);
                if self.block.len() + part.bytes.len() >= BLOCK_BYTES {
                    self.put_part(arrival_us, stream, &mut part);
                    self.flush()?;
                }
            }
        }
        self.put_part(arrival_us, stream, &mut part);
        Ok(done)
    }

    pub fn gap(&mut self, requests: u64, bytes: u64) {
        varint::put(&mut self.block, kind::GAP);
        varint::put(&mut self.block, requests);
        varint::put(&mut self.block, bytes);
    }

    pub fn flush(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        assert!(self.block.len() <= BLOCK_BYTES_MAX, "BUG: a block has {} bytes", self.block.len());
        let payload = lz4_flex::block::compress(&self.block);
        let lengths = [payload.len() as u32, self.block.len() as u32];
        self.compressed.clear();
        lengths.iter().for_each(|len| self.compressed.extend_from_slice(&len.to_le_bytes()));
        let crc = crc32c::crc32c_append(crc32c::crc32c(&self.compressed), &payload);
        self.compressed.extend_from_slice(&crc.to_le_bytes());
        self.compressed.extend_from_slice(&payload);
        self.block.clear();
        self.file.write_all(&self.compressed).context("cannot write the recording")?;
        self.end += self.compressed.len() as u64;
        Ok(())
    }

    /// Continues after a write error: cuts off everything after the last complete block, and begins a new dictionary.
    pub fn repair(&mut self, set_len: impl FnOnce(&mut F, u64) -> std::io::Result<()>) -> Result<()> {
        self.block.clear();
        set_len(&mut self.file, self.end).context("cannot truncate the recording")?;
        self.file.seek(SeekFrom::Start(self.end)).context("cannot seek to the end of the recording")?;
        self.forget();
        Ok(())
    }

    pub fn sync(&mut self, sync: impl FnOnce(&mut F) -> std::io::Result<()>) -> Result<()> {
        sync(&mut self.file).context("cannot sync the recording")
    }

    pub fn bytes(&self) -> u64 {
        self.end
    }

    fn forget(&mut self) {
        self.dictionary = Dictionary::default();
        self.last_arrival_us = 0;
        varint::put(&mut self.block, kind::FORGET);
    }

    fn stream(&mut self, message: Protocol, tenant: &str) -> u64 {
        let mut tenant = self.concealer.tenant(tenant);
        let cut = (0..=TENANT_BYTES_MAX.min(tenant.len())).rev().find(|at| tenant.is_char_boundary(*at));
        tenant.truncate(cut.unwrap_or(0));
        let next = self.dictionary.streams.len() as u64;
        match self.dictionary.streams.entry((message, tenant)) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                varint::put(&mut self.block, kind::STREAM);
                self.block.push(message.number());
                varint::put_bytes(&mut self.block, new.key().1.as_bytes());
                *new.insert(next)
            }
        }
    }

    /// Returns the number of a series, and true if the series is new. `None` if its labels are invalid.
    fn series_number(&mut self, stream: u64, series: ParsedSeries<'_>) -> Option<(u32, bool)> {
        self.builder.clear();
        for (name, value) in series.labels() {
            let (name, value) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?);
            let (out_name, out_value) = (&mut self.texts.0, &mut self.texts.1);
            self.concealer.label(name, value, (out_name, out_value));
            self.builder.push(&self.texts.0, &self.texts.1);
        }
        let labels = self.builder.build_series().ok()?;
        let key = (stream, SeriesKey::of(labels.as_bytes(), 0));
        if let Some(known) = self.dictionary.series.get(&key) {
            return Some((*known, false));
        }
        let number = self.dictionary.last.len() as u32;
        self.dictionary.series.insert(key, number);
        self.dictionary.last.push(0);
        varint::put(&mut self.block, kind::SERIES);
        varint::put_bytes(&mut self.block, labels.as_bytes());
        Some((number, true))
    }

    fn put_item(&mut self, arrival_us: i64, id: u32, piece: Piece<'_>, part: &mut Part) {
        let last_ms = part.last_ms.get_or_insert(self.started_ms.wrapping_add(arrival_us / 1000));
        let out = &mut part.bytes;
        varint::put_signed(out, i64::from(id) - part.next_id);
        part.next_id = i64::from(id) + 1;
        varint::put(out, (piece.samples.len() as u64) << 1 | u64::from(!piece.histograms.is_empty()));
        let mut time = |out: &mut Vec<u8>, t: i64| {
            varint::put_signed(out, t.wrapping_sub(*last_ms));
            *last_ms = t;
        };
        let last = &mut self.dictionary.last[id as usize];
        for &(t, bits) in piece.samples {
            time(out, t);
            value::put(out, *last, bits);
            *last = bits;
        }
        if !piece.histograms.is_empty() {
            varint::put(out, piece.histograms.len() as u64);
        }
        for (t, bytes) in piece.histograms {
            time(out, t);
            varint::put_bytes(out, bytes);
        }
        part.items += 1;
    }

    /// Writes some items of a request. Their series must already be defined, in this block or an earlier one.
    fn put_part(&mut self, arrival_us: i64, stream: Option<u64>, part: &mut Part) {
        if let (Some(stream), true) = (stream, part.items > 0) {
            varint::put(&mut self.block, kind::REQUEST);
            varint::put_signed(&mut self.block, arrival_us.wrapping_sub(self.last_arrival_us));
            varint::put(&mut self.block, stream);
            varint::put(&mut self.block, part.items);
            self.block.extend_from_slice(&part.bytes);
            self.last_arrival_us = arrival_us;
        }
        *part = Part::default();
    }
}

#[derive(Debug, Default)]
struct Part {
    items: u64,
    bytes: Vec<u8>,
    next_id: i64,
    last_ms: Option<i64>,
}

struct Piece<'a> {
    samples: &'a [(i64, u64)],
    histograms: Vec<(i64, &'a [u8])>,
}

fn pieces<'a>(series: ParsedSeries<'a>, done: &mut Appended) -> Vec<Piece<'a>> {
    let all = series.histograms().count();
    let histograms: Vec<_> = series.histograms().filter(|(_, b)| b.len() <= HISTOGRAM_BYTES_MAX).collect();
    done.histograms_refused += (all - histograms.len()) as u64;
    done.samples += (series.samples().len() + histograms.len()) as u64;
    let of_samples = series.samples().chunks(ITEM_SAMPLES_MAX);
    let of_histograms = histograms.chunks(ITEM_HISTOGRAMS_MAX);
    of_samples
        .map(|samples| Piece { samples, histograms: Vec::new() })
        .chain(of_histograms.map(|some| Piece { samples: &[], histograms: some.to_vec() }))
        .collect()
}
