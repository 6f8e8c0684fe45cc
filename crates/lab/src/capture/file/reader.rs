use super::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, DICTIONARY_SERIES_MAX, HEADER_BYTES, HISTOGRAM_BYTES_MAX, MAGIC,
    STREAMS_MAX, TENANT_BYTES_MAX, VERSION, VERSION_MIN, conceal::Conceal, flag, kind, value, varint,
};
use crate::generate::protocol::Protocol;
use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Read};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// In ms since 1970.
    pub started_ms: i64,
    pub concealed: Conceal,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Ending {
    #[default]
    Whole,
    /// The file ends within a block, for example because its writer was killed.
    Torn { at: u64 },
    /// A block does not have the bytes that were written. Nothing after it can be read.
    Damaged { at: u64, why: String },
}

/// Entry of a recording. Series are numbered from 0 after each [`Event::Forget`].
#[derive(Debug, PartialEq)]
pub enum Event {
    Forget,
    /// Labels of the series with the next number, in canonical form.
    Series(Arc<[u8]>),
    Request(RequestEvent),
    /// Requests that are missing at this point: their number, and their total size in bytes.
    Gap(u64, u64),
}

/// A recorded request. A large request may be split into several events.
#[derive(Debug, PartialEq)]
pub struct RequestEvent {
    /// In µs since the recording began.
    pub arrival_us: i64,
    pub message: Protocol,
    /// Empty if the request named no tenant.
    pub tenant: Arc<str>,
    pub items: Vec<Item>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Item {
    pub series: u32,
    /// Timestamps in ms since 1970, and the bits of the values.
    pub samples: Vec<(i64, u64)>,
    /// Timestamps in ms since 1970, and histograms in protobuf without their timestamps.
    pub histograms: Vec<(i64, Vec<u8>)>,
}

/// Reads a recording event by event. It holds one block in memory, and 8 bytes for each series of the dictionary.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    header: Header,
    /// Offsets in the file at which the current block begins and ends.
    at: u64,
    next_at: u64,
    block: Vec<u8>,
    block_at: usize,
    streams: Vec<(Protocol, Arc<str>)>,
    last: Vec<u64>,
    last_arrival_us: i64,
    ending: Option<Ending>,
}

