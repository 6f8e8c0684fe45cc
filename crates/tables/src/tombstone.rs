//! Tombstones: deletes not yet applied to all files, and the samples that they hide.
//!
//! ```text
//!   sequence   11   12   13   T 14   15   16            T masks 11, 12 and 13, and nothing written after it
//!                                                       names of rewritten files record that T is applied
//! ```
//!
//! A tombstone masks earlier files until they are rewritten. [`crate::delta`] keeps the list, [`crate::upkeep`]
//! rewrites the files. Only this module uses `query`: a delete selects the same series as a query.

use crate::error::TableError;
use crate::live_file::LiveFile;
use crate::rollup::label::{LABEL, OMITTED};
use model::labels::METRIC_NAME;
use model::{LabelsRef, Samples, TimeRange};
use query::{MatchOp, Matcher};
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of tombstones of a table. Queries compare each row with each tombstone, so more tombstones make
/// queries slower.
pub const TOMBSTONES_MAX: usize = 64;

const _: () = assert!(TOMBSTONES_MAX <= u64::BITS as usize, "a mask has a bit for each tombstone");

/// Maximum size of one delete's selectors. The selectors of a table's 64 tombstones take at most 1 MiB together.
pub const SELECTOR_BYTES_MAX: usize = 16 << 10;

/// A matcher counts as this many bytes, besides its name and value, in the size of a delete's selectors.
pub const MATCHER_BYTES: usize = 4;

/// Maximum size of one delete's compiled patterns. A regular expression may need a few hundred KiB.
pub const PATTERN_BYTES_MAX: usize = 2 << 20;
pub const PATTERN_BYTES_OF_TABLE_MAX: usize = 16 << 20;

/// Request to delete the samples in `range` of all series that match a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// A series must pass all matchers of a selector.
    pub selectors: Vec<Vec<Matcher>>,
    pub range: TimeRange,
}

impl Delete {
    pub fn everything() -> Self {
        let any = Matcher::new(METRIC_NAME, MatchOp::NotEqual, "").expect("BUG: it has no pattern");
        Self { selectors: vec![vec![any]], range: TimeRange::ALL }
    }

    /// True if a selector matches every metric name, and so every series.
    fn selects_all(&self) -> bool {
        let is_any = |m: &Matcher| m.name == METRIC_NAME && m.op == MatchOp::NotEqual && m.value.is_empty();
        self.selectors.iter().any(|selector| selector.iter().all(is_any))
    }

    /// True if the delete selects all series, and its range includes `range`.
    fn covers(&self, range: TimeRange) -> bool {
        self.selects_all() && self.range.start_ms <= range.start_ms && range.end_ms <= self.range.end_ms
    }

    pub fn check(&self) -> Result<(), TableError> {
        let too_large = |what, limit_bytes| Err(TableError::TooLarge { what, limit_bytes });
        if self.selector_bytes() > SELECTOR_BYTES_MAX {
            return too_large("the selectors of a delete", SELECTOR_BYTES_MAX);
        }
        if self.pattern_bytes() > PATTERN_BYTES_MAX {
            return too_large("the compiled patterns of a delete", PATTERN_BYTES_MAX);
        }
        Ok(())
    }

    fn selector_bytes(&self) -> usize {
        let of = |m: &Matcher| m.name.len() + m.value.len() + MATCHER_BYTES;
        self.selectors.iter().flatten().map(of).sum()
    }

    /// Memory of the compiled patterns, limited by [`PATTERN_BYTES_MAX`].
    pub(crate) fn pattern_bytes(&self) -> usize {
        self.selectors.iter().flatten().map(|m| size_of::<Matcher>() + m.pattern_bytes()).sum()
    }

    /// Number of files that may have samples to delete, according to the log.
    pub fn files_concerned(&self, files: &[LiveFile]) -> usize {
        files.iter().filter(|file| self.may_concern(file)).count()
    }

    pub fn selects(&self, labels: LabelsRef<'_>) -> bool {
        self.selectors
            .iter()
            .any(|selector| selector.iter().all(|m| m.matches(labels.get(&m.name).unwrap_or(""))))
    }

