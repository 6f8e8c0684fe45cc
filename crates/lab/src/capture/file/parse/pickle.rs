//! Graphite's pickled points: frames of `[(path, (time, value)), …]`, length-prefixed with four bytes.
//!
//! Understands what Python's `pickle` writes for such lists in protocols 0 to 5, and nothing else. Values are kept only in
//! the shapes that such a list has, so that a frame can neither nest deeply nor grow by its references. Source:
//! <https://github.com/python/cpython/blob/main/Lib/pickletools.py>.

use super::super::request::Parsed;
use super::number;
use anyhow::Result;
use model::caps::SERIES_LABELS_MAX;
use model::labels::METRIC_NAME;
use std::collections::HashMap;

/// Carbon refuses longer frames.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;

/// A time in seconds and a value.
type Sample = (f64, f64);

#[derive(Debug, Clone, Copy)]
enum Scalar<'a> {
    Text(&'a [u8]),
    Number(f64),
}

#[derive(Debug)]
enum Value<'a> {
    /// Where the items of a tuple or a list begin.
    Mark,
    Scalar(Scalar<'a>),
    Sample(Sample),
    Point(&'a [u8], Sample),
    Points(Points<'a>),
    /// Anything that no point has.
    Other,
}

#[derive(Debug, Default)]
struct Points<'a> {
    points: Vec<(&'a [u8], Sample)>,
    /// Number of items that are not points.
    others: u64,
}

pub(super) fn parse(mut frames: &[u8], out: &mut Parsed) -> Result<()> {
    while let Some((length, rest)) = frames.split_first_chunk::<4>() {
        let Some((frame, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else { break };
        frames = rest;
        let Some(Points { points, others }) = (Reader { rest: frame }).points() else {
            out.refuse_line();
            continue;
        };
        (0..others).for_each(|_| out.refuse_line());
        for (path, sample) in points {
            if !put(path, sample, out)? {
                out.refuse_line();
            }
        }
    }
    if !frames.is_empty() {
        out.refuse_line();
    }
    Ok(())
}

/// False if it is not a point with a time of its own, by the same rules as for lines.
fn put(path: &[u8], (seconds, value): Sample, out: &mut Parsed) -> Result<bool> {
    let mut parts = path.split(|byte| *byte == b';');
    let name = parts.next().unwrap_or_default();
    if name.is_empty() || value.is_nan() || !(0.0..1e12).contains(&seconds) {
        return Ok(false);
    }
    let mut labels = vec![out.put_name(&[name])?];
    for part in parts {
        let equals = part.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
        let Some(equals) = equals.filter(|_| labels.len() < SERIES_LABELS_MAX) else { return Ok(false) };
        let (name, value) = (&part[..equals], &part[equals + 1..]);
        if !value.is_empty() && name != METRIC_NAME.as_bytes() {
            labels.push(out.put_label(name, value)?);
        }
    }
    out.put_series(&labels, [((seconds * 1000.0).round() as i64, value)])?;
    Ok(true)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The points of a frame. `None` if it is not a list of points.
    fn points(mut self) -> Option<Points<'a>> {
        let mut stack: Vec<Value<'a>> = Vec::new();
        let mut memo: HashMap<u32, Scalar<'a>> = HashMap::new();
        let mut memoized = 0;
        loop {
            match self.byte()? {
                // PROTO and FRAME
                0x80 => {
                    self.take(1)?;
                }
                0x95 => {
                    self.take(8)?;
                }
                b'(' => stack.push(Value::Mark),
                b']' => stack.push(Value::Points(Points::default())),
                b'l' => {
                    let items = above_mark(&mut stack)?;
                    stack.push(list(items));
                }
                b't' => {
                    let items = above_mark(&mut stack)?;
                    stack.push(tuple(items));
                }
                // TUPLE1 to TUPLE3
                opcode @ 0x85..=0x87 => {
                    let items = stack.split_off(stack.len().checked_sub(usize::from(opcode - 0x84))?);
                    stack.push(tuple(items));
                }
                b'a' => {
                    let item = stack.pop()?;
                    append(&mut stack, [item])?;
                }
                b'e' => {
                    let items = above_mark(&mut stack)?;
                    append(&mut stack, items)?;
                }
                b'g' => stack.push(Value::Scalar(*memo.get(&self.line_index()?)?)),
                b'h' => stack.push(Value::Scalar(*memo.get(&self.byte()?.into())?)),
                b'j' => stack.push(Value::Scalar(*memo.get(&self.u32()?)?)),
                opcode @ (b'p' | b'q' | b'r' | 0x94) => {
                    let index = match opcode {
                        b'p' => self.line_index()?,
                        b'q' => self.byte()?.into(),
                        b'r' => self.u32()?,
                        _ => memoized,
                    };
                    memoized += 1;
                    if let Value::Scalar(scalar) = stack.last()? {
                        memo.insert(index, *scalar);
                    }
                }
                b'.' => match stack.pop()? {
                    Value::Points(points) => return Some(points),
                    _ => return None,
                },
                opcode => stack.push(self.literal(opcode)?),
            }
        }
    }

    fn literal(&mut self, opcode: u8) -> Option<Value<'a>> {
        let text = |text| Some(Value::Scalar(Scalar::Text(text)));
        let amount = |number| Some(Value::Scalar(Scalar::Number(number)));
        match opcode {
            // texts and bytes, with their lengths in one, four or eight bytes
            b'U' | b'C' | 0x8c => {
                let len = self.byte()?;
                text(self.take(len.into())?)
            }
            b'T' | b'X' | b'B' => {
                let len = self.u32()?;
                text(self.take(len as usize)?)
            }
            0x8d => {
                let len = u64::from_le_bytes(self.array()?);
                text(self.take(usize::try_from(len).ok()?)?)
            }
            b'V' => text(plain(self.line()?)?),
            b'S' => {
                let line = self.line()?;
                let quote = *line.first().filter(|quote| matches!(quote, b'\'' | b'"'))?;
                text(plain(line[1..].strip_suffix(&[quote])?)?)
            }
            b'J' => amount(i32::from_le_bytes(self.array()?).into()),
            b'K' => amount(self.byte()?.into()),
            b'M' => amount(u16::from_le_bytes(self.array()?).into()),
            b'G' => amount(f64::from_be_bytes(self.array()?)),
            b'I' | b'F' => amount(number(self.line()?)?),
            b'L' => {
                let line = self.line()?;
                amount(number(line.strip_suffix(b"L").unwrap_or(line))?)
            }
            // LONG1
            0x8a => {
                let len = self.byte()?;
                amount(long(self.take(len.into())?)?)
            }
            0x88 => amount(1.0),
            0x89 => amount(0.0),
            b'N' | b')' => Some(Value::Other),
            _ => None,
        }
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    fn line(&mut self) -> Option<&'a [u8]> {
        let line = self.take(self.rest.iter().position(|byte| *byte == b'\n')?)?;
        self.take(1)?;
        Some(line)
    }

    fn line_index(&mut self) -> Option<u32> {
        std::str::from_utf8(self.line()?).ok()?.parse().ok()
    }
}

/// A text without escapes.
fn plain(text: &[u8]) -> Option<&[u8]> {
    (!text.contains(&b'\\')).then_some(text)
}

/// A signed number in little endian, with up to eight bytes.
fn long(bytes: &[u8]) -> Option<f64> {
    let negative = bytes.last().is_some_and(|last| *last >= 0x80);
    let mut all = if negative { [0xff; 8] } else { [0; 8] };
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(all) as f64)
}

fn above_mark<'a>(stack: &mut Vec<Value<'a>>) -> Option<Vec<Value<'a>>> {
    let mark = stack.iter().rposition(|value| matches!(value, Value::Mark))?;
    let items = stack.split_off(mark + 1);
    stack.pop();
    Some(items)
}

