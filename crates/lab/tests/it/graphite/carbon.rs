//! A Graphite server within the test process: lines and pickled frames over TCP, lines over UDP, and `/render`. It
//! checks every byte, and misbehaves on request.
//!
//! It shares no code with the lab, so that a bug of the lab cannot hide here.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use regex::Regex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// What happens to the points of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Keep,
    /// Leave out each point whose number is a multiple of 7.
    Lose,
    /// Reset the connection after this many bytes, without storing any of its points.
    Reset(usize),
    /// Store the points, but close the connection as soon as it has sent this many bytes.
    Hurry(usize),
}

#[derive(Debug, Default)]
struct State {
    /// Values by name and slot.
    slots: BTreeMap<String, BTreeMap<i64, f64>>,
    points: u64,
    connections: u64,
    datagrams: u64,
    /// A query that would return more series is refused.
    answer_max: Option<usize>,
    refusals: u64,
}

type Script = dyn Fn(u64) -> Mode + Send + Sync;

#[derive(Clone)]
pub(crate) struct Carbon {
    state: Arc<Mutex<State>>,
    script: Arc<Script>,
    step_s: i64,
    pickled: bool,
    lines: SocketAddr,
    datagrams: SocketAddr,
    http: SocketAddr,
}

impl Carbon {
    /// `script` says how the connection with each number behaves.
    pub(crate) async fn start(
        step_s: i64,
        pickled: bool,
        script: impl Fn(u64) -> Mode + Send + Sync + 'static,
    ) -> Self {
        let lines = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            state: Arc::default(),
            script: Arc::new(script),
            step_s,
            pickled,
            lines: lines.local_addr().unwrap(),
            datagrams: datagrams.local_addr().unwrap(),
            http: http.local_addr().unwrap(),
        };
        let carbon = this.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = lines.accept().await.unwrap();
                tokio::spawn(carbon.clone().receive(stream));
            }
        });
        let carbon = this.clone();
        tokio::spawn(async move {
            let mut datagram = vec![0; 1 << 16];
            loop {
                let len = datagrams.recv(&mut datagram).await.unwrap();
                assert!(len <= 1_432 && datagram[..len].ends_with(b"\n"), "{len} bytes");
                carbon.state.lock().unwrap().datagrams += 1;
                carbon.store(&datagram[..len], Mode::Keep);
            }
        });
        let carbon = this.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = http.accept().await.unwrap();
                let carbon = carbon.clone();
                let service = service_fn(move |request| carbon.clone().answer(request));
                tokio::spawn(async move {
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        this
    }

    pub(crate) fn write_url(&self) -> String {
        format!("tcp://{}", self.lines)
    }

    pub(crate) fn datagram_url(&self) -> String {
        format!("udp://{}", self.datagrams)
    }

    pub(crate) fn read_url(&self) -> String {
        format!("http://{}", self.http)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state.lock().unwrap().slots.keys().cloned().collect()
    }

    pub(crate) fn points(&self) -> u64 {
        self.state.lock().unwrap().points
    }

    pub(crate) fn datagrams(&self) -> u64 {
        self.state.lock().unwrap().datagrams
    }

    pub(crate) fn answer_at_most(&self, series: usize) {
        self.state.lock().unwrap().answer_max = Some(series);
    }

    /// Number of queries that would have returned too many series.
    pub(crate) fn refusals(&self) -> u64 {
        self.state.lock().unwrap().refusals
    }

    pub(crate) fn connections(&self) -> u64 {
        self.state.lock().unwrap().connections
    }

    /// Returns the number of connections before.
    fn count_connection(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.connections += 1;
        state.connections - 1
    }

    async fn receive(self, mut stream: TcpStream) {
        let (mut all, mut mode) = (Vec::new(), None);
        loop {
            let before = all.len();
            match stream.read_buf(&mut all).await {
                Ok(0) | Err(_) => break,
                Ok(_) => assert!(all.len() > before),
            }
            match *mode.get_or_insert_with(|| (self.script)(self.count_connection())) {
                Mode::Reset(bytes) if all.len() >= bytes => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
                Mode::Hurry(bytes) if all.len() >= bytes => break,
                _ => {}
            }
        }
        let Some(mode) = mode else { return }; // the lab only looked whether the target listens
        if matches!(mode, Mode::Hurry(_)) {
            let whole = all.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            all.truncate(whole);
        }
        // the connection is closed only after everything is stored
        self.store(&all, mode);
        drop(stream);
    }

    fn store(&self, bytes: &[u8], mode: Mode) {
        let points = if self.pickled { unpickle(bytes) } else { lines(bytes) };
        let mut state = self.state.lock().unwrap();
        for (name, time_s, value) in points {
            state.points += 1;
            if mode == Mode::Lose && state.points.is_multiple_of(7) {
                continue;
            }
            let slot = time_s - time_s.rem_euclid(self.step_s);
            state.slots.entry(name).or_default().insert(slot, value);
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, &'static str> {
        let (head, body) = request.into_parts();
        assert_eq!(head.uri.path(), "/render");
        let body = body.collect().await.map_err(|_| "body")?.to_bytes();
        let form = std::str::from_utf8(&body).map_err(|_| "form")?;
        Ok(match self.render(head.uri.query().unwrap_or(form)) {
            Some(answer) => Response::new(answer.into()),
            None => Response::builder().status(422).body("too many series".into()).unwrap(),
        })
    }

    fn render(&self, parameters: &str) -> Option<String> {
        let parameter = |name: &str| {
            let found = parameters.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
            crate::target::unpercent(found.unwrap())
        };
        assert_eq!(parameter("format"), "json");
        let (from, until) = (parameter("from").parse().unwrap(), parameter("until").parse().unwrap());
        let after = |time: i64| time - time.rem_euclid(self.step_s) + self.step_s;
        let (start, end, step) = (after(from), after(until), self.step_s);
        let target = parameter("target");
        let selects = selector(&target);
        let mut state = self.state.lock().unwrap();
        let selected = state.slots.iter().filter(|(name, _)| selects(name));
        let series = selected.map(|(name, slots)| {
            let points = (start..end).step_by(step as usize);
            let points: Vec<_> = points.map(|slot| (slots.get(&slot).copied(), slot)).collect();
            serde_json::json!({ "target": name, "datapoints": points })
        });
        let series: Vec<serde_json::Value> = series.collect();
        if state.answer_max.is_some_and(|max| series.len() > max) {
            state.refusals += 1;
            return None;
        }
        Some(serde_json::Value::from(series).to_string())
    }
}

/// Supports what the lab asks: paths with `*`, `[0-9]` and `{a,b}`, and `seriesByTag('name=~^(a|b)$','k=v')`.
fn selector(target: &str) -> Box<dyn Fn(&str) -> bool> {
    let Some(inside) = target.strip_prefix("seriesByTag(").and_then(|rest| rest.strip_suffix(')')) else {
        let pattern = glob(target);
        return Box::new(move |name| pattern.is_match(name));
    };
    let expressions: Vec<(String, Regex)> = inside
        .split("','")
        .map(|expression| {
            let (tag, value) = expression.trim_matches('\'').split_once('=').unwrap();
            let pattern = match value.strip_prefix('~') {
                Some(pattern) => pattern.to_owned(),
                None => format!("^{}$", regex::escape(value)),
            };
            (tag.to_owned(), Regex::new(&pattern).unwrap())
        })
        .collect();
    Box::new(move |name| {
        let mut tags = name.split(';');
        let path = tags.next().unwrap();
        let tags: BTreeMap<&str, &str> =
            tags.map(|tag| tag.split_once('=').unwrap()).chain([("name", path)]).collect();
        expressions
            .iter()
            .all(|(tag, pattern)| tags.get(tag.as_str()).is_some_and(|tag| pattern.is_match(tag)))
    })
}

fn glob(text: &str) -> Regex {
    let mut pattern = "^".to_owned();
    let mut in_braces = false;
    for character in text.chars() {
        match character {
            '.' => pattern += "[.]",
            '*' => pattern += "[^.]*",
            '{' => (in_braces, pattern) = (true, pattern + "(?:"),
            '}' => (in_braces, pattern) = (false, pattern + ")"),
            ',' if in_braces => pattern.push('|'),
            _ => pattern.push(character),
        }
    }
    Regex::new(&(pattern + "$")).unwrap()
}

type Point = (String, i64, f64);

fn lines(bytes: &[u8]) -> Vec<Point> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a line is cut off: {:?}", text.lines().last());
    let points = text.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, value, time] = words[..] else { panic!("not three words: {line:?}") };
        assert!(!name.is_empty() && !name.contains(['(', ')', '!', '\t']), "{line:?}");
        (name.to_owned(), time.parse().unwrap(), value.parse().unwrap())
    });
    points.collect()
}

/// Reads frames of `[(path, (time, value)), …]`, with the opcodes that such a list needs.
fn unpickle(mut bytes: &[u8]) -> Vec<Point> {
    let mut points = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes(take(&mut bytes, 4).try_into().unwrap()) as usize;
        assert!(length <= 1 << 20, "carbon refuses a frame of {length} bytes");
        let mut frame = take(&mut bytes, length);
        assert_eq!(take(&mut frame, 4), b"\x80\x02](");
        while frame[0] != b'e' {
            assert_eq!(take(&mut frame, 1), b"X");
            let length = u32::from_le_bytes(take(&mut frame, 4).try_into().unwrap()) as usize;
            let path = String::from_utf8(take(&mut frame, length).to_vec()).unwrap();
            assert_eq!(take(&mut frame, 1), b"J");
            let time = i32::from_le_bytes(take(&mut frame, 4).try_into().unwrap());
            assert_eq!(take(&mut frame, 1), b"G");
            let value = f64::from_be_bytes(take(&mut frame, 8).try_into().unwrap());
            assert_eq!(take(&mut frame, 2), b"\x86\x86");
            points.push((path, time.into(), value));
        }
        assert_eq!(frame, b"e.");
    }
    points
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}
