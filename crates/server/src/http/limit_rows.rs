//! Lists limits with their value, origin, reason and current use.

use super::json::Json;
use super::{App, QUERIES_WAITING};
use crate::limits::budget::{AUTH_BYTES_MAX, EXPORTS_MAX, EXPORTS_MIN};
use crate::limits::gate::Gate;
use crate::limits::tenant_usage::{Mean, Peak, Peaks};
use crate::listen::PendingHandshakes;
use crate::settings::{EffectiveSetting, Origin, SETTINGS, Setting, Settings, Takes, TenantLimits, Tenants};
use crate::telemetry::accounts;
use admission::gate;
use admission::watermarks::{FAIR, REFUSE_ABOVE_SHARE};
use model::TenantId;
use serde_json::Value;
use stdx::units;

/// Memory of a sample that a query holds.
const SAMPLE_BYTES: u64 = 16;

const HANDSHAKES: &str = "TLS handshakes in progress";
const GRPC_HANDSHAKES: &str = "TLS handshakes of gRPC in progress";

/// The value of a limit as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    At(u64),
    Unlimited,
    /// The value is no size and no count.
    NoNumber,
}

impl Limit {
    fn of(setting: &Setting, value: &Value) -> Self {
        let number = match setting.takes {
            Takes::Size => value.as_str().and_then(units::bytes),
            Takes::Count => value.as_u64(),
            _ => return Self::NoNumber,
        };
        number.into()
    }
}

impl From<Option<u64>> for Limit {
    fn from(limit: Option<u64>) -> Self {
        limit.map_or(Self::Unlimited, Self::At)
    }
}

/// A limit and its use. Sizes are in bytes.
#[derive(Debug)]
pub(super) struct Row {
    name: String,
    /// The value as JSON, as it is written in files.
    value: String,
    limit: Limit,
    /// Where the value comes from, such as a default or a file, with details such as the file's name.
    origin: (&'static str, Option<String>),
    bounds: Option<String>,
    reason: String,
    used: Option<u64>,
    peak: Option<u64>,
}

fn setting(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key).copied()
}

pub(super) fn of_tenant(app: &App, tenant: &TenantId) -> Vec<Row> {
    let settings = app.node.overrides().current();
    let rows = settings.explain(tenant).map(|EffectiveSetting { key, value, origin }| {
        let (used, peak) = used_by(app, tenant, &key);
        let declared = setting(&key).expect("BUG: a setting in effect is not declared");
        Row {
            limit: Limit::of(declared, &value),
            value: value.to_string(),
            origin: (origin.kind(), origin.detail()),
            bounds: declared.bounds_text(),
            reason: sentences(declared.about, declared.why),
            used,
            peak,
            name: key,
        }
    });
    rows.chain(shares(app, tenant)).chain(waiting(app, tenant)).collect()
}

fn waiting(app: &App, tenant: &TenantId) -> Option<Row> {
    let writes = app.node.writes();
    let waiting = writes.tenants.get(tenant)?.waiting(writes.clock.instant());
    Some(Row {
        name: "new series that wait".to_owned(),
        value: r#""none""#.to_owned(),
        limit: Limit::Unlimited,
        origin: ("in effect", None),
        bounds: None,
        reason: format!(
            "New series left out for now (503). Their senders are expected to repeat the request. The longest wait is {} s",
            waiting.longest.as_secs()
        ),
        used: Some(waiting.series),
        peak: None,
    })
}

