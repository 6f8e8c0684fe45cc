//! What the drivers put into bodies is decoded by the server's decoders, or by hand, and compared with the plan.

use super::*;
use crate::generate::fleet::{Fleet, Histograms};
use crate::generate::naming::Naming;
use crate::generate::plan::tests::small;
use crate::generate::template::{Renderer, Template};
use model::{Batch as Decoded, BatchSeries, Labels, LabelsBuilder};
use protocol::{Body, Decoder, Encoding, Request, SharedLabels, csv, exposition, influx, jsonl, statsd};
use std::sync::Arc;
use stdx::budget::Account;

/// Labels, time and bits of the value.
type Row = (String, i64, u64);

fn with_histograms() -> Plan {
    let fleet = Fleet { histograms: Histograms { count: 1, buckets: 2 }, ..Fleet::default() };
    Plan { fleet, ..small() }
}

fn text(plan: &Plan, slot: usize, round: u32) -> String {
    let mut template = Renderer::new(Protocol::Graphite).render(plan, plan.slot(slot), round);
    String::from_utf8(template.body(plan, round).to_vec()).unwrap()
}

fn expected(plan: &Plan, slot: usize, round: u32) -> Vec<Row> {
    let slot = plan.slot(slot);
    let row = |index| {
        let (target, metric) = plan.series_at(slot, index);
        let mut labels = plan.fleet.target_labels(target, 0);
        labels.extend(plan.fleet.histograms.le(metric).map(|le| ("le".to_owned(), le)));
        labels.push(("__name__".into(), plan.fleet.metric_name(metric, 0)));
        let pairs: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let value = plan.value(plan.target_key(target, 0), metric, round).to_bits();
        (Labels::from_pairs(&pairs).to_string(), plan.timestamp_ms(target, round), value)
    };
    (0..slot.len).map(row).collect()
}

/// Protocols of lines over HTTP have the samples that remote write has. A slot of 8 series begins within the second target.
#[test]
fn texts_contain_the_samples_of_the_plan() {
    let plan = with_histograms();
    for protocol in [Protocol::Influx, Protocol::JsonLines, Protocol::Text, Protocol::Csv, Protocol::OtlpJson]
    {
        for round in [0, 7] {
            let mut template = Renderer::new(protocol).render(&plan, plan.slot(1), round);
            let body = template.body(&plan, round);
            assert!(template.memory_bytes() > 100);
            let mut found = decoded(protocol, &template, &body);
            let mut expected = expected(&plan, 1, round);
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{protocol:?}");
        }
    }
}

fn decoded(protocol: Protocol, template: &Template, body: &[u8]) -> Vec<Row> {
    match protocol {
        Protocol::Influx => {
            let names = Arc::new(influx::Names::default());
            let precision = influx::Precision::default();
            decoded_by::<influx::Decoder>(influx::Format { precision, arrival_ms: 0, names }, body)
        }
        Protocol::JsonLines => {
            let labels = Arc::new(SharedLabels::default());
            decoded_by::<jsonl::Decoder>(jsonl::Format { labels, first_line: 1 }, body)
        }
        Protocol::Csv => {
            let query = template.query().unwrap();
            let map = query.strip_prefix("format=").unwrap();
            let columns = Arc::new(csv::Columns::parse(map, SharedLabels::default()).unwrap());
            decoded_by::<csv::Decoder>(csv::Format { columns, arrival_ms: 0, first_line: 1 }, body)
        }
        Protocol::OtlpJson => decoded_json(body),
        _ => {
            let (dialect, labels) = (exposition::Dialect::Prometheus, Arc::default());
            let format = exposition::Format { dialect, labels, arrival_ms: 0, first_line: 1 };
            decoded_by::<exposition::Decoder>(format, body)
        }
    }
}

fn decoded_by<D: Decoder>(format: D::Format, bytes: &[u8]) -> Vec<Row> {
    let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
    let mut batch = Decoded::default();
    let body = Body { encoding: Encoding::Identity, bytes };
    D::new(1).decode(Request { format: format.clone(), body }, &mut batch, &mut memory).unwrap();
    assert_eq!(batch.refused_series, 0, "{:?}", batch.refused);
    let floats = &batch.floats;
    let sample = |series: &BatchSeries| {
        let labels =
            D::label_form(&format).labels_of(&batch.bytes, &series.labels, &mut LabelsBuilder::new());
        let at = series.samples.start as usize;
        (labels.unwrap().to_string(), floats.timestamps[at], floats.values[at].to_bits())
    };
    floats.series.iter().map(sample).collect()
}

