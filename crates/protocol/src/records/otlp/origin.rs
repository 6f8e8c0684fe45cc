//! What all records of a resource, or of a scope, have in common.

use super::super::rows::check_path;
use super::super::{Fault, Reason, Rows};
use super::fields::{group, resource, scope};
use super::value::{attribute_value, text};
use crate::otlp::attribute::read;
use crate::wire::Reader;
use model::AttributeValue;
use model::caps::BATCH_ATTRIBUTES_MAX;
use std::ops::Range;
use stdx::budget::IncrementalReservation;

/// The attribute of a resource that says which service it is.
const SERVICE: &[u8] = b"service.name";

/// Values that are added to every record.
#[derive(Debug, Default)]
pub(super) struct Origin {
    values: Vec<Shared>,
    texts: String,
    /// The text of a value that is being read.
    scratch: String,
    /// Positions in `values`, while they are sorted.
    order: Vec<u32>,
    /// Why no record can have these values.
    fault: Option<Reason>,
    /// How much is copied for each record.
    copied_bytes: usize,
    of_resource: OfResource,
}

/// How much is of the resource. The rest is of the scope.
#[derive(Debug, Default, Clone, Copy)]
struct OfResource {
    values: usize,
    text_bytes: usize,
    copied_bytes: usize,
    fault: Option<Reason>,
}

#[derive(Debug, Clone)]
struct Shared {
    path: Range<usize>,
    value: SharedValue,
}

#[derive(Debug, Clone)]
enum SharedValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Its place in the texts.
    Text(Range<usize>),
    Json(Range<usize>),
}

impl Origin {
    /// Replaces everything by the values of a resource. `whole` are the records of the resource. Returns the name of its
    /// service.
    pub(super) fn read_resource<'a>(
        &mut self,
        whole: Reader<'a>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<Option<&'a [u8]>, Fault> {
        self.values.clear();
        self.texts.clear();
        self.copied_bytes = 0;
        self.fault = None;
        let (mut records, mut service) = (whole, None);
        while let Some(tag) = records.tag()? {
            match tag {
                group::ORIGIN => {
                    let mut origin = records.message()?;
                    while let Some(tag) = origin.tag()? {
                        match tag {
                            resource::ATTRIBUTE => {
                                let attribute = origin.message()?;
                                self.attribute("resource.", attribute, memory)?;
                                service = service_of(attribute)?.or(service);
                            }
                            other => origin.skip_unknown(other, resource::KNOWN)?,
                        }
                    }
                }
                group::SCHEMA_URL => self.text("resource_schema_url", records.len_field()?, memory)?,
                group::MEMBER => {
                    records.len_field()?;
                }
                other => records.skip_unknown(other, group::KNOWN)?,
            }
        }
        self.keep_last(0, memory)?;
        self.of_resource = OfResource {
            values: self.values.len(),
            text_bytes: self.texts.len(),
            copied_bytes: self.copied_bytes,
            fault: self.fault,
        };
        Ok(service)
    }

    /// Replaces the values of the scope.
    pub(super) fn read_scope(
        &mut self,
        whole: Reader<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        let OfResource { values, text_bytes, copied_bytes, fault } = self.of_resource;
        self.values.truncate(values);
        self.texts.truncate(text_bytes);
        self.copied_bytes = copied_bytes;
        self.fault = fault;
        let mut records = whole;
        while let Some(tag) = records.tag()? {
            match tag {
                group::ORIGIN => {
                    let mut origin = records.message()?;
                    while let Some(tag) = origin.tag()? {
                        match tag {
                            scope::NAME => self.text("scope_name", origin.len_field()?, memory)?,
                            scope::VERSION => self.text("scope_version", origin.len_field()?, memory)?,
                            scope::ATTRIBUTE => self.attribute("scope.", origin.message()?, memory)?,
                            other => origin.skip_unknown(other, scope::KNOWN)?,
                        }
                    }
                }
                group::SCHEMA_URL => self.text("scope_schema_url", records.len_field()?, memory)?,
                group::MEMBER => {
                    records.len_field()?;
                }
                other => records.skip_unknown(other, group::KNOWN)?,
            }
        }
        self.keep_last(values, memory)
    }

    /// Adds the values to the present record.
    pub(super) fn put(&self, rows: &mut Rows<'_, '_>) -> Result<(), Fault> {
        if let Some(reason) = self.fault {
            return Err(reason.into());
        }
        rows.share(self.copied_bytes)?;
        for Shared { path, value } in &self.values {
            let value = match value {
                SharedValue::Bool(value) => AttributeValue::Bool(*value),
                SharedValue::Int(value) => AttributeValue::Int(*value),
                SharedValue::Float(value) => AttributeValue::Float(*value),
                SharedValue::Text(text) => AttributeValue::Text(&self.texts[text.clone()]),
                SharedValue::Json(text) => AttributeValue::Json(&self.texts[text.clone()]),
            };
            rows.put(&self.texts[path.clone()], None, value)?;
        }
        Ok(())
    }

