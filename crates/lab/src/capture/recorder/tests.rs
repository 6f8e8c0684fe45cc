use super::*;
use crate::capture::file::{Event, Reader};
use crate::http::{Access, Client};
use crate::show::progress::Silent;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use protocol::encode::{V1Encoder, V2Encoder};
use std::io::{Cursor, Seek, SeekFrom, Write};
use std::sync::{Arc, Condvar, Mutex};
use tokio::task::JoinHandle;

type Got = (Method, String, HeaderMap, Bytes);

/// Backend that answers with the given statuses one after the other, and then always with 204.
struct Backend {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
}

impl Backend {
    async fn start(script: &[u16], pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let (kept, script) = (Arc::clone(&got), script.to_vec());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (got, script) = (Arc::clone(&kept), script.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let (got, script) = (Arc::clone(&got), script.clone());
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map_err(|_| "body")?.to_bytes();
                        tokio::time::sleep(pause).await;
                        let number = {
                            let mut got = got.lock().unwrap();
                            got.push((head.method, head.uri.to_string(), head.headers, body));
                            got.len() - 1
                        };
                        let status = script.get(number).copied().unwrap_or(204);
                        if status == 0 {
                            return Err("breaks the connection");
                        }
                        let text = if status == 204 { "" } else { "text of the backend" };
                        let mut answer = Response::new(Full::new(Bytes::from(text)));
                        *answer.status_mut() = status.try_into().unwrap();
                        answer.headers_mut().insert(RETRY_AFTER, 7.into());
                        answer.headers_mut().insert("x-own", "kept".parse().unwrap());
                        Ok(answer)
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, got }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }
}

struct Running {
    address: SocketAddr,
    stop: Stop,
    task: JoinHandle<Result<RecordReport>>,
}

impl Running {
    fn of(recorder: Recorder) -> Self {
        let (address, stop) = (recorder.address().unwrap(), recorder.options.stop.clone());
        Self { address, stop, task: tokio::spawn(async move { recorder.run(&Silent).await }) }
    }

    async fn client(&self, headers: &[(&str, &str)]) -> Client {
        let pairs: Vec<_> = headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        let endpoint =
            Endpoint::resolve(&format!("http://{}", self.address), &Access::loopback()).await.unwrap();
        Client::new(endpoint, crate::http::headers(&pairs).unwrap(), Duration::from_secs(20))
    }

    async fn end(self) -> RecordReport {
        self.stop.now();
        self.task.await.unwrap().unwrap()
    }
}

const V1: [(&str, &str); 3] =
    [("content-encoding", "snappy"), ("content-type", "application/x-protobuf"), ("x-scope-orgid", "team-a")];

fn options(backend: &str, file: &std::path::Path) -> RecordOptions {
    RecordOptions::new("127.0.0.1:0".parse().unwrap(), backend, file)
}

fn body(value: f64) -> Bytes {
    let mut encoder = V1Encoder::new();
    let labels = model::Labels::from_pairs(&[("__name__", "up"), ("job", "x")]);
    encoder.series(labels.as_ref(), &[1_795_284_000_000], &[value]);
    Bytes::copy_from_slice(encoder.finish())
}

fn values(file: impl std::io::Read) -> (Vec<f64>, u64) {
    let mut reader = Reader::open(file).unwrap();
    let (mut values, mut missing) = (Vec::new(), 0);
    while let Some(event) = reader.next().unwrap() {
        match event {
            Event::Request(request) => values.extend(
                request
                    .items
                    .iter()
                    .flat_map(|item| item.samples.iter().map(|(_, bits)| f64::from_bits(*bits))),
            ),
            Event::Gap(requests, _) => missing += requests,
            Event::Forget | Event::Series(_) => {}
        }
    }
    (values, missing)
}

