//! Compares what readers find with a list, over restarts and damage.

mod damage;

use super::*;
use expect_test::expect;
use journal::disk::Os;
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stdx::rng::Rng;
use tenants::TENANT_BYTES;

/// An event as [`found`] returns it.
type Found = (u64, i64, String, String, String);

fn open(dir: &Path) -> Events {
    Events::open(Arc::new(Os), dir, Account::new("events", 1 << 20), &Registry::new())
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn event(when_ms: i64, what: &str, tags: &str) -> Event {
    Event { when_ms, what: what.into(), tags: tags.into(), data: "more".into() }
}

fn file_of(dir: &Path, tenant: &TenantId) -> PathBuf {
    dir.join("events").join(format!("{tenant}.events"))
}

fn matching(events: &Events, tenant: &TenantId, query: &EventQuery<'_>) -> Vec<Found> {
    let (mut places, mut all) = (Vec::new(), Vec::new());
    let of = |record: &Record<'_>| {
        let Record { id, when_ms, what, tags, data } = record;
        (*id, *when_ms, what.clone().into_owned(), tags.clone().into_owned(), data.clone().into_owned())
    };
    let file = events.find(tenant, query, &AtomicBool::new(false), |place, record| {
        places.push(place);
        all.push(of(record));
        Ok(())
    });
    let file = file.unwrap();
    for (place, found) in places.into_iter().zip(&all) {
        let again = file.as_ref().unwrap().read(place, &mut Vec::new()).unwrap().map(|record| of(&record));
        assert_eq!(again.as_ref(), Some(found));
    }
    all
}

fn found(events: &Events, tenant: &TenantId) -> Vec<Found> {
    let (from_ms, until_ms) = (i64::MIN, i64::MAX);
    matching(events, tenant, &EventQuery { from_ms, until_ms, tags: &[], set: TagSet::All })
}

/// The format is described in `docs/formats/events.md`. A change needs a new version.
#[tokio::test]
async fn the_bytes_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (events, of) = (open(dir.path()), tenant("(team-a)*"));
    events.append(&of, event(1_795_284_000_500, "deploy \"42\"\n", "web eu"), FILE_BYTES_MIN).await.unwrap();
    events.append(&of, event(0, "é", ""), FILE_BYTES_MIN).await.unwrap();
    let bytes = fs::read(file_of(dir.path(), &of)).unwrap();
    expect![[r#"
        ed622f4d {"version":1,"next_id":1}
        0ed773d8 {"id":1,"when_ms":1795284000500,"what":"deploy \"42\"\n","tags":"web eu","data":"more"}
        641d8165 {"id":2,"when_ms":0,"what":"é","tags":"","data":"more"}
    "#]]
    .assert_eq(&String::from_utf8(bytes).unwrap());
    let newer =
        file::header(3).iter().map(|byte| if *byte == b'1' { b'2' } else { *byte }).collect::<Vec<_>>();
    let json = &newer[9..newer.len() - 1];
    fs::write(
        file_of(dir.path(), &of),
        format!("{:08x} {}\n", crc32c::crc32c(json), String::from_utf8_lossy(json)),
    )
    .unwrap();
    let refused = open(dir.path()).append(&of, event(1, "a", ""), FILE_BYTES_MIN).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason), (ErrorKind::Data, "events"), "{refused}");
}

#[tokio::test]
async fn events_are_found_by_time_and_tags() {
    let dir = tempfile::tempdir().unwrap();
    let (events, of) = (open(dir.path()), tenant("a"));
    for (when_ms, tags) in [(30, "web"), (10, "web eu"), (20, "eu,x,"), (40, "")] {
        events.append(&of, event(when_ms, "x", tags), FILE_BYTES_MIN).await.unwrap();
    }
    let check = |range: std::ops::RangeInclusive<i64>, tags: &str, set, expected: &[i64]| {
        let tags: Vec<_> = tags.split_ascii_whitespace().collect();
        let query = EventQuery { from_ms: *range.start(), until_ms: *range.end(), tags: &tags, set };
        let times: Vec<_> =
            matching(&events, &of, &query).into_iter().map(|(_, when_ms, ..)| when_ms).collect();
        assert_eq!(times, expected, "{query:?}");
    };
    check(0..=100, "", TagSet::All, &[30, 10, 20, 40]);
    check(0..=100, "", TagSet::Any, &[30, 10, 20, 40]);
    check(11..=39, "", TagSet::All, &[30, 20]);
    check(10..=30, "web", TagSet::All, &[30, 10]);
    check(0..=100, "web eu", TagSet::All, &[10]);
    check(0..=100, "eu eu", TagSet::All, &[10, 20]);
    check(0..=100, "web eu", TagSet::Any, &[30, 10, 20]);
    check(0..=100, "eu x", TagSet::All, &[20]);
    check(0..=100, "eu,x,", TagSet::Any, &[]);
    check(0..=100, "web none", TagSet::All, &[]);
    check(0..=100, "we none", TagSet::Any, &[]);
}

