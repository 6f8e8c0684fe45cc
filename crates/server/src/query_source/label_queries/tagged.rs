//! Tagged series, as Graphite calls series that have labels besides the metric name.

use super::across::Shown;
use super::{LabelQueries, LabelRequest, Limited};
use crate::refusal::Refusal;
use model::{LabelsRef, TimeRange};
use query::Matcher;

/// True if the series has a label besides the metric name.
pub(crate) fn is_tagged(labels: LabelsRef<'_>) -> bool {
    labels.iter().any(|(name, _)| name != model::labels::METRIC_NAME)
}

impl LabelQueries<'_> {
    /// Lists the full names of tagged series, `name;tag=value`, in the order of bytes.
    pub(crate) fn tagged_series(&self, matchers: Vec<Matcher>) -> Result<Limited, Refusal> {
        self.list_tagged(matchers, Shown::TaggedName)
    }

    /// Lists the metric names of tagged series, in the order of bytes.
    pub(crate) fn tagged_metrics(&self, matchers: Vec<Matcher>) -> Result<Limited, Refusal> {
        self.list_tagged(matchers, Shown::MetricIfTagged)
    }

    fn list_tagged(&self, matchers: Vec<Matcher>, shown: Shown<'_>) -> Result<Limited, Refusal> {
        let request = LabelRequest { selectors: &[matchers], range: TimeRange::ALL, limit: usize::MAX };
        let mut found = self.found(&request, Ord::cmp);
        let left_out = self.add_stored_series(&mut found, &request, shown)?;
        Ok(found.answer(left_out))
    }
}
