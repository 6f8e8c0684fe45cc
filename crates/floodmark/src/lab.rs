//! `floodmark lab`: runs the lab's commands.

use crate::cli::lab::{LabCommand, LabVerify, LabWrite};
use crate::cli::stresser::LabStresser;
use crate::output::{is_closed, observer, print, say, show};
use crate::scenario;
use crate::signals::stoppable;
use crate::traffic;
use lab::drive::options::RunOptions;
use lab::drive::run::{carry_out, print_round, run as run_scenario};
use lab::show::text::verify_report;
use lab::{Ledger, Scenario};
use std::io::{BufWriter, IsTerminal, Write};
use std::time::Duration;

const END_WITHIN: Duration = Duration::from_secs(5);

/// Runs a command of the lab. Returns true if all checks passed, which means exit status 0.
pub(crate) fn run(command: LabCommand) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(report(&command));
    // after a second signal, some tasks may still be running; they are dropped here, which makes them undo
    // their work
    runtime.shutdown_timeout(END_WITHIN);
    done
}

async fn report(command: &LabCommand) -> anyhow::Result<bool> {
    match command {
        LabCommand::Write(args) => write(args).await,
        LabCommand::Stresser(args) => stresser(args).await,
        LabCommand::Verify(args) => verify(args).await,
        LabCommand::Scenarios(args) => scenario::list(args),
        LabCommand::Init(args) => scenario::init(args),
        LabCommand::Run(args) => scenario::run(args).await,
        LabCommand::FindLimit(args) => scenario::limit(args).await,
        LabCommand::FindMinimum(args) => scenario::minimum(args).await,
        LabCommand::Race(args) => scenario::run_race(args).await,
        LabCommand::Merge(args) => scenario::merge(args),
        LabCommand::Record(args) => traffic::record(args).await,
        LabCommand::Replay(args) => traffic::replay(args).await,
        LabCommand::Report(args) => traffic::report(args),
        LabCommand::Compare(args) => traffic::compare(args),
    }
}

/// Keys of scenarios that `lab write` and `lab stresser` set by flags, and that errors name.
const FLAGS: [(&str, &str); 12] = [
    ("load.interval", "--interval"),
    ("load.metric_interval", "--metric-churn"),
    ("load.metrics", "--metrics"),
    ("load.rate", "--rate"),
    ("load.reconnect", "--reconnect"),
    ("load.series_interval", "--series-churn"),
    ("target.commit_interval", "--commit-interval"),
    ("target.read", "--read-url"),
    ("target.read_api", "--read-api"),
    ("target.write", "--target"),
    ("verify.page", "--page"),
    ("verify.step", "--step"),
];

/// Parses a scenario that was made of flags. The user has not seen it, so an error names flags, and no lines.
fn of_flags(text: &str) -> anyhow::Result<Scenario> {
    Scenario::parse(text).map_err(|error| anyhow::Error::msg(in_flags(&error.message)))
}

/// Replaces the keys of a scenario in an error by flags.
fn in_flags(message: &str) -> String {
    let in_flags = |word: &str| {
        let key = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let flag = FLAGS.iter().find(|(of, _)| *of == key);
        flag.map_or_else(|| word.to_owned(), |(_, flag)| word.replace(key, flag))
    };
    message.split(' ').map(in_flags).collect::<Vec<_>>().join(" ")
}

async fn write(args: &LabWrite) -> anyhow::Result<bool> {
    let text = args.scenario();
    let scenario = of_flags(&text)?;
    let keeps_ledger = args.ledger.is_some();
    let options = RunOptions { text, access: args.access.access(), keeps_ledger, ..RunOptions::default() };
    let observer = observer(args.result.print.quiet);
    let outcome = stoppable(&options.stop, carry_out(&scenario, &options, &*observer)).await?;
    let ledger = args.ledger.as_ref().zip(outcome.ledgers.first());
    let kept = ledger.map_or(Ok(()), |(path, ledger)| ledger.save(path));
    show(&outcome.result, &args.result)?;
    kept?;
    Ok(outcome.result.passed())
}

async fn stresser(args: &LabStresser) -> anyhow::Result<bool> {
    let text = args.scenario();
    let scenario = of_flags(&text)?;
    if args.debug {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = print_round(&scenario, &mut out).and_then(|()| Ok(out.flush()?));
        return match written {
            Err(error) if is_closed(&error) => Ok(true),
            written => written.map(|()| true),
        };
    }
    let options = RunOptions { text, access: args.access.access(), ..RunOptions::default() };
    let observer = observer(args.result.print.quiet);
    let result = stoppable(&options.stop, run_scenario(&scenario, &options, &*observer)).await?;
    show(&result, &args.result)?;
    Ok(result.passed())
}

async fn verify(args: &LabVerify) -> anyhow::Result<bool> {
    let ledger = Ledger::load(&args.ledger)?;
    let options = args.read.options(&ledger, &args.headers, args.access.access())?;
    let report = lab::verify(&options, &ledger, &*observer(args.print.quiet)).await?;
    match args.print.json {
        true => say(report.to_json()?)?,
        false => print(verify_report(&report, std::io::stdout().is_terminal()))?,
    }
    Ok(report.is_good_if_stored(args.owed))
}
