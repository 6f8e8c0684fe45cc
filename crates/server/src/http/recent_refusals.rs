//! Recently refused requests, grouped by tenant, reason and metric.
//!
//! Each group has a count and the latest few examples. From the fourth refusal of a group on, an example is taken at most once a
//! second, so that floods of refusals cost little.

use super::App;
use super::error::ApiError;
use super::json::Json;
use super::principal::{AdminReach, ReadTenant};
use super::queries::admission::answers_of;
use axum::extract::State;
use model::TenantId;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::budget::Account;
use stdx::clock::Clock;

/// Limit on the tenants with data whose refusals are remembered. Beyond it, the tenant whose last refusal was longest
/// ago is forgotten.
const TENANTS_MAX: usize = 64;

/// The same limit for tenants without data. It is separate, because anybody can invent their names.
const WITHOUT_DATA_MAX: usize = 16;

/// Limit on the groups of a tenant. Beyond it, a group of the reason that has the most groups is forgotten: the one whose last refusal
/// was longest ago. So a flood with one reason and many metrics does not displace the other reasons.
const GROUPS_MAX: usize = 8;

/// Limit on the examples of a group besides the latest.
const EARLIER_MAX: usize = 2;

const TEXT_BYTES_MAX: usize = 256;
const EARLIER_TEXT_BYTES_MAX: usize = 128;

/// Maximum memory of all groups. It is part of
/// [`Budget::spare_bytes`](crate::limits::budget::Budget::spare_bytes).
const BYTES_MAX: usize =
    (TENANTS_MAX + WITHOUT_DATA_MAX) * GROUPS_MAX * (size_of::<Group>() + TEXTS_BYTES_MAX);
const TEXTS_BYTES_MAX: usize =
    4 * TEXT_BYTES_MAX + EARLIER_MAX * (size_of::<Earlier>() + EARLIER_TEXT_BYTES_MAX);

const _: () = assert!(BYTES_MAX < 1 << 20);

const EXAMPLE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Refused<'a> {
    /// `None` if the caller was not identified, or if the route is not for tenants.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) reason: &'static str,
    /// `None` if the protocol has no answers.
    pub(crate) status: Option<u16>,
    /// It is formatted only if it becomes an example.
    pub(crate) message: fmt::Arguments<'a>,
    /// Refusals with the same reason and metric are a group. Empty if the request was refused before a series was decoded,
    /// or if each series of the protocol has a name of its own.
    pub(crate) metric: &'a str,
    /// Labels of one of the refused series. Empty if the request was refused before a series was decoded.
    pub(crate) series: &'a str,
    pub(crate) address: Option<IpAddr>,
    pub(crate) user_agent: &'a str,
}

/// One of the refused requests in a group, with texts cut to [`TEXT_BYTES_MAX`].
#[derive(Debug)]
struct Example {
    status: Option<u16>,
    message: Box<str>,
    series: Box<str>,
    address: Option<IpAddr>,
    user_agent: Box<str>,
}

impl Example {
    fn new(refused: &Refused<'_>) -> Self {
        Self {
            status: refused.status,
            message: beginning(&refused.message.to_string()),
            series: beginning(refused.series),
            address: refused.address,
            user_agent: beginning(refused.user_agent),
        }
    }
}

/// What is left of an example when there is a later one.
#[derive(Debug)]
struct Earlier {
    /// The series, or the message if there is no series.
    text: Box<str>,
    is_series: bool,
    address: Option<IpAddr>,
}

impl Earlier {
    fn of(example: &Example) -> Self {
        let is_series = !example.series.is_empty();
        let text = if is_series { &example.series } else { &example.message };
        Self { text: cut(text, EARLIER_TEXT_BYTES_MAX).into(), is_series, address: example.address }
    }

    fn is_like(&self, example: &Example) -> bool {
        let Self { text, is_series, address } = Self::of(example);
        (&text, is_series, address) == (&self.text, self.is_series, self.address)
    }

