//! Destinations of the lab's results: the same flags for all subcommands that have one.

use clap::Args;
use std::path::PathBuf;

/// Destinations of a result.
#[derive(Debug, Args)]
pub(crate) struct ResultArgs {
    /// Save the whole result as JSON, for `lab report` and `lab compare`
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) views: ViewArgs,
    #[command(flatten)]
    pub(crate) print: PrintArgs,
}

/// Flags for further files: a report for people, and results for a CI system.
#[derive(Debug, Clone, Args)]
pub(crate) struct ViewArgs {
    /// Write a report as one HTML file that opens offline
    #[arg(long, alias = "report", value_name = "FILE", help_heading = "Result")]
    pub(crate) html: Option<PathBuf>,
    /// Write verdict and figures as Markdown, for a CI job's summary
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(crate) markdown: Option<PathBuf>,
    /// Write the verdict as JUnit XML, each rule as a test case
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub(crate) junit: Option<PathBuf>,
}

/// Output on stdout and stderr.
#[derive(Debug, Args)]
pub(crate) struct PrintArgs {
    /// Print JSON
    #[arg(long, help_heading = "Result")]
    pub(crate) json: bool,
    /// Do not show progress on stderr
    #[arg(long, short, help_heading = "Result")]
    pub(crate) quiet: bool,
}
