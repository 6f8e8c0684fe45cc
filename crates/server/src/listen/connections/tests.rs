use super::Victims::{AboveShare, WithSeveral};
use super::link::{KNOWN_FOR, PATIENCE};
use super::search::COMPARED;
use super::*;
use model::TenantId;

impl Link {
    fn rank(&self, now: Instant) -> Option<(u8, Instant)> {
        self.state.lock().rank(now, self.bytes_per_second)
    }
}

fn connections(most: usize) -> Connections {
    Connections::new(most, 1000)
}

#[test]
fn a_new_connection_has_time_to_send_a_request() {
    let now = Instant::now();
    let after = |ms| now + Duration::from_millis(ms);
    let connections = connections(2);
    let (first, second) =
        (connections.enter(AboveShare, now).unwrap(), connections.enter(AboveShare, after(5)).unwrap());
    assert_eq!(connections.enter(AboveShare, after(99)).unwrap_err(), Full::Until(after(100)));
    drop(second.share().begin(false));
    assert_eq!(
        (first.share().rank(after(110)).unwrap().0, second.share().rank(after(110)).unwrap().0),
        (2, 1)
    );
    assert_eq!(first.share().rank(after(1000)).unwrap().0, 0);
    let _third = connections.enter(AboveShare, after(110)).expect("the answered connection makes room");
    assert!(first.share().rank(after(110)).is_some() && second.share().rank(after(110)).is_none());
}

#[test]
fn connections_of_a_burst_have_their_time_one_after_the_other() {
    let (connections, began) = (connections(10), Instant::now());
    let (mut now, mut places) = (began, Vec::new());
    while places.len() < 100 {
        match connections.enter(AboveShare, now) {
            Ok(place) => places.push(place),
            Err(Full::Until(at)) => now = at,
            Err(Full::Busy) => panic!("a place is free soon"),
        }
    }
    assert_eq!(now - began, NEWEST * 9);
}

#[test]
fn a_tenant_with_many_connections_closes_its_own() {
    let connections = connections(10);
    let clock = std::cell::Cell::new(Instant::now());
    let enter = |tenant: &str| {
        clock.set(clock.get() + NEWEST);
        let place = connections.enter(AboveShare, clock.get()).unwrap();
        drop(place.share().begin(false));
        Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
        place
    };
    let quiet = [enter("quiet"), enter("quiet")];
    let mut flood: Vec<_> = (0..8).map(|_| enter("flood")).collect();
    flood.extend((0..100).map(|_| enter("flood")));
    assert!(quiet.iter().all(|place| !place.link.state.lock().is_closed));
    flood.extend((0..100).map(|_| enter("")));
    assert!(
        quiet.iter().all(|place| !place.link.state.lock().is_closed),
        "connections without a known tenant"
    );
    // all connections of the flood are now answering; its next connection waits, and displaces nobody
    // else
    let open: Vec<_> = flood.iter().filter(|place| !place.link.state.lock().is_closed).collect();
    let _requests: Vec<_> = open.iter().map(|place| place.share().begin(false)).collect();
    assert_eq!(connections.enter(AboveShare, clock.get() + NEWEST).unwrap_err(), Full::Busy);
}

/// Otherwise, almost every request of many senders would need a new connection.
#[test]
fn an_answered_connection_has_time_for_further_requests() {
    let (connections, now, mut until) = (connections(1), Instant::now(), None);
    let place = connections.enter(AboveShare, now).unwrap();
    for _ in 0..3 {
        let answering = place.share().begin(false);
        assert_eq!(connections.enter(AboveShare, now).unwrap_err(), Full::Busy);
        drop(answering);
        let Err(Full::Until(at)) = connections.enter(AboveShare, now) else { panic!("it has its time") };
        assert!(at >= now + NEWEST && *until.get_or_insert(at) == at, "counted from the first answer");
    }
    let _next = connections.enter(AboveShare, until.unwrap()).expect("its time is over");
}