/// A call to a backend that has vanished waits until its sender gives up. The next call goes over a new connection.
#[tokio::test]
async fn a_call_that_its_sender_gives_up_is_the_last_on_its_connection() {
    let folder = tempfile::tempdir().unwrap();
    // accepts connections, and never answers
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = format!("http://{}", silent.local_addr().unwrap());
    let running = Running::of(Recorder::bind(options(&backend, &folder.path().join("r.rec"))).await.unwrap());
    let url = format!("http://{}", running.address);
    let endpoint = Endpoint::resolve_http2(&url, &Access::loopback()).await.unwrap();
    let stream = tokio::net::TcpStream::connect(running.address).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let handshake = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let driver = tokio::spawn(connection);
    let (scheme, authority) = endpoint.origin();
    let call = || {
        let uri = hyper::Uri::builder().scheme(scheme).authority(authority);
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = uri.path_and_query(crate::grpc::EXPORT).build().unwrap();
        *request.method_mut() = Method::POST;
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        request
    };
    let mut kept = Vec::new();
    while kept.len() < 3 {
        let patience = Duration::from_millis(50);
        let waiting = tokio::time::timeout(patience, sender.send_request(call()));
        tokio::select! {
            accepted = silent.accept() => kept.push(accepted.unwrap()),
            // the proxy may not have heard of the call before that it was given up
            answer = waiting => assert!(answer.is_err(), "{answer:?}"),
        }
    }
    driver.abort();
    running.end().await;
}

async fn send(client: &mut Client, path: &str, body: Bytes) -> crate::http::Answer {
    client.send(Method::POST, path, body).await.unwrap()
}

#[tokio::test]
async fn everything_passes_as_it_is_and_writes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.rec");
    let backend = Backend::start(&[], Duration::ZERO).await;
    let running = Running::of(Recorder::bind(options(&(backend.url() + "/prefix/"), &file)).await.unwrap());

    let mut v1 = running.client(&V1).await;
    let answer = send(&mut v1, "/api/v1/write?a=%20b", body(1.0)).await;
    assert_eq!((answer.status.as_u16(), answer.headers["x-own"].to_str().unwrap()), (204, "kept"));
    let mut encoder = V2Encoder::new();
    let labels = model::Labels::from_pairs(&[("__name__", "up"), ("job", "x")]);
    encoder.series(labels.as_ref(), &[1_795_284_001_000], &[2.0]);
    let v2_body = Bytes::copy_from_slice(encoder.finish());
    let v2_type = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    let v2 = [
        ("content-encoding", "snappy"),
        ("content-type", v2_type),
        ("authorization", "Bearer secret"),
        ("x-any", "header"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
    ];
    let mut v2 = running.client(&v2).await;
    send(&mut v2, "/api/v1/push", v2_body.clone()).await;
    let mut other = running.client(&[]).await;
    assert_eq!(other.send(Method::GET, "/api/v1/query?query=up", Bytes::new()).await.unwrap().status, 204);

    let report = running.end().await;
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.requests, report.kept.requests, report.kept.samples), (3, 2, 2));
    assert_eq!(report.kept.bytes, std::fs::metadata(&file).unwrap().len());
    let got = backend.got();
    assert_eq!((got[0].1.as_str(), &got[0].3), ("/prefix/api/v1/write?a=%20b", &body(1.0)));
    assert_eq!((got[1].1.as_str(), &got[1].3), ("/prefix/api/v1/push", &v2_body));
    assert_eq!(got[1].2["authorization"], "Bearer secret");
    assert_eq!((got[1].2["x-any"].to_str().unwrap(), got[1].2.get("x-hop")), ("header", None));
    assert_eq!((got[2].0.as_str(), got[2].1.as_str()), ("GET", "/prefix/api/v1/query?query=up"));
    assert_eq!(values(File::open(&file).unwrap()), (vec![1.0, 2.0], 0));
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(6).any(|w| w == b"secret"), "the recording contains credentials");
    assert!(report.to_text(false).contains("2 requests, 2 samples"), "{}", report.to_text(false));
}

