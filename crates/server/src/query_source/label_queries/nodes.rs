//! Nodes of untagged metrics, which are the series without labels besides the name: `servers` and `servers.web` are
//! branches on the way to the leaf `servers.web.cpu`.

use super::{LabelQueries, LabelRequest, Ordered};
use crate::query_source::Canceled;
use crate::query_source::paths::names::{in_heads, in_tables};
use crate::refusal::Refusal;
use model::TimeRange;
use paths::{Node, Pattern, Steps, Stopped};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Nodes, each once. A path that is both a branch and a leaf is in the list as both, the branch first.
#[derive(Debug)]
pub(crate) struct Nodes {
    all: Ordered,
    /// Warnings about data that could not be read.
    pub(crate) left_out: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundNode<'a> {
    pub(crate) path: &'a str,
    pub(crate) is_leaf: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeOrder {
    ByPath,
    /// By the last level of the path. Branches come before leaves of the same name.
    ByName,
}

/// Marks at the end of a node's text. Text is UTF-8, so it has neither of these bytes.
const BRANCH: u8 = 0xfe;
const LEAF: u8 = 0xff;

impl<'a> FoundNode<'a> {
    fn of(text: &'a [u8]) -> Self {
        let (mark, path) = text.split_last().expect("BUG: a node has no mark");
        let path = std::str::from_utf8(path).expect("BUG: a node is not UTF-8");
        Self { path, is_leaf: *mark == LEAF }
    }

    /// The last level of the path.
    pub(crate) fn name(&self) -> &'a str {
        self.path.rsplit_once('.').map_or(self.path, |(_, name)| name)
    }
}

impl Nodes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = FoundNode<'_>> {
        self.all.iter().map(FoundNode::of)
    }
}

fn by_path(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (FoundNode::of(a), FoundNode::of(b));
    (a.path, a.is_leaf).cmp(&(b.path, b.is_leaf))
}

fn by_name(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (FoundNode::of(a), FoundNode::of(b));
    (a.name(), a.is_leaf, a.path).cmp(&(b.name(), b.is_leaf, b.path))
}

impl LabelQueries<'_> {
    /// Nodes that any of the patterns selects.
    pub(crate) fn nodes<E: From<Refusal>>(
        &self,
        patterns: &mut dyn Iterator<Item = Result<Pattern, E>>,
        order: NodeOrder,
    ) -> Result<Nodes, E> {
        let request = LabelRequest { selectors: &[], range: TimeRange::ALL, limit: usize::MAX };
        let order = match order {
            NodeOrder::ByPath => by_path,
            NodeOrder::ByName => by_name,
        };
        let (mut found, mut left_out, mut text) = (self.found(&request, order), BTreeSet::new(), Vec::new());
        let mut add = |path: &str, is_leaf| {
            put(path, is_leaf, &mut text);
            found.add(&text)
        };
        for pattern in patterns {
            left_out.extend(self.each_node(&pattern?, &mut add)?);
        }
        Ok(Nodes { all: found.texts.in_order(order), left_out: left_out.into_iter().collect() })
    }

    /// Calls `add` with the path of each selected node, perhaps repeatedly, and with whether it is a leaf. Returns warnings
    /// about data that could not be read.
    pub(super) fn each_node(
        &self,
        pattern: &Pattern,
        add: &mut dyn FnMut(&str, bool) -> Result<(), Refusal>,
    ) -> Result<Vec<String>, Refusal> {
        let Self { context, tenant, canceled, .. } = self;
        let Some(names) = context.paths.snapshot(context, tenant, &**canceled)? else {
            return self.each_scanned(pattern, add);
        };
        let mut added = Ok(());
        let select = |node: Node<'_>| {
            for (is_such, is_leaf) in [(node.is_branch, false), (node.is_leaf, true)] {
                if is_such && added.is_ok() {
                    added = add(node.path, is_leaf);
                }
            }
            added.is_ok()
        };
        paths::find(&names.runs, pattern, select, || !canceled.is_set()).map_err(|Stopped| Canceled)?;
        added.map(|()| names.left_out)
    }

    /// Like [`Self::each_node`], by reading all names.
    fn each_scanned(
        &self,
        pattern: &Pattern,
        add: &mut dyn FnMut(&str, bool) -> Result<(), Refusal>,
    ) -> Result<Vec<String>, Refusal> {
        let Self { context, tenant, canceled, .. } = self;
        let prefix = pattern.prefix();
        let mut go_on = || !canceled.is_set();
        let mut steps = Steps::new(&mut go_on);
        let mut take = |name: &str| {
            let mut added = Ok(());
            let select = |end, is_leaf| {
                if added.is_ok() {
                    added = add(&name[..end], is_leaf);
                }
            };
            pattern.nodes_of(name, &mut steps, select).map_err(|Stopped| Canceled)?;
            added
        };
        in_heads(context, tenant, &prefix, &**canceled, &mut take)?;
        in_tables(context, tenant, &prefix, canceled, &mut take)
    }
}

fn put(path: &str, is_leaf: bool, text: &mut Vec<u8>) {
    text.clear();
    text.extend_from_slice(path.as_bytes());
    text.push(if is_leaf { LEAF } else { BRANCH });
}
