//! A kind's columns as the Delta log describes them.

use crate::kind::attributes::{self, AttributeColumn, AttributeColumns};
use crate::kind::{Column, DATE, Kind, Type};
use delta_kernel::KernelResult;
use delta_kernel::schema::{ArrayType, DataType, MapType, MetadataValue, SchemaRef, StructField, StructType};
use delta_kernel::snapshot::Snapshot;
use model::AttributeKind;
use std::sync::Arc;

pub(super) fn columns(kind: &Kind) -> KernelResult<SchemaRef> {
    let date = StructField::not_null(DATE, DataType::DATE);
    Ok(Arc::new(StructType::try_new(std::iter::once(date).chain(kind.columns.iter().map(field)))?))
}

fn field(column: &Column) -> StructField {
    StructField::new(column.name, data_type(column.data_type), column.is_nullable)
}

fn data_type(of: Type) -> DataType {
    match of {
        Type::Text => DataType::STRING,
        Type::Bytes => DataType::BINARY,
        Type::Bool => DataType::BOOLEAN,
        Type::Byte => DataType::BYTE,
        Type::Int => DataType::INTEGER,
        Type::Long => DataType::LONG,
        Type::Double => DataType::DOUBLE,
        Type::Timestamp | Type::TimestampMicros => DataType::TIMESTAMP,
        Type::TextMap => MapType::new(DataType::STRING, DataType::STRING, false).into(),
        Type::List(element) => ArrayType::new(data_type(*element), false).into(),
    }
}

/// Checks that a table has the columns of its kind. Columns of later versions may be missing.
pub(super) fn check(kind: &Kind, snapshot: &Snapshot) -> Result<(), String> {
    let found = snapshot.schema();
    let date = StructField::not_null(DATE, DataType::DATE);
    let expected = kind.columns.iter().map(|column| (field(column), column.is_added()));
    for (field, is_added) in std::iter::once((date, false)).chain(expected) {
        match found.field(field.name()) {
            Some(found) if found.data_type() == field.data_type() => {}
            Some(found) => {
                let (name, is, wanted) = (field.name(), found.data_type(), field.data_type());
                return Err(format!("column {name:?} has type {is} instead of {wanted}"));
            }
            None if is_added => {}
            None => return Err(format!("column {:?} is missing", field.name())),
        }
    }
    Ok(())
}

/// Columns that the table does not have yet, because it was created by an earlier version.
pub(super) fn missing(kind: &Kind, snapshot: &Snapshot) -> Vec<StructField> {
    let found = snapshot.schema();
    kind.columns.iter().filter(|column| found.field(column.name).is_none()).map(field).collect()
}

/// Columns of attributes that the table has.
pub(super) fn attributes(kind: &Kind, snapshot: &Snapshot) -> AttributeColumns {
    let mut columns = AttributeColumns::new();
    let is_fixed = |name: &str| name == DATE || kind.columns.iter().any(|column| column.name == name);
    for field in snapshot.schema().fields().filter(|field| !is_fixed(field.name())) {
        // a column without our metadata is another program's
        if !attribute(field).is_some_and(|column| columns.add(&column)) {
            columns.reserve(field.name());
        }
    }
    columns
}

fn attribute(field: &StructField) -> Option<AttributeColumn> {
    let text = |key: &str| match field.metadata.get(key)? {
        MetadataValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let kind = text(attributes::TYPE_KEY)?;
    let kind = AttributeKind::ALL.into_iter().find(|one| one.name() == kind)?;
    let path = text(attributes::PATH_KEY)?.into();
    let column = AttributeColumn { name: field.name().as_str().into(), path, kind };
    (*field.data_type() == data_type(column.data_type())).then_some(column)
}

pub(super) fn attribute_field(column: &AttributeColumn) -> StructField {
    let metadata = [(attributes::PATH_KEY, &*column.path), (attributes::TYPE_KEY, column.kind.name())];
    StructField::nullable(&*column.name, data_type(column.data_type())).with_metadata(metadata)
}
