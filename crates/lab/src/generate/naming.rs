//! Names of series: labels as a Prometheus server would send them, or paths as Graphite's clients send them.

use serde::{Deserialize, Serialize};

/// Figures of a timer of Coda Hale's metrics library. Each is a metric of its own.
pub const TIMER_FIGURES: [&str; 15] = [
    "count",
    "m1_rate",
    "m5_rate",
    "m15_rate",
    "max",
    "mean",
    "mean_rate",
    "min",
    "p50",
    "p75",
    "p95",
    "p98",
    "p99",
    "p999",
    "stddev",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// A series has labels. Graphite gets them as tags.
    #[default]
    Labels,
    /// A series has no labels, and its name is a path such as `STRESS.host-0.timer-17.p99`. A target is a timer, and
    /// a writer is a host.
    Timers {
        /// First part of the path.
        prefix: String,
        per_host: u64,
    },
}

impl Naming {
    /// The part of a series' name that says to which target it belongs, with a dot at its end. Empty if labels say
    /// so.
    pub fn prefix(&self, target: u64, generation: u64) -> String {
        match self {
            Self::Labels => String::new(),
            Self::Timers { prefix, per_host } => {
                let (host, timer) = (target / per_host.max(&1), target % per_host.max(&1));
                match generation {
                    0 => format!("{prefix}.host-{host}.timer-{timer}."),
                    _ => format!("{prefix}.host-{host}.timer-{timer}-g{generation}."),
                }
            }
        }
    }

    /// Splits the name of a series into its [prefix](Self::prefix) and the name of its metric.
    pub fn split<'a>(&self, name: &'a str) -> (&'a str, &'a str) {
        match (self, name.rfind('.')) {
            (Self::Timers { .. }, Some(dot)) => name.split_at(dot + 1),
            _ => ("", name),
        }
    }

    pub(super) fn metric_name(&self, metric: u32) -> Option<&'static str> {
        match self {
            Self::Labels => None,
            Self::Timers { .. } => Some(TIMER_FIGURES[metric as usize % TIMER_FIGURES.len()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_timers() {
        let naming = Naming::Timers { prefix: "STRESS".into(), per_host: 100 };
        assert_eq!(naming.prefix(17, 0), "STRESS.host-0.timer-17.");
        assert_eq!(naming.prefix(203, 2), "STRESS.host-2.timer-3-g2.");
        assert_eq!(naming.split("STRESS.host-0.timer-17.p99"), ("STRESS.host-0.timer-17.", "p99"));
        assert_eq!(naming.split("p99"), ("", "p99"));
        assert_eq!(Naming::Labels.split("a.b"), ("", "a.b"));
    }
}
