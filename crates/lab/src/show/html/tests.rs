use super::*;
use crate::result::Quantiles;
use crate::result::{
    AccountFigure, Event, FORMAT, Judgement, Machine, ReadTotals, Saturation, SeriesKind, Step, Timeline,
    Totals,
};
use crate::verify::VerifyReport;
use expect_test::expect_file;

/// Text that would run a script if the report did not escape it.
const HOSTILE: &str =
    "</script><script>document.title='owned'</script><img src=x onerror=\"alert(1)\">'\"&<!--";

fn quantiles(base: f64) -> Quantiles {
    let [p50_s, p90_s, p99_s, max_s] = [1.0, 2.0, 9.0, 30.0].map(|f| f * base);
    Quantiles { count: 5_000, p50_s, p90_s, p99_s, max_s, mean_s: base }
}

pub(crate) fn sample(load: f64) -> RunResult {
    let mut timeline = Timeline::default();
    let mut rng = stdx::rng::Rng::new(load as u64);
    for second in 0..240 {
        let s = f64::from(second);
        timeline.advance(s);
        let spike = if (120..150).contains(&second) { 1.8 } else { 1.0 };
        let noise = 1.0 + 0.06 * (rng.unit() - 0.5);
        let down = (170..176).contains(&second);
        let mut sum = |name: &str, unit: &str, value: f64| timeline.set(name, unit, SeriesKind::Sum, value);
        sum("rate/offered", "1/s", load * spike);
        sum("rate/acknowledged", "1/s", if down { 0.0 } else { load * spike * noise });
        sum("status/204", "1/s", if down { 0.0 } else { load / 2000.0 * spike });
        sum("status/503", "1/s", if spike > 1.0 { 6.0 * noise } else { 0.0 });
        sum("series/active", "", load * 10.0);
        sum("series/distinct", "", load * 10.0 * (1.0 + s / 60.0));
        sum("generator/cpu", "cores", 0.3 * noise);
        let mut max = |name: &str, unit: &str, value: f64| timeline.set(name, unit, SeriesKind::Max, value);
        if !down {
            max("latency/p50", "s", 0.004 * spike * noise);
            max("latency/p90", "s", 0.012 * spike * spike * noise);
            max("latency/p99", "s", 0.04 * spike.powi(6) * noise);
            max("target/cpu", "cores", 0.9 * spike * noise);
            max("target/memory", "bytes", 4e8 + 2e6 * s);
        }
        max("cgroup/memory_limit", "bytes", 1.2e9);
        max("machine/cpu", "cores", (1.3 * spike * noise).min(2.0));
        max("disk/util", "part", (0.2 * spike * noise).min(1.0));
        max("disk/await", "s", 0.003 * noise);
        max("own/samples_in", "1/s", load * noise);
        max("something/else", "1/s", s);
    }
    timeline.finish();
    RunResult {
        format: FORMAT,
        name: "spike".into(),
        scenario: format!("name = \"spike\"\n# {HOSTILE}\n[load]\nrate = 110000\n"),
        overrides: vec!["load.rate = 11000".into()],
        seed: 7,
        target: format!("http://127.0.0.1:9009/api/v1/push?{HOSTILE}"),
        versions: [("lab", "0.1.0"), ("target", "Floodmark 0.1.0")].map(|(k, v)| (k.into(), v.into())).into(),
        machine: Machine {
            cores: 2,
            cpu: "Some CPU".into(),
            memory_bytes: 24 << 30,
            kernel: "Linux 6.1".into(),
            arch: "x86_64".into(),
        },
        part: (1, 1),
        begun_ms: 1_795_284_000_000,
        wall_s: 240.0,
        events: vec![
            Event::new(120.0, EventKind::Step, "spike: 1.8 times the load"),
            Event::new(150.0, EventKind::Step, "back to the plain load"),
            Event::new(170.0, EventKind::Fault, "kill -9"),
            Event::new(176.0, EventKind::Target, HOSTILE),
        ],
        timeline,
        steps: ["before", "spike", "after"]
            .into_iter()
            .map(|name| Step { name: name.into(), latency: quantiles(0.004), to_s: 120.0, ..Step::default() })
            .collect(),
        totals: Totals {
            samples_offered: 26_400_000,
            samples_acknowledged: 26_000_000,
            samples_per_s: load,
            attempts: 13_300,
            succeeded: 13_000,
            by_reason: [("204", 13_000), ("503", 250), (HOSTILE, 50)].map(|(k, v)| (k.into(), v)).into(),
            said: [("503".into(), HOSTILE.into())].into(),
            without_retry_after: 250,
            series_active: 100_000,
            series_distinct: 500_000,
            latency: quantiles(0.004),
            latency_new: quantiles(0.02),
            latency_known: quantiles(0.003),
            service: quantiles(0.003),
            refusal: quantiles(0.000_4),
            freshness: quantiles(0.1),
            lag: quantiles(0.000_03),
            ..Totals::default()
        },
        reads: vec![ReadTotals {
            name: "dashboards".into(),
            queries: 1000,
            succeeded: 990,
            queries_per_s: 40.0,
            by_reason: [("200".into(), 990), ("422".into(), 10)].into(),
            said: [("422".into(), HOSTILE.into())].into(),
            latency: quantiles(0.02),
            ..ReadTotals::default()
        }],
        verify: Some(VerifyReport {
            acknowledged: 26_000_000,
            read_back: 26_000_000,
            ..VerifyReport::default()
        }),
        verdict: [
            ("p99", "≤ 1 s", "36 ms", true),
            ("lost", "= 0", "0", true),
            ("pass rate", "≥ 99 %", "97.74 %", false),
        ]
        .map(|(rule, limit, measured, pass)| Judgement {
            rule: rule.into(),
            limit: limit.into(),
            measured: measured.into(),
            pass,
            ..Judgement::default()
        })
        .into(),
        account: vec![
            AccountFigure {
                what: "samples a second".into(),
                value: 110_000.0,
                unit: "1/s".into(),
                ours: Some("samples_per_s".into()),
                note: "18 ingesters, 3 distributors".into(),
                ..AccountFigure::default()
            },
            AccountFigure {
                what: "samples a second for each core".into(),
                value: 3_235.0,
                unit: "1/s".into(),
                ours: Some("samples_per_s_per_core".into()),
                note: "110 k on 34 CPUs".into(),
                ..AccountFigure::default()
            },
            AccountFigure {
                what: "memory".into(),
                value: 119.0,
                unit: "GiB".into(),
                ours: Some("rss_peak_bytes".into()),
                ..AccountFigure::default()
            },
        ],
        saturated: Some(Saturation {
            resource: "machine CPU".into(),
            at_s: 121.0,
            why: "95 % for 3 s".into(),
        }),
        observed: [
            ("rss_peak_bytes", 1.1e9),
            ("cpu_cores_mean", 1.05),
            ("samples_per_s_per_core", load / 1.05),
            ("bytes_per_series", 1.1e4),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .into(),
        warnings: vec!["target and generator together used all 2 cores".into()],
        notes: vec!["Network between machines: both ran on this one.".into(), HOSTILE.into()],
        ..RunResult::default()
    }
}

#[test]
fn a_page_stands_alone_and_hostile_text_stays_text() {
    let page = of(&sample(110_000.0));
    if let Ok(dir) = std::env::var("FLOODMARK_PAGES") {
        std::fs::write(Path::new(&dir).join("report.html"), &page).unwrap();
    }
    assert_eq!(page.matches("<script").count(), 2, "a page has only two scripts: data and code");
    assert_eq!(page.matches("</script>").count(), 2);
    for taboo in ["<img", "onerror=\"", "src=\"", "href=", "@import", "url(", "://cdn"] {
        assert!(!page.contains(taboo), "{taboo}");
    }
    assert!(page.contains("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;"));
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["events"][3]["text"], HOSTILE);
    assert_eq!(data["length_s"], 240.0);
    let titles: Vec<&str> =
        data["panels"].as_array().unwrap().iter().map(|p| p["title"].as_str().unwrap()).collect();
    for title in
        ["Samples a second", "Latency from the scheduled start", "CPU", "Memory", "Disk busy", "something"]
    {
        assert!(titles.contains(&title), "{title}: {titles:?}");
    }
}