#[tokio::test]
async fn tags_are_compared_as_sets() {
    let (mut rng, dir, of) = (Rng::announced(), tempfile::tempdir().unwrap(), tenant("a"));
    let events = open(dir.path());
    let names = ["a", "aa", "ab", "b", "ba", "é"];
    let some = |rng: &mut Rng| {
        let count = rng.below(5);
        (0..count).map(|_| names[rng.below(6) as usize]).collect::<Vec<_>>()
    };
    let mut stored = Vec::new();
    for when_ms in 0..60 {
        let tags = some(&mut rng);
        events.append(&of, event(when_ms, "x", &tags.join(" ")), FILE_BYTES_MIN).await.unwrap();
        stored.push((when_ms, tags));
    }
    for _ in 0..200 {
        let (wanted, set) = (some(&mut rng), if rng.chance(0.5) { TagSet::All } else { TagSet::Any });
        let query = EventQuery { from_ms: 0, until_ms: 100, tags: &wanted, set };
        let has = |own: &Vec<&str>| match set {
            TagSet::All => wanted.iter().all(|tag| own.contains(tag)),
            TagSet::Any => wanted.is_empty() || wanted.iter().any(|tag| own.contains(tag)),
        };
        let expected: Vec<_> =
            stored.iter().filter(|(_, own)| has(own)).map(|(when_ms, _)| *when_ms).collect();
        let times: Vec<_> =
            matching(&events, &of, &query).into_iter().map(|(_, when_ms, ..)| when_ms).collect();
        assert_eq!(times, expected, "{query:?}");
    }
}

/// Is set once it was asked more than a certain number of times.
#[derive(Debug)]
struct SetAfter(AtomicU64);

