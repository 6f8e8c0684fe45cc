//! Reads series through Graphite's `/render`, in the format `json`:
//!
//! ```text
//!   [{"target": name, "datapoints": [[value or null, time], …]}, …]
//! ```
//!
//! A value belongs to a slot that begins at its time, and is the last that was sent for it. Every server with
//! Graphite's API knows this format, and writes values as decimals that parse to the same bits. Source:
//! <https://graphite.readthedocs.io/en/latest/render_api.html>.

use super::promql::{Series, Text};
use super::queries::Query;
use crate::generate::naming::Naming;
use crate::generate::plan::Plan;
use crate::http::percent;
use crate::json::Json;
use anyhow::{Context, Result, ensure};
use model::labels::METRIC_NAME;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Formats a query for all series of `asked` as an HTML form.
pub(super) fn query(plan: &Plan, asked: &Query) -> String {
    let (first_ms, last_ms) = asked.times(plan);
    form(&target(plan, asked), first_ms, last_ms)
}

/// Formats a query for the samples between two times. Both are included, because answers begin with the slot after
/// `from`.
pub(crate) fn form(target: &str, first_ms: i64, last_ms: i64) -> String {
    let (from_s, until_s) = ((first_ms / 1000).saturating_sub(1), last_ms / 1000);
    format!("target={}&from={from_s}&until={until_s}&format=json&noCache=1", percent(target))
}

/// How long before the run the query for the step begins. It shows steps of up to half of this time, and is short enough
/// to be answered from the same archive as all other queries.
const STEP_SHOWN_MS: i64 = 300_000;

/// Formats a query for one series, whose answer has at least two slots, so that it shows the step.
pub(super) fn step_query(plan: &Plan, rounds: u32) -> String {
    let target = plan.first_target(0);
    let first = one(plan, (target, plan.generation(target, 0), 0), 0);
    form(&first, plan.round_ms(0) - STEP_SHOWN_MS, plan.round_ms(rounds))
}

/// Target that selects the series of a target's metric.
pub(crate) fn one(plan: &Plan, (target, generation, metric): (u64, u64, u32), round: u32) -> String {
    let fleet = &plan.fleet;
    let name = fleet.metric_name(metric, plan.metric_generation(round));
    if fleet.naming != Naming::Labels {
        return fleet.series_name(target, generation, &name);
    }
    // the label `pod` is unique, so that it identifies a target
    let labels = fleet.target_labels(target, generation);
    let pod = labels.into_iter().find(|(name, _)| name == "pod").map(|(_, pod)| pod).unwrap_or_default();
    let le = fleet.histograms.le(metric).map(|le| format!(",'le={le}'")).unwrap_or_default();
    format!("seriesByTag('name={name}','pod={pod}'{le})")
}

fn target(plan: &Plan, asked: &Query) -> String {
    let fleet = &plan.fleet;
    if let Naming::Timers { prefix, .. } = &fleet.naming {
        let host = asked.targets.number(0).unwrap_or("*".into());
        let timer = match asked.targets.number(1) {
            None => "*".to_owned(),
            Some(timer) if plan.replaces_targets() => format!("{{timer-{timer},timer-{timer}-g*}}"),
            Some(timer) => format!("timer-{timer}"),
        };
        let names = match asked.names.as_slice() {
            [name] => name.clone(),
            names => format!("{{{}}}", names.join(",")),
        };
        return format!("{prefix}.host-{host}.{timer}.{names}");
    }
    let mut expressions = vec![format!("'name=~^({})$'", asked.names.join("|"))];
    expressions.extend(asked.targets.job().map(|job| format!("'job={}'", fleet.job(job))));
    expressions.extend(asked.targets.instance(plan).map(|pattern| format!("'instance=~^{pattern}$'")));
    expressions.extend(fleet.fixed.iter().map(|(name, value)| format!("'{name}={value}'")));
    format!("seriesByTag({})", expressions.join(","))
}

/// Parses an answer whose slots must be `step_ms` apart. Slots without a value are left out.
pub(crate) fn parse(body: &[u8], step_ms: u64) -> Result<Vec<Series<'_>>> {
    let text = std::str::from_utf8(body).context("the answer is not text")?;
    let (mut json, mut all) = (Json::new(text), Vec::new());
    let list = json.list(|json| {
        all.push(series(json, step_ms)?);
        Ok(())
    });
    list.and_then(|()| json.end()).context("cannot read the answer as JSON")?;
    Ok(all)
}

fn series<'a>(json: &mut Json<'a>, step_ms: u64) -> Result<Series<'a>> {
    let (mut name, mut values) = ("", Vec::new());
    let mut before = None;
    json.object(|json, key| match key {
        "target" => {
            name = json.string()?;
            Ok(())
        }
        "datapoints" => json.list(|json| {
            let (value, time_s) = point(json)?;
            if let Some(before) = before.replace(time_s) {
                check_step(time_s.saturating_sub(before), step_ms)?;
            }
            if value != "null" {
                values.push((time_s as f64, value));
            }
            Ok(())
        }),
        _ => json.skip(),
    })?;
    Ok(Series { metric: labels(name), values })
}