    fn text(
        &mut self,
        path: &str,
        value: &[u8],
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        if value.is_empty() {
            return Ok(());
        }
        let value = text(value, &mut self.scratch, memory)?;
        let path = append(&mut self.texts, path, memory)?;
        let value = SharedValue::Text(append(&mut self.texts, value, memory)?);
        self.add(path, value, memory)
    }

    /// Adds an attribute. If no record can have it, the records are refused when they are read.
    fn attribute(
        &mut self,
        prefix: &str,
        attribute: Reader<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        if self.fault.is_some() {
            return Ok(());
        }
        match self.try_attribute(prefix, attribute, memory) {
            Err(Fault::Record(reason)) => {
                self.fault = Some(reason);
                Ok(())
            }
            added => added,
        }
    }

    fn try_attribute(
        &mut self,
        prefix: &str,
        attribute: Reader<'_>,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        let message = attribute.whole();
        let (key, value) = read(attribute)?;
        check_path(prefix.len() + key.len())?;
        let start = self.texts.len();
        append(&mut self.texts, prefix, memory)?;
        append(&mut self.texts, text(&message[key], &mut self.scratch, memory)?, memory)?;
        let path = start..self.texts.len();
        check_path(path.len())?;
        let Some(value) = attribute_value(value, message, &mut self.scratch, memory)? else {
            return Ok(());
        };
        let value = match value {
            AttributeValue::Bool(value) => SharedValue::Bool(value),
            AttributeValue::Int(value) => SharedValue::Int(value),
            AttributeValue::Float(value) => SharedValue::Float(value),
            AttributeValue::Text(text) => SharedValue::Text(append(&mut self.texts, text, memory)?),
            AttributeValue::Json(text) => SharedValue::Json(append(&mut self.texts, text, memory)?),
        };
        self.add(path, value, memory)
    }

    fn add(
        &mut self,
        path: Range<usize>,
        value: SharedValue,
        memory: &mut IncrementalReservation<'_>,
    ) -> Result<(), Fault> {
        if self.values.len() == BATCH_ATTRIBUTES_MAX {
            self.fault = Some(model::TooManyAttributes.into());
            return Ok(());
        }
        Ok(memory.push(&mut self.values, Shared { path, value })?)
    }

    /// Of values from `first` on that have the same path, keeps the last one. Otherwise, each record would have to be given
    /// all of them. Counts how much is copied.
    fn keep_last(&mut self, first: usize, memory: &mut IncrementalReservation<'_>) -> Result<(), Fault> {
        let Self { values, texts, order, .. } = self;
        order.clear();
        for number in first..values.len() {
            memory.push(order, number as u32)?;
        }
        let path = |number: u32| &texts[values[number as usize].path.clone()];
        order.sort_unstable_by(|a, b| path(*a).cmp(path(*b)).then(a.cmp(b)));
        let has_repetitions = order.windows(2).any(|pair| path(pair[0]) == path(pair[1]));
        if has_repetitions {
            let mut numbers = order.iter().copied().peekable();
            let mut kept = vec![false; values.len() - first];
            while let Some(number) = numbers.next() {
                kept[number as usize - first] = numbers.peek().is_none_or(|next| path(*next) != path(number));
            }
            let mut end = first;
            for number in first..values.len() {
                if kept[number - first] {
                    values.swap(end, number);
                    end += 1;
                }
            }
            values.truncate(end);
        }
        self.copied_bytes += self.values[first..].iter().map(Shared::copied_bytes).sum::<usize>();
        Ok(())
    }
}

impl Shared {
    fn copied_bytes(&self) -> usize {
        let text_bytes = match &self.value {
            SharedValue::Text(text) | SharedValue::Json(text) => text.len(),
            _ => 0,
        };
        size_of::<f64>() + self.path.len() + text_bytes
    }
}

/// Appends a text, and returns its place.
fn append(
    texts: &mut String,
    text: &str,
    memory: &mut IncrementalReservation<'_>,
) -> Result<Range<usize>, Fault> {
    let start = texts.len();
    memory.room(texts, text.len())?;
    texts.push_str(text);
    Ok(start..texts.len())
}

/// The value of an attribute if it is the name of the service.
fn service_of(attribute: Reader<'_>) -> Result<Option<&[u8]>, Fault> {
    use crate::otlp::attribute::Value;
    let message = attribute.whole();
    Ok(match read(attribute)? {
        (key, Value::Text(text)) if message[key.clone()] == *SERVICE => Some(&message[text]),
        _ => None,
    })
}
