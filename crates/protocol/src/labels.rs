//! Parses the labels of series from the bytes that the sender transmitted.

use crate::wire::{Reader, Tag, WireError, WireType, tag};
use model::caps::{LABEL_NAME_BYTES_MAX, LABEL_VALUE_BYTES_MAX, SERIES_LABEL_BYTES_MAX, SERIES_LABELS_MAX};
use model::labels::{METRIC_NAME, is_canonical};
use model::{Labels, LabelsBuilder, LabelsRef, SeriesRefusal};
use std::ops::Range;

const LABEL: Tag = tag(1, WireType::Len);
const LABEL_NAME: Tag = tag(1, WireType::Len);
const LABEL_VALUE: Tag = tag(2, WireType::Len);

/// Returns a series' labels in canonical form, without labels that have empty values. `raw` are the label
/// bytes as they were sent ([`model::Batch::label_bytes`]). The error says why the series cannot be stored.
pub fn labels_of(raw: &[u8], builder: &mut LabelsBuilder) -> Result<Labels, SeriesRefusal> {
    if is_canonical(raw) {
        return Ok(LabelsRef::from_canonical(raw).to_owned());
    }
    builder.clear();
    collect(raw, builder)?;
    builder.build_series()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelField<'a> {
    pub value: &'a [u8],
    /// The range of the whole label in the label bytes. Cutting out this range removes the label.
    pub range: Range<usize>,
}

/// Searches label bytes, as they were sent, for labels with the given names. Returns `None` if one of the
/// names is missing, empty or repeated, or if the bytes are damaged. If the labels are not sorted, a repeated
/// name may go unnoticed.
pub fn find_labels<'a, const N: usize>(raw: &'a [u8], names: [&str; N]) -> Option<[LabelField<'a>; N]> {
    let mut found: [Option<LabelField<'a>>; N] = [const { None }; N];
    let (mut missing, mut fields) = (N, Reader::new(raw));
    loop {
        let start = fields.at();
        let (name, value) = match short_label(fields.rest()) {
            Some((name, value)) => {
                fields.advance(SHORT_LABEL_BYTES + name.len() + value.len());
                (name, value)
            }
            None => match fields.tag().ok()? {
                Some(LABEL) => name_and_value(fields.message().ok()?).ok()?,
                Some(other) => {
                    fields.skip(other).ok()?;
                    continue;
                }
                None => break,
            },
        };
        match names.iter().position(|wanted| wanted.as_bytes() == name) {
            Some(_) if value.is_empty() => {}
            Some(i) if found[i].is_some() => return None,
            Some(i) => {
                found[i] = Some(LabelField { value, range: start..fields.at() });
                missing -= 1;
            }
            None if missing == 0 => break,
            None => {}
        }
    }
    (missing == 0).then(|| found.map(|field| field.expect("BUG: no label is missing")))
}

/// The number of bytes that tags and lengths take in a label whose lengths all take one byte.
const SHORT_LABEL_BYTES: usize = 6;

/// Returns the first label's name and value, if the label has the canonical layout and is so short that each
/// length takes one byte. This is the fast path.
#[inline(always)]
fn short_label(labels: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[label_tag, label_bytes, name_tag, name_bytes], rest) = labels.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(name_bytes))?;
    let (&[value_tag, value_bytes], rest) = rest.split_first_chunk()?;
    let value = rest.get(..usize::from(value_bytes))?;
    let tags = [Tag::from(label_tag), Tag::from(name_tag), Tag::from(value_tag)];
    let is_short = tags == [LABEL, LABEL_NAME, LABEL_VALUE]
        && label_bytes | name_bytes | value_bytes < 0x80
        && usize::from(label_bytes) + 2 == SHORT_LABEL_BYTES + name.len() + value.len();
    is_short.then_some((name, value))
}

/// The limit on how many bytes of a label's name or value are quoted in an error message.
pub(crate) const LABEL_SHOWN_BYTES_MAX: usize = 64;

pub(crate) const LABELS_SHOWN_MAX: usize = 16;

