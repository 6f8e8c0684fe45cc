//! Flags of `floodmark rules`.

use clap::{Args, Subcommand};
use model::TenantId;
use std::path::PathBuf;

/// Commands about the rules on what is stored.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Show what rules would do to recorded series, rule by rule, without storing anything
    Test(RulesTest),
}

/// `floodmark rules test`
#[derive(Debug, Args)]
pub(crate) struct RulesTest {
    /// The file of rules (setting ingest_rules)
    #[arg(value_name = "RULES")]
    pub(crate) rules: PathBuf,

    /// A recording of `floodmark lab record`, or series in Prometheus' text format [default: stdin]
    #[arg(value_name = "SERIES")]
    pub(crate) series: Option<PathBuf>,

    /// Apply the rules for this tenant [default: for the tenant of each recorded request]
    #[arg(long, value_name = "NAME", value_parser = TenantId::parse)]
    pub(crate) tenant: Option<TenantId>,

    /// Number of examples for each rule
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) examples: usize,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
