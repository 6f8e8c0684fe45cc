//! The tenants of a scenario, with their names, credentials and series.

use crate::drive::send::exchange::RetryPolicy;
use crate::drive::send::generated::{Acknowledged, Pace, Run};
use crate::drive::send::lead::Lead;
use crate::drive::send::sender::Lane;
use crate::drive::send::time_share::TimeShare;
use crate::drive::stop::Stop;
use crate::drive::tally::Tally;
use crate::drive::watch::{self, SentTimes};
use crate::generate::fleet::Fleet;
use crate::generate::plan::Plan;
use crate::scenario::schedule::Schedule;
use crate::scenario::{Grow, Load, Scenario, Span};
use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stdx::clock::SystemClock;
use stdx::rng::mix;
use tokio::sync::mpsc;

/// A connection gives up once all connections of its tenant together have had this many final refusals and no success.
const REJECTED_MAX: u64 = 200;

/// Takes the place of [`REJECTED_MAX`] in a replay. It is lower, because a recording may hold requests that no target
/// accepts.
const REPLAYED_REJECTED_MAX: u64 = 20;

/// Maximum difference between the timestamps of two connections in a closed loop. Some targets refuse samples that are
/// an hour older than others.
const LEAD_MS_MAX: u32 = 300_000;

#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    /// Index among the tenants that have writers on this machine.
    pub(crate) number: usize,
    /// Index among all tenants of the scenario.
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Headers of all this tenant's requests, including queries.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) plan: Plan,
    pub(crate) time_share: TimeShare,
    /// Samples per second of each series. `None` in a closed loop.
    pub(crate) rounds_per_s: Option<f64>,
}

/// Lists the tenants that have at least one writer on this machine.
pub(crate) fn of(scenario: &Scenario, part: (u32, u32), now_ms: i64) -> Result<Vec<Tenant>> {
    let load = scenario.scaled();
    let schedule = scenario.schedule(now_ms)?;
    let course = Arc::new(scenario.course());
    let factor = course.factor_max();
    let grown = |n: u32| (f64::from(n) * factor - 1e-9).ceil().max(1.0) as u32;
    let grow = scenario.shape.grow;
    let (tenants, writers) = match grow {
        Grow::Tenants => (grown(load.tenants), load.writers),
        Grow::Writers => (load.tenants, grown(load.writers)),
    };
    let mut all = Vec::new();
    for index in 0..tenants {
        let Some((first_writer, writers_here)) = writers_of(index, tenants, writers, part) else { continue };
        let name = format!("{}{index}", scenario.target.tenant_prefix);
        let plan = plan(scenario, &load, (index, &name), (first_writer, writers_here), schedule)?;
        let slots = |writers: u32| u64::from(writers) * plan.writer_slots() as u64;
        let slots_all = slots(writers);
        let slots_plain = slots(load.writers);
        let mut time_share =
            TimeShare::new(Arc::clone(&course), grow, (index, load.tenants), (slots_plain, slots_all));
        time_share.first_writer = load.first_writer;
        let headers = headers(scenario, &name, index, now_ms);
        let rounds_per_s = schedule.rounds_per_s;
        all.push(Tenant { number: all.len(), index, name, headers, plan, time_share, rounds_per_s });
    }
    ensure!(!all.is_empty(), "part {} of {} has no writer: there are too many parts", part.0, part.1);
    Ok(all)
}

/// First writer and number of writers that this machine runs for a tenant. All writers of all tenants are divided
/// evenly among the parts.
fn writers_of(index: u32, tenants: u32, writers: u32, (part, parts): (u32, u32)) -> Option<(u32, u32)> {
    let all = u64::from(tenants) * u64::from(writers);
    let cut = |part: u32| all * u64::from(part) / u64::from(parts);
    let begin = u64::from(index) * u64::from(writers);
    let from = cut(part - 1).clamp(begin, begin + u64::from(writers));
    let to = cut(part).clamp(begin, begin + u64::from(writers));
    (from < to).then(|| ((from - begin) as u32, (to - from) as u32))
}

fn headers(scenario: &Scenario, name: &str, index: u32, now_ms: i64) -> Vec<(String, String)> {
    let spec = &scenario.target;
    let mut headers: Vec<(String, String)> = Vec::new();
    if let Some(header) = scenario.tenant_header() {
        headers.push((header.to_owned(), name.to_owned()));
    }
    if let Some(auth) = &spec.auth {
        let value = crate::drive::auth::authorization(auth, name, (now_ms / 1000).max(0) as u64);
        headers.push(("Authorization".into(), value));
    }
    for (header, value) in &spec.headers.0 {
        headers.retain(|(other, _)| !other.eq_ignore_ascii_case(header));
        headers.push((header.clone(), fill(value, name, index)));
    }
    headers
}

