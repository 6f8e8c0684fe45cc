//! How the values of an interval become one value.

use super::quantile::{Outcome, Samples};

/// Carbon's aggregation methods.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Function {
    Avg,
    Count,
    Max,
    Min,
    Sum,
    /// A quantile from 0 to 1. Between two values, it is interpolated.
    Quantile(f64),
}

impl Function {
    /// The names in the file.
    pub const ALL: [(&str, Self); 12] = [
        ("avg", Self::Avg),
        ("count", Self::Count),
        ("max", Self::Max),
        ("min", Self::Min),
        ("p50", Self::Quantile(0.5)),
        ("p75", Self::Quantile(0.75)),
        ("p80", Self::Quantile(0.8)),
        ("p90", Self::Quantile(0.9)),
        ("p95", Self::Quantile(0.95)),
        ("p99", Self::Quantile(0.99)),
        ("p999", Self::Quantile(0.999)),
        ("sum", Self::Sum),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(found, _)| *found == name).map(|(_, function)| *function)
    }

    /// The position in [`Self::ALL`], so that two functions are the same if their numbers are.
    #[must_use]
    pub fn number(self) -> usize {
        Self::ALL.iter().position(|(_, function)| *function == self).unwrap_or(Self::ALL.len())
    }
}

/// The values of an interval, or what is needed of them.
#[derive(Debug)]
pub(super) enum Values {
    Folded { count: u64, value: f64 },
    All(Samples),
}

impl Values {
    pub(super) fn new(function: Function) -> Self {
        match function {
            Function::Quantile(_) => Self::All(Samples::default()),
            _ => Self::Folded { count: 0, value: 0.0 },
        }
    }

    pub(super) const fn count(&self) -> u64 {
        match self {
            Self::Folded { count, .. } => *count,
            Self::All(samples) => samples.count(),
        }
    }

    pub(super) const fn heap_bytes(&self) -> usize {
        match self {
            Self::Folded { .. } => 0,
            Self::All(samples) => samples.heap_bytes(),
        }
    }

    /// Adds a value. `reserve` is called with the bytes that are needed, before they are allocated.
    pub(super) fn add<E>(
        &mut self,
        function: Function,
        new: f64,
        reserve: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Folded { count, value } => {
                *value = match function {
                    Function::Max if *count > 0 => value.max(new),
                    Function::Min if *count > 0 => value.min(new),
                    Function::Max | Function::Min => new,
                    _ => *value + new,
                };
                *count += 1;
                Ok(())
            }
            Self::All(samples) => samples.add(new, reserve),
        }
    }

    /// The value of the interval, or what is needed to compute it. There must be at least one value.
    pub(super) fn compute(&mut self, function: Function) -> Outcome {
        match (self, function) {
            (Self::Folded { count, .. }, Function::Count) => Outcome::Is(*count as f64),
            (Self::Folded { count, value }, Function::Avg) => Outcome::Is(*value / *count as f64),
            (Self::Folded { value, .. }, _) => Outcome::Is(*value),
            (Self::All(samples), Function::Quantile(quantile)) => samples.quantile(quantile),
            (Self::All(samples), _) => Outcome::Is(samples.count() as f64),
        }
    }
}
