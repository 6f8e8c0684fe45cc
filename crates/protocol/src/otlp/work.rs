//! Limits on the work of a request.
//!
//! A batch has limits of its own. But much of what a message asks for leaves nothing in the batch: points are refused,
//! exemplars have no bucket, scopes have no metrics. Such items take two bytes of the message, and each may repeat work
//! on the labels of its resource. So items are counted when they are read, and these counts never go back.

use super::walk::LABELS_BYTES_MAX;
use crate::DecodeError;
use model::caps::{REQUEST_EXTRAS_MAX, REQUEST_SERIES_MAX};

/// Limit on the bytes of labels that are worked out and not stored: labels of refused points, and names and values that
/// are arranged anew for a scope or for other attributes. If each point has a scope of its own and is stored, they are
/// about three times as many as the bytes that are stored, which have a limit themselves.
const UNSTORED_BYTES_MAX: usize = 4 * LABELS_BYTES_MAX;

/// What arranging a label costs in addition to the bytes of its name and value.
const LABEL_BYTES: usize = 8;

/// What a request has done so far.
#[derive(Debug, Default)]
pub(super) struct Work {
    resources: usize,
    scopes: usize,
    metrics: usize,
    points: usize,
    exemplars: usize,
    unstored_bytes: usize,
}

impl Work {
    pub(super) fn resource(&mut self) -> Result<(), DecodeError> {
        count(&mut self.resources, "resources", REQUEST_SERIES_MAX)
    }

    pub(super) fn scope(&mut self) -> Result<(), DecodeError> {
        count(&mut self.scopes, "scopes", REQUEST_SERIES_MAX)
    }

    pub(super) fn metric(&mut self) -> Result<(), DecodeError> {
        count(&mut self.metrics, "metrics", REQUEST_SERIES_MAX)
    }

    /// Counts a point. Each point that is stored has at least one series.
    #[inline(always)]
    pub(super) fn point(&mut self) -> Result<(), DecodeError> {
        count(&mut self.points, "points", REQUEST_SERIES_MAX)
    }

    /// Counts an exemplar, whether it is stored or not.
    pub(super) fn exemplar(&mut self) -> Result<(), DecodeError> {
        count(&mut self.exemplars, "exemplars", REQUEST_EXTRAS_MAX)
    }

    /// Counts labels that were or will be worked out without being stored.
    pub(super) fn unstored(&mut self, labels: usize, bytes: usize) -> Result<(), DecodeError> {
        self.unstored_bytes += bytes + labels * LABEL_BYTES;
        match self.unstored_bytes > UNSTORED_BYTES_MAX {
            true => {
                let what = "bytes of labels that are not stored";
                Err(DecodeError::TooMany { what, limit: UNSTORED_BYTES_MAX })
            }
            false => Ok(()),
        }
    }
}

#[inline(always)]
fn count(seen: &mut usize, what: &'static str, limit: usize) -> Result<(), DecodeError> {
    *seen += 1;
    if *seen > limit {
        return Err(DecodeError::TooMany { what, limit });
    }
    Ok(())
}
