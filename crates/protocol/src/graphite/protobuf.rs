//! Decodes go-carbon's protobuf messages.
//!
//! ```text
//!   message Payload { repeated Metric metrics = 1; }
//!   message Metric  { string metric = 1;  repeated Point points = 2; }
//!   message Point   { uint32 timestamp = 1;  double value = 2; }
//! ```
//!
//! Source: <https://github.com/go-graphite/go-carbon/blob/master/helper/carbonpb/carbon.proto>.

use super::points::{Fault, Label, Points};
use super::{Format, split_frame};
use crate::wire::{Reader, Tag, WireError, WireType, tag};
use crate::{DecodeError, Request};
use model::caps::REQUEST_SAMPLES_MAX;
use model::{Batch, SeriesHasher, SeriesRefusal};
use stdx::budget::{Exhausted, IncrementalReservation};

const METRICS: Tag = tag(1, WireType::Len);
const METRIC: Tag = tag(1, WireType::Len);
const POINTS: Tag = tag(2, WireType::Len);
const TIMESTAMP: Tag = tag(1, WireType::Varint);
const VALUE: Tag = tag(2, WireType::Fixed64);

#[derive(Debug)]
pub struct Decoder {
    hasher: SeriesHasher,
    body: Vec<u8>,
    labels: Vec<Label>,
}

/// Why a payload is refused as a whole.
enum Stop {
    Wire(WireError),
    Memory(Exhausted),
    TooMany(DecodeError),
}

impl From<WireError> for Stop {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl crate::Decoder for Decoder {
    type Format = Format;

    const HAS_GRAPHITE_NAMES: bool = true;

    fn new(seed: u64) -> Self {
        Self { hasher: SeriesHasher::new(seed), body: Vec::new(), labels: Vec::new() }
    }

    fn fill(
        &mut self,
        request: Request<'_, Format>,
        batch: &mut Batch,
        reservation: &mut IncrementalReservation<'_>,
    ) -> Result<(), DecodeError> {
        let Self { hasher, body, labels } = self;
        let Format { has_frames, arrival } = request.format;
        let mut rest = request.body.uncompressed(body, reservation)?;
        let mut points = Points { hasher, labels, batch, reservation, arrival };
        if !has_frames {
            return payload(rest, &mut points).map_err(|stop| match stop {
                Stop::Wire(error) => error.into(),
                Stop::Memory(full) => full.into(),
                Stop::TooMany(error) => error,
            });
        }
        let mut number = 0;
        while let Some((frame, others)) = split_frame(rest) {
            (rest, number) = (others, number + 1);
            points.check_count("series")?;
            let before = points.mark();
            let what = match payload(frame, &mut points) {
                Ok(()) => continue,
                Err(Stop::Memory(full)) => return Err(full.into()),
                Err(Stop::Wire(error)) => error.to_string(),
                Err(Stop::TooMany(error)) => error.to_string(),
            };
            points.undo(before);
            let what = points.with_excerpt(what, frame);
            points.batch.refuse(SeriesRefusal::Message { number, what }, 0..0, 1);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.body.capacity() + self.labels.capacity() * size_of::<Label>()
    }
}

fn payload(bytes: &[u8], points: &mut Points<'_, '_>) -> Result<(), Stop> {
    let (mut fields, mut number) = (Reader::new(bytes), 0);
    while let Some(tag) = fields.tag()? {
        if tag != METRICS {
            fields.skip_unknown(tag, &[1])?;
            continue;
        }
        number += 1;
        points.check_count("series").map_err(Stop::TooMany)?;
        metric(fields.message()?, number, points)?;
    }
    Ok(())
}

/// Adds the points of a metric. If its name is not valid, all of its points are left out.
fn metric(message: Reader<'_>, number: usize, points: &mut Points<'_, '_>) -> Result<(), Stop> {
    let (mut name, mut fields) = (&[][..], message);
    while let Some(tag) = fields.tag()? {
        match tag {
            METRIC => name = fields.len_field()?,
            POINTS => _ = fields.message()?,
            other => fields.skip_unknown(other, &[1, 2])?,
        }
    }
    let (before, mut fields) = (points.mark(), message);
    let (mut samples, mut not_numbers) = (0, 0);
    let labels = points.put_path(name);
    while let Some(tag) = fields.tag()? {
        if tag != POINTS {
            fields.skip(tag)?;
            continue;
        }
        let (seconds, value) = point(fields.message()?)?;
        if value.is_nan() {
            not_numbers += 1;
            continue;
        }
        if points.batch.floats.values.len() >= REQUEST_SAMPLES_MAX {
            return Err(Stop::TooMany(DecodeError::TooMany { what: "points", limit: REQUEST_SAMPLES_MAX }));
        }
        let timestamp_ms = points.time_ms(i64::from(seconds) * 1000);
        points.sample(timestamp_ms, value).map_err(stop_of)?;
        samples += 1;
    }
    let added = match labels {
        Ok(_) if samples == 0 => {
            points.undo(before);
            Ok(())
        }
        Ok(labels) => points.series(labels, samples),
        Err(fault) => Err(fault),
    };
    if not_numbers > 0 && added.is_ok() {
        refuse(points, number, "the value is not a number".into(), name, not_numbers);
    }
    match added {
        Ok(()) => Ok(()),
        Err(Fault::Memory(full)) => Err(Stop::Memory(full)),
        Err(Fault::Point(what)) => {
            points.undo(before);
            refuse(points, number, what, name, samples + not_numbers);
            Ok(())
        }
    }
}

fn refuse(points: &mut Points<'_, '_>, number: usize, what: String, name: &[u8], samples: usize) {
    let what = points.with_excerpt(what, name);
    points.batch.refuse(SeriesRefusal::Point { number, what }, 0..0, samples);
}

fn stop_of(fault: Fault) -> Stop {
    match fault {
        Fault::Memory(full) => Stop::Memory(full),
        Fault::Point(_) => unreachable!("BUG: samples alone cannot be wrong"),
    }
}

/// Returns the time in seconds, and the value. Absent fields are zero.
fn point(mut fields: Reader<'_>) -> Result<(u32, f64), WireError> {
    let (mut seconds, mut value) = (0, 0.0);
    while let Some(tag) = fields.tag()? {
        match tag {
            TIMESTAMP => seconds = fields.varint()? as u32, // as protobuf reads a number that is too large
            VALUE => value = fields.double()?,
            other => fields.skip_unknown(other, &[1, 2])?,
        }
    }
    Ok((seconds, value))
}

#[cfg(test)]
mod tests;
