//! The texts of a slot's points in Graphite's protocols and in protocols of lines over HTTP. Points are encoded again in
//! each round, because their values and times have no fixed length.

use super::fleet::{series_labels, target_bytes};
use super::plan::Plan;
use super::protocol::Protocol;
use super::template::SlotTarget;
use bytes::Bytes;
use model::LabelsRef;
use protocol::encode::graphite::{PickleEncoder, line};
use protocol::encode::influx;
use protocol::exposition::{Dialect, put_samples};
use protocol::jsonl::put_line;

/// Bytes that a point takes in addition to its path: value, time, separators, or opcodes.
const POINT_BYTES: usize = 40;

/// Fields of a line of Influx. Telegraf's plug-in `cpu` has as many.
const FIELDS_MAX: usize = 10;

#[derive(Debug)]
pub(super) struct Lines {
    texts: Texts,
    /// Length of the body that was built last.
    body_bytes: usize,
}

#[derive(Debug)]
enum Texts {
    Paths(Paths),
    Heads(Heads),
    /// The labels of each series, in the order in which they are sent, and the protocol: JSON lines or text.
    Labels(Vec<Box<[u8]>>, Protocol),
}

/// Paths of Graphite.
#[derive(Debug)]
struct Paths {
    pickled: bool,
    /// Names of the metrics from `first_metric` on.
    names: Vec<Box<str>>,
    first_metric: u32,
    /// Text before and after the metric's name, for each target of the slot.
    around: Vec<(Box<str>, Box<str>)>,
}

/// Heads of Influx' lines. The name of a metric is split at its last underscore into a measurement and the name of a
/// field, so that metrics with the same measurement share a line.
#[derive(Debug)]
struct Heads {
    /// In the order in which they are sent.
    lines: Vec<InfluxLine>,
}

#[derive(Debug)]
struct InfluxLine {
    head: Box<[u8]>,
    fields: Vec<Box<str>>,
}

impl Lines {
    pub(super) fn of(
        plan: &Plan,
        targets: &[SlotTarget],
        metric_generation: u64,
        protocol: Protocol,
    ) -> Self {
        let texts = match protocol {
            Protocol::Influx => Texts::Heads(Heads::of(plan, targets, metric_generation)),
            Protocol::JsonLines | Protocol::Text => {
                Texts::Labels(labels_of(plan, targets, metric_generation), protocol)
            }
            _ => {
                let pickled = protocol == Protocol::GraphitePickle;
                Texts::Paths(Paths::of(plan, targets, metric_generation, pickled))
            }
        };
        Self { texts, body_bytes: 0 }
    }

    pub(super) fn body(&mut self, plan: &Plan, targets: &[SlotTarget], round: u32) -> Bytes {
        let mut body = Vec::with_capacity(match self.body_bytes {
            0 => self.body_bytes_expected(targets),
            known => known + known / 16,
        });
        match &self.texts {
            Texts::Paths(paths) => paths.put(&mut body, plan, targets, round),
            Texts::Heads(heads) => heads.put(&mut body, plan, targets, round),
            Texts::Labels(labels, protocol) => {
                let mut labels = labels.iter();
                each_sample(plan, targets, round, |timestamp_ms, value| {
                    let labels = labels.next().expect("BUG: a series has no labels");
                    let labels = LabelsRef::from_canonical(labels);
                    match protocol {
                        Protocol::JsonLines => put_line(&mut body, labels, &[timestamp_ms], &[value]),
                        _ => {
                            put_samples(&mut body, Dialect::Prometheus, labels, &[timestamp_ms], &[value]);
                        }
                    }
                });
            }
        }
        self.body_bytes = body.len();
        body.into()
    }