#[test]
fn slow_requests_of_one_tenant_do_not_lock_out_others() {
    let now = Instant::now();
    let connections = connections(10);
    let idle = |tenant: &str| {
        let place = connections.enter(AboveShare, now).unwrap();
        drop(place.share().begin(false));
        Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
        place
    };
    let other = [idle("other")];
    let quiet = [idle("quiet"), idle("quiet")];
    let slow: Vec<_> = (0..7).map(|_| idle("slow")).collect();
    let _answering: Vec<_> = slow.iter().map(|place| place.share().begin(false)).collect();
    assert_eq!(connections.enter(AboveShare, now).unwrap_err(), Full::Busy);
    let now = now + NEWEST * 2;
    let newcomer = connections.enter(WithSeveral, now).expect("a second connection makes room");
    let is_closed =
        |places: &[Place]| places.iter().filter(|place| place.link.state.lock().is_closed).count();
    assert_eq!((is_closed(&other), is_closed(&quiet), is_closed(&slow)), (0, 1, 0));
    let _request = newcomer.share().begin(false);
    assert_eq!(
        connections.enter(WithSeveral, now).unwrap_err(),
        Full::Busy,
        "each keeps its last connection"
    );
}

#[test]
fn known_senders_are_kept_while_strangers_have_most_connections() {
    let connections = connections(4);
    let is_closed = |place: &Place| place.link.state.lock().is_closed;
    let enter = || connections.enter(AboveShare, Instant::now()).unwrap();
    let known = enter();
    drop(known.share().begin(false));
    known.share().stored();
    let strangers = [enter(), enter(), enter()];
    let mut busy: Vec<_> = strangers.iter().map(|place| place.share().begin(false)).collect();
    let soon = Instant::now() + NEWEST * 2;
    for victims in [AboveShare, WithSeveral] {
        assert_eq!(connections.enter(victims, soon).unwrap_err(), Full::Busy, "{victims:?}");
    }
    drop(busy.pop());
    let soon = Instant::now() + NEWEST * 2;
    let _next = connections.enter(AboveShare, soon).expect("the idle stranger makes room");
    assert!(is_closed(&strangers[2]) && !is_closed(&known), "the known sender has been idle for longer");
    let later = Instant::now() + KNOWN_FOR;
    let next = connections.enter(AboveShare, later).expect("a connection that never sent anything");
    let _busy = next.share().begin(false);
    let _last = connections.enter(AboveShare, later).expect("the sender is not known any more");
    assert!(is_closed(&known));
}

#[test]
fn known_senders_replace_each_other() {
    let connections = connections(2);
    let enter = |at| {
        let place = connections.enter(AboveShare, at).unwrap();
        drop(place.share().begin(false));
        place.share().stored();
        place
    };
    let (first, second) = (enter(Instant::now()), enter(Instant::now()));
    let _third = enter(Instant::now() + NEWEST * 2);
    let is_closed = |place: &Place| place.link.state.lock().is_closed;
    assert!(is_closed(&first) && !is_closed(&second));
}

/// On a connection of HTTP/2, a request may always be in progress.
#[test]
fn a_busy_connection_is_protected_from_its_first_answer_on() {
    let connections = connections(1);
    let place = connections.enter(AboveShare, Instant::now()).unwrap();
    let link = place.share();
    Connection::new(place.share()).serves(TenantId::parse("a").ok().map(|tenant| (tenant, 1)));
    let _busy = link.begin(true);
    link.received(None);
    let soon = || Instant::now() + NEWEST;
    assert_eq!(link.rank(soon()).map(|(rank, _)| rank), Some(2), "no request was answered");
    link.answered();
    link.receives_again();
    assert_eq!(connections.enter(AboveShare, soon()).unwrap_err(), Full::Busy);
}

#[test]
fn a_stranger_cannot_keep_its_place_with_requests_that_are_refused() {
    let connections = connections(2);
    let busy = |tenant: Option<&str>| {
        let place = connections.enter(AboveShare, Instant::now()).unwrap();
        let busy = place.share().begin(false);
        if let Some(tenant) = tenant {
            Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
        }
        place.share().answered();
        (place, busy)
    };
    let (stranger, sender) = (busy(None), busy(Some("a")));
    assert_eq!(connections.enter(AboveShare, Instant::now()).unwrap_err(), Full::Busy);
    let late = Instant::now() + PATIENCE;
    let _next = connections.enter(AboveShare, late).expect("the stranger makes room");
    assert!(stranger.0.link.state.lock().is_closed && !sender.0.link.state.lock().is_closed);
}

#[tokio::test]
async fn a_connection_that_becomes_idle_wakes_who_waits_for_a_place() {
    let connections = connections(1);
    let place = connections.enter(AboveShare, Instant::now()).unwrap();
    place.link.state.lock().first_answered_at = Some(Instant::now() - NEWEST);
    let answering = place.share().begin(false);
    let far = Instant::now() + Duration::from_hours(1);
    tokio::join!(connections.wait(far), async { drop(answering) });
    connections.enter(AboveShare, Instant::now()).expect("the idle connection makes room");
}

