//! The table's columns as the Delta log has them.

use crate::schema;
use delta_kernel::KernelResult;
use delta_kernel::schema::{ArrayType, DataType, MapType, SchemaRef, StructField, StructType};
use delta_kernel::snapshot::Snapshot;
use std::sync::Arc;

/// The columns of a new table: those of the files, and the partition column.
pub(super) fn columns() -> KernelResult<SchemaRef> {
    let list = |element: DataType| ArrayType::new(element, false);
    let labels = MapType::new(DataType::STRING, DataType::STRING, false);
    Ok(Arc::new(StructType::try_new([
        StructField::not_null(schema::DATE, DataType::DATE),
        StructField::not_null(schema::NAME, DataType::STRING),
        StructField::not_null(schema::LABELS, labels),
        StructField::not_null(schema::SERIES, DataType::BINARY),
        StructField::not_null(schema::START, DataType::TIMESTAMP),
        StructField::not_null(schema::END, DataType::TIMESTAMP),
        StructField::not_null(schema::COUNT, DataType::INTEGER),
        StructField::not_null(schema::TIMESTAMPS, list(DataType::TIMESTAMP)),
        StructField::nullable(schema::EXPONENT, DataType::BYTE),
        StructField::nullable(schema::BASE, DataType::LONG),
        StructField::nullable(schema::MANTISSAS, list(DataType::LONG)),
        StructField::nullable(schema::FLOATS, list(DataType::DOUBLE)),
    ])?))
}

/// Sees that a table has these columns: a foreign writer may have changed them.
pub(super) fn check(snapshot: &Snapshot) -> Result<(), String> {
    let expected = columns().map_err(|e| e.to_string())?;
    let found = snapshot.schema();
    for field in expected.fields() {
        match found.field(field.name()) {
            Some(found) if found.data_type() == field.data_type() => {}
            Some(found) => {
                return Err(format!(
                    "column {:?} is {}, not {}",
                    field.name(),
                    found.data_type(),
                    field.data_type()
                ));
            }
            None => return Err(format!("it has no column {:?}", field.name())),
        }
    }
    Ok(())
}
