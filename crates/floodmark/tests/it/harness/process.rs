//! Runs the server as a process.

use super::http::{self, Reply, Request};
use super::{PATIENCE, tls, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    args: Vec<String>,
    config: Option<String>,
    data_dir: Option<PathBuf>,
    port: u16,
    allowed: Vec<&'static str>,
    is_monitoring_itself: bool,
    client: Option<tls::Client>,
}

impl Options {
    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.into());
        self
    }

    /// Uses a directory that is not deleted together with the server.
    pub(crate) fn data_dir(mut self, dir: &Path) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Uses a given port, so that the server has the same address after a restart.
    pub(crate) const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Lets the server store its own metrics. This is off by default, because most tests count samples.
    pub(crate) const fn monitor_itself(mut self) -> Self {
        self.is_monitoring_itself = true;
        self
    }

    pub(crate) fn client(mut self, client: tls::Client) -> Self {
        self.client = Some(client);
        self
    }

    pub(crate) fn allow(mut self, text: &'static str) -> Self {
        self.allowed.push(text);
        self
    }
}

/// A running server and its data directory. When this is dropped, the process is killed. The test then fails
/// if the log has panics, or warnings and errors that are not allowed.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    options: Options,
    child: Child,
    log: Log,
    own_dir: TempDir,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::start(Options::default())
    }

    pub(crate) fn start(options: Options) -> Self {
        let own_dir = tempfile::tempdir().expect("make a temporary directory");
        let log = Log::default();
        let mut child = spawn(&options, own_dir.path());
        log.follow(child.stderr.take().expect("stderr is piped"));
        let address = address_in(&log, 0);
        let server = Self { address, options, child, log, own_dir };
        server.wait_until_ready();
        server
    }

    pub(crate) fn restart(&mut self) {
        self.restart_unready();
        self.wait_until_ready();
    }

    /// Like [`Server::restart`], but does not wait until the server is ready.
    pub(crate) fn restart_unready(&mut self) {
        let ended = self.child.try_wait().expect("ask for the child's state");
        assert!(ended.is_some(), "still running");
        let from = self.log.len();
        self.child = spawn(&self.options, self.own_dir.path());
        self.log.follow(self.child.stderr.take().expect("stderr is piped"));
        self.address = address_in(&self.log, from);
    }

    pub(crate) fn wait_until_ready(&self) {
        wait_for("readiness", || {
            let reply = self.try_send(&Request::get("/-/ready"));
            reply.ok().filter(|r| r.status == 200)
        });
    }

    fn try_send(&self, request: &Request) -> std::io::Result<Reply> {
        match &self.options.client {
            Some(client) => client.send(self.address, request),
            None => http::once(self.address, request),
        }
    }

    pub(crate) fn kill9(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal_terminate();
        wait_for("the end after SIGTERM", || self.child.try_wait().expect("wait"))
    }

    /// Returns an address that the server has logged, such as `graphite=127.0.0.1:2003`. After a restart, this is the
    /// latest one.
    pub(crate) fn logged_address(&self, name: &str) -> SocketAddr {
        let prefix = format!("{name}=");
        let lines = self.log_lines(&prefix);
        let words = lines.iter().rev().flat_map(|line| line.split_ascii_whitespace());
        let address = words.filter_map(|word| word.strip_prefix(&prefix)).next();
        address
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in:\n{}", self.log.tail()))
    }

    pub(crate) fn signal_terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn signal_hangup(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("send a signal");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("ask for the child's state").is_none()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        data_dir(&self.options, self.own_dir.path())
    }

    /// Sends a request. Checks that the reply has a valid `Retry-After` if and only if the status is 429 or
    /// 503.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Reply {
        let reply = self
            .try_send(request)
            .unwrap_or_else(|e| panic!("no reply: {e}; the log ends with:\n{}", self.log.tail()));
        let seconds = reply.header("retry-after").and_then(|s| s.parse::<u32>().ok());
        let is_temporary = matches!(reply.status, 429 | 503);
        assert_eq!(is_temporary, seconds.is_some_and(|s| (1..=90).contains(&s)), "{reply:?}");
        reply
    }

    pub(crate) fn log_lines(&self, text: &str) -> Vec<String> {
        self.log.lines().into_iter().filter(|l| l.contains(text)).collect()
    }

    /// Returns a size from `/proc/PID/status` in bytes. `field` is its name there, such as `VmHWM`.
    pub(crate) fn memory_bytes(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("procfs");
        let line = status.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        kib.expect("a size in kB") << 10
    }

    /// Returns the process' peak memory. Pages of mapped files are subtracted, because most of them belong to
    /// the large debug executable.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.memory_bytes("VmHWM").saturating_sub(self.memory_bytes("RssFile"))
    }

    #[track_caller]
    pub(crate) fn assert_peak_within(&self, budget: u64) {
        let peak = self.peak_bytes();
        eprintln!("peak memory {} MiB of a budget of {} MiB", peak >> 20, budget >> 20);
        assert!(peak < budget, "peak memory {peak} bytes of a budget of {budget}");
    }

    /// Returns a value from `/metrics`. `series` is the name with labels, exactly as in the text.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.send(&Request::get("/metrics")).text();
        let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no {series} in:\n{text}"))
    }

    pub(crate) fn metric_sum(&self, name: &str) -> f64 {
        let text = self.send(&Request::get("/metrics")).text();
        let values = text.lines().filter_map(|l| l.strip_prefix(name)?.strip_prefix('{')?.rsplit(' ').next());
        values.map(|value| value.parse::<f64>().expect("a number")).sum()
    }

    /// Waits until a value of `/metrics` is 0. It may take a moment, because a request's memory is released
    /// only after its answer was sent.
    #[track_caller]
    pub(crate) fn wait_until_zero(&self, series: &str) {
        wait_for(series, || (self.metric(series) == 0.0).then_some(()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log ends with:\n{}", self.log.tail());
            return;
        }
        self.log.wait_for_its_end();
        let unexpected: Vec<_> = self
            .log
            .lines()
            .into_iter()
            .filter(|l| is_complaint(l) && !self.options.allowed.iter().any(|a| l.contains(a)))
            .collect();
        assert!(unexpected.is_empty(), "unexpected lines in the server's log:\n{}", unexpected.join("\n"));
    }
}

