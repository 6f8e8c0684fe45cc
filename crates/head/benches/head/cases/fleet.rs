//! Labels of a fleet of targets with the same metrics. A series has ten labels, with about 218 bytes of text.

use head::TenantHead;
use model::labels::put_label;
use model::{LabelsRef, SeriesKey, SeriesRef};
use stdx::rng::mix;

pub(super) const METRICS: usize = 2000;
pub(super) const SEED: u64 = 7;

const APPS: [&str; 8] = [
    "billing-backend",
    "ticket-printer",
    "route-planner",
    "sensor-gateway",
    "tide-forecast",
    "ferry-schedule",
    "lock-controller",
    "pump-supervisor",
];

/// Canonical label bytes of a target, without the metric name.
fn target_labels(target: usize) -> Vec<u8> {
    let app = APPS[target % APPS.len()];
    let (a, b) = (target / 250 % 250, target % 250 + 1);
    let cluster = format!("prod-eu-central-1{}", ["a", "b", "c"][target % 3]);
    let pod = format!("{app}-{:010x}-{:05x}", mix(target as u64) >> 24, mix(!target as u64) >> 44);
    let mut bytes = Vec::new();
    let labels = [
        ("cluster", cluster),
        ("container", app.into()),
        ("endpoint", "http-metrics".into()),
        ("instance", format!("10.96.{a}.{b}:9102")),
        ("job", app.into()),
        ("namespace", format!("team-{:02}-water", target % 10)),
        ("node", format!("ip-10-96-{a}-{b}.internal")),
        ("pod", pod),
        ("region", "eu-central-1".into()),
    ];
    labels.iter().for_each(|(name, value)| put_label(&mut bytes, name.as_bytes(), value.as_bytes()));
    bytes
}

/// Calls `f` with the number and the labels of each series, target by target.
pub(super) fn each_series(series: usize, mut f: impl FnMut(usize, LabelsRef<'_>)) {
    let mut labels = Vec::new();
    let mut rest = Vec::new();
    for i in 0..series {
        if i % METRICS == 0 {
            rest = target_labels(i / METRICS);
        }
        labels.clear();
        put_label(&mut labels, b"__name__", format!("metric_{}", i % METRICS).as_bytes());
        labels.extend_from_slice(&rest);
        f(i, LabelsRef::from_canonical(&labels));
    }
}

pub(super) fn keys(series: usize) -> Vec<SeriesKey> {
    let mut keys = Vec::with_capacity(series);
    each_series(series, |_, labels| keys.push(SeriesKey::of(labels.as_bytes(), SEED)));
    keys
}

pub(super) fn head(series: usize) -> (TenantHead, Vec<SeriesRef>) {
    let mut head = TenantHead::new(SEED);
    let mut refs = Vec::with_capacity(series);
    each_series(series, |_, labels| {
        refs.push(head.create(SeriesKey::of(labels.as_bytes(), SEED), labels));
    });
    (head, refs)
}
