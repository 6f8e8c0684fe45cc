//! Decompresses request bodies.

mod snappy;
mod stream;

pub use snappy::decompress as decompress_snappy;
pub use stream::{INFLATED_BYTES_MAX, Inflater};

use crate::DecodeError;
use flate2::bufread::MultiGzDecoder;
use model::caps::{BODY_BYTES_MAX, BODY_COMPRESSED_BYTES_MAX};
use std::io::Read;
use stdx::budget::IncrementalReservation;
use zstd::zstd_safe;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    /// A snappy block, not the framed format.
    Snappy,
    Zstd,
    Gzip,
}

/// The limit on how many characters of a header's value are quoted in an error message.
const HEADER_SHOWN_BYTES_MAX: usize = 100;

impl Encoding {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Finds the encoding that the header `Content-Encoding` names. A request without the header has the
    /// first of the accepted encodings, and an encoding that is not accepted is an error (HTTP 415).
    pub fn negotiate(header: Option<&str>, accepted: &'static [Self]) -> Result<Self, DecodeError> {
        let name = header.unwrap_or("").trim();
        if name.is_empty() {
            return Ok(accepted[0]);
        }
        let named = accepted.iter().find(|encoding| name.eq_ignore_ascii_case(encoding.name()));
        named.copied().ok_or_else(|| DecodeError::ContentEncoding { got: shown(name), accepted })
    }
}

pub(crate) fn shown(header: &str) -> String {
    header.chars().take(HEADER_SHOWN_BYTES_MAX).collect()
}

#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    pub encoding: Encoding,
    pub bytes: &'a [u8],
}

/// Memory that libzstd takes for a decompression context, and for a stream in addition to its window. In
/// version 1.5.7, `ZSTD_estimateDCtxSize` and `ZSTD_estimateDStreamSize` return 95,976 and 489,256 bytes.
const ZSTD_CONTEXT_BYTES: usize = 96 << 10;
const ZSTD_STREAM_BYTES: usize = 480 << 10;

/// If a zstd frame does not declare its size, its window may have up to 8 MiB, as RFC 8878 recommends. This
/// is the binary logarithm of that limit.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A zstd block takes at least 4 bytes and decompresses to at most 128 KiB. Together, these sizes bound how
/// far a body can expand.
const ZSTD_BLOCK_BYTES_MAX: u64 = 128 << 10;
const ZSTD_BLOCK_BYTES_MIN: u64 = 4;

/// Upper bound on the memory of a gzip decoder, which has a window of 32 KiB and several tables.
const GZIP_CONTEXT_BYTES: usize = 128 << 10;

/// A body that does not declare its size is decompressed through a buffer of this size.
const STEP_BYTES: usize = 64 << 10;

impl<'a> Body<'a> {
    pub const fn snappy(bytes: &'a [u8]) -> Self {
        Self { encoding: Encoding::Snappy, bytes }
    }

    /// Returns the decompressed length, or `None` if the body does not declare it. Fails if the length
    /// exceeds a limit, or if so few compressed bytes could never expand to it.
    pub fn decoded_len(&self) -> Result<Option<usize>, DecodeError> {
        if self.bytes.len() > BODY_COMPRESSED_BYTES_MAX {
            return Err(DecodeError::BodyTooLarge(self.bytes.len()));
        }
        match self.encoding {
            Encoding::Identity => Ok(Some(self.bytes.len())),
            Encoding::Snappy => snappy::decoded_len(self.bytes).map(Some),
            Encoding::Zstd => zstd_len(self.bytes),
            // the trailer has only the length of the last member, modulo 2^32
            Encoding::Gzip => Ok(None),
        }
    }

    /// Returns the decompressed body. `out` is used only if the body is compressed; otherwise, nothing is copied.
    pub(crate) fn uncompressed<'o>(
        &self,
        out: &'o mut Vec<u8>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<&'o [u8], DecodeError>
    where
        'a: 'o,
    {
        if self.encoding == Encoding::Identity {
            self.decoded_len()?;
            return Ok(self.bytes);
        }
        self.decompress(out, reservation)?;
        Ok(out)
    }