/// Returns how much of the limit `key` the tenant uses now, and the peak since the tenant was loaded. `None`
/// for what is not counted.
fn used_by(app: &App, tenant: &TenantId, key: &str) -> (Option<u64>, Option<u64>) {
    let writes = app.node.writes();
    let of_tables = writes.lake.tables.usage(tenant);
    let both = |used: u64, peak: u64| (Some(used), Some(peak.max(used)));
    match key {
        "disk_bytes" => return both(of_tables.bytes, of_tables.bytes_peak),
        "events_bytes" => {
            let (bytes, peak) = app.node.reads().events.file_bytes(tenant);
            return both(bytes, peak);
        }
        "tenant_tables" => return both(of_tables.tables as u64, of_tables.tables_peak as u64),
        "streams" => {
            let known = &app.node.streams().shared.known;
            let (streams, peak) = (known.streams_of(tenant), known.peak_of(tenant));
            return (streams.map(|count| count as u64), peak.map(|count| count as u64));
        }
        _ => {}
    }
    let Some(state) = writes.tenants.get(tenant) else { return (None, None) };
    let settings = app.node.overrides().current();
    let peaks = &state.peaks;
    let rate = |number: usize| {
        let Mean { per_s, peak } = state.rates(writes.clock.instant())[number];
        both(per_s.round() as u64, peak.round() as u64)
    };
    let query_bytes = || (app.running.largest_bytes(tenant), peaks.query_bytes.get());
    match key {
        "active_series" => both(state.series(), state.series_peak()),
        "series_per_metric" => {
            let (used, peak) = series_of_metric(app, tenant);
            peaks.series_of_metric.note(peak);
            both(used, peaks.series_of_metric.get())
        }
        "samples_per_second" => rate(0),
        "requests_per_second" => rate(1),
        "bytes_per_second" => rate(2),
        "new_series_per_second" => rate(3),
        "concurrent_writes" => {
            // the limit applies to each gate
            let (known, creating) = writes.gates.inside_of(tenant);
            let peak = peaks.writes.get().max(peaks.creating.get());
            both(known.requests.max(creating.requests) as u64, peak)
        }
        "inflight_bytes" => {
            let account = state.inflight(settings.of(tenant));
            both(account.used_bytes(), account.peak_bytes())
        }
        "concurrent_queries" => both(app.queries.running_of(tenant) as u64, peaks.queries.get()),
        "query_memory" => {
            let (bytes, peak) = query_bytes();
            both(bytes, peak)
        }
        "query_samples" => {
            let (bytes, peak) = query_bytes();
            both(bytes / SAMPLE_BYTES, peak / SAMPLE_BYTES)
        }
        "ha_clusters" => {
            let replicas = state.replicas.lock();
            both(replicas.clusters() as u64, replicas.peak() as u64)
        }
        _ => (None, None),
    }
}

/// Number of series of the tenant's largest metric, and its peak. Each partition counts for itself, so both are too high if
/// partitions have different largest metrics.
fn series_of_metric(app: &App, tenant: &TenantId) -> (u64, u64) {
    let partitions = app.node.reads().partitions.iter();
    partitions.fold((0, 0), |(used, peak), partition| {
        let head = partition.head.read();
        let (largest, highest) = head.tenant(tenant).map_or((0, 0), head::TenantHead::largest_metric);
        (used + largest as u64, peak + highest as u64)
    })
}