#[test]
fn every_part_has_its_place() {
    let page = of(&sample(110_000.0));
    let (_, body) = page.split_once("<body>").unwrap();
    let (body, _) = body.split_once("<script").unwrap();
    expect_file!["snapshots/report.html"].assert_eq(body);
}

#[test]
fn partial_and_empty_results_say_so() {
    let page = of(&RunResult { partial: true, ..sample(1.0) });
    assert!(page.contains(">PARTIAL</div>") && page.contains("ended early"));
    let empty = of(&RunResult::default());
    assert!(empty.contains("NO RULES") && empty.contains("1970-01-01 00:00:00 UTC"));
    let pass = of(&RunResult {
        verdict: vec![Judgement { pass: true, ..Judgement::default() }],
        ..RunResult::default()
    });
    assert!(pass.contains(">PASS</div>"));
}

#[test]
fn dates_are_those_of_the_calendar() {
    let check = |ms, text: &str| assert_eq!(sections::date(ms), text);
    check(0, "1970-01-01 00:00:00 UTC");
    check(951_782_400_000, "2000-02-29 00:00:00 UTC");
    check(1_735_689_599_999, "2024-12-31 23:59:59 UTC");
    check(-1, "1969-12-31 23:59:59 UTC");
}

#[test]
fn a_report_that_cannot_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.html");
    save("old", &path).unwrap();
    save("new", &path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let said = format!("{:#}", save("x", &folder.path().join("no/r.html")).unwrap_err());
    assert!(said.contains("write the report"), "{said}");
}
