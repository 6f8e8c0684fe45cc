//! A fleet of simulated scrape targets (pods), all of which expose the same metrics.
//!
//! A target's labels are computed from its number and from how often it was replaced. So a restarted generator
//! continues with the same series.

mod histogram;

use super::naming::Naming;
pub use histogram::{BUCKETS_DEFAULT, BUCKETS_MAX, Histograms, Part};

use model::LabelsRef;
use model::labels::{METRIC_NAME, put_label};
use serde::{Deserialize, Serialize};
use stdx::rng::mix;

/// Default number of labels of a series. Their names and values have 218 bytes in total.
pub const LABELS_DEFAULT: usize = 10;

/// Number of different values of the label `job`, which targets take in turn.
pub const JOBS: u64 = APPS.len() as u64;

pub const BOUND_LABEL: &str = "le";

const APPS: [&str; 16] = [
    "checkout-api",
    "payments-gateway",
    "search-indexer",
    "user-profile",
    "cart-service",
    "inventory-sync",
    "auth-frontend",
    "notification-hub",
    "image-resizer",
    "order-router",
    "ledger-writer",
    "feed-ranker",
    "session-store",
    "catalog-browser",
    "fraud-detector",
    "shipment-eta",
];
const NAMESPACES: [&str; 10] = [
    "team-checkout",
    "team-payments",
    "team-search",
    "team-identity",
    "team-logistics",
    "team-media",
    "team-ledger",
    "team-growth",
    "team-platform",
    "team-risk",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Fleets with different seeds have different pods.
    pub seed: u64,
    /// Number of labels of each series, including the metric name. At least 2.
    pub labels: usize,
    pub metric_name_bytes: Option<usize>,
    /// Names of labels beyond the first ten are padded to this length.
    pub label_name_bytes: Option<usize>,
    pub label_value_bytes: Option<usize>,
    /// Additional labels whose values repeat, each as its name and the number of different values. For example,
    /// `("rack", 20)` distributes the targets among 20 racks.
    #[serde(default)]
    pub cycles: Vec<(String, u64)>,
    /// Additional labels that have the same value in all series, as pairs of name and value.
    #[serde(default)]
    pub fixed: Vec<(String, String)>,
    #[serde(default)]
    pub histograms: Histograms,
    #[serde(default)]
    pub naming: Naming,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            seed: 1,
            labels: LABELS_DEFAULT,
            metric_name_bytes: None,
            label_name_bytes: None,
            label_value_bytes: None,
            cycles: Vec::new(),
            fixed: Vec::new(),
            histograms: Histograms::default(),
            naming: Naming::default(),
        }
    }
}

impl Fleet {
    /// Name of a metric after `generation` renamings. All buckets of a histogram share a name. The names of a target's
    /// series also have the prefix of the [naming](Naming::prefix).
    pub fn metric_name(&self, metric: u32, generation: u64) -> String {
        let (first, part) = self.histograms.part(metric);
        let mut name = match self.naming.metric_name(metric) {
            Some(name) => name.to_owned(),
            None => format!("metric_{first}"),
        };
        if generation > 0 {
            name += &format!("_g{generation}");
        }
        let bytes = self.metric_name_bytes.map(|bytes| bytes.saturating_sub(part.suffix().len()));
        fill(&mut name, bytes, "_long");
        name.push_str(part.suffix());
        name
    }

