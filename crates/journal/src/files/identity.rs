//! The file `source`, which has the number of the journal's identity as 16 hexadecimal digits.

use crate::disk::{self, Disk};
use crate::{Identity, JournalError, JournalId};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const NAME: &str = "source";

#[derive(Debug)]
pub(super) struct IdentityFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    id: Mutex<JournalId>,
}

impl IdentityFile {
    /// If the file is missing or damaged, it is written with the number `fresh`.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        partition_dir: &Path,
        partition: u32,
        fresh: u64,
    ) -> Result<Self, JournalError> {
        let (path, found) = (partition_dir.join(NAME), Self::find(&*disk, partition_dir)?);
        let id = Mutex::new(JournalId { number: found.unwrap_or(fresh), partition });
        let file = Self { disk, path, id };
        if found.is_none() {
            file.write(fresh)?;
        }
        Ok(file)
    }

    /// The number in the file. `None` if the file is missing or damaged.
    pub(super) fn find(disk: &dyn Disk, partition_dir: &Path) -> Result<Option<u64>, JournalError> {
        let path = partition_dir.join(NAME);
        match disk::read(disk, &path) {
            Ok(bytes) => Ok(parse(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(JournalError::io("read", &path, e)),
        }
    }

    fn write(&self, number: u64) -> Result<(), JournalError> {
        let digits = format!("{number:016x}");
        disk::replace(&*self.disk, &self.path, digits.as_bytes())
            .map_err(|e| JournalError::io("write", &self.path, e))
    }
}

impl Identity for IdentityFile {
    fn id(&self) -> JournalId {
        *self.id.lock().expect("BUG: a thread panicked while it changed the identity")
    }

    fn change(&self, number: u64) -> Result<(), JournalError> {
        let mut id = self.id.lock().expect("BUG: a thread panicked while it changed the identity");
        self.write(number)?;
        id.number = number;
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let is_whole = bytes.len() == 16 && bytes.iter().all(u8::is_ascii_hexdigit);
    let digits = str::from_utf8(bytes).ok().filter(|_| is_whole)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Os;
    use std::fs;

    #[test]
    fn identity_that_is_missing_or_damaged_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let name = |fresh| {
            let file = IdentityFile::open(Arc::new(Os), dir.path(), 3, fresh).unwrap();
            file.id().to_string()
        };
        assert_eq!(name(1), "0000000000000001/3");
        assert_eq!(name(2), "0000000000000001/3");
        assert_eq!(fs::read(dir.path().join(NAME)).unwrap(), b"0000000000000001");
        fs::write(dir.path().join(NAME), "torn").unwrap();
        assert_eq!(name(6), "0000000000000006/3");
        fs::remove_file(dir.path().join(NAME)).unwrap();
        assert_eq!(name(0xfedc_ba98_7654_3210), "fedcba9876543210/3");
    }
}
