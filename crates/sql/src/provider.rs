//! The tables of a [`Catalog`] as DataFusion sees them.
//!
//! ```text
//!   TenantCatalog ─▶ Tables (schema `public`) ─▶ TableOf ─▶ ScanOf ─▶ Batches, on a blocking thread
//! ```
//!
//! Columns of text become views: operators then copy 16 bytes for a row, and not its text, however often they repeat it.

use crate::error::SqlError;
use crate::run::{Observer, SCANS_MAX};
use crate::session::{CATALOG, SCHEMA};
use crate::source::{Batches, Catalog, Memory, Select, Source, SourceError, Stop};
use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use model::ErrorKind;
use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

const DAY_US: i64 = 86_400_000_000;

/// Memory of a table's or a column's row in `information_schema`, with the texts of which it consists.
const LISTED_BYTES: usize = 500;

/// Streams that a query may open. `information_schema.columns` would open all that there are, and while one is opened, the loader may
/// have to wait.
const OPENED_MAX: usize = 100;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks on the blocking threads of another runtime.
#[derive(Debug)]
pub(crate) struct Reads {
    handle: Handle,
    permits: Semaphore,
    stop: Stop,
    observer: Arc<dyn Observer>,
    running: Arc<Running>,
    warnings: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Running {
    count: Mutex<usize>,
    ended: Condvar,
}

/// Is held while a blocking thread works.
struct IsRunning(Arc<Running>);

impl IsRunning {
    fn new(running: &Arc<Running>) -> Self {
        *lock(&running.count) += 1;
        Self(Arc::clone(running))
    }
}

impl Drop for IsRunning {
    fn drop(&mut self) {
        *lock(&self.0.count) -= 1;
        self.0.ended.notify_all();
    }
}

impl Reads {
    pub(crate) fn new(handle: Handle, stop: Stop, observer: Arc<dyn Observer>) -> Self {
        let (permits, running) = (Semaphore::new(SCANS_MAX), Arc::default());
        Self { handle, permits, stop, observer, running, warnings: Mutex::default() }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
    ) -> Result<T, SourceError> {
        let bug = |message: String| SourceError::Failed { kind: ErrorKind::Internal, message };
        let _permit = self.permits.acquire().await.map_err(|error| bug(error.to_string()))?;
        let running = IsRunning::new(&self.running);
        let done = self.handle.spawn_blocking(move || {
            let done = work();
            drop(running); // after `work` has dropped what it was given
            done
        });
        done.await.map_err(|error| bug(format!("a scan ended early: {error}")))?
    }

    /// Waits until no thread works for the query.
    pub(crate) fn wait(&self) {
        let mut count = lock(&self.running.count);
        while *count > 0 {
            count = self.running.ended.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).iter().cloned().collect()
    }
}

/// The only catalog.
#[derive(Debug)]
pub(crate) struct TenantCatalog(Arc<Tables>);

impl TenantCatalog {
    pub(crate) fn new(tables: Tables) -> Self {
        Self(Arc::new(tables))
    }
}

impl CatalogProviderList for TenantCatalog {
    fn register_catalog(&self, _: String, _: Arc<dyn CatalogProvider>) -> Option<Arc<dyn CatalogProvider>> {
        None
    }

    fn catalog_names(&self) -> Vec<String> {
        vec![CATALOG.into()]
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        (name == CATALOG).then(|| Arc::new(Self(Arc::clone(&self.0))) as _)
    }
}

impl CatalogProvider for TenantCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.into()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == SCHEMA).then(|| Arc::clone(&self.0) as _)
    }
}

/// The tables that a query has opened.
pub(crate) struct Tables {
    catalog: Arc<dyn Catalog>,
    reads: Arc<Reads>,
    pool: Arc<dyn MemoryPool>,
    memory_bytes: usize,
    /// Empty unless the query asks for names.
    names: Vec<String>,
    /// For the lists of names and columns that the query asks for.
    listed: MemoryReservation,
    /// Plans hold them. A query for the columns of all tables does not.
    open: Mutex<HashMap<String, Weak<TableOf>>>,
    opened: AtomicUsize,
}

impl Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("names", &self.names.len()).finish_non_exhaustive()
    }
}

