//! Two Prometheus servers scrape the same targets as a highly available pair, and one of them is killed.

use super::servers::{NodeExporter, Prometheus};
use crate::harness::read::{Matrix, data, matrix, seconds};
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const FAILOVER_MS: i64 = 3000;

/// How much longer than configured a failover may take, because of delays in the sender and on a busy
/// machine.
const LAG_MS: i64 = 10_000;

/// Returns which replica is elected, and how many failovers there were. `None` before the first election.
fn elected(server: &Server) -> Option<(String, u64)> {
    let tracker = data(&server.send(&Request::get("/api/v1/ha_tracker")));
    let clusters = tracker["clusters"].as_array().unwrap();
    assert!(clusters.len() <= 1, "{tracker}");
    let cluster = clusters.first()?;
    assert_eq!(cluster["cluster"], "pair");
    Some((cluster["replica"].as_str().unwrap().to_owned(), cluster["failovers"].as_u64().unwrap()))
}

fn everything(send: impl Fn(&Request) -> crate::harness::Reply) -> Matrix {
    let params = [("query", "{__name__=~\".+\"}[10m]"), ("time", &seconds(now_ms()))];
    matrix(&data(&send(&Request::form("/api/v1/query", &params))))
}

/// Every stored sample must come from one of the two servers. While one of them was elected, none of its
/// samples may be missing.
#[test]
fn a_pair_of_servers_is_stored_as_one() {
    let Some(exporter) = NodeExporter::find() else { return };
    let (Some(a), Some(b)) = (Prometheus::find(), Prometheus::find()) else { return };
    let let_pass = std::thread::sleep;
    let failover = format!("{}s", FAILOVER_MS / 1000);
    let options = Options::default().arg("--ha-dedup").arg("true").arg("--ha-failover").arg(&failover);
    let server = Server::start(options);
    let exporter = exporter.start();
    let start = |prometheus: Prometheus, replica, message| {
        prometheus.start_replica(server.address, exporter.address(), replica, message)
    };
    let a = start(a, "a", "prometheus.WriteRequest");
    let b = start(b, "b", "io.prometheus.write.v2.Request");
    wait_for("both to send", || {
        (server.metric("floodmark_ha_deduplicated_samples_total") > 0.0).then_some(())
    });
    let (first, _) = elected(&server).unwrap();
    let (mut killed, mut survivor) = if first == "a" { (a, b) } else { (b, a) };
    let_pass(Duration::from_secs(4));
    killed.stop();
    wait_for("the failover", || {
        elected(&server).filter(|(replica, failovers)| *replica != first && *failovers == 1)
    });
    let_pass(Duration::from_secs(3));
    let end_ms = now_ms();
    survivor.wait_until_sent(end_ms);
    let failed = survivor.metric("prometheus_remote_storage_samples_failed_total");
    assert_eq!(failed, [0.0], "duplicates are not answered with success");

    let after = everything(|request| survivor.send(request));
    // the killed server is started again, because its write-ahead log has its samples
    let killed = killed.start_quiet();
    let before = everything(|request| killed.send(request));
    wait_for("the survivor's samples", || {
        let stored = everything(|request| server.send(request));
        compare(&stored, &before, &after, end_ms).map_err(|why| eprintln!("{why}")).ok()
    });
}

/// Compares the stored samples with those of both servers. The error says which samples are not stored yet.
fn compare(stored: &Matrix, before: &Matrix, after: &Matrix, end_ms: i64) -> Result<(), String> {
    assert!(stored.len() > 100, "{} series are too few to compare", stored.len());
    let (mut last_before, mut first_after, mut gap_ms) = (i64::MIN, i64::MAX, 0);
    for (series, samples) in stored {
        assert!(!series.contains("__replica__"), "{series}");
        let mut labels: Value = serde_json::from_str(series).unwrap();
        assert_eq!(labels.as_object_mut().unwrap().remove("cluster"), Some("pair".into()), "{series}");
        let of = |ledger: &Matrix| ledger.get(&labels.to_string()).cloned().unwrap_or_default();
        let (before, after) = (of(before), of(after));
        let [in_before, in_after] = [&before, &after].map(|ledger| ledger.iter().collect::<BTreeSet<_>>());
        for sample in samples {
            let is_in = (in_before.contains(sample), in_after.contains(sample));
            match is_in {
                (true, false) => last_before = last_before.max(sample.0),
                (false, true) => first_after = first_after.min(sample.0),
                (true, true) => {}
                (false, false) => panic!("{series}: no Prometheus scraped {sample:?}"),
            }
        }
        let stored: BTreeSet<_> = samples.iter().collect();
        let is_of = |ledger: &BTreeSet<&(i64, u64)>| {
            let times: Vec<_> =
                samples.iter().filter(|sample| ledger.contains(sample)).map(|s| s.0).collect();
            (times.first().copied(), times.last().copied())
        };
        if let (Some(from), Some(to)) = is_of(&in_before) {
            let missing = before.iter().find(|s| (from..=to).contains(&s.0) && !stored.contains(s));
            assert_eq!(missing, None, "{series}: a scraped sample is not stored");
        }
        if let (Some(from), _) = is_of(&in_after) {
            let missing = after.iter().find(|s| (from..=end_ms).contains(&s.0) && !stored.contains(s));
            if let Some(missing) = missing {
                return Err(format!("{series}: not stored yet: {missing:?}"));
            }
        }
        if series.contains("\"up\"") {
            gap_ms = samples.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(0);
        }
    }
    assert!(last_before < first_after, "samples of {first_after} and {last_before} are mixed");
    eprintln!("{} series, a gap of {gap_ms} ms", stored.len());
    assert!(gap_ms < FAILOVER_MS + LAG_MS, "a gap of {gap_ms} ms");
    Ok(())
}
