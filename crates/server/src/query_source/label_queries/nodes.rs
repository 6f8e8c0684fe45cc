//! Nodes of untagged metrics, which are the series without labels besides the name: `servers` and `servers.web` are
//! branches on the way to the leaf `servers.web.cpu`.

use super::{Found, LabelQueries, LabelRequest, Ordered, or_all, refused};
use crate::query_source::{LeftOut, list, tables_select};
use crate::refusal::Refusal;
use head::UntaggedWalk;
use model::TimeRange;
use model::labels::METRIC_NAME;
use paths::Pattern;
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
        let (mut found, mut left_out) = (self.found(&request, order), BTreeSet::new());
        for pattern in patterns {
            left_out.extend(self.add_scanned(&pattern?, &mut found)?);
        }
        Ok(Nodes { all: found.texts.in_order(order), left_out: left_out.into_iter().collect() })
    }

    /// Adds the selected nodes, by reading all names. Returns warnings about data that could not be read.
    fn add_scanned(&self, pattern: &Pattern, found: &mut Found<'_>) -> Result<Vec<String>, Refusal> {
        let (mut text, prefix) = (Vec::new(), pattern.prefix());
        self.each_untagged(&prefix, &mut |name| {
            let mut added = Ok(());
            pattern.nodes_of(name, |end, is_leaf| {
                if added.is_ok() {
                    put(&name[..end], is_leaf, &mut text);
                    added = found.add(&text);
                }
            });
            added
        })
    }

    /// Calls `take` with the name of each untagged metric that begins with `prefix`, perhaps repeatedly: first from the
    /// heads, then from the tables.
    fn each_untagged(
        &self,
        prefix: &str,
        take: &mut dyn FnMut(&str) -> Result<(), Refusal>,
    ) -> Result<Vec<String>, Refusal> {
        let mut taken: Vec<String> = Vec::new();
        for turns in self.turns() {
            let (mut walk, mut is_last) = (UntaggedWalk::since(0), false);
            while !is_last {
                is_last = turns.turn(|head| {
                    walk.names(head, |name| {
                        if name.starts_with(prefix) {
                            taken.push(name.into());
                        }
                    })
                })?;
                taken.drain(..).try_for_each(|name| take(&name))?;
            }
        }
        let Self { context, tenant, canceled, .. } = self;
        let mut select = tables_select(or_all(&[])[0].as_slice(), TimeRange::ALL, false, canceled);
        if !prefix.is_empty() {
            let prefix = prefix.to_owned();
            let is_wanted = move |name: &str| name.starts_with(&prefix);
            select.matchers.push(tables::Matcher::new(METRIC_NAME, is_wanted));
        }
        let (left_out, mut outcome) = (LeftOut::default(), Ok(()));
        let listed = list(context, tenant, &left_out, &**canceled, |table, cache| {
            tables::scan::labels::series(table, cache, &select, &mut |labels| {
                let mut all = labels.iter();
                if let (Some((METRIC_NAME, name)), None) = (all.next(), all.next()) {
                    outcome = take(name);
                }
                outcome.is_ok() && !canceled.is_set()
            })
        });
        listed.map_err(refused)?;
        outcome?;
        match canceled.is_set() {
            true => Err(crate::query_source::Canceled.into()),
            false => Ok(left_out.texts()),
        }
    }
}

fn put(path: &str, is_leaf: bool, text: &mut Vec<u8>) {
    text.clear();
    text.extend_from_slice(path.as_bytes());
    text.push(if is_leaf { LEAF } else { BRANCH });
}
