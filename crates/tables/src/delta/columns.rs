//! A kind's columns as the Delta log describes them.

use crate::kind::{Column, DATE, Kind, Type};
use delta_kernel::KernelResult;
use delta_kernel::schema::{ArrayType, DataType, MapType, SchemaRef, StructField, StructType};
use delta_kernel::snapshot::Snapshot;
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
        Type::Byte => DataType::BYTE,
        Type::Int => DataType::INTEGER,
        Type::Long => DataType::LONG,
        Type::Double => DataType::DOUBLE,
        Type::Timestamp => DataType::TIMESTAMP,
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
