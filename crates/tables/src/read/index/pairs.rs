//! Numbers the label pairs of a row group, without comparing each row's texts.
//!
//! ```text
//!   texts of a column ─▶ rank of each text                 compares distinct texts, not the texts of rows
//!   pair = rank of its name, rank of its value             one number, in the order of the texts
//!   pairs of rows ─▶ provisional numbers, by appearance ─▶ final numbers, in sorted order
//! ```

use super::Name;
use crate::parquet::{Damage, Texts};
use crate::read::row;
use model::labels::{METRIC_NAME, put_label};
use std::collections::HashMap;
use std::ops::Range;

/// A label pair: the rank of its name in the upper 32 bits, and the rank of its value in the lower 32 bits.
pub(super) type Pair = u64;

pub(super) const fn name(pair: Pair) -> u32 {
    (pair >> 32) as u32
}

const fn pair(name: u32, value: u32) -> Pair {
    (name as u64) << 32 | value as u64
}

struct Ranked {
    texts: Texts,
    /// Rank of the string with each code. Equal strings have the same rank.
    ranks: Vec<u32>,
    codes: Vec<u32>,
}

impl Ranked {
    fn new(texts: Texts) -> Self {
        let mut sorted: Vec<u32> = (0..texts.len() as u32).collect();
        sorted.sort_unstable_by(|a, b| texts.text(*a).cmp(texts.text(*b)));
        let (mut ranks, mut codes) = (vec![0; sorted.len()], Vec::<u32>::with_capacity(sorted.len()));
        for code in sorted {
            if codes.last().is_none_or(|last| texts.text(*last) != texts.text(code)) {
                codes.push(code);
            }
            ranks[code as usize] = codes.len() as u32 - 1;
        }
        Self { texts, ranks, codes }
    }

    fn text(&self, rank: u32) -> &[u8] {
        self.texts.text(self.codes[rank as usize])
    }
}

pub(super) struct Pairs {
    metrics: Ranked,
    names: Ranked,
    values: Ranked,
    metric_name: u32,
    numbers: HashMap<Pair, u32>,
    /// For each value, the last pair that had it, and this pair's number. Few values have several names, so this pair
    /// is usually the right one.
    recent: Vec<(Pair, u32)>,
    /// Label pairs in canonical form, and the end of each pair.
    texts: Vec<u8>,
    ends: Vec<u32>,
    longest: usize,
}

pub(super) struct Numbered {
    pub(super) names: Vec<Name>,
    pub(super) texts: Vec<u8>,
    pub(super) text_ends: Vec<u32>,
    /// Final number of each pair, by its provisional number.
    pub(super) numbers: Vec<u32>,
}

impl Pairs {
    /// Prepares to number the label pairs in these columns: metric names, names of other labels, and their values.
    pub(super) fn new(metrics: Texts, mut names: Texts, values: Texts) -> Result<Self, Damage> {
        let code = names.push(METRIC_NAME.as_bytes())?;
        let [metrics, names, values] = [metrics, names, values].map(Ranked::new);
        let metric_name = names.ranks[code as usize];
        let recent = vec![(Pair::MAX, 0); values.codes.len()];
        let (numbers, texts, ends) = (HashMap::new(), Vec::new(), Vec::new());
        Ok(Self { metrics, names, values, metric_name, numbers, recent, texts, ends, longest: 0 })
    }

    /// Number of pairs of all rows, without metric names.
    pub(super) const fn len(&self) -> usize {
        self.names.texts.codes.len()
    }

    pub(super) fn metric(&self, row: usize) -> Pair {
        let code = self.metrics.texts.codes[row];
        pair(self.metric_name, self.metrics.ranks[code as usize])
    }

    pub(super) fn labels(&self, entries: Range<usize>) -> impl Iterator<Item = Pair> {
        let (names, values) = (&self.names, &self.values);
        let codes = names.texts.codes[entries.clone()].iter().zip(&values.texts.codes[entries]);
        codes.map(|(name, value)| pair(names.ranks[*name as usize], values.ranks[*value as usize]))
    }

    pub(super) const fn is_metric(&self, pair: Pair) -> bool {
        name(pair) == self.metric_name
    }

    /// Returns the number of a pair. Pairs are numbered in order of appearance.
    pub(super) fn number(&mut self, pair: Pair) -> Result<u32, Damage> {
        let value = pair as u32 as usize;
        if let Some((known, number)) = self.recent.get(value)
            && *known == pair
        {
            return Ok(*number);
        }
        let number = match self.numbers.get(&pair) {
            Some(number) => *number,
            None => self.add(pair)?,
        };
        if !self.is_metric(pair) {
            self.recent[value] = (pair, number);
        }
        Ok(number)
    }

    fn add(&mut self, pair: Pair) -> Result<u32, Damage> {
        let values = if self.is_metric(pair) { &self.metrics } else { &self.values };
        let (name, value) = (self.names.text(name(pair)), values.text(pair as u32));
        row::check_label(name, value)?;
        let (number, before) = (self.ends.len() as u32, self.texts.len());
        put_label(&mut self.texts, name, value);
        self.longest = self.longest.max(self.texts.len() - before);
        self.ends.push(u32::try_from(self.texts.len()).map_err(|_| "a row group has too many labels")?);
        self.numbers.insert(pair, number);
        Ok(number)
    }

    pub(super) fn canonical(&self, number: u32) -> &[u8] {
        &self.texts[super::part(&self.ends, number as usize)]
    }

    /// Length of the longest label pair in canonical form.
    pub(super) const fn longest(&self) -> usize {
        self.longest
    }

    /// Renumbers the pairs by name, then by value.
    pub(super) fn finish(self) -> Numbered {
        let mut sorted: Vec<(Pair, u32)> =
            self.numbers.iter().map(|(pair, number)| (*pair, *number)).collect();
        sorted.sort_unstable();
        let mut numbers = vec![0; sorted.len()];
        let (mut names, mut last) = (Vec::<Name>::new(), None);
        let (mut texts, mut text_ends) =
            (Vec::with_capacity(self.texts.len()), Vec::with_capacity(sorted.len()));
        for (number, (pair, before)) in sorted.into_iter().enumerate() {
            let number = number as u32;
            numbers[before as usize] = number;
            texts.extend_from_slice(self.canonical(before));
            text_ends.push(texts.len() as u32);
            if last.replace(name(pair)) == Some(name(pair)) {
                names.last_mut().expect("BUG: the name of a label pair was not added").pairs.end = number + 1;
            } else {
                let text = std::str::from_utf8(self.names.text(name(pair))).expect("BUG: text is not UTF-8");
                names.push(Name { text: text.into(), pairs: number..number + 1 });
            }
        }
        Numbered { names, texts, text_ends, numbers }
    }
}
