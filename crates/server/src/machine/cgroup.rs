//! Memory limit of the control groups that the process belongs to.
//!
//! ```text
//!   /proc/self/cgroup      the group in each hierarchy             4:memory:/a/b      0::/a/b
//!   /proc/self/mountinfo   mount points of the hierarchies         … /a /sys/fs/cgroup/memory … - cgroup … rw,memory
//!   <mount>/b, <mount>     the group and its ancestors, each with its limits
//! ```
//!
//! A version 1 or version 2 hierarchy controls memory. The smallest limit of all groups up to the root applies.

use std::fs::read_to_string;
use std::path::{Component, Path, PathBuf};

/// Larger values mean that there is no limit. Version 1 reports 2^63 minus a page.
const UNLIMITED: u64 = 1 << 62;

pub(super) fn memory_limit(root: &Path) -> Option<(u64, PathBuf)> {
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut mounts: Vec<_> = mounts.lines().filter_map(Mount::parse).collect();
    if mounts.is_empty() {
        mounts.push(Mount { version: Version::Two, group: "/".into(), at: "/sys/fs/cgroup".into() });
    }
    let groups: Vec<_> = groups.lines().filter_map(group_of).collect();
    let limits = mounts.iter().flat_map(|mount| {
        let own = groups.iter().find(|(version, _)| *version == mount.version);
        own.map(|(_, group)| mount.limits(root, group)).unwrap_or_default()
    });
    limits.filter(|(bytes, _)| *bytes < UNLIMITED).min()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// A hierarchy of version 1 that has the controller `memory`.
    One,
    Two,
}

fn group_of(line: &str) -> Option<(Version, PathBuf)> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let version = match controllers {
        "" if number == "0" => Version::Two,
        _ if controllers.split(',').any(|c| c == "memory") => Version::One,
        _ => return None,
    };
    Some((version, path.into()))
}

struct Mount {
    version: Version,
    /// The group that is visible at the mount point. In a container, it may be the container's own group.
    group: PathBuf,
    at: PathBuf,
}

impl Mount {
    /// Parses a line of `/proc/self/mountinfo`:
    /// `36 35 98:0 <root> <mount point> <options> [tags…] - <type> <source> <options>`.
    fn parse(line: &str) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut what = what.split(' ');
        let version = match (what.next()?, what.nth(1).unwrap_or_default()) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", options) if options.split(',').any(|o| o == "memory") => Version::One,
            _ => return None,
        };
        let mut place = place.split(' ').skip(3).map(|path| PathBuf::from(unescaped(path)));
        Some(Self { version, group: place.next()?, at: place.next()? })
    }

    fn limits(&self, root: &Path, group: &Path) -> Vec<(u64, PathBuf)> {
        let top = root.join(self.at.strip_prefix("/").unwrap_or(&self.at));
        let mut dir = top.join(self.below(group));
        // if a namespace hides the path of the group, begin with the nearest visible ancestor
        while !dir.is_dir() && dir != top && dir.pop() {}
        let mut limits = Vec::new();
        while dir.starts_with(&top) {
            self.limits_of(&dir, &mut limits);
            if !dir.pop() {
                break;
            }
        }
        limits
    }

    fn below(&self, group: &Path) -> PathBuf {
        let below = group.strip_prefix(&self.group).or_else(|_| group.strip_prefix("/")).unwrap_or(group);
        // a path such as `/../x` is a group outside of the process' namespace
        let is_seen = below.components().all(|part| matches!(part, Component::Normal(_)));
        if is_seen { below.into() } else { PathBuf::new() }
    }

    fn limits_of(&self, dir: &Path, limits: &mut Vec<(u64, PathBuf)>) {
        let names: &[&str] = match self.version {
            // above `memory.high`, the kernel does not kill the process but throttles it
            Version::Two => &["memory.max", "memory.high"],
            Version::One => &["memory.limit_in_bytes"],
        };
        for path in names.iter().map(|name| dir.join(name)) {
            let bytes = read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            limits.extend(bytes.map(|bytes| (bytes, path)));
        }
        if self.version == Version::One {
            // a container cannot see its ancestors, but these statistics contain the smallest of their limits
            let path = dir.join("memory.stat");
            let stat = read_to_string(&path).unwrap_or_default();
            let bytes = stat.lines().find_map(|l| l.strip_prefix("hierarchical_memory_limit ")?.parse().ok());
            limits.extend(bytes.map(|bytes| (bytes, path)));
        }
    }
}

/// Decodes octal escapes, such as `\040` for a blank.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests;
