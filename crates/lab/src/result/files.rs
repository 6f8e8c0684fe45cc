//! Replaces files so that a failure never leaves half a file.

use std::ffi::OsString;
use std::path::Path;
use std::{fs, io};

/// Writes `content` to a temporary file, which then replaces `path`. Pipes and devices are written directly.
pub(crate) fn replace(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, content);
    }
    let mut beside = OsString::from(path);
    beside.push(".part");
    let written = fs::write(&beside, content).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        fs::remove_file(&beside).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_files_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        for content in ["one", "two"] {
            replace(&path, content).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file remains");
        assert!(replace(&folder.path().join("nowhere/a.json"), "x").is_err());
        assert!(replace(folder.path(), "x").is_err(), "a folder was replaced");
        replace(Path::new("/dev/null"), "x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
