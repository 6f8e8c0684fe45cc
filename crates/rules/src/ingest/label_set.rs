//! The labels of a series while rules change them.

use std::borrow::Cow;
use std::cell::Cell;

/// Limit on the number of labels. A series may have a quarter of them, and `labelmap` can double them.
const LABELS_MAX: usize = 512;

/// Limit on the text that the rules add to one series.
pub(super) const ADDED_BYTES_MAX: usize = 1 << 20;

/// Limit on the steps of all rules of a list for one series: 0.2 s at worst. Usual rules take a few thousand.
const STEPS_MAX: usize = 64 << 20;

/// Why rules cannot be applied to a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    #[error("it makes more than {LABELS_MAX} labels")]
    Labels,
    #[error("the rules make more than {} KiB of labels", ADDED_BYTES_MAX >> 10)]
    Bytes,
    #[error("the values of source_labels take more than {0} bytes together")]
    Source(usize),
    #[error("the rules take more than {} million steps for one series", STEPS_MAX >> 20)]
    Steps,
}

/// Counts what rules do for one series, in steps. A step is a byte that is copied or compared, or a label that is passed over.
/// For expressions, it is a byte times a state of the automaton, and times the groups that are asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps(Cell<usize>);

impl Steps {
    pub(super) fn take(&self, steps: usize) -> Result<(), TooMuch> {
        let taken = self.0.get().saturating_add(steps);
        self.0.set(taken);
        if taken > STEPS_MAX { Err(TooMuch::Steps) } else { Ok(()) }
    }
}

type Text<'a> = Cow<'a, str>;

/// Labels in the order in which Prometheus visits them: first those that have not changed, sorted by name, then the others, in
/// the order in which they were set. The order decides which label wins if `labelmap` gives two of them one name.
#[derive(Debug, Clone, Default)]
pub struct LabelSet<'a> {
    labels: Vec<(Text<'a>, Text<'a>)>,
    /// How many of the labels have not changed.
    unchanged: usize,
    added_bytes: usize,
    is_changed: bool,
    pub(super) steps: Steps,
}

impl<'a> LabelSet<'a> {
    /// `labels` must be sorted by name, and have no empty values.
    pub fn new(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let labels: Vec<_> = labels.map(|(name, value)| (name.into(), value.into())).collect();
        Self { unchanged: labels.len(), labels, ..Self::default() }
    }

    /// True if a label was set or removed, even if its value is as before.
    pub const fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (&**name, &**value))
    }

    pub(super) const fn count(&self) -> usize {
        self.labels.len()
    }

    /// The value of a label, or an empty text.
    pub fn get(&self, name: &str) -> &str {
        self.place(name).map_or("", |place| &self.labels[place].1)
    }

    /// Sets a label. An empty value removes it.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), TooMuch> {
        if value.is_empty() {
            self.remove(name);
            return Ok(());
        }
        self.steps.take(self.labels.len())?;
        self.added_bytes += name.len() + value.len();
        if self.added_bytes > ADDED_BYTES_MAX {
            return Err(TooMuch::Bytes);
        }
        self.is_changed = true;
        match self.place(name) {
            Some(place) if place >= self.unchanged => {
                self.labels[place].1 = value.to_owned().into();
                return Ok(());
            }
            Some(place) => self.remove_at(place),
            None if self.labels.len() == LABELS_MAX => return Err(TooMuch::Labels),
            None => {}
        }
        self.labels.push((name.to_owned().into(), value.to_owned().into()));
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(place) = self.place(name) {
            self.is_changed = true;
            self.remove_at(place);
        }
    }

    /// Keeps only the labels whose name is selected.
    pub(super) fn retain(
        &mut self,
        is_kept: impl Fn(&str, &Steps) -> Result<bool, TooMuch>,
    ) -> Result<(), TooMuch> {
        let mut place = 0;
        while place < self.labels.len() {
            if is_kept(&self.labels[place].0, &self.steps)? {
                place += 1;
            } else {
                self.is_changed = true;
                self.remove_at(place);
            }
        }
        Ok(())
    }

    fn remove_at(&mut self, place: usize) {
        self.labels.remove(place);
        self.unchanged -= usize::from(place < self.unchanged);
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.labels.iter().position(|(found, _)| found == name)
    }
}