/// Lists the tenant's shares of what all tenants use. They bind before limits that were derived from the whole; the
/// values ignore limits that were configured.
fn shares(app: &App, tenant: &TenantId) -> Vec<Row> {
    let (writes, settings) = (app.node.writes(), app.node.overrides().current());
    let own = settings.of(tenant);
    let weight = own.share_weight as u64;
    let row = |name: &str, share: Option<u64>, reason: String, used: u64, peak: Option<u64>| Row {
        name: format!("{name} (share)"),
        value: share.map_or_else(|| r#""none""#.to_owned(), |share| share.to_string()),
        limit: share.into(),
        origin: ("in effect", None),
        bounds: None,
        reason: format!("{reason}. Weight: {weight}"),
        used: Some(used),
        peak: peak.map(|peak| peak.max(used)),
    };
    let of_gate = |name: &str, gate: &Gate, peak: Option<u64>| {
        let (share, inside) = (gate.share_of(tenant, weight) as u64, gate.inside_of(tenant).requests as u64);
        let reason = format!(
            "Of {} places, others have {}; the tenant may have a multiple (times its weight) of what stays free",
            gate.limit(),
            gate.inside() as u64 - inside.min(gate.inside() as u64)
        );
        row(name, Some(share), reason, inside, peak)
    };
    let mut rows = Vec::new();
    if let Some(state) = writes.tenants.get(tenant) {
        let (limit_bytes, now) = (writes.heads.head().limit_bytes, writes.clock.instant());
        let (share_bytes, is_new) =
            writes.tenants.division(&settings, limit_bytes, now).share(&state, &settings, now);
        let whose = match is_new {
            true => "The tenant counts as new, and all new tenants together have a tenth of the head",
            false => "What other tenants do not use is divided among those that want more",
        };
        let reason = format!(
            "{whose}. A tenant above this share gets no writes when the head is {REFUSE_ABOVE_SHARE} % full. For new series, which stop \
             at {FAIR} %, memory besides heads, such as sums and records, is subtracted before the division. `none`: no other tenant has series"
        );
        let share = Some(share_bytes).filter(|bytes| *bytes < u64::MAX);
        let (bytes, peak) = (state.bytes(), state.peaks.head_bytes.get());
        rows.push(row("memory of head", share, reason, bytes, Some(peak)));
        let account = state.inflight(own);
        let (whole, used) = (account.whole(), account.used_bytes());
        let left = whole.limit_bytes().saturating_sub(whole.used_bytes().saturating_sub(used));
        let reason = "A multiple of the bytes that are free at the moment, or inflight_bytes if that is less";
        let share = gate::share(gate::MULTIPLE, weight, left).min(account.limit_bytes());
        rows.push(row(
            "memory of inflight",
            Some(share),
            reason.to_owned(),
            used,
            Some(account.peak_bytes()),
        ));
        let (known, creating) = writes.gates.both();
        rows.push(of_gate("inflight_requests", known, Some(state.peaks.writes.get())));
        rows.push(of_gate("creating_requests", creating, Some(state.peaks.creating.get())));
    }
    let state = writes.tenants.get(tenant);
    let peak = |of: fn(&Peaks) -> &Peak| state.as_ref().map(|state| of(&state.peaks).get());
    rows.push(of_gate("waiting and running queries", &app.waiting, peak(|peaks| &peaks.queries_inside)));
    rows.push(of_gate("exports", &app.exporting, peak(|peaks| &peaks.exports)));
    rows.push(of_gate("deletes", &app.deleting, peak(|peaks| &peaks.deletes)));
    rows
}

/// Lists the limits of the node: the accounts of its memory budget, and concurrency limits that tenants
/// share.
pub(super) fn of_node(app: &App) -> Vec<Row> {
    let settings = app.node.settings();
    let memory = from_memory(settings);
    let accounts = accounts::all(&app.node).into_iter().map(|(name, use_of)| Row {
        name: format!("memory of {name}"),
        value: use_of.limit_bytes.to_string(),
        limit: Limit::At(use_of.limit_bytes),
        origin: ("derived", Some(memory.clone())),
        bounds: bounds_of_account(name),
        reason: reason_of(name).to_owned(),
        used: Some(use_of.used_bytes),
        peak: Some(use_of.peak_bytes.max(use_of.used_bytes)),
    });
    accounts.chain(gates(app)).chain(senders(app)).collect()
}

/// Says how the accounts follow from the setting `memory`, and where its value comes from.
fn from_memory(settings: &Settings) -> String {
    let origin = &listed(settings, "memory").origin;
    match (origin, origin.detail()) {
        (Origin::Derived(how), _) => format!("from memory: {how}"),
        (_, Some(detail)) => format!("from memory, which is set ({}: {detail})", origin.kind()),
        (_, None) => "from memory".to_owned(),
    }
}

/// The accounts have percentages of `memory`, so its bounds are theirs, too.
fn bounds_of_account(name: &str) -> Option<String> {
    let of_memory = setting("memory").and_then(Setting::bounds_text)?;
    Some(match name {
        "auth" => format!("memory: {of_memory}; this account: at most {}", units::bytes_text(AUTH_BYTES_MAX)),
        _ => format!("memory: {of_memory}"),
    })
}

/// A limit on things that are counted, with their number.
#[derive(Debug, Clone, Copy)]
struct Counts {
    limit: usize,
    used: usize,
    peak: usize,
}

impl Counts {
    fn of(gate: &Gate) -> Self {
        Self { limit: gate.limit(), used: gate.inside(), peak: gate.peak() }
    }

    fn of_handshakes(handshakes: &PendingHandshakes) -> Self {
        Self { limit: handshakes.limit(), used: handshakes.count(), peak: handshakes.peak() }
    }

    fn row(self, name: &str, origin: (&'static str, Option<String>), bounds: Option<String>) -> Row {
        let Self { limit, used, peak } = self;
        Row {
            name: name.to_owned(),
            value: limit.to_string(),
            limit: Limit::At(limit as u64),
            origin,
            bounds,
            reason: reason_of(name).to_owned(),
            used: Some(used as u64),
            peak: Some(peak.max(used) as u64),
        }
    }

    /// For a limit that is a setting of the same name.
    fn row_of_setting(self, settings: &Settings, key: &str) -> Row {
        let Row { origin, bounds, reason, .. } = row_of_setting(settings, key);
        Row { reason, ..self.row(key, origin, bounds) }
    }
}

fn gates(app: &App) -> Vec<Row> {
    let settings = app.node.settings();
    let (known, creating) = app.node.writes().gates.both();
    let (running, running_peak) = app.queries.running_and_peak();
    let tenants = &app.node.writes().tenants;
    let running = Counts { limit: settings.query_concurrency, used: running, peak: running_peak };
    let tenants =
        Counts { limit: settings.tenants_max, used: tenants.all().len(), peak: tenants.peak() as usize };
    let derived = |from: String| ("derived", Some(from));
    let waiting_from = format!("{QUERIES_WAITING} × query_concurrency");
    let times = |bound: u64| bound.saturating_mul(QUERIES_WAITING as u64);
    let concurrency = setting("query_concurrency").and_then(|declared| declared.bounds);
    let waiting_bounds = concurrency.map(|(least, most)| format!("{} to {}", times(least), times(most)));
    let exports_from = "an eighth of the account query, divided by the memory of one query, which depends on query_concurrency";
    let exports_bounds = format!("{EXPORTS_MIN} to {EXPORTS_MAX}");
    let quarter = |of: &str, count: usize| derived(format!("a quarter of {of} ({count})"));
    let handshakes = Counts::of_handshakes(&app.handshakes);
    let (at_least_one, connections) = (Some("at least 1".to_owned()), settings.connections_max);
    let mut rows = vec![
        Counts::of(known).row_of_setting(settings, "inflight_requests"),
        Counts::of(creating).row_of_setting(settings, "creating_requests"),
        running.row_of_setting(settings, "query_concurrency"),
        Counts::of(&app.waiting).row("waiting and running queries", derived(waiting_from), waiting_bounds),
        Counts::of(&app.exporting).row("exports", derived(exports_from.to_owned()), Some(exports_bounds)),
        Counts::of(&app.deleting).row("deletes", ("fixed", None), None),
        handshakes.row(HANDSHAKES, quarter("connections", connections), at_least_one.clone()),
        tenants.row_of_setting(settings, "tenants"),
    ];
    if settings.tls.is_some() && settings.otlp_grpc.address.is_some() {
        let origin = quarter("the connections of gRPC", settings.otlp_grpc.connections_max);
        rows.push(Counts::of_handshakes(&app.grpc_handshakes).row(GRPC_HANDSHAKES, origin, at_least_one));
    }
    rows
}

/// Limits on connections and on new tenants.
fn senders(app: &App) -> [Row; 3] {
    let (settings, writes) = (app.node.settings(), app.node.writes());
    let connections = match app.connections.get() {
        Some(open) => Counts { limit: settings.connections_max, used: open.count(), peak: open.peak() }
            .row_of_setting(settings, "connections"),
        None => row_of_setting(settings, "connections"),
    };
    let (used, peak) = {
        let bucket = writes.new_tenants.lock();
        (bucket.missing(writes.clock.instant()) as usize, bucket.peak() as usize)
    };
    let burst = Counts { limit: settings.tenant_burst, used, peak }.row_of_setting(settings, "tenant_burst");
    // the rate refills the bucket of the burst, whose row shows the use
    [connections, burst, row_of_setting(settings, "tenants_per_minute")]
}

/// The value in effect of a setting of the node.
fn listed<'a>(settings: &'a Settings, key: &str) -> &'a EffectiveSetting {
    settings.listing.iter().find(|row| row.key == key).expect("BUG: a setting of the node is not listed")
}