    /// True if the delete selects the series from which a rollup made this series with the label [`LABEL`].
    fn selects_statistic_of(&self, labels: LabelsRef<'_>) -> bool {
        let value = |name: &str| if name == LABEL { "" } else { labels.get(name).unwrap_or("") };
        self.selectors.iter().any(|selector| selector.iter().all(|m| m.matches(value(&m.name))))
    }

    /// True if a file may have samples to delete, according to the log.
    fn may_concern(&self, file: &LiveFile) -> bool {
        self.range.overlaps(&file.range)
            && self.selectors.iter().any(|selector| selector.iter().all(|m| may_pass(m, file)))
    }
}

impl std::fmt::Display for Delete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for selector in &self.selectors {
            let matchers: Vec<String> = selector.iter().map(ToString::to_string).collect();
            write!(f, "{{{}}} ", matchers.join(","))?;
        }
        write!(f, "from {} to {}", self.range.start_ms, self.range.end_ms)
    }
}

fn may_pass(matcher: &Matcher, file: &LiveFile) -> bool {
    let Some((first, last)) = file.names.as_ref().filter(|_| matcher.name == METRIC_NAME) else {
        return true;
    };
    let names = match matcher.op {
        MatchOp::Equal => std::slice::from_ref(&matcher.value),
        MatchOp::Regex => match matcher.set_matches() {
            Some(names) => names,
            None => return true,
        },
        MatchOp::NotEqual | MatchOp::NotRegex => return true,
    };
    // The log may have truncated the upper bound, so names may begin with it.
    names.iter().any(|name| first <= name && (name <= last || name.starts_with(last.as_str())))
}

/// A delete with its position in the order of writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// Sequence, greater than the sequences of earlier files and tombstones.
    pub sequence: i64,
    pub delete: Delete,
}

impl Tombstone {
    /// True if the file is older than the tombstone, and the tombstone was not applied to it yet.
    const fn is_after(&self, file: &LiveFile) -> bool {
        (file.is_early || file.sequence < self.sequence) && file.applied < self.sequence
    }

    pub(crate) fn covers(&self, file: &LiveFile) -> bool {
        self.is_after(file) && self.delete.covers(file.range)
    }

    /// True if the tombstone masks all that an earlier one does.
    pub(crate) fn replaces(&self, earlier: &Self) -> bool {
        earlier.sequence < self.sequence && self.delete.covers(earlier.delete.range)
    }

    pub fn concerns(&self, file: &LiveFile) -> bool {
        self.is_after(file) && self.delete.may_concern(file)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tombstones {
    /// Sequence of the last delete, complete or not; 0 if there was none.
    pub last: i64,
    pub list: Vec<Tombstone>,
}

impl Tombstones {
    /// Mask of a file's hidden samples; `None` if there are none.
    pub(crate) fn mask(self: &Arc<Self>, file: &LiveFile, is_rollup: bool) -> Option<Arc<Mask>> {
        let concerning = self.list.iter().enumerate().filter(|(_, t)| t.concerns(file));
        let which = concerning.fold(0_u64, |which, (n, _)| which | 1_u64 << n);
        (which != 0).then(|| Arc::new(Mask { all: Arc::clone(self), which, is_rollup }))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let of =
            |t: &Tombstone| size_of::<Tombstone>() + t.delete.selector_bytes() + t.delete.pattern_bytes();
        self.list.iter().map(of).sum()
    }

    /// Formats the list as text. `version` is the version of the log entry that will refer to the list, and makes the
    /// text unique.
    pub(crate) fn to_text(&self, version: u64) -> String {
        let matcher = |m: &Matcher| json!({ "name": m.name, "op": m.op.as_str(), "value": m.value });
        let tombstone = |t: &Tombstone| {
            let selectors = t.delete.selectors.iter().map(|s| s.iter().map(matcher).collect::<Vec<_>>());
            json!({
                "sequence": t.sequence,
                "start": t.delete.range.start_ms,
                "end": t.delete.range.end_ms,
                "selectors": selectors.collect::<Vec<_>>(),
            })
        };
        let tombstones: Vec<Value> = self.list.iter().map(tombstone).collect();
        json!({ "format": FORMAT, "version": version, "tombstones": tombstones }).to_string()
    }

    pub(crate) fn parse(text: &[u8], last: i64) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        match value["format"].as_u64() {
            Some(FORMAT) => {}
            Some(later) => {
                return Err(format!(
                    "its format version is {later}, this version of Floodmark reads version {FORMAT}"
                ));
            }
            None => return Err("it has no format".into()),
        }
        let list = value["tombstones"].as_array().ok_or("it has no list of tombstones")?;
        if list.len() > TOMBSTONES_MAX {
            return Err(format!("it has {} tombstones, the limit is {TOMBSTONES_MAX}", list.len()));
        }
        let list = list.iter().map(tombstone).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { last, list })
    }
}

