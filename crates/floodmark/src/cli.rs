//! All commands and flags.

pub(crate) mod access;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod scenario;
#[cfg(test)]
mod tests;
pub(crate) mod traffic;
pub(crate) mod transfer;

use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A metrics pipeline that does not drown, and a lab that proves it.
#[derive(Debug, Parser)]
#[command(name = "floodmark", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take metrics in, keep them durably, answer queries
    Serve(ServeArgs),
    /// Load this server or any other, and check what became of every sample
    #[command(subcommand)]
    Lab(load::LabCommand),
    /// Take in history from elsewhere: blocks of a Prometheus, JSON lines, text, Parquet
    Import(transfer::ImportArgs),
    /// Write out what the tables hold: JSON lines, text, Parquet
    Export(transfer::ExportArgs),
    /// Look into a data directory and its tables, also beside a running server
    #[command(subcommand)]
    Inspect(inspect::InspectCommand),
    /// Server and lab together on this machine: load, kill -9, recovery, every sample counted
    Demo(DemoArgs),
}

/// `floodmark serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where the data lives [default: floodmark-data]
    #[arg(long, value_name = "DIR", env = "FLOODMARK_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// Where to serve HTTP [default: 127.0.0.1:9009]
    #[arg(long, value_name = "ADDR", env = "FLOODMARK_HTTP")]
    pub(crate) http: Option<SocketAddr>,

    /// Memory that the process may use, such as 2GiB [default: half of the control group's or the machine's]
    #[arg(long, value_name = "SIZE", env = "FLOODMARK_MEMORY")]
    pub(crate) memory: Option<String>,

    /// When a write counts as durable: fsync (survives power loss) or os (survives a crash of the process)
    /// [default: fsync]
    #[arg(long, value_name = "MODE", env = "FLOODMARK_DURABILITY")]
    pub(crate) durability: Option<String>,

    /// Where the tables lie: file:///…, s3://…, gs://… or az://… [default: tables in the data directory]
    #[arg(long, value_name = "URL", env = "FLOODMARK_TABLES")]
    pub(crate) tables: Option<String>,

    /// How old data gets in memory before it is sealed into tables [default: 15m]
    #[arg(long, value_name = "DURATION", env = "FLOODMARK_SEAL_AFTER")]
    pub(crate) seal_after: Option<String>,

    /// Samples older than this are dropped [default: never]
    #[arg(long, value_name = "DURATION", env = "FLOODMARK_RETENTION")]
    pub(crate) retention: Option<String>,

    /// A TOML file with these and all other settings; flags go before it
    #[arg(long, value_name = "FILE", env = "FLOODMARK_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

/// `floodmark demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long to write; the server is killed in the middle
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = lab::parse::duration)]
    pub(crate) duration: Duration,

    /// Samples a second
    #[arg(long, value_name = "SAMPLES/S", default_value = "250k", value_parser = lab::parse::count)]
    pub(crate) rate: f64,

    /// Where the server listens [default: 127.0.0.1:9009, or a free port where that is taken]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,

    /// Keep the server up afterwards, until Ctrl-C
    #[arg(long)]
    pub(crate) stay: bool,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
