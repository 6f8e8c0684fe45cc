use super::metrics::{Kind, recognise};
use super::saturation::SaturationDetector;
use super::*;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

#[test]
fn control_groups_of_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let look_at = |name: &str, first: &[(&str, &str)], then: &[(&str, &str)]| {
        let dir = folder.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        let write = |files: &[(&str, &str)]| {
            files.iter().for_each(|(file, text)| std::fs::write(dir.join(file), text).unwrap());
        };
        assert!(Cgroup::open(&dir).is_err(), "a directory without cgroup.procs was accepted");
        write(&[("cgroup.procs", "77\n12\n")]);
        write(first);
        let mut group = Cgroup::open(&dir).unwrap();
        write(then);
        let mut look = Look::default();
        group.look(2.0, &mut look);
        assert_eq!(group.main_process(), Some(12));
        look
    };
    let v2 = look_at(
        "v2",
        &[
            ("memory.current", "1000\n"),
            ("memory.stat", "anon 1\ninactive_file 300\n"),
            ("memory.max", "2000\n"),
            ("cpu.max", "150000 100000\n"),
            ("cpu.stat", "usage_usec 0\nnr_periods 10\nnr_throttled 1\n"),
            ("memory.events", "oom 0\noom_kill 0\n"),
        ],
        &[
            ("cpu.stat", "usage_usec 3000000\nnr_periods 30\nnr_throttled 16\n"),
            ("memory.events", "oom 1\noom_kill 2\n"),
        ],
    );
    let values =
        ["cgroup/memory", "cgroup/memory_limit", "cgroup/cpu", "cgroup/cpu_limit", "cgroup/throttled"];
    assert_eq!(values.map(|name| v2.get(name).unwrap()), [700.0, 2000.0, 1.5, 1.5, 0.75]);
    assert!(v2.events[0].starts_with("processes killed") && v2.events[0].ends_with(": 2"), "{:?}", v2.events);
    let v1 = look_at(
        "v1",
        &[
            ("memory.usage_in_bytes", "1000"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 100"),
            ("memory.limit_in_bytes", "9223372036854771712"),
            ("cpuacct.usage", "0"),
            ("cpu.cfs_quota_us", "-1"),
            ("cpu.cfs_period_us", "100000"),
        ],
        &[("cpuacct.usage", "4000000000")],
    );
    assert_eq!([v1.get("cgroup/memory"), v1.get("cgroup/cpu")], [Some(900.0), Some(2.0)]);
    assert_eq!([v1.get("cgroup/memory_limit"), v1.get("cgroup/cpu_limit")], [None, None]);
}

#[test]
fn the_first_resource_is_named_with_its_rule() {
    let look = |values: &[(&str, f64)]| {
        let mut look = Look::default();
        values.iter().for_each(|(name, value)| look.set(*name, "", *value));
        look
    };
    let full = [("disk/util", 0.99), ("machine/cpu", 3.99)];
    let mut detector = SaturationDetector::of(4.0, 100.0);
    for (second, values) in
        [(1.0, &full[..]), (2.0, &full), (3.0, &[]), (4.0, &full[1..]), (5.0, &full), (6.0, &full)]
    {
        detector.update(&look(values), second);
    }
    let first = detector.first().unwrap();
    assert_eq!(
        (first.resource.as_str(), first.at_s),
        ("machine CPU", 3.0),
        "the disk was idle at seconds 3 and 4"
    );
    assert!(first.why.contains("95 % of its processors, for 3 s: 3.99 of 4.00 cores"), "{}", first.why);
    assert!(detector.warnings(4)[0].contains("all 4 processors"));

    let check = |values: &[(&str, f64)], resource: &str| {
        let mut detector = SaturationDetector::of(4.0, 100.0);
        (1..=3).for_each(|second| detector.update(&look(values), f64::from(second)));
        assert_eq!(detector.first().map(|s| s.resource), Some(resource.to_owned()), "{values:?}");
    };
    check(&[("cgroup/memory", 96.0), ("cgroup/memory_limit", 100.0), ("machine/cpu", 4.0)], "target memory");
    check(&[("cgroup/cpu", 1.0), ("cgroup/cpu_limit", 1.0)], "target CPU");
    check(&[("cgroup/throttled", 0.6)], "target CPU");
    check(&[("target/cpu", 4.0)], "target CPU");
    check(&[("target/files", 1000.0), ("target/files_limit", 1024.0)], "open files");
    check(&[("machine/memory_available", 2.0)], "machine memory");
    let mut idle = SaturationDetector::of(4.0, 100.0);
    idle.update(&look(&[("disk/util", 0.1), ("machine/cpu", 0.5), ("machine/memory_available", 50.0)]), 1.0);
    assert_eq!((idle.first(), idle.warnings(4).len()), (None, 0));
}