fn fill(text: &str, name: &str, index: u32) -> String {
    text.replace("{tenant}", name).replace("{index}", &index.to_string())
}

fn plan(
    scenario: &Scenario,
    load: &Load,
    (index, name): (u32, &str),
    writers: (u32, u32),
    schedule: Schedule,
) -> Result<Plan> {
    let Schedule { interval_ms, first_tick, rounds_max, rounds_per_s } = schedule;
    let metrics = u32::try_from(load.metrics.whole()).context("metrics")?;
    let rounds_before = |at_s: f64| (at_s * rounds_per_s.unwrap_or(0.0)) as u64;
    let series_churn_ticks = scenario.ticks(load.series_interval);
    let plan = Plan {
        fleet: Fleet {
            // each tenant needs different series: if all were equal, nobody would notice a target that confuses
            // tenants
            seed: if index == 0 { scenario.seed } else { mix(scenario.seed ^ mix(index.into())) },
            fixed: scenario
                .target
                .tenant_label
                .iter()
                .map(|label| (label.clone(), name.to_owned()))
                .collect(),
            ..load.fleet()
        },
        metrics,
        targets: load.series_per_metric.whole(),
        writers: writers.1,
        first_writer: load.first_writer + writers.0,
        batch: load.batch,
        values: load.values,
        interval_ms,
        first_tick,
        rounds_max,
        series_churn_ticks,
        series_churn_staggered: false,
        metric_churn_ticks: scenario.ticks(load.metric_interval),
        series_churn_spread: (series_churn_ticks.unwrap_or(0) as f64 * load.jitter) as u64,
        value_ticks: scenario.ticks(load.value_interval).unwrap_or(0),
        relabel_ticks: scenario
            .course()
            .relabels()
            .iter()
            .map(|at| first_tick + rounds_before(*at))
            .collect(),
        resolution_ms: scenario.protocol().resolution_ms(),
        value_seed: scenario.value_seed.unwrap_or(0),
    };
    plan.check()?;
    Ok(plan)
}

impl Tenant {
    pub(crate) fn fill(&self, text: &str) -> String {
        fill(text, &self.name, self.index)
    }

    pub(crate) fn run(
        &self,
        scenario: &Scenario,
        path: String,
        stop: &Stop,
        probes: Option<mpsc::Sender<Acknowledged>>,
    ) -> Run {
        let mut run = self.closed_run(self.plan.clone(), scenario, path, stop);
        run.probes = probes;
        if let Some(per_s) = self.rounds_per_s {
            run.pace = Pace::Open { samples_per_s: self.plan.series() as f64 * per_s };
            (run.time_share, run.lead) = (Some(self.time_share.clone()), None);
            run.start_jitter_s = scenario.load.start_jitter / per_s;
        }
        run
    }

    pub(crate) fn past(&self, scenario: &Scenario) -> Result<Option<Plan>> {
        let load = &scenario.load;
        let Some(history) = load.history else { return Ok(None) };
        let interval_ms = load.history_interval.map_or_else(|| scenario.interval_ms(), Span::ms).max(1);
        let rounds = history.ms() / interval_ms;
        let end_tick = u64::try_from(self.plan.round_ms(0))? / interval_ms;
        let plan = Plan {
            interval_ms: u32::try_from(interval_ms).context("history_interval")?,
            rounds_max: u32::try_from(rounds).context("history")?.max(1),
            first_tick: end_tick.saturating_sub(rounds + 1),
            series_churn_ticks: None,
            metric_churn_ticks: None,
            relabel_ticks: Vec::new(),
            ..self.plan.clone()
        };
        plan.check().context("history")?;
        Ok(Some(plan))
    }

    pub(crate) fn lane(&self, scenario: &Scenario, path: String, stop: &Stop) -> Lane {
        let load = &scenario.load;
        Lane {
            path,
            retry: RetryPolicy {
                backoff_min: load.backoff_min.0,
                backoff_max: load.backoff_max.0,
                retry_after_max: load.retry_after_max.0,
                give_up_after: load.give_up_after.0,
            },
            stop: stop.clone(),
            tally: Tally::new(),
            reconnect: load.reconnect.map(|age| age.0),
            rejected_max: if scenario.replay.is_some() { REPLAYED_REJECTED_MAX } else { REJECTED_MAX },
        }
    }

