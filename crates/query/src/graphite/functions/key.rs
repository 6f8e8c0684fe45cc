//! Parts of names, by which functions group and rename series.

use crate::graphite::Series;
use crate::graphite::call::NodeOrTag;
use crate::graphite::parse::first_path;

/// The parts of a series that `nodes` name, joined by dots. If the name of the series is a call, its first path
/// counts.
pub(super) fn key(series: &Series, nodes: &[NodeOrTag]) -> String {
    let path = if series.name.ends_with(')') { first_path(&series.name) } else { None };
    let path = path.as_deref().unwrap_or(&series.name);
    let path = path.split(';').next().unwrap_or_default();
    let mut key = String::new();
    for (i, node) in nodes.iter().enumerate() {
        if i > 0 {
            key.push('.');
        }
        match node {
            NodeOrTag::Node(place) => match node_at(path, *place) {
                Some(node) => key.push_str(node),
                None => key.push_str(series.tags.get(&place.to_string()).unwrap_or_default()),
            },
            NodeOrTag::Tag(tag) => key.push_str(series.tags.get(tag).unwrap_or_default()),
        }
    }
    key
}

/// The node of a path at a place, which counts from the end if it is negative.
pub(super) fn node_at(path: &str, place: i64) -> Option<&str> {
    match usize::try_from(place) {
        Ok(place) => path.split('.').nth(place),
        Err(_) => path.rsplit('.').nth(usize::try_from(place.unsigned_abs()).ok()? - 1),
    }
}