#[test]
fn systems_are_recognised_by_their_metrics() {
    let check = |text: &str, kind: Kind, version: Option<&str>, values: &[(&str, f64)]| {
        let own = recognise(text);
        assert_eq!((own.kind, own.version.as_deref()), (kind, version), "{text}");
        assert_eq!(own.values.iter().map(|(n, v)| (*n, *v)).collect::<Vec<_>>(), values, "{text}");
    };
    check(
        "# HELP x\nfloodmark_head_series{partition=\"0\"} 3\nfloodmark_head_series{partition=\"1\"} 4\n\
         floodmark_http_write_answers_total{status=\"2xx\"} 9\nfloodmark_http_write_answers_total{status=\"503\"} 2\n",
        Kind::Floodmark,
        None,
        &[("own/refused", 2.0), ("own/series", 7.0)],
    );
    check(
        "prometheus_build_info{branch=\"v\",version=\"3.1.0\",goversion=\"go1\"} 1\nprometheus_tsdb_head_series 5\n\
         process_resident_memory_bytes 1.5e+08\nprometheus_tsdb_head_samples_appended_total{type=\"float\"} 10 1795\n\
         prometheus_tsdb_head_samples_appended_total{type=\"histogram\"} 2\n",
        Kind::Prometheus,
        Some("3.1.0"),
        &[("own/memory", 1.5e8), ("own/samples_in", 12.0), ("own/series", 5.0)],
    );
    check(
        "prometheus_tsdb_head_series 1\ncortex_build_info{version=\"1.21\"} 1\ncortex_ingester_memory_series 8\n",
        Kind::Cortex,
        Some("1.21"),
        &[("own/series", 8.0)],
    );
    check(
        "vm_app_version{version=\"victoria-metrics-2026-x\", short_version=\"v1.150.0\"} 1\n\
         vm_cache_entries{type=\"storage/hour_metric_ids\"} 6\nvm_cache_entries{type=\"other\"} 100\n\
         vm_rows_inserted_total{type=\"promremotewrite\"} 44\n",
        Kind::VictoriaMetrics,
        Some("v1.150.0"),
        &[("own/samples_in", 44.0), ("own/series_active", 6.0)],
    );
    check(
        "carbon_agents_host_a_cache_size 12\ncarbon_agents_host_a_cache_queues 3\n",
        Kind::Carbon,
        None,
        &[("own/queue", 12.0), ("own/series", 3.0)],
    );
    check(
        "up 1\nprocess_resident_memory_bytes 7\nprocess_start_time_seconds 1e9",
        Kind::Other,
        None,
        &[("own/memory", 7.0)],
    );
    for hostile in [
        "",
        "{",
        "a{",
        "a{b=\"}\\\"",
        "a NaN",
        "a{x=\"} 5\"} q",
        "x_build_info{version=\"",
        "\u{0}\u{7f}é{é} 1",
    ] {
        assert_eq!(recognise(hostile).values.len(), 0, "{hostile:?}");
    }
    let tricky = "prometheus_tsdb_head_series{a=\"} 9 \\\" }\",b=\"c\"} 4";
    assert_eq!(recognise(tricky).values["own/series"], 4.0);
}