    fn body_bytes_expected(&self, targets: &[SlotTarget]) -> usize {
        match &self.texts {
            Texts::Paths(paths) => paths.body_bytes_expected(targets),
            Texts::Heads(Heads { lines }) => {
                let line = |InfluxLine { head, fields }: &InfluxLine| {
                    head.len() + fields.iter().map(|field| field.len() + POINT_BYTES).sum::<usize>()
                };
                lines.iter().map(line).sum()
            }
            Texts::Labels(labels, _) => labels.iter().map(|labels| labels.len() + 2 * POINT_BYTES).sum(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let texts = |texts: &[Box<str>]| -> usize { texts.iter().map(|t| size_of_val(t) + t.len()).sum() };
        match &self.texts {
            Texts::Paths(Paths { names, around, .. }) => {
                let around = around.iter().map(|pair| size_of_val(pair) + pair.0.len() + pair.1.len());
                texts(names) + around.sum::<usize>()
            }
            Texts::Heads(Heads { lines }) => {
                lines.iter().map(|line| size_of_val(line) + line.head.len() + texts(&line.fields)).sum()
            }
            Texts::Labels(labels, _) => labels.iter().map(|labels| size_of_val(labels) + labels.len()).sum(),
        }
    }
}

/// Calls `sample` with the time and the value of each series of a slot.
fn each_sample(plan: &Plan, targets: &[SlotTarget], round: u32, mut sample: impl FnMut(i64, f64)) {
    for part in targets {
        let key = plan.target_key(part.target, part.generation);
        let timestamp_ms = plan.timestamp_ms(part.target, round);
        for metric in part.first_metric..part.first_metric + part.metrics {
            sample(timestamp_ms, plan.value(key, metric, round));
        }
    }
}

fn labels_of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Vec<Box<[u8]>> {
    let (fleet, mut all, mut labels) = (&plan.fleet, Vec::new(), Vec::new());
    for part in targets {
        let target = target_bytes(&fleet.target_labels(part.target, part.generation));
        for metric in part.first_metric..part.first_metric + part.metrics {
            let name = fleet.metric_name(metric, metric_generation);
            let name = fleet.series_name(part.target, part.generation, &name);
            let le = fleet.histograms.le(metric);
            series_labels(&mut labels, &name, le.as_deref(), &target);
            all.push(labels.as_slice().into());
        }
    }
    all
}

impl Heads {
    fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64) -> Self {
        let fleet = &plan.fleet;
        let mut lines: Vec<InfluxLine> = Vec::new();
        for part in targets {
            let labels = fleet.target_labels(part.target, part.generation);
            let first_line = lines.len();
            for metric in part.first_metric..part.first_metric + part.metrics {
                let name = fleet.metric_name(metric, metric_generation);
                let (measurement, field) =
                    name.rsplit_once('_').expect("BUG: the name of a metric has no underscore");
                let le = fleet.histograms.le(metric);
                let tags = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                let tags = tags.chain(le.as_deref().map(|le| ("le", le)));
                let mut head = Vec::new();
                influx::head(&mut head, measurement, tags);
                match lines[first_line..].last_mut() {
                    Some(last) if *last.head == *head && last.fields.len() < FIELDS_MAX => {
                        last.fields.push(field.into());
                    }
                    _ => lines.push(InfluxLine { head: head.into(), fields: vec![field.into()] }),
                }
            }
        }
        Self { lines }
    }

    fn put(&self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        let (mut lines, mut begun) = (self.lines.iter(), None);
        each_sample(plan, targets, round, |timestamp_ms, value| {
            let (line, next): (&InfluxLine, usize) = match begun.take() {
                Some(begun) => begun,
                None => (lines.next().expect("BUG: a sample has no line"), 0),
            };
            if next == 0 {
                body.extend_from_slice(&line.head);
            }
            influx::field(body, next == 0, &line.fields[next], value);
            if next + 1 == line.fields.len() {
                influx::end(body, timestamp_ms);
            } else {
                begun = Some((line, next + 1));
            }
        });
    }
}

impl Paths {
    fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64, pickled: bool) -> Self {
        let fleet = &plan.fleet;
        let first_metric = targets.iter().map(|part| part.first_metric).min().unwrap_or(0);
        let end = targets.iter().map(|part| part.first_metric + part.metrics).max().unwrap_or(0);
        let name = |metric| {
            let mut name = fleet.metric_name(metric, metric_generation);
            if let Some(le) = fleet.histograms.le(metric) {
                name.push_str(";le=");
                name.push_str(&le);
            }
            name.into()
        };
        let around = targets.iter().map(|part| {
            let prefix = fleet.naming.prefix(part.target, part.generation);
            let labels = fleet.target_labels(part.target, part.generation);
            let tags: String = labels.iter().map(|(name, value)| format!(";{name}={value}")).collect();
            (prefix.into(), tags.into())
        });
        Self {
            pickled,
            names: (first_metric..end).map(name).collect(),
            first_metric,
            around: around.collect(),
        }
    }

