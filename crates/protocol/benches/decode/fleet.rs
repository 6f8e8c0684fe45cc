//! Generates the requests that a Prometheus sends when it scrapes many pods.

use model::{Labels, Metadata, MetricKind};
use protocol::encode::{Extras, V1Encoder, V2Encoder};
use stdx::rng::Rng;

const METRICS: usize = 100;
const REQUEST_SERIES: usize = 2000;
const START_MS: i64 = 1_795_276_800_000;

pub(crate) struct Fleet {
    pub(crate) v1: Vec<Vec<u8>>,
    pub(crate) v2: Vec<Vec<u8>>,
    /// Remote write 2.0 bodies that have metadata with each series, as Prometheus sends it.
    pub(crate) v2_metadata: Vec<Vec<u8>>,
    pub(crate) labels: Vec<Labels>,
}

impl Fleet {
    pub(crate) fn new(requests: usize) -> Self {
        let mut fleet = Self { v1: Vec::new(), v2: Vec::new(), v2_metadata: Vec::new(), labels: Vec::new() };
        let (mut v1, mut v2, mut v2_metadata) = (V1Encoder::new(), V2Encoder::new(), V2Encoder::new());
        let mut rng = Rng::new(1);
        for request in 0..requests {
            let mut timestamp = 0;
            for at in 0..REQUEST_SERIES {
                let (target, metric) = (request * REQUEST_SERIES / METRICS + at / METRICS, at % METRICS);
                if metric == 0 {
                    timestamp = START_MS + rng.below(15_000) as i64;
                }
                let labels = series(target, metric);
                let value = value(metric, &mut rng);
                let metadata = metadata(metric);
                let extras = Extras { metadata: Some(&metadata), ..Extras::default() };
                v1.series(labels.as_ref(), &[timestamp], &[value]);
                v2.series(labels.as_ref(), &[timestamp], &[value]);
                v2_metadata.series_with(labels.as_ref(), &[timestamp], &[value], extras);
                fleet.labels.push(labels);
            }
            fleet.v1.push(v1.finish().to_vec());
            fleet.v2.push(v2.finish().to_vec());
            fleet.v2_metadata.push(v2_metadata.finish().to_vec());
        }
        fleet
    }

    pub(crate) fn samples(&self) -> usize {
        self.labels.len()
    }
}

fn series(target: usize, metric: usize) -> Labels {
    let app = ["checkout-api", "payments-gateway", "search-indexer", "user-profile"][target % 4];
    let pod = stdx::rng::mix(target as u64);
    let [a, b, c] = [target / 62_500 + 96, target / 250 % 250, target % 250 + 1];
    let pairs = [
        ("__name__", format!("metric_{metric}")),
        ("cluster", "prod-eu-central-1a".into()),
        ("container", app.into()),
        ("endpoint", "http-metrics".into()),
        ("instance", format!("10.{a}.{b}.{c}:9102")),
        ("job", app.into()),
        ("namespace", format!("team-{}", app.split('-').next().unwrap_or(app))),
        ("node", format!("ip-10-{a}-{b}-{c}.internal")),
        ("pod", format!("{app}-{:010x}-{:05x}", pod & 0xff_ffff_ffff, pod >> 44)),
        ("region", "eu-central-1".into()),
    ];
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Labels::from_pairs(&pairs)
}

/// Returns a sample's value. Half of the metrics are counters, a quarter are rounded gauges, and a quarter
/// are constant.
fn value(metric: usize, rng: &mut Rng) -> f64 {
    match metric % 4 {
        0 | 1 => rng.below(50_000_000) as f64,
        2 => (rng.unit() * 1e5).round() / 100.0,
        _ => (metric * 40) as f64,
    }
}

fn metadata(metric: usize) -> Metadata {
    Metadata {
        metric: format!("metric_{metric}"),
        kind: if metric % 4 < 2 { MetricKind::Counter } else { MetricKind::Gauge },
        help: format!("What the exporter says about its metric number {metric}, in a sentence."),
        unit: String::new(),
    }
}