impl Interrupt for SetAfter {
    fn is_set(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

/// Events that were stored before the tags of an event were limited can have very many.
#[test]
fn a_request_can_be_canceled_within_one_event_and_has_few_tags() {
    let (dir, of) = (tempfile::tempdir().unwrap(), tenant("a"));
    let tags = "a ".repeat(32_000);
    let record =
        Record { id: 1, when_ms: 5, what: "x".into(), tags: tags.trim_end().into(), data: "".into() };
    fs::create_dir(dir.path().join("events")).unwrap();
    fs::write(file_of(dir.path(), &of), [file::header(1), file::encode(&record)].concat()).unwrap();
    let events = open(dir.path());
    let names: Vec<_> = (0..=TAGS_MAX).map(|number| format!("b{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for set in [TagSet::All, TagSet::Any] {
        let find = |tags: &[&str], asked| {
            let query = EventQuery { from_ms: 0, until_ms: 9, tags, set };
            let mut count = 0;
            events.find(&of, &query, &SetAfter(AtomicU64::new(asked)), |_, _| {
                count += 1;
                Ok(())
            })?;
            Ok::<_, EventsError>(count)
        };
        assert_eq!(find(&["a"], 1000).unwrap(), 1);
        assert_eq!(find(&names[1..], 1000).unwrap(), 0);
        let canceled = find(&names[1..], 10);
        assert!(matches!(canceled, Err(EventsError::Canceled)), "{canceled:?}");
        let refused = find(&names, 1000).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
}

/// Writes, restarts, ends of files that a crash has torn, and deletes, in random order.
#[tokio::test]
async fn acknowledged_events_survive_restarts() {
    let (mut rng, dir) = (Rng::announced(), tempfile::tempdir().unwrap());
    let of = [tenant("a"), tenant("a.b"), tenant("a.events")];
    let mut events = open(dir.path());
    let mut model: HashMap<TenantId, Vec<Found>> = HashMap::new();
    for step in 0..300 {
        let of = &of[rng.below(3) as usize];
        let expected = model.entry(of.clone()).or_default();
        match rng.below(10) {
            0 => {
                events.delete(of).await.unwrap();
                assert!(!file_of(dir.path(), of).exists());
                expected.clear();
            }
            1..3 => {
                let file = file_of(dir.path(), of);
                if let Ok(mut bytes) = fs::read(&file) {
                    let record = Record {
                        id: 1_000_000,
                        when_ms: 5,
                        what: "torn".into(),
                        tags: "".into(),
                        data: "".into(),
                    };
                    let mut torn = file::encode(&record);
                    torn.truncate(rng.below(torn.len() as u64) as usize);
                    if rng.chance(0.3) {
                        torn.fill(0); // the file has its new length, but the bytes were not written
                    }
                    bytes.extend(torn);
                    fs::write(file, bytes).unwrap();
                }
                events = open(dir.path());
            }
            _ => {
                let new = event(rng.below(1000) as i64, &format!("step {step}"), "a b");
                let id = events.append(of, new.clone(), FILE_BYTES_MIN).await.unwrap();
                assert!(expected.last().is_none_or(|(last, ..)| *last + 1 == id), "{id}");
                expected.push((id, new.when_ms, new.what, new.tags, new.data));
            }
        }
        assert_eq!(&found(&events, of), expected, "step {step}");
        let stored = fs::metadata(file_of(dir.path(), of)).map_or(0, |file| file.len());
        assert!(events.file_bytes(of).0 <= stored);
    }
}

#[tokio::test]
async fn the_oldest_events_leave_a_full_file() {
    let (mut rng, dir, of) = (Rng::announced(), tempfile::tempdir().unwrap(), tenant("a"));
    let events = open(dir.path());
    for number in 1..=600_u64 {
        let what = "x".repeat(rng.below(3000) as usize);
        let id = events.append(&of, event(rng.below(9) as i64, &what, ""), FILE_BYTES_MIN).await.unwrap();
        assert_eq!(id, number, "ids of removed events are not used again");
        let bytes = fs::metadata(file_of(dir.path(), &of)).unwrap().len();
        assert!(bytes <= FILE_BYTES_MIN && events.file_bytes(&of).0 == bytes, "{bytes} bytes");
        if number % 50 == 0 {
            let ids: Vec<_> = found(&events, &of).into_iter().map(|(id, ..)| id).collect();
            assert_eq!(ids, (number + 1 - ids.len() as u64..=number).collect::<Vec<_>>());
            assert!(ids.len() == number as usize || ids.len() as u64 * 1500 > FILE_BYTES_MIN / 2);
        }
    }
    let large = Event { data: "\u{1}".repeat(30_000), ..event(1, "x", "") };
    let refused = events.append(&of, large, FILE_BYTES_MIN).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason), (ErrorKind::TooLarge, "body_size"), "{refused}");
    let last = events.append(&of, event(2, "last", ""), FILE_BYTES_MIN).await.unwrap();
    assert_eq!(found(&events, &of).last().unwrap().0, last);
}

#[tokio::test]
async fn expired_events_are_removed_and_their_ids_are_not_used_again() {
    let (dir, of) = (tempfile::tempdir().unwrap(), tenant("a"));
    let events = open(dir.path());
    for when_ms in [10, 30, 20] {
        events.append(&of, event(when_ms, "x", ""), FILE_BYTES_MIN).await.unwrap();
    }
    let ids = |events: &Events| found(events, &of).into_iter().map(|(id, ..)| id).collect::<Vec<_>>();
    events.expire(&of, 20).unwrap();
    assert_eq!(ids(&events), [2, 3]);
    let events = open(dir.path());
    assert_eq!(events.tenants(), std::slice::from_ref(&of));
    events.expire(&of, i64::MIN).unwrap();
    assert_eq!(ids(&events), [2, 3]);
    events.expire(&of, 31).unwrap();
    assert_eq!(ids(&events), Vec::<u64>::new());
    let events = open(dir.path());
    assert_eq!(events.append(&of, event(5, "x", ""), FILE_BYTES_MIN).await.unwrap(), 4);
}

/// Otherwise, each event that is older than the retention would have the whole file rewritten.
#[tokio::test]
async fn expired_events_are_removed_once_an_hour() {
    const HOUR_MS: i64 = 3_600_000;
    let (dir, of) = (tempfile::tempdir().unwrap(), tenant("a"));
    let events = open(dir.path());
    let ids = || found(&events, &of).into_iter().map(|(id, ..)| id).collect::<Vec<_>>();
    let first_ms = 100 * HOUR_MS;
    for when_ms in [first_ms - 1, 200 * HOUR_MS] {
        events.append(&of, event(when_ms, "x", ""), FILE_BYTES_MIN).await.unwrap();
    }
    events.expire(&of, first_ms).unwrap();
    assert_eq!(ids(), [2]);
    events.append(&of, event(5, "x", ""), FILE_BYTES_MIN).await.unwrap();
    for (before_ms, expected) in
        [(first_ms + 1, &[2, 3][..]), (first_ms + HOUR_MS - 1, &[2, 3]), (first_ms + HOUR_MS, &[2])]
    {
        events.expire(&of, before_ms).unwrap();
        assert_eq!(ids(), expected, "{before_ms}");
    }
    // the retention becomes longer
    events.append(&of, event(5, "x", ""), FILE_BYTES_MIN).await.unwrap();
    events.expire(&of, 6).unwrap();
    assert_eq!(ids(), [2]);
}

/// Each tenant with a file takes memory, so their number is limited by it.
#[tokio::test]
async fn tenants_beyond_the_memory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let account = Account::new("events", 2 * TENANT_BYTES);
    let events = Events::open(Arc::new(Os), dir.path(), account.clone(), &Registry::new());
    for name in ["a", "b"] {
        events.append(&tenant(name), event(1, "x", ""), FILE_BYTES_MIN).await.unwrap();
    }
    let refused = events.append(&tenant("c"), event(1, "x", ""), FILE_BYTES_MIN).await.unwrap_err();
    assert_eq!((refused.kind, refused.reason), (ErrorKind::Unavailable, "memory"), "{refused}");
    events.delete(&tenant("a")).await.unwrap();
    events.append(&tenant("c"), event(1, "x", ""), FILE_BYTES_MIN).await.unwrap();
    assert_eq!(account.used_bytes(), 2 * TENANT_BYTES);
    assert_eq!(found(&events, &tenant("a")), []);
}

/// Events that are refused, or whose senders are gone, take no memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_without_a_file_takes_no_memory() {
    let (mut rng, dir) = (Rng::announced(), tempfile::tempdir().unwrap());
    let account = Account::new("events", 2 * TENANT_BYTES);
    let events = Arc::new(Events::open(Arc::new(Os), dir.path(), account.clone(), &Registry::new()));
    let large = || Event { data: "\u{1}".repeat(30_000), ..event(1, "x", "") };
    for number in 0..5 {
        let refused =
            events.append(&tenant(&format!("t{number}")), large(), FILE_BYTES_MIN).await.unwrap_err();
        assert_eq!(refused.reason, "body_size", "{refused}");
        assert_eq!((account.used_bytes(), events.tenants().len()), (0, 0));
    }
    // several users of one log, some of whom disappear at any time
    for round in 0..50 {
        let of = tenant(&format!("u{round}"));
        let work = (0..4).map(|_| {
            let (events, of, large) = (Arc::clone(&events), of.clone(), large());
            tokio::spawn(async move { events.append(&of, large, FILE_BYTES_MIN).await })
        });
        for work in work.collect::<Vec<_>>() {
            if rng.chance(0.5) {
                tokio::task::yield_now().await;
                work.abort();
            }
            let _ = work.await;
        }
        let is_free = async {
            while account.used_bytes() > 0 {
                tokio::task::yield_now().await; // until the work of canceled requests has ended
            }
        };
        tokio::time::timeout(Duration::from_secs(60), is_free).await.expect("an entry was left");
    }
    events.append(&tenant("a"), event(1, "x", ""), FILE_BYTES_MIN).await.unwrap();
    assert_eq!(account.used_bytes(), TENANT_BYTES);
    // a refused event of a tenant with a file leaves its entry
    events.append(&tenant("a"), large(), FILE_BYTES_MIN).await.unwrap_err();
    assert_eq!((account.used_bytes(), events.tenants()), (TENANT_BYTES, vec![tenant("a")]));
    // whether an append is before or after a delete, a tenant with a file has an entry
    for _ in 0..50 {
        let (of, name) = (Arc::clone(&events), tenant("b"));
        let append = tokio::spawn(async move { of.append(&name, event(1, "x", ""), FILE_BYTES_MIN).await });
        events.delete(&tenant("b")).await.unwrap();
        append.await.unwrap().unwrap();
        assert_eq!(file_of(dir.path(), &tenant("b")).exists(), events.tenants().contains(&tenant("b")));
    }
}
