//! The stack machine.

use super::opcodes::{allowed as op, refused};
use super::text::{unescape_bytes, unescape_text, unquoted};
use super::usual::{self, Usual};
use super::{Fault, PickleError, PickleFault, Points};
use crate::graphite::number::{seconds_ms, time_of, value_of};
use model::SeriesRefusal;
use std::ops::Range;
use stdx::budget::Exhausted;

/// Limit on the objects on the stack. Python adds a thousand points at a time to a list.
pub(super) const STACK_MAX: usize = 1 << 17;

/// Limit on the memo: the objects that later opcodes may repeat. A point adds up to three.
pub(super) const MEMO_MAX: usize = 1 << 18;

/// Limit on the lists within the list of all points. A point has up to two.
const INNER_LISTS_MAX: usize = 1 << 18;

/// A pickle can repeat a long path with two bytes. All paths together may have this many times the bytes of the pickle.
const PATHS_FACTOR: usize = 32;

/// The newest version of the format.
pub(super) const PROTOCOL_MAX: u8 = 5;

/// Limit on the digits of an integer.
const DIGITS_MAX: usize = 400;

#[derive(Debug, Default)]
pub(super) struct Machine {
    stack: Vec<Object>,
    memo: Vec<Object>,
    inner_lists: Vec<InnerList>,
    /// Strings that had escapes.
    unescaped: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Object {
    Mark,
    /// The list of all points ([`List`]).
    List,
    /// A list within the list of all points, by its index in [`Machine::inner_lists`].
    InnerList(u32),
    Text(Text),
    Integer(i64),
    Float(f64),
    /// A tuple or list of a time and a value.
    Sample(Sample),
    Point(Text, Sample),
    /// A tuple or list that is neither a sample nor a point, with its first text, for messages.
    Other(Option<Text>),
}

/// A list within the list of all points. It is memoized before it has objects, so other objects refer to it by its index.
#[derive(Debug, Clone, Copy)]
enum InnerList {
    Empty,
    /// Has one object.
    Begun(Object),
    /// Has two objects or more, which are a sample, a point, or neither.
    Complete(Object),
}

impl Object {
    /// The path of a point, or the first text of what is not a point.
    const fn text(&self) -> Option<Text> {
        match *self {
            Self::Text(text) | Self::Point(text, _) => Some(text),
            Self::Other(text) => text,
            Self::Mark | Self::List | Self::InnerList(_) => None,
            Self::Integer(_) | Self::Float(_) | Self::Sample(_) => None,
        }
    }
}

/// A range of the pickle, or of [`Machine::unescaped`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text {
    start: u32,
    bytes: u32,
    was_escaped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) timestamp_ms: i64,
    pub(super) value: f64,
}

/// Why the machine stopped early.
#[derive(Debug)]
pub(super) enum Halt {
    Refused(PickleError),
    Memory(Exhausted),
}

/// Like [`Halt`], without the offset, which only the loop knows.
pub(super) enum Stop {
    Fault(PickleFault),
    Memory(Exhausted),
}

impl From<PickleFault> for Stop {
    fn from(fault: PickleFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Exhausted> for Stop {
    fn from(full: Exhausted) -> Self {
        Self::Memory(full)
    }
}

impl Machine {
    /// Adds the points of a pickle to the batch. If the pickle is refused, some of them may have been added.
    pub(super) fn run(&mut self, pickle: &[u8], points: &mut Points<'_, '_>) -> Result<(), Halt> {
        self.stack.clear();
        self.memo.clear();
        self.inner_lists.clear();
        self.unescaped.clear();
        let before = points.mark();
        match usual::read(pickle, &mut List::of(pickle, points)) {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Stop::Fault(_)) => points.undo(before), // the machine reads it again, or says where the fault is
            Err(Stop::Memory(full)) => return Err(Halt::Memory(full)),
        }
        let mut run = Run { machine: self, pickle, at: 0, list: List::of(pickle, points) };
        let stopped = loop {
            let is_done = match run.usual_point() {
                Ok(true) => Ok(false),
                Ok(false) => run.step(),
                Err(stop) => Err(stop),
            };
            match is_done {
                Ok(false) => {}
                Ok(true) => break run.end(),
                Err(stop) => break Err(stop),
            }
        };
        stopped.map_err(|stop| match stop {
            Stop::Fault(fault) => Halt::Refused(PickleError { offset: run.at.saturating_sub(1), fault }),
            Stop::Memory(full) => Halt::Memory(full),
        })
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        (self.stack.capacity() + self.memo.capacity()) * size_of::<Object>()
            + self.inner_lists.capacity() * size_of::<InnerList>()
            + self.unescaped.capacity()
    }
}

/// One pickle that is being read.
struct Run<'r, 'a, 'p> {
    machine: &'r mut Machine,
    pickle: &'r [u8],
    at: usize,
    list: List<'r, 'a, 'p>,
}

