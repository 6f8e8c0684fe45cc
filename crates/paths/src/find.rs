//! Finds the nodes that a pattern selects.
//!
//! ```text
//!   pattern a.*.cpu       a.db.cpu   a.db.disk   a.web.cpu   a.web.disk   b.x
//!                            ▲           └── seek ──▲           └── seek ──▲
//! ```
//!
//! The walk goes down level by level. Each level on its way is a *frame*. At a node, it goes down if something below may
//! be selected, and otherwise seeks what follows the node's last name.

use crate::key::{AFTER, SEPARATOR, component_len, name_of, push_key, text_of};
use crate::pattern::{Pattern, States};
use crate::runs::Runs;
use crate::steps::{SEEK_STEPS, Steps, Stopped};

/// A node that a pattern selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    pub path: &'a str,
    /// True if a metric has this name.
    pub is_leaf: bool,
    /// True if longer names begin with this one and a dot.
    pub is_branch: bool,
}

#[derive(Debug)]
struct Frame {
    /// Length of the key of this level's branch, with its separator.
    prefix_len: usize,
    states: States,
    /// Index of the next prefix to seek to.
    next: usize,
}

/// Calls `select` for each selected node, in the order of keys, until it returns false. `go_on` is asked now and then.
/// Returns the number of nodes that were visited.
pub fn find(
    runs: &Runs,
    pattern: &Pattern,
    select: impl FnMut(Node<'_>) -> bool,
    go_on: impl FnMut() -> bool,
) -> Result<usize, Stopped> {
    find_after(runs, pattern, None, select, go_on)
}

/// Like [`find`], but without the leaves up to `after`, a leaf that was found before. Branches on the way to what follows are selected
/// again.
pub fn find_after(
    runs: &Runs,
    pattern: &Pattern,
    after: Option<&str>,
    mut select: impl FnMut(Node<'_>) -> bool,
    mut go_on: impl FnMut() -> bool,
) -> Result<usize, Stopped> {
    let (mut cursor, mut steps) = (runs.cursor(), Steps::new(&mut go_on));
    let (mut prefix, mut name, mut visited) = (Vec::new(), Vec::new(), 0);
    if let Some(after) = after {
        push_key(after, &mut prefix);
        prefix.push(SEPARATOR); // the smallest key that is greater
        cursor.seek(&prefix);
    }
    let mut frames = vec![Frame { prefix_len: 0, states: pattern.start(), next: 0 }];
    while let Some(frame) = frames.last_mut() {
        steps.take(SEEK_STEPS)?;
        prefix.truncate(frame.prefix_len);
        let Some(sought) = pattern.prefixes(&frame.states).get(frame.next) else {
            frames.pop();
            leave(&mut prefix);
            cursor.seek(&prefix);
            continue;
        };
        prefix.extend_from_slice(&sought.text);
        cursor.seek(&prefix);
        let Some(key) = cursor.current() else { break };
        let found_len = key.strip_prefix(prefix.as_slice()).map(component_len);
        let Some(more) = found_len.filter(|more| *more == 0 || !sought.is_exact) else {
            frame.next += 1;
            continue;
        };
        frame.next += usize::from(sought.is_exact);
        visited += 1;
        let (end, is_leaf) = (prefix.len() + more, key.len() == prefix.len() + more);
        prefix.extend_from_slice(&key[prefix.len()..end]);
        let mut next = States::new();
        let component = text_of(&prefix[frame.prefix_len..]);
        let is_selected = pattern.step(&frame.states, component, &mut next, &mut steps)?;
        if is_leaf {
            cursor.advance();
        }
        prefix.push(SEPARATOR);
        let is_branch = cursor.current().is_some_and(|key| key.starts_with(&prefix));
        if is_selected {
            let path = name_of(&prefix[..end], &mut name);
            if !select(Node { path, is_leaf, is_branch }) {
                return Ok(visited);
            }
        }
        if is_branch && !next.is_empty() {
            let prefix_len = prefix.len();
            frames.push(Frame { prefix_len, states: next, next: 0 });
        } else if is_branch {
            leave(&mut prefix);
            cursor.seek(&prefix);
        }
    }
    Ok(visited)
}

/// Turns the key of a branch, with its separator, into the smallest key behind everything below the branch.
fn leave(prefix: &mut [u8]) {
    if let Some(last) = prefix.last_mut() {
        *last = AFTER;
    }
}

#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;
