//! `floodmark lab record`, `replay`, `report` and `compare`.

use crate::cli::result::{PrintArgs, ResultArgs};
use crate::cli::traffic::{LabCompare, LabRecord, LabReplay, LabReport};
use crate::output::{observer, print, say, show};
use crate::signals::stoppable;
use lab::drive::options::RunOptions;
use lab::drive::run::run;
use lab::show::compare::Comparison;
use lab::show::html;
use lab::{RunResult, Scenario, Stop};
use std::io::IsTerminal;

/// Returns true if no write request is missing from the recording.
pub(crate) async fn record(args: &LabRecord) -> anyhow::Result<bool> {
    let stop = Stop::default();
    let options = args.options(stop.clone());
    let report =
        stoppable(&stop, lab::capture::recorder::record(options, &*observer(args.print.quiet))).await?;
    if args.print.json {
        say(report.to_json()?)?;
    } else {
        print(report.to_text(std::io::stdout().is_terminal()))?;
    }
    Ok(report.is_complete())
}

/// Returns true if the whole recording was replayed, and samples were acknowledged.
pub(crate) async fn replay(args: &LabReplay) -> anyhow::Result<bool> {
    let text = args.scenario();
    let scenario = Scenario::parse(&text)?;
    let options = RunOptions { text, access: args.access.access(), ..RunOptions::default() };
    let observer = observer(args.result.print.quiet);
    let result = stoppable(&options.stop, run(&scenario, &options, &*observer)).await?;
    show(&result, &args.result)?;
    Ok(result.passed())
}

pub(crate) fn report(args: &LabReport) -> anyhow::Result<bool> {
    let print = PrintArgs { json: args.json, quiet: true };
    show(&RunResult::load(&args.result)?, &ResultArgs { out: None, views: args.views.clone(), print })?;
    Ok(true)
}

pub(crate) fn compare(args: &LabCompare) -> anyhow::Result<bool> {
    let (a, b) = (RunResult::load(&args.a)?, RunResult::load(&args.b)?);
    let both = Comparison::of(&a, &b);
    let written = args.html.as_ref().map_or(Ok(()), |path| html::save(&both.to_html(&a, &b), path));
    if args.json {
        say(both.to_json()?)?;
    } else {
        print(both.to_text(std::io::stdout().is_terminal()))?;
    }
    written?;
    Ok(true)
}