impl Tables {
    pub(crate) fn new(
        catalog: Arc<dyn Catalog>,
        reads: Arc<Reads>,
        pool: Arc<dyn MemoryPool>,
        memory_bytes: usize,
    ) -> Self {
        let listed = MemoryConsumer::new("a list of columns").register(&pool);
        let (names, open, opened) = (Vec::new(), Mutex::default(), AtomicUsize::new(0));
        Self { catalog, reads, pool, memory_bytes, names, listed, open, opened }
    }

    pub(crate) async fn with_names(self) -> Result<Self, SqlError> {
        let catalog = Arc::clone(&self.catalog);
        let names = self.reads.run(move || catalog.names()).await?;
        let listed = self.listed.try_grow(LISTED_BYTES * names.len());
        listed.map_err(|error| SqlError::of(&error, true))?;
        Ok(Self { names, ..self })
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.names.clone()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let known = lock(&self.open).get(name).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Ok(Some(known));
        }
        if self.opened.fetch_add(1, Ordering::Relaxed) >= OPENED_MAX {
            return Err(SqlError::Statement(format!(
                "a query opens at most {OPENED_MAX} streams, and information_schema.columns and .views \
                 open all; DESCRIBE lists the columns of one"
            ))
            .into());
        }
        let (catalog, wanted) = (Arc::clone(&self.catalog), name.to_owned());
        let memory = Memory(MemoryConsumer::new("a table").register(&self.pool));
        let source = self.reads.run(move || catalog.open(&wanted, memory)).await?;
        let Some(table) = source.map(|source| Arc::new(TableOf::new(source, self))) else { return Ok(None) };
        if !self.names.is_empty() {
            self.listed.try_grow(LISTED_BYTES * table.schema.fields().len())?;
        }
        lock(&self.open).insert(name.into(), Arc::downgrade(&table));
        Ok(Some(table))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        Ok(self.table_exist(name).then_some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

struct TableOf {
    source: Arc<dyn Source>,
    schema: SchemaRef,
    reads: Arc<Reads>,
    /// What a scan may hold.
    scan_bytes: usize,
}

impl Debug for TableOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableOf").field("source", &self.source).finish_non_exhaustive()
    }
}

impl TableOf {
    fn new(source: Arc<dyn Source>, of: &Tables) -> Self {
        let schema =
            Arc::new(Schema::new(source.schema().fields().iter().map(|f| viewed(f)).collect::<Vec<_>>()));
        let scan_bytes = (of.memory_bytes / 8).clamp(256 << 10, 8 << 20);
        Self { source, schema, reads: Arc::clone(&of.reads), scan_bytes }
    }

    /// The times that filters allow, in microseconds.
    fn range(&self, filters: &[Expr]) -> [i64; 2] {
        filters
            .iter()
            .filter_map(|filter| self.range_of(filter))
            .fold([i64::MIN, i64::MAX], |[from, to], [f, t]| [from.max(f), to.min(t)])
    }

    /// The times that a filter allows. `None` if it says nothing of them.
    fn range_of(&self, filter: &Expr) -> Option<[i64; 2]> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
        match (op, literal(left), literal(right)) {
            (Operator::And, ..) => match (self.range_of(left), self.range_of(right)) {
                (Some(a), Some(b)) => Some([a[0].max(b[0]), a[1].min(b[1])]),
                (a, b) => a.or(b),
            },
            (op, None, Some(value)) => self.compared(left, *op, value),
            (op, Some(value), None) => self.compared(right, op.swap()?, value),
            _ => None,
        }
    }

    fn compared(&self, column: &Expr, op: Operator, value: &ScalarValue) -> Option<[i64; 2]> {
        let Expr::Column(column) = uncast(column) else { return None };
        let times = self.source.times();
        let name = Some(column.name.as_str());
        // the first and the last microsecond that equal the value in its unit
        let [first, last] = match *value {
            ScalarValue::Date32(Some(day)) if name == times.date || name == times.time => {
                let first = i64::from(day).checked_mul(DAY_US)?;
                [first, if name == times.date { first.saturating_add(DAY_US - 1) } else { first }]
            }
            // a literal has these units only if the column is cast to them
            ScalarValue::TimestampSecond(Some(s), _) if name == times.time => {
                let first = s.checked_mul(1_000_000)?;
                [first, first.saturating_add(999_999)]
            }
            ScalarValue::TimestampMillisecond(Some(ms), _) if name == times.time => {
                let first = ms.checked_mul(1000)?;
                [first, first.saturating_add(999)]
            }
            ScalarValue::TimestampMicrosecond(Some(us), _) if name == times.time => [us; 2],
            ScalarValue::TimestampNanosecond(Some(ns), _) if name == times.time => {
                let first = ns.div_euclid(1000);
                [first, first + 1]
            }
            _ => return None,
        };
        match op {
            Operator::Eq => Some([first, last]),
            Operator::Lt | Operator::LtEq => Some([i64::MIN, last]),
            Operator::Gt | Operator::GtEq => Some([first, i64::MAX]),
            _ => None,
        }
    }
}

