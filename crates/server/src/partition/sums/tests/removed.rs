//! Sums that were forgotten, or deleted with their tenant.

use super::*;
use crate::partition::DeleteTenant;
use crate::write_path::InUse;

#[test]
fn a_deleted_tenant_has_no_sums() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0)]);
    let (reply, _answer) = oneshot::channel();
    let tenant = TenantId::anonymous();
    let heads = Arc::clone(&fixture.owner.context.heads);
    let now_s = fixture.owner.context.steady_s();
    let before = heads.shared_sums.stamp(&tenant, now_s);
    let deletion = shared::Deletion::begin(&heads, &tenant, 2);
    let request = |deletion: &Arc<_>, reply| {
        let (deletion, tenant) = (Arc::clone(deletion), tenant.clone());
        Command::DeleteTenant(DeleteTenant { tenant, deletion, reply })
    };
    fixture.send.send(request(&deletion, reply)).unwrap();
    fixture.turns();
    assert_eq!(fixture.owner.sums.count(), 0);
    // another partition has not recorded it yet
    let mut refused = fixture.submit(&[(0, 20, 30, 1.0)]);
    fixture.turns();
    assert_eq!(refused.try_recv().unwrap().unwrap_err().reason, "deletes");
    deletion.recorded();
    assert_eq!(fixture.add(&[(0, 20, 30, 2.0)]), (1, vec![]));
    assert_eq!(fixture.samples(0).last(), Some(&(30, 2.0)));
    // samples that were made of a sum from before
    for (stamp, is_refused) in [(before, true), (heads.shared_sums.stamp(&tenant, now_s), false)] {
        let (reply, mut answer) = oneshot::channel();
        let state = TenantStates::for_test(1).of(&tenant, || true, Instant::now());
        let mut submission = Submission::new(state, ValueKind::Float, reply);
        submission.in_use = Some(Arc::new(InUse::for_test(stamp)));
        let labels = Labels::from_pairs(&[("__name__", "m"), ("i", "0")]);
        let key = SeriesKey::of(labels.as_bytes(), fixture.owner.context.seed);
        let series = fixture.owner.partition.head.read().tenant(&tenant).and_then(|head| head.resolve(key));
        submission.refs.push(series.unwrap());
        submission.timestamps.push(35);
        submission.values.extend(ValuesRef::Floats(&[7.0]));
        fixture.send.send(Command::Write(Box::new(submission))).unwrap();
        fixture.turns();
        let refused = answer.try_recv().unwrap().err().map(|refusal| refusal.reason);
        assert_eq!(refused, is_refused.then_some("deletes"));
    }
    assert_eq!(fixture.samples(0).last(), Some(&(35, 7.0)));
    let (reply, _answer) = oneshot::channel();
    let failed = shared::Deletion::begin(&fixture.owner.context.heads, &tenant, 2);
    fixture.send.send(request(&failed, reply)).unwrap();
    fixture.turns();
    drop(failed);
    // the second partition never answers
    fixture.turns();
    assert_eq!(fixture.owner.sums.count(), 0);
    let dir = fixture.stop();
    let restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.owner.sums.count(), 0);
    restarted.stop();
}

