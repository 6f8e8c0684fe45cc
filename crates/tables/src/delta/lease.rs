//! A lease keeps staged files from being swept, however long a writer takes.
//!
//! ```text
//!   _floodmark/lease-NAME   created before the first file, deleted after the commit, never written again
//!   _floodmark/pulse-NAME   rewritten every minute: the writer is alive
//! ```
//!
//! A lease covers the files whose names begin with `NAME-`. A [`Sweeper`](super::Sweeper) deletes the lease once it has
//! seen the pulse unchanged for [`LEASE_MS`] of its monotonic clock. Clocks of two machines are never compared.
//! [`super::sweep`] explains why no commit can name a deleted file.

use super::Table;
use crate::date::Date;
use crate::error::TableError;
use crate::store::FileStem;
use crate::store::{Location, Staging, Upload};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Folder for Floodmark's own objects. Readers of Delta tables and `VACUUM` ignore names with a leading underscore.
pub(crate) const OWN_FOLDER: &str = "_floodmark";

const LEASE: &str = "lease-";
const PULSE: &str = "pulse-";

const PULSE_MS: i64 = 60_000;

/// A writer counts as dead when its pulse has not changed for this time, in which a living writer rewrites it ten
/// times.
pub const LEASE_MS: i64 = 10 * PULSE_MS;

#[derive(Debug)]
pub struct Lease {
    location: Location,
    stem: FileStem,
    name: Arc<str>,
    beat_ms: i64,
}

impl Table {
    /// Takes a lease on all files whose names begin with `stem`, which must be new. `steady_ms` is the time of a
    /// monotonic clock.
    pub fn lease(&self, stem: FileStem, steady_ms: i64) -> Result<Lease, TableError> {
        let name = stem.to_string().into();
        let mut lease = Lease { location: self.location.clone(), stem, name, beat_ms: steady_ms };
        lease.location.create(&lease.object(LEASE), Bytes::new())?;
        lease.beat(steady_ms)?;
        Ok(lease)
    }

    /// Like [`Table::upload`], but no sweep deletes the file while the lease is kept.
    pub fn upload_leased(&self, lease: &Lease, date: Date, number: u32) -> Result<Upload, TableError> {
        let staging = Staging { lease: Some(Arc::clone(&lease.name)), ..self.staging() };
        self.upload_as(date, &lease.stem, number, staging)
    }

    pub(super) fn has_lease(&self, name: &str) -> Result<bool, TableError> {
        let path = self.location.path(&format!("{OWN_FOLDER}/{LEASE}{name}"))?;
        match self.location.wait(self.location.store().head(&path)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Lease {
    /// Rewrites the pulse if due. Call it more often than once a minute, and again after an error.
    pub fn keep(&mut self, steady_ms: i64) -> Result<(), TableError> {
        if steady_ms.saturating_sub(self.beat_ms) < PULSE_MS { Ok(()) } else { self.beat(steady_ms) }
    }

    fn beat(&mut self, steady_ms: i64) -> Result<(), TableError> {
        self.location.put(&self.object(PULSE), steady_ms.to_string().into())?;
        self.beat_ms = steady_ms;
        Ok(())
    }

    /// Ends the lease after the commit. Otherwise a sweeper deletes the lease later.
    pub fn release(self) -> Result<(), TableError> {
        remove(&self.location, &self.name)
    }

    fn object(&self, kind: &str) -> String {
        format!("{OWN_FOLDER}/{kind}{}", self.name)
    }
}

fn remove(location: &Location, name: &str) -> Result<(), TableError> {
    for kind in [LEASE, PULSE] {
        location.delete(&location.path(&format!("{OWN_FOLDER}/{kind}{name}"))?)?;
    }
    Ok(())
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    seen: HashMap<String, Seen>,
}

/// The last pulse seen, and the time since which it has not changed.
#[derive(Debug)]
struct Seen {
    pulse: Option<Stamp>,
    since_ms: i64,
}

/// Modification time and ETag of an object, which change whenever it is rewritten.
type Stamp = (i64, Option<String>);

/// Names of the leases that were still alive when a sweeper looked.
#[derive(Debug)]
pub(super) struct Held(Vec<String>);

impl Held {
    pub(super) fn covers(&self, file: &Path) -> bool {
        let name = file.filename().unwrap_or_default();
        self.0.iter().any(|lease| FileStem::covers(lease, name))
    }
}

impl Leases {
    /// Deletes leases whose pulse has not changed for `after_ms`, because their writers are dead. Returns the others.
    pub(super) fn look(
        &mut self,
        location: &Location,
        steady_ms: i64,
        after_ms: i64,
    ) -> Result<Held, TableError> {
        let found = list(location)?;
        self.seen.retain(|name, _| found.contains_key(name));
        let mut held = Vec::new();
        for (name, Found { is_lease, pulse }) in found {
            let seen =
                self.seen.entry(name.clone()).or_insert_with(|| Seen { pulse: None, since_ms: steady_ms });
            if seen.pulse != pulse {
                *seen = Seen { pulse, since_ms: steady_ms };
            }
            if steady_ms.saturating_sub(seen.since_ms) >= after_ms {
                remove(location, &name)?;
            } else if is_lease {
                held.push(name);
            }
        }
        Ok(Held(held))
    }
}

#[derive(Debug, Default)]
struct Found {
    is_lease: bool,
    pulse: Option<Stamp>,
}

fn list(location: &Location) -> Result<BTreeMap<String, Found>, TableError> {
    let (store, folder) = (location.store(), location.path(OWN_FOLDER)?);
    let objects: Vec<ObjectMeta> = location.wait(store.list(Some(&folder)).try_collect())?;
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for object in objects {
        let name = object.location.filename().unwrap_or_default();
        if let Some(name) = name.strip_prefix(LEASE) {
            found.entry(name.into()).or_default().is_lease = true;
        } else if let Some(name) = name.strip_prefix(PULSE) {
            let stamp = (object.last_modified.timestamp_millis(), object.e_tag);
            found.entry(name.into()).or_default().pulse = Some(stamp);
        }
    }
    Ok(found)
}
