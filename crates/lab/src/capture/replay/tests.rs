use super::distributor::SampleClock;
use super::*;
use crate::capture::file::Writer;
use crate::capture::file::conceal::{Conceal, Concealer};
use crate::capture::file::request::Parsed;
use crate::drive::run::run;
use crate::generate::template::Version;
use crate::result::RunResult;
use crate::scenario::{SampleTimes, Span, Texts};
use crate::show::progress::Silent;
use crate::show::progress::{Observer, Progress};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use model::Labels;
use protocol::encode::V1Encoder;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Mutex;
use tokio::net::TcpListener;

const BEGUN_MS: i64 = 1_795_284_000_000;

/// Samples that the target has received, by series, and the numbers of its requests by version and tenant.
#[derive(Default)]
struct Seen {
    samples: BTreeMap<String, Vec<(i64, u64)>>,
    histograms: Vec<(i64, Vec<u8>)>,
    by_tenant: BTreeMap<(u8, String), u64>,
    requests: usize,
}

struct Target {
    url: String,
    seen: Arc<Mutex<Seen>>,
}

impl Target {
    /// Answers with the given statuses one after the other, and then always with 200. The status 0 breaks the
    /// connection.
    async fn start(script: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (shared, script) = (Arc::clone(&seen), script.to_vec());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, script) = (Arc::clone(&shared), script.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let (seen, script) = (Arc::clone(&seen), script.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map_err(|_| "body")?.to_bytes();
                        let mut seen = seen.lock().unwrap();
                        let status = script.get(seen.requests).copied().unwrap_or(200);
                        seen.requests += 1;
                        if status == 0 {
                            return Err("breaks the connection");
                        }
                        if status == 200 {
                            seen.keep(&head.headers, &body);
                        }
                        let mut answer = Response::new(Full::new(bytes::Bytes::from("said")));
                        *answer.status_mut() = status.try_into().unwrap();
                        Ok(answer)
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { url, seen }
    }
}

impl Seen {
    fn keep(&mut self, headers: &header::HeaderMap, body: &[u8]) {
        let text = |name: &str| headers.get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
        assert_eq!(text("content-encoding"), "snappy");
        let message = Version::of_content_type(&text("content-type"));
        *self.by_tenant.entry((message.number(), text("x-scope-orgid"))).or_default() += 1;
        let mut parsed = Parsed::default();
        parsed.read(message, body).unwrap();
        for series in parsed.series() {
            let label = |(n, v): (&[u8], &[u8])| {
                format!("{}={} ", String::from_utf8_lossy(n), String::from_utf8_lossy(v))
            };
            let name: String = series.labels().map(label).collect();
            self.samples.entry(name).or_default().extend_from_slice(series.samples());
            self.histograms.extend(series.histograms().map(|(t, bytes)| (t, bytes.to_vec())));
        }
    }
}

/// Records a number of requests that arrive `step_us` apart. Each has one sample of each of 10 series.
fn record(path: &std::path::Path, requests: i64, step_us: i64) {
    let concealer = Concealer::new(Conceal::default(), [0; 16]);
    let mut writer = Writer::begin(File::create(path).unwrap(), BEGUN_MS, concealer).unwrap();
    let (mut parsed, mut encoder) = (Parsed::default(), V1Encoder::new());
    for number in 0..requests {
        for series in 0..10 {
            let labels = Labels::from_pairs(&[("__name__", "m"), ("n", &series.to_string())]);
            encoder.series(labels.as_ref(), &[BEGUN_MS + number * step_us / 1000], &[number as f64]);
        }
        parsed.read(Version::V1, encoder.finish()).unwrap();
        let tenant = if number % 2 == 0 { "a" } else { "" };
        writer.append(number * step_us, Version::V1, tenant, &parsed).unwrap();
    }
    writer.flush().unwrap();
}

fn scenario(path: &std::path::Path, url: &str, replay: ReplaySpec) -> Scenario {
    let mut scenario = Scenario { duration: Span::seconds(604_800.0), ..Scenario::default() };
    scenario.target.write = Texts::One(url.to_owned());
    scenario.replay = Some(ReplaySpec { file: path.to_owned(), ..replay });
    scenario
}

fn at_speed(speed: f64) -> ReplaySpec {
    ReplaySpec { speed, ..ReplaySpec::default() }
}

async fn play(scenario: &Scenario) -> RunResult {
    run(scenario, &RunOptions::default(), &Silent).await.unwrap()
}

fn is_sorted(samples: &[(i64, u64)]) -> bool {
    samples.windows(2).all(|w| w[0].0 < w[1].0 && f64::from_bits(w[0].1) < f64::from_bits(w[1].1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_in_order_and_as_often_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 200, 1_000_000);
    // samples must arrive in order, even if some requests are refused and repeated
    let target = Target::start(&[200, 503, 503, 0, 429]).await;
    let mut scenario = scenario(&path, &target.url, ReplaySpec { copies: 3, ..at_speed(5_000.0) });
    (scenario.load.writers, scenario.load.batch) = (5, 7);
    scenario.load.backoff_min = Span::seconds(0.0);
    let result = play(&scenario).await;
    let seen = target.seen.lock().unwrap();
    assert_eq!(seen.samples.len(), 30);
    assert!(
        seen.samples.keys().all(|name| name.contains("__name__=m floodmark_copy=")),
        "{:?}",
        seen.samples.keys()
    );
    for (name, samples) in &seen.samples {
        assert_eq!(samples.len(), 200, "{name}");
    }
    let totals = &result.totals;
    assert_eq!((totals.samples_acknowledged, totals.samples_offered), (6_000, 6_000));
    assert_eq!((totals.by_reason["503"], totals.by_reason["429"], totals.by_reason["broken"]), (2, 1, 1));
    assert_eq!(totals.series_distinct, 60, "two tenants have 10 series each, three times");
    assert!(
        seen.by_tenant.contains_key(&(1, "a".into())) && seen.by_tenant.contains_key(&(1, String::new()))
    );
    assert!(result.passed() && result.notes.iter().any(|note| note.contains("recorded: ")), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_samples_of_a_tenants_series_stay_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 300, 1_000_000);
    let target = Target::start(&[]).await;
    let replay = ReplaySpec { protocol: Some(Version::V2), ..at_speed(5_000.0) };
    let mut scenario = scenario(&path, &target.url, replay);
    scenario.target.headers.0.insert("X-Scope-OrgID".to_owned(), "one".to_owned());
    scenario.load.batch = 100;
    let result = play(&scenario).await;
    let seen = target.seen.lock().unwrap();
    assert_eq!(seen.by_tenant.keys().collect::<Vec<_>>(), [&(2, "one".to_owned())]);
    assert_eq!((seen.samples.len(), result.totals.samples_acknowledged), (10, 3_000));
    // two tenants have the same labels here, so each entry mixes the samples of two series
    for samples in seen.samples.values() {
        for parity in [0, 1] {
            let of_one: Vec<_> = samples
                .iter()
                .copied()
                .filter(|(_, bits)| f64::from_bits(*bits) as i64 % 2 == parity)
                .collect();
            assert!(of_one.len() == 150 && is_sorted(&of_one), "{of_one:?}");
        }
    }
}

#[test]
fn sample_times_are_scaled_or_shifted() {
    let scaled = SampleClock::new(SampleTimes::Scaled, 10.0, 1_000, 60_000, 900_000);
    assert_eq!(
        [1_000, 16_000, 0, 1_009, 1_010].map(|t| scaled.at(t)),
        [900_000, 901_500, 899_900, 900_000, 900_001]
    );
    let shifted = SampleClock::new(SampleTimes::Shifted, 10.0, 1_000, 60_000, 900_000);
    // the last sample of the recording gets the time at which the replay ends
    assert_eq!([61_000, 1_000].map(|t| shifted.at(t)), [906_000, 846_000]);
    for t in [i64::MIN, i64::MAX] {
        scaled.at(t);
        shifted.at(t);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_timestamps_are_moved_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 100, 2_000);
    let target = Target::start(&[]).await;
    let mut scenario = scenario(&path, &target.url, at_speed(100.0));
    scenario.target.headers.0.insert("x-scope-orgid".to_owned(), "one".to_owned());
    let result = play(&scenario).await;
    assert!(result.warnings.iter().any(|w| w.contains("samples moved by")), "{:?}", result.warnings);
    assert_eq!(target.seen.lock().unwrap().samples.values().map(Vec::len).sum::<usize>(), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_histograms_are_played_with_new_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    let labels = Labels::from_pairs(&[("__name__", "h")]);
    let histogram = [&[0x19][..], &2.5f64.to_le_bytes(), &[0x78], &[1]].concat();
    let series = [labels.as_bytes(), &[0x22, histogram.len() as u8], &histogram].concat();
    let message = [&[0x0a, series.len() as u8][..], &series].concat();
    let body = snap::raw::Encoder::new().compress_vec(&message).unwrap();
    let mut parsed = Parsed::default();
    parsed.read(Version::V1, &body).unwrap();
    let concealer = Concealer::new(Conceal::default(), [0; 16]);
    let mut writer = Writer::begin(File::create(&path).unwrap(), 1, concealer).unwrap();
    writer.append(0, Version::V1, "", &parsed).unwrap();
    writer.flush().unwrap();
    for version in [Version::V1, Version::V2] {
        let target = Target::start(&[]).await;
        let replay = ReplaySpec { protocol: Some(version), ..ReplaySpec::default() };
        let result = play(&scenario(&path, &target.url, replay)).await;
        let seen = target.seen.lock().unwrap();
        assert_eq!(seen.histograms, [(result.begun_ms, histogram[..9].to_vec())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_wants_nothing_ends_the_replay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 500, 1_000);
    let target = Target::start(&[400; 1_000]).await;
    let mut scenario = scenario(&path, &target.url, at_speed(10.0));
    (scenario.load.writers, scenario.load.batch) = (1, 10);
    let result = play(&scenario).await;
    assert_eq!((result.totals.samples_acknowledged, result.totals.rejected), (0, 20));
    assert_eq!(result.totals.said["400"], "said");
    assert!(result.totals.unsent > 0);
}

/// Stops a replay as soon as it is announced.
struct StopsAtOnce(Stop);

impl Observer for StopsAtOnce {
    fn progress(&self, _: &Progress) {}
    fn note(&self, _: &str) {
        self.0.now();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_is_partial_and_too_long_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 100, 1_000_000_000);
    let target = Target::start(&[]).await;
    let mut scenario = scenario(&path, &target.url, ReplaySpec::default());
    let options = RunOptions::default();
    // the second request is due in a quarter of an hour
    let result = run(&scenario, &options, &StopsAtOnce(options.stop.clone())).await.unwrap();
    assert!(result.partial && !result.passed());
    assert!(result.totals.samples_offered <= 10 && result.events.len() == 1, "{result:?}");
    let again = run(&scenario, &options, &Silent).await.unwrap_err().to_string();
    assert!(again.contains("stopped while reading"), "{again}");
    scenario.duration = Span::seconds(0.001);
    let result = play(&scenario).await;
    assert!(result.totals.samples_offered <= 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_recordings_and_targets_are_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 3, 1_000);
    let refused = async |scenario: Scenario, why: &str| {
        let said = format!("{:#}", run(&scenario, &RunOptions::default(), &Silent).await.unwrap_err());
        assert!(said.contains(why), "{said}");
    };
    let target = Target::start(&[]).await;
    let of = |file: &str, url: &str| scenario(&folder.path().join(file), url, ReplaySpec::default());
    refused(of("none", &target.url), "cannot open ").await;
    refused(of("r", "http://192.0.2.1/"), "not this machine").await;
    refused(of("r", "http://127.0.0.1:1/"), "reach ").await;
    for (text, why) in [
        ("speed = 0", "speed: 0"),
        ("speed = nan", "speed: NaN"),
        ("copies = 0", "copies: 0"),
        ("[load]\nwriters = 0", "writers: 0"),
        ("[shape]\nkind = 'ramp'", "shape, history and rounds cannot be set"),
    ] {
        let error = Scenario::parse(&format!("[replay]\nfile = 'r'\n{text}")).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    std::fs::write(folder.path().join("garbage"), [7; 100]).unwrap();
    refused(of("garbage", &target.url), "not a recording").await;
    let bytes = std::fs::read(&path).unwrap();
    let torn = folder.path().join("torn");
    std::fs::write(&torn, &bytes[..bytes.len() - 1]).unwrap();
    refused(of("torn", &target.url), "the recording has no samples").await;
    std::fs::write(&torn, [bytes.as_slice(), &[1, 2, 3]].concat()).unwrap();
    let result = play(&of("torn", &target.url)).await;
    assert!(result.warnings.iter().any(|w| w.contains("is cut off")), "{:?}", result.warnings);
    assert_eq!(result.totals.samples_acknowledged, 30);
}