/// Starts a target whose `/metrics` returns `text`, and returns its URL.
async fn exposition(text: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let text = Arc::clone(&text);
            let service = service_fn(move |_: Request<hyper::body::Incoming>| {
                let text = text.lock().unwrap().clone();
                async move {
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(bytes::Bytes::from(text))))
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    url
}

#[tokio::test]
async fn a_second_of_this_process() {
    let text = Arc::new(Mutex::new("floodmark_head_series 5\nprocess_start_time_seconds 100\n".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let options = ObserveOptions {
        pid: Some(std::process::id()),
        metrics_url: Some(exposition(text).await),
        data_dir: Some(folder.path().to_owned()),
        ..ObserveOptions::default()
    };
    let mut observation = Observation::begin(&options).await.unwrap();
    std::fs::write(folder.path().join("file"), "x".repeat(100_000)).unwrap();
    let mut timeline = Timeline::default();
    let mut looks = 0;
    // the scrape runs in the background, so wait until its figures appear
    while timeline.get("own/series").is_none() {
        timeline.advance(f64::from(looks));
        observation.second(&mut timeline).await;
        looks += 1;
        tokio::task::yield_now().await;
    }
    for name in
        ["target/cpu", "target/memory", "target/threads", "target/files", "machine/cpu", "network/loopback"]
    {
        assert!(timeline.get(name).is_some(), "{name}: {:?}", timeline.series.keys());
    }
    let mut result = RunResult::default();
    result.totals.samples_per_s = 1000.0;
    (result.totals.series_active, result.totals.series_distinct) = (10, 20);
    observation.end(&mut result).await;
    assert_eq!(result.figure("files_per_series"), Some(0.05));
    assert_eq!(result.versions["target"], "Floodmark");
    assert_eq!((result.totals.restarts, result.events.len()), (0, 0));
    for name in ["rss_peak_bytes", "cpu_s", "bytes_per_series", "samples_per_s_per_gib", "target_memory_peak"]
    {
        assert!(result.figure(name).is_some_and(|value| value >= 0.0), "{name}: {:?}", result.observed);
    }
}

struct Sleeper(std::process::Child);

impl Sleeper {
    fn start() -> Self {
        let mut command = std::process::Command::new("sleep");
        command.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn end(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.end();
    }
}

#[tokio::test]
async fn a_restarted_process_is_followed() {
    let (mut first, mut second) = (Sleeper::start(), Sleeper::start());
    let options = ObserveOptions { pid: Some(first.0.id()), ..ObserveOptions::default() };
    let mut observation = Observation::begin(&options).await.unwrap();
    let mut timeline = Timeline::default();
    timeline.advance(0.0);
    observation.second(&mut timeline).await;
    first.end();
    observation.second(&mut timeline).await;
    observation.second(&mut timeline).await;
    assert_eq!(observation.events.len(), 1);
    assert!(observation.events[0].text.contains("ended"), "{:?}", observation.events);
    // a restart by the run itself must not be reported as an event of the target
    observation.target_is(second.0.id());
    observation.second(&mut timeline).await;
    second.end();
    let mut result = RunResult::default();
    observation.end(&mut result).await;
    assert_eq!(result.totals.restarts, 0);
    assert!(TargetProcess::new(u32::MAX).is_err());
}

#[tokio::test]
async fn a_restart_is_seen_from_the_metrics_alone() {
    let text = Arc::new(Mutex::new("process_start_time_seconds 100\n".to_owned()));
    let url = exposition(Arc::clone(&text)).await;
    let mut scrape = Scrape::start(&url, &[], &Access::loopback()).await.unwrap();
    let mut restarts = 0;
    let mut heard = async |scrape: &mut Scrape| loop {
        let mut look = Look::default();
        let before = scrape.kind();
        scrape.look(&mut look);
        restarts += look.restarts;
        if scrape.kind().is_some() && (before.is_none() || look.restarts > 0) {
            return restarts;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(heard(&mut scrape).await, 0);
    *text.lock().unwrap() = "process_start_time_seconds 200\n".to_owned();
    assert_eq!(heard(&mut scrape).await, 1);
}

#[tokio::test]
async fn impossible_options_are_refused() {
    let refused = async |options: ObserveOptions, why: &str| {
        let said = format!("{:#}", Observation::begin(&options).await.unwrap_err());
        assert!(said.contains(why), "{said}");
    };
    let none = ObserveOptions::default();
    Observation::begin(&none).await.unwrap();
    refused(ObserveOptions { pid: Some(u32::MAX), ..none.clone() }, "no process").await;
    refused(ObserveOptions { cgroup: Some("/proc".into()), ..none.clone() }, "is not a control group").await;
    refused(
        ObserveOptions { metrics_url: Some("http://192.0.2.1/m".into()), ..none.clone() },
        "not this machine",
    )
    .await;
    refused(ObserveOptions { data_dir: Some("/nowhere/at/all".into()), ..none }, "find the disk").await;
}
