//! Flags of `floodmark inspect`.

use super::transfer::PlaceArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Commands that show a data directory and its tables.
#[derive(Debug, Subcommand)]
pub(crate) enum InspectCommand {
    /// Segments of the journal: offsets, sizes, series and samples, damage
    Journal(InspectJournal),
    /// Offsets of the journal up to which a tenant's table is complete
    Floodmarks(InspectTable),
    /// Live files of a tenant's table
    Table(InspectTable),
    /// One Parquet file, or one block of Prometheus
    File(InspectFile),
}

/// `floodmark inspect journal`
#[derive(Debug, Args)]
pub(crate) struct InspectJournal {
    /// The server's data directory
    #[arg(long, value_name = "DIR", env = "FLOODMARK_DATA_DIR", default_value = "floodmark-data")]
    pub(crate) data_dir: PathBuf,

    /// Show only this partition
    #[arg(long, value_name = "N")]
    pub(crate) partition: Option<u32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `floodmark inspect table`, `floodmark inspect floodmarks`
#[derive(Debug, Args)]
pub(crate) struct InspectTable {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `floodmark inspect file`
#[derive(Debug, Args)]
pub(crate) struct InspectFile {
    /// A Parquet file of a table, or a directory with a block of Prometheus
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,

    /// Number of rows (stretches of series) to list, with the times of their first and last sample
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
