use journal::JournalError;
use model::TenantId;
use std::io;
use std::time::Duration;
use stdx::budget::Exhausted;
use tables::TableError;

/// A job that takes longer than its time limit. The job goes on, but nobody waits for its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("requests for the tenant's table have taken more than {} s; they continue in the background", .0.as_secs())]
pub(crate) struct Overdue(pub(super) Duration);

/// A failed step of sealing. It is retried after any error except [`Self::Stopping`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("floodmarks.json: {0}")]
    Manifest(#[from] io::Error),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Memory(#[from] Exhausted),
    #[error("native histograms cannot be sealed yet: there is no table for them")]
    Histograms,
    #[error("partition {0} is closed")]
    Closed(usize),
    #[error(
        "cannot commit samples of tenant {tenant}: its table already has offsets of a different journal that is also named {journal}"
    )]
    Renamed { tenant: TenantId, journal: String },
    #[error("a sweep may have deleted files before their commit; the files will be written again")]
    Lapsed,
    #[error(transparent)]
    Overdue(#[from] Overdue),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("the server is shutting down")]
    Stopping,
    #[cfg(test)]
    #[error("injected at {0}")]
    Injected(&'static str),
}

impl SealError {
    /// True if the error concerns one table only, so that the tables of other tenants can still be sealed.
    pub(super) const fn is_of_one_table(&self) -> bool {
        matches!(self, Self::Table(_) | Self::Overdue(_) | Self::Histograms)
    }
}
