//! Reads a block's `meta.json`.

use crate::json::{JsonError, Parser};

/// Maximum size of `meta.json`, which lists the sources of a compacted block.
pub const META_BYTES_MAX: u64 = 16 << 20;

/// The fields that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockMeta {
    /// Name of the block: 26 characters.
    pub ulid: String,
    pub min_time_ms: i64,
    /// End of the block, exclusive.
    pub max_time_ms: i64,
    /// Number of series, as written.
    pub series: u64,
    /// Number of samples, including native histograms, as written.
    pub samples: u64,
    /// Number of native histograms; 0 if the writer did not count them.
    pub histograms: u64,
    pub version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error("meta.json: {0}")]
    Json(#[from] JsonError),
    #[error("meta.json has version {0}, this build reads 1")]
    Version(u64),
    #[error("meta.json: {0:?} is not a ULID")]
    Ulid(String),
    /// The block ends before it begins.
    #[error("meta.json: maxTime {max} is before minTime {min}")]
    Times {
        min: i64,
        /// End of the block, exclusive.
        max: i64,
    },
}

impl BlockMeta {
    /// Parses and checks a `meta.json`.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetaError> {
        let mut meta = Self::default();
        let mut json = Parser::new(bytes);
        json.object(|json, key| match key {
            "ulid" => json.string().map(|text| meta.ulid = text.into_owned()),
            "minTime" => json.integer().map(|n| meta.min_time_ms = n),
            "maxTime" => json.integer().map(|n| meta.max_time_ms = n),
            "version" => json.count().map(|n| meta.version = n),
            "stats" => json.object(|json, key| match key {
                "numSeries" => json.count().map(|n| meta.series = n),
                "numSamples" => json.count().map(|n| meta.samples = n),
                "numHistogramSamples" => json.count().map(|n| meta.histograms = n),
                _ => json.skip(),
            }),
            _ => json.skip(),
        })?;
        json.end()?;
        if meta.version != 1 {
            return Err(MetaError::Version(meta.version));
        }
        if meta.ulid.len() != 26 || !meta.ulid.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(MetaError::Ulid(meta.ulid));
        }
        if meta.max_time_ms < meta.min_time_ms {
            return Err(MetaError::Times { min: meta.min_time_ms, max: meta.max_time_ms });
        }
        Ok(meta)
    }
}