fn row_of_setting(settings: &Settings, key: &str) -> Row {
    let EffectiveSetting { value, origin, .. } = listed(settings, key);
    let declared = setting(key).expect("BUG: a setting in effect is not declared");
    Row {
        name: key.to_owned(),
        value: value.to_string(),
        limit: Limit::of(declared, value),
        origin: (origin.kind(), origin.detail()),
        bounds: declared.bounds_text(),
        reason: sentences(declared.about, declared.why),
        used: None,
        peak: None,
    }
}

fn sentences(about: &str, why: &str) -> String {
    let why = without_links(why);
    if why.is_empty() { about.to_owned() } else { format!("{about}. {why}") }
}

/// Replaces Markdown's links by their texts. Their targets only exist beside the reference.
fn without_links(text: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(middle) = rest.find("](") {
        let (before, target) = rest.split_at(middle);
        let (Some(start), Some(end)) = (before.rfind('['), target.find(')')) else { break };
        plain += &before[..start];
        plain += &before[start + 1..];
        rest = &target[end + 1..];
    }
    plain + rest
}

fn reason_of(name: &str) -> &'static str {
    match name {
        "head" => {
            "Series and recent samples. From 60 % on, sealing and eviction begin earlier; from 75 % on, tenants above their \
             share lose idle series and get no new ones; from 85 % on, no tenant gets new series (from 92 % on while some are \
             above their share); at 100 %, writes are refused"
        }
        "inflight" => "Write requests from their first byte to their answer",
        "grpc" => {
            "Connections of gRPC, with the bytes that were not read from them and the headers of their requests"
        }
        "query" => "Queries, exports, answers until they are sent, and the cache of table data",
        "flush" => "Table files being written, by sealing and compaction",
        "decoders" => "Pooled decoders between write requests",
        "auth" => {
            "Verified tokens, token keys, networks, and questions and answers of the [forward] service. Full caches drop their oldest entries"
        }
        "other" => {
            "Memory outside the accounts: the process itself, connections, open tables, buffers, the allocator's slack"
        }
        "waiting and running queries" => {
            "64 places for each query that may run at once. Some places are always left to other tenants"
        }
        HANDSHAKES | GRPC_HANDSHAKES => {
            "A quarter of the connections. Handshakes use the memory of connections. One network (IPv4 /24, IPv6 /64) may have half of the handshakes"
        }
        "exports" => {
            "An export holds memory and a thread for as long as its client reads. A tenant gets half of the places"
        }
        "deletes" => {
            "A delete of samples or of a tenant holds memory, and waits until samples are sealed. A tenant gets half of the places"
        }
        _ => "",
    }
}

