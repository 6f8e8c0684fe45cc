//! The texts of a slot's points in Graphite's protocols. Points are encoded again in each round, because their values
//! and times have no fixed length.

use super::plan::Plan;
use super::template::SlotTarget;
use bytes::Bytes;
use protocol::encode::graphite::{PickleEncoder, line};

/// Bytes that a point takes in addition to its path: value, time, separators, or opcodes.
const POINT_BYTES: usize = 40;

#[derive(Debug)]
pub(super) struct Lines {
    pickled: bool,
    /// Names of the metrics from `first_metric` on.
    names: Vec<Box<str>>,
    first_metric: u32,
    /// Text before and after the metric's name, for each target of the slot.
    around: Vec<(Box<str>, Box<str>)>,
    /// Length of the body that was built last.
    body_bytes: usize,
}

impl Lines {
    pub(super) fn of(plan: &Plan, targets: &[SlotTarget], metric_generation: u64, pickled: bool) -> Self {
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
            body_bytes: 0,
        }
    }

    pub(super) fn body(&mut self, plan: &Plan, targets: &[SlotTarget], round: u32) -> Bytes {
        let mut body = Vec::with_capacity(match self.body_bytes {
            0 => self.body_bytes_expected(targets),
            known => known + known / 16,
        });
        if self.pickled {
            let mut frames = PickleEncoder::new(&mut body);
            self.points(plan, targets, round, |path, value, time_s| frames.point(path, value, time_s));
            frames.finish();
        } else {
            self.points(plan, targets, round, |path, value, time_s| line(&mut body, path, value, time_s));
        }
        self.body_bytes = body.len();
        body.into()
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

    pub(super) fn memory_bytes(&self) -> usize {
        let names: usize = self.names.iter().map(|name| size_of_val(name) + name.len()).sum();
        let around: usize =
            self.around.iter().map(|pair| size_of_val(pair) + pair.0.len() + pair.1.len()).sum();
        names + around
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

    fn text(plan: &Plan, slot: usize, round: u32) -> String {
        let mut template = Renderer::new(Protocol::Graphite).render(plan, plan.slot(slot), round);
        String::from_utf8(template.body(plan, round).to_vec()).unwrap()
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
