//! Commands and events of the state machine, and the observed state of the node.

use super::flushes::FlushId;
use super::marks::MarkUpdate;
use crate::partition::{ClosedTurn, Frozen, SealedSamples};
use crate::seal::error::SealError;
use crate::seal::flushed::Flushed;
use crate::seal::pins::Ended;
use journal::Offset;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tables::Date;
use tables::stage::Staged;

/// Command for the driver. An event answers each command except [`Self::Answer`] and [`Self::Report`]. The next command
/// comes after the answer.
#[derive(Debug)]
pub(crate) enum Command {
    /// Freeze a partition's head, except some tenants. Answered by [`Event::Frozen`].
    Freeze {
        partition: usize,
        all: bool,
        except: BTreeSet<TenantId>,
    },
    /// Write frozen samples to files. Each tenant begins on the day after the given date. Answered by [`Event::Staged`].
    Stage {
        partition: usize,
        tenants: BTreeMap<TenantId, Option<Date>>,
    },
    /// Read tables' floodmarks of these partitions' journals. Answered by [`Event::Checked`].
    Check {
        tenants: BTreeMap<TenantId, Vec<usize>>,
        is_own: bool,
    },
    /// Rename a journal. Answered by [`Event::Done`].
    Rename(Rename),
    /// Write `floodmarks.json`. Answered by [`Event::Done`].
    WriteMarks(MarkUpdate),
    /// Commit staged files, one log entry per tenant. Answered by [`Event::Committed`].
    Commit {
        blocks: BTreeMap<TenantId, Vec<Block>>,
        is_own: bool,
    },
    /// Wait for queries up to the generation `since`; `None` ends the current generation first. Answered by
    /// [`Event::Readers`].
    AwaitReaders {
        since: Option<Ended>,
        at_most: Duration,
    },
    /// Expire queries up to this generation. Answered by [`Event::Done`].
    ExpireReaders(Ended),
    /// Drop sealed samples from a head and its journal. Answered by [`Event::Done`].
    Release {
        partition: usize,
        what: SealedSamples,
    },
    /// Rewrite samples at a journal's end, if all tenants that retain the journal are in `movable` without a commit in
    /// doubt. Answered by [`Event::Relocated`].
    Relocate {
        partition: usize,
        movable: BTreeSet<TenantId>,
    },
    /// Truncate a journal to its mark. Answered by [`Event::Done`].
    Truncate {
        partition: usize,
    },
    /// Read closed tenants' tables from partition `first` on. Answered by [`Event::Asked`].
    AskClosed {
        first: usize,
    },
    /// Replay some of the journal for closed tenants. Answered by [`Event::Replayed`].
    ReplayClosed,
    Answer {
        flush: FlushId,
        flushed: Flushed,
    },
    Report(Report),
}

/// Result of a command, or an external request.
#[derive(Debug)]
pub(crate) enum Event {
    /// The time of [`super::Sealing::wake_in`] has passed. Comes only between turns.
    Tick,
    Flush(FlushId),
    FlushTenant(FlushId, TenantId),
    /// The requester of a flush is gone.
    Abandoned(FlushId),
    /// A partition is frozen, with samples of these tenants.
    Frozen {
        frozen: Frozen,
        tenants: BTreeSet<TenantId>,
    },
    Staged(PerTenant<Staged>),
    Checked(PerTenant<Vec<Found>>),
    Committed(PerTenant<Flushed>),
    /// Result of waiting: `are_gone` is true if all queries up to the generation `since` have ended.
    Readers {
        since: Ended,
        are_gone: bool,
    },
    /// `None` if no relocation was tried.
    Relocated(Option<Moved>),
    /// The partition whose journal is being replayed for closed tenants.
    Asked {
        replaying: Option<usize>,
    },
    Replayed(ClosedTurn),
    Done,
    Failed(SealError),
}

#[derive(Debug)]
pub(crate) struct PerTenant<T> {
    pub(crate) results: BTreeMap<TenantId, Result<T, SealError>>,
    /// Reason that tenants are missing from the results.
    pub(crate) cut_short: Option<SealError>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) partition: usize,
    pub(crate) upto: u64,
    pub(crate) staged: Staged,
}

/// A table's floodmark of a partition's journal.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) partition: usize,
    /// The journal's name in the table.
    pub(crate) source: String,
    pub(crate) upto: Option<u64>,
    /// End of a commit with unknown outcome.
    pub(crate) attempt: Option<u64>,
    /// False if the floodmark belongs to another journal of the same name.
    pub(crate) is_known: bool,
}

/// Renaming of a journal because tables have offsets of another journal with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rename {
    pub(crate) partition: usize,
    pub(crate) source: String,
    /// End offset of the round's records.
    pub(crate) end: u64,
    /// Tenants whose table has all their records up to `end`.
    pub(crate) sealed: BTreeSet<TenantId>,
    /// Tenants whose table may have some of the records and keeps the old name.
    pub(crate) in_doubt: BTreeSet<TenantId>,
    /// Tenants whose table has offsets of the other journal with this name.
    pub(crate) conflicting: BTreeSet<TenantId>,
}

#[derive(Debug)]
pub(crate) struct Moved {
    /// The tenants' samples below this offset are frozen.
    pub(crate) upto: Offset,
    /// Start of the copy; `None` if it is incomplete.
    pub(crate) from: Option<Offset>,
    /// The tenants, and whether they have frozen samples.
    pub(crate) tenants: BTreeMap<TenantId, bool>,
}

#[derive(Debug)]
pub(crate) enum Report {
    /// A round failed, for the `failures`th time in a row.
    Failed { error: SealError, failures: u32 },
    /// A round or a pass is committed.
    Committed,
    /// A round has ended. `has_failed` is true if attempts at the round failed before.
    Ended { flushed: Flushed, duration: Duration, has_failed: bool },
    /// True if the last round with tenants to seal has sealed at least one tenant.
    OthersAreSealed(bool),
    /// A tenant is blocked, the `number`th of `count` in this round. Without an error, the tenant has passes left.
    Blocked { tenant: TenantId, since_ms: i64, error: Option<SealError>, number: usize, count: usize },
    /// A retry of a blocked tenant failed.
    StillBlocked { tenant: TenantId, error: SealError, failures: u32 },
    /// A blocked tenant's samples are sealed.
    Unblocked { tenant: TenantId, samples: u64, blocked_ms: i64 },
    /// Samples of blocked tenants were relocated.
    Relocated { partition: usize, tenants: usize },
    /// A relocation could not be noted.
    RelocationFailed { partition: usize, error: SealError },
}

/// State of the node at an event.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) now: Instant,
    /// Time by the wall clock, in Unix milliseconds.
    pub(crate) now_ms: i64,
    /// True after replay.
    pub(crate) is_ready: bool,
    pub(crate) can_freeze: bool,
    /// Arrival of the oldest sample that is in no round, in Unix milliseconds.
    pub(crate) unsealed_since_ms: Option<i64>,
    /// Most bytes of one journal that are in no round.
    pub(crate) unsealed_bytes: u64,
    pub(crate) head_bytes: u64,
    /// True if the heads or their late samples have reached the sealing watermark.
    pub(crate) is_filled: bool,
    pub(crate) closed: BTreeSet<TenantId>,
    pub(crate) journal_bytes: Vec<u64>,
}
