use super::*;
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use stdx::clock::{ManualClock, SystemClock};

const MINUTE: Duration = Duration::from_secs(60);

fn tenants(count: usize) -> Vec<TenantId> {
    (0..count).map(|n| TenantId::parse(&format!("t{n:02}")).unwrap()).collect()
}

fn next<R: Send + 'static>(
    batch: &mut Batch<R>,
    workers: &mut Workers,
    job: impl FnMut(&TenantId) -> Job<R>,
) -> Option<Ended<R>> {
    batch.next(workers, &AtomicBool::new(false), job).unwrap()
}

#[test]
fn as_many_jobs_run_side_by_side_as_may() {
    let mut workers = Workers::on_threads(Arc::new(SystemClock));
    // each job ends only when all other jobs of its group have started
    let together = Arc::new(Barrier::new(JOBS_MAX));
    let all = tenants(3 * JOBS_MAX);
    let mut batch = Batch::new(all.clone(), MINUTE);
    let mut ended = BTreeSet::new();
    while let Some((tenant, done)) = next(&mut batch, &mut workers, |_| {
        let together = Arc::clone(&together);
        Box::new(move || together.wait().is_leader())
    }) {
        assert!(done.is_ok());
        assert!(ended.insert(tenant));
    }
    assert!(ended.into_iter().eq(all));
    assert_eq!(workers.threads.unwrap().started, JOBS_MAX);
}

#[test]
fn a_late_job_goes_on_and_keeps_its_tenant_busy_until_it_ends() {
    let clock = Arc::new(ManualClock::at(0));
    let mut workers = Workers::on_threads(Arc::clone(&clock) as _);
    let all = tenants(2);
    let (slow, other) = (&all[0], &all[1]);
    let (go_on, goes_on) = sync_channel::<()>(0);
    let goes_on = Arc::new(Mutex::new(goes_on));
    let job = |tenant: &TenantId| -> Job<u32> {
        let (is_slow, goes_on, clock) = (tenant == slow, Arc::clone(&goes_on), Arc::clone(&clock));
        Box::new(move || {
            if is_slow {
                clock.advance(60_000);
                goes_on.lock().recv().unwrap();
            }
            7
        })
    };
    let (mut batch, mut ended) = (Batch::new(all.clone(), MINUTE), BTreeMap::new());
    ended.extend(next(&mut batch, &mut workers, job));
    ended.extend(next(&mut batch, &mut workers, job));
    assert_eq!(ended[slow], Err(Overdue(MINUTE)));
    // this job may have become overdue meanwhile
    assert!(ended.contains_key(other));
    assert_eq!(next(&mut batch, &mut workers, job), None);
    let mut again = Batch::new([slow.clone()], MINUTE);
    assert_eq!(next(&mut again, &mut workers, job), Some((slow.clone(), Err(Overdue(MINUTE)))));
    assert!(workers.is_busy(slow), "the tenant's commit may still arrive");
    go_on.send(()).unwrap();
    let busy = Arc::clone(&workers.threads.as_ref().unwrap().busy);
    while !busy.lock().is_empty() {
        std::thread::yield_now();
    }
    assert!(!workers.is_busy(slow));
    let mut again = Batch::new([slow.clone()], MINUTE);
    assert_eq!(next(&mut again, &mut workers, |_| Box::new(|| 8)), Some((slow.clone(), Ok(8))));
    assert_eq!(next(&mut batch, &mut workers, job), None, "an overdue job is not reported twice");
}

#[test]
fn without_threads_jobs_run_in_order() {
    let mut workers = Workers::here(Arc::new(SystemClock));
    let all = tenants(5);
    let (mut batch, mut made) = (Batch::new(all.clone(), MINUTE), Vec::new());
    for tenant in &all {
        let here = std::thread::current().id();
        let ended = next(&mut batch, &mut workers, |tenant| {
            made.push(tenant.clone());
            Box::new(move || std::thread::current().id() == here)
        });
        assert_eq!(ended, Some((tenant.clone(), Ok(true))));
        assert_eq!(made.last(), Some(tenant), "no job is created before its turn");
    }
    assert_eq!(next(&mut batch, &mut workers, |_| unreachable!()), None);
}

#[test]
fn a_node_that_stops_waits_for_no_job() {
    let mut workers = Workers::on_threads(Arc::new(SystemClock));
    let stopping = AtomicBool::new(true);
    let mut batch = Batch::new(tenants(1), MINUTE);
    let next = batch.next(&mut workers, &stopping, |_| Box::new(|| ()));
    assert!(matches!(next, Err(SealError::Stopping)));
}