#[tokio::test]
async fn refusals_reach_the_sender_and_only_what_is_settled_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.rec");
    let backend = Backend::start(&[503, 429, 400, 0, 200], Duration::ZERO).await;
    let running = Running::of(Recorder::bind(options(&backend.url(), &file)).await.unwrap());
    let mut client = running.client(&V1).await;
    let mut statuses = Vec::new();
    for value in 0..6 {
        let answer = send(&mut client, "/", body(f64::from(value))).await;
        statuses.push(answer.status.as_u16());
        if value == 0 {
            assert_eq!(answer.retry_after(), Some(Duration::from_secs(7)));
            assert_eq!(answer.text(), "text of the backend");
        }
    }
    assert_eq!(statuses, [503, 429, 400, 502, 200, 204]);
    let report = running.end().await;
    assert_eq!(values(File::open(&file).unwrap()), (vec![2.0, 4.0, 5.0], 0));
    assert_eq!(report.statuses["no answer"], 1);
    assert!(report.is_complete());
}

#[tokio::test]
async fn an_absent_backend_is_a_502() {
    let folder = tempfile::tempdir().unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let running = Running::of(Recorder::bind(options(&url, &folder.path().join("r"))).await.unwrap());
    let mut client = running.client(&V1).await;
    let answer = send(&mut client, "/", body(1.0)).await;
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("gave no answer"), "{}", answer.text());
    assert_eq!(running.end().await.kept.requests, 0);
}

/// A file in memory that a test can make slow or full.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<DiskState>>);