    /// A target's labels in ascending order, without the metric name.
    pub fn target_labels(&self, target: u64, generation: u64) -> Vec<(String, String)> {
        if self.naming != Naming::Labels {
            return Vec::new();
        }
        let pick = |list: &[&'static str]| list[(target % list.len() as u64) as usize];
        let app = pick(&APPS);
        let [o2, o3, o4] = address(target);
        let id = mix(self.seed ^ mix(target ^ generation.rotate_left(40)));
        let mut labels: Vec<(String, String)> = vec![
            // the label that identifies a target comes first, because some fleets have only two labels
            ("pod".into(), format!("{app}-{}-{}", random_name(id, 10), random_name(mix(id), 5))),
            ("namespace".into(), pick(&NAMESPACES).into()),
            ("job".into(), app.into()),
            ("instance".into(), format!("10.{o2}.{o3}.{o4}:9102")),
            ("cluster".into(), format!("prod-eu-central-1{}", pick(&["a", "b", "c"]))),
            ("container".into(), app.into()),
            ("node".into(), format!("ip-10-{o2}-{o3}-{o4}.internal")),
            ("region".into(), "eu-central-1".into()),
            ("endpoint".into(), "http-metrics".into()),
        ];
        labels.truncate(self.labels - 1);
        for extra in labels.len()..self.labels - 1 {
            let mut name = format!("label_{extra:02}");
            fill(&mut name, self.label_name_bytes, "_long");
            labels.push((name, format!("value-{extra:02}-{:04x}", mix(id ^ extra as u64) & 0xffff)));
        }
        for (_, value) in &mut labels {
            fill(value, self.label_value_bytes, "-long");
        }
        let cycles = self.cycles.iter();
        let cycles =
            cycles.map(|(name, values)| (name.clone(), format!("{name}-{}", target % values.max(&1))));
        for further in cycles.chain(self.fixed.iter().cloned()) {
            // an additional label replaces a default label of the same name
            labels.retain(|(name, _)| *name != further.0);
            labels.push(further);
        }
        labels.sort();
        labels
    }

    pub fn has_job(&self) -> bool {
        self.has_own(3, "job")
    }

    /// True if targets have the label `instance` with an address of their own, such as `10.96.0.1:9102`.
    pub fn has_instance(&self) -> bool {
        self.has_own(4, "instance")
    }

    /// True if targets have one of the default labels, before which there are `before` others, and no additional label
    /// replaces it.
    fn has_own(&self, before: usize, label: &str) -> bool {
        let mut others =
            self.cycles.iter().map(|(name, _)| name).chain(self.fixed.iter().map(|(name, _)| name));
        self.naming == Naming::Labels && self.labels > before && others.all(|name| name != label)
    }

    pub fn job(&self, target: u64) -> String {
        let mut job = APPS[(target % JOBS) as usize].to_owned();
        fill(&mut job, self.label_value_bytes, "-long");
        job
    }

    /// Name of a series, which contains the whole path if the series has no labels.
    pub fn series_name(&self, target: u64, generation: u64, metric_name: &str) -> String {
        self.naming.prefix(target, generation) + metric_name
    }

    /// Bytes that identify a target: the prefix of its names, and its labels without the metric name.
    pub fn target_identity(&self, target: u64, generation: u64) -> Vec<u8> {
        let mut bytes = self.naming.prefix(target, generation).into_bytes();
        bytes.extend_from_slice(&target_bytes(&self.target_labels(target, generation)));
        bytes
    }

    /// Number of bytes in all names and values of the labels of the first series.
    pub fn label_text_bytes(&self) -> usize {
        let target = self.target_labels(0, 0);
        let text: usize = target.iter().map(|(name, value)| name.len() + value.len()).sum();
        METRIC_NAME.len() + self.series_name(0, 0, &self.metric_name(0, 0)).len() + text
    }
}

/// The last three numbers of the address of each target: which number is the first, and how many there are.
pub const ADDRESS_LEVELS: [(u64, u64); 3] = [(96, u64::MAX), (0, 250), (1, 250)];

fn address(target: u64) -> [u64; 3] {
    let [(base2, _), (base3, size3), (base4, size4)] = ADDRESS_LEVELS;
    [base2 + target / (size3 * size4), base3 + target / size4 % size3, base4 + target % size4]
}

/// Encodes a target's labels in canonical form, without a metric name.
pub fn target_bytes(labels: &[(String, String)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    for (name, value) in labels {
        debug_assert!(name.as_str() > METRIC_NAME, "the metric name must sort first");
        put_label(&mut bytes, name.as_bytes(), value.as_bytes());
    }
    bytes
}

/// Writes the labels of a series to `out` in canonical form. The metric name sorts first.
pub fn series_labels(out: &mut Vec<u8>, metric_name: &str, le: Option<&str>, target_bytes: &[u8]) {
    out.clear();
    put_label(out, METRIC_NAME.as_bytes(), metric_name.as_bytes());
    let Some(le) = le else {
        out.extend_from_slice(target_bytes);
        return;
    };
    let target = LabelsRef::from_canonical(target_bytes).iter();
    let (before, after): (Vec<_>, Vec<_>) = target.partition(|(name, _)| *name < BOUND_LABEL);
    for (name, value) in before.into_iter().chain([(BOUND_LABEL, le)]).chain(after) {
        put_label(out, name.as_bytes(), value.as_bytes());
    }
}

fn fill(text: &mut String, bytes: Option<usize>, filler: &str) {
    let missing = bytes.unwrap_or(0).saturating_sub(text.len());
    text.extend(filler.chars().cycle().take(missing));
}

fn random_name(mut bits: u64, len: usize) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut letters = std::iter::repeat_with(|| {
        let letter = ALPHABET[(bits % 27) as usize];
        bits = mix(bits);
        char::from(letter)
    });
    letters.by_ref().take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::labels::is_canonical;
    use std::collections::HashSet;

    #[test]
    fn the_usual_series_has_ten_labels_and_some_218_bytes_of_text() {
        let fleet = Fleet::default();
        assert_eq!(fleet.target_labels(0, 0).len() + 1, 10);
        assert!((200..240).contains(&fleet.label_text_bytes()), "{}", fleet.label_text_bytes());
    }

    #[test]
    fn labels_are_canonical_and_unique_across_targets_and_generations() {
        let long = Some(40);
        for labels in [2, 5, 10, 11, 30] {
            let fleet = Fleet {
                labels,
                metric_name_bytes: Some(90),
                label_name_bytes: long,
                label_value_bytes: long,
                histograms: Histograms { count: 1, buckets: 3 },
                ..Fleet::default()
            };
            let mut seen = HashSet::new();
            let mut bytes = Vec::new();
            for target in (0..2000).chain([62_500, 1_000_000_000]) {
                for generation in [0, 1, 2, 119_000_000] {
                    let target = target_bytes(&fleet.target_labels(target, generation));
                    for metric in [0, 1, 3, 4, 7] {
                        let le = fleet.histograms.le(metric);
                        series_labels(&mut bytes, &fleet.metric_name(metric, 0), le.as_deref(), &target);
                        assert!(is_canonical(&bytes));
                        assert!(seen.insert(bytes.clone()), "two series have the same labels");
                    }
                }
            }
        }
    }
}
