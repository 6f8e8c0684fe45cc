//! `floodmark lab record`, `replay`, `report` and `compare`.

use crate::cli::traffic::{LabCompare, LabOutput, LabRecord, LabReplay, LabReport};
use crate::load::observer;
use crate::scenario::stop_on_signals;
use lab::compare::Comparison;
use lab::{RunResult, Stop, page, summary};
use std::io::IsTerminal;

/// True where every settled write request was recorded.
pub(crate) async fn record(args: &LabRecord) -> anyhow::Result<bool> {
    let options = args.options(Stop::default());
    stop_on_signals(&options.stop)?;
    let report = lab::record::record(options, &*observer(args.quiet)).await?;
    let table = std::io::stdout().is_terminal();
    print!("{}", if args.json { report.to_json()? + "\n" } else { report.to_text(table) });
    Ok(report.is_complete())
}

/// True where the replay was whole and something was acknowledged.
pub(crate) async fn replay(args: &LabReplay) -> anyhow::Result<bool> {
    let options = args.options(Stop::default());
    stop_on_signals(&options.stop)?;
    let result = lab::replay::replay(&options, &*observer(args.output.quiet)).await?;
    show(&result, &args.output)?;
    Ok(!result.partial && result.totals.samples_acknowledged > 0)
}

/// Prints a result and writes its files. What could not be written is an error, after all has been printed.
pub(crate) fn show(result: &RunResult, output: &LabOutput) -> anyhow::Result<()> {
    let table = std::io::stdout().is_terminal();
    print!("{}", if output.json { result.to_json()? + "\n" } else { summary::text(result, table) });
    let saved = output.out.as_ref().map_or(Ok(()), |path| result.save(path));
    let html = output.html.as_ref().map_or(Ok(()), |path| page::save(&page::html(result), path));
    saved.and(html)
}

/// Shows a result that was kept.
pub(crate) fn report(args: &LabReport) -> anyhow::Result<bool> {
    let result = RunResult::load(&args.result)?;
    print!("{}", summary::text(&result, std::io::stdout().is_terminal()));
    if let Some(path) = &args.html {
        page::save(&page::html(&result), path)?;
    }
    Ok(true)
}

/// Puts two results side by side.
pub(crate) fn compare(args: &LabCompare) -> anyhow::Result<bool> {
    let (a, b) = (RunResult::load(&args.a)?, RunResult::load(&args.b)?);
    let both = Comparison::of(&a, &b);
    let table = std::io::stdout().is_terminal();
    print!("{}", if args.json { both.to_json()? + "\n" } else { both.to_text(table) });
    if let Some(path) = &args.html {
        page::save(&both.to_html(&a, &b), path)?;
    }
    Ok(true)
}
