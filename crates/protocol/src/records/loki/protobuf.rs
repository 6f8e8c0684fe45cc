//! Requests in protobuf, from `pkg/push/push.proto` of Loki.
//!
//! ```text
//!   PushRequest   1 (Stream)*
//!   Stream        1 labels, as text   2 (Entry)*   3 hash, which is ignored
//!   Entry         1 Timestamp   2 line   3 (Pair)*: structured metadata   4 (Pair)*, which are ignored
//!   Timestamp     1 seconds   2 nanoseconds
//!   Pair          1 name   2 value
//! ```

use super::super::{Fault, Place, Reason, Rows, Streams};
use super::Push;
use crate::wire::{Reader, Tag, WireType, tag};

const STREAM: Tag = tag(1, WireType::Len);

const LABELS: Tag = tag(1, WireType::Len);
const ENTRY: Tag = tag(2, WireType::Len);

const TIMESTAMP: Tag = tag(1, WireType::Len);
const LINE: Tag = tag(2, WireType::Len);
const METADATA: Tag = tag(3, WireType::Len);

const SECONDS: Tag = tag(1, WireType::Varint);
const NANOSECONDS: Tag = tag(2, WireType::Varint);

const NAME: Tag = tag(1, WireType::Len);
const VALUE: Tag = tag(2, WireType::Len);

const SECOND_NS: i64 = 1_000_000_000;

impl Push {
    pub(super) fn protobuf(&mut self, body: &[u8], streams: &mut Streams<'_, '_>) -> Result<(), Fault> {
        let mut request = Reader::new(body);
        while let Some(tag) = request.tag()? {
            match tag {
                STREAM => self.stream(request.message()?, streams)?,
                other => request.skip_unknown(other, &[1])?,
            }
        }
        Ok(())
    }

    fn stream(&mut self, whole: Reader<'_>, streams: &mut Streams<'_, '_>) -> Result<(), Fault> {
        self.count_stream()?;
        // the labels may come after the entries
        let (mut fields, mut labels) = (whole, &b""[..]);
        while let Some(tag) = fields.tag()? {
            match tag {
                LABELS => labels = fields.len_field()?,
                ENTRY => {
                    fields.len_field()?;
                }
                other => fields.skip_unknown(other, &[1, 2])?,
            }
        }
        self.labels.read(labels, streams.rows.memory)?;
        let (mut entries, mut is_selected) = (whole, false);
        while let Some(tag) = entries.tag()? {
            match tag {
                ENTRY => {
                    // a stream without entries makes none
                    if !std::mem::replace(&mut is_selected, true) {
                        self.select(streams)?;
                    }
                    self.count += 1;
                    let entry = entries.message()?;
                    let read = self.entry(entry, &mut streams.rows);
                    read.or_else(|fault| streams.rows.refuse(Place::Record(self.count), fault))?;
                }
                other => entries.skip(other)?,
            }
        }
        Ok(())
    }

    fn entry(&mut self, mut entry: Reader<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        self.labels.put(rows)?;
        let (mut time_ns, mut line) = (None, &b""[..]);
        while let Some(tag) = entry.tag()? {
            match tag {
                TIMESTAMP => time_ns = Some(timestamp_ns(entry.message()?)?),
                LINE => line = entry.len_field()?,
                METADATA => self.pair(entry.message()?, rows)?,
                other => entry.skip_unknown(other, &[1, 2, 3])?,
            }
        }
        self.put_line(line, rows)?;
        self.end(time_ns, rows)
    }

    fn pair(&mut self, mut pair: Reader<'_>, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        let (mut name, mut value) = (&b""[..], &b""[..]);
        while let Some(tag) = pair.tag()? {
            match tag {
                NAME => name = pair.len_field()?,
                VALUE => value = pair.len_field()?,
                other => pair.skip_unknown(other, &[1, 2])?,
            }
        }
        self.put_metadata(name, value, rows)
    }
}

fn timestamp_ns(mut timestamp: Reader<'_>) -> Result<i128, Fault> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    while let Some(tag) = timestamp.tag()? {
        match tag {
            SECONDS => seconds = timestamp.varint()?.cast_signed(),
            NANOSECONDS => nanoseconds = timestamp.varint()?.cast_signed(),
            other => timestamp.skip_unknown(other, &[1, 2])?,
        }
    }
    if !(0..SECOND_NS).contains(&nanoseconds) {
        return Err(Reason::Time("timestamp").into());
    }
    Ok(i128::from(seconds) * i128::from(SECOND_NS) + i128::from(nanoseconds))
}
