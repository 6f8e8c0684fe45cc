//! Decides whether a write is accepted. Decisions are pure: no I/O, no locks, no clock; `now` is an argument.
//!
//! A write passes the following checks in this order. The server gathers the facts and acts on the decisions.
//!
//! | | check | module |
//! | --- | --- | --- |
//! | 1 | the principal's rights, the state of the node, closed and blocked tenants, a full head, a tenant's bytes on disk | [`write`] |
//! | 2 | limits on tenants: their number, the rate of new tenants, each tenant's own rates | [`tenant_slots`], [`NewTenants`], [`rate`] |
//! | 3 | concurrent requests and the bytes that they hold, shared among tenants | [`gate`] |
//! | 4 | duplicates from other replicas of a Prometheus | [`election`] |
//! | 5 | the timestamps of samples | [`age`] |
//! | 6 | room in a partition's queue | [`WriteRefusal::QueueFull`] |
//! | 7 | room for new series and late samples, by the head's [`watermarks`] and the process's memory | [`Head`], [`process`] |
//! | 8 | a tenant's [`share`] of the head, its number of series and its rate of new series | [`new_series`] |
//! | 9 | whether a retry is worthwhile for the omitted series and samples | [`postponed`] |
//!
//! Checks 1 to 3 and 6 refuse the whole request ([`WriteRefusal`]). Checks 4, 5, 7 and 8 leave out single series or
//! samples ([`model::SeriesRefusal`]).

pub mod age;
mod backlog;
mod disk;
pub mod election;
pub mod gate;
mod head;
pub mod new_series;
mod new_tenants;
pub mod postponed;
pub mod process;
pub mod rate;
pub mod share;
pub mod tenant_slots;
pub mod watermarks;
pub mod write;
mod write_refusal;

pub use backlog::{Backlog, Waiting};
pub use disk::Disk;
pub use head::Head;
pub use new_tenants::NewTenants;
pub use postponed::{Postponed, Shortage};
pub use process::ProcessMemory;
pub use write_refusal::{RETRY_AFTER, RateLimited, WriteRefusal};
