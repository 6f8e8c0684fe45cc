//! `floodmark demo`: runs a server and the lab on this machine. In the middle of the load, the server is killed with
//! SIGKILL and started again. Then every acknowledged sample is read back.

use crate::cli::DemoArgs;
use crate::output::say;
use crate::signals::stoppable;
use anyhow::{Context, bail};
use comfy_table::{Table, presets};
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::HeaderMap;
use lab::drive::options::RunOptions;
use lab::drive::run::run as run_scenario;
use lab::http::{Access, Client, Endpoint};
use lab::observe::procfs::Process;
use lab::scenario::{Count, Span, Texts};
use lab::{Observer, RunResult, Scenario, Stderr, Stop};
use std::fs::File;
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Each of four writers sends 500 metrics of 50 targets, which makes 100,000 series.
const METRICS: f64 = 500.0;
const TARGETS: f64 = 50.0;
const WRITERS: u32 = 4;

/// Returns true if every acknowledged sample was read back, with no loss, duplicate or wrong value, and if
/// the server was killed while it was under load.
pub(crate) fn run(args: DemoArgs) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let stop = Stop::default();
    runtime.block_on(stoppable(&stop, demo(args, &stop)))
}

async fn demo(args: DemoArgs, stop: &Stop) -> anyhow::Result<bool> {
    let observer = Stderr::new();
    let mut server = Server::start(args.http).await?;
    let idle_bytes = server.process().rss_bytes().unwrap_or(0);
    observer.note(&format!("the server is up at {}; the log is {}", server.url, server.log().display()));

    let scenario = scenario(&args, &server.url);
    let options = RunOptions { stop: stop.clone(), ..RunOptions::default() };
    let (written, recovery) = tokio::join!(run_scenario(&scenario, &options, &observer), async {
        tokio::time::sleep(args.duration / 2).await;
        server.kill_and_restart(&observer).await
    });
    let (result, recovery) = (written?, recovery?);
    let was_killed_in_time = result.wall_s > (args.duration / 2).as_secs_f64();
    let rss_bytes = server.process().rss_bytes().unwrap_or(0);
    let outcome = Outcome { result, recovery, was_killed_in_time, idle_bytes, rss_bytes };
    drop(observer);

    if args.json {
        say(outcome.to_json()?)?;
    } else {
        say(outcome.to_table())?;
        outcome.print_more(&server.url)?;
    }
    if args.stay && !stop.is_set() {
        say("The server stays up until Ctrl-C.")?;
        stop.wait().await;
    }
    Ok(outcome.is_good())
}

fn scenario(args: &DemoArgs, url: &str) -> Scenario {
    let mut scenario =
        Scenario { name: "demo".to_owned(), duration: Span(args.duration), ..Scenario::default() };
    scenario.target.write = Texts::One(format!("{url}/api/v1/write"));
    scenario.target.tenant_header = Some(String::new());
    scenario.verify.probes_per_s = 0.0;
    let load = &mut scenario.load;
    (load.metrics, load.series_per_metric, load.writers) = (Count(METRICS), Count(TARGETS), WRITERS);
    load.rate = Some(Count(args.rate));
    // the load must last at least as long as the demo, because a kill after the load would prove nothing
    let series = METRICS * TARGETS * f64::from(WRITERS);
    load.rounds = Some((args.rate * args.duration.as_secs_f64() / series).ceil() as u32);
    load.backoff_max = Span::seconds(0.5);
    scenario
}

struct Server {
    child: Child,
    address: SocketAddr,
    url: String,
    dir: TempDir,
}

struct Recovery {
    ready_after: Duration,
}

impl Server {
    async fn start(http: Option<SocketAddr>) -> anyhow::Result<Self> {
        let address = match http {
            Some(address) => address,
            None => free_address()?,
        };
        let dir = tempfile::Builder::new()
            .prefix("floodmark-demo-")
            .tempdir()
            .context("cannot create a temporary directory")?;
        let child = spawn(dir.path(), address)?;
        let mut server = Self { child, address, url: format!("http://{}", reachable(address)), dir };
        server.wait_until_ready().await?;
        Ok(server)
    }

    async fn kill_and_restart(&mut self, observer: &dyn Observer) -> anyhow::Result<Recovery> {
        self.child.kill().context("cannot kill the server")?; // SIGKILL
        self.child.wait().context("cannot wait for the killed server")?;
        observer.note("killed the server with SIGKILL; starting it again on the same directory");
        let began = Instant::now();
        self.child = spawn(self.dir.path(), self.address)?;
        self.wait_until_ready().await?;
        let ready_after = began.elapsed();
        observer.note(&format!("the server is ready again after {:.2} s", ready_after.as_secs_f64()));
        Ok(Recovery { ready_after })
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server exited during its start ({status}); its log:\n{}", self.log_text());
            }
            let endpoint = Endpoint::resolve(&self.url, &Access::loopback()).await?;
            let mut client = Client::new(endpoint, HeaderMap::new(), Duration::from_secs(1));
            let answer = client.send(Method::GET, "/-/ready", Bytes::new()).await;
            if answer.is_ok_and(|a| a.status.is_success()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("the server was not ready within {} s; its log:\n{}", START_TIMEOUT.as_secs(), self.log_text())
    }