    pub(crate) fn closed_run(&self, plan: Plan, scenario: &Scenario, path: String, stop: &Stop) -> Run {
        let connections = (plan.writers * scenario.load.connections) as usize;
        let lead = (connections > 1).then(|| Lead::new(connections, (LEAD_MS_MAX / plan.interval_ms).max(2)));
        let commit_ms = watch::commit_ms(scenario);
        let sent_times =
            scenario.protocol().is_flushed().then(|| SentTimes::new(plan.slots_count(), commit_ms));
        Run {
            lane: Arc::new(self.lane(scenario, path, stop)),
            sent_times,
            plan,
            tenant: self.number as u32,
            pace: Pace::Closed,
            protocol: scenario.protocol(),
            burst: scenario.load.burst,
            commit_interval: scenario.target.commit_interval.map(|interval| interval.0),
            lead,
            start_jitter_s: 0.0,
            time_share: None,
            probes: None,
            clock: SystemClock,
            caught_up: AtomicBool::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_795_284_000_000;

    #[test]
    fn parts_share_all_writers_of_all_tenants() {
        let scenario = Scenario::parse("[load]\ntenants = 3\nwriters = 5").unwrap();
        for parts in [1, 2, 4, 7, 15] {
            let mut seen = std::collections::BTreeSet::new();
            for part in 1..=parts {
                for tenant in of(&scenario, (part, parts), NOW_MS).unwrap() {
                    for writer in 0..tenant.plan.writers {
                        assert!(
                            seen.insert((tenant.index, tenant.plan.first_writer + writer)),
                            "{part}/{parts}"
                        );
                    }
                }
            }
            assert_eq!(seen.len(), 15);
        }
        assert!(of(&scenario, (16, 16), NOW_MS).is_ok() && of(&scenario, (1, 16), NOW_MS).is_err());
    }

    #[test]
    fn a_spike_of_tenants_makes_them_ready_and_leaves_them_silent() {
        let text = "[load]\ntenants = 10\n[shape]\nkind = 'spike'\nfactor = 1.2\ngrow = 'tenants'";
        let scenario = Scenario::parse(text).unwrap();
        let tenants = of(&scenario, (1, 1), NOW_MS).unwrap();
        assert_eq!(tenants.len(), 12);
        let series = |at| tenants.iter().map(|t| t.time_share.series_at(&t.plan, at)).sum::<f64>();
        assert_eq!(series(0.0) * 1.2, series(31.0));
        assert_ne!(tenants[0].plan.fleet.seed, tenants[1].plan.fleet.seed);
    }

    #[test]
    fn headers_name_the_tenant_and_can_be_replaced() {
        let text = "[target]\nheaders = { x-scope-orgid = 'team {index}', A = '{tenant}' }\n\
                    auth = { kind = 'bearer', token = 'k' }";
        let scenario = Scenario::parse(text).unwrap();
        let headers = &of(&scenario, (1, 1), NOW_MS).unwrap()[0].headers;
        let get = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        assert_eq!(get("x-scope-orgid"), Some("team 0"));
        assert_eq!((get("X-Scope-OrgID"), get("A")), (None, Some("tenant-0")));
        let graphite = |load: &str| {
            let text =
                format!("[target]\nprotocol = 'graphite'\nwrite = 'tcp://127.0.0.1:1'\n[load]\n{load}");
            of(&Scenario::parse(&text).unwrap(), (1, 1), NOW_MS).unwrap()[0].headers.clone()
        };
        assert_eq!(graphite(""), []);
        assert_eq!(graphite("tenants = 2"), [("X-Scope-OrgID".to_owned(), "tenant-0".to_owned())]);
        assert_eq!(get("Authorization"), Some("Bearer k"));
    }

    #[test]
    fn samples_never_lie_ahead_and_the_past_ends_before_the_run() {
        let text =
            "[load]\ninterval = '7s'\nhistory = '1h'\nhistory_interval = '60s'\nseries_interval = '70s'";
        let scenario = Scenario::parse(text).unwrap();
        let tenant = of(&scenario, (1, 1), NOW_MS).unwrap().remove(0);
        let plan = &tenant.plan;
        assert!(plan.round_ms(1) <= NOW_MS && plan.round_ms(1) > NOW_MS - 7_000);
        assert_eq!((plan.series_churn_ticks, plan.rounds_max), (Some(10), 9));
        let past = tenant.past(&scenario).unwrap().unwrap();
        assert!(past.round_ms(past.rounds_max) <= plan.round_ms(0));
        assert_eq!(past.rounds_max, 60);
    }
}
