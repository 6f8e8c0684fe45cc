use super::mark::Mark;
use super::quarantine::Quarantine;
use journal::disk::{self, Access};
use journal::{Files, Journal, JournalError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

const JOURNAL: &str = "journal";

const MARK: &str = "mark";

/// The journal of records has one partition.
const PARTITION: u32 = 0;

/// Why a journal is not opened whose batches may be in tables under a name that nobody knows.
const NAMES_LOST: &str = "the journal has records, but the names under which tables know them are lost: records would be \
     stored twice; put the file back, or move the folder away with the records that are not in tables yet";

/// The place of the journal in the data directory. It is made when the first batch arrives, so that a node without records
/// needs no disk space for it.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) dir: PathBuf,
    pub(crate) options: journal::Options,
}

impl Home {
    /// True if a node has made the journal before.
    pub(super) fn exists(&self) -> Result<bool, JournalError> {
        let dir = self.dir.join(JOURNAL);
        match self.options.disk.list(&dir, 1) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(JournalError::io("list", &dir, error)),
        }
    }

    /// Where batches are kept that cannot be decoded.
    pub(super) fn quarantine(&self) -> Quarantine {
        let dir = Files::quarantine_dir(&self.dir.join(JOURNAL), PARTITION);
        Quarantine::new(Arc::clone(&self.options.disk), dir)
    }

    /// Opens the journal, or creates it. Batches that are written from now on have a new name in tables.
    pub(super) fn open(&self) -> Result<(Box<dyn Journal>, Mark), JournalError> {
        let disk = &self.options.disk;
        let failed = |what, path: &std::path::Path| {
            let path = path.to_owned();
            move |error| JournalError::io(what, &path, error)
        };
        disk::create_dir_all(&**disk, &self.dir, Access::Private).map_err(failed("create", &self.dir))?;
        let path = self.dir.join(MARK);
        let mut mark = Mark::open(disk, &path).map_err(failed("open", &path))?;
        let names_lost = || JournalError::io("read", &path, io::Error::other(NAMES_LOST));
        let dir = self.dir.join(JOURNAL);
        // asked before the journal is opened, which gives it a new identity
        if !mark.has_names() && Files::has_lost_identity(&**disk, &dir, PARTITION)? {
            return Err(names_lost());
        }
        let settings = journal::Settings::Files { dir, options: self.options.clone() };
        let mut journal = journal::open(&settings, PARTITION)?;
        let has_records = journal.start() < journal.durable_end();
        journal.skip_to(mark.upto())?;
        if !mark.has_names() && has_records {
            // an earlier version noted no names, and used the journal's own
            if !mark.is_old() {
                return Err(names_lost());
            }
            mark.name_all(journal.identity().id());
        }
        let (start, end) = (journal.start(), journal.durable_end());
        let is_named = mark.begin_name(start, end, self.options.fresh_id).map_err(failed("write", &path))?;
        if !is_named {
            tracing::warn!(
                "the journal of records was opened very often since its oldest batch, and keeps its name: do not put an older copy of it back"
            );
        }
        Ok((journal, mark))
    }
}
