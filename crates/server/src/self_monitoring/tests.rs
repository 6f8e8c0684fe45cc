use super::*;
use crate::node::Node;
use crate::settings::{Given, SelfMonitoring, Settings};
use crate::write_path::tests::{small_node, small_settings, write_series};
use model::{LabelsRef, STALE_NAN_BITS, Samples, TenantId, TimeRange};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use stdx::clock::{Clock, ManualClock, SystemClock};

fn monitor(node: &Node) -> Monitor {
    Monitor::new(Arc::clone(node.writes()), node.registry(), "here:9009".into())
}

/// Returns the samples of the node's own metrics that are in memory, by series.
fn stored(node: &Node) -> BTreeMap<String, Vec<(i64, u64)>> {
    let mut all = BTreeMap::new();
    for partition in node.reads().partitions.iter() {
        let head = partition.head.read();
        let Some(head) = head.tenant(&node.settings().self_monitoring.tenant) else { continue };
        for series in head.select(&[]) {
            let series = model::SeriesRef(series);
            let (mut labels, mut samples) = (Vec::new(), Samples::default());
            head.write_labels(series, &mut labels);
            head.read::<f64>(series, TimeRange::ALL, &mut samples);
            let samples = samples
                .timestamps
                .iter()
                .zip(&samples.values)
                .map(|(at, value)| (*at, value.to_bits()))
                .collect();
            all.insert(LabelsRef::from_canonical(&labels).to_owned().to_string(), samples);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_become_series_with_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let node = Node::start(small_settings(dir.path()), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let counter = node.registry().counter_with("test_total", "Help.", &[("reason", "x")]);
    node.registry().histogram("test_seconds", "Help.", &[], &[0.5]).observe(1.0);
    let mut monitor = monitor(&node);
    let mut times = Vec::new();
    for count in [1, 5] {
        clock.advance(15_000);
        counter.add(count);
        times.push(clock.now_ms());
        let mut batch = monitor.sample();
        monitor.store(&mut batch).await;
    }
    let all = stored(&node);
    let of = |name: &str, labels: &str| {
        let text = format!("{name}{{instance=\"here:9009\", job=\"floodmark\"{labels}}}");
        let samples = all.get(&text).unwrap_or_else(|| panic!("no {text} in {:#?}", all.keys()));
        samples.iter().map(|(at, bits)| (*at, f64::from_bits(*bits))).collect::<Vec<_>>()
    };
    assert_eq!(of("test_total", ", reason=\"x\""), [(times[0], 1.0), (times[1], 6.0)]);
    assert_eq!(of("up", ""), [(times[0], 1.0), (times[1], 1.0)]);
    for (name, labels, value) in [
        ("test_seconds_bucket", ", le=\"0.5\"", 0.0),
        ("test_seconds_bucket", ", le=\"+Inf\"", 1.0),
        ("test_seconds_sum", "", 1.0),
        ("test_seconds_count", "", 1.0),
    ] {
        assert_eq!(of(name, labels), [(times[0], value), (times[1], value)], "{name}");
    }
    let rendered = node.registry().render();
    let lines = rendered.lines().filter(|line| !line.starts_with('#'));
    let (of_tenants, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("floodmark_tenant_"));
    assert_eq!(all.len(), lines.len() + 1, "each metric is a series, and so is `up`");
    assert_eq!(of_tenants.len(), 4, "those of tenants are not stored: {of_tenants:?}");
    assert_eq!((monitor.metrics.stored.get(), monitor.metrics.refused.get()), (2 * all.len() as u64, 0));
    let metadata = |name: &str| {
        let heads: Vec<_> = node.reads().partitions.iter().map(|p| p.head.read()).collect();
        let tenant = &node.settings().self_monitoring.tenant;
        let mut found = heads.iter().filter_map(|head| head.tenant(tenant)?.metadata_of(name).cloned());
        found.next().map(|metadata| (metadata.kind.as_str(), metadata.help))
    };
    assert_eq!(metadata("test_total"), Some(("counter", "Help.".into())));
    assert_eq!(metadata("test_seconds"), Some(("histogram", "Help.".into())));
    node.stop();
}

#[test]
fn a_series_that_is_gone_ends() {
    let registry = Registry::new();
    let behind = Arc::new(parking_lot::Mutex::new(vec!["a", "b"]));
    let read = Arc::clone(&behind);
    registry.gauges_fn("behind", "Help.", "tenant", move || {
        read.lock().iter().map(|tenant| ((*tenant).into(), 7.0)).collect()
    });
    let mut sampler = Sampler::new(registry, 1, "here".into());
    let mut check = |now: &[&'static str], expected: &[(&str, f64)]| {
        *behind.lock() = now.to_vec();
        let batch = sampler.sample(5);
        let mut found = Vec::new();
        for (series, value) in batch.floats.series.iter().zip(&batch.floats.values) {
            let labels = LabelsRef::from_canonical(batch.label_bytes(series));
            if let Some(tenant) = labels.get("tenant") {
                found.push((tenant.to_owned(), value.to_bits()));
            }
        }
        found.sort_unstable();
        let expected: Vec<_> =
            expected.iter().map(|(tenant, value)| ((*tenant).to_owned(), value.to_bits())).collect();
        assert_eq!(found, expected, "{now:?}");
    };
    let ended = f64::from_bits(STALE_NAN_BITS);
    check(&["a", "b"], &[("a", 7.0), ("b", 7.0)]);
    check(&["b"], &[("a", ended), ("b", 7.0)]);
    check(&["b"], &[("b", 7.0)]);
    check(&["a"], &[("a", 7.0), ("b", ended)]);
}

#[test]
fn too_many_series_are_left_out_and_counted() {
    let registry = Registry::new();
    let names = || (0..SelfMonitoring::SERIES_MAX + 10).map(|i| (i.to_string(), 1.0)).collect();
    registry.gauges_fn("many", "Help.", "tenant", names);
    let batch = Sampler::new(registry, 1, "here".into()).sample(5);
    assert_eq!(batch.floats.series.len(), SelfMonitoring::SERIES_MAX);
    assert_eq!(batch.refused_samples, 11, "with `up`");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tenant_takes_no_place_of_others_and_needs_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = small_settings(dir.path());
    (settings.tenants_max, settings.tenant_burst) = (1, 1);
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    let mut monitor = monitor(&node);
    for _ in 0..2 {
        let mut batch = monitor.sample();
        monitor.store(&mut batch).await;
        assert_eq!(monitor.metrics.refused.get(), 0);
        // the only other tenant that the limit allows
        write_series(&node, (0..100).map(|i| format!("m{i}"))).await;
    }
    let other = Principal::of(TenantId::parse("other").unwrap());
    assert_eq!(write_path::check(node.writes(), &other).unwrap_err().reason, "tenants");
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_samples_are_counted_and_not_retried() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    let mut monitor = monitor(&node);
    let mut batch = monitor.sample();
    node.readiness().stopping.store(true, Ordering::Release);
    let samples = batch.floats.timestamps.len() as u64;
    monitor.store(&mut batch).await;
    assert_eq!((monitor.metrics.stored.get(), monitor.metrics.refused.get()), (0, samples));
    assert_eq!(stored(&node).len(), 0);
    node.stop();
}

#[test]
fn the_tenant_is_bounded_unless_it_has_limits_of_its_own() {
    let check = |given: Given, retention_ms: Option<i64>, active_series: usize| {
        let Settings { tenants, self_monitoring, .. } = Settings::resolve(&given).unwrap();
        let own = tenants.of(&self_monitoring.tenant);
        assert_eq!((own.retention_ms, own.limits.active_series), (retention_ms, Some(active_series)));
        assert_eq!(tenants.general.retention_ms, None);
    };
    let day_ms = 86_400_000;
    check(Given::default(), Some(30 * day_ms), SelfMonitoring::SERIES_MAX);
    let with = |retention: &str| Given::default().flag("self_monitoring_retention", retention);
    check(with("2d"), Some(2 * day_ms), SelfMonitoring::SERIES_MAX);
    check(with("never"), None, SelfMonitoring::SERIES_MAX);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.toml");
    let text = "self_monitoring_tenant = \"me\"\n[tenant.me]\nretention = \"1d\"\nactive_series = 7";
    std::fs::write(&path, text).unwrap();
    check(Given::default().file(&path).unwrap(), Some(day_ms), 7);
    let mistaken = Given::default().flag("self_monitoring_tenant", "anonymous");
    assert!(Settings::resolve(&mistaken).unwrap_err().to_string().contains("must not be anonymous"));
}
