//! Derives the default limit on the bytes of a tenant's tables from the size of the disk.

use crate::machine::Machine;
use std::path::PathBuf;
use url::Url;

const SHARE_PERCENT: u64 = 90;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskDefault {
    pub(super) bytes: Option<u64>,
    pub(super) how: String,
}

impl DiskDefault {
    pub(super) fn of(machine: &Machine, tables: &str) -> Self {
        let Some(folder) = folder(tables) else {
            return Self { bytes: None, how: "none, because the tables are in an object store".into() };
        };
        // the folder may not exist yet, but one of its parents does
        match folder.ancestors().find_map(machine.disk_bytes) {
            Some(disk_bytes) => {
                let how = format!(
                    "{SHARE_PERCENT} % of the disk of the tables, which has {} MiB",
                    disk_bytes >> 20
                );
                Self { bytes: Some(whole(disk_bytes / 100 * SHARE_PERCENT)), how }
            }
            None => Self { bytes: None, how: "none, because the size of the disk is unknown".into() },
        }
    }
}

fn folder(tables: &str) -> Option<PathBuf> {
    Url::parse(tables).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()
}

/// Rounds down to whole GiB, or to whole MiB if it is below 10 GiB. The result is at least 1 MiB.
const fn whole(bytes: u64) -> u64 {
    let unit_bits = if bytes >= 10 << 30 { 30 } else { 20 };
    let rounded = bytes >> unit_bits << unit_bits;
    if rounded == 0 { 1 << 20 } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Memory;
    use std::path::Path;

    fn default_of(disk_bytes: fn(&Path) -> Option<u64>, tables: &str) -> DiskDefault {
        let memory = Memory { bytes: 1 << 30, source: String::new() };
        DiskDefault::of(&Machine { cores: 1, memory, files_max: 1000, disk_bytes }, tables)
    }

    #[test]
    fn a_part_of_the_disk_stays_free() {
        let check = |tables: &str, expected: Option<u64>, how: &str| {
            let only_root = |path: &Path| (path == Path::new("/")).then_some(1000 << 30);
            let found = default_of(only_root, tables);
            assert!(found.bytes == expected && found.how.contains(how), "{found:?}");
        };
        check(
            "file:///not/yet/there/",
            Some(900 << 30),
            "90 % of the disk of the tables, which has 1024000 MiB",
        );
        check("s3://bucket/folder", None, "object store");
        assert_eq!(default_of(|_| Some(10 << 20), "file:///a/").bytes, Some(8 << 20));
        assert_eq!(default_of(|_| Some(0), "file:///a/").bytes, Some(1 << 20));
        let unknown = default_of(|_| None, "file:///a/");
        assert!(unknown.bytes.is_none() && unknown.how.contains("unknown"), "{unknown:?}");
    }

    #[test]
    fn this_machine_knows_its_disk() {
        assert!((Machine::here().disk_bytes)(Path::new("/")) > Some(1 << 20));
        assert_eq!((Machine::here().disk_bytes)(Path::new("/no/such/folder")), None);
    }
}
