//! Series that tests write into tables.

use model::{Labels, SeriesKey};
use tables::{Date, FileStem, Stretch};

#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) labels: Labels,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) values: Vec<f64>,
}

impl Series {
    pub(crate) fn new(pairs: &[(&str, &str)], samples: &[(i64, f64)]) -> Self {
        let (timestamps, values) = samples.iter().copied().unzip();
        Self { labels: Labels::from_pairs(pairs), timestamps, values }
    }

    pub(crate) fn key(&self) -> SeriesKey {
        SeriesKey::of(self.labels.as_bytes(), 7)
    }

    pub(crate) fn stretch(&self) -> Stretch<'_> {
        let key = self.key();
        Stretch { labels: self.labels.as_ref(), key, timestamps: &self.timestamps, values: &self.values }
    }

    /// Labels, time and value (its bits) of each sample.
    pub(crate) fn bits(&self) -> Vec<(String, i64, u64)> {
        let label = self.labels.to_string();
        self.timestamps.iter().zip(&self.values).map(|(t, v)| (label.clone(), *t, v.to_bits())).collect()
    }
}

/// Beginning of a test's file names.
pub(crate) fn stem(name: &str) -> FileStem {
    FileStem::imported(name, 0)
}

/// 2026-11-21T00:00:00Z
pub(crate) const DAY: i64 = 1_795_219_200_000;

pub(crate) fn date() -> Date {
    Date::of(DAY)
}

/// Makes `names` metrics with `pods` series each, in table order.
pub(crate) fn fleet(names: usize, pods: usize, samples: i64) -> Vec<Series> {
    let mut out = Vec::new();
    for name in 0..names {
        for pod in 0..pods {
            let (name, pod) = (format!("metric_{name:04}"), format!("pod-{pod:05}"));
            let pairs = [("__name__", name.as_str()), ("job", "api"), ("pod", pod.as_str())];
            let sample = |i: i64| (DAY + i * 15_000, (i * i) as f64 / 8.0);
            out.push(Series::new(&pairs, &(0..samples).map(sample).collect::<Vec<_>>()));
        }
    }
    out
}
