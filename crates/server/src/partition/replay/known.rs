//! Removal of duplicates during replay: samples that the journal has twice are loaded once.
//!
//! A crash during a relocation ([`crate::partition::relocate`]) leaves two copies of a tenant's samples. The head would treat
//! the second copy as late samples, and hold both.

use head::TenantHead;
use journal::Record;
use model::{Samples, TimeRange};

/// Limit on the samples decoded for comparison, as a multiple of the record's.
const READ_FACTOR: usize = 2;
const READ_FREE: usize = 1024;

/// True if references and timestamps strictly ascend, as they do in every relocated copy. Then the head alone decides
/// whether a sample is a duplicate, not the rest of the record.
pub(super) fn ascends(record: &Record) -> bool {
    let places = record.refs.iter().zip(&record.timestamps);
    places.is_sorted_by(|a, b| a < b)
}

/// Removes the samples that the head already has. The record's references must be the head's.
pub(super) fn leave_out(head: &TenantHead, record: &mut Record) {
    let (mut from, mut kept) = (0, 0);
    let mut known = Samples::default();
    while from < record.refs.len() {
        let series = record.refs[from];
        let to = from + record.refs[from..].iter().take_while(|other| **other == series).count();
        let range = TimeRange::new(record.timestamps[from], record.timestamps[to - 1]);
        known.clear();
        if range.start_ms <= head.newest_ms(series)
            && head.samples_at_most(series, range) <= READ_FACTOR * (to - from) + READ_FREE
        {
            head.read(series, range, &mut known);
        }
        for i in from..to {
            let (timestamp_ms, value) = (record.timestamps[i], record.values[i]);
            let is_known = known
                .timestamps
                .binary_search(&timestamp_ms)
                .is_ok_and(|at| known.values[at].to_bits() == value.to_bits());
            if !is_known {
                (record.refs[kept], record.timestamps[kept], record.values[kept]) =
                    (series, timestamp_ms, value);
                kept += 1;
            }
        }
        from = to;
    }
    record.refs.truncate(kept);
    record.timestamps.truncate(kept);
    record.values.truncate(kept);
}
