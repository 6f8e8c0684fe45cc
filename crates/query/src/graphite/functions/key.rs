//! Parts of names, by which functions group and rename series.

use crate::QueryError;
use crate::graphite::Series;
use crate::graphite::call::{Call, NodeOrTag};
use crate::graphite::parse::first_path;

/// Number of nodes that may be looked up without asking whether the query is canceled. Each search may read a long name.
const NODES_PER_CHECK: usize = 64;

/// The parts of a series that `nodes` name, joined by dots. If the name of the series is a call, its first path
/// counts. Fails if they make a name that is too long.
pub(super) fn key(call: &Call<'_>, series: &Series, nodes: &[NodeOrTag]) -> Result<String, QueryError> {
    let path = if series.name.ends_with(')') { first_path(&series.name) } else { None };
    let path = path.as_deref().unwrap_or(&series.name);
    let path = path.split(';').next().unwrap_or_default();
    let mut key = call.new_name();
    for (i, node) in nodes.iter().enumerate() {
        if i % NODES_PER_CHECK == 0 {
            call.meter().check()?;
        }
        if i > 0 {
            key.push(".")?;
        }
        key.push(match node {
            NodeOrTag::Node(place) => match node_at(path, *place) {
                Some(node) => node,
                None => series.tags.get(&place.to_string()).unwrap_or_default(),
            },
            NodeOrTag::Tag(tag) => series.tags.get(tag).unwrap_or_default(),
        })?;
    }
    Ok(key.finish())
}

/// The node of a path at a place, which counts from the end if it is negative.
pub(super) fn node_at(path: &str, place: i64) -> Option<&str> {
    match usize::try_from(place) {
        Ok(place) => path.split('.').nth(place),
        Err(_) => path.rsplit('.').nth(usize::try_from(place.unsigned_abs()).ok()? - 1),
    }
}

/// The nodes of a path from `start` to `stop`, exclusive, like a slice of a list in Python: places count from the end if
/// they are negative, and those outside the path are moved to its ends.
pub(super) fn slice(path: &str, start: i64, stop: i64) -> &str {
    let count = 1 + path.matches('.').count() as i64;
    let place =
        |place: i64| (if place < 0 { place.saturating_add(count) } else { place }).clamp(0, count) as usize;
    let (start, stop) = (place(start), place(stop));
    if start >= stop {
        return "";
    }
    // where the dot behind a number of nodes is
    let behind = |nodes: usize| path.match_indices('.').nth(nodes - 1).map_or(path.len(), |(at, _)| at);
    let from = if start == 0 { 0 } else { behind(start) + 1 };
    &path[from..behind(stop)]
}

#[cfg(test)]
mod tests {
    use super::slice;

    #[test]
    fn slices_are_those_of_a_list() {
        for path in ["", "a", "a.b.c", "..", ".é.", "a..b"] {
            let nodes: Vec<_> = path.split('.').collect();
            let len = nodes.len() as i64;
            for start in -5..=5 {
                for stop in -5..=5 {
                    let place =
                        |place: i64| (if place < 0 { place + len } else { place }).clamp(0, len) as usize;
                    let expected = nodes.get(place(start)..place(stop)).unwrap_or_default().join(".");
                    assert_eq!(slice(path, start, stop), expected, "{path:?} from {start} to {stop}");
                }
            }
        }
        assert_eq!(slice("a.b", i64::MIN, i64::MAX), "a.b");
    }
}
