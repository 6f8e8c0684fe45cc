//! Names in any order, to be sorted into a run.

use crate::key::push_key;
use crate::run::{Builder, Full, Run};
use stdx::budget::Account;

/// Names that wait to be sorted. The owner reserves their memory: up to twice [`Batch::bytes`], because it grows by
/// doubling.
#[derive(Debug, Default)]
pub struct Batch {
    text: Vec<u8>,
    /// Where each key is in `text`.
    keys: Vec<(u32, u32)>,
}

impl Batch {
    pub fn push(&mut self, name: &str) {
        let from = self.text.len();
        push_key(name, &mut self.text);
        self.keys.push((from as u32, self.text.len() as u32));
    }

    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of the names.
    pub const fn bytes(&self) -> usize {
        self.text.len() + self.keys.len() * size_of::<(u32, u32)>()
    }

    /// Sorts the names into a run, and empties the batch.
    pub fn take_run(&mut self, account: &Account) -> Result<Run, Full> {
        let Self { text, mut keys } = std::mem::take(self);
        let key = |(from, to): (u32, u32)| &text[from as usize..to as usize];
        keys.sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        let mut builder = Builder::new(account, text.len() + 2 * keys.len())?;
        for place in keys.iter() {
            builder.push(key(*place))?;
        }
        Ok(builder.finish())
    }
}
