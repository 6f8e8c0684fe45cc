//! Input and output of the state machine: events, the state of the node, and commands.

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

/// Command for the driver. Each command is answered by an event, except [`Self::Answer`] and [`Self::Report`]. The
/// next command is executed after the answer.
#[derive(Debug)]
pub(crate) enum Command {
    /// Freeze a partition's head, except the samples of the tenants in `except`. Answered by [`Event::Frozen`].
    Freeze {
        partition: usize,
        all: bool,
        except: BTreeSet<TenantId>,
    },
    /// Write frozen samples to files. For each tenant, the files begin on the day after the given date. Answered by
    /// [`Event::Staged`].
    Stage {
        partition: usize,
        tenants: BTreeMap<TenantId, Option<Date>>,
    },
    /// Read the floodmarks that these tenants' tables have for the journals of these partitions. Answered by
    /// [`Event::Checked`].
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
    /// Wait for queries that began in the generation `since` or earlier. If `since` is `None`, first end the current
    /// generation and wait for its queries. Answered by [`Event::Readers`].
    AwaitReaders {
        since: Option<Ended>,
        at_most: Duration,
    },
    /// Make queries that began in this generation or earlier restart. Answered by [`Event::Done`].
    ExpireReaders(Ended),
    /// Remove samples that are in tables from a head and its journal. Answered by [`Event::Done`].
    Release {
        partition: usize,
        what: SealedSamples,
    },
    /// Copy samples of blocked tenants to the journal's end. This is done only if all tenants that keep the journal
    /// from being truncated are in `movable`, and if the outcome of each of their commits is known. Answered by
    /// [`Event::Relocated`].
    Relocate {
        partition: usize,
        movable: BTreeSet<TenantId>,
    },
    /// Delete the part of a journal that no tenant needs. Answered by [`Event::Done`].
    Truncate {
        partition: usize,
    },
    /// Try to read the tables of closed tenants, beginning with those of partition `first`. Answered by
    /// [`Event::Asked`].
    AskClosed {
        first: usize,
    },
    /// Do some of the replay for closed tenants. Answered by [`Event::Replayed`].
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
    /// The time that [`super::Sealing::wake_in`] has given is over. This event comes only between turns.
    Tick,
    Flush(FlushId),
    FlushTenant(FlushId, TenantId),
    /// The client that requested the flush is gone.
    Abandoned(FlushId),
    /// A partition is frozen. Its frozen samples belong to `tenants`.
    Frozen {
        frozen: Frozen,
        tenants: BTreeSet<TenantId>,
    },
    Staged(PerTenant<Staged>),
    Checked(PerTenant<Vec<Found>>),
    Committed(PerTenant<Flushed>),
    /// `are_gone` is true if all queries that began in the generation `since` or earlier have ended.
    Readers {
        since: Ended,
        are_gone: bool,
    },
    /// `None` if the samples could not be relocated.
    Relocated(Option<Moved>),
    /// `replaying` is the partition whose journal is now being replayed for closed tenants, if there is one.
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
    /// Why results of some tenants are missing; `None` if all of them are present.
    pub(crate) cut_short: Option<SealError>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) partition: usize,
    pub(crate) upto: u64,
    pub(crate) staged: Staged,
}

/// The floodmark that a table has for the journal of a partition.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) partition: usize,
    /// Name under which the table knows the journal.
    pub(crate) source: String,
    pub(crate) upto: Option<u64>,
    /// End of a commit that was begun earlier and whose outcome is unknown.
    pub(crate) attempt: Option<u64>,
    /// False if the floodmark was written by a different journal that has the same name.
    pub(crate) is_known: bool,
}

/// A journal gets a new name because tables have offsets that a different journal with the same name has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rename {
    pub(crate) partition: usize,
    pub(crate) source: String,
    /// End of the records that the round seals.
    pub(crate) end: u64,
    /// Tenants whose table already has all of their records up to `end`.
    pub(crate) sealed: BTreeSet<TenantId>,
    /// Tenants whose table may have some of the records. For these tables, the journal keeps its old name for now.
    pub(crate) in_doubt: BTreeSet<TenantId>,
    /// Tenants whose table has offsets of the different journal that has the same name.
    pub(crate) conflicting: BTreeSet<TenantId>,
}

#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) upto: Offset,
    pub(crate) from: Option<Offset>,
    /// The tenants, each with true if it has frozen samples.
    pub(crate) tenants: BTreeMap<TenantId, bool>,
}

#[derive(Debug)]
pub(crate) enum Report {
    /// A round has failed `failures` times in a row.
    Failed { error: SealError, failures: u32 },
    /// A round, or one of several passes over a blocked tenant's days, is committed.
    Committed,
    /// A round begins. Between the last round, which has not failed, and this one, the heads took at least `least_bytes`.
    Began { least_bytes: u64 },
    /// A round has ended. `has_failed` is true if the round had to be retried.
    Ended { flushed: Flushed, duration: Duration, has_failed: bool },
    /// True if the latest round that had tenants to seal could seal at least one of them.
    OthersAreSealed(bool),
    /// A tenant is blocked. It is number `number` of the `count` tenants that this round blocks. If there is no
    /// error, the tenant has too many days for one commit.
    Blocked { tenant: TenantId, since_ms: i64, error: Option<SealError>, number: usize, count: usize },
    /// A retry of a blocked tenant failed.
    StillBlocked { tenant: TenantId, error: SealError, failures: u32 },
    /// All samples of a tenant that was blocked are in its table.
    Unblocked { tenant: TenantId, samples: u64, blocked_ms: i64 },
    /// Samples of blocked tenants were copied to the journal's end.
    Relocated { partition: usize, tenants: usize },
    /// Samples of blocked tenants could not be copied to the journal's end, or the copy could not be used.
    RelocationFailed { partition: usize, error: SealError },
}

/// State of the node at an event.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) now: Instant,
    pub(crate) now_ms: i64,
    /// True once all journals are replayed.
    pub(crate) is_ready: bool,
    pub(crate) can_freeze: bool,
    /// Arrival time of the oldest sample that no round has frozen, in Unix milliseconds.
    pub(crate) unsealed_since_ms: Option<i64>,
    /// Number of bytes that no round has frozen, in the journal where this number is largest.
    pub(crate) unsealed_bytes: u64,
    pub(crate) head_bytes: u64,
    /// True if the heads, or the late samples in them, have reached the level at which they are sealed to free
    /// memory.
    pub(crate) is_filled: bool,
    pub(crate) closed: BTreeSet<TenantId>,
    pub(crate) journal_bytes: Vec<u64>,
}
