//! Repairs a log whose entries are all present. Checkpoints, and the hint that names the last checkpoint,
//! only save work. So they can be put aside if they are damaged.
//!
//! ```text
//!   entries      0  1  2 … 20  21 …  40  41  42          needed: those after the last sound checkpoint
//!   checkpoints            20 ✓      40 ✗   ─▶ _damaged-…40-checkpoint-parquet-…
//! ```
//!
//! If the entries reach back to a sound checkpoint or to the first version, damaged checkpoints are renamed, and the hint is
//! deleted. Readers of Delta tables ignore the renamed files. Otherwise nothing is changed, and the error says what is damaged and how to
//! repair it. Only the hint is ever deleted.

use super::failure;
use super::listing::{Checkpoint, FOLDER, Gap, HINT, Listing, LogFile};
use crate::error::TableError;
use crate::read::{self, Depth};
use crate::store::Location;

/// Prefix of names of files that were put aside.
const DAMAGED: &str = "_damaged-";

/// A file of a checkpoint that cannot be used, and the reason.
struct Damaged<'a> {
    file: &'a LogFile,
    reason: String,
}

/// State of the log after the repair.
pub(super) struct Mended {
    /// Version of the last usable checkpoint.
    pub(super) checkpoint: Option<u64>,
    /// True if something was put aside or dropped.
    pub(super) any: bool,
}

/// Finds unusable checkpoints and puts them aside. Without a depth, only empty files are found, which costs
/// nothing; the library
/// reports other damage.
pub(super) fn repair(
    location: &Location,
    listing: &Listing,
    depth: Option<Depth>,
) -> Result<Mended, TableError> {
    let (checkpoint, damaged) = examine(location, listing, depth)?;
    if let Some(gap) = listing.gap(checkpoint) {
        return Err(failure::damaged(location, beyond_repair(listing, &damaged, gap)));
    }
    let found = match damaged.first() {
        Some(Damaged { file, reason }) => Some((file.name.as_str(), reason.clone())),
        // the checkpoint that the hint names may have been written after the files were listed
        None if listing.wrong_hint().is_some() => {
            Listing::read(location)?.wrong_hint().map(|reason| (HINT, reason))
        }
        None => None,
    };
    let Some((file, reason)) = found else { return Ok(Mended { checkpoint, any: false }) };
    let Some(repairs) = location.repairs() else {
        // A read-only location is not changed. An empty checkpoint does no harm unless the hint names it.
        return match depth {
            Some(_) => Err(failure::damaged(
                location,
                format!("{file} cannot be used: {reason}; a server that opens the table repairs it"),
            )),
            None => Ok(Mended { checkpoint, any: false }),
        };
    };
    // the hint first, since it leads readers to the checkpoint
    location.delete(&location.path(&format!("{FOLDER}/{HINT}"))?)?;
    let aside = damaged.iter().map(|damaged| put_aside(location, damaged.file));
    let aside = aside.collect::<Result<Vec<_>, _>>()?;
    repairs.inc();
    tracing::warn!(
        table = %location.url(), file, reason, aside = aside.join(" "),
        "a table's last checkpoint cannot be used: it is renamed, and the log entries are read instead"
    );
    Ok(Mended { checkpoint, any: true })
}

/// The last usable checkpoint, and the damaged files of later checkpoints.
fn examine<'a>(
    location: &Location,
    listing: &'a Listing,
    depth: Option<Depth>,
) -> Result<(Option<u64>, Vec<Damaged<'a>>), TableError> {
    let (mut sound, mut damaged) = (None, Vec::new());
    // a version may have several checkpoints
    for Checkpoint { version, files } in listing.checkpoints() {
        if sound.is_some_and(|sound| sound != version) {
            break;
        }
        let before = damaged.len();
        for file in files {
            if let Some(reason) = flaw(location, file, depth)? {
                damaged.push(Damaged { file, reason });
            }
        }
        if damaged.len() == before {
            sound = Some(version);
        }
    }
    Ok((sound, damaged))
}

/// Flaw of a checkpoint's file, if any. Without a depth the file is not opened.
pub(super) fn flaw(
    location: &Location,
    file: &LogFile,
    depth: Option<Depth>,
) -> Result<Option<String>, TableError> {
    if file.bytes == 0 {
        return Ok(Some("it is empty".into()));
    }
    let Some(depth) = depth.filter(|_| file.name.ends_with(".parquet")) else { return Ok(None) };
    let stored = location.object(&format!("{FOLDER}/{}", file.name), file.bytes)?;
    match read::check(&stored, depth) {
        Ok(()) => Ok(None),
        Err(TableError::Damaged { reason, .. }) => Ok(Some(reason)),
        Err(TableError::Missing { .. }) => Ok(Some("it is missing".into())),
        Err(error) => Err(error),
    }
}

/// Renames a file so that no reader of Delta tables takes it for a file of the log. Returns the new name.
fn put_aside(location: &Location, file: &LogFile) -> Result<String, TableError> {
    // the time makes the name unique if a file is rewritten under the same name and damaged again
    let aside = format!("{DAMAGED}{}-{}", file.name.replace('.', "-"), file.modified_ms);
    location.rename(&format!("{FOLDER}/{}", file.name), &format!("{FOLDER}/{aside}"))?;
    Ok(aside)
}

/// Message for the operator if the log cannot be repaired.
fn beyond_repair(listing: &Listing, damaged: &[Damaged<'_>], gap: Gap) -> String {
    let Some(Damaged { file, reason }) = damaged.first() else {
        let hint = listing.wrong_hint().map(|reason| format!("; {HINT} cannot be used: {reason}"));
        return format!("{gap}{}", hint.unwrap_or_default());
    };
    let LogFile { name, version, .. } = file;
    format!(
        "checkpoint {name} of version {version} cannot be used ({reason}), and cannot be replaced because {gap}: \
         restore the checkpoint or the entries from a copy"
    )
}
