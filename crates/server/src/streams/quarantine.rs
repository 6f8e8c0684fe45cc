//! Copies of batches that cannot be decoded, in the journal's folder for damaged bytes.
//!
//! ```text
//!   batch-<offset, 20 digits>.<checksum>.bytes     the batch, as the journal has it
//!   batch-<offset, 20 digits>.<checksum>.txt       why it cannot be decoded
//! ```
//!
//! The journal deletes a batch once the table's floodmark has passed it. So before that, the copy must be durable. The report is
//! written last, so that it proves a complete copy. The checksum tells batches apart that got the same offset, which happens if
//! the journal loses its end.

use super::buffer::Durable;
use journal::disk::{self, Access, Disk, Mode};
use journal::records::BatchError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREFIX: &str = "batch-";

/// Nothing is copied if the folder has more files or larger copies, until someone has moved some of them away.
const LIMIT: Size = Size { files: 10_000, bytes: 1 << 30 };

#[derive(Debug)]
pub(super) struct Quarantine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    limit: Size,
    /// What the folder has. `None` if it is unknown.
    kept: Option<Size>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    files: usize,
    /// Bytes of copies of batches.
    bytes: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot copy a batch that cannot be decoded to {}: {source}", dir.display())]
pub(super) struct NotCopied {
    dir: PathBuf,
    source: io::Error,
}

impl Quarantine {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self { disk, dir, limit: LIMIT, kept: None }
    }

    /// Makes a durable copy. Returns its path, or `None` if there was one already.
    pub(super) fn keep(
        &mut self,
        durable: &Durable,
        error: &BatchError,
    ) -> Result<Option<PathBuf>, NotCopied> {
        self.try_keep(durable, error).map_err(|source| {
            self.kept = None; // perhaps someone makes room until the next attempt
            NotCopied { dir: self.dir.clone(), source }
        })
    }

    fn try_keep(&mut self, durable: &Durable, error: &BatchError) -> io::Result<Option<PathBuf>> {
        let payload = &durable.batch.payload;
        let stem = format!("{PREFIX}{:020}.{:08x}", durable.offset.0, crc32c::crc32c(payload));
        let [copy, report] = ["bytes", "txt"].map(|extension| self.dir.join(format!("{stem}.{extension}")));
        if self.has(&report)? && self.has(&copy)? {
            // perhaps the process that wrote them was killed before their names were durable
            self.disk.sync_dir(&self.dir)?;
            return Ok(None);
        }
        disk::create_dir_all(&*self.disk, &self.dir, Access::Private)?;
        let kept = match self.kept {
            Some(kept) => kept,
            None => self.list()?,
        };
        let after = Size { files: kept.files + 2, bytes: kept.bytes.saturating_add(payload.len() as u64) };
        if after.files > self.limit.files || after.bytes > self.limit.bytes {
            let message = format!(
                "it has {} files, and copies of batches with {} bytes; with this one, it would have more than {} files or {} \
                 bytes; move some of them away",
                kept.files, kept.bytes, self.limit.files, self.limit.bytes
            );
            return Err(io::Error::other(message));
        }
        let (tenant, stream) = (&durable.batch.tenant, &durable.batch.stream);
        let text = format!(
            "the batch at offset {}, with {} records of stream {stream} of tenant {tenant}, which were durable: {error}\n",
            durable.offset.0, durable.batch.records
        );
        disk::replace(&*self.disk, &copy, payload)?;
        disk::replace(&*self.disk, &report, text.as_bytes())?;
        self.kept = Some(after);
        Ok(Some(copy))
    }

    fn has(&self, path: &Path) -> io::Result<bool> {
        match self.disk.open(path, Mode::Read) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Size> {
        let files = self.disk.list(&self.dir, self.limit.files)?;
        let copies = files.iter().filter(|file| file.name.starts_with(PREFIX));
        let bytes = copies.map(|file| file.bytes).fold(0, u64::saturating_add);
        Ok(Size { files: files.len(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::Batch;
    use super::*;
    use journal::Offset;
    use journal::disk::Os;
    use model::{StreamName, TenantId};
    use std::fs;
    use std::time::Instant;
    use stdx::budget::Account;

    fn durable(offset: u64, payload: &'static [u8]) -> Durable {
        let batch = Batch {
            tenant: TenantId::anonymous(),
            stream: StreamName::parse("s").unwrap(),
            id: None,
            arrival_us: 0,
            records: 3,
            payload: payload.into(),
            memory: Account::new("records", 0).reserve(0).unwrap(),
        };
        Durable { offset: Offset(offset), batch, since: Instant::now() }
    }

    #[test]
    fn a_batch_is_copied_once_and_only_if_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("0/quarantine");
        let opened = || Quarantine {
            limit: Size { files: 4, bytes: 200 },
            ..Quarantine::new(Arc::new(Os), dir.clone())
        };
        let error = BatchError::Malformed("nonsense");
        let mut quarantine = opened();
        let copy = quarantine.keep(&durable(7, b"abc"), &error).unwrap().unwrap();
        assert_eq!(fs::read(&copy).unwrap(), b"abc");
        let report = fs::read_to_string(copy.with_extension("txt")).unwrap();
        assert!(report.contains("offset 7, with 3 records of stream s"), "{report}");
        assert!(report.contains("nonsense"), "{report}");
        assert_eq!(quarantine.keep(&durable(7, b"abc"), &error).unwrap(), None);
        assert_eq!(opened().keep(&durable(7, b"abc"), &error).unwrap(), None);
        // a copy without its report may be incomplete
        fs::remove_file(copy.with_extension("txt")).unwrap();
        fs::write(&copy, "a").unwrap();
        assert_eq!(opened().keep(&durable(7, b"abc"), &error).unwrap(), Some(copy.clone()));
        assert_eq!(fs::read(&copy).unwrap(), b"abc");
        // another batch with the same offset
        let other = quarantine.keep(&durable(7, b"abd"), &error).unwrap().unwrap();
        assert_ne!(other, copy);
        for mut full in [quarantine, opened()] {
            let refused = full.keep(&durable(8, b"x"), &error).unwrap_err().source.to_string();
            assert!(refused.contains("4 files"), "{refused}");
            assert_eq!(full.keep(&durable(7, b"abc"), &error).unwrap(), None);
        }
        let mut quarantine = opened();
        quarantine.keep(&durable(8, b"x"), &error).unwrap_err();
        fs::remove_file(&other).unwrap();
        fs::remove_file(other.with_extension("txt")).unwrap();
        quarantine.keep(&durable(9, &[1; 200]), &error).unwrap_err();
        quarantine.keep(&durable(8, b"x"), &error).unwrap().unwrap();
    }
}
