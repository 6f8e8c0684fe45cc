//! `clock.json`: the last time at which the wall clock was trusted.
//!
//! ```text
//!   { "version": 1, "believed_ms": 1777000000000, "check": "crc32c of believed_ms" }
//! ```
//!
//! `null` means that no clock was trusted yet in this data directory. If the file is missing or damaged, the node uses
//! dates of commits for one run.

use super::judge::LastTrusted;
use journal::Disk;
use journal::disk;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NAME: &str = "clock.json";

const VERSION: u32 = 1;

#[derive(Debug)]
pub(super) struct Memory {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    believed_ms: Option<i64>,
    check: String,
}

impl Memory {
    /// Reads the file. If it is missing or damaged, creates a new one.
    pub(super) fn open(disk: Arc<dyn Disk>, data_dir: &Path) -> (Self, LastTrusted) {
        let memory = Self { disk, path: data_dir.join(NAME) };
        match disk::read(&*memory.disk, &memory.path) {
            Ok(bytes) => match parse(&bytes) {
                Ok(last_trusted) => return (memory, last_trusted),
                Err(reason) => memory.warn(&reason, "is damaged; dates of commits are used instead"),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                memory.warn(&error.to_string(), "cannot be read; dates of commits are used instead");
                return (memory, LastTrusted::Unknown);
            }
        }
        if let Err(error) = memory.store(None) {
            memory.warn(&error.to_string(), "cannot be written");
        }
        (memory, LastTrusted::Unknown)
    }

    /// Saves the last trusted time, or that no clock was trusted yet if this is `None`.
    pub(super) fn store(&self, believed_ms: Option<i64>) -> io::Result<()> {
        let text = Text { version: VERSION, believed_ms, check: check(believed_ms) };
        disk::replace(&*self.disk, &self.path, &serde_json::to_vec(&text)?)
    }

    pub(super) fn warn(&self, reason: &str, what: &str) {
        tracing::warn!(file = %self.path.display(), reason, "the time at which the clock was last trusted {what}");
    }
}

fn parse(bytes: &[u8]) -> Result<LastTrusted, String> {
    let text: Text = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if text.version != VERSION {
        return Err(format!("version {} is not supported; this build reads version {VERSION}", text.version));
    }
    if text.check != check(text.believed_ms) {
        return Err("its checksum is wrong".into());
    }
    Ok(text.believed_ms.map_or(LastTrusted::Never, LastTrusted::At))
}

fn check(believed_ms: Option<i64>) -> String {
    format!("{:08x}", crc32c::crc32c(format!("{believed_ms:?}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::disk::Os;

    #[test]
    fn the_last_trusted_time_is_stored_and_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Memory::open(Arc::new(Os), dir.path());
        assert_eq!(open().1, LastTrusted::Unknown);
        assert_eq!(open().1, LastTrusted::Never, "the first opening creates the file");
        open().0.store(Some(1_777_000_000_000)).unwrap();
        assert_eq!(open().1, LastTrusted::At(1_777_000_000_000));
        let path = dir.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [("1777", "1778"), ("\"version\":1", "\"version\":2"), ("}", "")] {
            let damaged = text.replace(from, to);
            assert_ne!(damaged, text);
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(open().1, LastTrusted::Unknown, "{from} became {to:?}");
        }
    }
}
