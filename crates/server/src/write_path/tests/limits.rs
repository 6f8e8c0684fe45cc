use super::*;
use admission::gate::Entrant;
use admission::retry::{Room, Wait};
use admission::watermarks;
use std::ops::Range;

/// Sends one sample for each of the series `name{i="…"}`. Returns how many were stored, and the refusal if there was
/// one.
async fn send(node: &Node, tenant: &str, name: &str, series: Range<u32>) -> (u64, Option<Refusal>) {
    let mut encoder = V1Encoder::new();
    for i in series {
        let labels = Labels::from_pairs(&[("__name__", name), ("i", &i.to_string())]);
        encoder.series(labels.as_ref(), &[node.writes().clock.now_ms()], &[1.0]);
    }
    let body = encoder.finish().to_vec();
    let memory = node.writes().inflight.reserve(body.len() as u64).unwrap();
    match write(node, TenantId::parse(tenant).unwrap(), Version::V1, body, memory).await {
        Ok(outcome) => (outcome.samples, None),
        Err(unwritten) => (unwritten.samples, Some(unwritten.refusal)),
    }
}

fn check(answer: (u64, Option<Refusal>), samples: u64, refused: Option<(ErrorKind, &str, &str)>) {
    let (stored, refusal) = answer;
    let seen = refusal.as_ref().map(|refusal| (refusal.kind, refusal.reason));
    assert_eq!((stored, seen), (samples, refused.map(|(kind, reason, _)| (kind, reason))), "{refusal:?}");
    if let Some((refusal, (.., text))) = refusal.zip(refused) {
        assert!(refusal.message.contains(text), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_all_its_series_writes_those_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = Settings { partitions: 1, ..small_settings(dir.path()) };
    let mut limited = settings.tenants.general.clone();
    (limited.limits.active_series, limited.limits.active_series_is_given) = (Some(10), true);
    settings.tenants.own.insert(TenantId::parse("ten").unwrap(), limited);
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    check(send(&node, "ten", "a", 0..6).await, 6, None);
    let refused = Some((ErrorKind::Limited, "active_series", "its limit of 10 active series"));
    check(send(&node, "ten", "a", 0..12).await, 10, refused);
    check(send(&node, "ten", "b", 0..3).await, 0, refused);
    check(send(&node, "ten", "a", 0..10).await, 10, None);
    check(send(&node, "other", "a", 0..100).await, 100, None);
    assert_eq!(node.writes().metrics.refused_samples.get(), 2 + 3, "those of partial refusals");
    let state = node.writes().tenant(&TenantId::parse("ten").unwrap());
    assert_eq!((state.series(), state.series_peak()), (10, 10));
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn new_series_that_come_too_fast_wait_and_known_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let mut settings = Settings { partitions: 1, ..small_settings(dir.path()) };
    settings.tenants.general.limits.new_series_per_second = Some(10);
    settings.tenants.general.limits.rate_burst_ms = 1000;
    let node = Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    check(send(&node, "a", "m", 0..10).await, 10, None);
    check(send(&node, "a", "m", 10..30).await, 20, None); // one slice of a request may exceed the limit
    let refused = Some((ErrorKind::Unavailable, "new_series_rate", "10 a second"));
    let answer = send(&node, "a", "m", 0..40).await;
    assert_eq!(answer.1.as_ref().and_then(|refusal| refusal.pause()), Some(Duration::from_secs(2)));
    check(answer, 30, refused);
    let waiting = || node.writes().tenant(&TenantId::parse("a").unwrap()).waiting(clock.instant());
    assert_eq!((waiting().series, waiting().longest), (10, Duration::ZERO));
    check(send(&node, "a", "m", 0..30).await, 30, None);
    clock.advance(500);
    check(send(&node, "a", "m", 0..40).await, 30, refused);
    assert_eq!((waiting().series, waiting().longest), (10, Duration::from_millis(500)), "a repetition");
    check(send(&node, "b", "m", 0..5).await, 5, None);
    clock.advance(2000);
    check(send(&node, "a", "m", 0..40).await, 40, None);
    assert_eq!(waiting().series, 0);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_wait_until_the_requests_in_progress_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(SystemClock.now_ms()));
    let settings = Settings { inflight_requests_max: 10, ..small_settings(dir.path()) };
    let node = Node::start(settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let writes = Arc::clone(node.writes());
    let (known, _) = writes.gates.both();
    let tenants = [0; 10].map(|_| TenantId::parse("others").unwrap());
    let enter = || {
        let entrant = |tenant| Entrant { tenant, weight: 100, limit: None, bytes: 0 };
        tenants.iter().map(|tenant| known.enter(entrant(tenant)).unwrap()).collect::<Vec<_>>()
    };
    let mut inside = enter();
    let refused = async || {
        let (stored, refusal) = send(&node, "a", "m", 0..1).await;
        let refusal = refusal.expect("the gate is full");
        assert_eq!(
            (stored, refusal.reason, refusal.retry_after),
            (0, "inflight_requests", Some(Wait::Requests))
        );
        writes.time_until(Wait::Requests, None).as_secs()
    };
    let refused_twice = async || {
        clock.advance(400);
        refused().await;
        clock.advance(400);
        refused().await
    };
    assert_eq!(refused().await, 3, "nothing is known yet");
    assert_eq!(refused_twice().await, 11, "nobody has left for 0.8 s");
    for _ in 0..500 {
        inside.clear();
        inside = enter();
    }
    assert_eq!(refused_twice().await, 17, "those that left were refused, so they come back");
    for _ in 0..50 {
        inside.iter_mut().for_each(|pass| pass.is_served = true);
        inside.clear();
        inside = enter();
    }
    assert_eq!(refused_twice().await, 9, "the mean of the last two measurements");
    clock.advance(5000);
    assert_eq!(refused().await, 3, "that was long ago");
    // requests that are stored count, and those that create series do so in both gates
    inside.clear();
    for (name, expected) in [("m", (501, 1)), ("m", (502, 1)), ("n", (503, 2))] {
        check(send(&node, "a", name, 0..1).await, 1, None);
        assert_eq!(writes.gates.served(), expected);
    }
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_whose_tables_fill_its_part_of_the_disk_is_refused_for_now() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = small_settings(dir.path());
    assert!(
        settings.tenants.general.limits.disk_bytes.is_some()
            && !settings.tenants.general.limits.disk_bytes_is_given
    );
    settings.tenants.general.limits.disk_bytes = Some(1024);
    let node = Node::start(settings, Arc::new(SystemClock)).unwrap();
    check(send(&node, "a", "m", 0..100).await, 100, None);
    check(send(&node, "a", "m", 0..100).await, 100, None);
    flush(&node).await.unwrap();
    let refused = Some((ErrorKind::Unavailable, "disk_bytes", "the limit is 1 KiB (setting disk_bytes)"));
    check(send(&node, "a", "m", 0..100).await, 0, refused);
    check(send(&node, "a", "new", 0..1).await, 0, refused);
    check(send(&node, "b", "m", 0..100).await, 100, None);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

/// Uses a real head of the smallest size, and fills it.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_tenant_leaves_room_for_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    check(send(&node, "small", "m", 0..100).await, 100, None);
    let mut number = 0;
    let refusal = loop {
        number += 1;
        assert!(
            number < 1000,
            "a head of {} MiB takes a million series",
            node.writes().heads.head().limit_bytes >> 20
        );
        if let (_, Some(refusal)) = send(&node, "flood", &format!("m{number}"), 0..1000).await {
            break refusal;
        }
    };
    assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "tenant_share"), "{refusal}");
    assert_eq!(refusal.retry_after, Some(Wait::Sealing(Room::SeriesAboveShare)));
    let head = node.writes().heads.head();
    assert!(!head.is_filled_to(watermarks::NO_NEW_SERIES), "{head:?}");
    check(send(&node, "small", "n", 0..500).await, 500, None);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}