/// This line may be logged at a start after a kill, because the kill may have interrupted a write.
const AFTER_A_KILL: &str = "removed an incomplete end of the journal";

/// Returns true if a log line, which has the form `TIME LEVEL target: …`, is a warning or an error, or
/// belongs to a panic.
fn is_complaint(line: &str) -> bool {
    if line.contains(AFTER_A_KILL) {
        return false;
    }
    let level = line.split_ascii_whitespace().nth(1);
    matches!(level, Some("WARN" | "ERROR")) || line.contains("panicked at") || line.contains("BUG:")
}

/// The variables by which `scripts/test-at.sh` sets the clock of the processes that a test starts.
const OF_THE_CLOCK: [&str; 2] = ["LD_PRELOAD", "FLOODMARK_TEST_AHEAD_S"];

/// Prepares to run the executable with `args`. It gets no environment variables except [`OF_THE_CLOCK`].
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    let clock = OF_THE_CLOCK.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command
        .env_clear()
        .envs(clock)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn data_dir(options: &Options, own_dir: &Path) -> PathBuf {
    options.data_dir.clone().unwrap_or_else(|| own_dir.join("data"))
}

fn spawn(options: &Options, own_dir: &Path) -> Child {
    let mut command = command(&["serve", "--http", &format!("127.0.0.1:{}", options.port)]);
    command.arg("--data-dir").arg(data_dir(options, own_dir)).args(&options.args);
    if !options.is_monitoring_itself {
        command.args(["--self-monitoring-interval", "never"]);
    }
    if let Some(text) = &options.config {
        let path = own_dir.join("floodmark.toml");
        std::fs::write(&path, text).expect("write the configuration");
        command.arg("--config").arg(path);
    }
    command.spawn().expect("start the executable")
}

fn address_in(log: &Log, from: usize) -> SocketAddr {
    wait_for("a line with the address", || {
        let lines = log.lines();
        let address =
            lines.iter().skip(from).find_map(|l| l.split_once("listening address=").map(|(_, a)| a.trim()));
        if address.is_none() && log.has_ended() {
            panic!("the server ended during its start:\n{}", log.tail());
        }
        address.map(|a| a.parse().unwrap_or_else(|e| panic!("{a:?}: {e}")))
    })
}

/// What the process writes to stderr, over all its restarts.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<LogInner>>);

#[derive(Debug, Default)]
struct LogInner {
    lines: Vec<String>,
    open: usize,
}

impl Log {
    fn follow(&self, stderr: ChildStderr) {
        self.lock().open += 1;
        let log = self.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stderr);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                log.lock().lines.push(String::from_utf8_lossy(&line).trim_end().into());
                line.clear();
            }
            log.lock().open -= 1;
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LogInner> {
        self.0.lock().expect("a log reader panicked")
    }

    fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    fn len(&self) -> usize {
        self.lock().lines.len()
    }

    fn has_ended(&self) -> bool {
        self.lock().open == 0
    }

    /// Waits until stderr is closed, but not longer than [`PATIENCE`].
    fn wait_for_its_end(&self) {
        for _ in 0..PATIENCE.as_millis() / 5 {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn tail(&self) -> String {
        let inner = self.lock();
        let mut tail = String::new();
        for line in inner.lines.iter().rev().take(40).rev() {
            let _ = writeln!(tail, "    {line}");
        }
        tail
    }
}
