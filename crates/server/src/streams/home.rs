use super::mark::Mark;
use journal::disk::{self, Access};
use journal::{Journal, JournalError};
use std::io;
use std::path::PathBuf;

const JOURNAL: &str = "journal";

const MARK: &str = "mark";

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

    /// Opens the journal, or creates it.
    pub(super) fn open(&self) -> Result<(Box<dyn Journal>, Mark), JournalError> {
        let disk = &*self.options.disk;
        let failed = |what, path: &std::path::Path| {
            let path = path.to_owned();
            move |error| JournalError::io(what, &path, error)
        };
        disk::create_dir_all(disk, &self.dir, Access::Private).map_err(failed("create", &self.dir))?;
        let settings =
            journal::Settings::Files { dir: self.dir.join(JOURNAL), options: self.options.clone() };
        let mut journal = journal::open(&settings, 0)?;
        let path = self.dir.join(MARK);
        let mark = Mark::open(disk, &path).map_err(failed("open", &path))?;
        journal.skip_to(mark.upto())?;
        Ok((journal, mark))
    }
}
