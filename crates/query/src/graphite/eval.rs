//! Evaluates a checked target: reads series, and pushes them through functions.

use super::at_time::within_reach;
use super::bind::{Invocation, Leaf, LeafPick, Node};
use super::call::{Call, Sink};
use super::held::Held;
use super::source::{Order, Pick, Select, Source, Stored};
use super::stacks::Stacks;
use super::{Options, Series, Tags, bind, name, parse};
use crate::QueryError;
use crate::matcher::Matcher;
use crate::meter::Meter;
use crate::source::Silent;
use std::cell::Cell;

pub(super) struct Evaluator<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) meter: &'a Meter<'a>,
    pub(super) options: &'a Options<'a>,
    pub(super) stacks: Stacks,
    /// Targets that are being evaluated, each of which a function built. Limits their nesting.
    depth: Cell<usize>,
    /// Calls being evaluated that evaluate an argument twice.
    pub(super) twice: Cell<usize>,
}

/// Maximum nesting of targets that functions build.
const BUILT_DEPTH_MAX: usize = 4;

/// Times and settings of a part of the evaluation. Functions evaluate their arguments in other times if they need
/// earlier values.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) from_s: i64,
    pub(super) until_s: i64,
    pub(super) now_s: i64,
    /// Set by `setXFilesFactor` for all that is evaluated after it.
    x_files_factor: Cell<Option<f64>>,
}

impl Context {
    pub(super) const fn of(options: &Options<'_>) -> Self {
        let Options { from_s, until_s, now_s, x_files_factor, .. } = *options;
        let [from_s, until_s, now_s] = [within_reach(from_s), within_reach(until_s), within_reach(now_s)];
        Self { from_s, until_s, now_s, x_files_factor: Cell::new(x_files_factor) }
    }

    /// The same context in another time.
    pub(super) fn within(&self, from_s: i64, until_s: i64) -> Self {
        Self { from_s: within_reach(from_s), until_s: within_reach(until_s), ..self.clone() }
    }

    /// Fraction (0 to 1) of the values that must be present, for functions that aggregate.
    pub(super) fn x_files_factor(&self) -> f64 {
        self.x_files_factor.get().unwrap_or(0.0)
    }

    /// What the request or `setXFilesFactor` set.
    pub(super) fn x_files_factor_setting(&self) -> Option<f64> {
        self.x_files_factor.get()
    }

    pub(super) fn set_x_files_factor(&self, x_files_factor: Option<f64>) {
        self.x_files_factor.set(x_files_factor);
    }
}

impl<'a> Evaluator<'a> {
    pub(super) fn new(source: &'a dyn Source, meter: &'a Meter<'a>, options: &'a Options<'a>) -> Self {
        Self { source, meter, options, stacks: Stacks::default(), depth: Cell::new(0), twice: Cell::new(0) }
    }

    /// Pushes the series of a node into `sink`.
    pub(super) fn each(
        &self,
        node: &Node,
        context: &Context,
        order: Order,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        self.meter.check()?;
        match node {
            Node::Leaf(leaf) => self.read(leaf, context, order, sink),
            Node::Call(invocation) => self.call(invocation, context, order, sink),
            Node::Given(all) => all.iter().try_for_each(|series| {
                let mut copied = self.meter.charge();
                copied.add_bytes(series.bytes())?;
                sink(series.clone())
            }),
        }
    }

    pub(super) fn call(
        &self,
        invocation: &Invocation,
        context: &Context,
        order: Order,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let function = invocation.function;
        // a canceled query ends at the next series of any function, even if each function of a chain takes long
        (function.run)(&Call::new(self, invocation, context, order), &mut |series| {
            self.meter.check()?;
            name::check(function.name, &series)?;
            sink(series)
        })
    }

    /// Evaluates a target that a function built.
    pub(super) fn target(
        &self,
        text: &str,
        context: &Context,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        if self.depth.get() == BUILT_DEPTH_MAX {
            let message = format!("targets that functions build nest deeper than {BUILT_DEPTH_MAX} levels");
            return Err(QueryError::Invalid(message));
        }
        // an equal part for each level, because the levels hold their trees at the same time
        let mut allowance = self.options.built.part(BUILT_DEPTH_MAX as u64);
        let ast = parse::target(text, &mut allowance)?;
        // if the function that builds the target is an argument of one that counts, this is not known here
        let node = bind::target(text, &ast, self.options.variables, false, &mut allowance)?;
        self.depth.set(self.depth.get() + 1);
        let evaluated = self.each(&node, context, Order::ByName, sink);
        self.depth.set(self.depth.get() - 1);
        evaluated
    }

    fn read(
        &self,
        leaf: &Leaf,
        context: &Context,
        order: Order,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueryError> {
        let pick = match &leaf.pick {
            LeafPick::Paths(glob) => Pick::Paths(glob),
            LeafPick::Tagged(matchers) => Pick::Tagged(matchers),
            LeafPick::Named(matchers) => Pick::Named(matchers),
        };
        let (mut listed, mut list_bytes_max) = (self.meter.charge(), 0);
        if let Pick::Paths(glob) = pick
            && !glob.is_literal()
        {
            match Matcher::glob_list_bytes(glob) {
                // half of the memory is left for series: without room for the list, the query only takes longer
                0 => {
                    list_bytes_max = self.options.listed_bytes.min(self.meter.left_bytes() / 2);
                    listed.add_bytes(list_bytes_max as usize)?;
                }
                bytes => listed.add_bytes(bytes)?,
            }
        }
        let Context { from_s, until_s, now_s, .. } = *context;
        let silent = match leaf.needs_all {
            true => Silent::Needed,
            false => Silent::KeepFree(self.options.kept_free),
        };
        let select = Select { pick, from_s, until_s, now_s, order, list_bytes_max, silent };
        let mut selection = self.source.select(&select)?;
        let mut names_bytes = selection.names_bytes();
        if list_bytes_max > 0 {
            listed.give_back(list_bytes_max.saturating_sub(names_bytes) as usize);
        }
        let must_sort = order == Order::ByName && !selection.is_ordered();
        let mut held = Held::new(self.meter);
        let mut stored = Stored::default();
        let mut charge = self.meter.charge();
        loop {
            self.meter.check()?;
            selection.limit(self.meter.left() + charge.values());
            if !selection.next(&mut stored)? {
                break;
            }
            let grown_bytes = selection.names_bytes().saturating_sub(names_bytes);
            listed.add_bytes(grown_bytes as usize)?;
            names_bytes += grown_bytes;
            self.meter.count_samples(stored.samples as usize);
            charge.set(stored.samples + stored.values.len() as u64 / 2 + 1)?;
            let series = self.series(leaf, &mut stored, context);
            if must_sort { held.push(series)? } else { sink(series)? }
        }
        // an interrupted match of a glob leaves out what it would have found
        self.meter.check()?;
        drop(selection);
        drop(listed);
        charge.set(0)?;
        held.sort_by(|a, b| a.name.cmp(&b.name));
        held.drain(sink)
    }

    /// Takes the values out of `stored`, because only one copy of them is charged.
    fn series(&self, leaf: &Leaf, stored: &mut Stored, context: &Context) -> Series {
        Series {
            tags: Tags::of_name(&stored.name),
            path_expression: std::sync::Arc::clone(&leaf.text),
            x_files_factor: context.x_files_factor(),
            ..Series::computed(
                stored.name.clone(),
                stored.start_s,
                stored.end_s,
                stored.step_s,
                std::mem::take(&mut stored.values),
            )
        }
    }
}
