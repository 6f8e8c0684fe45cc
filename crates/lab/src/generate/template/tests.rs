use super::*;
use crate::generate::fleet::{Fleet, Histograms};
use crate::generate::plan::tests::small;
use model::Labels;
use prost::Message;

#[path = "../../../../protocol/tests/it/proto.rs"]
#[allow(dead_code, reason = "the protocol's own tests use all of it")]
mod proto;

#[path = "../../../../protocol/tests/it/otlp/proto.rs"]
#[allow(dead_code, reason = "the protocol's own tests use all of it")]
mod otlp;

type Row = (String, i64, u64);

/// Decodes a request independently of the template.
fn decode(version: Version, body: &[u8]) -> Vec<Row> {
    let row = |pairs: &[(&str, &str)], samples: &[(i64, f64)]| {
        let [(timestamp, value)] = samples else { panic!("{} samples", samples.len()) };
        (Labels::from_pairs(pairs).to_string(), *timestamp, value.to_bits())
    };
    match version {
        Version::V1 => {
            let request: proto::v1::WriteRequest = proto::unpack(body);
            let rows = request.timeseries.iter().map(|s| {
                let pairs: Vec<_> = s.labels.iter().map(|l| (l.name.as_str(), l.value.as_str())).collect();
                row(&pairs, &s.samples.iter().map(|s| (s.timestamp, s.value)).collect::<Vec<_>>())
            });
            rows.collect()
        }
        Version::V2 => {
            let request: proto::v2::Request = proto::unpack(body);
            let text = |r: &u32| request.symbols[*r as usize].as_str();
            let rows = request.timeseries.iter().map(|s| {
                let pairs: Vec<_> = s.labels_refs.chunks(2).map(|p| (text(&p[0]), text(&p[1]))).collect();
                row(&pairs, &s.samples.iter().map(|s| (s.timestamp, s.value)).collect::<Vec<_>>())
            });
            rows.collect()
        }
    }
}

/// Rows that a slot's request should have, computed directly from the plan.
fn expected(plan: &Plan, slot: SlotRange, round: u32) -> Vec<Row> {
    let rows = (0..slot.len).map(|index| {
        let (target, metric) = plan.series_at(slot, index);
        let generation = plan.generation(target, round);
        let mut labels = plan.fleet.target_labels(target, generation);
        let name = plan.fleet.metric_name(metric, plan.metric_generation(round));
        labels.push(("__name__".into(), name));
        labels.extend(plan.fleet.histograms.le(metric).map(|le| ("le".to_owned(), le)));
        let pairs: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let value = plan.value(plan.target_key(target, generation), metric, round);
        (Labels::from_pairs(&pairs).to_string(), plan.timestamp_ms(target, round), value.to_bits())
    });
    rows.collect()
}

#[test]
fn requests_contain_the_samples_of_the_plan() {
    for version in [Version::V1, Version::V2] {
        for (metrics, staggered) in [(5, false), (1, true), (30, true)] {
            let histograms = Histograms { count: metrics / 15, buckets: 4 };
            let plan = Plan {
                fleet: Fleet { histograms, ..Fleet::default() },
                metrics,
                series_churn_ticks: Some(4),
                series_churn_staggered: staggered,
                metric_churn_ticks: Some(6),
                ..small()
            };
            let mut renderer = Renderer::new(version);
            for slot in 0..plan.slots_count() {
                let range = plan.slot(slot);
                let mut template = renderer.render(&plan, range, 0);
                for round in 0..14 {
                    if !template.fits(&plan, round) {
                        let next = renderer.render(&plan, range, round);
                        assert!(next.new_series(Some(&template)) > 0);
                        template = next;
                    }
                    assert_eq!(decode(version, &template.body(&plan, round)), expected(&plan, range, round));
                }
            }
        }
    }
}

/// Decodes a request of OpenTelemetry independently of the template, with the labels that Prometheus makes.
fn decode_points(body: &[u8]) -> Vec<Row> {
    let pairs_of = |attributes: &[otlp::KeyValue]| -> Vec<(String, String)> {
        let text = |attribute: &otlp::KeyValue| match attribute.value.as_ref().and_then(|v| v.value.clone()) {
            Some(otlp::Value::Text(text)) => text,
            other => panic!("{other:?} is not a text"),
        };
        attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
    };
    let mut rows = Vec::new();
    for resource_metrics in otlp::Request::decode(body).unwrap().resource_metrics {
        let resource = pairs_of(&resource_metrics.resource.unwrap().attributes);
        for metric in resource_metrics.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            let Some(otlp::Data::Gauge(gauge)) = metric.data else { panic!("not a gauge") };
            for point in gauge.points {
                let mut labels = pairs_of(&point.attributes);
                labels.push(("__name__".into(), metric.name.clone()));
                labels.extend(resource.iter().map(|(key, value)| match key.as_str() {
                    "service.name" => ("job".into(), value.clone()),
                    "service.instance.id" => ("instance".into(), value.clone()),
                    other => panic!("{other} is an attribute of a resource"),
                }));
                let pairs: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                let Some(otlp::Number::Double(value)) = point.value else { panic!("no value") };
                assert_eq!(point.time % 1_000_000, 0);
                let timestamp_ms = (point.time / 1_000_000) as i64;
                rows.push((Labels::from_pairs(&pairs).to_string(), timestamp_ms, value.to_bits()));
            }
        }
    }
    rows
}

#[test]
fn points_are_the_samples_of_the_plan() {
    let histograms = Histograms { count: 2, buckets: 4 };
    let fleet = Fleet { histograms, ..Fleet::default() };
    let plan =
        Plan { fleet, metrics: 30, series_churn_ticks: Some(4), metric_churn_ticks: Some(6), ..small() };
    let mut renderer = Renderer::new(Protocol::Otlp);
    for slot in 0..plan.slots_count() {
        let range = plan.slot(slot);
        let mut template = renderer.render(&plan, range, 0);
        for round in 0..14 {
            if !template.fits(&plan, round) {
                template = renderer.render(&plan, range, round);
            }
            assert_eq!(decode_points(&template.body(&plan, round)), expected(&plan, range, round));
        }
    }
}

#[test]
fn new_series_are_counted() {
    let plan = Plan { series_churn_ticks: Some(7), series_churn_staggered: true, ..small() };
    let mut renderer = Renderer::new(Version::V1);
    let total: u64 = (0..plan.slots_count())
        .map(|slot| {
            let first = renderer.render(&plan, plan.slot(slot), 0);
            let after = renderer.render(&plan, plan.slot(slot), 7);
            assert_eq!(first.new_series(None), u64::from(plan.slot(slot).len));
            after.new_series(Some(&first))
        })
        .sum();
    assert_eq!(total, plan.series(), "some series survived a churn interval");
}

#[test]
fn stamps_take_six_bytes() {
    let check = |ms: i64| {
        let mut sample = vec![0x10];
        sample.extend_from_slice(&stamp_varint(ms));
        assert_eq!(proto::v1::Sample::decode(&*sample).unwrap().timestamp, ms);
    };
    check(TIMESTAMP_MS_MIN);
    check(TIMESTAMP_MS_END - 1);
    check(1_795_284_000_123);
}

#[test]
fn strange_messages_are_refused() {
    let mut spots = Vec::new();
    for bad in
        [&[0x08, 1][..], &[0x0a], &[0x0a, 5, 0], &[0x0a, 0xff, 0xff, 0xff, 0xff, 1], &[0x0a, 3, 0x12, 1, 0]]
    {
        assert!(find_samples(bad, 0x0a, &mut spots).is_err(), "{bad:x?}");
    }
}
