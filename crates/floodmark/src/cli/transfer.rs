//! Flags of `floodmark import` and `floodmark export`.

use clap::{Args, ValueEnum};
use server::settings::TablesUrl;
use std::path::PathBuf;

/// Location of a tenant's tables.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// The server's data directory [default: floodmark-data]
    #[arg(long, value_name = "DIR", env = "FLOODMARK_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,

    /// URL of the tables: `file:///…`, `s3://…`, `gs://…` or `az://…` [default: the folder `tables` in the data directory]
    #[arg(long, value_name = "URL", env = "FLOODMARK_TABLES", hide_env_values = true)]
    pub(crate) tables: Option<TablesUrl>,

    /// The server's TOML file, if it has one: its data_dir, tables and tables_options apply here too
    #[arg(long, value_name = "FILE", env = "FLOODMARK_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// Tenant of the table [default: anonymous; for Whisper files, the graphite_tenant of --config]
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
}

/// Format of history to import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportFormat {
    /// Blocks of a Prometheus: its data directory, a snapshot of it, or single blocks
    Tsdb,
    /// OpenMetrics text, with times in seconds and # EOF at the end
    Openmetrics,
    /// Prometheus' text format, with times in milliseconds
    Prometheus,
    /// JSON lines, as VictoriaMetrics exports them
    Jsonl,
    /// Parquet files of `floodmark export parquet`, or directories of them
    Parquet,
    /// Whisper files, Graphite's database: carbon's LOCAL_DATA_DIR, or single files
    Whisper,
}

/// `floodmark import`
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Format of the files
    pub(crate) format: ImportFormat,

    /// Files or directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// Leave out damaged chunks and lines, and count them, instead of failing
    #[arg(long)]
    pub(crate) skip_damaged: bool,

    /// Names of the series in Whisper files that are named by a hash: the answer of graphite-web's /tags/findSeries
    #[arg(long, value_name = "FILE")]
    pub(crate) tagged_names: Option<PathBuf>,

    /// Only values of Whisper files from this time on: RFC 3339, or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time_ms)]
    pub(crate) start: Option<i64>,

    /// Only values of Whisper files up to and including this time
    #[arg(long, value_name = "TIME", value_parser = time_ms)]
    pub(crate) end: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Do not show progress on stderr
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Format of exported samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// JSON lines, as VictoriaMetrics imports them
    Jsonl,
    /// OpenMetrics text, with times in seconds and # EOF at the end
    Openmetrics,
    /// Prometheus' text format, with times in milliseconds
    Prometheus,
    /// Parquet files, one or more for each day; keeps every bit of every value
    Parquet,
    /// Whisper files, Graphite's database, with the archives that graphite_schemas names
    Whisper,
}

/// `floodmark export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Format to write
    pub(crate) format: ExportFormat,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// Only series that match, such as 'up{job="api"}'; may be repeated [default: all]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(crate) matches: Vec<String>,

    /// Only samples from this time on: RFC 3339, or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time_ms)]
    pub(crate) start: Option<i64>,

    /// Only samples up to and including this time
    #[arg(long, value_name = "TIME", value_parser = time_ms)]
    pub(crate) end: Option<i64>,

    /// File to write, or for Parquet and Whisper the directory [default: standard output]
    #[arg(long, short, value_name = "PATH", required_if_eq_any([("format", "parquet"), ("format", "whisper")]))]
    pub(crate) output: Option<PathBuf>,

    /// Do not print a summary on stderr
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Parses a time as milliseconds since 1970.
fn time_ms(text: &str) -> Result<i64, String> {
    let seconds = text.parse::<f64>().ok().map(|s| (s * 1000.0).round());
    if let Some(ms) = seconds.filter(|ms| ms.abs() <= (1u64 << 53) as f64) {
        return Ok(ms as i64);
    }
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(jiff::Timestamp::as_millisecond)
        .map_err(|_| "expected a time as RFC 3339 or in Unix seconds".into())
}

#[cfg(test)]
mod tests {
    use super::time_ms;

    #[test]
    fn times_are_parsed() {
        assert_eq!(time_ms("1795284000.123"), Ok(1_795_284_000_123));
        assert_eq!(time_ms("2026-11-21T18:00:00Z"), Ok(1_795_284_000_000));
        assert!(time_ms("NaN").is_err() && time_ms("yesterday").is_err());
    }
}
