//! Runs one statement on the calling thread, from its text to the last row of its answer.
//!
//! DataFusion's tasks run on the calling thread, too, in a runtime of their own. Only scans, which block, run on the blocking
//! threads of another runtime, at most [`SCANS_MAX`] at a time for a query. When a run ends, all its scans have ended.

use crate::answer::Answer;
use crate::error::SqlError;
use crate::functions::Constants;
use crate::memory::Pool;
use crate::provider::Reads;
use crate::source::{Catalog, Stop};
use crate::{literals, plan, prepare, session, text};
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SQLOptions;
use datafusion::sql::parser::Statement;
use futures::StreamExt;
use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;

pub(crate) const SCANS_MAX: usize = 2;

/// A thread that runs statements needs a stack of this size. Planning is recursive, and [`text`] limits its depth.
pub const STACK_BYTES: usize = 8 << 20;

/// While a query waits, it looks this often whether it is canceled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Says whether a query should end. It is asked often, also by threads that scan.
pub trait Interrupt: Debug + Send + Sync {
    fn is_set(&self) -> bool;
}

/// Is told what a query does, also by threads that scan.
pub trait Observer: Debug + Send + Sync {
    /// Bytes that the query holds now.
    fn holds(&self, bytes: usize);

    /// The query has read rows.
    fn read(&self, rows: usize);
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Memory of the query, without its answer.
    pub memory_bytes: usize,
}

/// What a statement runs with.
#[derive(Debug)]
pub struct Runner {
    pub catalog: Arc<dyn Catalog>,
    pub limits: Limits,
    /// The value of `now()`.
    pub now_ms: i64,
    /// Scans run on the blocking threads of this runtime.
    pub blocking: Handle,
    pub interrupt: Arc<dyn Interrupt>,
    pub observer: Arc<dyn Observer>,
}

/// What the rows do not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// What could not be read and is missing in the answer.
    pub warnings: Vec<String>,
}

/// Ends the scans of a query, also if it panics.
struct Ending<'a> {
    stop: &'a Stop,
    reads: &'a Reads,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.stop.set();
        self.reads.wait();
    }
}

impl Runner {
    /// Runs a statement. The thread must have a stack of [`STACK_BYTES`], and must not be one of an async runtime.
    pub fn run(&self, text: &str, answer: &mut Answer<'_>) -> Result<Done, SqlError> {
        let statement = text::parse(text)?;
        let stop = Stop::default();
        let reads = Arc::new(Reads::new(self.blocking.clone(), stop.clone(), Arc::clone(&self.observer)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .event_interval(4) // timers are looked at after so many steps of tasks, of which each may take milliseconds
            .build()
            .map_err(|error| SqlError::Bug(format!("cannot make a runtime: {error}")))?;
        let ending = Ending { stop: &stop, reads: &reads };
        let result = runtime.block_on(async {
            let work = pin!(self.work(statement, &reads, answer));
            self.until_canceled(work).await
        });
        drop(runtime); // drops tasks that are left
        drop(ending);
        result.map(|()| Done { warnings: reads.warnings() })
    }

    /// Polls `work` until it ends or the query is canceled.
    async fn until_canceled(
        &self,
        mut work: std::pin::Pin<&mut impl Future<Output = Result<(), SqlError>>>,
    ) -> Result<(), SqlError> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        poll_fn(|context| {
            if self.interrupt.is_set() {
                return Poll::Ready(Err(SqlError::Canceled));
            }
            while look.poll_tick(context).is_ready() {}
            work.as_mut().poll(context)
        })
        .await
    }

    async fn work(
        &self,
        statement: Statement,
        reads: &Arc<Reads>,
        answer: &mut Answer<'_>,
    ) -> Result<(), SqlError> {
        let pool =
            Pool::new(self.limits.memory_bytes, Arc::clone(&self.observer), Arc::clone(&self.interrupt));
        let pool = Arc::new(pool);
        let constants = Constants::within(&(Arc::clone(&pool) as _));
        let needs_names = session::needs_names(&statement);
        let state = session::state(self, pool, reads, &constants, needs_names).await?;
        let planned = async {
            let physical = plan(&state, statement).await?;
            prepare::prepare(physical, self.limits.memory_bytes, &self.interrupt)
        };
        let (physical, batch_rows) = planned.await.map_err(|error| SqlError::of(&error, true))?;
        constants.end_planning();
        let context = TaskContext::from(&state);
        let config = context.session_config().clone().with_batch_size(batch_rows);
        rows(physical, Arc::new(context.with_session_config(config)), answer).await
    }
}

async fn plan(state: &SessionState, statement: Statement) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let plan = state.statement_to_plan(statement).await?;
    let read_only =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(&plan)?;
    plan::check_size(&plan)?;
    let plan = state.optimize(&literals::share(plan)?)?;
    plan::check_expressions(&plan)?;
    state.query_planner().create_physical_plan(&plan, state).await
}

async fn rows(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    answer: &mut Answer<'_>,
) -> Result<(), SqlError> {
    let failed = |error| SqlError::of(&error, false);
    let pool = Arc::clone(context.memory_pool());
    let mut batches = execute_stream(plan, context).map_err(failed)?;
    answer.begin(&batches.schema(), &pool)?;
    while let Some(batch) = batches.next().await {
        answer.batch(&batch.map_err(failed)?)?;
    }
    answer.end()
}
