//! Changes a physical plan so that it keeps within its memory and can be canceled.
//!
//! - Operators pass on some thousand rows together, and what they compute of them is not reserved. So a batch has fewer rows if the
//!   widest operator has many columns.
//! - Sorts, groups and aggregates copy texts before they reserve memory. Views of one long text may be thousands of times as large
//!   when they are copied. So their input is divided, and what a part copies is reserved before.
//! - Filters and joins go on within one step while no row passes. So their conditions ask whether the query is canceled, and
//!   joins give way after some batches.

use crate::answer::slices;
use crate::error::SqlError;
use crate::plan::COLUMNS_MAX;
use crate::run::Interrupt;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::{PhysicalExpr, expressions};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec,
};
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Rows that operators pass on together, if they have few columns.
pub(crate) const BATCH_ROWS: usize = 8192;

/// With fewer rows in a batch, a query would take too long.
const BATCH_ROWS_MIN: usize = 8;

/// The widest batch takes at most this part of a query's memory. Several operators have one at the same time, some of them twice.
const BATCH_PART: usize = 32;

/// Texts of a batch that may be copied at once, unless one row has more.
const COPIED_BYTES: usize = 1 << 20;

/// Copies that take less need no reservation.
const SMALL_BYTES: usize = 64 << 10;

/// Returns the changed plan, and the number of rows that its operators should pass on together.
pub(crate) fn prepare(
    plan: Arc<dyn ExecutionPlan>,
    memory_bytes: usize,
    interrupt: &Arc<dyn Interrupt>,
) -> Result<(Arc<dyn ExecutionPlan>, usize)> {
    let mut widest = 1;
    plan.apply(|plan| {
        let columns = plan.schema().fields().len();
        if columns > COLUMNS_MAX {
            return Err(SqlError::Statement(format!(
                "an operator has {columns} columns; the limit is {COLUMNS_MAX}: select fewer columns"
            ))
            .into());
        }
        widest = widest.max(row_width(&plan.schema()));
        Ok(TreeNodeRecursion::Continue)
    })?;
    let rows = (memory_bytes / BATCH_PART / widest).min(BATCH_ROWS);
    if rows < BATCH_ROWS_MIN {
        return Err(SqlError::Memory(format!("a row of an operator takes {widest} bytes")).into());
    }
    let prepared = plan.transform_up(|plan| Ok(Transformed::yes(changed(plan, rows, interrupt)?)))?;
    Ok((prepared.data, rows))
}

/// Bytes of a row's columns, without what views point to.
fn row_width(schema: &Schema) -> usize {
    let widths = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Null | DataType::Boolean => 1,
        data_type => data_type.primitive_width().unwrap_or(16),
    });
    widths.sum()
}

fn changed(
    plan: Arc<dyn ExecutionPlan>,
    rows: usize,
    interrupt: &Arc<dyn Interrupt>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.children().is_empty() {
        return Ok(Arc::new(Prepared(plan, How::Slice(rows))));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let predicate = Asking::around(filter.predicate(), interrupt);
        return Ok(Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate).build()?));
    }
    let asking = |filter: Option<&JoinFilter>| filter.map(|filter| asking_filter(filter, interrupt));
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let filter = match join.join_type() {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => None,
            // it tests all pairs of a key in one step, and passes on only a few
            _ => Some(JoinFilter::new(expressions::lit(true), Vec::new(), Arc::new(Schema::empty()))),
        };
        let filter = asking(join.filter().or(filter.as_ref()));
        let join = HashJoinExecBuilder::from(join).with_filter(filter).build()?;
        return Ok(Arc::new(CooperativeExec::new(Arc::new(join))));
    }
    if plan.is::<CrossJoinExec>() || plan.is::<NestedLoopJoinExec>() {
        return Err(SqlError::Statement(
            "joins without an equality are not supported, because each pair of rows would be tested: join with ON a.x = b.y".into(),
        )
        .into());
    }
    // other settings would make other joins, and no statement has windows
    if plan.name().contains("Join") || plan.name().contains("Window") {
        return internal_err!("{} is not prepared", plan.name());
    }
    let keys = copied(&plan)?;
    if keys.is_empty() {
        return Ok(plan);
    }
    let divided = |child: &Arc<dyn ExecutionPlan>| {
        Arc::new(Prepared(Arc::clone(child), How::Divide(Arc::clone(&keys)))) as _
    };
    let children = plan.children().into_iter().map(divided).collect();
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

fn asking_filter(filter: &JoinFilter, interrupt: &Arc<dyn Interrupt>) -> JoinFilter {
    let expression = Asking::around(filter.expression(), interrupt);
    JoinFilter::new(expression, filter.column_indices().to_vec(), Arc::clone(filter.schema()))
}

type Keys = Arc<[Arc<dyn PhysicalExpr>]>;