/// Reads `[value, time]`.
fn point<'a>(json: &mut Json<'a>) -> Result<(&'a str, i64)> {
    json.expect(b'[')?;
    let value = json.word()?;
    json.expect(b',')?;
    let time_s = json.word()?.parse().context("a time is not a whole number")?;
    json.expect(b']')?;
    Ok((value, time_s))
}

fn check_step(step_s: i64, step_ms: u64) -> Result<()> {
    ensure!(
        i64::try_from(step_ms) == Ok(step_s.saturating_mul(1000)),
        "the target has a step of {step_s} s, and not of {} s: set verify.step (--step) to {step_s}s",
        step_ms as f64 / 1000.0
    );
    Ok(())
}

/// Splits a name such as `disk.used;host=a` into labels.
fn labels(name: &str) -> BTreeMap<Text<'_>, Text<'_>> {
    let text = |text| Text(Cow::Borrowed(text));
    let mut parts = name.split(';');
    let path = (text(METRIC_NAME), text(parts.next().unwrap_or_default()));
    let tags = parts.filter_map(|tag| tag.split_once('=')).map(|(name, value)| (text(name), text(value)));
    std::iter::once(path).chain(tags).collect()
}

#[cfg(test)]
mod tests {
    use super::super::queries::Queries;
    use super::*;
    use crate::generate::fleet::Fleet;
    use crate::generate::plan::tests::small;

    #[test]
    fn a_query_selects_exactly_its_series_and_time() {
        let naming = Naming::Timers { prefix: "STRESS".into(), per_host: 7 };
        let plan = Plan { fleet: Fleet { naming, ..Fleet::default() }, metrics: 15, ..small() };
        let ask = |plan: &Plan, page, number| {
            let asked = Queries::new(plan, 4, page, 15_000).get(plan, number).unwrap();
            (target(plan, &asked), query(plan, &asked))
        };
        let (all, form) = ask(&plan, 1_000_000, 0);
        assert!(all.starts_with("STRESS.host-*.*.{count,m1_rate,") && all.ends_with(",stddev}"), "{all}");
        assert!(
            form.ends_with("&from=1795283999&until=1795284045&format=json&noCache=1") && !form.contains('*'),
            "{form}"
        );
        // the plan's writers are the hosts 2 to 4
        assert_eq!(ask(&plan, 20, 0).0, "STRESS.host-[2-3].*.count");
        assert_eq!(ask(&plan, 7, 0).0, "STRESS.host-2.*.count");
        assert_eq!(ask(&plan, 6, 0).0, "STRESS.host-2.timer-[0-3].count");
        let replaced = Plan { series_churn_ticks: Some(9), ..plan };
        assert_eq!(ask(&replaced, 6, 0).0, "STRESS.host-2.{timer-[0-3],timer-[0-3]-g*}.count");
        let tagged =
            Plan { fleet: Fleet { fixed: vec![("t".into(), "a".into())], ..Fleet::default() }, ..small() };
        let (target, _) = ask(&tagged, 21, 1);
        assert_eq!(target, "seriesByTag('name=~^(metric_1)$','t=a')");
        let (target, _) = ask(&tagged, 1, 5 * 20);
        assert_eq!(
            target,
            "seriesByTag('name=~^(metric_0)$','job=shipment-eta','instance=~^10[.]96[.]0[.]3[0-5]:.*$','t=a')"
        );
    }

    #[test]
    fn reads_answers() {
        let text = r#"[{"target":"a.b","tags":{"name":"a.b"},"datapoints":[[1.5,1000],[null,1010],[-0.1,1020]]},
            {"target":"c;k=v;l=x,y","datapoints":[[2.2250738585072014e-308,1000]]},{"target":"a\"","datapoints":[]}]"#;
        let series = parse(text.as_bytes(), 10_000).unwrap();
        assert_eq!(series[0].values, [(1000.0, "1.5"), (1020.0, "-0.1")]);
        assert_eq!(series[0].metric[&Text("__name__".into())].0, "a.b");
        assert_eq!(series[1].metric[&Text("l".into())].0, "x,y");
        assert_eq!(series[1].values[0].1, "2.2250738585072014e-308");
        // names of the lab have no escapes
        assert_eq!(series[2].metric[&Text("__name__".into())].0, "a\\\"");
        assert!(parse(b"[]", 10_000).unwrap().is_empty());
        for (bad, why) in [
            ("", "cannot read"),
            ("{}", "cannot read"),
            (r#"[{"target":"a","datapoints":[[1]]}]"#, "cannot read"),
            (r#"[{"target":"a","datapoints":[[1,0],[1,60]]}]"#, "a step of 60 s, and not of 10 s"),
        ] {
            let said = format!("{:#}", parse(bad.as_bytes(), 10_000).unwrap_err());
            assert!(said.contains(why), "{bad}: {said}");
        }
    }
}
