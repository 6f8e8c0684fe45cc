//! The files of the target's data directory, and the disk space that they take.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Limit on the files and directories that are counted.
const ENTRIES_MAX: usize = 10_000_000;

/// Unit of `st_blocks`, whatever the file system's block size is.
const BLOCK_BYTES: u64 = 512;

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    before: Usage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    pub(super) files: u64,
    /// Bytes of the blocks that the files and directories take.
    pub(super) bytes: u64,
}

impl Directory {
    /// `None` if the directory cannot be read.
    pub(super) async fn begin(path: &Path) -> Option<Self> {
        let before = Usage::counted(path).await?;
        Some(Self { path: path.to_owned(), before })
    }

    /// Returns by how much the directory has grown since the beginning, or 0 if it has shrunk. `None` if it cannot be read, or has
    /// too many files.
    pub(super) async fn growth(&self) -> Option<Usage> {
        let now = Usage::counted(&self.path).await?;
        let (files, bytes) =
            (now.files.saturating_sub(self.before.files), now.bytes.saturating_sub(self.before.bytes));
        Some(Usage { files, bytes })
    }
}

impl Usage {
    async fn counted(dir: &Path) -> Option<Self> {
        let dir = dir.to_owned();
        tokio::task::spawn_blocking(move || Self::of(&dir)).await.ok().flatten()
    }

    /// Counts everything below a directory. Links are not followed, and what vanishes meanwhile is left out. `None` if the
    /// directory cannot be read, or has too many files.
    fn of(dir: &Path) -> Option<Self> {
        fs::read_dir(dir).ok()?;
        let (mut usage, mut entries, mut open) = (Self::default(), 0, vec![dir.to_owned()]);
        while let Some(dir) = open.pop() {
            let Ok(listed) = fs::read_dir(dir) else { continue };
            for entry in listed.flatten() {
                entries += 1;
                if entries > ENTRIES_MAX {
                    return None;
                }
                let Ok(metadata) = entry.metadata() else { continue };
                usage.bytes += metadata.blocks() * BLOCK_BYTES;
                match metadata.is_dir() {
                    true => open.push(entry.path()),
                    false => usage.files += 1,
                }
            }
        }
        Some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_of_all_levels_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x".repeat(100_000)).unwrap();
        };
        write("a");
        let directory = Directory::begin(folder.path()).await.unwrap();
        assert_eq!(directory.before.files, 1);
        assert_eq!(directory.growth().await, Some(Usage::default()));
        write("b/c/d");
        write("b/e");
        // a directory that contains itself
        std::os::unix::fs::symlink("..", folder.path().join("b/up")).unwrap();
        assert_eq!(directory.growth().await.map(|growth| growth.files), Some(3));
        fs::remove_dir_all(folder.path().join("b")).unwrap();
        fs::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(directory.growth().await.map(|growth| growth.files), Some(0));
        assert!(Directory::begin(Path::new("/nowhere/at/all")).await.is_none());
    }
}
