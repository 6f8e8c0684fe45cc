//! A data directory: its lock, and the properties that are fixed when it is created (its identity).
//!
//! ```text
//!   DIR/LOCK            held while a process uses the directory
//!   DIR/identity.json   { "version": 1, "seed": "…", "partitions": 2 }
//!   DIR/journal/N/      segments of partition N; `source`: the journal's identity; `reserve`: space for one more segment
//!   DIR/floodmarks.json offsets up to which tables contain each journal (`seal/manifest.rs`); `.spare` reserves space for it
//!   DIR/clock.json      time at which the wall clock was last trusted (`wallclock/memory.rs`)
//!   DIR/events/         the events of each tenant (`events/file.rs`)
//!   DIR/tables/         the tables, unless they are stored elsewhere
//! ```

use crate::machine;
use crate::settings::partitions_default;
use journal::Disk;
use journal::disk::{self, Access, DiskFile, Os};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct DataDir {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) disk: Arc<dyn Disk>,
    _lock: Box<dyn DiskFile>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    version: u32,
    /// Seed for the hashes of labels. It is secret, so that clients cannot construct series whose hashes collide.
    #[serde(with = "hex_u64")]
    pub(crate) seed: u64,
    pub(crate) partitions: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("data directory {} is in use by another process", .0.display())]
    InUse(PathBuf),
    #[error("data directory: cannot use {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "there is no data directory at {} (--data-dir, setting data_dir), and {} does not exist either",
        path.display(), above.display()
    )]
    NoPlace { path: PathBuf, above: PathBuf },
    /// The identity file is damaged, or was written by a later version.
    #[error("{}: {reason}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        reason: String,
    },
}

const VERSION: u32 = 1;

/// How long to wait for the lock. A killed process may hold it for a moment after its successor starts.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(20);

impl DataDir {
    /// Opens a data directory. If it does not exist, creates it with `partitions` partitions.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        path: &Path,
        partitions: usize,
        seed: u64,
    ) -> Result<Self, DataDirError> {
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| DataDirError::Io { path, source }
        };
        // readable by others, because other query engines may read the tables in it
        disk::create_dir_all(&*disk, path, Access::Shared).map_err(io(path))?;
        let lock_path = path.join("LOCK");
        let began = Instant::now();
        let lock = loop {
            match disk.lock(&lock_path) {
                Ok(lock) => break lock,
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(io(&lock_path)(e)),
                Err(_) if began.elapsed() < LOCK_WAIT => thread::sleep(LOCK_POLL),
                Err(_) => return Err(DataDirError::InUse(path.into())),
            }
        };
        let identity_path = path.join("identity.json");
        let identity = match disk::read(&*disk, &identity_path) {
            Ok(bytes) => Identity::parse(&bytes)
                .map_err(|reason| DataDirError::Identity { path: identity_path.clone(), reason })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if disk.list(&path.join("journal"), 1).is_ok() {
                    let reason =
                        "missing, although there is a journal; restore the file from a backup".into();
                    return Err(DataDirError::Identity { path: identity_path, reason });
                }
                let identity = Identity { version: VERSION, seed, partitions };
                identity.write(&*disk, &identity_path).map_err(io(&identity_path))?;
                identity
            }
            Err(source) => return Err(io(&identity_path)(source)),
        };
        if identity.partitions != partitions {
            let (has, wanted) = (identity.partitions, partitions);
            tracing::info!(
                has,
                wanted,
                "the setting partitions has no effect: the number was fixed when the data directory was created"
            );
        }
        Ok(Self { path: path.into(), identity, disk, _lock: lock })
    }
}

/// For programs that write the tables of a data directory besides the server.
#[derive(Debug, Clone, Copy)]
pub struct SeriesSeed {
    /// With it, the hashes of series are computed.
    pub seed: u64,
    /// True if there was no data directory, so that an empty one was created.
    pub is_new: bool,
}

/// Reads the seed of a data directory. Creates what is missing, but fails if the directory above is missing too, because the path is probably
/// wrong then.
pub fn series_seed(path: &Path) -> Result<SeriesSeed, DataDirError> {
    let identity = path.join("identity.json");
    match disk::read(&Os, &identity) {
        Ok(bytes) => {
            let identity = Identity::parse(&bytes)
                .map_err(|reason| DataDirError::Identity { path: identity, reason })?;
            return Ok(SeriesSeed { seed: identity.seed, is_new: false });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(DataDirError::Io { path: identity, source }),
    }
    let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    if !above.is_dir() {
        return Err(DataDirError::NoPlace { path: path.into(), above: above.into() });
    }
    let seed = stdx::rng::Rng::fresh_seed();
    let partitions = partitions_default(machine::cores());
    let seed = DataDir::open(Arc::new(Os), path, partitions, seed)?.identity.seed;
    Ok(SeriesSeed { seed, is_new: true })
}

impl Identity {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let identity: Self = serde_json::from_slice(bytes).map_err(|e| format!("invalid JSON: {e}"))?;
        if identity.version != VERSION {
            return Err(format!(
                "version {} is not supported; this build reads version {VERSION}",
                identity.version
            ));
        }
        if identity.partitions == 0 || identity.partitions > model::caps::PARTITIONS_MAX {
            return Err(format!("invalid number of partitions: {}", identity.partitions));
        }
        Ok(identity)
    }

    fn write(&self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        disk::replace(disk, path, &serde_json::to_vec_pretty(self)?)
    }
}

/// Serializes a number as hexadecimal text, because JSON numbers lose bits beyond 2^53.
mod hex_u64 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(n: &u64, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&format!("{n:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
        u64::from_str_radix(&String::deserialize(d)?, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn open(dir: &tempfile::TempDir, partitions: usize, seed: u64) -> Result<DataDir, DataDirError> {
        DataDir::open(Arc::new(Os), dir.path(), partitions, seed)
    }

    #[test]
    fn keeps_its_identity_and_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(&dir, 3, u64::MAX - 5).unwrap();
        assert!(matches!(open(&dir, 3, 1), Err(DataDirError::InUse(_))));
        drop(first);
        let again = open(&dir, 8, 1).unwrap();
        assert_eq!((again.identity.partitions, again.identity.seed), (3, u64::MAX - 5));
        drop(again);
        fs::write(dir.path().join("identity.json"), "{}").unwrap();
        assert!(matches!(open(&dir, 3, 1), Err(DataDirError::Identity { .. })));
    }

    #[test]
    fn imports_create_a_data_directory_only_where_it_may_be_meant() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("other/files")).unwrap();
        let error = series_seed(&at("missing/data")).unwrap_err().to_string();
        assert!(error.contains("missing does not exist either") && error.contains("--data-dir"), "{error}");
        assert!(!at("missing").exists());
        for name in ["other", "data"] {
            let (first, again) = (series_seed(&at(name)).unwrap(), series_seed(&at(name)).unwrap());
            assert_eq!((first.is_new, again.is_new, first.seed == again.seed), (true, false, true), "{name}");
        }
    }

    #[test]
    fn does_not_make_a_new_identity_over_old_data() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("journal")).unwrap();
        assert!(matches!(open(&dir, 3, 1), Err(DataDirError::Identity { .. })));
    }
}
