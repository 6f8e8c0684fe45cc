//! The newest data in memory: series and their recent samples, compressed.
//!
//! ```text
//!   Partition ── one owner appends; readers share
//!     └─ TenantHead ── nothing is shared between tenants
//!          ├─ index      key (hash of the label bytes) → series
//!          ├─ pairs      every label pair once, with its postings
//!          ├─ labels     which pairs a series has
//!          ├─ series     64 hot bytes each: the open chunk and where the sealed ones are
//!          └─ late       samples that came out of order
//! ```
//!
//! There are no locks, threads or clocks. The caller wraps a [`Partition`] in a lock and decides on
//! admission.

mod chunk;
mod columns;
mod evict;
mod exemplars;
mod extras;
mod freeze;
mod growth;
mod hide;
mod index;
mod labels;
mod largest;
mod late;
mod metric_sizes;
mod order;
mod paged;
mod pair;
mod pairs;
mod partition;
mod pin;
mod postings;
mod ranks;
mod select;
mod series;
mod tenant;
mod untagged;
mod value;

pub use chunk::{Chunk, Full, OpenChunk, SAMPLES_MAX};
pub use columns::Columns;
pub use evict::Idle;
pub use exemplars::EXEMPLARS_MAX;
pub use extras::{Extras, MetadataRefusal};
pub use growth::{Gain, Gained, Gains};
pub use hide::Hiding;
pub use index::Index;
pub use largest::Largest;
pub use order::FrozenOrder;
pub use pair::{NameCount, PairCount};
pub use partition::{Evicted, Partition};
pub use pin::{Lease, Pin};
pub use select::Selection;
pub use select::filter::{Filter, FilterKind};
pub use select::walk::{Among, Walk};
pub use series::SERIES_BYTES_MIN;
pub use tenant::{AppendStats, TenantHead};
pub use untagged::UntaggedWalk;
pub use value::Value;
