//! Reads a block's `meta.json`.

use crate::json::{JsonError, Parser};

/// Limit on the size of `meta.json`. The file can be long, because it lists the blocks from which a block was
/// compacted.
pub const META_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockMeta {
    pub ulid: String,
    pub min_time_ms: i64,
    /// The end of the time range, which is exclusive.
    pub max_time_ms: i64,
    /// The number of series, according to the program that wrote the block.
    pub series: u64,
    /// The number of samples, according to the program that wrote the block. It includes native histograms.
    pub samples: u64,
    /// The number of native histograms. It is 0 if the program that wrote the block did not count them.
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
    #[error("meta.json: maxTime {max} is before minTime {min}")]
    Times {
        min: i64,
        /// The end of the time range, which is exclusive.
        max: i64,
    },
}

impl BlockMeta {
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