/// The value of a constant.
fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// The column behind a cast to another unit or zone of time, which keeps the moment but for what the unit cannot tell. Casts to a
/// day or to text are no such casts.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Timestamp(..)) => &cast.expr,
        other => other,
    }
}

#[async_trait]
impl TableProvider for TableOf {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let of = |filter: &&Expr| match self.range_of(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(of).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        let scan = ScanOf {
            source: Arc::clone(&self.source),
            schema: Arc::clone(&schema),
            reads: Arc::clone(&self.reads),
            range_us: self.range(filters),
            window_bytes: self.scan_bytes,
        };
        let limit = if filters.is_empty() { limit } else { None };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(scan)], None, [], false, limit)?))
    }
}

#[derive(Debug)]
struct ScanOf {
    source: Arc<dyn Source>,
    schema: SchemaRef,
    reads: Arc<Reads>,
    range_us: [i64; 2],
    window_bytes: usize,
}

/// A scan while it goes on.
struct Open {
    state: Option<State>,
    reads: Arc<Reads>,
    schema: SchemaRef,
    window_bytes: usize,
    memory: MemoryReservation,
}

enum State {
    New(Arc<dyn Source>, Select),
    Begun(Box<dyn Batches>),
}

impl PartitionStream for ScanOf {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let memory = MemoryConsumer::new("a scan").register(context.memory_pool());
        let select = Select {
            columns: self.schema.fields().iter().map(|field| field.name().clone()).collect(),
            range_us: self.range_us,
            window_bytes: self.window_bytes,
            memory: Arc::new(Memory(memory.new_empty())),
            stop: self.reads.stop.clone(),
        };
        let open = Open {
            state: Some(State::New(Arc::clone(&self.source), select)),
            reads: Arc::clone(&self.reads),
            schema: Arc::clone(&self.schema),
            window_bytes: self.window_bytes,
            memory,
        };
        let batches = futures::stream::try_unfold(open, Open::next);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

impl Open {
    /// Reads the next batch. The memory for reading it and for the batch is reserved before.
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        self.memory.try_resize(2 * self.window_bytes)?;
        let (state, schema) = (self.state.take(), Arc::clone(&self.schema));
        let read = move || {
            let mut batches = match state {
                Some(State::Begun(batches)) => batches,
                Some(State::New(source, select)) => source.scan(select)?,
                None => return Err(SourceError::Stopped),
            };
            let next = batches.next()?.map(|batch| view(&batch, &schema)).transpose();
            let next = next.map_err(|error| SourceError::Failed {
                kind: ErrorKind::Internal,
                message: format!("a batch differs from its table: {error}"),
            })?;
            Ok((batches, next))
        };
        let (batches, next) = self.reads.run(read).await?;
        let Some(batch) = next else {
            lock(&self.reads.warnings).extend(batches.warnings());
            return Ok(None);
        };
        self.reads.observer.read(batch.num_rows());
        self.memory.try_resize(self.window_bytes + batch.get_array_memory_size())?;
        self.state = Some(State::Begun(batches));
        Ok(Some((batch, self)))
    }
}

/// The type of a column's values as operators see them.
fn viewed(field: &Field) -> Field {
    let data_type = match field.data_type() {
        DataType::Utf8 => DataType::Utf8View,
        DataType::Binary => DataType::BinaryView,
        other => other.clone(),
    };
    Field::new(field.name(), data_type, field.is_nullable())
}

/// Converts a batch of a source to the schema of its table.
fn view(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &Field| -> Result<ArrayRef> {
        match batch.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
            Some(column) => Ok(cast(column, field.data_type())?),
            None => exec_err!("column {} is missing", field.name()),
        }
    };
    let columns = schema.fields().iter().map(|field| column(field)).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
