//! Requests whose rules take long. They wait for a turn, and then for a place.

use super::*;
use crate::limits::fair_permits::FairPermits;
use crate::seal::tests::stop;
use crate::write_path::known::{Begun, Earlier};
use protocol::{Body, Decoder as _};

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_take_long_are_applied_in_turns_between_which_others_write() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    assert_eq!(ruled.send("a", &series("m", 0..50)).await.unwrap().samples, 50);
    let small = [series("m", 0..3), series("gone", 100..101)].concat();
    assert_eq!(ruled.send("b", &small).await.unwrap().samples, 3);

    clock.step_ms.store(50, Ordering::Relaxed); // a turn has at most two series
    let mut permits = AllPermits::take(&ruled, "b").await;
    let (began, mut turns) = (ruled.applied(), 0);
    let sending = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        let all = [series("m", 0..100), series("gone", 0..20), series("bad", 0..30)].concat();
        async move { ruled.send("a", &all).await }
    });
    while ruled.applied() == began {
        tokio::task::yield_now().await;
    }
    let mut applied = ruled.applied();
    assert_eq!(applied - began, 1.0, "in place");
    loop {
        permits.let_pass(&ruled).await;
        let before = std::mem::replace(&mut applied, ruled.applied());
        assert!(applied - before <= 2.0, "{} series in a turn", applied - before);
        turns += u32::from(applied > before);
        if applied - began == 100.0 {
            break;
        }
        assert!(!sending.is_finished(), "{:?} after {} series", sending.await, applied - began);
        let of_b = ruled.send("b", &small).await.unwrap();
        assert_eq!((of_b.samples, of_b.dropped_samples), (3, 1));
        assert_eq!(ruled.applied(), applied, "rules are applied without a permit");
    }
    assert!(turns >= 49, "{turns}");
    drop(permits);
    let outcome = sending.await.unwrap().unwrap();
    assert_eq!((outcome.samples, outcome.dropped_samples, outcome.refused_samples), (100, 20, 30));
    assert!(outcome.report().contains("no metric name"), "{}", outcome.report());
    let before = ruled.applied();
    assert_eq!(ruled.send("a", &series("bad", 0..30)).await.unwrap().refused_samples, 30);
    assert_eq!(ruled.applied() - before, 1.0, "the rules tell again why, for one series");
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// Waits until this is true. The runtime's other tasks go on meanwhile.
async fn until(is_so: impl Fn() -> bool + Send + Sync) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("nothing happens");
}

const WAITING_FOR_TURN: &str = "floodmark_ingest_rules_waiting_requests{for=\"turn\"}";

const WAITING_FOR_PLACE: &str = "floodmark_ingest_rules_waiting_requests{for=\"place\"}";

/// Others need the places, and the permits of Graphite's bodies.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_holds_no_place_while_its_rules_wait() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        settings.inflight_requests_max = 3;
    }));
    clock.step_ms.store(50, Ordering::Relaxed);
    let permits = AllPermits::take(&ruled, "b").await;
    let mut sending = Vec::new();
    for number in 0..5 {
        let sender = Arc::clone(&ruled);
        let all = series("m", number * 20..number * 20 + 20);
        sending.push(tokio::spawn(async move { sender.send("a", &all).await }));
        until(|| ruled.metric(WAITING_FOR_TURN) == f64::from(number + 1)).await;
        assert_eq!(ruled.node.writes().gates.inside(), (0, 0));
    }
    let intake = FairPermits::new(1);
    let permit = intake.acquire(&TenantId::parse("a").unwrap()).await;
    let Begun::Later(later) = ruled.begin_lines(&mut Earlier::default(), Some(permit)).await else {
        panic!("the rules do not take long")
    };
    let b = permits.tenant.clone();
    let of_b = std::pin::pin!(intake.acquire(&b));
    assert!(is_ready(of_b), "the body has its permit although it waits");
    let later = tokio::spawn(later.sent());
    until(|| ruled.metric(WAITING_FOR_TURN) == 6.0).await;
    assert_eq!(ruled.node.writes().gates.inside(), (0, 0));
    drop(permits);
    for sent in sending {
        assert_eq!(sent.await.unwrap().unwrap().samples, 20);
    }
    let (sent, new) = later.await.unwrap().unwrap();
    let stored = sent.settle(ruled.node.writes()).await.unwrap().samples;
    assert_eq!(stored + new.points(), 60);
    drop(new);
    assert_eq!([WAITING_FOR_TURN, WAITING_FOR_PLACE].map(|name| ruled.metric(name)), [0.0; 2]);
    assert!(ruled.metric("floodmark_ingest_rules_seconds_total{tenant=\"a\"}") > 0.0);
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}

