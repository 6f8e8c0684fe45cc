//! All commands and flags.

pub(crate) mod access;
pub(crate) mod config;
pub(crate) mod inspect;
pub(crate) mod lab;
pub(crate) mod limits;
pub(crate) mod result;
pub(crate) mod rules;
pub(crate) mod scenario;
mod scenario_text;
pub(crate) mod serve;
pub(crate) mod stresser;
#[cfg(test)]
mod tests;
pub(crate) mod traffic;
pub(crate) mod transfer;
pub(crate) mod values;

pub(crate) use serve::ServeArgs;

use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use stdx::address;

const EXIT_STATUS: &str = "\
Exit status:
  0  success; all checks passed
  1  a rule was broken, a sample was lost, or the run ended early (lab, demo)
  2  failed: wrong usage, an unusable file or setting, or no answer from the server";

/// A metrics pipeline that does not drown, and a lab that proves it.
#[derive(Debug, Parser)]
#[command(name = "floodmark", version, max_term_width = 100, after_help = EXIT_STATUS)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server: accept metrics, keep them durably, answer queries
    Serve(Box<ServeArgs>),
    /// Load-test this server or any other, and verify every sample
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Import history: blocks of a Prometheus, Whisper files, JSON lines, text, Parquet
    Import(transfer::ImportArgs),
    /// Export samples from the tables: JSON lines, text, Parquet, Whisper files
    Export(transfer::ExportArgs),
    /// Inspect a data directory and its tables, even while a server is running
    #[command(subcommand)]
    Inspect(inspect::InspectCommand),
    /// Check a configuration file, or show the settings in effect
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Test the rules on what is stored
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// Show every limit of a running server: value, use, origin and reason
    Limits(limits::LimitsArgs),
    /// Run server and lab on this machine: load, kill -9, recovery, every sample verified
    Demo(DemoArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the man page
    Man(ManArgs),
}

/// `floodmark demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Duration of the load; the server is killed halfway through
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = ::lab::scenario::notation::duration)]
    pub(crate) duration: Duration,

    /// Samples per second
    #[arg(long, value_name = "SAMPLES/S", default_value = "250k", value_parser = values::number(1.0..=1e9))]
    pub(crate) rate: f64,

    /// Address to listen on [default: 127.0.0.1:9009, or a free port if 9009 is in use]
    #[arg(long, value_name = "ADDR", value_parser = address::listen)]
    pub(crate) http: Option<SocketAddr>,

    /// Keep the server running afterwards, until Ctrl-C
    #[arg(long)]
    pub(crate) stay: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `floodmark completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell; for bash: floodmark completions bash > /etc/bash_completion.d/floodmark
    pub(crate) shell: clap_complete::Shell,
}

/// `floodmark man`
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write the pages of all commands to this directory, instead of printing the main page
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}
