//! DataFusion's settings, and what of it is left out.
//!
//! A session has the tables of one tenant. It has no formats of files, no object stores, no temporary files, and no statements
//! that write.

use crate::error::SqlError;
use crate::functions::{self, Constants};
use crate::memory::Pool;
use crate::prepare::BATCH_ROWS;
use crate::provider::{Reads, Tables, TenantCatalog};
use crate::run::{Interrupt, Runner};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::arrow::temporal_conversions::timestamp_ms_to_datetime;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, plan_err};
use datafusion::execution::SessionStateDefaults;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{DataType as SqlType, Statement as Ast};
use std::sync::Arc;

pub(crate) const CATALOG: &str = "floodmark";
pub(crate) const SCHEMA: &str = "public";

fn config(memory_bytes: usize) -> SessionConfig {
    // one partition, because a query has one thread
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(BATCH_ROWS)
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_information_schema(true);
    let options = config.options_mut();
    options.execution.planning_concurrency = 1;
    options.execution.enforce_batch_size_in_joins = true;
    options.execution.time_zone = Some("UTC".into());
    // memory that a sort keeps free for merging what it has written to disk, which it may not
    options.execution.sort_spill_reservation_bytes = 0;
    options.execution.sort_in_place_threshold_bytes = memory_bytes / 8;
    options.execution.sort_pushdown_buffer_capacity = memory_bytes / 8;
    options.sql_parser.collect_spans = true;
    // it allocates as much as LIMIT says
    options.optimizer.enable_topk_aggregation = false;
    config
}

/// True if a statement asks which tables there are.
pub(crate) fn needs_names(statement: &Statement) -> bool {
    fn is_show(statement: &Ast) -> bool {
        match statement {
            Ast::ShowTables { .. } => true,
            Ast::Explain { statement, .. } => is_show(statement),
            _ => false,
        }
    }
    match statement {
        Statement::Statement(statement) if is_show(statement) => true,
        Statement::Explain(explain) => needs_names(&explain.statement),
        // an unneeded list is only slow
        other => other.to_string().to_lowercase().contains("information_schema"),
    }
}

/// Ends planning between two rules of the optimizer.
#[derive(Debug)]
struct Ask(Arc<dyn Interrupt>);

impl OptimizerRule for Ask {
    fn name(&self) -> &'static str {
        "ask"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match self.0.is_set() {
            true => Err(SqlError::Canceled.into()),
            false => Ok(Transformed::no(plan)),
        }
    }
}

/// Refuses types whose values are copied for each row that has them.
#[derive(Debug)]
struct PlainTypes;

impl TypePlanner for PlainTypes {
    fn plan_type_field(&self, of: &SqlType) -> Result<Option<FieldRef>> {
        match of {
            SqlType::Array(_) | SqlType::Struct(..) | SqlType::Map(..) | SqlType::Bytea => {
                plan_err!("the type {of} is not supported")
            }
            _ => Ok(None),
        }
    }
}

pub(crate) async fn state(
    runner: &Runner,
    pool: Arc<Pool>,
    reads: &Arc<Reads>,
    constants: &Arc<Constants>,
    needs_names: bool,
) -> Result<SessionState, SqlError> {
    let (memory_bytes, pool): (_, Arc<dyn MemoryPool>) = (runner.limits.memory_bytes, pool);
    let tables = Tables::new(Arc::clone(&runner.catalog), Arc::clone(reads), Arc::clone(&pool), memory_bytes);
    let tables = if needs_names { tables.with_names().await? } else { tables };
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::clone(&pool))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .build_arc()
        .map_err(|error| SqlError::of(&error, true))?;
    // the only store of a new runtime; nothing here names files, but what is not there cannot be read
    let _ = runtime.deregister_object_store(ObjectStoreUrl::local_filesystem().as_ref());
    let mut props = ExecutionProps::new();
    if let Some(now) = timestamp_ms_to_datetime(runner.now_ms) {
        props = props.with_query_execution_start_time(now.and_utc());
    }
    let table_functions = SessionStateDefaults::default_table_functions().into_iter();
    let ask = Arc::new(Ask(Arc::clone(&runner.interrupt)));
    let rules = Optimizer::new().rules.into_iter().flat_map(|rule| [Arc::clone(&ask) as _, rule]);
    Ok(SessionStateBuilder::new()
        .with_config(config(memory_bytes))
        .with_runtime_env(runtime)
        .with_execution_props(props)
        .with_catalog_list(Arc::new(TenantCatalog::new(tables)))
        .with_optimizer_rules(rules.collect())
        .with_expr_planners(functions::planners(constants))
        .with_type_planner(Arc::new(PlainTypes))
        .with_scalar_functions(functions::scalars(constants))
        .with_aggregate_functions(functions::aggregates())
        .with_table_functions(table_functions.map(|f| (f.name().to_owned(), f)).collect())
        .build())
}
