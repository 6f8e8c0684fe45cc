//! Lists the files in the log's folder, and checks that no entry is missing.
//!
//! A table needs its last checkpoint and all entries after it, or all entries. The library does not notice
//! missing first entries if a checksum file has columns and floodmarks: the table looks complete, but lacks files.

use crate::error::TableError;
use crate::store::Location;
use futures::{TryStreamExt, future};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use serde_json::Value;

pub(super) const FOLDER: &str = "_delta_log";

/// This file names the last checkpoint, so that readers need not list all log files.
pub(super) const HINT: &str = "_last_checkpoint";

/// Length of a source's name and floodmark in a checksum file, or less.
const CHECKSUM_NAME_BYTES: u64 = 50;

const VERSION_DIGITS: usize = 20;

/// Some engines put a UUID of this length into the names of checkpoints.
const UUID_LEN: usize = 36;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogFile {
    pub(super) version: u64,
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Modification time by the store's clock.
    pub(super) modified_ms: i64,
    part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Entry,
    Checksum,
    /// One file of a checkpoint that consists of this many files.
    Checkpoint(u64),
}

#[derive(Debug)]
pub(super) struct Checkpoint<'a> {
    pub(super) version: u64,
    pub(super) files: Vec<&'a LogFile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    None,
    /// Version of the last checkpoint.
    At(u64),
    Unreadable,
}

/// Log entries that are needed but cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// First and last missing entry.
    Missing(u64, u64),
    /// An empty entry, which a power loss can leave. The library would accept it as an empty commit.
    Empty(u64),
}

