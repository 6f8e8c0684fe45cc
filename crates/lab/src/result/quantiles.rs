use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantiles {
    pub count: u64,
    pub p50_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
    pub mean_s: f64,
}

impl Quantiles {
    pub fn of_micros(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |q| histogram.value_at_quantile(q) as f64 / 1e6;
        Self {
            count: histogram.len(),
            p50_s: at(0.5),
            p90_s: at(0.9),
            p99_s: at(0.99),
            max_s: histogram.max() as f64 / 1e6,
            mean_s: histogram.mean() / 1e6,
        }
    }
}
