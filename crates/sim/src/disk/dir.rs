//! A directory: the names in it, those that are durable, and what was changed since.

use std::collections::BTreeMap;
use stdx::rng::Rng;

/// A directory. Files go by their number.
#[derive(Debug, Default)]
pub(super) struct Dir {
    names: BTreeMap<String, u64>,
    durable: BTreeMap<String, u64>,
    changes: Vec<Renaming>,
}

/// A change of a directory.
#[derive(Debug)]
pub(super) enum Renaming {
    /// A name gets a file.
    Add(String, u64),
    /// A name goes.
    Remove(String),
    /// A name becomes another one, which may have a file already.
    Rename(String, String),
}

impl Dir {
    /// The file of a name.
    pub(super) fn file(&self, name: &str) -> Option<u64> {
        self.names.get(name).copied()
    }

    /// All names with their files, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = (&String, u64)> {
        self.names.iter().map(|(name, file)| (name, *file))
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
    pub(super) fn put(&mut self, name: String, file: u64) {
        self.names.insert(name.clone(), file);
        self.durable.insert(name, file);
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
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Add(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
        }
    }

    fn makes(&self, what: &str) -> bool {
        matches!(self, Self::Add(name, _) | Self::Rename(_, name) if name == what)
    }
}