#[derive(Default)]
struct DiskState {
    file: Cursor<Vec<u8>>,
    room: Option<usize>,
    /// While this is true, writes block.
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl Disk {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().file.get_ref().clone()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let held = Arc::clone(&self.0.lock().unwrap().held);
        drop(held.1.wait_while(held.0.lock().unwrap(), |held| *held).unwrap());
        let mut disk = self.0.lock().unwrap();
        let used = disk.file.get_ref().len();
        let room = disk.room.map_or(usize::MAX, |room| room.saturating_sub(used));
        if room == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        disk.file.write(&bytes[..bytes.len().min(room)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Seek for Disk {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.lock().unwrap().file.seek(to)
    }
}

impl RecordingFile for Disk {
    fn cut(&mut self, len: u64) -> std::io::Result<()> {
        self.0.lock().unwrap().file.get_mut().truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_recording_that_cannot_keep_up_costs_the_recording_and_not_the_traffic() {
    let backend = Backend::start(&[], Duration::ZERO).await;
    let disk = Disk::default();
    let bytes = body(0.0).len() as u64;
    let options = RecordOptions { queue_bytes_max: bytes * 10, ..options(&backend.url(), "unused".as_ref()) };
    let running = Running::of(Recorder::bind_to(options, disk.clone()).await.unwrap());
    let held = Arc::clone(&disk.0.lock().unwrap().held);
    *held.0.lock().unwrap() = true;
    let mut client = running.client(&V1).await;
    // these are more requests than fit in the queue and in a block, so the writer thread is blocked
    for value in 0..500 {
        let status = send(&mut client, "/", body(f64::from(value))).await.status;
        assert_eq!(status, 204, "the sender notices the full queue");
    }
    *held.0.lock().unwrap() = false;
    held.1.notify_all();
    let report = running.end().await;
    let (kept, missing) = values(disk.bytes().as_slice());
    assert_eq!(backend.got().len(), 500);
    assert_eq!(kept.len() as u64, report.kept.requests);
    assert_eq!(report.kept.requests + report.missing.values().sum::<u64>(), 500, "{report:?}");
    assert_eq!(
        missing,
        report.missing.values().sum::<u64>(),
        "the recording and the report disagree on missing requests"
    );
}

#[tokio::test]
async fn a_body_beyond_the_queue_passes_unrecorded() {
    let backend = Backend::start(&[], Duration::ZERO).await;
    let disk = Disk::default();
    let options = RecordOptions { queue_bytes_max: 8, ..options(&backend.url(), "unused".as_ref()) };
    let running = Running::of(Recorder::bind_to(options, disk.clone()).await.unwrap());
    let mut client = running.client(&V1).await;
    assert_eq!(send(&mut client, "/", body(1.0)).await.status, 204);
    let nonsense = Bytes::from_static(b"nonsens");
    assert_eq!(send(&mut client, "/", nonsense.clone()).await.status, 204, "the answer is not the backend's");
    let report = running.end().await;
    assert_eq!(backend.got()[1].3, nonsense);
    assert_eq!(report.missing["the queue was full"], 1);
    assert_eq!(report.missing["cannot be parsed"], 1);
    assert_eq!(values(disk.bytes().as_slice()), (vec![], 2));
}

#[tokio::test]
async fn a_full_disk_ends_the_recording_and_not_the_traffic() {
    let backend = Backend::start(&[], Duration::ZERO).await;
    let disk = Disk::default();
    let recorder = Recorder::bind_to(options(&backend.url(), "unused".as_ref()), disk.clone()).await.unwrap();
    let header = disk.bytes().len();
    disk.0.lock().unwrap().room = Some(header + 10);
    let running = Running::of(recorder);
    let mut client = running.client(&V1).await;
    for value in 0..3 {
        assert_eq!(send(&mut client, "/", body(f64::from(value))).await.status, 204);
    }
    let report = running.end().await;
    assert_eq!((report.requests, report.kept.requests), (3, 0));
    assert_eq!(report.missing["the file could not be written"], 3);
    assert!(
        report.kept.trouble.as_ref().is_some_and(|why| why.contains("write the recording")),
        "{report:?}"
    );
    assert_eq!(values(disk.bytes().as_slice()), (vec![], 0), "the recording cannot be read");
}

#[tokio::test]
async fn a_recording_of_its_full_size_stops_growing() {
    let backend = Backend::start(&[], Duration::ZERO).await;
    let disk = Disk::default();
    let options = RecordOptions { file_bytes_max: 1, ..options(&backend.url(), "unused".as_ref()) };
    let running = Running::of(Recorder::bind_to(options, disk.clone()).await.unwrap());
    let mut client = running.client(&V1).await;
    assert_eq!(send(&mut client, "/", body(1.0)).await.status, 204);
    let report = running.end().await;
    assert_eq!(report.missing["the recording has reached its size limit"], 1);
}

#[tokio::test]
async fn a_slow_backend_is_as_slow_as_it_is_and_senders_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.rec");
    let backend = Backend::start(&[], Duration::from_millis(5)).await;
    let running = Running::of(Recorder::bind(options(&backend.url(), &file)).await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for sender in 0..20 {
        let mut client = running.client(&V1).await;
        tasks.spawn(async move {
            for value in 0..3 {
                assert_eq!(send(&mut client, "/", body(f64::from(sender * 3 + value))).await.status, 204);
            }
        });
    }
    tasks.join_all().await;
    let report = running.end().await;
    assert_eq!((report.kept.requests, report.is_complete()), (60, true));
    let mut kept = values(File::open(&file).unwrap()).0;
    kept.sort_by(f64::total_cmp);
    assert_eq!(kept, (0..60).map(f64::from).collect::<Vec<_>>());
}

#[tokio::test]
async fn impossible_options_are_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.rec");
    let refused = async |options: RecordOptions, why: &str| {
        let said = format!("{:#}", Recorder::bind(options).await.unwrap_err());
        assert!(said.contains(why), "{said}");
        assert!(!file.exists(), "a failed start leaves a file behind");
    };
    refused(options("http://192.0.2.1", &file), "not this machine").await;
    refused(options("nonsense", &file), "must begin with http://").await;
    refused(options("http://127.0.0.1:1", &folder.path().join("no/r.rec")), "cannot create ").await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = taken.local_addr().unwrap();
    refused(RecordOptions { listen, ..options("http://127.0.0.1:1", &file) }, "cannot listen on").await;
    std::fs::write(&file, "precious").unwrap();
    assert!(Recorder::bind(options("http://127.0.0.1:1", &file)).await.is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}
