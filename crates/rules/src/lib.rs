//! Rule files: carbon's, and those about what is stored.
//!
//! The text of a file goes in, and decisions about names come out. The crate has no files, no clock and no
//! threads.
//!
//! | file | type | decides |
//! | --- | --- | --- |
//! | `storage-schemas.conf`, `storage-aggregation.conf` | [`Schemas`] | steps, retention and consolidation of a series |
//! | `rewrite-rules.conf` | [`Rewrites`] | the name under which a series is stored |
//! | `whitelist.conf`, `blacklist.conf` | [`NameList`] | which names are stored at all |
//! | `aggregation-rules.conf` | [`Aggregations`] | which series are computed from the points of others |
//! | rules of each tenant (YAML) | [`IngestRules`] | which series are dropped, and which labels the others get |
//!
//! A name is a path with its tags, as Graphite writes it: `servers.web1.load` or `disk.used;host=web1`.
//!
//! Files that carbon accepts are accepted unchanged, except for expressions that need backtracking. Carbon skips
//! what it cannot read and goes on. This crate returns an error instead, so that the caller can keep its
//! earlier rules.

pub mod aggregations;
mod archive;
mod error;
pub mod fuzz;
pub mod ingest;
mod ini;
mod list;
mod method;
mod pattern;
mod rewrites;
mod schemas;

pub use aggregations::Aggregations;
pub use archive::{Archive, parse_archives};
pub use error::RuleError;
pub use ingest::IngestRules;
pub use list::NameList;
pub use method::Method;
pub use rewrites::{Rewrites, SEARCHED_BYTES_MAX};
pub use schemas::{Schema, Schemas};

/// Limit on the bytes of a rule file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Limit on the rules of a file. A new name is compared with all of them, at about 0.1 µs for each rewrite rule.
pub const RULES_MAX: usize = 1000;