fn append<'a>(stack: &mut [Value<'a>], items: impl IntoIterator<Item = Value<'a>>) -> Option<()> {
    let Value::Points(points) = stack.last_mut()? else { return None };
    for item in items {
        points.push(item);
    }
    Some(())
}

fn list(items: Vec<Value<'_>>) -> Value<'_> {
    let mut points = Points::default();
    items.into_iter().for_each(|item| points.push(item));
    Value::Points(points)
}

/// A sample, a point, or a tuple of points.
fn tuple(items: Vec<Value<'_>>) -> Value<'_> {
    let amount = |scalar: &Scalar<'_>| match scalar {
        Scalar::Number(number) => Some(*number),
        Scalar::Text(text) => number(text),
    };
    match items.as_slice() {
        [Value::Scalar(time), Value::Scalar(value)] => match (amount(time), amount(value)) {
            (Some(time), Some(value)) => Value::Sample((time, value)),
            _ => Value::Other,
        },
        [Value::Scalar(Scalar::Text(path)), Value::Sample(sample)] => Value::Point(path, *sample),
        [Value::Point(..), ..] => list(items),
        _ => Value::Other,
    }
}

impl<'a> Points<'a> {
    fn push(&mut self, item: Value<'a>) {
        match item {
            Value::Point(path, sample) => self.points.push((path, sample)),
            _ => self.others += 1,
        }
    }
}
