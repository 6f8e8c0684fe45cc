//! Reads the label names, or the values of one label, of a whole row group from its label columns. Nothing is cached.
//!
//! ```text
//!   names     job    pod   job   pod    job   …      each an index into its column's dictionary
//!   values    api    p-1   api   p-2    db    …
//! ```
//!
//! A value has the same position in its column as its name.

use super::small_columns::{self, fetch_chunks};
use super::{Footer, Ranges, guarded, prune, row};
use crate::error::TableError;
use crate::parquet::{Chunk, Damage, Texts};
use model::labels::METRIC_NAME;

/// Maximum size of a row group's label columns for a label scan. In Floodmark's own files, these columns take about a
/// tenth of this size.
const LABELS_MAX: u64 = 16 << 20;

#[derive(Debug, Clone, Copy)]
pub enum LabelScan<'a> {
    Names,
    Values(&'a str),
}

impl LabelScan<'_> {
    /// True if a row group's label columns are small enough to be read whole.
    pub(super) fn has_room(footer: &Footer, group: usize) -> bool {
        let held = prune::label_count(footer.parquet(), group)
            .saturating_add(prune::label_bytes(footer.parquet(), group));
        held <= LABELS_MAX
    }

    /// Passes the wanted label names or values of a row group to `each`. The file must be one of Floodmark's own.
    pub(super) fn each_of(
        self,
        file: &dyn Ranges,
        footer: &Footer,
        group: usize,
        each: &mut dyn FnMut(&str),
    ) -> Result<(), TableError> {
        let listed = guarded(file.name(), || {
            let listed = match self {
                Self::Names => {
                    let [names] = fetch_chunks(file, footer, group, [small_columns::LABEL_NAMES])?;
                    names_of(&names)
                }
                Self::Values(METRIC_NAME) => {
                    let [names] = fetch_chunks(file, footer, group, [small_columns::NAME])?;
                    metrics_of(&names)
                }
                Self::Values(label) => {
                    let columns = [small_columns::LABEL_NAMES, small_columns::LABEL_VALUES];
                    let [names, values] = fetch_chunks(file, footer, group, columns)?;
                    values_of(label, &names, &values)
                }
            };
            listed.map_err(|damage| TableError::damaged(file.name(), damage))
        })?;
        listed.iter().for_each(|text| each(text));
        Ok(())
    }
}

pub(super) fn names_of(names: &Chunk) -> Result<Vec<String>, Damage> {
    let mut used = Vec::new();
    let texts = names.each_listed(|texts, codes| mark(&mut used, texts, codes))?;
    let names = of_label(&texts, &used, |name| row::check_label(name, b"any"));
    std::iter::once(Ok(METRIC_NAME.into())).chain(names).collect()
}

pub(super) fn metrics_of(names: &Chunk) -> Result<Vec<String>, Damage> {
    let (texts, mut used) = (names.texts()?, Vec::new());
    mark(&mut used, &texts, &texts.codes);
    of_label(&texts, &used, |name| row::check_label(METRIC_NAME.as_bytes(), name)).collect()
}

fn mark(used: &mut Vec<bool>, texts: &Texts, codes: &[u32]) {
    used.resize(texts.len(), false);
    codes.iter().for_each(|code| used[*code as usize] = true);
}

/// Returns the texts that are marked, or an error if `check` fails for one of them.
fn of_label(
    texts: &Texts,
    marked: &[bool],
    check: impl Fn(&[u8]) -> Result<(), Damage>,
) -> impl Iterator<Item = Result<String, Damage>> {
    let marked = texts.all().zip(marked).filter(|(_, marked)| **marked);
    marked.map(move |(text, _)| check(text.as_bytes()).map(|()| text.into()))
}

pub(super) fn values_of(label: &str, names: &Chunk, values: &Chunk) -> Result<Vec<String>, Damage> {
    if names.levels != values.levels {
        return Err(row::UNPAIRED);
    }
    // for each distinct name, whether it is `label`; and for each entry, whether it has this name
    let (mut is_label, mut named) = (Vec::new(), Vec::new());
    names.each_listed(|texts, codes| {
        let more = is_label.len() as u32..texts.len() as u32;
        is_label.extend(more.map(|code| texts.text(code) == label.as_bytes()));
        named.extend(codes.iter().map(|code| is_label[*code as usize]));
    })?;
    if !is_label.contains(&true) {
        return Ok(Vec::new());
    }
    let (mut listed, mut entry) = (Vec::new(), 0);
    let texts = values.each_listed(|texts, codes| {
        listed.resize(texts.len(), false);
        let named = named.get(entry..).unwrap_or_default();
        entry += codes.len();
        for (code, named) in codes.iter().zip(named) {
            listed[*code as usize] |= named;
        }
    })?;
    if entry != named.len() {
        return Err(row::UNPAIRED);
    }
    of_label(&texts, &listed, |value| row::check_label(label.as_bytes(), value)).collect()
}

#[cfg(test)]
mod tests;