/// Formats label bytes as text, such as `up{job="x"}`, for error messages. Any bytes are accepted. Long texts
/// and long lists of labels are cut.
pub fn describe_labels(raw: &[u8]) -> String {
    let mut metric = String::new();
    let mut labels: Vec<String> = Vec::new();
    let mut fields = Reader::new(raw);
    while let Ok(Some(tag)) = fields.tag() {
        let label = match tag {
            LABEL => fields.message().and_then(name_and_value),
            other => fields.skip(other).map(|()| (&[][..], &[][..])),
        };
        if labels.len() == LABELS_SHOWN_MAX || label.is_err() {
            labels.push("…".into());
            break;
        }
        match label {
            Ok((name, value)) if metric.is_empty() && name == METRIC_NAME.as_bytes() => metric = shown(value),
            Ok((name, value)) if tag == LABEL => labels.push(format!("{}={:?}", shown(name), shown(value))),
            _ => {}
        }
    }
    format!("{metric}{{{}}}", labels.join(", "))
}

fn shown(text: &[u8]) -> String {
    let mut shown = String::from_utf8_lossy(&text[..text.len().min(LABEL_SHOWN_BYTES_MAX)]).into_owned();
    if text.len() > LABEL_SHOWN_BYTES_MAX {
        shown.push('…');
    }
    shown
}

fn collect(raw: &[u8], builder: &mut LabelsBuilder) -> Result<(), SeriesRefusal> {
    let damaged = |e: WireError| SeriesRefusal::DamagedLabels(e.offset);
    let mut total = Total::default();
    let mut fields = Reader::new(raw);
    while let Some(tag) = fields.tag().map_err(damaged)? {
        if tag != LABEL {
            fields.skip_unknown(tag, &[1]).map_err(damaged)?;
            continue;
        }
        let (name, value) = name_and_value(fields.message().map_err(damaged)?).map_err(damaged)?;
        total.add(name, value)?;
        if total.fits() {
            push_text(name, value, builder)?;
        }
    }
    total.check()
}

/// Counts a series' labels and their bytes. Labels are counted before they are copied, so that too many of
/// them take no memory.
#[derive(Debug, Default)]
pub(crate) struct Total {
    labels: usize,
    bytes: usize,
}

impl Total {
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), SeriesRefusal> {
        if value.is_empty() {
            return Ok(());
        }
        self.labels += 1;
        self.bytes += name.len() + value.len();
        if name.len() > LABEL_NAME_BYTES_MAX {
            return Err(SeriesRefusal::LabelNameTooLong(name.len()));
        }
        if value.len() > LABEL_VALUE_BYTES_MAX {
            let name = std::str::from_utf8(name).map_err(|_| SeriesRefusal::NotUtf8)?;
            return Err(SeriesRefusal::LabelValueTooLong(name.into(), value.len()));
        }
        Ok(())
    }

    pub(crate) fn fits(&self) -> bool {
        self.labels <= SERIES_LABELS_MAX && self.bytes <= SERIES_LABEL_BYTES_MAX
    }

    pub(crate) fn check(&self) -> Result<(), SeriesRefusal> {
        if self.labels > SERIES_LABELS_MAX {
            return Err(SeriesRefusal::TooManyLabels(self.labels));
        }
        if self.bytes > SERIES_LABEL_BYTES_MAX {
            return Err(SeriesRefusal::LabelsTooLong(self.bytes));
        }
        Ok(())
    }
}

/// Adds a label, unless its value is empty. Fails if the name or the value is not UTF-8.
pub(crate) fn push_text(name: &[u8], value: &[u8], builder: &mut LabelsBuilder) -> Result<(), SeriesRefusal> {
    if value.is_empty() {
        return Ok(());
    }
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| SeriesRefusal::NotUtf8);
    builder.push(text(name)?, text(value)?);
    Ok(())
}

