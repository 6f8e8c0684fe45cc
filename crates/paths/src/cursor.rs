//! Forward iteration over sorted runs, with seeks.

use crate::run::{Run, take_number};

/// Position in one run.
#[derive(Debug)]
pub(crate) struct RunCursor<'r> {
    run: &'r Run,
    block: usize,
    /// What follows the current key in its block.
    rest: &'r [u8],
    /// The current key; meaningless at the end.
    key: Vec<u8>,
    is_at_end: bool,
}

impl<'r> RunCursor<'r> {
    pub(crate) fn new(run: &'r Run) -> Self {
        let mut cursor = Self { run, block: 0, rest: &[], key: Vec::new(), is_at_end: run.is_empty() };
        if !cursor.is_at_end {
            cursor.enter(0);
        }
        cursor
    }

    pub(crate) fn current(&self) -> Option<&[u8]> {
        (!self.is_at_end).then_some(self.key.as_slice())
    }

    fn enter(&mut self, block: usize) {
        (self.block, self.rest) = (block, self.run.block(block));
        let len = take_number(&mut self.rest);
        self.take(0, len);
    }

    fn take(&mut self, shared: usize, more: usize) {
        let (text, rest) = self.rest.split_at(more);
        self.key.truncate(shared);
        self.key.extend_from_slice(text);
        self.rest = rest;
    }

    pub(crate) fn advance(&mut self) {
        if !self.rest.is_empty() {
            let shared = take_number(&mut self.rest);
            let more = take_number(&mut self.rest);
            self.take(shared, more);
        } else if self.block + 1 < self.run.block_count() {
            self.enter(self.block + 1);
        } else {
            self.is_at_end = true;
        }
    }

    /// Moves forward to the first key that is not smaller than `target`.
    pub(crate) fn seek(&mut self, target: &[u8]) {
        if self.is_at_end || self.key.as_slice() >= target {
            return;
        }
        let block = self.last_block_up_to(target);
        if block != self.block {
            self.enter(block);
        }
        while !self.is_at_end && self.key.as_slice() < target {
            self.advance();
        }
    }

    /// The last block whose first key is not greater than `target`. The current block is such a block. Targets are
    /// usually near, so the distance doubles until it is too far.
    fn last_block_up_to(&self, target: &[u8]) -> usize {
        let (mut low, mut step) = (self.block, 1);
        let mut high = loop {
            match low + step {
                far if far >= self.run.block_count() => break self.run.block_count(),
                far if self.run.first_of(far) > target => break far,
                near => low = near,
            }
            step *= 2;
        };
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.run.first_of(middle) > target {
                true => high = middle,
                false => low = middle,
            }
        }
        low
    }
}

/// Position in several runs, as if they were one.
#[derive(Debug)]
pub(crate) struct Cursor<'r> {
    runs: Vec<RunCursor<'r>>,
    /// The run with the smallest current key; `None` at the end.
    first: Option<usize>,
}

impl<'r> Cursor<'r> {
    pub(crate) fn new(runs: impl IntoIterator<Item = &'r Run>) -> Self {
        let mut cursor = Self { runs: runs.into_iter().map(RunCursor::new).collect(), first: None };
        cursor.order();
        cursor
    }

    fn order(&mut self) {
        let current = self.runs.iter().enumerate().filter_map(|(i, run)| Some((run.current()?, i)));
        self.first = current.min().map(|(_, i)| i);
    }

    pub(crate) fn current(&self) -> Option<&[u8]> {
        self.first.and_then(|first| self.runs[first].current())
    }

    pub(crate) fn advance(&mut self) {
        let Some(first) = self.first else { return };
        let (before, others) = self.runs.split_at_mut(first);
        let (first, after) = others.split_first_mut().expect("BUG: the first run is missing");
        for other in before.iter_mut().chain(after).filter(|other| other.current() == first.current()) {
            other.advance();
        }
        first.advance();
        self.order();
    }

    pub(crate) fn seek(&mut self, target: &[u8]) {
        if self.current().is_some_and(|current| current < target) {
            self.runs.iter_mut().for_each(|run| run.seek(target));
            self.order();
        }
    }
}
