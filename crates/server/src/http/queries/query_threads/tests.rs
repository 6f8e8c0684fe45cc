use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use stdx::clock::SystemClock;

/// Creates a query that reports its lane, and then waits for permission to continue.
fn blocking_query(
    began: &Sender<(u32, Lane)>,
    number: u32,
    outcome: fn(Lane) -> Outcome,
) -> (Query, Sender<()>) {
    let (go, goes) = channel();
    let began = began.clone();
    let query = move |lane| {
        began.send((number, lane)).unwrap();
        let _ = goes.recv();
        outcome(lane)
    };
    (Box::new(query), go)
}

fn start(count: usize) -> Queries {
    Queries::start(count, Arc::new(SystemClock))
}

fn query_tenant() -> QueryTenant {
    QueryTenant { tenant: TenantId::anonymous(), weight: 1, limit: None }
}

const fn done(_: Lane) -> Outcome {
    Outcome::Done
}

const fn large(lane: Lane) -> Outcome {
    match lane {
        Lane::Whole => Outcome::Done,
        Lane::Small => Outcome::Again,
    }
}

/// Creates a pool with one thread for whole queries, which is busy with query 0.
fn busy(began: &Sender<(u32, Lane)>, begin: &Receiver<(u32, Lane)>) -> (Queries, Place, Sender<()>) {
    let queries = start(1);
    let (query, go) = blocking_query(began, 0, done);
    let place = queries.submit(query_tenant(), None, query);
    let (number, lane) = begin.recv().unwrap();
    if lane == Lane::Small {
        // the thread had not reached the queue yet: try again
        go.send(()).unwrap();
        drop((queries, place));
        return busy(began, begin);
    }
    assert_eq!(number, 0);
    (queries, place, go)
}

#[test]
fn a_small_query_runs_beside_long_ones_and_a_long_one_is_set_back() {
    let (began, begin) = channel();
    let (queries, _first, end_first) = busy(&began, &begin);
    // the long query is tried and put back; then the small query is tried
    let (query, go) = blocking_query(&began, 1, large);
    let _second = queries.submit(query_tenant(), None, query);
    assert_eq!(begin.recv().unwrap(), (1, Lane::Small));
    let (query, go_small) = blocking_query(&began, 2, done);
    let _third = queries.submit(query_tenant(), None, query);
    go.send(()).unwrap();
    assert_eq!(begin.recv().unwrap(), (2, Lane::Small));
    assert_eq!((queries.waiting_and_running(), queries.set_back()), ((1, 2), 1));
    go_small.send(()).unwrap();
    // the long query is next, although it was tried before
    end_first.send(()).unwrap();
    assert_eq!(begin.recv().unwrap(), (1, Lane::Whole));
    go.send(()).unwrap();
}

#[test]
fn queries_that_were_set_back_keep_their_place() {
    let (began, begin) = channel();
    let (queries, _first, end_first) = busy(&began, &begin);
    let mut all = Vec::new();
    for number in 1..=3 {
        let (query, go) = blocking_query(&began, number, large);
        all.push((queries.submit(query_tenant(), None, query), go.clone()));
        assert_eq!(begin.recv().unwrap(), (number, Lane::Small));
        go.send(()).unwrap();
    }
    end_first.send(()).unwrap();
    for (number, (_, go)) in (1..=3).zip(&all) {
        assert_eq!(begin.recv().unwrap(), (number, Lane::Whole));
        go.send(()).unwrap();
    }
}

#[test]
fn queries_of_disconnected_clients_do_not_start() {
    let (began, begin) = channel();
    let (queries, _first, end_first) = busy(&began, &begin);
    let (query, go) = blocking_query(&began, 1, done);
    let _second = queries.submit(query_tenant(), None, query);
    assert_eq!(begin.recv().unwrap(), (1, Lane::Small));
    // both threads are busy
    let (query, _) = blocking_query(&began, 2, done);
    let leaving = queries.submit(query_tenant(), None, query);
    let (query, go_last) = blocking_query(&began, 3, done);
    let _last = queries.submit(query_tenant(), None, query);
    assert_eq!(queries.waiting_and_running(), (2, 2));
    drop(leaving);
    assert_eq!(queries.waiting_and_running(), (1, 2));
    go.send(()).unwrap();
    assert_eq!(begin.recv().unwrap().0, 3);
    go_last.send(()).unwrap();
    end_first.send(()).unwrap();
}

#[test]
fn a_panic_ends_a_query_and_nothing_else() {
    let queries = start(1);
    let (answer, answered) = channel();
    let places: Vec<_> = (0..3)
        .map(|number| {
            let answer = answer.clone();
            queries.submit(
                query_tenant(),
                None,
                Box::new(move |_| {
                    assert_ne!(number, 1, "a bug");
                    answer.send(number).unwrap();
                    Outcome::Done
                }),
            )
        })
        .collect();
    drop(answer);
    let mut numbers: Vec<_> = answered.iter().take(2).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 2]);
    drop(places);
}

#[test]
fn a_query_that_was_put_back_is_not_tried_again_when_it_is_repeated() {
    let (began, begin) = channel();
    let (queries, _first, end_first) = busy(&began, &begin);
    let (query, go) = blocking_query(&began, 1, large);
    let _second = queries.submit(query_tenant(), Some(7), query);
    assert_eq!(begin.recv().unwrap(), (1, Lane::Small));
    go.send(()).unwrap();
    // the repeated query arrives first, but only the small query is tried
    let (query, go_repeated) = blocking_query(&began, 2, done);
    while queries.set_back() == 0 {
        std::thread::yield_now();
    }
    let _repeated = queries.submit(query_tenant(), Some(7), query);
    let (query, go_small) = blocking_query(&began, 3, done);
    let _small = queries.submit(query_tenant(), Some(8), query);
    assert_eq!(begin.recv().unwrap(), (3, Lane::Small));
    go_small.send(()).unwrap();
    end_first.send(()).unwrap();
    assert_eq!(begin.recv().unwrap(), (1, Lane::Whole));
    go.send(()).unwrap();
    assert_eq!(begin.recv().unwrap(), (2, Lane::Whole));
    go_repeated.send(()).unwrap();
}