impl<R: Read> Reader<R> {
    /// Reads the header. Fails if the file is not a recording, or if its format is newer.
    pub fn open(mut file: R) -> Result<Self> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).context("this is not a recording: the file has no header")?;
        ensure!(header[..8] == MAGIC, "this is not a recording: the file does not begin with FLDMKREC");
        let (head, crc) = header.split_at(HEADER_BYTES - 4);
        ensure!(crc32c::crc32c(head).to_le_bytes() == crc, "the recording's header is damaged");
        let u16_at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let version = u16_at(8);
        ensure!(
            (VERSION_MIN..=VERSION).contains(&version),
            "the recording has format version {version}, this program reads the versions {VERSION_MIN} to {VERSION}"
        );
        let flags = u16_at(10);
        let concealed = Conceal {
            values: flags & flag::VALUES != 0,
            metrics: flags & flag::METRICS != 0,
            labels: flags & flag::LABELS != 0,
        };
        let started_ms = i64::from_le_bytes(header[12..20].try_into().expect("BUG: not eight bytes"));
        Ok(Self {
            file,
            header: Header { started_ms, concealed },
            at: HEADER_BYTES as u64,
            next_at: HEADER_BYTES as u64,
            block: Vec::new(),
            block_at: 0,
            streams: Vec::new(),
            last: Vec::new(),
            last_arrival_us: 0,
            ending: None,
        })
    }

    pub fn header(&self) -> Header {
        self.header
    }

    /// Says whether the file is complete. `None` until [`Reader::next`] has returned `None`.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns the next event, or `None` at the end of the file or at the first torn or damaged block. Fails only on
    /// I/O errors.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot stop at an error of the file")]
    pub fn next(&mut self) -> Result<Option<Event>> {
        while self.ending.is_none() {
            if self.block_at < self.block.len() {
                let block = std::mem::take(&mut self.block);
                let mut rest = &block[self.block_at..];
                let event = self.entry(&mut rest);
                self.block_at = block.len() - rest.len();
                self.block = block;
                match event {
                    Ok(Some(event)) => return Ok(Some(event)),
                    Ok(None) => continue,
                    Err(why) => self.damaged(format!("{why:#}")),
                }
            } else {
                self.read_block()?;
            }
        }
        Ok(None)
    }

    fn damaged(&mut self, why: String) {
        self.ending = Some(Ending::Damaged { at: self.at, why });
    }

    fn read_block(&mut self) -> Result<()> {
        self.at = self.next_at;
        let mut header = [0; BLOCK_HEADER_BYTES];
        match fill(&mut self.file, &mut header).context("cannot read the recording")? {
            0 => {
                self.ending = Some(Ending::Whole);
                return Ok(());
            }
            BLOCK_HEADER_BYTES => {}
            _ => {
                self.ending = Some(Ending::Torn { at: self.at });
                return Ok(());
            }
        }
        let u32_at =
            |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("BUG: not four bytes"));
        let (len, raw, crc) = (u32_at(0) as usize, u32_at(4) as usize, u32_at(8));
        if header == [0; BLOCK_HEADER_BYTES] {
            // zeros mean that the file system allocated the space, but the block was never written
            self.ending = Some(Ending::Torn { at: self.at });
            return Ok(());
        }
        if len > lz4_flex::block::get_maximum_output_size(BLOCK_BYTES_MAX)
            || raw > BLOCK_BYTES_MAX
            || raw == 0
        {
            self.damaged(format!("a block claims {raw} bytes in {len} compressed bytes"));
            return Ok(());
        }
        let mut payload = vec![0; len];
        if fill(&mut self.file, &mut payload).context("cannot read the recording")? < len {
            self.ending = Some(Ending::Torn { at: self.at });
            return Ok(());
        }
        if crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &payload) != crc {
            self.damaged("the checksum does not match".to_owned());
            return Ok(());
        }
        match lz4_flex::block::decompress(&payload, raw) {
            Ok(block) if block.len() == raw => {
                (self.block, self.block_at) = (block, 0);
                self.next_at = self.at + (BLOCK_HEADER_BYTES + len) as u64;
            }
            _ => self.damaged("cannot decompress the block".to_owned()),
        }
        Ok(())
    }

    fn entry(&mut self, rest: &mut &[u8]) -> Result<Option<Event>> {
        let short = || "an entry ends before its declared length";
        Ok(Some(match varint::take(rest).with_context(short)? {
            kind::FORGET => {
                self.streams.clear();
                self.last.clear();
                self.last_arrival_us = 0;
                Event::Forget
            }
            kind::STREAM => {
                let (&number, after) = rest.split_first().with_context(short)?;
                *rest = after;
                let message = Protocol::of_number(number).context("the protocol is unknown")?;
                let tenant = std::str::from_utf8(varint::take_bytes(rest).with_context(short)?)?;
                ensure!(
                    tenant.len() <= TENANT_BYTES_MAX,
                    "a tenant's name has {} bytes, the limit is {TENANT_BYTES_MAX}",
                    tenant.len()
                );
                ensure!(
                    self.streams.len() < STREAMS_MAX,
                    "the recording has more than {STREAMS_MAX} streams"
                );
                self.streams.push((message, tenant.into()));
                return Ok(None);
            }
            kind::SERIES => {
                let labels = varint::take_bytes(rest).with_context(short)?;
                ensure!(model::labels::is_canonical(labels), "labels are not in canonical form");
                ensure!(
                    self.last.len() < DICTIONARY_SERIES_MAX,
                    "a dictionary has more than {DICTIONARY_SERIES_MAX} series"
                );
                self.last.push(0);
                Event::Series(labels.into())
            }
            kind::REQUEST => Event::Request(self.request(rest)?),
            kind::GAP => {
                let mut number = || varint::take(rest).with_context(short);
                Event::Gap(number()?, number()?)
            }
            other => bail!("unknown entry kind {other}"),
        }))
    }

    fn request(&mut self, rest: &mut &[u8]) -> Result<RequestEvent> {
        let broken = || "the request is damaged";
        let delta_us = varint::take_signed(rest).with_context(broken)?;
        let arrival_us = self.last_arrival_us.wrapping_add(delta_us);
        let stream = usize::try_from(varint::take(rest).with_context(broken)?)?;
        let (message, tenant) = self
            .streams
            .get(stream)
            .cloned()
            .with_context(|| format!("the request refers to stream {stream}, which is not defined"))?;
        let count = varint::take(rest).with_context(broken)?;
        // each item takes at least two bytes, so a damaged count cannot reserve much memory
        ensure!(count <= rest.len() as u64 / 2, "the request claims {count} items in {} bytes", rest.len());
        let mut last_ms = self.header.started_ms.wrapping_add(arrival_us / 1000);
        let mut next_id = 0i64;
        let mut items = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let id = next_id.wrapping_add(varint::take_signed(rest).with_context(broken)?);
            let last = usize::try_from(id).ok().and_then(|id| self.last.get_mut(id));
            let last = last.with_context(|| format!("samples of series {id}, which is not defined"))?;
            items.push(item(rest, id as u32, last, &mut last_ms).with_context(broken)?);
            next_id = id + 1;
        }
        self.last_arrival_us = arrival_us;
        Ok(RequestEvent { arrival_us, message, tenant, items })
    }
}

fn item(rest: &mut &[u8], series: u32, last: &mut u64, last_ms: &mut i64) -> Option<Item> {
    let code = varint::take(rest)?;
    let count = usize::try_from(code >> 1).ok()?;
    let mut time = |rest: &mut &[u8]| {
        *last_ms = last_ms.wrapping_add(varint::take_signed(rest)?);
        Some(*last_ms)
    };
    // each sample takes at least two bytes, so a damaged count cannot reserve much memory
    let mut samples = Vec::with_capacity(count.min(rest.len() / 2));
    for _ in 0..count {
        let t = time(rest)?;
        *last = value::take(rest, *last)?;
        samples.push((t, *last));
    }
    let mut histograms = Vec::new();
    if code & 1 == 1 {
        for _ in 0..varint::take(rest)? {
            let t = time(rest)?;
            let bytes = varint::take_bytes(rest)?;
            if bytes.len() > HISTOGRAM_BYTES_MAX {
                return None;
            }
            histograms.push((t, bytes.to_vec()));
        }
    }
    Some(Item { series, samples, histograms })
}

fn fill(file: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