    fn write(&self, json: &mut Json) {
        json.raw(if self.is_series { r#"{"series":"# } else { r#"{"message":"# });
        json.string(&self.text);
        if let Some(address) = self.address {
            json.raw(&format!(r#","sender":"{address}""#));
        }
        json.raw("}");
    }
}

/// Refused requests of one tenant with the same reason and metric.
#[derive(Debug)]
struct Group {
    reason: &'static str,
    /// Empty if no series was decoded.
    metric: Box<str>,
    count: u64,
    first_ms: i64,
    last_ms: i64,
    last: Instant,
    example: Example,
    example_at: Instant,
    /// Other examples, the latest first.
    earlier: Vec<Earlier>,
}

impl Group {
    /// Counts a refusal, and takes it as the example unless there were enough of them within the last second.
    fn add(&mut self, refused: &Refused<'_>, now: Instant, now_ms: i64) {
        (self.count, self.last, self.last_ms) = (self.count + 1, now, now_ms);
        let is_enough = self.count > 1 + EARLIER_MAX as u64;
        if is_enough && now.saturating_duration_since(self.example_at) < EXAMPLE_EVERY {
            return;
        }
        let latest = Example::new(refused);
        let before = Earlier::of(&std::mem::replace(&mut self.example, latest));
        self.example_at = now;
        self.earlier.retain(|earlier| !earlier.is_like(&self.example));
        if !before.is_like(&self.example) {
            self.earlier.truncate(EARLIER_MAX - 1);
            self.earlier.insert(0, before);
        }
    }

    fn write(&self, json: &mut Json, tenant: Option<&TenantId>) {
        json.raw("{");
        if let Some(tenant) = tenant {
            json.raw(r#""tenant":"#);
            json.string(tenant.as_str());
            json.raw(",");
        }
        json.raw(r#""reason":"#);
        json.string(self.reason);
        for (name, text) in [
            ("metric", &*self.metric),
            ("series", &self.example.series),
            ("message", &self.example.message),
            ("sender", &self.example.address.map_or_else(String::new, |address| address.to_string())),
            ("user_agent", &self.example.user_agent),
        ] {
            if !text.is_empty() {
                json.raw(&format!(r#","{name}":"#));
                json.string(text);
            }
        }
        if let Some(status) = self.example.status {
            json.raw(&format!(r#","status":{status}"#));
        }
        for (i, earlier) in self.earlier.iter().enumerate() {
            json.raw(if i == 0 { r#","earlier":["# } else { "," });
            earlier.write(json);
        }
        if !self.earlier.is_empty() {
            json.raw("]");
        }
        let Self { count, first_ms, last_ms, .. } = self;
        json.raw(&format!(r#","count":{count},"first_ms":{first_ms},"last_ms":{last_ms}}}"#));
    }
}

#[derive(Debug)]
struct OfTenant {
    has_data: bool,
    asked_at: Instant,
    groups: Vec<Group>,
}

#[derive(Debug)]
pub(crate) struct RecentRefusals {
    clock: Arc<dyn Clock>,
    of_tenants: Mutex<HashMap<Option<TenantId>, OfTenant>>,
}

/// Forgets the tenant whose last refusal was longest ago, if there is no room for another one.
fn make_room(of_tenants: &mut HashMap<Option<TenantId>, OfTenant>, has_data: bool) {
    let max = if has_data { TENANTS_MAX } else { WITHOUT_DATA_MAX };
    let rivals = || of_tenants.iter().filter(move |(_, own)| own.has_data == has_data);
    if rivals().count() < max {
        return;
    }
    let last = |own: &OfTenant| own.groups.iter().map(|group| group.last).max();
    let oldest = rivals().min_by_key(|(_, own)| last(own)).map(|(id, _)| id.clone());
    oldest.map(|id| of_tenants.remove(&id));
}

impl RecentRefusals {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, of_tenants: Mutex::default() }
    }

    /// `has_data` tells whether the tenant has data. This is asked at most once a second for a tenant without data, because
    /// it may have to wait for writes.
    pub(crate) fn add(&self, refused: &Refused<'_>, has_data: impl FnOnce() -> bool) {
        let (now, now_ms) = (self.clock.instant(), self.clock.now_ms());
        let metric = cut(refused.metric, TEXT_BYTES_MAX);
        let is_certain =
            |own: &OfTenant| own.has_data || now.saturating_duration_since(own.asked_at) < EXAMPLE_EVERY;
        let is_known = self.of_tenants.lock().get(&refused.tenant).is_some_and(is_certain);
        let asked = (!is_known).then(has_data); // without the lock
        let mut of_tenants = self.of_tenants.lock();
        if let Some(has_data) = asked {
            let groups = of_tenants.remove(&refused.tenant).map_or_else(Vec::new, |own| own.groups);
            make_room(&mut of_tenants, has_data);
            of_tenants.insert(refused.tenant.clone(), OfTenant { has_data, asked_at: now, groups });
        }
        let Some(OfTenant { groups, .. }) = of_tenants.get_mut(&refused.tenant) else { return };
        let is_same = |group: &&mut Group| group.reason == refused.reason && &*group.metric == metric;
        if let Some(group) = groups.iter_mut().find(is_same) {
            return group.add(refused, now, now_ms);
        }
        if groups.len() >= GROUPS_MAX {
            let of_reason = |reason| groups.iter().filter(|group| group.reason == reason).count();
            let place =
                (0..groups.len()).min_by_key(|&i| (Reverse(of_reason(groups[i].reason)), groups[i].last));
            place.map(|i| groups.swap_remove(i));
        }
        groups.push(Group {
            reason: refused.reason,
            metric: metric.into(),
            count: 1,
            first_ms: now_ms,
            last_ms: now_ms,
            last: now,
            example: Example::new(refused),
            example_at: now,
            earlier: Vec::with_capacity(EARLIER_MAX),
        });
    }

    /// Writes the groups of the tenants that are `wanted`, with their names if `is_named`. `None` stands for refusals that
    /// could not be attributed to a tenant. The group with the most recent refusal comes first.
    fn write(&self, json: &mut Json, is_named: bool, wanted: impl Fn(Option<&TenantId>) -> bool) {
        let of_tenants = self.of_tenants.lock();
        let wanted = of_tenants.iter().filter(|(id, _)| wanted(id.as_ref()));
        let mut groups: Vec<_> =
            wanted.flat_map(|(id, own)| own.groups.iter().map(move |group| (group, id))).collect();
        groups.sort_by_key(|(group, _)| Reverse(group.last));
        json.raw("[");
        for (i, (group, id)) in groups.into_iter().enumerate() {
            json.comma(i);
            group.write(json, id.as_ref().filter(|_| is_named));
        }
        json.raw("]");
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn beginning(text: &str) -> Box<str> {
    cut(text.trim_end(), TEXT_BYTES_MAX).into()
}

/// The metric of a series, of which the text is `metric{labels}`.
pub(crate) fn metric_of(series: &str) -> &str {
    series.split('{').next().unwrap_or_default()
}

pub(super) async fn of_tenant(
    State(app): State<App>,
    ReadTenant(tenant): ReadTenant,
) -> Result<Json, ApiError> {
    list(&app, &answers_of(&app, &tenant), false, |id| id == Some(&tenant))
}

/// Lists refused requests of all tenants that the operator may see. An operator of the whole node also sees those that
/// could not be attributed to a tenant.
pub(super) async fn of_all(State(app): State<App>, AdminReach(reach): AdminReach) -> Result<Json, ApiError> {
    let answers = &app.node.reads().answers;
    list(&app, answers, true, |id| id.map_or_else(|| reach.is_everything(), |tenant| reach.includes(tenant)))
}

fn list(
    app: &App,
    answers: &Account,
    is_named: bool,
    wanted: impl Fn(Option<&TenantId>) -> bool,
) -> Result<Json, ApiError> {
    let mut json = Json::within(answers);
    json.raw(r#"{"status":"success","data":"#);
    app.recent_refusals.write(&mut json, is_named, wanted);
    json.raw("}");
    Ok(json.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use stdx::clock::ManualClock;

    fn tenant(number: usize) -> Option<TenantId> {
        Some(TenantId::parse(&format!("t{number}")).unwrap())
    }

    fn refused(tenant: Option<TenantId>, series: &str) -> Refused<'_> {
        let address = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
        let (message, user_agent) = (format_args!("too many"), "Prometheus/3");
        let (reason, status, metric) = ("active_series", Some(429), metric_of(series));
        Refused { tenant, reason, status, message, metric, series, address, user_agent }
    }

    fn listed(recent: &RecentRefusals, of: Option<&TenantId>) -> serde_json::Value {
        let mut json = Json::new();
        recent.write(&mut json, of.is_none(), |id| of.is_none() || id == of);
        serde_json::from_slice(&json.into_bytes()).unwrap()
    }

    #[test]
    fn refusals_are_counted_by_reason_and_metric_with_an_example() {
        let clock = Arc::new(ManualClock::at(1_000));
        let recent = RecentRefusals::new(Arc::<ManualClock>::clone(&clock));
        recent.add(&refused(tenant(1), r#"up{job="a"}"#), || true);
        recent.add(&refused(tenant(1), r#"up{job="b"}"#), || true);
        clock.advance(2_000);
        recent.add(&refused(tenant(1), r#"up{job="c"}"#), || true);
        recent.add(&refused(tenant(1), ""), || true);
        recent.add(&refused(tenant(2), r#"secret{job="a"}"#), || true);
        let all = listed(&recent, tenant(1).as_ref());
        assert_eq!(all.as_array().unwrap().len(), 2, "nothing of other tenants: {all}");
        let up = all.as_array().unwrap().iter().find(|group| group["metric"] == "up").unwrap();
        let expected = serde_json::json!({
            "reason": "active_series", "metric": "up", "series": r#"up{job="c"}"#, "message": "too many",
            "sender": "127.0.0.1", "user_agent": "Prometheus/3",
            "earlier": [{"series": r#"up{job="b"}"#, "sender": "127.0.0.1"}, {"series": r#"up{job="a"}"#, "sender": "127.0.0.1"}],
            "status": 429, "count": 3, "first_ms": 1_000, "last_ms": 3_000,
        });
        assert_eq!(up, &expected);
        assert_eq!(listed(&recent, None).as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_group_has_a_few_different_examples() {
        let clock = Arc::new(ManualClock::at(0));
        let recent = RecentRefusals::new(Arc::<ManualClock>::clone(&clock));
        let check = |series: &str, expected: [&str; 3]| {
            recent.add(&Refused { metric: "", ..refused(tenant(1), series) }, || true);
            let all = listed(&recent, tenant(1).as_ref());
            assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
            let (earlier, series) = (&all[0]["earlier"], |group: &serde_json::Value| group["series"].clone());
            assert_eq!(
                [series(&all[0]), series(&earlier[0]), series(&earlier[1])]
                    .map(|s| s.as_str().unwrap_or("").to_owned()),
                expected
            );
        };
        check("a", ["a", "", ""]);
        check("a", ["a", "", ""]);
        check("b", ["b", "a", ""]);
        check("c", ["b", "a", ""]); // within the same second
        for (series, expected) in [("c", ["c", "b", "a"]), ("b", ["b", "c", "a"]), ("d", ["d", "b", "c"])] {
            clock.advance(1_000);
            check(series, expected);
            check("within the same second", expected);
        }
    }

    #[test]
    fn a_flood_with_one_reason_does_not_displace_the_others() {
        let clock = Arc::new(ManualClock::at(0));
        let recent = RecentRefusals::new(Arc::<ManualClock>::clone(&clock));
        let add = |reason, metric: &str| {
            clock.advance(1);
            recent.add(&Refused { reason, metric, ..refused(tenant(1), metric) }, || true);
        };
        add("decode", "");
        add("samples_rate", "up");
        (0..100).for_each(|i| add("active_series", &format!("new.{i}")));
        let all = listed(&recent, tenant(1).as_ref());
        let reasons: Vec<_> =
            all.as_array().unwrap().iter().map(|group| group["reason"].as_str().unwrap()).collect();
        assert_eq!(reasons.len(), GROUPS_MAX, "{all}");
        assert_eq!(&reasons[GROUPS_MAX - 2..], ["samples_rate", "decode"], "{all}");
        assert_eq!(all[0]["metric"], "new.99");
    }

    #[test]
    fn floods_of_tenants_metrics_and_long_texts_take_bounded_memory() {
        let clock = Arc::new(ManualClock::at(0));
        let recent = RecentRefusals::new(Arc::<ManualClock>::clone(&clock));
        let long = "é".repeat(10_000);
        for number in 0..1_000 {
            clock.advance(1);
            recent.add(&refused(tenant(number / 10), &format!("m{number}{long}")), || true);
        }
        let all = listed(&recent, None);
        assert_eq!(all.as_array().unwrap().len(), TENANTS_MAX * GROUPS_MAX);
        assert!(all.to_string().len() < BYTES_MAX, "{}", all.to_string().len());
        let latest = all[0]["metric"].as_str().unwrap();
        assert!(latest.starts_with("m999") && latest.len() <= TEXT_BYTES_MAX, "{latest}");
        assert!(listed(&recent, tenant(0).as_ref()).as_array().unwrap().is_empty(), "forgotten");
        // invented names displace only each other
        let before = listed(&recent, tenant(99).as_ref());
        for number in 100..1_000 {
            clock.advance(1);
            recent.add(&refused(tenant(number), ""), || false);
        }
        let all = listed(&recent, None);
        assert_eq!(all.as_array().unwrap().len(), TENANTS_MAX * GROUPS_MAX + WITHOUT_DATA_MAX);
        assert_eq!(listed(&recent, tenant(99).as_ref()), before);
        clock.advance(1_000);
        recent.add(&refused(tenant(999), ""), || true);
        assert_eq!(listed(&recent, tenant(999).as_ref())[0]["count"], 2, "kept when it gets data");
    }
}