/// The expressions of a plan whose texts it copies.
fn copied(plan: &Arc<dyn ExecutionPlan>) -> Result<Keys> {
    let keys: Vec<_> = if let Some(sort) = plan.downcast_ref::<SortExec>() {
        sort.expr().iter().map(|key| Arc::clone(&key.expr)).collect()
    } else if let Some(sort) = plan.downcast_ref::<PartialSortExec>() {
        sort.expr().iter().map(|key| Arc::clone(&key.expr)).collect()
    } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr().expr().iter().map(|(key, _)| Arc::clone(key));
        let arguments = aggregate.aggr_expr().iter().flat_map(|of| {
            let of = of.all_expressions();
            of.args.into_iter().chain(of.order_by_exprs)
        });
        groups.chain(arguments).collect()
    } else {
        Vec::new()
    };
    let schemas: Vec<_> = plan.children().iter().map(|child| child.schema()).collect();
    let Some(schema) = schemas.first() else { return Ok(Keys::from([])) };
    let mut texts = Vec::new();
    for key in keys {
        use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
        if matches!(key.data_type(schema)?, Utf8 | Utf8View | LargeUtf8 | Binary | BinaryView | LargeBinary) {
            texts.push(key);
        }
    }
    Ok(texts.into())
}

/// Asks whether the query is canceled before it evaluates a condition.
#[derive(Debug)]
struct Asking {
    inner: Arc<dyn PhysicalExpr>,
    interrupt: Arc<dyn Interrupt>,
}

impl Asking {
    fn around(inner: &Arc<dyn PhysicalExpr>, interrupt: &Arc<dyn Interrupt>) -> Arc<dyn PhysicalExpr> {
        Arc::new(Self { inner: Arc::clone(inner), interrupt: Arc::clone(interrupt) })
    }
}

impl PartialEq for Asking {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Asking {}

impl Hash for Asking {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for Asking {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match self.interrupt.is_set() {
            true => Err(SqlError::Canceled.into()),
            false => self.inner.evaluate(batch),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(child), true) => Ok(Self::around(&child, &self.interrupt)),
            _ => internal_err!("a condition has one child"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

#[derive(Debug, Clone)]
enum How {
    /// Into batches of at most so many rows.
    Slice(usize),
    /// By the texts that these expressions copy.
    Divide(Keys),
}

/// Divides the batches of another plan.
#[derive(Debug)]
struct Prepared(Arc<dyn ExecutionPlan>, How);

impl DisplayAs for Prepared {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prepared: {:?}", self.1)
    }
}

impl ExecutionPlan for Prepared {
    fn name(&self) -> &'static str {
        "Prepared"
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.0]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(child), true) => Ok(Arc::new(Self(child, self.1.clone()))),
            _ => internal_err!("Prepared has one child"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let batches = self.0.execute(partition, Arc::clone(&context))?;
        Ok(match self.1.clone() {
            How::Slice(most) => {
                let sliced = move |batch: RecordBatch| {
                    let rows = batch.num_rows();
                    let slice = move |from| Ok(batch.slice(from, most.min(rows - from)));
                    stream::iter((0..rows).step_by(most).map(slice))
                };
                let batches = batches.map_ok(sliced).try_flatten();
                Box::pin(RecordBatchStreamAdapter::new(schema, batches))
            }
            How::Divide(keys) => {
                let memory = Arc::new(MemoryConsumer::new("a copy of texts").register(context.memory_pool()));
                let divided = move |batch: Result<RecordBatch>| divide(&batch?, &keys, &memory);
                Box::pin(RecordBatchStreamAdapter::new(schema, batches.map(divided).try_flatten()))
            }
        })
    }
}

/// Divides a batch if the texts of some expressions would be large when they are copied. The memory for the copies of a part is
/// reserved until the next part is wanted, when the operator has reserved its own.
fn divide(
    batch: &RecordBatch,
    keys: &Keys,
    memory: &Arc<MemoryReservation>,
) -> Result<impl futures::Stream<Item = Result<RecordBatch>> + use<>> {
    let mut sizes = vec![0; batch.num_rows()];
    for key in keys.iter() {
        add(&mut sizes, &key.evaluate(batch)?);
    }
    let (batch, memory) = (batch.clone(), Arc::clone(memory));
    let parts: Vec<_> = slices(&sizes, COPIED_BYTES).collect();
    Ok(stream::iter(parts.into_iter().map(move |rows| {
        let bytes = sizes[rows.clone()].iter().sum::<usize>();
        memory.try_resize(if bytes > SMALL_BYTES { bytes } else { 0 })?;
        Ok(batch.slice(rows.start, rows.len()))
    })))
}

/// Adds the lengths of texts.
fn add(sizes: &mut [usize], texts: &ColumnarValue) {
    let array = match texts {
        ColumnarValue::Array(array) => array,
        ColumnarValue::Scalar(value) => {
            let bytes = value.size();
            return sizes.iter_mut().for_each(|size| *size += bytes);
        }
    };
    lengths(array).into_iter().zip(sizes).for_each(|(bytes, size)| *size += bytes);
}

/// How long texts are when they are written out.
pub(crate) fn lengths(array: &ArrayRef) -> Vec<usize> {
    let of = |lengths: &mut dyn Iterator<Item = usize>| lengths.collect();
    match array.data_type() {
        DataType::Utf8View => of(&mut array.as_string_view().lengths().map(|n| n as usize)),
        DataType::BinaryView => of(&mut array.as_binary_view().lengths().map(|n| n as usize)),
        DataType::Utf8 => of(&mut array.as_string::<i32>().offsets().lengths()),
        DataType::LargeUtf8 => of(&mut array.as_string::<i64>().offsets().lengths()),
        DataType::Binary => of(&mut array.as_binary::<i32>().offsets().lengths()),
        DataType::LargeBinary => of(&mut array.as_binary::<i64>().offsets().lengths()),
        _ => Vec::new(),
    }
}
