use super::*;
use model::TenantId;
use stdx::clock::ManualClock;

fn texts(list: &RunningQueries, tenant: Option<&str>) -> serde_json::Value {
    let mut json = Json::new();
    list.write(&mut json, |description| {
        tenant.is_none_or(|tenant| description.tenants.to_string() == tenant)
    });
    serde_json::from_str(&json.text()).expect("valid JSON")
}

#[test]
fn a_query_is_listed_until_its_entry_is_dropped() {
    let clock = Arc::new(ManualClock::at(1_000));
    let list = Arc::new(RunningQueries::new(Arc::clone(&clock) as _));
    let mine = list.begin(Description::for_test());
    let tenant = TenantId::parse("b").unwrap();
    let other = list.begin(Description { tenants: tenant.into(), ..Description::for_test() });
    assert_eq!(texts(&list, None), serde_json::json!([]), "neither has passed its gate");
    let entries = [list.enter(&mine), list.enter(&other)];
    clock.advance(2_500);
    other.run(list.age(&other));
    other.usage.read(7);
    let expected = |query: &RunningQuery, tenant: &str, state: &str, samples: u64| {
        serde_json::json!({
            "id": query.id.to_string(), "state": state, "tenant": tenant, "client": "0.0.0.0:0",
            "path": "/api/v1/query", "query": "up", "start": 1.5, "end": 1.5, "age_seconds": 2.5,
            "memory_bytes": 0, "peak_memory_bytes": 0, "samples": samples,
        })
    };
    let (first, second) = (expected(&mine, "anonymous", "waiting", 0), expected(&other, "b", "running", 7));
    assert_eq!(texts(&list, None), serde_json::json!([first, second]));
    assert_eq!(texts(&list, Some("b")), serde_json::json!([second]));
    list.find(other.id).unwrap().cancel();
    assert_eq!(texts(&list, Some("b"))[0]["state"], "canceled");
    assert!(other.is_set() && !mine.is_set());
    drop(entries);
    assert_eq!(texts(&list, None), serde_json::json!([]));
    assert!(list.find(other.id).is_none());
}

#[test]
fn ids_of_an_earlier_process_name_no_query() {
    let list = |now_ms| RunningQueries::new(Arc::new(ManualClock::at(now_ms)));
    let id = |list: &RunningQueries| list.begin(Description::for_test()).id;
    let before = list(1_795_284_000_000);
    let last = (0..1000).map(|_| id(&before)).last().unwrap();
    let after = id(&list(1_795_284_000_001));
    assert!(after > last);
    assert_eq!(QueryId::parse(&after.to_string()), Some(after));
    for bad in ["", "x", "-1", "10000000000000000"] {
        assert_eq!(QueryId::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_listed_text_is_cut_at_a_character() {
    let text = "é".repeat(10_000);
    let description = Description { text: text.as_str().into(), ..Description::for_test() };
    let short = description.short_text();
    assert!(short.len() < 4200 && text.starts_with(short.trim_end_matches('…')), "{}", short.len());
}
