//! Repairs a log that still has all the entries it needs. Checkpoints and the hint only save work, so damaged ones can
//! be put aside.
//!
//! ```text
//!   entries      0  1  2 … 20  21 …  40  41  42          needed: those after the last sound checkpoint
//!   checkpoints            20 ✓      40 ✗   ─▶ _damaged-…40-checkpoint-parquet-…
//! ```
//!
//! If the entries reach back to a sound checkpoint or the first version, damaged checkpoints are renamed and the hint
//! is deleted. Readers of Delta tables ignore the renamed files. Otherwise nothing is changed, and the error says how
//! to repair the log.

use super::failure;
use super::listing::{Checkpoint, FOLDER, Gap, HINT, Listing, LogFile};
use crate::error::TableError;
use crate::read::{self, Depth};
use crate::store::Location;

const DAMAGED: &str = "_damaged-";

struct Damaged<'a> {
    file: &'a LogFile,
    reason: String,
}

pub(super) struct Mended {
    /// Last usable checkpoint.
    pub(super) checkpoint: Option<u64>,
    /// True if a file was renamed or deleted.
    pub(super) any: bool,
}

/// Renames unusable checkpoints so that readers ignore them. Without a `depth`, no file is opened, and only empty files
/// are recognized as unusable.
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
        // the hint may name a checkpoint that was written after the listing
        None if listing.wrong_hint().is_some() => {
            Listing::read(location)?.wrong_hint().map(|reason| (HINT, reason))
        }
        None => None,
    };
    let Some((file, reason)) = found else { return Ok(Mended { checkpoint, any: false }) };
    let Some(repairs) = location.repairs() else {
        // A read-only location stays unchanged. An empty checkpoint does no harm unless the hint names it.
        return match depth {
            Some(_) => Err(failure::damaged(
                location,
                format!("{file} cannot be used: {reason}; a server that opens the table repairs it"),
            )),
            None => Ok(Mended { checkpoint, any: false }),
        };
    };
    // the hint is deleted first, because it would still lead readers to the renamed checkpoint
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

/// Last usable checkpoint, and the damaged files of later checkpoints.
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

/// Says why the file is unusable, if it is. Without a `depth`, the file is not opened.
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

/// Renames a file so that readers ignore it. Returns the new name.
fn put_aside(location: &Location, file: &LogFile) -> Result<String, TableError> {
    // the time makes the name unique, even after repeated damage
    let aside = format!("{DAMAGED}{}-{}", file.name.replace('.', "-"), file.modified_ms);
    location.rename(&format!("{FOLDER}/{}", file.name), &format!("{FOLDER}/{aside}"))?;
    Ok(aside)
}

/// Tells the operator which file makes the log unusable, and how to repair the log.
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
