//! Flags of `floodmark serve`.

use super::values;
use clap::Args;
use server::{Flags, TablesUrl};
use std::path::PathBuf;

/// `floodmark serve`. The name of a field is the key of the setting in the configuration file.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// TOML file with these and all other settings; flags and the environment take precedence
    #[arg(long, value_name = "FILE", env = "FLOODMARK_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Address to serve HTTP on: 127.0.0.1:9009, localhost:9009, or :9009 for all addresses [default: 127.0.0.1:9009]
    ///
    /// There is no authentication: a warning is logged where other machines can reach the address.
    #[arg(long, value_name = "ADDR", env = "FLOODMARK_HTTP")]
    pub(crate) http: Option<String>,

    /// Memory that the process may use, such as 2GiB [at least 64MiB] [default: half of the control group's limit or
    /// of the machine's memory]
    #[arg(long, value_name = "SIZE", env = "FLOODMARK_MEMORY")]
    pub(crate) memory: Option<String>,

    /// Directory of the journal, and of the tables unless --tables is given [default: floodmark-data]
    #[arg(long, value_name = "DIR", env = "FLOODMARK_DATA_DIR", help_heading = "Storage")]
    pub(crate) data_dir: Option<PathBuf>,

    /// When a write counts as durable [default: fsync]
    #[arg(long, value_name = "MODE", env = "FLOODMARK_DURABILITY", value_parser = values::durability(), help_heading = "Storage")]
    pub(crate) durability: Option<String>,

    /// URL of the tables: file:///…, s3://…, gs://… or az://… [default: the folder tables in the data directory]
    #[arg(
        long,
        value_name = "URL",
        env = "FLOODMARK_TABLES",
        hide_env_values = true,
        help_heading = "Storage"
    )]
    pub(crate) tables: Option<TablesUrl>,

    /// Age at which data in memory is sealed into tables, such as 15m [above 0] [default: 15m]
    #[arg(long, value_name = "DURATION", env = "FLOODMARK_SEAL_AFTER", help_heading = "Storage")]
    pub(crate) seal_after: Option<String>,

    /// Age at which samples are dropped, such as 90d [above 0] [default: never]
    #[arg(long, value_name = "DURATION", env = "FLOODMARK_RETENTION", help_heading = "Storage")]
    pub(crate) retention: Option<String>,
}

impl From<ServeArgs> for Flags {
    fn from(args: ServeArgs) -> Self {
        let ServeArgs { config, http, memory, data_dir, durability, tables, seal_after, retention } = args;
        Self { data_dir, http, memory, durability, tables, seal_after, retention, config }
    }
}