/// Reads a Label message. As in any protobuf message, a repeated field overrides the earlier one, and an
/// absent field is empty.
pub(crate) fn name_and_value(mut label: Reader<'_>) -> Result<(&[u8], &[u8]), WireError> {
    let (mut name, mut value) = (&[][..], &[][..]);
    while let Some(tag) = label.tag()? {
        match tag {
            LABEL_NAME => name = label.len_field()?,
            LABEL_VALUE => value = label.len_field()?,
            other => label.skip_unknown(other, &[1, 2])?,
        }
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::labels::put_label;
    use stdx::rng::Rng;

    fn raw(labels: &[(&str, &str)]) -> Vec<u8> {
        let mut raw = Vec::new();
        labels.iter().for_each(|(n, v)| put_label(&mut raw, n.as_bytes(), v.as_bytes()));
        raw
    }

    #[test]
    fn labels_are_found_in_any_order() {
        let check = |labels: &[(&str, &str)], expected: Option<[&str; 2]>| {
            let raw = raw(labels);
            let found = find_labels(&raw, ["b", "y"]);
            assert_eq!(
                found.as_ref().map(|found| found.each_ref().map(|f| f.value)),
                expected.map(|e| e.map(str::as_bytes))
            );
            let Some([b, _]) = found else { return };
            let without = [&raw[..b.range.start], &raw[b.range.end..]].concat();
            let others: Vec<_> = labels.iter().filter(|(name, _)| *name != "b").copied().collect();
            assert_eq!(without, self::raw(&others));
        };
        check(&[("__name__", "up"), ("b", "1"), ("y", "2"), ("z", "")], Some(["1", "2"]));
        check(&[("y", "2"), ("__name__", "up"), ("b", "1")], Some(["1", "2"]));
        check(&[("b", "1"), ("z", "2")], None);
        check(&[("b", "1"), ("y", "")], None);
        check(&[("b", "1"), ("b", "1"), ("y", "2")], None);
        check(&[("b", "1"), ("y", "2"), ("y", "3")], None);
        check(&[("B", "1"), ("by", "2"), ("y", "3")], None);
        let long = "x".repeat(200);
        check(
            &[("a", &long), ("b", &long), ("c", &long[..120]), ("y", &long[..130])],
            Some([&long, &long[..130]]),
        );
        check(&[], None);
    }

    #[test]
    fn damaged_bytes_have_no_labels_to_be_found() {
        let whole = raw(&[("a", "x"), ("b", "1"), ("y", "2")]);
        for cut in 0..whole.len() {
            assert_eq!(find_labels(&whole[..cut], ["b", "y"]), None);
        }
        let mut rng = Rng::announced();
        for _ in 0..100_000 {
            let mut bytes = whole.clone();
            (0..=rng.below(3))
                .for_each(|_| bytes[rng.below(whole.len() as u64) as usize] = rng.next_u64() as u8);
            // the fast path must find the same labels as the slow path, for any bytes
            let found = find_labels(&bytes, ["b", "y"]);
            for LabelField { value, range } in found.into_iter().flatten() {
                let mut field = Reader::new(&bytes[range]);
                assert_eq!(field.tag(), Ok(Some(LABEL)), "{bytes:?}");
                assert_eq!(name_and_value(field.message().unwrap()).unwrap().1, value, "{bytes:?}");
                assert!(field.is_empty(), "{bytes:?}");
            }
        }
        // an unknown field before the labels is skipped
        let unknown = [&[0x18, 5], &whole[..]].concat();
        assert_eq!(find_labels(&unknown, ["b", "y"]).unwrap()[0].value, b"1");
    }

    #[test]
    fn labels_are_shown_whatever_they_are() {
        let check =
            |labels: &[(&str, &str)], expected: &str| assert_eq!(describe_labels(&raw(labels)), expected);
        check(&[], "{}");
        check(&[("__name__", "up")], "up{}");
        check(&[("z", "1"), ("__name__", "up"), ("a", "")], r#"up{z="1", a=""}"#);
        check(&[("a", &"x".repeat(100))], &format!("{{a={:?}}}", "x".repeat(64) + "…"));
        let cut = &raw(&[("__name__", "up"), ("a", "b")]);
        assert_eq!(describe_labels(&cut[..cut.len() - 1]), "up{…}");
        let many = raw(&[("a", "b"); 1000]);
        assert_eq!(describe_labels(&many).matches("a=").count(), LABELS_SHOWN_MAX);
    }
}
