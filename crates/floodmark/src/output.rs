//! Prints the output of commands, and writes the lab's results to files.

use crate::cli::result::ResultArgs;
use anstream::{AutoStream, ColorChoice};
use anyhow::{Context, Result};
use lab::show::{html, junit, markdown, summary};
use lab::{Observer, RunResult, Silent, Stderr};
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Writes to stdout. If the reader has closed the pipe, this is not an error, but a full disk is one.
pub(crate) fn print(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Returns true if output on stderr may be coloured. The variables `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE`
/// and `TERM` are respected. If none of them decides, only a terminal gets colours.
pub(crate) fn colours_stderr() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

pub(crate) fn say(line: impl Display) -> Result<()> {
    print(format_args!("{line}\n"))
}

/// Writes a line to stderr. A failure is ignored, because there is nowhere else to report it.
pub(crate) fn note(line: impl Display) {
    writeln!(io::stderr().lock(), "{line}").ok();
}

/// Returns the observer that shows the lab's progress on stderr, or shows nothing if `quiet`.
pub(crate) fn observer(quiet: bool) -> Box<dyn Observer> {
    if quiet { Box::new(Silent) } else { Box::new(Stderr::new()) }
}

/// Formats an error with its causes. A cause is omitted if the text already ends with it.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

/// Prints a result and writes its files. If one of these fails, the others are still done, and the first
/// error is returned.
pub(crate) fn show(result: &RunResult, args: &ResultArgs) -> Result<()> {
    let saved = save(result, args);
    let printed = match args.print.json {
        true => say(result.to_json()?),
        false => print(summary::text(result, io::stdout().is_terminal())),
    };
    saved.and(printed)
}

/// Writes a result's files. If one of these fails, the others are still written, and the first error is
/// returned.
pub(crate) fn save(result: &RunResult, args: &ResultArgs) -> Result<()> {
    let saved = args.out.as_ref().map_or(Ok(()), |path| result.save(path));
    type View = fn(&RunResult) -> String;
    let views: [(_, View); 3] = [
        (&args.views.html, html::of),
        (&args.views.markdown, markdown::text),
        (&args.views.junit, junit::text),
    ];
    let written =
        views.map(|(path, view)| path.as_ref().map_or(Ok(()), |path| html::save(&view(result), path)));
    written.into_iter().fold(saved, Result::and)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_printed_once() {
        let error = io::Error::other("no such disk");
        let repeating = anyhow::Error::new(error).context("read a: no such disk").context("cannot start");
        assert_eq!(causes(&repeating), "cannot start: read a: no such disk");
        let plain = anyhow::anyhow!("c").context("b").context("a");
        assert_eq!(causes(&plain), "a: b: c");
    }
}