pub(super) fn write(json: &mut Json, rows: &[Row]) {
    json.raw("[");
    for (i, row) in rows.iter().enumerate() {
        json.comma(i);
        json.raw(r#"{"name":"#);
        json.string(&row.name);
        json.raw(r#","value":"#);
        json.raw(&row.value);
        json.raw(r#","origin":"#);
        json.string(row.origin.0);
        let texts = [("from", &row.origin.1), ("bounds", &row.bounds), ("reason", &Some(row.reason.clone()))];
        for (name, text) in texts {
            if let Some(text) = text {
                json.raw(&format!(r#","{name}":"#));
                json.string(text);
            }
        }
        write_numbers(json, row.limit, row.used, row.peak);
        json.raw("}");
    }
    json.raw("]");
}

fn write_numbers(json: &mut Json, limit: Limit, used: Option<u64>, peak: Option<u64>) {
    match limit {
        Limit::At(number) => json.raw(&format!(r#","limit":{number}"#)),
        Limit::Unlimited => json.raw(r#","limit":null"#),
        Limit::NoNumber => {}
    }
    for (name, count) in [("used", used), ("peak", peak)] {
        if let Some(count) = count {
            json.raw(&format!(r#","{name}":{count}"#));
        }
    }
}

/// Writes the tenant's limits that the list of all tenants shows, with their use.
pub(super) fn write_summary(json: &mut Json, app: &App, settings: &Tenants, tenant: &TenantId) {
    json.raw(r#"{"tenant":"#);
    json.string(tenant.as_str());
    json.raw(r#","limits":["#);
    for (i, (name, limit)) in summary(&settings.of(tenant).limits).into_iter().enumerate() {
        json.comma(i);
        json.raw(&format!(r#"{{"name":"{name}""#));
        let (used, peak) = used_by(app, tenant, name);
        write_numbers(json, limit.into(), used, peak);
        json.raw("}");
    }
    json.raw("]}");
}

/// The limits on what tenants take from each other, and whose use is cheap to read.
fn summary(limits: &TenantLimits) -> [(&'static str, Option<u64>); 8] {
    let count = |limit: Option<usize>| limit.map(|limit| limit as u64);
    [
        ("active_series", count(limits.active_series)),
        ("samples_per_second", count(limits.samples_per_second)),
        ("requests_per_second", count(limits.requests_per_second)),
        ("bytes_per_second", limits.bytes_per_second),
        ("inflight_bytes", limits.inflight_bytes),
        ("concurrent_queries", count(limits.concurrent_queries)),
        ("tenant_tables", Some(limits.tenant_tables as u64)),
        ("disk_bytes", limits.disk_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_numbers() {
        let check = |key: &str, value: Value, expected: Limit| {
            assert_eq!(Limit::of(setting(key).unwrap(), &value), expected, "{key} = {value}");
        };
        check("disk_bytes", "226GiB".into(), Limit::At(226 << 30));
        check("inflight_bytes", "34222900".into(), Limit::At(34_222_900));
        check("query_memory", "64KiB".into(), Limit::At(64 << 10));
        check("disk_bytes", "none".into(), Limit::Unlimited);
        check("active_series", 3.into(), Limit::At(3));
        check("active_series", "none".into(), Limit::Unlimited);
        check("rate_burst", "10s".into(), Limit::NoNumber);
        check("ha_dedup", false.into(), Limit::NoNumber);
    }

    /// A size that is not shown exactly would not be the limit in effect.
    #[test]
    fn sizes_are_exact() {
        let mut state = 1;
        for round in 0..10_000 {
            state = stdx::rng::mix(state);
            let bytes = state >> (14 + round % 40); // sizes below 2^50 bytes
            assert_eq!(units::bytes(&units::bytes_text(bytes)), Some(bytes));
        }
    }

    #[test]
    fn the_summary_has_limits_of_tenants() {
        let dir = tempfile::tempdir().unwrap();
        let limits = crate::write_path::tests::small_settings(dir.path()).tenants.general.limits;
        for (name, _) in summary(&limits) {
            assert!(setting(name).is_some_and(|setting| setting.is_per_tenant), "{name}");
        }
    }

    #[test]
    fn reasons_have_no_links() {
        let check = |text: &str, expected: &str| assert_eq!(without_links(text), expected);
        check("a ([b.md](../b.md#c)). D [e f](#g)", "a (b.md). D e f");
        check("match[] of [a](b", "match[] of [a](b");
        check("", "");
        for setting in SETTINGS.iter().filter(|setting| setting.is_per_tenant) {
            let reason = sentences(setting.about, setting.why);
            assert!(!reason.contains("]("), "{reason}");
        }
    }
}