const FORMAT: u64 = 1;

fn tombstone(value: &Value) -> Result<Tombstone, String> {
    let number = |key: &str| value[key].as_i64().ok_or_else(|| format!("a tombstone has no {key}"));
    let array = |value: &Value| value.as_array().cloned().ok_or("a selector is not a list");
    let mut selectors = Vec::new();
    for selector in array(&value["selectors"])? {
        selectors.push(array(&selector)?.iter().map(matcher).collect::<Result<Vec<_>, _>>()?);
    }
    let range = TimeRange::new(number("start")?, number("end")?);
    Ok(Tombstone { sequence: number("sequence")?, delete: Delete { selectors, range } })
}

fn matcher(value: &Value) -> Result<Matcher, String> {
    let text = |key: &str| value[key].as_str().ok_or_else(|| format!("a matcher has no {key}"));
    let op = match text("op")? {
        "=" => MatchOp::Equal,
        "!=" => MatchOp::NotEqual,
        "=~" => MatchOp::Regex,
        "!~" => MatchOp::NotRegex,
        other => return Err(format!("unknown matcher operator {other:?}; must be =, !=, =~ or !~")),
    };
    Matcher::new(text("name")?, op, text("value")?).map_err(|e| e.to_string())
}

/// Tombstones that may hide samples of a file, and so must be applied when it is read. All files share the tombstones,
/// because their patterns may take 16 MiB, and a scan may open thousands of files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    all: Arc<Tombstones>,
    /// Bit `n` is set if the tombstone at position `n` applies to the file.
    which: u64,
    /// True for files of a rollup table, whose series have the label [`LABEL`]. The label has no meaning in other
    /// tables.
    is_rollup: bool,
}

impl Mask {
    fn deletes(&self) -> impl Iterator<Item = &Delete> {
        let which = self.which;
        self.all.list.iter().enumerate().filter(move |(n, _)| which >> n & 1 == 1).map(|(_, t)| &t.delete)
    }
}

/// Applies a mask while a file is read, and keeps the hidden time ranges of the current series.
#[derive(Debug)]
pub(crate) struct Masking {
    mask: Arc<Mask>,
    labels: Vec<u8>,
    /// Hidden ranges, ascending and disjoint.
    hidden: Vec<TimeRange>,
}

impl Masking {
    pub(crate) const fn new(mask: Arc<Mask>) -> Self {
        Self { mask, labels: Vec::new(), hidden: Vec::new() }
    }

    /// Moves to a row with these labels. `check` gets the length of each label value before it is matched, and may
    /// cancel the read.
    pub(crate) fn enter(
        &mut self,
        labels: LabelsRef<'_>,
        mut check: impl FnMut(usize) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        if labels.as_bytes() == self.labels && !self.labels.is_empty() {
            return Ok(());
        }
        self.labels.clear();
        self.hidden.clear();
        let is_rollup = self.mask.is_rollup;
        if !is_rollup || labels.get(LABEL) != Some(OMITTED) {
            for delete in self.mask.deletes() {
                check(labels.as_bytes().len())?;
                if if is_rollup { delete.selects_statistic_of(labels) } else { delete.selects(labels) } {
                    self.hidden.push(delete.range);
                }
            }
        }
        join(&mut self.hidden);
        self.labels.extend_from_slice(labels.as_bytes());
        Ok(())
    }

    /// True if the mask hides all samples in `range` of a row with this `span`.
    pub(crate) fn hides(&self, span: TimeRange, range: TimeRange) -> bool {
        let (start_ms, end_ms) = (span.start_ms.max(range.start_ms), span.end_ms.min(range.end_ms));
        self.hidden.iter().any(|hidden| hidden.start_ms <= start_ms && end_ms <= hidden.end_ms)
    }