/// Reads a request of OpenTelemetry in JSON, with the labels that Prometheus makes.
fn decoded_json(body: &[u8]) -> Vec<Row> {
    let request: serde_json::Value = serde_json::from_slice(body).unwrap();
    let list = |value: &serde_json::Value, name: &str| value[name].as_array().unwrap().clone();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let pairs = |of: &serde_json::Value| -> Vec<(String, String)> {
        let pair = |a: &serde_json::Value| (text(&a["key"]), text(&a["value"]["stringValue"]));
        list(of, "attributes").iter().map(pair).collect()
    };
    let mut rows = Vec::new();
    for resource in list(&request, "resourceMetrics") {
        let of_resource = pairs(&resource["resource"]).into_iter().map(|(key, value)| match key.as_str() {
            "service.name" => ("job".to_owned(), value),
            "service.instance.id" => ("instance".to_owned(), value),
            other => panic!("{other} is an attribute of a resource"),
        });
        let of_resource: Vec<_> = of_resource.collect();
        for metric in list(&resource, "scopeMetrics").iter().flat_map(|scope| list(scope, "metrics")) {
            for point in list(&metric["gauge"], "dataPoints") {
                let mut labels = pairs(&point);
                labels.extend(of_resource.clone());
                labels.push(("__name__".to_owned(), text(&metric["name"])));
                let labels: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                let time_ns: i64 = text(&point["timeUnixNano"]).parse().unwrap();
                let value = point["asDouble"].as_f64().unwrap().to_bits();
                rows.push((Labels::from_pairs(&labels).to_string(), time_ns / 1_000_000, value));
            }
        }
    }
    rows
}

/// The URL says what the columns are, and a row has all values of a target that have no bound.
#[test]
fn tables_have_a_row_for_each_target() {
    let plan = Plan { fleet: Fleet { labels: 2, ..Fleet::default() }, ..small() };
    let mut template = Renderer::new(Protocol::Csv).render(&plan, plan.slot(1), 0);
    let body = template.body(&plan, 0);
    let rows: Vec<&str> = std::str::from_utf8(&body).unwrap().lines().collect();
    assert_eq!(
        template.query().unwrap(),
        "format=1:time:unix_ms,2:label:pod,3:metric:metric_0,4:metric:metric_1,5:metric:metric_2,\
         6:metric:metric_3,7:metric:metric_4"
    );
    // the metrics 3 and 4 of a target, and all of the next
    let [first, second, third] = rows[..] else { panic!("{rows:?}") };
    assert!(first.split(',').skip(2).map(str::is_empty).eq([true, true, true, false, false]), "{first}");
    assert!(second.split(',').all(|cell| !cell.is_empty()) && second.split(',').count() == 7, "{second}");
    assert!(third.ends_with(",,,,") && third.split(',').count() == 7, "{third}");
}

/// Statsd's values have no times of their own. A negative value is a change of zero.
#[test]
fn gauges_have_the_values_of_the_plan() {
    let plan = Plan { values: crate::generate::values::ValueModel::Walk, ..with_histograms() };
    for (slot, round) in (0..plan.slots_count()).flat_map(|slot| [(slot, 0), (slot, 7)]) {
        let mut template = Renderer::new(Protocol::Statsd).render(&plan, plan.slot(slot), round);
        let body = template.body(&plan, round);
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let found: Vec<_> = lines
            .map(|line| {
                let line = statsd::Line::parse(line).unwrap();
                assert_eq!(line.kind, statsd::Kind::Gauge);
                let value = line.values().fold(f64::NAN, |value, next| match next {
                    statsd::Value::Number(number) => number,
                    statsd::Value::Change(change) => value + change,
                    statsd::Value::Member(_) => panic!("a member of a set"),
                });
                (line.labels(&mut LabelsBuilder::new()).unwrap().to_string(), value.to_bits())
            })
            .collect();
        let expected: Vec<_> =
            expected(&plan, slot, round).into_iter().map(|(labels, _, value)| (labels, value)).collect();
        assert_eq!(found, expected);
    }
    let mut below_zero = Vec::new();
    super::statsd::put_gauge(&mut below_zero, -2.5);
    assert_eq!(below_zero, b"0:-2.5");
}

#[test]
fn lines_contain_the_samples_of_the_plan() {
    let plan = Plan { resolution_ms: 1_000, ..with_histograms() };
    for round in [0, 7] {
        let slot = plan.slot(1);
        let text = text(&plan, 1, round);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8);
        for (index, line) in (0..).zip(lines) {
            let (target, metric) = plan.series_at(slot, index);
            let [path, value, time] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let mut tags = path.split(';');
            assert_eq!(tags.next(), Some(plan.fleet.metric_name(metric, 0).as_str()));
            let mut found: Vec<(String, String)> =
                tags.map(|tag| tag.split_once('=').map(|(k, v)| (k.into(), v.into())).unwrap()).collect();
            let mut labels = plan.fleet.target_labels(target, 0);
            labels.extend(plan.fleet.histograms.le(metric).map(|le| ("le".to_owned(), le)));
            found.sort();
            labels.sort();
            assert_eq!(found, labels);
            let sent: f64 = value.parse().unwrap();
            assert_eq!(sent.to_bits(), plan.value(plan.target_key(target, 0), metric, round).to_bits());
            assert_eq!(time.parse::<i64>().unwrap() * 1000, plan.timestamp_ms(target, round));
        }
    }
}

#[test]
fn timers_have_paths_of_fifteen_figures() {
    let naming = Naming::Timers { prefix: "STRESS".into(), per_host: 7 };
    let fleet = Fleet { naming, ..Fleet::default() };
    let plan = Plan { fleet, metrics: 15, resolution_ms: 1_000, batch: 15, first_writer: 0, ..small() };
    let lines = text(&plan, 9, 0);
    assert_eq!(lines.lines().count(), 15);
    assert!(lines.lines().all(|line| line.starts_with("STRESS.host-1.timer-2.")), "{lines}");
    assert!(lines.contains(".count ") && lines.contains(".p999 "), "{lines}");
}
