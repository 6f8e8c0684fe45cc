//! Builds the text of a scenario from flags. `lab run` can repeat a result's text.

use std::path::Path;
use std::time::Duration;
use toml::{Table, Value};

/// A limit that no load reaches, because a load ends after its rounds or with its recording.
pub(crate) const UNTIL_SENT: Duration = Duration::from_secs(7 * 86_400);

/// Returns a table with those keys that have a value.
pub(crate) fn table<const N: usize>(keys: [(&str, Option<Value>); N]) -> Table {
    keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

pub(crate) fn seconds(duration: Duration) -> Value {
    Value::Float(duration.as_secs_f64())
}

pub(crate) fn path(path: &Path) -> Value {
    path.to_string_lossy().into_owned().into()
}

pub(crate) fn headers(pairs: &[(String, String)]) -> Option<Value> {
    let table: Table = pairs.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    (!table.is_empty()).then_some(Value::Table(table))
}
