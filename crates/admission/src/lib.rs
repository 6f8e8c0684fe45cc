//! Decides whether a write is accepted. This crate has no I/O, no locks and no clock.
//!
//! Each write goes through these checks, in this order. The server gathers the facts that they need.
//!
//! | | check | module |
//! | --- | --- | --- |
//! | 1 | rights, state of the node, tables that cannot be read or written, a full head, size of the tables | [`write`] |
//! | 2 | number of tenants, rate of new tenants, each tenant's own rates | [`tenant_slots`], [`NewTenants`], [`rate`] |
//! | 3 | concurrent requests and their bytes, shared among tenants | [`gate`] |
//! | 4 | samples that another replica of the same Prometheus has sent already | [`election`] |
//! | 5 | the timestamps of samples | [`age`] |
//! | 6 | room in a partition's queue | [`WriteRefusal::QueueFull`] |
//! | 7 | memory for new series and out-of-order samples | [`Head`], [`watermarks`], [`process`] |
//! | 8 | a tenant's [`share`] of the head, its number and rate of series | [`new_series`] |
//! | 9 | whether the sender should retry what was left out | [`postponed`] |
//!
//! Checks 1 to 3 and 6 refuse the whole request ([`WriteRefusal`]). Checks 4, 5, 7 and 8 leave out single
//! series or samples ([`model::SeriesRefusal`]).
//!
//! For what is refused, [`retry`] estimates when it may be accepted.
//!
//! Apart from writes, [`Turns`] decides which tenant's tables are maintained next.

pub mod age;
mod backlog;
pub mod connections;
pub mod election;
pub mod gate;
mod head;
pub mod new_series;
mod new_tenants;
pub mod postponed;
pub mod process;
pub mod rate;
pub mod retry;
pub mod share;
mod table_bytes;
pub mod tenant_slots;
mod turns;
pub mod watermarks;
pub mod write;
mod write_refusal;

pub use backlog::{Backlog, Waiting};
pub use head::Head;
pub use new_tenants::NewTenants;
pub use postponed::{Postponed, Shortage};
pub use process::{MemoryShortage, ProcessMemory};
pub use table_bytes::TableBytes;
pub use turns::Turns;
pub use write_refusal::{RETRY_AFTER, RateLimited, WriteRefusal};
