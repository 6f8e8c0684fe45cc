//! Finds the segments and the durable end of a journal when it is opened, even after a crash.

use super::quarantine::Quarantine;
use super::scan::{Scanner, Step};
use super::segment::{self, Headers, UNFINISHED};
use super::window::Window;
use super::writer::sync_dir;
use super::{Durability, Options, Segment};
use crate::JournalError;
use crate::disk::{Disk, Listed, Mode};
use std::io;
use std::path::Path;

const SEGMENTS_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Found {
    /// All segments, oldest first. If offsets are missing between them, readers report that.
    pub(super) segments: Vec<Segment>,
    pub(super) end: u64,
    pub(super) torn_bytes: u64,
}

/// Lists the segments in `dir`, which must exist, and finds where the newest one ends.
pub(super) fn recover(
    dir: &Path,
    partition: u32,
    options: &Options,
    quarantine: &Quarantine,
) -> Result<Found, JournalError> {
    let mut found = Found { segments: list(&*options.disk, dir)?, ..Found::default() };
    if let Some(newest) = found.segments.last_mut() {
        (found.end, found.torn_bytes) = recover_newest(dir, partition, newest, options, quarantine)?;
    }
    sync_dir(dir, options)?;
    Ok(found)
}

/// Changes nothing. The folder may be missing.
pub(super) fn has_segments(disk: &dyn Disk, dir: &Path) -> Result<bool, JournalError> {
    match disk.list(dir, SEGMENTS_MAX) {
        Ok(files) => Ok(files.iter().any(|file| segment::first_of(&file.name).is_some())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(JournalError::io("list", dir, e)),
    }
}

fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<Segment>, JournalError> {
    let in_dir = |e| JournalError::io("list", dir, e);
    let mut segments = Vec::new();
    for Listed { name, bytes } in disk.list(dir, SEGMENTS_MAX).map_err(in_dir)? {
        if let Some(first) = segment::first_of(&name) {
            segments.push(Segment { first: first.0, bytes });
        } else if Path::new(&name).extension().is_some_and(|extension| extension == UNFINISHED) {
            // a crash interrupted the creation of this segment, so it has no records
            let path = dir.join(name);
            disk.remove(&path).map_err(|e| JournalError::io("remove", &path, e))?;
        }
    }
    segments.sort_unstable_by_key(|segment| segment.first);
    Ok(segments)
}

fn recover_newest(
    dir: &Path,
    partition: u32,
    newest: &mut Segment,
    options: &Options,
    quarantine: &Quarantine,
) -> Result<(u64, u64), JournalError> {
    let path = segment::path(dir, newest.first);
    let mut window = Window::open(&*options.disk, &path)?;
    let Some(header) = Headers::read(&mut window, partition, newest.first)?.header else {
        // Without the salt in the header, no record of the segment can be read. The next records get offsets
        // behind all those that the unreadable records may have had.
        let content = window.end_of_content(0)?;
        return Ok((newest.first + content.div_ceil(super::frame::FRAME_HEADER_BYTES as u64), 0));
    };
    let mut scanner = Scanner::new(window, header.salt, newest.first, None);
    let end = loop {
        match scanner.step()? {
            Step::End { at } => break at,
            // only the end matters here, and damage is reported by readers
            Step::Record { .. } | Step::Damage(_) => {}
        }
    };
    let torn = end..scanner.window().end_of_content(end)?;
    if !torn.is_empty() {
        quarantine.put_torn(scanner.window(), &torn);
    }
    let file = options.disk.open(&path, Mode::Change).map_err(|e| JournalError::io("open", &path, e))?;
    if scanner.window().len() > end {
        file.set_len(end).map_err(|e| JournalError::io("truncate", &path, e))?;
    }
    if options.durability == Durability::Fsync {
        // From now on, readers can read these records, even if they were never synced, so they must become
        // durable.
        file.sync_data().map_err(|e| JournalError::io("fdatasync", &path, e))?;
    }
    newest.bytes = end;
    Ok((scanner.next_offset(), torn.end - torn.start))
}
