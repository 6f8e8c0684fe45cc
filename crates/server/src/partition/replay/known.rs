//! Removes samples from a record if the head already has them.
//!
//! A crash during a relocation ([`crate::partition::relocate`]) leaves two copies of a tenant's samples in the journal.

use head::TenantHead;
use journal::Record;
use model::{Samples, SeriesRef, TimeRange, Values};

/// Limits how many samples of the head are decoded to find duplicates. If a record has `n` samples of a series, and the
/// head may have more than `READ_FACTOR * n + READ_FREE` in the same time range, they are not compared.
const READ_FACTOR: usize = 2;
const READ_FREE: usize = 1024;

/// True if references and timestamps strictly ascend. They do in every copy that a relocation has written.
pub(super) fn ascends(record: &Record) -> bool {
    let places = record.refs.iter().zip(&record.timestamps);
    places.is_sorted_by(|a, b| a < b)
}

/// Removes samples that the head already has. The record's references must have been translated to those of the head.
pub(super) fn leave_out(head: &TenantHead, record: &mut Record) {
    let Record { refs, timestamps, values, .. } = record;
    match values {
        Values::Floats(values) => leave_out_of(head, refs, timestamps, values),
        Values::Histograms(values) => leave_out_of(head, refs, timestamps, values),
    }
}

fn leave_out_of<V: head::Value>(
    head: &TenantHead,
    refs: &mut Vec<SeriesRef>,
    timestamps: &mut Vec<i64>,
    values: &mut Vec<V>,
) {
    let (mut from, mut kept) = (0, 0);
    let mut known = Samples::<V>::default();
    while from < refs.len() {
        let series = refs[from];
        let to = from + refs[from..].iter().take_while(|other| **other == series).count();
        let range = TimeRange::new(timestamps[from], timestamps[to - 1]);
        known.clear();
        if range.start_ms <= head.newest_ms(series)
            && head.samples_at_most(series, range) <= READ_FACTOR * (to - from) + READ_FREE
        {
            head.read(series, range, &mut known);
        }
        for i in from..to {
            let held = known.timestamps.binary_search(&timestamps[i]);
            if !held.is_ok_and(|at| known.values[at].is_same(&values[i])) {
                (refs[kept], timestamps[kept]) = (series, timestamps[i]);
                values.swap(kept, i);
                kept += 1;
            }
        }
        from = to;
    }
    refs.truncate(kept);
    timestamps.truncate(kept);
    values.truncate(kept);
}