impl std::fmt::Display for Gap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(one, last) if one == last => write!(f, "entry {one:020}.json is missing"),
            Self::Missing(first, last) => {
                write!(f, "entries from {first:020}.json to {last:020}.json are missing")
            }
            Self::Empty(version) => write!(f, "entry {version:020}.json is empty"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Listing {
    /// Log files, sorted by version, then by name.
    files: Vec<LogFile>,
    hint: Hint,
    is_empty: bool,
}

impl Listing {
    pub(super) fn read(location: &Location) -> Result<Self, TableError> {
        let store = location.finished_files();
        let (folder, hint) = (location.path(FOLDER)?, location.path(&format!("{FOLDER}/{HINT}"))?);
        location.wait(async {
            let read_hint = async {
                match store.get(&hint).await {
                    Ok(found) => Ok(Hint::of(&found.bytes().await?)),
                    Err(object_store::Error::NotFound { .. }) => Ok(Hint::None),
                    Err(error) => Err(error),
                }
            };
            let listed = store.list(Some(&folder)).try_collect::<Vec<_>>();
            let (objects, hint) = future::try_join(listed, read_hint).await?;
            Ok(Self { is_empty: objects.is_empty(), ..Self::of(&folder, objects, hint) })
        })
    }

    /// Lists only the log files after a version, and does not read the hint.
    pub(super) fn after(location: &Location, version: u64) -> Result<Self, TableError> {
        let (folder, store) = (location.path(FOLDER)?, location.finished_files());
        let entry = location.path(&format!("{FOLDER}/{version:020}.json"))?;
        let listed = store.list_with_offset(Some(&folder), &entry).try_collect::<Vec<_>>();
        Ok(Self::of(&folder, location.wait(listed)?, Hint::None))
    }

    fn of(folder: &Path, objects: Vec<ObjectMeta>, hint: Hint) -> Self {
        let file = |object: ObjectMeta| {
            let mut inner = object.location.prefix_match(folder)?;
            let (name, None) = (inner.next()?, inner.next()) else { return None };
            let (version, part) = parse(name.as_ref())?;
            let (bytes, modified_ms) = (object.size, object.last_modified.timestamp_millis());
            Some(LogFile { version, name: name.as_ref().into(), bytes, modified_ms, part })
        };
        let mut files: Vec<_> = objects.into_iter().filter_map(file).collect();
        files.sort_unstable_by(|a, b| (a.version, &a.name).cmp(&(b.version, &b.name)));
        Self { files, hint, is_empty: false }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Time of the newest file by the store's clock.
    pub(super) fn written_ms(&self) -> Option<i64> {
        self.files.iter().map(|file| file.modified_ms).max()
    }

    /// About how many names of sources the log has. Entries after the last checksum file seldom have more than one each.
    pub(super) fn names(&self) -> usize {
        let checksum = self.files.iter().rfind(|file| file.part == Part::Checksum);
        let named = checksum.map_or(0, |file| file.bytes / CHECKSUM_NAME_BYTES);
        let entries = self.entries_after(checksum.map(|file| file.version)).count();
        usize::try_from(named).unwrap_or(usize::MAX).saturating_add(entries)
    }

    /// Files before `version`, ascending.
    pub(super) fn before(&self, version: u64) -> &[LogFile] {
        &self.files[..self.files.partition_point(|f| f.version < version)]
    }

    pub(super) fn entries_after(&self, version: Option<u64>) -> impl Iterator<Item = &LogFile> {
        let is_after = move |file: &&LogFile| version.is_none_or(|version| file.version > version);
        self.files.iter().filter(|file| file.part == Part::Entry).filter(is_after)
    }

    /// Complete checkpoints, the latest first.
    pub(super) fn checkpoints(&self) -> impl Iterator<Item = Checkpoint<'_>> {
        self.files.chunk_by(|a, b| a.version == b.version).rev().flat_map(|files| {
            let checkpoints = files.iter().filter(|f| matches!(f.part, Part::Checkpoint(_)));
            let mut checkpoints: Vec<&LogFile> = checkpoints.collect();
            checkpoints.sort_by_key(|f| f.part.files());
            let groups = checkpoints.chunk_by(|a, b| a.part == b.part && a.part.files() > 1);
            let whole = groups.filter(|group| group.len() as u64 == group[0].part.files());
            whole
                .map(|group| Checkpoint { version: group[0].version, files: group.to_vec() })
                .collect::<Vec<_>>()
        })
    }

    /// First entry after `checkpoint` that is missing or empty. Without a checkpoint, all entries are examined.
    pub(super) fn gap(&self, checkpoint: Option<u64>) -> Option<Gap> {
        let first = checkpoint.map_or(0, |version| version + 1);
        let mut next = first;
        for entry in self.files.iter().filter(|f| f.part == Part::Entry && f.version >= first) {
            if entry.version > next {
                return Some(Gap::Missing(next, entry.version - 1));
            }
            if entry.bytes == 0 {
                return Some(Gap::Empty(next));
            }
            next += 1;
        }
        let last = self.files.last().map_or(0, |f| f.version);
        (next <= last || next == 0).then_some(Gap::Missing(next, last))
    }

    pub(super) fn wrong_hint(&self) -> Option<String> {
        match self.hint {
            Hint::None => None,
            Hint::Unreadable => Some("it cannot be read".into()),
            Hint::At(version) if self.checkpoints().any(|c| c.version >= version) => None,
            Hint::At(version) => {
                Some(format!("it names a checkpoint of version {version}, which does not exist"))
            }
        }
    }
}

impl Part {
    /// Number of files that make up this checkpoint. Entries and checksums are single files.
    const fn files(self) -> u64 {
        match self {
            Self::Checkpoint(files) => files,
            Self::Entry | Self::Checksum => 1,
        }
    }
}

impl Hint {
    fn of(bytes: &[u8]) -> Self {
        let version = serde_json::from_slice::<Value>(bytes).ok().and_then(|hint| hint["version"].as_u64());
        version.map_or(Self::Unreadable, Self::At)
    }
}

fn parse(name: &str) -> Option<(u64, Part)> {
    let (digits, rest) = name.split_at_checked(VERSION_DIGITS)?;
    let number = |digits: &str| {
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()
    };
    let parts: Vec<&str> = rest.strip_prefix('.')?.split('.').collect();
    let part = match parts.as_slice() {
        ["json"] => Part::Entry,
        ["crc"] => Part::Checksum,
        ["checkpoint", "parquet"] => Part::Checkpoint(1),
        ["checkpoint", uuid, "parquet" | "json"] if uuid.len() == UUID_LEN => Part::Checkpoint(1),
        ["checkpoint", _, files, "parquet"] => Part::Checkpoint(number(files)?),
        _ => return None,
    };
    Some((number(digits)?, part))
}

#[cfg(test)]
mod tests;