/// The list of all points. What is added to it becomes points of the batch at once.
pub(super) struct List<'r, 'a, 'p> {
    points: &'r mut Points<'a, 'p>,
    /// Where the labels of this pickle's points begin in the batch.
    paths_start: usize,
    paths_bytes_max: usize,
    /// Number of objects that were added.
    number: usize,
}

impl<'r, 'a, 'p> List<'r, 'a, 'p> {
    fn of(pickle: &[u8], points: &'r mut Points<'a, 'p>) -> Self {
        let paths_start = points.batch.bytes.len();
        Self { points, paths_start, paths_bytes_max: PATHS_FACTOR * pickle.len(), number: 0 }
    }

    #[inline]
    pub(super) fn add(&mut self, path: &[u8], Sample { timestamp_ms, value }: Sample) -> Result<(), Stop> {
        self.number += 1;
        let timestamp_ms = self.points.time_ms(timestamp_ms);
        let added = match value.is_nan() {
            true => Err(Fault::Point("the value is not a number".into())),
            false => self.points.add(path, timestamp_ms, value),
        };
        match added {
            Ok(()) => {}
            Err(Fault::Memory(full)) => return Err(full.into()),
            Err(Fault::Point(what)) => self.refuse(what, path),
        }
        self.check()
    }

    /// Adds something that is not a point. `text` says where it comes from.
    fn add_other(&mut self, text: &[u8]) -> Result<(), Stop> {
        self.number += 1;
        self.refuse("not of the form (path, (time, value))".into(), text);
        self.check()
    }

    #[cold]
    fn refuse(&mut self, what: String, sent: &[u8]) {
        let what = self.points.with_excerpt(what, sent);
        self.points.batch.refuse(SeriesRefusal::Point { number: self.number, what }, 0..0, 1);
    }

    #[inline]
    fn check(&self) -> Result<(), Stop> {
        let limit = self.paths_bytes_max;
        if self.points.batch.bytes.len() - self.paths_start > limit {
            return Err(PickleFault::TooMany { what: "bytes of paths", limit }.into());
        }
        if self.points.check_count("points").is_err() {
            let limit = model::caps::REQUEST_SERIES_MAX;
            return Err(PickleFault::TooMany { what: "points", limit }.into());
        }
        Ok(())
    }
}

