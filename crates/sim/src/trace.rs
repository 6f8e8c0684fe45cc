use std::fmt::Write;
use std::hash::{Hash, Hasher};

#[derive(Debug, Default)]
pub struct Trace {
    text: String,
    steps: usize,
}

impl Trace {
    pub fn step(&mut self, what: impl std::fmt::Display) {
        self.steps += 1;
        let _ = write!(self.text, "\n{:5} {what}", self.steps); // writing to a String cannot fail
    }

    pub fn note(&mut self, what: impl std::fmt::Display) {
        let _ = write!(self.text, "; {what}"); // writing to a String cannot fail
    }

    pub const fn len(&self) -> usize {
        self.steps
    }

    pub const fn is_empty(&self) -> bool {
        self.steps == 0
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn tail(&self, steps: usize) -> &str {
        let from = self.text.rmatch_indices('\n').nth(steps.saturating_sub(1)).map_or(0, |(at, _)| at);
        &self.text[from..]
    }

    pub fn fingerprint(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.text.hash(&mut hasher);
        hasher.finish()
    }
}