/// To be refused would mean that the rules are applied again, and perhaps again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_rules_are_decided_waits_for_its_place() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        settings.inflight_requests_max = 1;
    }));
    clock.step_ms.store(50, Ordering::Relaxed);
    let permits = AllPermits::take(&ruled, "b").await;
    let sending = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        async move { ruled.send("a", &series("m", 0..20)).await }
    });
    until(|| ruled.metric(WAITING_FOR_TURN) == 1.0).await;
    let writes = ruled.node.writes();
    let (settings, b) = (writes.overrides.current(), permits.tenant.clone());
    let place = writes.gates.enter(&b, settings.of(&b)).unwrap();
    drop(permits);
    until(|| ruled.metric(WAITING_FOR_PLACE) == 1.0).await;
    assert_eq!(ruled.applied(), 20.0);
    let again = AllPermits::take(&ruled, "b").await; // it holds no thread
    let refused = ruled.send("a", &series("m", 0..1)).await.unwrap_err();
    assert_eq!(refused.refusal.kind, ErrorKind::Unavailable);
    drop((again, place));
    assert_eq!(sending.await.unwrap().unwrap().samples, 20);
    assert_eq!(ruled.applied(), 20.0, "the rules are applied again");
    assert_eq!(ruled.node.writes().gates.inside(), (0, 0));
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// If the sender of the request goes away, nobody else has the samples.
#[tokio::test(flavor = "multi_thread")]
async fn another_replica_keeps_its_samples_while_a_request_of_the_elected_one_waits() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        settings.tenants.general.ha_dedup = true;
    }));
    let send = |replica: &'static str, series: u32| {
        let ruled = Arc::clone(&ruled);
        async move { ruled.send_of_replica(replica, series).await }
    };
    assert_eq!(send("a", 1).await.unwrap().samples, 1);
    assert_eq!(send("b", 1).await.unwrap().deduplicated_samples, 1);
    let before_ms = SystemClock.now_ms() - 1000;
    clock.step_ms.store(50, Ordering::Relaxed);
    for is_given_up in [true, false] {
        let permits = AllPermits::take(&ruled, "b").await;
        let sending = tokio::spawn(send("a", 20));
        until(|| ruled.metric(WAITING_FOR_TURN) == 1.0).await;
        let refused = send("b", 1).await.unwrap_err();
        assert_eq!((refused.refusal.reason, refused.samples), ("ha_failover", 0));
        // the request that waits has no sample as old as this one
        let older =
            ruled.send_of_replica_at("b", 1, before_ms).await.map(|outcome| outcome.deduplicated_samples);
        match older {
            Ok(duplicates) => assert_eq!((duplicates, is_given_up), (1, true)),
            Err(refused) => {
                assert_eq!((refused.refusal.reason, is_given_up), ("ha_failover", false), "a was not stored")
            }
        }
        if is_given_up {
            sending.abort();
            assert!(sending.await.unwrap_err().is_cancelled());
            let refused = send("b", 1).await.unwrap_err();
            assert_eq!(refused.refusal.reason, "ha_failover");
            drop(permits);
        } else {
            drop(permits);
            assert_eq!(sending.await.unwrap().unwrap().samples, 20);
            assert_eq!(send("b", 1).await.unwrap().deduplicated_samples, 1);
        }
    }
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// A sender that does not wait for the rules sends its samples again, and a body of lines is written again after a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn samples_count_once_against_the_rate_limit() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |settings| {
        let limits = &mut settings.tenants.general.limits;
        (limits.samples_per_second, limits.rate_burst_ms) = (Some(1), 100_000);
    }));
    clock.step_ms.store(50, Ordering::Relaxed);
    for number in 0..3 {
        let permits = AllPermits::take(&ruled, "b").await;
        let sending = tokio::spawn({
            let (ruled, all) = (Arc::clone(&ruled), series("m", number * 60..number * 60 + 60));
            async move { ruled.send("a", &all).await }
        });
        until(|| ruled.metric(WAITING_FOR_TURN) == 1.0).await;
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        drop(permits);
    }
    clock.step_ms.store(0, Ordering::Relaxed);
    let mut earlier = Earlier::default();
    for _ in 0..3 {
        let Begun::Sent(sent) = ruled.begin_lines(&mut earlier, None).await else { panic!("slow rules") };
        let (sent, new) = *sent;
        earlier.samples = true;
        drop(new);
        sent.settle(ruled.node.writes()).await.unwrap();
    }
    assert_eq!(ruled.send("a", &series("m", 0..30)).await.unwrap().samples, 30);
    // 90 samples and a few have counted; 30 more are one request too many
    assert_eq!(ruled.send("a", &series("m", 0..30)).await.unwrap().samples, 30);
    assert_eq!(ruled.send("a", &series("m", 0..30)).await.unwrap_err().refusal.reason, "samples_rate");
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_goes_away_ends_its_work_and_can_go_on_later() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    clock.step_ms.store(50, Ordering::Relaxed);
    let mut permits = AllPermits::take(&ruled, "b").await;
    let sending = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        async move { ruled.send("a", &series("m", 0..40)).await }
    });
    while ruled.applied() < 10.0 {
        permits.let_pass(&ruled).await;
        tokio::task::yield_now().await;
    }
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    drop(permits);
    let is_free = async {
        while ruled.node.writes().inflight.used_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), is_free).await.expect("the work goes on");
    let before = ruled.applied();
    assert!((10.0..=12.0).contains(&before), "{before}");
    assert_eq!(ruled.send("a", &series("m", 0..40)).await.unwrap().samples, 40);
    // those that were decided have no labels yet, so the rules make them again
    assert_eq!(ruled.applied() - before, 40.0);
    clock.step_ms.store(0, Ordering::Relaxed);
    assert_eq!(ruled.send("a", &series("m", 0..40)).await.unwrap().samples, 40);
    assert_eq!(ruled.applied() - before, 40.0);
    stop(Arc::into_inner(ruled).unwrap().node).await;
}

