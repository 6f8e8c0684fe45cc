//! Checks that a store supports put-if-absent.
//!
//! Some S3-compatible stores ignore the condition, and a later commit would silently replace an earlier one. So before
//! its first commit, a location puts a probe object twice: the second put must be refused. The object is kept for later
//! checks.

use super::Location;
use crate::error::TableError;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Probe object next to the tenants' folders. No tenant's name contains its `=`.
const NAME: &str = "_floodmark=probe";

/// Name of the probe object in earlier versions. A tenant may have the same name, and the object would block this
/// tenant's folder in a local store.
const FORMER_NAME: &str = "_floodmark.probe";

impl Location {
    /// Fails with [`TableError::NotExclusive`] if the store overwrites objects. Each call checks the store until a
    /// check has succeeded once.
    pub(crate) fn check_exclusive(&self) -> Result<(), TableError> {
        if self.is_exclusive.load(Ordering::Relaxed) { Ok(()) } else { self.wait(self.probe()) }
    }

    /// Makes the check that precedes the first commit, but waits at most `most`. It is no error if the store does not
    /// answer.
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
                // the object may not have existed before the first put, so a second put is needed
                Ok(_) => {
                    let former: Path = self.root.parts().chain([FORMER_NAME.into()]).collect();
                    // if this fails, only a tenant of that name is affected; a tenant's folder is not deleted
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
