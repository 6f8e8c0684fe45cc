//! The memory of all heads together, and what there is room for.

use super::budget::Budget;
use super::headroom::Headroom;
use crate::partition::shared::Partitions;
use admission::{Head, watermarks};
use model::SeriesError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of the heads and its limits.
#[derive(Debug)]
pub(crate) struct HeadMemory {
    partitions: Arc<Partitions>,
    headroom: Arc<Headroom>,
    limit_bytes: u64,
    exemplars_bytes: usize,
    metadata_bytes: usize,
    /// The most that the heads held at any look.
    peak_bytes: AtomicU64,
}

impl HeadMemory {
    pub(crate) fn new(partitions: Arc<Partitions>, headroom: Arc<Headroom>, budget: &Budget) -> Self {
        Self {
            exemplars_bytes: budget.exemplars_bytes() as usize / partitions.len(),
            metadata_bytes: budget.metadata_bytes() as usize / partitions.len(),
            limit_bytes: budget.head_bytes,
            partitions,
            headroom,
            peak_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes that all partitions' heads hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.partitions.iter().map(|p| p.head_bytes.load(Ordering::Relaxed)).sum()
    }

    /// The same, noted for [`Self::peak_bytes`].
    fn noted_bytes(&self) -> u64 {
        let bytes = self.bytes();
        if bytes > self.peak_bytes.load(Ordering::Relaxed) {
            self.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
        bytes
    }

    /// The most that all partitions' heads ever held.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.noted_bytes();
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Current memory and its limits. Called for each admission, so the peak is noted here.
    pub(crate) fn head(&self) -> Head {
        Head { used_bytes: self.noted_bytes(), limit_bytes: self.limit_bytes }
    }

    /// The heads hold so many percent of what they may: see [`admission::watermarks`].
    pub(crate) fn is_filled_to(&self, percent: u64) -> bool {
        self.head().is_filled_to(percent)
    }

    /// Late samples may hold more; the error says how much.
    pub(crate) fn room_for_late_samples(&self) -> Result<(), SeriesError> {
        self.head().room_for_late(self.late_bytes())
    }

    /// Bytes that late samples hold in all partitions' heads.
    pub(crate) fn late_bytes(&self) -> u64 {
        self.partitions.iter().map(|p| p.late_bytes.load(Ordering::Relaxed)).sum()
    }

    /// The heads, or the late samples' share of them, are so full that sealing is to make room.
    pub(crate) fn press_to_seal(&self) -> bool {
        self.head().needs_sealing(self.late_bytes())
    }

    /// Limit on one partition's exemplars: a fifth as much while the head needs the memory for series and samples.
    pub(crate) fn exemplar_limit_bytes(&self) -> usize {
        let share = self.exemplars_bytes;
        if self.is_filled_to(watermarks::EVICT_ALL) { share / 5 } else { share }
    }

    /// Limit on one partition's metadata.
    pub(crate) const fn metadata_limit_bytes(&self) -> usize {
        self.metadata_bytes
    }

    /// Checks for room for new series. Known series may still be written if there is none.
    pub(crate) fn room_for_series(&self) -> Result<(), SeriesError> {
        self.head().room_for_series()?;
        self.headroom.memory().room()
    }
}
