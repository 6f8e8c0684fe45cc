//! Recorded traffic, which replaces generated samples.

use super::Scenario;
use crate::generate::template::Version;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Settings of a replay. [`super::Load`] sets the number of connections (`writers`), the samples per request
/// (`batch`) and the retries. The recording determines everything else about the load.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplaySpec {
    /// Path of the recording, relative to the scenario's file.
    pub file: PathBuf,
    /// Speed, as a multiple of the recorded speed.
    pub speed: f64,
    /// Number of copies of each series.
    pub copies: u32,
    /// Treatment of timestamps.
    pub times: SampleTimes,
    /// Protocol version of all requests. If not given, the recorded version.
    pub protocol: Option<Version>,
}

impl Default for ReplaySpec {
    fn default() -> Self {
        Self { file: PathBuf::new(), speed: 1.0, copies: 1, times: SampleTimes::default(), protocol: None }
    }
}

/// Treatment of timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleTimes {
    /// Intervals between samples are divided by the speed.
    #[default]
    Scaled,
    /// Intervals between samples stay as recorded.
    Shifted,
}

impl std::str::FromStr for SampleTimes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "scaled" => Ok(Self::Scaled),
            "shifted" => Ok(Self::Shifted),
            _ => Err(format!("{text:?} must be scaled or shifted")),
        }
    }
}

impl Scenario {
    /// Applies the consequences of a replay: tenants come from the recording, and no sample is read back or
    /// probed.
    pub(crate) fn apply_replay(&mut self) {
        if self.replay.is_some() {
            self.target.tenant_header.clear();
            self.verify.after = false;
            self.verify.probes_per_s = 0.0;
        }
    }
}