/// Statsd's points are given as a batch.
#[tokio::test(flavor = "multi_thread")]
async fn rules_for_a_batch_that_no_decoder_has_made_are_applied_in_turns() {
    let clock = slow_clock();
    let ruled = Arc::new(Ruled::new(RENAME, Arc::clone(&clock) as _, |_| ()));
    let mut encoder = V1Encoder::new();
    for (name, number) in [series("m", 0..30), series("gone", 0..5)].concat() {
        let labels = Labels::from_pairs(&[("__name__", name), ("n", &number.to_string())]);
        encoder.series(labels.as_ref(), &[SystemClock.now_ms()], &[1.0]);
    }
    let writes = ruled.node.writes();
    let (mut batch, mut memory) = (Batch::default(), writes.unwritten.reserve(0).unwrap());
    let body = Body { encoding: Encoding::Snappy, bytes: encoder.finish() };
    let request = protocol::Request { format: Version::V1, body };
    remote_write::Decoder::new(writes.seed).decode(request, &mut batch, &mut memory).unwrap();

    clock.step_ms.store(50, Ordering::Relaxed);
    let mut permits = AllPermits::take(&ruled, "b").await;
    let writing = tokio::spawn({
        let ruled = Arc::clone(&ruled);
        let principal = Principal::of(TenantId::parse("a").unwrap());
        async move { write_admitted(ruled.node.writes(), &principal, &mut batch, memory).await }
    });
    while ruled.applied() < 30.0 {
        permits.let_pass(&ruled).await;
        assert!(!writing.is_finished());
        tokio::task::yield_now().await;
    }
    drop(permits);
    let outcome = writing.await.unwrap().unwrap();
    assert_eq!((outcome.samples, outcome.dropped_samples, outcome.refused_samples), (30, 5, 0));
    let renamed = ruled.send("a", &[("new", 7)]).await.unwrap();
    assert_eq!((renamed.samples, renamed.has_created), (1, false));
    stop(Arc::into_inner(ruled).unwrap().node).await;
}
