//! A block's `meta.json`.

use crate::json::{JsonError, Parser};

/// A `meta.json` larger than this is none: it lists what a block was compacted from, which can be some
/// thousands of lines.
pub const META_BYTES_MAX: u64 = 16 << 20;

/// The fields of `meta.json` that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockMeta {
    /// The block's name and identity: 26 characters, unique in the world.
    pub ulid: String,
    /// The first millisecond.
    pub min_time_ms: i64,
    /// End of the block, exclusive.
    pub max_time_ms: i64,
    /// Series in it, as its writer counted.
    pub series: u64,
    /// Samples in it, native histograms included, likewise.
    pub samples: u64,
    /// Native histograms among the samples, where its writer counted them.
    pub histograms: u64,
    /// Version of the block's layout.
    pub version: u64,
}

/// A `meta.json` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// The file is not JSON of the expected form.
    #[error("meta.json: {0}")]
    Json(#[from] JsonError),
    /// A block of another layout.
    #[error("meta.json has version {0}, this build reads 1")]
    Version(u64),
    /// The id is not 26 letters and digits.
    #[error("meta.json: {0:?} is not a ULID")]
    Ulid(String),
    /// The block ends before it begins.
    #[error("meta.json: maxTime {max} is before minTime {min}")]
    Times {
        /// First millisecond of the block.
        min: i64,
        /// End of the block, exclusive.
        max: i64,
    },
}

impl BlockMeta {
    /// Reads a `meta.json`.
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
