//! Encodes deletes of exemplars.
//!
//! ```text
//!   delete     = zigzag(start)  zigzag(end)  varint(n)  n × selector
//!   selector   = varint(n)  n × condition
//!   condition  = u8 operator: 0 =, 1 !=, 2 =~, 3 !~     text label  text value
//! ```

use super::wire::{Cursor, put_text};
use super::{DecodeMemory, RecordError};
use model::TimeRange;
use stdx::varint::{self, unzigzag, zigzag};

/// Limit on the selectors, and on the conditions of each. All selectors of a request to delete have at most 16 KiB in total.
const CONDITIONS_MAX: usize = 16 << 10;

/// The exemplars in `range` of all series that meet all conditions of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedExemplars {
    pub range: TimeRange,
    pub selectors: Vec<Vec<Condition>>,
}

/// What a series' value of a label must be. The text of a regular expression is as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub label: String,
    pub operator: Operator,
    pub value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Equal = 0,
    NotEqual = 1,
    Regex = 2,
    NotRegex = 3,
}

impl DeletedExemplars {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, zigzag(self.range.start_ms));
        varint::put(out, zigzag(self.range.end_ms));
        varint::put(out, self.selectors.len() as u64);
        for selector in &self.selectors {
            varint::put(out, selector.len() as u64);
            for Condition { label, operator, value } in selector {
                out.push(*operator as u8);
                put_text(out, label);
                put_text(out, value);
            }
        }
    }

    pub(super) fn read(cursor: &mut Cursor<'_>, memory: &mut dyn DecodeMemory) -> Result<Self, RecordError> {
        let range = TimeRange::new(unzigzag(cursor.varint()?), unzigzag(cursor.varint()?));
        let mut selectors = Vec::new();
        // the texts take as many bytes as in the record
        memory.try_reserve(cursor.rest.len())?;
        let count = cursor.count(CONDITIONS_MAX)?;
        memory.reserve_for(&selectors, count)?;
        selectors.reserve_exact(count);
        for _ in 0..count {
            let mut selector = Vec::new();
            let count = cursor.count(CONDITIONS_MAX)?;
            memory.reserve_for(&selector, count)?;
            selector.reserve_exact(count);
            for _ in 0..count {
                let operator = operator(cursor.byte()?)?;
                let (label, value) = (cursor.text()?.to_owned(), cursor.text()?.to_owned());
                selector.push(Condition { label, operator, value });
            }
            selectors.push(selector);
        }
        Ok(Self { range, selectors })
    }
}

fn operator(number: u8) -> Result<Operator, RecordError> {
    match number {
        0 => Ok(Operator::Equal),
        1 => Ok(Operator::NotEqual),
        2 => Ok(Operator::Regex),
        3 => Ok(Operator::NotRegex),
        _ => Err(RecordError::Malformed("an unknown operator of a condition")),
    }
}
