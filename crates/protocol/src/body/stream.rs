//! Decompresses a body piece by piece, as it arrives.

use super::{Encoding, GZIP_CONTEXT_BYTES, ZSTD_STREAM_BYTES, ZSTD_WINDOW_LOG_MAX};
use crate::DecodeError;
use flate2::write::MultiGzDecoder;
use std::io::Write;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::DParameter;

/// A call of [`Inflater::push`] appends at most this many bytes.
pub const INFLATED_BYTES_MAX: usize = 128 << 10;

/// Decompresses a body of any length. The caller decides how much is decompressed at once.
pub struct Inflater(Kind);

enum Kind {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Zstd { decoder: Box<Decoder<'static>>, has_ended: bool, has_begun: bool },
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Inflater").field(&self.encoding()).finish()
    }
}

impl Inflater {
    /// The encodings of bodies that arrive in pieces.
    pub const ENCODINGS: &[Encoding] = &[Encoding::Identity, Encoding::Gzip, Encoding::Zstd];

    /// Memory that decompression takes, besides what it returns.
    pub const fn memory_bytes(encoding: Encoding) -> usize {
        match encoding {
            Encoding::Identity | Encoding::Snappy => 0,
            Encoding::Gzip => GZIP_CONTEXT_BYTES + INFLATED_BYTES_MAX,
            Encoding::Zstd => ZSTD_STREAM_BYTES + (1 << ZSTD_WINDOW_LOG_MAX),
        }
    }

    /// `encoding` must be one of [`Self::ENCODINGS`].
    pub fn new(encoding: Encoding) -> Result<Self, DecodeError> {
        Ok(Self(match encoding {
            Encoding::Identity => Kind::Identity,
            Encoding::Gzip => Kind::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            Encoding::Zstd => {
                let decoder = Decoder::new().and_then(|mut decoder| {
                    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
                    Ok(decoder)
                });
                let decoder = Box::new(decoder.map_err(|error| damaged(encoding, &error.to_string()))?);
                Kind::Zstd { decoder, has_ended: false, has_begun: false }
            }
            Encoding::Snappy => unreachable!("BUG: a snappy block cannot be decompressed piece by piece"),
        }))
    }

    /// Decompresses the beginning of `input`, and appends the result to `out`. Returns how many bytes of the input it took.
    /// If it took none, it appended something.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, DecodeError> {
        assert!(!input.is_empty(), "BUG: nothing to decompress");
        let encoding = self.encoding();
        match &mut self.0 {
            Kind::Identity => {
                let taken = input.len().min(INFLATED_BYTES_MAX);
                out.extend_from_slice(&input[..taken]);
                Ok(taken)
            }
            Kind::Gzip(decoder) => {
                let taken = decoder.write(input).map_err(|error| damaged(encoding, &error.to_string()))?;
                out.append(decoder.get_mut());
                match taken {
                    0 => Err(damaged(encoding, "more bytes after the end")),
                    _ => Ok(taken),
                }
            }
            Kind::Zstd { decoder, has_ended, has_begun } => {
                if *has_ended {
                    return Err(damaged(encoding, "more than one frame"));
                }
                *has_begun = true;
                let start = out.len();
                out.resize(start + INFLATED_BYTES_MAX, 0);
                let mut source = InBuffer::around(input);
                let mut target = OutBuffer::around(&mut out[start..]);
                let ran = decoder.run(&mut source, &mut target);
                let (taken, made) = (source.pos(), target.pos());
                out.truncate(start + made);
                *has_ended = ran.map_err(|error| damaged(encoding, &error.to_string()))? == 0;
                match (taken, made) {
                    (0, 0) => Err(damaged(encoding, "no progress")),
                    // output was pending, and more may be: the same input follows again
                    _ => Ok(taken),
                }
            }
        }
    }

    /// Appends what is still to come after the last input, at most [`INFLATED_BYTES_MAX`] at a time. Returns whether this was
    /// all. Fails if the body is cut short.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<bool, DecodeError> {
        let encoding = self.encoding();
        match &mut self.0 {
            Kind::Identity => Ok(true),
            Kind::Gzip(decoder) => {
                decoder.try_finish().map_err(|error| damaged(encoding, &error.to_string()))?;
                out.append(decoder.get_mut());
                Ok(true)
            }
            Kind::Zstd { has_ended: true, .. } => Ok(true),
            Kind::Zstd { has_begun: false, .. } => Err(damaged(encoding, "truncated")),
            Kind::Zstd { decoder, has_ended, .. } => {
                let start = out.len();
                out.resize(start + INFLATED_BYTES_MAX, 0);
                let mut target = OutBuffer::around(&mut out[start..]);
                let ran = decoder.run(&mut InBuffer::around(&[]), &mut target);
                let made = target.pos();
                out.truncate(start + made);
                *has_ended = ran.map_err(|error| damaged(encoding, &error.to_string()))? == 0;
                match made {
                    0 if !*has_ended => Err(damaged(encoding, "truncated")),
                    _ => Ok(*has_ended),
                }
            }
        }
    }

    const fn encoding(&self) -> Encoding {
        match self.0 {
            Kind::Identity => Encoding::Identity,
            Kind::Gzip(_) => Encoding::Gzip,
            Kind::Zstd { .. } => Encoding::Zstd,
        }
    }
}

fn damaged(encoding: Encoding, error: &str) -> DecodeError {
    DecodeError::Damaged { encoding, error: error.into() }
}
