//! Series as Graphite sees them.

use query::graphite::Schema;

/// Step of all metrics.
const STEP_S: i64 = 60;

/// Decides how the values of a metric are stored: one value a minute, for ever.
#[derive(Debug)]
pub(crate) struct Schemas(Schema);

impl Schemas {
    pub(crate) fn current() -> Self {
        Self(Schema::every(STEP_S))
    }
}

impl query::graphite::Schemas for Schemas {
    fn schema_of(&self, _name: &str) -> &Schema {
        &self.0
    }

    fn step_max_s(&self) -> i64 {
        self.0.step_max_s()
    }
}
