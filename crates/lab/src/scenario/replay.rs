//! Settings for sending recorded traffic instead of generated samples.

use super::Scenario;
use crate::generate::template::Version;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Settings of a replay. Some settings of [`super::Load`] also apply: `writers`, `batch`, and those for retries.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplaySpec {
    pub file: PathBuf,
    /// How many times faster than it was recorded the traffic is sent.
    pub speed: f64,
    pub copies: u32,
    pub times: SampleTimes,
    /// Protocol version in which all requests are sent. By default, each request has its recorded version.
    pub protocol: Option<Version>,
}

impl Default for ReplaySpec {
    fn default() -> Self {
        Self { file: PathBuf::new(), speed: 1.0, copies: 1, times: SampleTimes::default(), protocol: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleTimes {
    /// The intervals between samples are divided by the speed.
    #[default]
    Scaled,
    /// The intervals between samples stay as they were recorded.
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
    /// Adapts the scenario to a replay: the recording determines the tenants, and no sample is read back.
    pub(crate) fn apply_replay(&mut self) {
        if self.replay.is_some() {
            self.target.tenant_header = Some(String::new());
            self.verify.after = false;
            self.verify.probes_per_s = 0.0;
        }
    }
}
