use super::error::RecordError;
use stdx::varint;

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    varint::put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, RecordError> {
        let (&first, rest) = self.rest.split_first().ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(RecordError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, RecordError> {
        varint::take(&mut self.rest).ok_or(match self.rest.len() {
            0..varint::BYTES_MAX => RecordError::Truncated,
            _ => RecordError::Malformed("a varint above 64 bits"),
        })
    }

    /// Reads the number of items that follow. Fails if it is more than `max`, or more than the number of bits
    /// in the rest of the record.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, RecordError> {
        let n = self.varint()?;
        let bound = self.rest.len().saturating_mul(8).min(max);
        match usize::try_from(n) {
            Ok(n) if n <= bound => Ok(n),
            _ => Err(RecordError::Malformed("a count is larger than the rest of the record")),
        }
    }

    #[inline]
    pub(crate) fn length(&mut self) -> Result<usize, RecordError> {
        usize::try_from(self.varint()?).map_err(|_| RecordError::Truncated)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, RecordError> {
        let len = self.length()?;
        std::str::from_utf8(self.take(len)?).map_err(|_| RecordError::Malformed("a text that is not UTF-8"))
    }

    pub(crate) fn f64_bits(&mut self) -> Result<f64, RecordError> {
        let bytes = self.take(8)?;
        let bits = bytes.try_into().map(u64::from_le_bytes).expect("BUG: took 8 bytes");
        Ok(f64::from_bits(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip() {
        for n in [0, 1, 127, 128, 300, 1 << 31, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            varint::put(&mut out, n);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.varint(), Ok(n));
            assert!(cursor.rest.is_empty());
            assert!(Cursor::new(&out[..out.len() - 1]).varint().is_err());
        }
        assert!(Cursor::new(&[0xff; 11]).varint().is_err(), "more than 64 bits");
        assert!(Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint().is_err());
    }
}