#[tokio::test]
async fn a_place_that_is_free_is_given_away_at_once() {
    let connections = connections(1);
    let place = connections.enter(AboveShare, Instant::now()).unwrap();
    let far = Instant::now() + Duration::from_hours(1);
    tokio::join!(connections.wait(far), async { drop(place) });
}

#[tokio::test]
async fn the_longest_idle_makes_room_and_requests_stay() {
    let now = Instant::now();
    let at = |s| now + Duration::from_secs(s);
    let connections = connections(3);
    let busy = connections.enter(AboveShare, at(0)).unwrap();
    let request = busy.share().begin(false);
    let (older, newer) =
        (connections.enter(AboveShare, at(1)).unwrap(), connections.enter(AboveShare, at(2)).unwrap());
    let next = connections.enter(AboveShare, at(3)).expect("room is made");
    older.share().closed().await;
    assert_eq!(connections.count(), 3);
    drop(older);
    assert_eq!(connections.count(), 3, "its place was already taken over");
    let requests = [newer.share().begin(false), next.share().begin(false)];
    assert_eq!(
        connections.enter(AboveShare, at(4)).unwrap_err(),
        Full::Busy,
        "all requests are being answered"
    );
    drop(requests);
    next.share().write_blocked(true);
    newer.share().write_blocked(true);
    let soon = connections.enter(AboveShare, now + Duration::from_millis(900));
    assert_eq!(soon.unwrap_err(), Full::Busy, "both clients may continue to read soon");
    newer.share().write_blocked(false);
    let last = connections.enter(AboveShare, at(5)).expect("room is made");
    newer.share().closed().await;
    drop((request, busy, newer, next, last));
    assert_eq!(connections.count(), 0);
}

#[test]
fn bodies_that_do_not_come_make_room_before_connections_that_were_answered() {
    let connections = connections(3);
    let enter = || connections.enter(AboveShare, Instant::now()).unwrap();
    let (answered, stalled, steady) = (enter(), enter(), enter());
    drop(answered.share().begin(false));
    let _bodies = [stalled.share().begin(true), steady.share().begin(true)];
    let (is_late, is_later) = (Instant::now() + PATIENCE, Instant::now() + PATIENCE * 2);
    assert_eq!(stalled.share().rank(is_later), None, "the server is not reading the body");
    for body in [&stalled, &steady] {
        body.share().received(Some(1500));
        body.share().received(None);
    }
    assert_eq!(
        stalled.share().rank(is_late),
        Some((2, stalled.share().state.lock().since)),
        "1,500 bytes in a second"
    );
    steady.share().received(Some(10_000));
    steady.share().received(None);
    let rank = |place: &Place| place.share().rank(is_later).map(|(rank, _)| rank);
    assert_eq!((rank(&stalled), rank(&answered), rank(&steady)), (Some(0), Some(1), Some(2)));
    steady.share().end_of_body();
    assert_eq!(rank(&steady), None);
    let _new = connections.enter(AboveShare, is_later).unwrap();
    assert_eq!(rank(&stalled), None, "closed already");
    assert!(rank(&answered).is_some());
}

/// Many more connections than are compared. Each gets its turn, and only those of the tenant above its share.
#[test]
fn among_very_many_connections_the_search_goes_round() {
    const MOST: usize = 4 * COMPARED;
    let now = Instant::now();
    let connections = connections(MOST);
    let enter = |tenant: &str, at| {
        let place = connections.enter(AboveShare, at).unwrap();
        drop(place.share().begin(false));
        Connection::new(place.share()).serves(TenantId::parse(tenant).ok().map(|tenant| (tenant, 1)));
        place
    };
    let is_closed = |place: &Place| place.link.state.lock().is_closed;
    let quiet: Vec<_> = (0..COMPARED).map(|_| enter("quiet", now)).collect();
    let flood: Vec<_> = (COMPARED..MOST).map(|_| enter("flood", now)).collect();
    let mut later: Vec<_> = (0..flood.len()).map(|_| enter("flood", now + NEWEST * 2)).collect();
    assert!(!quiet.iter().any(is_closed));
    let closed = flood.iter().chain(&later).filter(|place| is_closed(place)).count();
    assert_eq!((closed, connections.count()), (flood.len(), MOST));
    let shares = || connections.0.shares.lock().are_exceeded_by(&TenantId::parse("flood").ok());
    assert!(shares());
    later.clear();
    drop(flood);
    assert!(!shares() && connections.count() == COMPARED);
}
