//! A real carbonapi in a process of its own. It reads its series from the graphite-web of the oracle, so both have the same
//! data. `scripts/test-servers.sh` installs it.

use super::oracle::{Line, Oracle, Range, cache};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Another process may take the free port first, so several are tried.
const PORTS: usize = 5;

pub(super) struct Carbonapi {
    process: Child,
    config: PathBuf,
    address: SocketAddr,
}

impl Carbonapi {
    /// None, and a report that the test is skipped, if carbonapi is not installed.
    pub(super) fn start(oracle: &mut Oracle) -> Option<Self> {
        let program = cache().join("bin/carbonapi");
        if !program.exists() {
            stdx::skipped::for_want_of("carbonapi (scripts/test-servers.sh)");
            return None;
        }
        let backend = oracle.serve();
        let started = (0..PORTS).find_map(|_| Self::start_at_free_port(&program, backend));
        Some(started.expect("carbonapi does not start"))
    }

    fn start_at_free_port(program: &Path, backend: u16) -> Option<Self> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = address.expect("no free port");
        let config = std::env::temp_dir().join(format!("floodmark-carbonapi-{}.yaml", address.port()));
        let text = include_str!("carbonapi.yaml")
            .replace("ADDRESS", &address.to_string())
            .replace("BACKEND", &format!("http://127.0.0.1:{backend}"));
        std::fs::write(&config, text).expect("cannot write the configuration of carbonapi");
        let mut command = Command::new(program);
        let process = command.arg("-config").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut started = Self { process: process.expect("cannot start carbonapi"), config, address };
        loop {
            if TcpStream::connect(address).is_ok() {
                return Some(started);
            }
            if started.process.try_wait().expect("cannot ask for the state of carbonapi").is_some() {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// The series of an answer, without their tags. The error is carbonapi's.
    pub(super) fn render(&self, target: &str, range: Range) -> Result<Vec<Line>, String> {
        let encoded = target.bytes().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "%{byte:02X}");
            text
        });
        let Range { from_s, until_s, .. } = range;
        let path = format!("/render?target={encoded}&from={from_s}&until={until_s}&format=json&noCache=1");
        let answer = self.get(&path).expect("carbonapi does not answer");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match head.split(' ').nth(1) {
            Some("200") => {
                let series: Value = serde_json::from_str(body).expect("carbonapi answers no JSON");
                Ok(series.as_array().into_iter().flatten().map(line).collect())
            }
            _ => Err(format!("{} {body}", head.lines().next().unwrap_or_default())),
        }
    }

    fn get(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        // an answer of HTTP/1.0 is not chunked, and ends with the connection
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Carbonapi {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

/// Reads a series. The step of a single value is not known, and is 0.
fn line(series: &Value) -> Line {
    let points = series["datapoints"].as_array().expect("no points");
    let time = |place: usize| points.get(place).and_then(|point| point[1].as_i64());
    let start_s = time(0).unwrap_or(0);
    let step_s = time(1).map_or(0, |next_s| next_s - start_s);
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    Line {
        name: series["target"].as_str().expect("no name").into(),
        start_s,
        end_s: start_s + step_s * points.len() as i64,
        step_s,
        values: points.iter().map(|point| number(&point[0])).collect(),
        tags: Vec::new(),
    }
}
