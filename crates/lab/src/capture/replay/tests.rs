use super::dealer::SampleClock;
use super::*;
use crate::capture::file::Writer;
use crate::capture::file::conceal::{Conceal, Concealer};
use crate::capture::file::request::Parsed;
use crate::show::progress::Silent;
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

/// Samples by series as a target saw them, and how many requests of which version and tenant.
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
    /// Answers with the statuses of a script, one after the other, and then with 200. 0 breaks the connection.
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
        let message = Message::of_content_type(&text("content-type"));
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

/// `requests` requests of 10 series each, `step_us` apart, with a sample for each request.
fn record(path: &std::path::Path, requests: i64, step_us: i64) {
    let concealer = Concealer::new(Conceal::default(), [0; 16]);
    let mut writer = Writer::begin(File::create(path).unwrap(), BEGUN_MS, concealer).unwrap();
    let (mut parsed, mut encoder) = (Parsed::default(), V1Encoder::new());
    for number in 0..requests {
        for series in 0..10 {
            let labels = Labels::from_pairs(&[("__name__", "m"), ("n", &series.to_string())]);
            encoder.series(labels.as_ref(), &[BEGUN_MS + number * step_us / 1000], &[number as f64]);
        }
        parsed.read(Message::V1, encoder.finish()).unwrap();
        let tenant = if number % 2 == 0 { "a" } else { "" };
        writer.append(number * step_us, Message::V1, tenant, &parsed).unwrap();
    }
    writer.flush().unwrap();
}

async fn play(options: &ReplayOptions) -> RunResult {
    replay(options, &Silent).await.unwrap()
}

