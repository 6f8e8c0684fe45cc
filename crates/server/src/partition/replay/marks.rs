//! Determines which records of the journal are already in tables.

use super::Owner;
use crate::seal::Mark;
use journal::{Offset, Record};
use model::TenantId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tables::Date;
use tables::delta::Floodmark;

/// Once this many tables could not be read, no further tables are tried, because the whole store is probably
/// unavailable.
const UNREADABLE_MAX: usize = 8;

impl Owner {
    /// Determines which samples of a tenant's record are in its table. This is usually known from the marks; the
    /// table is read only if a commit was interrupted. If the table cannot be read, the tenant is closed.
    pub(super) fn is_sealed(&self, marks: &mut Marks, tenant: &TenantId, offset: Offset) -> Sealed {
        let (source, upto, attempt) = marks.noted.lookup(tenant);
        if offset.0 < upto {
            return Sealed::All;
        }
        if marks.closed.contains(tenant) {
            return Sealed::Later;
        }
        if attempt.is_none_or(|attempt| offset.0 >= attempt) {
            return Sealed::None;
        }
        if let Some(floodmark) = marks.asked.get(tenant) {
            return Sealed::of(floodmark, offset);
        }
        let why = if marks.closed.len() < UNREADABLE_MAX {
            match self.context.lake.settled_floodmark(tenant, source) {
                Ok(floodmark) => {
                    let floodmark = Arc::new(floodmark.unwrap_or_default());
                    let sealed = Sealed::of(&floodmark, offset);
                    marks.asked.insert(tenant.clone(), floodmark);
                    return sealed;
                }
                Err(error) => {
                    let partition = self.number;
                    tracing::error!(partition, %tenant, %error, "cannot read a table; its tenant is closed until the table can be read");
                    format!("its table cannot be read: {error}")
                }
            }
        } else {
            format!(
                "its table has not been read yet, because {UNREADABLE_MAX} other tables could not be read"
            )
        };
        self.context.lake.close(self.number, tenant, why, self.context.clock.now_ms());
        marks.closed.insert(tenant.clone());
        Sealed::Later
    }

    /// Saves the floodmarks of the tables that had to be read.
    ///
    /// If this journal is an old copy, tables may have offsets that this journal never assigned. The journal then gets
    /// a new identity, because new records would otherwise count as sealed.
    pub(super) fn settle(&self, marks: &Marks) {
        let (mark, asked) = (&marks.noted, &marks.asked);
        let end = self.journal.durable_end().0;
        self.context.lake.keep_in_doubt(self.number, end);
        if asked.values().any(|floodmark| floodmark.end() > end) {
            let beyond = |(tenant, floodmark): (&TenantId, &Arc<Floodmark>)| {
                let sealed = floodmark.upto.min(end);
                (sealed > mark.lookup(tenant).1).then(|| (tenant.clone(), sealed))
            };
            let sealed: BTreeMap<_, _> = asked.iter().filter_map(beyond).collect();
            tracing::error!(
                partition = self.number,
                "tables contain offsets beyond the end of this journal: they were written from another journal, or this journal lost its end"
            );
            if let Err(error) = self.context.lake.rename_source(self.number, end, sealed) {
                tracing::error!(partition = self.number, %error, "cannot give the journal another name in tables");
            }
        } else if mark.is_in_doubt() {
            let found = asked.iter().map(|(tenant, floodmark)| (tenant, &**floodmark));
            self.context.lake.settle(self.number, end, found);
        }
    }
}

#[derive(Debug)]
pub(super) struct Marks {
    pub(super) noted: Mark,
    /// Floodmarks that had to be read from tables, because the marks did not settle what the tables have.
    pub(super) asked: HashMap<TenantId, Arc<Floodmark>>,
    pub(super) closed: HashSet<TenantId>,
}

impl Marks {
    pub(super) fn of(noted: Mark) -> Self {
        Self { noted, asked: HashMap::new(), closed: HashSet::new() }
    }

    /// True if an interrupted relocation may have left two copies of the tenant's samples in the journal.
    pub(super) fn may_repeat(&self, tenant: &TenantId) -> bool {
        self.noted.is_unknown() || self.noted.tenants.contains_key(tenant.as_str())
    }

    /// True if it is certain that no table has samples of records at `offset` or later.
    pub(super) fn is_behind_all(&self, offset: Offset) -> bool {
        !self.noted.is_unknown()
            && offset.0 >= self.noted.floor()
            && self.asked.values().all(|floodmark| offset.0 >= floodmark.end())
    }
}

/// Tells which samples of a record are in the tenant's table.
#[derive(Debug)]
pub(super) enum Sealed {
    None,
    /// Only the samples of some days are in the table.
    Days(Arc<Floodmark>),
    All,
    /// It is unknown what the table has, because the tenant is closed. Its samples are replayed later
    /// ([`super::closed_tenants`]).
    Later,
}

impl Sealed {
    pub(super) fn of(floodmark: &Arc<Floodmark>, offset: Offset) -> Self {
        if offset.0 < floodmark.upto {
            Self::All
        } else if offset.0 >= floodmark.end() {
            Self::None
        } else {
            Self::Days(Arc::clone(floodmark))
        }
    }

    /// Removes samples from a record if they are in the table. Returns their number.
    pub(super) fn leave_out(&self, record: &mut Record, offset: Offset) -> u64 {
        let floodmark = match self {
            Self::Days(floodmark) => floodmark,
            Self::Later => {
                record.clear_samples();
                return 0;
            }
            Self::None | Self::All => return 0,
        };
        record.retain(|_, timestamp_ms| !floodmark.covers(offset.0, Date::of(timestamp_ms))) as u64
    }
}
