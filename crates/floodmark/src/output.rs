//! What commands print, and where results of the lab go.

use anyhow::{Context, Result};
use lab::{RunResult, page, summary};
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Writes to stdout. Where nobody reads it any more, or the disk is full, that is an error and not a panic: a terminal
/// that goes away ends a run early, and its result is kept all the same.
pub(crate) fn print(text: impl Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).context("write to stdout")
}

/// A line, likewise.
pub(crate) fn say(line: impl Display) -> Result<()> {
    print(format_args!("{line}\n"))
}

/// A line on stderr, where somebody listens: nothing depends on it.
pub(crate) fn note(line: impl Display) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}

/// Prints a result and writes its files. None of the three keeps the others from being done; the error is that of the
/// first that failed.
pub(crate) fn show(result: &RunResult, json: bool, out: Option<&Path>, html: Option<&Path>) -> Result<()> {
    let saved = out.map_or(Ok(()), |path| result.save(path));
    let written = html.map_or(Ok(()), |path| page::save(&page::html(result), path));
    let printed = match json {
        true => say(result.to_json()?),
        false => print(summary::text(result, std::io::stdout().is_terminal())),
    };
    saved.and(written).and(printed)
}