fn is_sorted(samples: &[(i64, u64)]) -> bool {
    samples.windows(2).all(|w| w[0].0 < w[1].0 && f64::from_bits(w[0].1) < f64::from_bits(w[1].1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_in_order_and_as_often_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 200, 1_000_000);
    // refusals in the middle must not change the order
    let target = Target::start(&[200, 503, 503, 0, 429]).await;
    let retry = RetryPolicy { backoff_min: Duration::ZERO, ..RetryPolicy::default() };
    let options = ReplayOptions {
        speed: 5_000.0,
        copies: 3,
        writers: 5,
        batch: 7,
        retry,
        ..ReplayOptions::new(&path, &target.url)
    };
    let result = play(&options).await;
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
    assert!(!result.partial && result.scenario.contains("speed = 5000"), "{}", result.scenario);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_samples_of_a_tenants_series_stay_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 300, 1_000_000);
    let target = Target::start(&[]).await;
    let headers = vec![("X-Scope-OrgID".to_owned(), "one".to_owned())];
    let options = ReplayOptions {
        speed: 5_000.0,
        headers,
        message: Some(Message::V2),
        batch: 100,
        ..ReplayOptions::new(&path, &target.url)
    };
    let result = play(&options).await;
    let seen = target.seen.lock().unwrap();
    assert_eq!(seen.by_tenant.keys().collect::<Vec<_>>(), [&(2, "one".to_owned())]);
    assert_eq!((seen.samples.len(), result.totals.samples_acknowledged), (10, 3_000));
    // each tenant's samples are in order; the two were two different series of the same labels
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
    let scaled = SampleClock::new(Times::Scaled, 10.0, 1_000, 60_000, 900_000);
    assert_eq!(
        [1_000, 16_000, 0, 1_009, 1_010].map(|t| scaled.at(t)),
        [900_000, 901_500, 899_900, 900_000, 900_001]
    );
    let shifted = SampleClock::new(Times::Shifted, 10.0, 1_000, 60_000, 900_000);
    // the recording's end falls on the replay's
    assert_eq!([61_000, 1_000].map(|t| shifted.at(t)), [906_000, 846_000]);
    for t in [i64::MIN, i64::MAX] {
        scaled.at(t);
        shifted.at(t);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_that_would_meet_move_on_and_it_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 100, 2_000);
    let target = Target::start(&[]).await;
    let headers = vec![("x-scope-orgid".to_owned(), "one".to_owned())];
    let options = ReplayOptions { speed: 100.0, headers, ..ReplayOptions::new(&path, &target.url) };
    let result = play(&options).await;
    assert!(result.warnings.iter().any(|w| w.contains("moved on")), "{:?}", result.warnings);
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
    parsed.read(Message::V1, &body).unwrap();
    let concealer = Concealer::new(Conceal::default(), [0; 16]);
    let mut writer = Writer::begin(File::create(&path).unwrap(), 1, concealer).unwrap();
    writer.append(0, Message::V1, "", &parsed).unwrap();
    writer.flush().unwrap();
    for message in [Message::V1, Message::V2] {
        let target = Target::start(&[]).await;
        let options = ReplayOptions { message: Some(message), ..ReplayOptions::new(&path, &target.url) };
        let result = play(&options).await;
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
    let options =
        ReplayOptions { writers: 1, batch: 10, speed: 10.0, ..ReplayOptions::new(&path, &target.url) };
    let result = play(&options).await;
    assert_eq!((result.totals.samples_acknowledged, result.totals.rejected), (0, 20));
    assert_eq!(result.totals.said["400"], "said");
    assert!(result.totals.unsent > 0);
}

/// Stops a replay when it is announced.
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
    let options = ReplayOptions::new(&path, &target.url);
    // all but the first request are due in a quarter of an hour or later
    let result = replay(&options, &StopsAtOnce(options.stop.clone())).await.unwrap();
    assert!(result.partial && !result.passed());
    assert!(result.totals.samples_offered <= 10 && result.events.len() == 1, "{result:?}");
    assert!(replay(&options, &Silent).await.unwrap_err().to_string().contains("stopped while reading"));
    let options =
        ReplayOptions { duration: Some(Duration::from_millis(1)), ..ReplayOptions::new(&path, &target.url) };
    let result = play(&options).await;
    assert!(result.totals.samples_offered <= 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_recordings_and_targets_are_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r");
    record(&path, 3, 1_000);
    let refused = async |options: ReplayOptions, why: &str| {
        let said = format!("{:#}", replay(&options, &Silent).await.unwrap_err());
        assert!(said.contains(why), "{said}");
    };
    let target = Target::start(&[]).await;
    let good = ReplayOptions::new(&path, &target.url);
    refused(ReplayOptions { file: folder.path().join("none"), ..good.clone() }, "open ").await;
    refused(ReplayOptions { url: "http://192.0.2.1/".into(), ..good.clone() }, "not this machine").await;
    refused(ReplayOptions { url: "http://127.0.0.1:1/".into(), ..good.clone() }, "reach ").await;
    refused(ReplayOptions { speed: 0.0, ..good.clone() }, "speed: 0").await;
    refused(ReplayOptions { speed: f64::NAN, ..good.clone() }, "speed: NaN").await;
    refused(ReplayOptions { writers: 0, ..good.clone() }, "writers: 0").await;
    refused(ReplayOptions { copies: 0, ..good.clone() }, "copies: 0").await;
    let garbage = folder.path().join("garbage");
    std::fs::write(&garbage, [7; 100]).unwrap();
    refused(ReplayOptions { file: garbage, ..good.clone() }, "no recording").await;
    let bytes = std::fs::read(&path).unwrap();
    let torn = folder.path().join("torn");
    std::fs::write(&torn, &bytes[..bytes.len() - 1]).unwrap();
    refused(ReplayOptions { file: torn.clone(), ..good.clone() }, "nothing in this recording").await;
    std::fs::write(&torn, [bytes.as_slice(), &[1, 2, 3]].concat()).unwrap();
    let result = play(&ReplayOptions { file: torn, ..good }).await;
    assert!(result.warnings.iter().any(|w| w.contains("breaks off")), "{:?}", result.warnings);
    assert_eq!(result.totals.samples_acknowledged, 30);
}
