//! How series are stored as Graphite sees them: the rules in the form that queries need.

mod schema_cache;

use query::graphite::{Aggregate, Archive, Schema};
use rules::Method;
use schema_cache::SchemaCache;
use std::sync::OnceLock;

/// Decides how the values of a metric are stored.
#[derive(Debug)]
pub struct Schemas {
    rules: rules::Schemas,
    /// By [`rules::Schema::number`], made when they are first needed.
    made: Box<[OnceLock<Box<Schema>>]>,
    cache: SchemaCache,
    /// The archives of rules with several of them.
    with_coarse: Vec<Schema>,
}

/// With fewer combinations of rules, comparing a name with all patterns takes no longer than the cache.
const CACHED_COUNT_MIN: usize = 8;

impl Default for Schemas {
    fn default() -> Self {
        rules::Schemas::default().into()
    }
}

impl From<rules::Schemas> for Schemas {
    fn from(rules: rules::Schemas) -> Self {
        let made = std::iter::repeat_with(OnceLock::new).take(rules.count()).collect();
        let with_coarse = rules.retentions().filter(|archives| archives.len() > 1).map(|archives| {
            let archive =
                |a: &rules::Archive| Archive { step_s: a.step_s.into(), retention_s: a.retention_s() as i64 };
            Schema { archives: archives.iter().map(archive).collect(), ..Schema::every(1) }
        });
        Self { with_coarse: with_coarse.collect(), rules, made, cache: SchemaCache::default() }
    }
}

impl Schemas {
    pub const fn rules(&self) -> &rules::Schemas {
        &self.rules
    }
}

impl query::graphite::Schemas for Schemas {
    fn schema_of(&self, name: &str) -> &Schema {
        let is_worth_it = self.rules.count() >= CACHED_COUNT_MIN;
        let number = if is_worth_it { self.cache.get(name) } else { None };
        let known = number.and_then(|number| self.made[number].get());
        if let Some(schema) = known {
            return schema;
        }
        let schema = self.rules.of(name);
        if is_worth_it {
            self.cache.put(name, schema.number);
        }
        self.made[schema.number].get_or_init(|| Box::new(made(&schema)))
    }

    fn step_max_s(&self) -> i64 {
        self.rules.longest_step_s().into()
    }

    fn around_s(&self, from_s: i64, until_s: i64, now_s: i64) -> i64 {
        let around_s = self.with_coarse.iter().map(|schema| schema.around_s(from_s, until_s, now_s));
        around_s.max().unwrap_or(0)
    }
}

fn made(schema: &rules::Schema<'_>) -> Schema {
    let is_forever = schema.retention_s().is_none();
    let archives = schema.archives.iter().enumerate().map(|(number, archive)| {
        let is_last = number + 1 == schema.archives.len();
        let retention_s = if is_last && is_forever { i64::MAX } else { archive.retention_s() as i64 };
        Archive { step_s: archive.step_s.into(), retention_s }
    });
    let aggregation = match schema.method {
        Method::Average => Aggregate::Average,
        Method::Sum => Aggregate::Sum,
        Method::Last => Aggregate::Last,
        Method::Max => Aggregate::Max,
        Method::Min => Aggregate::Min,
        Method::AvgZero => Aggregate::AvgZero,
        Method::AbsMax => Aggregate::AbsMax,
        Method::AbsMin => Aggregate::AbsMin,
    };
    Schema { archives: archives.collect(), aggregation, x_files_factor: schema.x_files_factor }
}

#[cfg(test)]
mod tests;
