//! Flags of `floodmark limits`.

use clap::Args;
use std::path::PathBuf;

/// `floodmark limits`
#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    /// URL of the server to ask
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9009")]
    pub(crate) target: String,

    /// Show the limits of this tenant too
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,

    /// Show the most important limits of all tenants in place of those of the server: a row for each tenant, with use
    /// and limit
    #[arg(long, conflicts_with = "tenant")]
    pub(crate) all: bool,

    /// File with a token of the role admin, if the server requires one
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// For https: certificates of the authorities to trust, as PEM [default: the authorities that this
    /// machine trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
