use std::collections::BTreeMap;
use stdx::rng::Rng;

#[derive(Debug, Default)]
pub(super) struct Dir {
    names: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
    changes: Vec<DirChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File(u64),
    Dir,
}

#[derive(Debug)]
pub(super) enum DirChange {
    Add(String, Entry),
    Remove(String),
    Rename(String, String),
}

impl Dir {
    pub(super) fn file(&self, name: &str) -> Option<u64> {
        match self.names.get(name)? {
            Entry::File(file) => Some(*file),
            Entry::Dir => None,
        }
    }

    pub(super) fn has_dir(&self, name: &str) -> bool {
        self.names.get(name) == Some(&Entry::Dir)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (&String, Entry)> {
        self.names.iter().map(|(name, entry)| (name, *entry))
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&String, u64)> {
        self.names().filter_map(|(name, entry)| match entry {
            Entry::File(file) => Some((name, file)),
            Entry::Dir => None,
        })
    }

    pub(super) fn change(&mut self, change: DirChange) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        self.durable.clone_from(&self.names);
        self.changes.clear();
    }

    pub(super) fn put(&mut self, name: String, entry: Entry) {
        self.names.insert(name.clone(), entry);
        self.durable.insert(name, entry);
    }

    pub(super) fn clear(&mut self) {
        self.names.retain(|_, entry| *entry == Entry::Dir);
        self.durable.clone_from(&self.names);
        self.changes.clear();
    }

    /// Removes a name, even if the power fails later. Returns false if there is no such name.
    pub(super) fn delete(&mut self, name: &str) -> bool {
        self.durable.remove(name);
        self.changes.retain(|change| !change.makes(name));
        self.names.remove(name).is_some()
    }

    /// Simulates a power loss: all changes after a randomly chosen one are lost.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        let done = rng.below(self.changes.len() as u64 + 1) as usize;
        for change in self.changes.drain(..).take(done) {
            change.apply(&mut self.durable);
        }
        self.names.clone_from(&self.durable);
    }
}

impl DirChange {
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
