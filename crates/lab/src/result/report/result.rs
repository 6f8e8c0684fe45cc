//! A report of `lab write` in the form of a result, to be kept, shown and compared like those of scenarios.

use super::{TargetCost, WriteReport};
use crate::generate::template::Version;
use crate::observe::compare_with_load;
use crate::result::{Event, EventKind, FORMAT, Machine, RunResult};
use std::collections::BTreeMap;

impl WriteReport {
    /// The same as a result. It has no rules, no steps and no figures second by second: those are for scenarios.
    pub fn to_result(&self) -> RunResult {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.verify_error.as_ref().map(|why| format!("not verified: {why}")));
        let mut result = RunResult {
            format: FORMAT,
            name: "write".to_owned(),
            scenario: self.configuration(),
            seed: self.plan.fleet.seed,
            target: self.url.clone(),
            versions: BTreeMap::from([("lab".to_owned(), self.version.to_owned())]),
            machine: Machine::this(),
            part: (1, 1),
            begun_ms: self.begun_ms,
            wall_s: self.wall_s,
            partial: self.partial,
            events: match self.partial {
                true => vec![Event::new(self.wall_s, EventKind::Run, "stopped before its end")],
                false => Vec::new(),
            },
            totals: self.totals.clone(),
            verify: self.verify.clone(),
            observed: observed(self.target, self.wall_s),
            warnings,
            notes: match self.verify {
                Some(_) => Vec::new(),
                None => vec![
                    "Nothing was read back: that a sample was acknowledged does not show that it is there."
                        .into(),
                ],
            },
            ..RunResult::default()
        };
        compare_with_load(&mut result);
        result
    }

    /// The options as data: there is no scenario file.
    fn configuration(&self) -> String {
        let plan = toml::to_string(&self.plan).unwrap_or_default();
        let rate = self.offered_samples_per_s.map_or_else(String::new, |rate| format!("rate = {rate:?}\n"));
        let protocol = match self.protocol {
            Version::V1 => "1.0",
            Version::V2 => "2.0",
        };
        format!("protocol = {protocol:?}\nconnections = {}\n{rate}\n{plan}", self.connections)
    }
}

/// What the target cost, under the names of [`crate::result::figures::FIGURES`].
fn observed(cost: Option<TargetCost>, wall_s: f64) -> BTreeMap<String, f64> {
    let Some(cost) = cost else { return BTreeMap::new() };
    let figures = [
        ("cpu_s", cost.cpu_s),
        ("cpu_cores_mean", cost.cpu_s.map(|cpu_s| cpu_s / wall_s)),
        ("rss_end_bytes", cost.rss_bytes.map(|bytes| bytes as f64)),
        ("rss_peak_bytes", cost.rss_peak_bytes.map(|bytes| bytes as f64)),
    ];
    figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::figures::FIGURES;

    #[test]
    fn what_is_observed_has_the_names_of_figures() {
        let known: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
        let cost = TargetCost {
            cpu_s: Some(2.0),
            samples_per_cpu_s: Some(10.0),
            rss_bytes: Some(1),
            rss_peak_bytes: Some(2),
        };
        let observed = observed(Some(cost), 4.0);
        assert_eq!(observed.len(), 4);
        assert_eq!(observed["cpu_cores_mean"], 0.5);
        assert!(observed.keys().all(|name| known.contains(&name.as_str())), "{observed:?}");
    }
}