    pub(crate) fn touches(&self, span: TimeRange) -> bool {
        self.hidden.iter().any(|hidden| hidden.overlaps(&span))
    }

    /// Removes the hidden samples from those at position `from` and later.
    pub(crate) fn cut(&self, samples: &mut Samples, from: usize) {
        for hidden in &self.hidden {
            let times = &samples.timestamps[from..];
            let start = from + times.partition_point(|t| *t < hidden.start_ms);
            let end = from + times.partition_point(|t| *t <= hidden.end_ms);
            samples.timestamps.drain(start..end.max(start));
            samples.values.drain(start..end.max(start));
        }
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.labels.capacity() + self.hidden.capacity() * size_of::<TimeRange>()
    }
}

/// Sorts ranges, and joins those that overlap or are adjacent.
fn join(ranges: &mut Vec<TimeRange>) {
    ranges.retain(|range| range.start_ms <= range.end_ms);
    ranges.sort_unstable_by_key(|range| range.start_ms);
    ranges.dedup_by(|next, last| {
        let joins = next.start_ms <= last.end_ms.saturating_add(1);
        if joins {
            last.end_ms = last.end_ms.max(next.end_ms);
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Labels;
    use stdx::rng::Rng;

    fn delete(op: MatchOp, value: &str, range: TimeRange) -> Delete {
        let matchers = vec![
            Matcher::new("__name__", op, value).unwrap(),
            Matcher::new("a", MatchOp::NotRegex, "x.*").unwrap(),
        ];
        Delete { selectors: vec![matchers, vec![Matcher::equal("b", "\"é\n")]], range }
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let check = |list: Vec<Tombstone>| {
            let all = Tombstones { last: 9, list };
            assert_eq!(Tombstones::parse(all.to_text(7).as_bytes(), 9).unwrap(), all);
        };
        check(Vec::new());
        check(vec![
            Tombstone { sequence: 5, delete: delete(MatchOp::Regex, "up|down", TimeRange::ALL) },
            Tombstone { sequence: i64::MAX, delete: delete(MatchOp::NotEqual, "", TimeRange::new(-1, 1)) },
        ]);
        for wrong in ["", "{}", r#"{"format":2,"tombstones":[]}"#, r#"{"format":1,"tombstones":[{}]}"#] {
            assert!(Tombstones::parse(wrong.as_bytes(), 0).is_err(), "{wrong}");
        }
        let unknown = r#"{"format":1,"tombstones":[{"sequence":1,"start":0,"end":1,
            "selectors":[[{"name":"a","op":"~","value":"b"}]]}]}"#;
        assert!(Tombstones::parse(unknown.as_bytes(), 0).is_err());
    }

    #[test]
    fn a_mask_hides_what_any_tombstone_deletes() {
        let mut rng = Rng::announced();
        for _ in 0..500 {
            let ranges: Vec<_> = (0..rng.below(5))
                .map(|_| {
                    let start_ms = rng.below(30) as i64;
                    TimeRange::new(start_ms, start_ms + rng.below(8) as i64 - 1)
                })
                .collect();
            let of = |(n, range): (usize, &TimeRange)| Tombstone {
                sequence: n as i64,
                delete: delete(MatchOp::Equal, if n == 3 { "other" } else { "m" }, *range),
            };
            let all = Arc::new(Tombstones { last: 9, list: ranges.iter().enumerate().map(of).collect() });
            let which = rng.below(1 << 5);
            let mut masking = Masking::new(Arc::new(Mask { all, which, is_rollup: false }));
            let labels = Labels::from_pairs(&[("__name__", "m"), ("a", "y")]);
            masking.enter(labels.as_ref(), |_| Ok(())).unwrap();
            let applies = |n: usize| n != 3 && which >> n & 1 == 1;
            let is_hidden = |t: i64| ranges.iter().enumerate().any(|(n, r)| applies(n) && r.contains(t));
            let mut samples = Samples::default();
            (0..40).for_each(|t| samples.push(t, t as f64));
            let from = rng.below(40) as usize;
            masking.cut(&mut samples, from);
            let expected: Vec<_> = (0..40).filter(|t| *t < from as i64 || !is_hidden(*t)).collect();
            assert_eq!(samples.timestamps, expected, "{ranges:?} from {from}");
            assert!(samples.timestamps.iter().zip(&samples.values).all(|(t, v)| *t as f64 == *v));
            let (start, end) = (rng.below(40) as i64, rng.below(40) as i64);
            let span = TimeRange::new(start.min(end), start.max(end));
            let all = (span.start_ms..=span.end_ms).all(is_hidden);
            assert_eq!(masking.hides(span, TimeRange::ALL), all, "{ranges:?} {span:?}");
            let any = (span.start_ms..=span.end_ms).any(is_hidden);
            assert_eq!(masking.touches(span), any, "{ranges:?} {span:?}");
        }
    }

    fn file(names: Option<(&str, &str)>) -> LiveFile {
        LiveFile {
            path: String::new(),
            date: crate::Date(0),
            bytes: 1,
            rows: 1,
            names: names.map(|(a, b)| (a.into(), b.into())),
            sequence: 4,
            applied: 0,
            is_early: false,
            range: TimeRange::new(10, 20),
        }
    }

    #[test]
    fn files_share_the_tombstones_of_their_masks() {
        let tombstone = |n: usize| {
            let range = if n.is_multiple_of(2) { TimeRange::ALL } else { TimeRange::new(21, 30) };
            Tombstone { sequence: 5 + n as i64, delete: delete(MatchOp::Regex, ".+", range) }
        };
        let all = Arc::new(Tombstones { last: 99, list: (0..TOMBSTONES_MAX).map(tombstone).collect() });
        let masks: Vec<_> = (0..3).map(|_| all.mask(&file(None), false).unwrap()).collect();
        assert!(masks.iter().all(|mask| Arc::ptr_eq(&mask.all, &all) && mask.deletes().count() == 32));
        assert_eq!(all.mask(&LiveFile { applied: 99, ..file(None) }, false), None);
        let last = LiveFile { applied: 4 + TOMBSTONES_MAX as i64 - 1, ..file(None) };
        assert_eq!(all.mask(&last, false), None, "the last tombstone is of other times");
        let too_many = Tombstones { last: 99, list: (0..=TOMBSTONES_MAX).map(tombstone).collect() };
        assert!(Tombstones::parse(too_many.to_text(1).as_bytes(), 99).is_err());
    }

    #[test]
    fn files_outside_the_name_range_are_excluded() {
        let check = |names, op, value: &str, range, expected| {
            let delete =
                Delete { selectors: vec![vec![Matcher::new("__name__", op, value).unwrap()]], range };
            let tombstone = Tombstone { sequence: 5, delete };
            assert_eq!(tombstone.concerns(&file(names)), expected, "{names:?} {value}");
        };
        let (all, inside) = (TimeRange::ALL, TimeRange::new(15, 16));
        check(Some(("b", "d")), MatchOp::Equal, "c", inside, true);
        check(Some(("b", "d")), MatchOp::Equal, "d", all, true);
        check(Some(("b", "d")), MatchOp::Equal, "d_long", all, true);
        check(Some(("b", "d")), MatchOp::Equal, "e", all, false);
        check(Some(("b", "d")), MatchOp::Equal, "a", all, false);
        check(Some(("b", "d")), MatchOp::Equal, "c", TimeRange::new(21, 30), false);
        check(Some(("b", "d")), MatchOp::Regex, "a|e", all, false);
        check(Some(("b", "d")), MatchOp::Regex, "a|c", all, true);
        check(Some(("b", "d")), MatchOp::Regex, ".*", all, true);
        check(Some(("b", "d")), MatchOp::NotEqual, "c", all, true);
        check(None, MatchOp::Equal, "a", all, true);
        let tombstone = Tombstone { sequence: 5, delete: delete(MatchOp::Regex, ".+", all) };
        for (is_early, sequence, applied, expected) in [
            (false, 4, 0, true),
            (false, 5, 0, false),
            (false, 4, 5, false),
            (true, 9, 0, true),
            (true, 9, 6, false),
        ] {
            let file = LiveFile { is_early, sequence, applied, ..file(None) };
            assert_eq!(tombstone.concerns(&file), expected, "{is_early} {sequence} {applied}");
        }
    }
}