    fn put(&self, body: &mut Vec<u8>, plan: &Plan, targets: &[SlotTarget], round: u32) {
        if self.pickled {
            let mut frames = PickleEncoder::new(body);
            self.points(plan, targets, round, |path, value, time_s| frames.point(path, value, time_s));
            frames.finish();
        } else {
            self.points(plan, targets, round, |path, value, time_s| line(body, path, value, time_s));
        }
    }

    fn points(
        &self,
        plan: &Plan,
        targets: &[SlotTarget],
        round: u32,
        mut point: impl FnMut(&[&str], f64, i64),
    ) {
        for (part, (prefix, tags)) in targets.iter().zip(&self.around) {
            let key = plan.target_key(part.target, part.generation);
            let time_s = plan.timestamp_ms(part.target, round) / 1000;
            for metric in part.first_metric..part.first_metric + part.metrics {
                let name = &self.names[(metric - self.first_metric) as usize];
                point(&[prefix, name, tags], plan.value(key, metric, round), time_s);
            }
        }
    }

    fn body_bytes_expected(&self, targets: &[SlotTarget]) -> usize {
        let name = self.names.iter().map(|name| name.len()).max().unwrap_or(0);
        let series = targets.iter().zip(&self.around);
        series
            .map(|(part, (prefix, tags))| {
                part.metrics as usize * (prefix.len() + name + tags.len() + POINT_BYTES)
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fleet::{Fleet, Histograms};
    use super::super::naming::Naming;
    use super::super::plan::Plan;
    use super::super::plan::tests::small;
    use super::super::protocol::Protocol;
    use super::super::template::Renderer;
    use model::{Batch, BatchSeries, Labels, LabelsBuilder};
    use protocol::{Body, Decoder, Encoding, Request, SharedLabels, exposition, influx, jsonl};
    use std::sync::Arc;
    use stdx::budget::Account;

    fn text(plan: &Plan, slot: usize, round: u32) -> String {
        let mut template = Renderer::new(Protocol::Graphite).render(plan, plan.slot(slot), round);
        String::from_utf8(template.body(plan, round).to_vec()).unwrap()
    }

    /// Protocols of lines over HTTP have the samples that remote write has.
    #[test]
    fn texts_contain_the_samples_of_the_plan() {
        let fleet = Fleet { histograms: Histograms { count: 1, buckets: 2 }, ..Fleet::default() };
        let plan = Plan { fleet, ..small() };
        for (protocol, round) in
            [Protocol::Influx, Protocol::JsonLines, Protocol::Text].into_iter().flat_map(|p| [(p, 0), (p, 7)])
        {
            let slot = plan.slot(1);
            let mut template = Renderer::new(protocol).render(&plan, slot, round);
            let body = template.body(&plan, round);
            assert!(template.memory_bytes() > 100);
            let mut found = decoded(protocol, &body);
            let mut expected: Vec<_> = (0..slot.len)
                .map(|index| {
                    let (target, metric) = plan.series_at(slot, index);
                    let mut labels = plan.fleet.target_labels(target, 0);
                    labels.extend(plan.fleet.histograms.le(metric).map(|le| ("le".to_owned(), le)));
                    labels.push(("__name__".into(), plan.fleet.metric_name(metric, 0)));
                    let pairs: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                    let value = plan.value(plan.target_key(target, 0), metric, round).to_bits();
                    (Labels::from_pairs(&pairs).to_string(), plan.timestamp_ms(target, round), value)
                })
                .collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{protocol:?}");
        }
    }

    fn decoded(protocol: Protocol, body: &[u8]) -> Vec<(String, i64, u64)> {
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
            _ => {
                let (dialect, labels) = (exposition::Dialect::Prometheus, Arc::default());
                let format = exposition::Format { dialect, labels, arrival_ms: 0, first_line: 1 };
                decoded_by::<exposition::Decoder>(format, body)
            }
        }
    }

    fn decoded_by<D: Decoder>(format: D::Format, bytes: &[u8]) -> Vec<(String, i64, u64)> {
        let mut memory = Account::new("test", 1 << 20).reserve(0).unwrap();
        let mut batch = Batch::default();
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

    /// A slot of 8 series begins within the second target.
    #[test]
    fn lines_contain_the_samples_of_the_plan() {
        let fleet = Fleet { histograms: Histograms { count: 1, buckets: 2 }, ..Fleet::default() };
        let plan = Plan { fleet, resolution_ms: 1_000, ..small() };
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
}
