//! Writes Whisper files.

use super::{ARCHIVE_BYTES, Archive, HEADER_BYTES, Header, METHODS, POINT_BYTES, WhisperError};

impl Header {
    /// Encodes the header of a file.
    pub fn encode(&self) -> Result<Vec<u8>, WhisperError> {
        let count = self.archives.len() as u32;
        if !METHODS.contains(&self.method) {
            return Err(WhisperError::Method(self.method));
        }
        if self.archives.is_empty() || self.archives.len() > super::ARCHIVES_MAX {
            return Err(WhisperError::Archives(count));
        }
        self.check()?;
        let retention_s = self.archives.iter().map(Archive::retention_s).max().unwrap_or(0);
        let retention_s = u32::try_from(retention_s).map_err(|_| WhisperError::Outside(0))?;
        let mut out = Vec::with_capacity(HEADER_BYTES + self.archives.len() * ARCHIVE_BYTES);
        for word in [self.method, retention_s, self.x_files_factor.to_bits(), count] {
            out.extend(word.to_be_bytes());
        }
        for (number, archive) in self.archives.iter().enumerate() {
            let offset = u32::try_from(self.offset(number)).map_err(|_| WhisperError::Outside(number))?;
            for word in [offset, archive.step_s, archive.points] {
                out.extend(word.to_be_bytes());
            }
        }
        Ok(out)
    }

    /// Where the points of an archive begin. After the last archive, this is the size of the file.
    #[must_use]
    pub fn offset(&self, number: usize) -> u64 {
        let header = HEADER_BYTES + self.archives.len() * ARCHIVE_BYTES;
        header as u64 + self.archives.iter().take(number).map(Archive::bytes).sum::<u64>()
    }

    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.offset(self.archives.len())
    }
}

impl Archive {
    /// Encodes values of consecutive slots, the first of which begins at `start_s`. NaN stands for a missing value.
    /// The bytes belong at the beginning of the archive; what follows stays empty. There are no more values than
    /// points, so they need not wrap around.
    #[must_use]
    pub fn encode(&self, start_s: i64, values: &[f64]) -> Vec<u8> {
        // the first point decides where the others belong, so it must not be empty
        let Some(first) = values.iter().position(|value| !value.is_nan()) else { return Vec::new() };
        let last = values.iter().rposition(|value| !value.is_nan()).unwrap_or(first);
        let values = &values[first..=last.min(first + self.points as usize - 1)];
        let mut out = Vec::with_capacity(values.len() * POINT_BYTES);
        for (slot, value) in (first as i64..).zip(values) {
            let at_s = u32::try_from(start_s + slot * i64::from(self.step_s)).unwrap_or(0);
            if value.is_nan() || at_s == 0 {
                out.extend([0; POINT_BYTES]);
            } else {
                out.extend(at_s.to_be_bytes());
                out.extend(value.to_be_bytes());
            }
        }
        out
    }
}