impl Run<'_, '_, '_> {
    /// Executes all opcodes of a point in the form that Python's picklers give to most points ([`Usual`]), which takes
    /// half as long as step by step. Does nothing and returns false if other opcodes follow. In most pickles, all points
    /// have this form: they do not come here ([`usual::read`]).
    #[inline]
    fn usual_point(&mut self) -> Result<bool, Stop> {
        let Machine { stack, memo, .. } = &mut *self.machine;
        // step by step, three objects are on the stack at a time
        if stack.len() + 3 > STACK_MAX || memo.len() + 3 > MEMO_MAX {
            return Ok(false);
        }
        let Some(usual) = Usual::at(self.pickle, self.at, memo.len()) else { return Ok(false) };
        let Usual { path, sample, is_memoized, end } = usual;
        let reservation = &mut self.list.points.reservation;
        if is_memoized {
            reservation.room(memo, 3)?;
            memo.extend([Object::Text(path), Object::Sample(sample), Object::Point(path, sample)]);
        }
        reservation.push(stack, Object::Point(path, sample))?;
        self.at = end;
        Ok(true)
    }

    /// Executes an opcode. Returns true after the last one.
    fn step(&mut self) -> Result<bool, Stop> {
        let [opcode] = *self.fixed()?;
        match opcode {
            op::BINUNICODE | op::BINSTRING | op::BINBYTES => self.text::<4>()?,
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => self.text::<1>()?,
            op::BINUNICODE8 | op::BINBYTES8 => self.text::<8>()?,
            op::BININT => {
                let number = i32::from_le_bytes(*self.fixed()?);
                self.push(Object::Integer(number.into()))?;
            }
            op::BININT1 | op::BININT2 => self.small_integer(opcode)?,
            op::BINFLOAT => {
                let number = f64::from_be_bytes(*self.fixed()?);
                self.push(Object::Float(number))?;
            }
            op::LONG1 | op::LONG4 => self.long(opcode)?,
            op::TUPLE2 => self.tuple(2, "TUPLE2")?,
            op::MARK => self.push(Object::Mark)?,
            op::BINPUT | op::LONG_BINPUT | op::PUT => {
                let number = self.memo_number(opcode)?;
                self.memoize(number)?;
            }
            op::MEMOIZE => self.memoize(self.machine.memo.len())?,
            op::BINGET | op::LONG_BINGET | op::GET => self.recall(opcode)?,
            op::APPENDS => self.extend_list("APPENDS")?,
            op::APPEND => self.append()?,
            op::TUPLE => {
                let count = self.since_mark("TUPLE")?.len();
                self.tuple(count, "TUPLE")?;
                self.machine.stack.swap_remove(self.machine.stack.len() - 2); // the mark, below the tuple
            }
            op::TUPLE1 => self.tuple(1, "TUPLE1")?,
            op::TUPLE3 => self.tuple(3, "TUPLE3")?,
            op::EMPTY_TUPLE | op::NONE => self.push(Object::Other(None))?,
            // Python's Booleans are the integers 1 and 0
            op::NEWTRUE => self.push(Object::Integer(1))?,
            op::NEWFALSE => self.push(Object::Integer(0))?,
            op::EMPTY_LIST => {
                let list = self.new_list(self.machine.stack.len())?;
                self.push(list)?;
            }
            op::LIST => self.list()?,
            op::INT | op::LONG | op::FLOAT => self.written_number(opcode)?,
            op::STRING | op::UNICODE => self.written_text(opcode)?,
            op::PROTO => {
                let [version] = *self.fixed()?;
                if version > PROTOCOL_MAX {
                    return Err(PickleFault::Protocol(version).into());
                }
            }
            op::FRAME => _ = self.fixed::<8>()?, // only says how many bytes to read ahead
            op::STOP => return Ok(true),
            _ => {
                let fault = refused(opcode).map_or(PickleFault::UnknownOpcode(opcode), PickleFault::Opcode);
                return Err(fault.into());
            }
        }
        Ok(false)
    }

    fn end(&self) -> Result<(), Stop> {
        match self.machine.stack[..] {
            [Object::List] => Ok(()),
            _ => Err(PickleFault::NotAList.into()),
        }
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<&[u8; N], PickleFault> {
        let bytes = self.pickle[self.at..].first_chunk().ok_or(PickleFault::Truncated)?;
        self.at += N;
        Ok(bytes)
    }

    /// Reads a length of `N` bytes, and then as many bytes. Returns their range.
    #[inline]
    fn counted<const N: usize>(&mut self) -> Result<Range<usize>, PickleFault> {
        let mut length = [0; 8];
        length[..N].copy_from_slice(self.fixed::<N>()?);
        let end =
            usize::try_from(u64::from_le_bytes(length)).ok().and_then(|length| self.at.checked_add(length));
        let end = end.filter(|end| *end <= self.pickle.len()).ok_or(PickleFault::Truncated)?;
        let start = std::mem::replace(&mut self.at, end);
        Ok(start..end)
    }

    /// Reads a line, and returns its range without the newline.
    fn written(&mut self) -> Result<Range<usize>, PickleFault> {
        let length =
            self.pickle[self.at..].iter().position(|byte| *byte == b'\n').ok_or(PickleFault::Truncated)?;
        let start = self.at;
        self.at += length + 1;
        Ok(start..start + length)
    }

    #[inline]
    fn push(&mut self, object: Object) -> Result<(), Stop> {
        if self.machine.stack.len() >= STACK_MAX {
            return Err(PickleFault::TooMany { what: "objects on the stack", limit: STACK_MAX }.into());
        }
        self.list.points.reservation.push(&mut self.machine.stack, object)?;
        Ok(())
    }

    #[inline]
    fn text<const N: usize>(&mut self) -> Result<(), Stop> {
        let range = self.counted::<N>()?;
        self.push(Object::Text(Text::of(&range, false)))
    }

    fn small_integer(&mut self, opcode: u8) -> Result<(), Stop> {
        let number = match opcode {
            op::BININT1 => i64::from(self.fixed::<1>()?[0]),
            _ => i64::from(u16::from_le_bytes(*self.fixed()?)),
        };
        self.push(Object::Integer(number))
    }

    /// Reads an integer in two's complement, of any length.
    fn long(&mut self, opcode: u8) -> Result<(), Stop> {
        let range = if opcode == op::LONG1 { self.counted::<1>()? } else { self.counted::<4>()? };
        let bytes = &self.pickle[range];
        if bytes.len() > size_of::<i128>() {
            return Err(PickleFault::Argument("an integer of more than 128 bits").into());
        }
        let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [sign; size_of::<i128>()];
        whole[..bytes.len()].copy_from_slice(bytes);
        let number = i128::from_le_bytes(whole);
        self.push(i64::try_from(number).map_or(Object::Float(number as f64), Object::Integer))
    }

    fn written_number(&mut self, opcode: u8) -> Result<(), Stop> {
        let range = self.written()?;
        let line = self.pickle[range].trim_ascii();
        let digits = if opcode == op::LONG { line.strip_suffix(b"L").unwrap_or(line) } else { line };
        let text = std::str::from_utf8(digits).ok().filter(|text| text.len() <= DIGITS_MAX);
        let text = text.ok_or(PickleFault::Argument("a number"))?;
        let number = match opcode {
            op::INT | op::LONG => text.parse().map(Object::Integer).ok(),
            _ => None,
        };
        let number = number.or_else(|| text.parse().map(Object::Float).ok());
        self.push(number.ok_or(PickleFault::Argument("a number"))?)
    }

    fn written_text(&mut self, opcode: u8) -> Result<(), Stop> {
        let line = self.written()?;
        let mut inner = &self.pickle[line.clone()];
        let mut start = line.start;
        if opcode == op::STRING {
            let unquoted = unquoted(inner)?;
            start += inner.iter().position(|byte| matches!(byte, b'\'' | b'"')).unwrap_or(0) + 1;
            inner = unquoted;
        }
        let is_plain = |byte: &u8| *byte != b'\\' && (opcode == op::STRING || byte.is_ascii());
        if inner.iter().all(is_plain) {
            return self.push(Object::Text(Text::of(&(start..start + inner.len()), false)));
        }
        // a byte becomes at most two bytes of UTF-8, and an escape is longer than what it stands for
        let unescaped = &mut self.machine.unescaped;
        self.list.points.reservation.room(unescaped, 2 * inner.len())?;
        let start = unescaped.len();
        match opcode {
            op::STRING => unescape_bytes(inner, unescaped)?,
            _ => unescape_text(inner, unescaped)?,
        }
        let range = start..unescaped.len();
        self.push(Object::Text(Text::of(&range, true)))
    }

    fn memo_number(&mut self, opcode: u8) -> Result<usize, PickleFault> {
        Ok(match opcode {
            op::BINPUT | op::BINGET => usize::from(self.fixed::<1>()?[0]),
            op::LONG_BINPUT | op::LONG_BINGET => u32::from_le_bytes(*self.fixed()?) as usize,
            _ => {
                let range = self.written()?;
                let text = std::str::from_utf8(&self.pickle[range]).unwrap_or_default();
                text.trim().parse().map_err(|_| PickleFault::Argument("the number of a repeated object"))?
            }
        })
    }

    fn memoize(&mut self, number: usize) -> Result<(), Stop> {
        let Machine { stack, memo, .. } = &mut *self.machine;
        let top = *stack.last().ok_or(PickleFault::Underflow("PUT"))?;
        if number >= MEMO_MAX {
            return Err(PickleFault::TooMany { what: "repeated objects", limit: MEMO_MAX }.into());
        }
        // Picklers number the memo without gaps, but some begin with 1, and unused numbers may have been removed. Gaps are
        // filled. Numbers above the bytes read so far are refused, which bounds the work.
        if number > self.at {
            return Err(PickleFault::Argument("the number of a repeated object").into());
        }
        while memo.len() <= number {
            self.list.points.reservation.push(memo, Object::Mark)?;
        }
        memo[number] = top;
        Ok(())
    }

    fn recall(&mut self, opcode: u8) -> Result<(), Stop> {
        let number = self.memo_number(opcode)?;
        match self.machine.memo.get(number) {
            None | Some(Object::Mark) => Err(PickleFault::Argument("the number of a repeated object").into()),
            Some(object) => self.push(*object),
        }
    }

    /// Replaces the top objects by a tuple of them.
    fn tuple(&mut self, count: usize, opcode: &'static str) -> Result<(), Stop> {
        let start = self.machine.stack.len().checked_sub(count).ok_or(PickleFault::Underflow(opcode))?;
        let objects = &self.machine.stack[start..];
        let tuple = match *objects {
            [first, second] => self.pair(self.resolved(first), self.resolved(second)),
            _ => Object::Other(objects.iter().find_map(|object| self.resolved(*object).text())),
        };
        self.machine.stack.truncate(start);
        self.push(tuple)
    }

    /// What a tuple or list of two objects is.
    fn pair(&self, first: Object, second: Object) -> Object {
        let known = match (first, second) {
            (Object::Text(path), Object::Sample(sample)) => Some(Object::Point(path, sample)),
            (time, value) => self.sample(time, value).map(Object::Sample),
        };
        known.unwrap_or_else(|| Object::Other(first.text().or_else(|| second.text())))
    }

    /// Returns what a list within the list of all points is by now. Other objects are returned as they are.
    fn resolved(&self, object: Object) -> Object {
        let Object::InnerList(index) = object else { return object };
        match self.machine.inner_lists[index as usize] {
            InnerList::Empty => Object::Other(None),
            InnerList::Begun(only) => Object::Other(only.text()),
            InnerList::Complete(whole) => whole,
        }
    }

    /// A time and a value as a sample. `None` if either is not a number.
    fn sample(&self, time: Object, value: Object) -> Option<Sample> {
        let timestamp_ms = match time {
            Object::Integer(seconds) => seconds.saturating_mul(1000),
            Object::Float(seconds) => seconds_ms(seconds)?,
            Object::Text(text) => time_of(self.bytes_of(text).trim_ascii())?,
            _ => return None,
        };
        let value = match value {
            Object::Integer(value) => value as f64,
            Object::Float(value) => value,
            Object::Text(text) => value_of(self.bytes_of(text).trim_ascii())?,
            _ => return None,
        };
        Some(Sample { timestamp_ms, value })
    }

    fn bytes_of(&self, text: Text) -> &[u8] {
        let bytes = if text.was_escaped { &self.machine.unescaped[..] } else { self.pickle };
        &bytes[text.range()]
    }

    /// The objects above the last mark.
    fn since_mark(&self, opcode: &'static str) -> Result<Range<usize>, PickleFault> {
        let stack = &self.machine.stack;
        let mark =
            stack.iter().rposition(|object| *object == Object::Mark).ok_or(PickleFault::Underflow(opcode))?;
        Ok(mark + 1..stack.len())
    }

    /// Creates a list that will have `below` objects under it on the stack. With none below, it is the list of all points.
    fn new_list(&mut self, below: usize) -> Result<Object, Stop> {
        if below == 0 {
            return Ok(Object::List);
        }
        let lists = &mut self.machine.inner_lists;
        if lists.len() >= INNER_LISTS_MAX {
            return Err(PickleFault::TooMany { what: "lists", limit: INNER_LISTS_MAX }.into());
        }
        let list = Object::InnerList(lists.len() as u32);
        self.list.points.reservation.push(lists, InnerList::Empty)?;
        Ok(list)
    }

    fn list(&mut self) -> Result<(), Stop> {
        let objects = self.since_mark("LIST")?;
        let mark = objects.start - 1;
        let list = self.new_list(mark)?;
        self.extend(list, objects, "LIST")?;
        self.machine.stack.truncate(mark);
        self.push(list)
    }

    fn append(&mut self) -> Result<(), Stop> {
        let length = self.machine.stack.len();
        let list = length.checked_sub(2).ok_or(PickleFault::Underflow("APPEND"))?;
        self.extend(self.machine.stack[list], length - 1..length, "APPEND")?;
        self.machine.stack.truncate(length - 1);
        Ok(())
    }

    fn extend_list(&mut self, opcode: &'static str) -> Result<(), Stop> {
        let objects = self.since_mark(opcode)?;
        let mark = objects.start - 1;
        let list = mark.checked_sub(1).ok_or(PickleFault::Underflow(opcode))?;
        self.extend(self.machine.stack[list], objects, opcode)?;
        self.machine.stack.truncate(mark);
        Ok(())
    }

    /// Adds objects of the stack to a list.
    fn extend(&mut self, list: Object, objects: Range<usize>, opcode: &'static str) -> Result<(), Stop> {
        match list {
            Object::List => self.add_points(objects),
            Object::InnerList(index) => {
                self.extend_inner(index as usize, objects);
                Ok(())
            }
            _ => Err(PickleFault::Underflow(opcode).into()),
        }
    }

    fn extend_inner(&mut self, index: usize, objects: Range<usize>) {
        for place in objects {
            let object = self.resolved(self.machine.stack[place]);
            self.machine.inner_lists[index] = match self.machine.inner_lists[index] {
                InnerList::Empty => InnerList::Begun(object),
                InnerList::Begun(first) => InnerList::Complete(self.pair(first, object)),
                InnerList::Complete(whole) => {
                    InnerList::Complete(Object::Other(whole.text().or_else(|| object.text())))
                }
            };
        }
    }

    fn add_points(&mut self, objects: Range<usize>) -> Result<(), Stop> {
        for place in objects {
            let object = self.resolved(self.machine.stack[place]);
            let text = object.text().map_or(&[][..], |text| match text.was_escaped {
                true => &self.machine.unescaped[text.range()],
                false => &self.pickle[text.range()],
            });
            match object {
                Object::Point(_, sample) => self.list.add(text, sample)?,
                _ => self.list.add_other(text)?,
            }
        }
        Ok(())
    }
}

impl Text {
    pub(super) const fn of(range: &Range<usize>, was_escaped: bool) -> Self {
        Self { start: range.start as u32, bytes: (range.end - range.start) as u32, was_escaped }
    }

    pub(super) const fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.bytes as usize
    }
}

const _: () = assert!(size_of::<Object>() <= 32, "the memory of a pickle is larger than documented");
const _: () = assert!(crate::graphite::FRAME_BYTES_MAX < u32::MAX as usize);