    /// Replaces the contents of `out` with the decompressed body. Memory is reserved before it is used. After
    /// an error, `out` may contain anything.
    pub fn decompress(
        &self,
        out: &mut Vec<u8>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let damaged = |error: std::io::Error| DecodeError::Damaged {
            encoding: self.encoding,
            error: error.to_string(),
        };
        match (self.encoding, self.decoded_len()?) {
            (Encoding::Snappy, _) => snappy::decompress_reserved(self.bytes, out, reservation),
            (Encoding::Identity, _) => {
                out.clear();
                Ok(reservation.extend(out, self.bytes)?)
            }
            (Encoding::Zstd, Some(len)) => {
                reservation.reserve(ZSTD_CONTEXT_BYTES)?;
                out.clear();
                if out.capacity() < len {
                    reservation.grow(out, len)?;
                }
                let mut context = zstd::bulk::Decompressor::new().map_err(damaged)?;
                context.decompress_to_buffer(self.bytes, out).map(drop).map_err(damaged)
            }
            (Encoding::Zstd, None) => {
                let window_log = zstd_window_log(self.bytes);
                reservation.reserve(ZSTD_STREAM_BYTES + (1 << window_log))?;
                let stream = zstd::stream::read::Decoder::with_buffer(self.bytes).map_err(damaged)?;
                let mut stream = stream.single_frame();
                stream.window_log_max(window_log).map_err(damaged)?;
                self.inflate(stream, out, reservation)
            }
            (Encoding::Gzip, _) => {
                reservation.reserve(GZIP_CONTEXT_BYTES)?;
                self.inflate(MultiGzDecoder::new(self.bytes), out, reservation)
            }
        }
    }

    fn inflate(
        &self,
        mut stream: impl Read,
        out: &mut Vec<u8>,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        out.clear();
        // a hostile body can make each read return only a few bytes, which is cheap because this buffer is
        // small
        let mut step = Vec::new();
        reservation.room(&mut step, STEP_BYTES)?;
        step.resize(STEP_BYTES, 0);
        loop {
            let read = stream.read(&mut step).map_err(|error| DecodeError::Damaged {
                encoding: self.encoding,
                error: error.to_string(),
            })?;
            if read == 0 {
                return Ok(());
            }
            if out.len() + read > BODY_BYTES_MAX {
                return Err(DecodeError::DecodedTooLarge((out.len() + read) as u64));
            }
            reservation.room(out, read)?;
            out.extend_from_slice(&step[..read]);
        }
    }
}

/// Returns the decompressed size that a zstd frame declares. A body with several frames is refused, because
/// starting a frame takes much time even if the frame is tiny.
fn zstd_len(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let damaged = |error: &str| DecodeError::Damaged { encoding: Encoding::Zstd, error: error.into() };
    let declared = zstd_safe::get_frame_content_size(bytes).map_err(|_| damaged("not a zstd frame"))?;
    let frame_bytes = zstd_safe::find_frame_compressed_size(bytes).map_err(|_| damaged("truncated"))?;
    if frame_bytes != bytes.len() {
        return Err(damaged("more than one frame"));
    }
    let Some(declared) = declared else { return Ok(None) };
    if declared > BODY_BYTES_MAX as u64 {
        return Err(DecodeError::DecodedTooLarge(declared));
    }
    if declared > bytes.len() as u64 / ZSTD_BLOCK_BYTES_MIN * ZSTD_BLOCK_BYTES_MAX {
        return Err(damaged("declared length is larger than the body can expand to"));
    }
    Ok(Some(declared as usize))
}

/// Returns the binary logarithm of the window size in a zstd frame's header (RFC 8878, 3.1.1.1.2).
fn zstd_window_log(bytes: &[u8]) -> u32 {
    const DESCRIPTOR: usize = 4;
    const SINGLE_SEGMENT: u8 = 1 << 5;
    match bytes.get(DESCRIPTOR..DESCRIPTOR + 2) {
        Some([descriptor, window]) if descriptor & SINGLE_SEGMENT == 0 => {
            let log = 10 + u32::from(window >> 3) + u32::from(window & 7 != 0);
            log.min(ZSTD_WINDOW_LOG_MAX)
        }
        _ => ZSTD_WINDOW_LOG_MAX,
    }
}

#[cfg(test)]
mod tests;
