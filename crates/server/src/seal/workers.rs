//! Thread pool for work on tenants' tables.
//!
//! Jobs mostly wait for a disk or a store, so tables are processed in parallel. A job that takes too long is reported
//! as [`Overdue`] and continues in the background. A tenant has one job at a time.

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

/// Limit on the number of jobs at the same time. It includes jobs that took too long and still go on.
const JOBS_MAX: usize = 16;

/// While waiting for jobs, checks this often for overdue jobs and for shutdown.
const POLL: Duration = Duration::from_millis(20);

/// Work on one tenant's table. It may still go on after its round has ended.
pub(super) type Job<R> = Box<dyn FnOnce() -> R + Send>;

pub(super) type Ended<R> = (TenantId, Result<R, Overdue>);

/// A pool of threads. Without threads, the calling thread runs all jobs.
#[derive(Debug)]
pub(crate) struct Workers {
    clock: Arc<dyn Clock>,
    threads: Option<Threads>,
}

#[derive(Debug)]
struct Threads {
    jobs: Sender<Job<()>>,
    queue: Arc<Mutex<Receiver<Job<()>>>>,
    started: usize,
    busy: Arc<Mutex<BTreeSet<TenantId>>>,
}

impl Workers {
    /// Workers that run jobs on threads. These start when they are first needed, and end with the pool.
    pub(crate) fn on_threads(clock: Arc<dyn Clock>) -> Self {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        Self { clock, threads: Some(Threads { jobs, queue, started: 0, busy: Arc::default() }) }
    }

    /// Workers that run each job on the calling thread, so that runs are deterministic.
    pub(crate) const fn here(clock: Arc<dyn Clock>) -> Self {
        Self { clock, threads: None }
    }

    /// True while a job of the tenant runs, even if it is overdue: it may still commit.
    pub(super) fn is_busy(&self, tenant: &TenantId) -> bool {
        self.threads.as_ref().is_some_and(|threads| threads.busy.lock().contains(tenant))
    }
}

impl Threads {
    fn grow(&mut self, jobs: usize) -> std::io::Result<()> {
        if jobs <= self.started {
            return Ok(());
        }
        let (name, queue) = (format!("seal-{}", self.started), Arc::clone(&self.queue));
        let run = move || {
            // requests are more urgent than sealing
            let _ = rustix::process::nice(5);
            loop {
                // idle threads wait with the lock held; jobs run without the lock
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

/// Jobs that are done together, one for each tenant.
#[derive(Debug)]
pub(super) struct Batch<R> {
    todo: VecDeque<TenantId>,
    /// Jobs that run and are not overdue, with the time when they started.
    running: BTreeMap<TenantId, Instant>,
    patience: Duration,
    send: Sender<(TenantId, R)>,
    ended: Receiver<(TenantId, R)>,
}

impl<R: Send + 'static> Batch<R> {
    pub(super) fn new(tenants: impl IntoIterator<Item = TenantId>, patience: Duration) -> Self {
        let (send, ended) = channel();
        let todo = tenants.into_iter().collect();
        Self { todo, running: BTreeMap::new(), patience, send, ended }
    }

    /// Starts as many jobs as may run, and waits until one of them ends or is overdue. Returns `None` once every job
    /// has ended or was reported as overdue.
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
                // nobody waits for the result of an overdue job
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

    /// Starts as many jobs as may run. If a tenant's previous job still runs, returns this tenant, whose new job
    /// cannot start.
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
                // release the tenant before its result is sent, so that its next job can start
                drop(claim);
                let _ = send.send((of, result)); // the batch may be gone
            });
            self.running.insert(tenant, clock.instant());
            threads.jobs.send(job).expect("BUG: the queue of jobs is closed");
        }
        Ok(None)
    }
}

/// While it exists, the tenant is busy and no other job can start for it.
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
