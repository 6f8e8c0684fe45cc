//! Values of several series at all steps.

use super::QueryError;
use super::float::{ABSENT, is_absent, is_present};
use super::row::{Row, RowName, Sink};
use super::rows::Rows;
use crate::meter::{Charge, Meter};
use hashbrown::HashMap;
use model::Labels;

#[derive(Debug)]
pub(super) struct Column<'m> {
    pub(super) values: Vec<f64>,
    _charge: Charge<'m>,
}

impl<'m> Column<'m> {
    pub(super) fn new(meter: &'m Meter<'m>, count: usize, value: f64) -> Result<Self, QueryError> {
        let mut charge = meter.charge();
        charge.add(count)?;
        Ok(Self { values: vec![value; count], _charge: charge })
    }
}

impl std::ops::Deref for Column<'_> {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values
    }
}

/// A table that has one row of `steps` values for each series.
#[derive(Debug)]
pub(super) struct Matrix<'m> {
    pub(super) steps: usize,
    pub(super) names: Vec<RowName>,
    values: Rows<f64>,
    charge: Charge<'m>,
}

impl<'m> Matrix<'m> {
    pub(super) const fn new(meter: &'m Meter<'m>, steps: usize) -> Self {
        Self { steps, names: Vec::new(), values: Rows::new(steps), charge: meter.charge() }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn row(&self, i: usize) -> &[f64] {
        self.values.row(i)
    }

    pub(super) fn row_mut(&mut self, i: usize) -> &mut [f64] {
        self.values.row_mut(i)
    }

    pub(super) fn push_empty(&mut self, name: RowName) -> Result<usize, QueryError> {
        self.charge.add_series(name.labels.as_ref())?;
        self.charge.add(self.steps)?;
        self.names.push(name);
        self.values.push(ABSENT);
        Ok(self.names.len() - 1)
    }

    pub(super) fn push(&mut self, name: RowName, values: &[f64]) -> Result<(), QueryError> {
        let i = self.push_empty(name)?;
        self.row_mut(i).copy_from_slice(values);
        Ok(())
    }

    pub(super) fn push_row(&mut self, row: Row<'_>) -> Result<(), QueryError> {
        let (name, values) = row.into_name();
        self.push(name, values)
    }

    /// Calls `visit` with each row, and frees the visited rows.
    pub(super) fn drain(mut self, mut visit: impl FnMut(RowName, &[f64])) {
        for (i, name) in std::mem::take(&mut self.names).into_iter().enumerate() {
            self.values.free_before(i);
            visit(name, self.values.row(i));
        }
    }

    /// Passes each row with a value to `sink`, and frees the passed rows.
    pub(super) fn emit(mut self, sink: &mut Sink<'_>) -> Result<(), QueryError> {
        let names = std::mem::take(&mut self.names);
        for (i, mut name) in names.into_iter().enumerate() {
            self.charge.meter.check()?;
            self.values.free_before(i);
            let row = self.row_mut(i);
            if row.iter().copied().any(is_present) {
                let drop_name = name.drop_name;
                sink(Row { labels: &mut name.labels, strip: false, drop_name, values: row })?;
            }
        }
        Ok(())
    }
}

/// Rows with distinct labels. Rows with equal labels are merged, if they have no values at the same step.
#[derive(Debug)]
pub(super) struct Merged<'m> {
    pub(super) matrix: Matrix<'m>,
    rows: HashMap<Labels, usize>,
}

pub(super) fn same_labelset() -> QueryError {
    QueryError::Execution("vector cannot contain metrics with the same labelset".into())
}

impl<'m> Merged<'m> {
    pub(super) fn new(meter: &'m Meter<'m>, steps: usize) -> Self {
        Self { matrix: Matrix::new(meter, steps), rows: HashMap::new() }
    }

    pub(super) fn contains(&self, name: &RowName) -> bool {
        self.rows.contains_key(&name.labels)
    }

    pub(super) fn row_of(&mut self, name: &RowName) -> Result<usize, QueryError> {
        if let Some(row) = self.rows.get(&name.labels) {
            return Ok(*row);
        }
        self.matrix.charge.add_series(name.labels.as_ref())?;
        let row = self.matrix.push_empty(name.clone())?;
        self.rows.insert(name.labels.clone(), row);
        Ok(row)
    }

    pub(super) fn set(&mut self, row: usize, step: usize, value: f64) -> Result<(), QueryError> {
        let cell = &mut self.matrix.row_mut(row)[step];
        if is_present(*cell) {
            return Err(same_labelset());
        }
        *cell = value;
        Ok(())
    }

    pub(super) fn add(&mut self, name: &RowName, values: &[f64]) -> Result<(), QueryError> {
        let i = self.row_of(name)?;
        for (cell, value) in self.matrix.row_mut(i).iter_mut().zip(values) {
            if is_present(*value) {
                if !is_absent(*cell) {
                    return Err(same_labelset());
                }
                *cell = *value;
            }
        }
        Ok(())
    }

    pub(super) fn add_row(&mut self, row: Row<'_>) -> Result<(), QueryError> {
        let (name, values) = row.into_name();
        self.add(&name, values)
    }
}
