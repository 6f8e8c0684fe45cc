//! A directory: the names in it, those that are durable, and what was changed since.

use std::collections::BTreeMap;
use stdx::rng::Rng;

/// A directory.
#[derive(Debug, Default)]
pub(super) struct Dir {
    names: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
    changes: Vec<Renaming>,
}

/// Named entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// A file, by its number.
    File(u64),
    /// A directory.
    Dir,
}

/// A change of a directory.
#[derive(Debug)]
pub(super) enum Renaming {
    /// Something gets a name.
    Add(String, Entry),
    /// A name goes.
    Remove(String),
    /// A name becomes another one, which may have a file already.
    Rename(String, String),
}

impl Dir {
    /// The file of a name.
    pub(super) fn file(&self, name: &str) -> Option<u64> {
        match self.names.get(name)? {
            Entry::File(file) => Some(*file),
            Entry::Dir => None,
        }
    }

    /// True if a directory of this name exists.
    pub(super) fn has_dir(&self, name: &str) -> bool {
        self.names.get(name) == Some(&Entry::Dir)
    }

    /// All names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = (&String, Entry)> {
        self.names.iter().map(|(name, entry)| (name, *entry))
    }

    /// All files, by name.
    pub(super) fn files(&self) -> impl Iterator<Item = (&String, u64)> {
        self.names().filter_map(|(name, entry)| match entry {
            Entry::File(file) => Some((name, file)),
            Entry::Dir => None,
        })
    }

    /// Makes a change, which a power loss may take back.
    pub(super) fn change(&mut self, change: Renaming) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    /// Makes all changes durable.
    pub(super) fn sync(&mut self) {
        self.durable.clone_from(&self.names);
        self.changes.clear();
    }

    /// Puts a name there for good.
    pub(super) fn put(&mut self, name: String, entry: Entry) {
        self.names.insert(name.clone(), entry);
        self.durable.insert(name, entry);
    }

    /// Takes all files away for good.
    pub(super) fn clear(&mut self) {
        self.names.retain(|_, entry| *entry == Entry::Dir);
        self.durable.clone_from(&self.names);
        self.changes.clear();
    }

    /// Takes a name away for good. False where it is not there.
    pub(super) fn delete(&mut self, name: &str) -> bool {
        self.durable.remove(name);
        self.changes.retain(|change| !change.makes(name));
        self.names.remove(name).is_some()
    }

    /// Leaves what a power loss leaves: a prefix of the changes.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        let done = rng.below(self.changes.len() as u64 + 1) as usize;
        for change in self.changes.drain(..).take(done) {
            change.apply(&mut self.durable);
        }
        self.names.clone_from(&self.durable);
    }
}

impl Renaming {
    fn apply(&self, names: &mut BTreeMap<String, Entry>) {
        match self {
            Self::Add(name, entry) => drop(names.insert(name.clone(), *entry)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(entry) = names.remove(from) {
                    names.insert(to.clone(), entry);
                }
            }
        }
    }

    fn makes(&self, what: &str) -> bool {
        matches!(self, Self::Add(name, _) | Self::Rename(_, name) if name == what)
    }
}