/// One partition has removed the sums of a histogram and deleted their records, another one has not.
#[test]
fn sums_of_histograms_that_one_partition_has_forgotten_are_void_after_a_restart() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let tenant = TenantId::anonymous();
    let mut partitions = [0, 1].map(|_| Sums::new(Arc::clone(heads), Instant::now()));
    let known = |layout, end| Accumulator { sum: 1000.0, newest: 1.0, ..Accumulator::new(end, layout) };
    partitions[0].restore_forgotten(&tenant, 20);
    partitions[1].restore(&tenant, SeriesKey(1), &known(3, 20));
    partitions[1].restore(&tenant, SeriesKey(2), &known(3, 21));
    partitions[1].restore(&tenant, SeriesKey(3), &known(0, 20));
    partitions.iter().for_each(Sums::publish);
    let increment = |start_ns, layout| Increment {
        start_ns,
        end_ns: start_ns + 10,
        layout,
        value: 1.0,
        ..Increment::default()
    };
    let mut add = |partition: usize, key, submission, increment: &Increment| {
        let stamp = heads.shared_sums.stamp(&tenant, STARTED_S);
        let origin = Origin { submission, weight: 1, stamp };
        let added = partitions[partition].add(&tenant, SeriesKey(key), (increment, None), origin);
        added.map(|_| partitions[partition].get(&tenant, SeriesKey(key)).unwrap().total())
    };
    // refused increments change nothing
    for partition in [0, 1] {
        assert_eq!(add(partition, 1, 1, &increment(10, 3)), Err(SeriesRefusal::IncrementTooLate));
    }
    assert_eq!([0, 1].map(|partition| add(partition, 1, 2, &increment(20, 3))), [Ok(1.0), Ok(1.0)]);
    assert_eq!([0, 1].map(|partition| add(partition, 1, 3, &increment(30, 3))), [Ok(2.0), Ok(2.0)]);
    // newer ones cannot have been removed, and other series have no other buckets
    assert_eq!(add(1, 2, 4, &increment(21, 3)), Ok(1001.0));
    assert_eq!(add(1, 3, 5, &increment(20, 0)), Ok(1001.0));
    fixture.stop();
}

#[test]
fn a_replay_tells_others_nothing_of_what_was_deleted() {
    let (_, fixture) = Fixture::new();
    let heads = &fixture.owner.context.heads;
    let mut sums = Sums::new(Arc::clone(heads), Instant::now());
    let [deleted, left] = ["deleted", "left"].map(|name| TenantId::parse(name).unwrap());
    for tenant in [&deleted, &left] {
        sums.restore_forgotten(tenant, 20);
        sums.restore(tenant, bounds_key(7), &Accumulator::new(10, 0));
    }
    sums.remove_tenant(&deleted);
    sums.publish();
    let found = |tenant| {
        let shared = &heads.shared_sums;
        (shared.stamp(tenant, 0).forgotten_ns, shared.ended_ns(tenant, 7))
    };
    assert_eq!((found(&deleted), found(&left)), ((0, 0), (20, 10)));
    fixture.stop();
}

#[test]
fn idle_sums_are_forgotten_and_what_may_have_been_added_is_refused() {
    let (journal, mut fixture) = Fixture::new();
    fixture.add(&[(0, 10, 20, 1.0), (1, 10, 30, 1.0)]);
    for _ in 0..30 {
        fixture.clock.advance(3_600_000);
        assert_eq!(fixture.owner.sums.count(), 2);
        fixture.add(&[(1, 30, 30 + fixture.clock.passed_ms(), 0.0)]);
        fixture.turns();
        if fixture.owner.sums.count() == 1 {
            break;
        }
    }
    assert_eq!(fixture.owner.sums.count(), 1, "a series that gets increments is not forgotten");
    assert_eq!(fixture.owner.sums.forgotten_ns(&TenantId::anonymous()), 20 * MS);
    let check = |fixture: &mut Fixture| {
        assert_eq!(fixture.add(&[(0, 10, 20, 1.0)]), (0, vec![SeriesRefusal::IncrementTooLate]));
        assert_eq!(fixture.add(&[(2, 10, 15, 1.0)]), (0, vec![SeriesRefusal::IncrementTooLate]));
    };
    check(&mut fixture);
    fixture.seal();
    fixture.turns();
    let dir = fixture.stop();
    let mut restarted = Fixture::over(Box::new(journal.reopen()), dir);
    assert_eq!(restarted.owner.sums.forgotten_ns(&TenantId::anonymous()), 20 * MS);
    check(&mut restarted);
    assert_eq!(restarted.add(&[(0, 15, 25, 5.0)]), (1, vec![]));
    assert_eq!(restarted.samples(0), [(25, 5.0)]);
    restarted.stop();
}
