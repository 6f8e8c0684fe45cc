//! Commands of the state machine, the events that answer them, and the state of the node that the machine observes.

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

/// Command for the driver. An event answers each command except [`Self::Answer`] and [`Self::Report`]. No other command is
/// issued before the last one is answered.
#[derive(Debug)]
pub(crate) enum Command {
    /// Freeze a partition's head, except some tenants. Answered by [`Event::Frozen`].
    Freeze {
        partition: usize,
        all: bool,
        except: BTreeSet<TenantId>,
    },
    /// Write frozen samples of these tenants to files, from the day after the given one on. Answered by [`Event::Staged`].
    Stage {
        partition: usize,
        tenants: BTreeMap<TenantId, Option<Date>>,
    },
    /// Read tables' floodmarks of these partitions' journals. Answered by [`Event::Checked`].
    Check {
        tenants: BTreeMap<TenantId, Vec<usize>>,
        is_own: bool,
    },
    /// Rename a partition's journal. Answered by [`Event::Done`].
    Rename(Rename),
    /// Write `floodmarks.json`. Answered by [`Event::Done`].
    WriteMarks(MarkUpdate),
    /// Commit staged files, in one log entry for each tenant. Answered by [`Event::Committed`].
    Commit {
        blocks: BTreeMap<TenantId, Vec<Block>>,
        is_own: bool,
    },
    /// Wait for queries of the generation `since` and of earlier generations; `None` ends the current generation first.
    /// Answered by [`Event::Readers`].
    AwaitReaders {
        since: Option<Ended>,
        at_most: Duration,
    },
    /// Expire queries of this generation and of earlier generations. These queries restart. Answered by
    /// [`Event::Done`].
    ExpireReaders(Ended),
    /// Drop sealed samples from a partition's head and journal. Answered by [`Event::Done`].
    Release {
        partition: usize,
        what: SealedSamples,
    },
    /// Rewrite the samples of the tenants that retain a partition's journal, at the journal's end. Done only if all
    /// these tenants are in `movable` and have no commits in doubt. Answered by [`Event::Relocated`].
    Relocate {
        partition: usize,
        movable: BTreeSet<TenantId>,
    },
    /// Truncate a partition's journal to its mark. Answered by [`Event::Done`].
    Truncate {
        partition: usize,
    },
    /// Read the floodmarks in tables of closed tenants, partition by partition from `first` on, until some tables of a
    /// partition can be read. Answered by [`Event::Asked`].
    AskClosed {
        first: usize,
    },
    /// Replay some of the journal for closed tenants whose tables can be read. Answered by [`Event::Replayed`].
    ReplayClosed,
    Answer {
        flush: FlushId,
        flushed: Flushed,
    },
    /// Publish a change of state: to the log, to metrics, and to admission.
    Report(Report),
}

/// Result of a command, or a request from outside.
#[derive(Debug)]
pub(crate) enum Event {
    /// The time given by [`super::Sealing::wake_in`] has passed. Comes only between turns.
    Tick,
    /// A flush is requested.
    Flush(FlushId),
    /// A flush of one tenant is requested, which is answered when its samples have left the heads.
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
    /// Result of waiting for queries of the generation `since` and of earlier generations: `are_gone` is true if all
    /// have ended.
    Readers {
        since: Ended,
        are_gone: bool,
    },
    /// Result of a relocation; `None` if none was tried.
    Relocated(Option<Moved>),
    /// The partition whose journal is being replayed for closed tenants now.
    Asked {
        replaying: Option<usize>,
    },
    Replayed(ClosedTurn),
    /// The command was executed.
    Done,
    /// The command failed.
    Failed(SealError),
}

/// Results of a command on many tables, by tenant.
#[derive(Debug)]
pub(crate) struct PerTenant<T> {
    pub(crate) results: BTreeMap<TenantId, Result<T, SealError>>,
    /// Reason that tenants are missing from the results; `None` if no tenant is missing.
    pub(crate) cut_short: Option<SealError>,
}

/// One partition's staged files of a tenant.
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
    /// End of a commit whose outcome is not noted.
    pub(crate) attempt: Option<u64>,
    /// True if the marks account for the floodmark. Otherwise it belongs to another journal of the same name.
    pub(crate) is_known: bool,
}

/// Renaming of a journal whose name some tables know from another journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rename {
    pub(crate) partition: usize,
    /// The journal's current name.
    pub(crate) source: String,
    /// End of the records that this round takes.
    pub(crate) end: u64,
    /// Tenants whose table has the journal up to `end`.
    pub(crate) sealed: BTreeSet<TenantId>,
    /// Tenants whose table may have part of these records: their table keeps the old name.
    pub(crate) in_doubt: BTreeSet<TenantId>,
    /// Tenants whose table knows the name from the other journal.
    pub(crate) conflicting: BTreeSet<TenantId>,
}

/// A completed relocation.
#[derive(Debug)]
pub(crate) struct Moved {
    /// All samples of the tenants in the journal below this offset are frozen.
    pub(crate) upto: Offset,
    /// Start of the copy; `None` if it is incomplete.
    pub(crate) from: Option<Offset>,
    /// The tenants, and whether any of their samples are frozen.
    pub(crate) tenants: BTreeMap<TenantId, bool>,
}

/// A change of state.
#[derive(Debug)]
pub(crate) enum Report {
    /// A round failed, for the `failures`th time in sequence.
    Failed { error: SealError, failures: u32 },
    /// A round, or a pass of a round, is committed.
    Committed,
    /// A round has ended. `has_failed` is true if attempts at the round failed before.
    Ended { flushed: Flushed, duration: Duration, has_failed: bool },
    /// True if the last round that had tenants to seal has sealed any.
    OthersAreSealed(bool),
    /// A tenant is blocked; `number` counts the tenants that a round blocks, from 0 to `count - 1`. Without an error,
    /// the tenant has passes left.
    Blocked { tenant: TenantId, since_ms: i64, error: Option<SealError>, number: usize, count: usize },
    /// A retry of a blocked tenant failed.
    StillBlocked { tenant: TenantId, error: SealError, failures: u32 },
    /// A tenant's samples are sealed after it was blocked for `blocked_ms`.
    Unblocked { tenant: TenantId, samples: u64, blocked_ms: i64 },
    /// Samples of blocked tenants were relocated, and the journal is shorter.
    Relocated { partition: usize, tenants: usize },
    /// A relocation could not be noted.
    RelocationFailed { partition: usize, error: SealError },
}

/// State of the node at the time of an event.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Time by the monotonic clock.
    pub(crate) now: Instant,
    /// Time by the wall clock, in milliseconds since the Unix epoch.
    pub(crate) now_ms: i64,
    /// True if replay has ended in all partitions.
    pub(crate) is_ready: bool,
    /// True if all partitions can be frozen.
    pub(crate) can_freeze: bool,
    /// Arrival of the oldest sample that is in no round, in milliseconds since the Unix epoch.
    pub(crate) unsealed_since_ms: Option<i64>,
    /// Maximum over all partitions of the bytes in the journal that are in no round.
    pub(crate) unsealed_bytes: u64,
    pub(crate) head_bytes: u64,
    /// True if the heads, or the late samples in them, have reached the sealing watermark.
    pub(crate) is_filled: bool,
    pub(crate) closed: BTreeSet<TenantId>,
    /// Length of each partition's journal, in bytes.
    pub(crate) journal_bytes: Vec<u64>,
}
