//! Thread pool for work on tenants' tables.
//!
//! A round of sealing opens, checks and commits the tables of all its tenants. Each step mostly waits for a disk's sync
//! or a store's answer, so jobs of different tables run in parallel. One slow table must not delay the others: a job
//! that takes too long is reported as [`Overdue`] and continues in the background. No other job of its tenant begins
//! before it has ended.

use super::error::{Overdue, SealError};
use crate::threads::run_or_abort;
use model::TenantId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use stdx::clock::Clock;

/// Limit on concurrent jobs, including overdue jobs: the number of threads for local files.
const JOBS_MAX: usize = 16;

/// Interval at which overdue jobs and a stopping node are noticed.
const POLL: Duration = Duration::from_millis(20);

/// Work on one tenant's table. A job may outlive the round that began it.
pub(super) type Job<R> = Box<dyn FnOnce() -> R + Send>;

/// A tenant whose job has ended or is overdue, and the job's result.
pub(super) type Ended<R> = (TenantId, Result<R, Overdue>);

/// A pool of threads. Without threads, jobs run one after the other on the calling thread.
#[derive(Debug)]
pub(crate) struct Workers {
    clock: Arc<dyn Clock>,
    threads: Option<Threads>,
}

#[derive(Debug)]
struct Threads {
    jobs: Sender<Job<()>>,
    queue: Arc<Mutex<Receiver<Job<()>>>>,
    /// Number of threads started so far, which is the peak number of concurrent jobs.
    started: usize,
    /// Tenants that have a job.
    busy: Arc<Mutex<BTreeSet<TenantId>>>,
}

impl Workers {
    /// Workers with threads, which are started on demand and end when the pool is dropped.
    pub(crate) fn on_threads(clock: Arc<dyn Clock>) -> Self {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        Self { clock, threads: Some(Threads { jobs, queue, started: 0, busy: Arc::default() }) }
    }

    /// Workers without threads: each run does the same jobs in the same order.
    pub(crate) const fn here(clock: Arc<dyn Clock>) -> Self {
        Self { clock, threads: None }
    }

    /// True while a job of the tenant runs, because a commit of the tenant may still arrive.
    pub(super) fn is_busy(&self, tenant: &TenantId) -> bool {
        self.threads.as_ref().is_some_and(|threads| threads.busy.lock().contains(tenant))
    }
}

impl Threads {
    /// Starts another thread if there are more jobs than threads.
    fn grow(&mut self, jobs: usize) -> std::io::Result<()> {
        if jobs <= self.started {
            return Ok(());
        }
        let (name, queue) = (format!("seal-{}", self.started), Arc::clone(&self.queue));
        let run = move || {
            // like the sealer: ingest and queries come first
            let _ = rustix::process::nice(5);
            loop {
                // the lock is held while an idle thread waits for a job, never while a job runs
                let job = queue.lock().recv();
                match job {
                    Ok(job) => job(),
                    Err(_) => return,
                }
            }
        };
        std::thread::Builder::new().name(name.clone()).spawn(move || run_or_abort(&name, run))?;
        self.started += 1;
        Ok(())
    }
}

/// One job for each of some tenants.
#[derive(Debug)]
pub(super) struct Batch<R> {
    todo: VecDeque<TenantId>,
    /// Jobs in progress that are not overdue, each with its start.
    running: BTreeMap<TenantId, Instant>,
    patience: Duration,
    send: Sender<(TenantId, R)>,
    ended: Receiver<(TenantId, R)>,
}

impl<R: Send + 'static> Batch<R> {
    /// A job that takes longer than `patience` is overdue.
    pub(super) fn new(tenants: impl IntoIterator<Item = TenantId>, patience: Duration) -> Self {
        let (send, ended) = channel();
        let todo = tenants.into_iter().collect();
        Self { todo, running: BTreeMap::new(), patience, send, ended }
    }

    /// Starts jobs up to the limit, and waits until a job ends or is overdue. Returns `None` if no job is left.
    pub(super) fn next(
        &mut self,
        workers: &mut Workers,
        stopping: &AtomicBool,
        mut job: impl FnMut(&TenantId) -> Job<R>,
    ) -> Result<Option<Ended<R>>, SealError> {
        loop {
            if stopping.load(Ordering::Relaxed) {
                return Err(SealError::Stopping);
            }
            let Workers { clock, threads } = workers;
            let Some(threads) = threads else {
                return Ok(self.todo.pop_front().map(|tenant| {
                    let result = job(&tenant)();
                    (tenant, Ok(result))
                }));
            };
            if let Some(tenant) = self.begin(threads, &**clock, &mut job)? {
                return Ok(Some((tenant, Err(Overdue(self.patience)))));
            }
            if self.running.is_empty() && self.todo.is_empty() {
                return Ok(None);
            }
            if let Ok((tenant, result)) = self.ended.recv_timeout(POLL) {
                // the result of an overdue job is dropped
                match self.running.remove(&tenant) {
                    Some(_) => return Ok(Some((tenant, Ok(result)))),
                    None => continue,
                }
            }
            let now = clock.instant();
            let is_overdue = |began: &Instant| now.saturating_duration_since(*began) >= self.patience;
            let overdue =
                self.running.iter().find(|(_, began)| is_overdue(began)).map(|(tenant, _)| tenant.clone());
            if let Some(tenant) = overdue {
                self.running.remove(&tenant);
                return Ok(Some((tenant, Err(Overdue(self.patience)))));
            }
        }
    }

    /// Begins jobs up to the limit. If a tenant's previous job has not ended yet, returns that tenant instead.
    fn begin(
        &mut self,
        threads: &mut Threads,
        clock: &dyn Clock,
        job: &mut impl FnMut(&TenantId) -> Job<R>,
    ) -> Result<Option<TenantId>, SealError> {
        while let Some(tenant) = self.todo.front() {
            let jobs = {
                let mut busy = threads.busy.lock();
                if busy.contains(tenant) {
                    drop(busy);
                    return Ok(self.todo.pop_front());
                }
                if busy.len() >= JOBS_MAX {
                    return Ok(None);
                }
                busy.insert(tenant.clone());
                busy.len()
            };
            let tenant = self.todo.pop_front().expect("BUG: the list of tenants is empty");
            let claim = Claim { busy: Arc::clone(&threads.busy), tenant: tenant.clone() };
            threads.grow(jobs).map_err(SealError::Thread)?;
            let (send, job, of) = (self.send.clone(), job(&tenant), tenant.clone());
            let job: Job<()> = Box::new(move || {
                let result = job();
                // drop the claim before the result is sent, so that the receiver can start the tenant's next job
                drop(claim);
                let _ = send.send((of, result)); // the batch may be gone
            });
            self.running.insert(tenant, clock.instant());
            threads.jobs.send(job).expect("BUG: the queue of jobs is closed");
        }
        Ok(None)
    }
}

/// Marks a tenant as busy until its job ends.
#[derive(Debug)]
struct Claim {
    busy: Arc<Mutex<BTreeSet<TenantId>>>,
    tenant: TenantId,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.tenant);
    }
}

#[cfg(test)]
mod tests;
