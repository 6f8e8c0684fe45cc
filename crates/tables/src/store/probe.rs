//! Checks that a store supports put-if-absent.
//!
//! Commits rely on put-if-absent: of two writers of one log entry, one must be refused. Some S3-compatible stores accept the
//! condition and ignore it; then the later commit silently replaces the earlier one. So before its first commit, a location puts
//! a probe object twice, and the second put must be refused. The object is kept, so that later a single put is enough.

use super::Location;
use crate::error::TableError;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Name of the probe object. It is next to the tenants' folders, so it contains a character that no tenant's name has.
const NAME: &str = "_floodmark=probe";

/// Name in earlier versions. A tenant may have the same name; on local files, the probe would then be in the way of the tenant's
/// folder.
const FORMER_NAME: &str = "_floodmark.probe";

impl Location {
    /// Fails with [`TableError::NotExclusive`] if the store overwrites an existing object. The check is repeated until it has
    /// succeeded once.
    pub(crate) fn check_exclusive(&self) -> Result<(), TableError> {
        if self.is_exclusive.load(Ordering::Relaxed) { Ok(()) } else { self.wait(self.probe()) }
    }

    /// Makes the same check as before a commit, for at most `most`. A store that does not answer is not an error.
    pub fn check_exclusive_within(&self, most: Duration) -> Result<(), TableError> {
        match self.wait(async { tokio::time::timeout(most, self.probe()).await }) {
            Ok(Err(error @ TableError::NotExclusive { .. })) => Err(error),
            _ => Ok(()),
        }
    }

    async fn probe(&self) -> Result<(), TableError> {
        let path: Path = self.root.parts().chain([NAME.into()]).collect();
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        for _ in 0..2 {
            match self.store.put_opts(&path, NAME.into(), options.clone()).await {
                // the first put may create the object
                Ok(_) => {
                    let former: Path = self.root.parts().chain([FORMER_NAME.into()]).collect();
                    // if deleting fails, only the tenant of that name is affected; a folder of this name is not deleted
                    let _ = self.store.delete(&former).await;
                }
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                    self.is_exclusive.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(Error::NotImplemented { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Err(TableError::NotExclusive { url: super::shown(&self.url) })
    }
}