    fn process(&self) -> Process {
        Process::Id(self.child.id())
    }

    fn log(&self) -> std::path::PathBuf {
        self.dir.path().join("server.log")
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // also removes the directory
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, address: SocketAddr) -> anyhow::Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("server.log"))
        .context("cannot open the server's log")?;
    let me = std::env::current_exe().context("cannot find this executable")?;
    let mut command = Command::new(me);
    command.arg("serve").arg("--data-dir").arg(dir.join("data")).arg("--http").arg(address.to_string());
    // the server has its own process group, so Ctrl-C ends the demo but not the server
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context("cannot start the server")
}

/// Returns the address at which this machine reaches a server that listens on `address`, such as 127.0.0.1
/// for 0.0.0.0.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        ip if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        _ => address,
    }
}

/// Returns the default address if its port is free, otherwise an address with any free port.
fn free_address() -> anyhow::Result<SocketAddr> {
    let usual = SocketAddr::from(([127, 0, 0, 1], 9009));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener =
        TcpListener::bind(usual).or_else(|_| TcpListener::bind(any)).context("cannot find a free port")?;
    Ok(listener.local_addr()?)
}

struct Outcome {
    result: RunResult,
    recovery: Recovery,
    was_killed_in_time: bool,
    idle_bytes: u64,
    rss_bytes: u64,
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.result.passed() && self.was_killed_in_time
    }

    fn bytes_per_series(&self) -> f64 {
        self.rss_bytes.saturating_sub(self.idle_bytes) as f64
            / self.result.totals.series_distinct.max(1) as f64
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let r = &self.result.totals;
        let ms = |seconds: f64| format!("{:.1} ms", seconds * 1000.0);
        let mut rows = vec![
            ("series", r.series_distinct.to_string()),
            ("samples acknowledged", r.samples_acknowledged.to_string()),
            ("samples per second", format!("{:.0} (including kill and recovery)", r.samples_per_s)),
            ("answer p50 / p99", format!("{} / {}", ms(r.service.p50_s), ms(r.service.p99_s))),
            (
                "memory per series",
                format!("{:.0} bytes (process memory minus its memory when idle)", self.bytes_per_series()),
            ),
            ("ready after kill -9", format!("{:.2} s", self.recovery.ready_after.as_secs_f64())),
        ];
        if let Some(v) = &self.result.verify {
            rows.push(("read back", v.read_back.to_string()));
            rows.push(("lost", v.lost.to_string()));
            rows.push(("doubled", v.doubled.to_string()));
            rows.push(("wrong", v.wrong.to_string()));
        }
        rows
    }

    fn to_table(&self) -> String {
        let mut table = Table::new();
        let terminal = std::io::stdout().is_terminal();
        table.load_style(if terminal { presets::UTF8_BORDERS_ONLY } else { presets::NOTHING });
        for (name, value) in self.rows() {
            table.add_row([name, &value]);
        }
        table.to_string()
    }

    fn print_more(&self, url: &str) -> anyhow::Result<()> {
        for warning in &self.result.warnings {
            say(format_args!("note: {warning}"))?;
        }
        if let Some(error) = &self.result.unverified {
            say(format_args!("NOT VERIFIED: {error}"))?;
        }
        let verdict = match (self.is_good(), self.was_killed_in_time) {
            (true, _) => "PASS: every acknowledged sample was read back exactly once",
            (false, true) => "FAIL",
            (false, false) => {
                "FAIL: the load ended before the server was killed; choose a longer --duration or a higher --rate"
            }
        };
        say(verdict)?;
        say("With --stay, look at:")?;
        // the last path is count({job=~".+"}), encoded and quoted for a shell
        for path in ["/metrics", "/api/v1/labels", "/api/v1/query?query=count(%7Bjob%3D~%22.%2B%22%7D)"] {
            say(format_args!("  '{url}{path}'"))?;
        }
        Ok(())
    }

    fn to_json(&self) -> serde_json::Result<String> {
        let result: serde_json::Value = serde_json::from_str(&self.result.to_json()?)?;
        serde_json::to_string_pretty(&serde_json::json!({
            "pass": self.is_good(),
            "ready_after_s": self.recovery.ready_after.as_secs_f64(),
            "bytes_per_series": self.bytes_per_series(),
            "write": result,
        }))
    }
}