/// A flood of known series fills the head further than new series could. Series that return then have room, because their
/// tenant has no part in the flood. This is so too if much of the memory is held by sums of deltas, which count for no tenant.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_leaves_room_for_series_that_return() {
    for sums_percent in [0, 100] {
        check_series_that_return(sums_percent).await;
    }
}

async fn check_series_that_return(sums_percent: u64) {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    node.reads().lake.faults.die_at("frozen"); // sealing fails, so nothing leaves the head
    check(send(&node, "small", "m", 0..100).await, 100, None);
    let sums = &node.writes().heads.sums;
    let held = sums.reserve(sums.limit_bytes() / 100 * sums_percent).unwrap();
    let mut number = 0;
    let refusal = loop {
        number += 1;
        if let (_, Some(refusal)) = send(&node, "flood", &format!("m{number}"), 0..1000).await {
            break refusal;
        }
    };
    assert_eq!(refusal.reason, "tenant_share", "{refusal}");
    let fill_to = |percent: u64| {
        let head = node.writes().heads.head();
        let more = (head.limit_bytes / 100 * percent).saturating_sub(head.used_bytes);
        node.reads().partitions[0].head_bytes.fetch_add(more, Ordering::Relaxed);
    };
    let full = Some((ErrorKind::Unavailable, "no_room_for_series", "--memory"));
    let above_share = Some((ErrorKind::Unavailable, "tenant_share", "share_weight"));
    fill_to(87);
    check(send(&node, "flood", "returning", 0..500).await, 0, above_share);
    check(send(&node, "small", "returning", 0..500).await, 500, None);
    fill_to(93);
    check(send(&node, "small", "new", 0..500).await, 0, full);
    check(send(&node, "small", "returning", 0..500).await, 500, None);
    drop(held);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}
