//! What an export reads: the series of one tenant, or those of several tenants as if they were one tenant's.

use crate::query_source::{Across, Context, Source};
use model::TenantSet;
use query::{Interrupt, SeriesSource};
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Stored<'a> {
    One(Source<'a>),
    /// Each series has a label that names its tenant.
    Several(Across<'a>),
}

impl<'a> Stored<'a> {
    pub(super) fn of(
        context: &'a Arc<Context>,
        tenants: &TenantSet,
        samples_max: u64,
        canceled: &Arc<dyn Interrupt>,
    ) -> Self {
        match tenants.only() {
            Some(tenant) => {
                let source = Source::new(context, tenant.clone(), samples_max, Arc::clone(canceled));
                Self::One(source.leasing())
            }
            None => Self::Several(Across::unrecorded(context, tenants, samples_max, canceled).leasing()),
        }
    }

    pub(super) fn series(&self) -> &dyn SeriesSource {
        match self {
            Self::One(source) => source,
            Self::Several(across) => across,
        }
    }

    /// Warnings about data that could not be read.
    pub(super) fn left_out(&self) -> Vec<String> {
        match self {
            Self::One(source) => source.left_out(),
            Self::Several(across) => across.left_out(),
        }
    }

    /// True if a series that was returned may be returned again.
    pub(super) fn may_repeat_series(&self) -> bool {
        match self {
            Self::One(source) => source.may_repeat_series(),
            Self::Several(across) => across.may_repeat_series(),
        }
    }

    /// True if a file was deleted while it was read, so that the result may be inconsistent.
    pub(super) fn has_lost_files(&self) -> bool {
        match self {
            Self::One(source) => source.has_lost_files(),
            Self::Several(across) => across.has_lost_files(),
        }
    }

    /// True if the series read last may be incomplete, so that the export must start again.
    pub(super) fn is_expired(&self) -> bool {
        match self {
            Self::One(source) => source.is_expired(),
            Self::Several(across) => across.is_expired(),
        }
    }
}
