//! Sums of stacked series, which one call of `stacked` hands to the next.

use crate::QueryError;
use crate::meter::{Charge, Meter};
use std::cell::RefCell;

/// Which call of a target stacks: calls that are evaluated again start from the same sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallId {
    /// Address of the call's node.
    pub(super) node: usize,
    /// Range of the evaluation. Values of another range are not stacked on these.
    pub(super) range_s: (i64, i64),
}

/// The sums of all stacks of a request.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    layers: RefCell<Vec<Layer>>,
}

/// The sums of a stack before and after a call.
#[derive(Debug)]
struct Layer {
    stack: String,
    call: CallId,
    before: Vec<f64>,
    after: Vec<f64>,
}

/// The sums to which a call adds its series.
#[derive(Debug)]
pub(super) struct Totals<'s> {
    stacks: &'s Stacks,
    stack: String,
    call: CallId,
    before: Vec<f64>,
    sums: Vec<f64>,
    charge: Charge<'s>,
}

impl Stacks {
    /// The sums of a stack before a call. If the call is evaluated again, what it and later calls added is forgotten.
    pub(super) fn of<'s>(
        &'s self,
        stack: &str,
        call: CallId,
        meter: &'s Meter<'s>,
    ) -> Result<Totals<'s>, QueryError> {
        let mut layers = self.layers.borrow_mut();
        let is_same = |layer: &Layer| layer.stack == stack && layer.call.range_s == call.range_s;
        let again = layers.iter().position(|layer| is_same(layer) && layer.call.node == call.node);
        let mut charge = meter.charge();
        let before = match again {
            Some(place) => &layers[place].before[..],
            None => layers.iter().rfind(|layer| is_same(layer)).map_or(&[][..], |layer| &layer.after[..]),
        };
        charge.add_bytes(2 * size_of_val(before) + stack.len() + size_of::<Layer>())?;
        let before = before.to_vec();
        if let Some(place) = again {
            let mut number = 0..;
            layers.retain(|layer| number.next().is_some_and(|number| number < place) || !is_same(layer));
        }
        Ok(Totals { stacks: self, stack: stack.into(), call, sums: before.clone(), before, charge })
    }
}

impl Totals<'_> {
    /// Adds values to the sums, and replaces them by the sums.
    pub(super) fn add(&mut self, values: &mut [f64]) -> Result<(), QueryError> {
        if values.len() > self.sums.len() {
            self.charge.add_bytes((values.len() - self.sums.len()) * size_of::<f64>())?;
            self.sums.resize(values.len(), 0.0);
        }
        let mut sums = self.sums.iter_mut();
        self.charge.meter.change_each(values, |value| {
            // there are as many sums as values at least
            if let Some(sum) = sums.next().filter(|_| !value.is_nan()) {
                *sum += *value;
                *value = *sum;
            }
        })
    }

    /// Hands the sums to the next call.
    pub(super) fn keep(self) {
        let Self { stacks, stack, call, before, sums: after, charge } = self;
        charge.keep();
        stacks.layers.borrow_mut().push(Layer { stack, call, before, after });
    }
}
