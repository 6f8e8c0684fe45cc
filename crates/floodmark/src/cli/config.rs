//! Flags of `floodmark config`.

use super::ServeArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Commands about settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file
    Check(CheckArgs),
    /// Print all settings in effect, each with the origin of its value
    Print(Box<PrintArgs>),
}

/// `floodmark config check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The TOML file
    #[arg(value_name = "FILE", env = "FLOODMARK_CONFIG")]
    pub(crate) file: PathBuf,
}

/// `floodmark config print`. The command takes the flags of `serve`, and shows the settings that `serve`
/// would use.
#[derive(Debug, Args)]
pub(crate) struct PrintArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
