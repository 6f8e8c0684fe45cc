//! A series of an evaluation: a name, tags, and values at equal steps.

use super::Aggregate;
use super::consolidate::consolidated;
use std::sync::Arc;

/// Values of one series at equal steps, as functions see them.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name to show. Functions rewrite it, for example to `scale(a.b,2)`.
    pub name: String,
    pub tags: Tags,
    /// The text that the series comes from, for example the glob that matched it. Aggregations list it in their
    /// names.
    pub path_expression: Arc<str>,
    /// Time of the first value, in seconds since 1970.
    pub start_s: i64,
    /// End of the range, exclusive. May differ from the end of the values by less than a step.
    pub end_s: i64,
    pub step_s: i64,
    /// A value for each step. NaN means that the value is missing.
    pub values: Vec<f64>,
    /// How values are consolidated into points, or into a larger step.
    pub consolidation: Aggregate,
    /// Number of values for each point of the answer. See [`Self::points`].
    pub values_per_point: usize,
    /// Fraction (0 to 1) of an interval's values that must be present when they are consolidated.
    pub x_files_factor: f64,
}

impl Series {
    /// A series that a function computed. Its tag `name` is its name, and its values are consolidated by their
    /// average.
    pub(super) fn computed(name: String, start_s: i64, end_s: i64, step_s: i64, values: Vec<f64>) -> Self {
        Self {
            tags: Tags::named(&name),
            path_expression: name.as_str().into(),
            name,
            start_s,
            end_s,
            step_s,
            values,
            consolidation: Aggregate::Average,
            values_per_point: 1,
            x_files_factor: 0.0,
        }
    }

    /// Renames the series, as most functions do: aggregations of it show the new name too.
    pub(super) fn rename(&mut self, name: String) {
        self.path_expression = name.as_str().into();
        self.name = name;
    }

    /// Memory of the series.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.name.capacity()
            + self.path_expression.len()
            + self.tags.bytes()
            + self.values.capacity() * size_of::<f64>()
    }

    /// Consolidates `count` values into each new value, so that the step gets `count` times as long.
    pub(super) fn coarsen(&mut self, count: usize) {
        if count > 1 {
            self.values =
                consolidated(&self.values, count, self.consolidation, self.x_files_factor).collect();
            self.step_s = self.step_s.saturating_mul(count as i64);
        }
    }

    /// Points of the answer with their times in seconds, each consolidated from [`Self::values_per_point`] values.
    pub fn points(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        let point_s = self.step_s.saturating_mul(self.values_per_point as i64);
        let times = (0i64..).map(move |i| self.start_s.saturating_add(i.saturating_mul(point_s)));
        let values =
            consolidated(&self.values, self.values_per_point, self.consolidation, self.x_files_factor);
        times.zip(values).take_while(|(time_s, _)| *time_s <= self.end_s)
    }
}

/// Tags of a series, sorted by name. The metric name is the tag `name`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tags(Vec<(String, String)>);

impl Tags {
    pub(super) fn named(name: &str) -> Self {
        Self(vec![("name".into(), name.into())])
    }

    /// The tags in a full tagged name: `name;k=v;k2=v2`.
    pub(super) fn of_name(name: &str) -> Self {
        let mut parts = name.split(';');
        let of_name = ("name", parts.next().unwrap_or_default());
        let mut tags: Vec<_> =
            std::iter::once(of_name).chain(parts.filter_map(|part| part.split_once('='))).collect();
        // the last of several values of a tag counts
        tags.reverse();
        tags.sort_by_key(|(tag, _)| *tag);
        tags.dedup_by_key(|(tag, _)| *tag);
        Self(tags.into_iter().map(|(tag, value)| (tag.into(), value.into())).collect())
    }

    /// Upper bound on the memory that [`Self::of_name`] takes.
    pub(super) fn bytes_of_name(name: &str) -> usize {
        const TAG_BYTES: usize = 2 * size_of::<(String, String)>();
        name.len() + (1 + name.matches(';').count()) * TAG_BYTES
    }

    pub fn get(&self, tag: &str) -> Option<&str> {
        self.place(tag).ok().map(|i| self.0[i].1.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(tag, value)| (tag.as_str(), value.as_str()))
    }

    pub(super) fn set(&mut self, tag: &str, value: impl Into<String>) {
        match self.place(tag) {
            Ok(i) => self.0[i].1 = value.into(),
            Err(i) => self.0.insert(i, (tag.into(), value.into())),
        }
    }

    /// Drops all tags that `other` does not have with the same value.
    pub(super) fn keep_common(&mut self, other: &Self) {
        self.0.retain(|(tag, value)| other.get(tag) == Some(value));
    }

    fn place(&self, tag: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| name.as_str().cmp(tag))
    }

    pub(super) fn bytes(&self) -> usize {
        let texts: usize = self.0.iter().map(|(tag, value)| tag.capacity() + value.capacity()).sum();
        texts + self.0.capacity() * size_of::<(String, String)>()
    }
}

#[cfg(test)]
mod tests;
