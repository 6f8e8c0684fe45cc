//! `floodmark lab`: runs it and prints the report.

use crate::cli::load::LabCommand;
use crate::scenario;
use crate::traffic;
use anyhow::Context;
use lab::{Ledger, Observer, Silent, Stderr};
use std::io::IsTerminal;
use stdx::clock::{Clock, SystemClock};

/// True where nothing was lost or damaged.
pub(crate) fn run(command: LabCommand) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(report(&command))
}

async fn report(command: &LabCommand) -> anyhow::Result<bool> {
    let table = std::io::stdout().is_terminal();
    let (text, good) = match command {
        LabCommand::Run(args) => return scenario::run(args).await,
        LabCommand::FindLimit(args) => return scenario::limit(args).await,
        LabCommand::FindMinimum(args) => return scenario::minimum(args).await,
        LabCommand::Race(args) => return scenario::run_race(args).await,
        LabCommand::Merge(args) => return scenario::merge(args),
        LabCommand::Write(args) => {
            let options = args.options(SystemClock.now_ms())?;
            let stop = options.stop.clone();
            tokio::spawn(async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    stop.now();
                }
            });
            let report = lab::write(&options, &*observer(args.quiet)).await?;
            if let Some(path) = &args.ledger {
                report.ledger.save(path)?;
            }
            let text = if args.json { report.to_json()? + "\n" } else { report.to_text(table) };
            (text, report.is_good())
        }
        LabCommand::Verify(args) => {
            let ledger = Ledger::load(&args.ledger)?;
            let url = args.read.read_url.clone().or_else(|| ledger.read_url.clone());
            let url = url.context("the ledger does not say where to read: --read-url")?;
            let options = args.read.options(url, &args.headers, args.access.access());
            let report = lab::verify(&options, &ledger, &*observer(args.quiet)).await?;
            let text = if args.json { report.to_json()? + "\n" } else { report.to_text(table) };
            (text, report.is_good())
        }
        LabCommand::Record(args) => return traffic::record(args).await,
        LabCommand::Replay(args) => return traffic::replay(args).await,
        LabCommand::Report(args) => return traffic::report(args),
        LabCommand::Compare(args) => return traffic::compare(args),
    };
    print!("{text}");
    Ok(good)
}

pub(crate) fn observer(quiet: bool) -> Box<dyn Observer> {
    if quiet { Box::new(Silent) } else { Box::new(Stderr::new()) }
}
