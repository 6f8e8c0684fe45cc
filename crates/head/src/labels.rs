//! Which label pairs each series has, packed.

use crate::paged::Paged;
use crate::pairs::{PairId, Pairs};
use model::labels::put_label;
use model::{LabelsRef, SeriesRef};

/// The pairs of every series, in order of their names.
#[derive(Debug, Default)]
pub(crate) struct LabelSets {
    sets: Paged<Box<[PairId]>>,
    heap_bytes: usize,
    scratch: Vec<PairId>,
    /// The series created last: its neighbour usually differs in one label.
    previous: Vec<PairId>,
}

impl LabelSets {
    /// Interns the labels of the next series.
    pub(crate) fn push(&mut self, labels: LabelsRef<'_>, pairs: &mut Pairs) -> SeriesRef {
        let series = SeriesRef(self.sets.len() as u32);
        self.scratch.clear();
        for (i, (name, value)) in labels.iter().enumerate() {
            let known = self.previous.get(i).copied().filter(|p| pairs.text(*p) == (name, value));
            let id = known.unwrap_or_else(|| pairs.intern(name, value));
            self.scratch.push(id);
            pairs.add_series(id, series);
        }
        self.heap_bytes += self.scratch.len() * size_of::<PairId>();
        self.sets.push(self.scratch.as_slice().into());
        std::mem::swap(&mut self.previous, &mut self.scratch);
        series
    }

    /// Appends the canonical label bytes of a series.
    pub(crate) fn write(&self, series: SeriesRef, pairs: &Pairs, out: &mut Vec<u8>) {
        for id in self.sets.get(series.index()) {
            let (name, value) = pairs.text(*id);
            put_label(out, name.as_bytes(), value.as_bytes());
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.sets.memory_bytes() + self.heap_bytes
    }
}
