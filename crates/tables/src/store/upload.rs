//! A new object, written in parts, so that no file is held in memory as a whole.

use super::Location;
use crate::error::TableError;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt};
use std::io::{self, Write};
use std::sync::Arc;

/// Size of a part: the minimum of S3 for all parts but the last.
pub const PART_BYTES: usize = 5 << 20;

/// Size of a part of a local file. Several files are open at a time, and each holds a part.
const LOCAL_PART_BYTES: usize = 256 << 10;

/// Condition under which a staged file may be committed, because no sweep can have deleted it; see
/// [`crate::delta::Sweeper`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staging {
    /// Version of the table when the file was staged. After a later sweep, the file can be committed only under a
    /// lease.
    pub(crate) since: u64,
    pub(crate) lease: Option<Arc<str>>,
}

/// A new object, visible once [`Upload::finish`] returns.
#[derive(Debug)]
pub struct Upload {
    location: Location,
    relative: String,
    path: Path,
    staging: Staging,
    parts: Option<Box<dyn MultipartUpload>>,
    part_bytes: usize,
    buffer: Vec<u8>,
    len: u64,
}

impl Upload {
    pub(crate) fn new(location: &Location, relative: String, staging: Staging) -> Result<Self, TableError> {
        let path = location.path(&relative)?;
        let part_bytes = if location.is_local() { LOCAL_PART_BYTES } else { PART_BYTES };
        let location = location.clone();
        Ok(Self { location, relative, path, staging, parts: None, part_bytes, buffer: Vec::new(), len: 0 })
    }

    /// Path of the object, relative to the table.
    pub fn path(&self) -> &str {
        &self.relative
    }

    pub(crate) const fn staging(&self) -> &Staging {
        &self.staging
    }

    /// Capacity of the part's buffer: at most [`PART_BYTES`].
    pub fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Makes the object visible. Fails if the store detects an existing object of the same name.
    pub fn finish(mut self) -> Result<u64, TableError> {
        let rest = std::mem::take(&mut self.buffer);
        let Some(mut parts) = self.parts.take() else {
            self.location.create(&self.relative, rest.into())?;
            return Ok(self.len);
        };
        let done = self.location.wait(async {
            if !rest.is_empty() {
                parts.put_part(rest.into()).await?;
            }
            parts.complete().await
        });
        match done {
            Ok(_) => Ok(self.len),
            Err(error) => {
                self.parts = Some(parts);
                Err(error.into())
            }
        }
    }

    fn send(&mut self) -> Result<(), object_store::Error> {
        let part = std::mem::take(&mut self.buffer);
        let (store, path) = (self.location.store(), self.path.clone());
        let parts = match &mut self.parts {
            Some(parts) => parts,
            none => none.insert(self.location.wait(async move { store.put_multipart(&path).await })?),
        };
        let sent = parts.put_part(part.into());
        self.location.wait(sent)
    }
}

impl Write for Upload {
    /// Takes as much of `data` as fits into the part.
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let taken = data.len().min(self.part_bytes - self.buffer.len());
        let (len, capacity) = (self.buffer.len() + taken, self.buffer.capacity());
        if len > capacity {
            // the capacity is doubled, up to the size of a part
            let grown = len.max(2 * capacity).min(self.part_bytes);
            self.buffer.reserve_exact(grown - self.buffer.len());
        }
        self.buffer.extend_from_slice(&data[..taken]);
        self.len += taken as u64;
        if self.buffer.len() == self.part_bytes {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut parts) = self.parts.take() {
            // if this fails, a sweep or the store's lifecycle rule removes the parts
            self.location.handle().spawn(async move { parts.abort().await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use stdx::rng::Rng;

    /// Checks that the buffer never holds more than a part, and that the object has all bytes that were written.
    fn check(part_bytes: usize, write_bytes_max: usize, writes: usize, rng: &mut Rng) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        let url = format!("file://{}", folder.path().display());
        let location = Location::open(&url, [], runtime.handle().clone()).unwrap();
        let location = location.with_store(|_| Arc::new(InMemory::new()));
        let staging = Staging { since: 0, lease: None };
        let mut upload = Upload::new(&location, "file".into(), staging).unwrap();
        upload.part_bytes = part_bytes;
        let mut written = Vec::new();
        for _ in 0..writes {
            let data = vec![rng.next_u64() as u8; rng.below(write_bytes_max as u64) as usize];
            upload.write_all(&data).unwrap();
            written.extend(data);
            assert!(upload.held_bytes() <= part_bytes, "{} of {part_bytes}", upload.held_bytes());
        }
        assert_eq!(upload.finish().unwrap(), written.len() as u64);
        let (store, path) = (location.store(), location.path("file").unwrap());
        let stored = location.wait(async { store.get(&path).await?.bytes().await }).unwrap();
        assert!(stored == written, "{} bytes instead of {}", stored.len(), written.len());
    }

    #[test]
    fn the_buffer_of_an_upload_never_exceeds_a_part() {
        let mut rng = Rng::announced();
        check(PART_BYTES, 3 << 20, 12, &mut rng);
        check(1000, 3, 5_000, &mut rng);
        check(1000, 900, 100, &mut rng);
        check(1000, 5_000, 20, &mut rng);
        check(1000, 1, 3, &mut rng);
    }
}
