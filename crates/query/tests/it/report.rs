use std::fmt;

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) passed: usize,
    /// Number of cases that fail because they need native histograms, which are not supported.
    pub(crate) excluded: usize,
    /// For each failed case, its line, its expression, and why it failed.
    pub(crate) failed: Vec<(usize, String, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, passed, excluded, failed } = self;
        write!(f, "{name}: {passed} passed, {} failed, {excluded} excluded", failed.len())?;
        for (line, expr, reason) in failed {
            write!(f, "\n  line {line}: {expr}\n      {reason}")?;
        }
        Ok(())
    }
}
