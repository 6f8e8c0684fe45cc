//! Runs Prometheus and the node exporter as processes.

use crate::harness::http::{self, Reply, Request};
use crate::harness::programs::{Running, find, free_port};
use crate::harness::wait_for;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use stdx::authority::Authority;
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct NodeExporter {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    running: Option<Running>,
}

impl NodeExporter {
    pub(crate) fn find() -> Option<Self> {
        let program = find(&["prometheus-node-exporter", "node_exporter"])?;
        Some(Self { program, dir: tempfile::tempdir().unwrap(), port: free_port(), running: None })
    }

    pub(crate) fn start(mut self) -> Self {
        self.restart();
        self
    }

    pub(crate) fn restart(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg(format!("--web.listen-address=127.0.0.1:{}", self.port));
        let running = Running::start(&mut command, self.port, self.dir.path().join("log"));
        running.wait_until("/metrics");
        self.running = Some(running);
    }

    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }
}

#[derive(Debug)]
pub(crate) struct Prometheus {
    program: PathBuf,
    dir: TempDir,
    queues: usize,
    running: Option<Running>,
}

/// The tenants to which a Prometheus writes: one with remote write 1.0, the other with 2.0.
pub(crate) const TENANTS: [&str; 2] = ["one", "two"];

impl Prometheus {
    /// Finds the program. It must be Prometheus 3, because earlier versions lack remote write 2.0. If it is
    /// missing, this is reported.
    pub(crate) fn find() -> Option<Self> {
        let program = find(&["prometheus"]).filter(|program| {
            let help = Command::new(program).arg("--help-long").output();
            let help = help.map_or_else(|_| Vec::new(), |help| [help.stdout, help.stderr].concat());
            String::from_utf8_lossy(&help).contains("web.enable-otlp-receiver")
        });
        if program.is_none() {
            stdx::skipped::for_want_of("Prometheus 3 (scripts/test-servers.sh)");
        }
        Some(Self { program: program?, dir: tempfile::tempdir().unwrap(), queues: 0, running: None })
    }

    /// Starts a Prometheus that scrapes itself and `exporter` every second, and writes to `floodmark`.
    pub(crate) fn start(mut self, floodmark: SocketAddr, exporter: SocketAddr) -> Self {
        let port = free_port();
        self.queues = TENANTS.len();
        let config = self.config(port, floodmark, exporter);
        self.run(port, &config)
    }

    /// Starts a replica of the cluster `pair`. It scrapes `exporter` every second, and writes to `floodmark`.
    pub(crate) fn start_replica(
        mut self,
        floodmark: SocketAddr,
        exporter: SocketAddr,
        replica: &str,
        message: &str,
    ) -> Self {
        self.queues = 1;
        let config = format!(
            "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  \
             external_labels: {{ cluster: pair, __replica__: {replica} }}\n\
             scrape_configs:\n\
             - {{ job_name: node, static_configs: [ {{ targets: ['{exporter}'] }} ] }}\n\
             remote_write:\n\
             - url: http://{floodmark}/api/v1/write\n  protobuf_message: {message}\n  \
             queue_config: {{ batch_send_deadline: 500ms, max_backoff: 1s }}\n"
        );
        self.run(free_port(), &config)
    }

    /// Starts a Prometheus that scrapes itself every second. It writes to `floodmark` over TLS with a client
    /// certificate.
    pub(crate) fn start_encrypted(
        mut self,
        floodmark: SocketAddr,
        authority: &Authority,
        name: &str,
    ) -> Self {
        let port = free_port();
        self.queues = 1;
        let file = |name: String| authority.path(&name).display().to_string();
        let [ca, cert, key] = ["ca.pem".into(), format!("{name}.pem"), format!("{name}.key")].map(file);
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\n\
             scrape_configs:\n\
             - {{ job_name: prometheus, static_configs: [ {{ targets: ['127.0.0.1:{port}'] }} ] }}\n\
             remote_write:\n\
             - url: https://{floodmark}/api/v1/write\n  \
             tls_config: {{ ca_file: '{ca}', cert_file: '{cert}', key_file: '{key}' }}\n  \
             queue_config: {{ batch_send_deadline: 500ms, max_backoff: 1s }}\n"
        );
        self.run(port, &config)
    }

    /// Starts a Prometheus that scrapes itself every second, and writes to two tenants of `floodmark`: everything to `ours`,
    /// and to `theirs` what the rules leave.
    pub(crate) fn start_relabelling(mut self, floodmark: SocketAddr, rules: &str) -> Self {
        let port = free_port();
        self.queues = 2;
        let mut config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\n\
             scrape_configs:\n\
             - {{ job_name: prometheus, static_configs: [ {{ targets: ['127.0.0.1:{port}'] }} ] }}\n\
             remote_write:\n"
        );
        for (tenant, rules) in [("ours", "[]"), ("theirs", rules)] {
            config.push_str(&format!(
                "- url: http://{floodmark}/api/v1/write\n  name: {tenant}\n  headers: {{ X-Scope-OrgID: {tenant} }}\n  \
                 queue_config: {{ batch_send_deadline: 500ms, max_backoff: 1s, min_shards: 1, max_shards: 1 }}\n  \
                 write_relabel_configs: {rules}\n"
            ));
        }
        self.run(port, &config)
    }

    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    /// Starts a Prometheus that scrapes nothing. Samples can be sent to it with remote write.
    pub(crate) fn start_quiet(self) -> Self {
        self.run(free_port(), "global: {}\n")
    }

    /// Starts a Prometheus that scrapes nothing, and receives OTLP with these settings.
    pub(crate) fn start_with_otlp(self, settings: &str) -> Self {
        let config = format!("otlp: {settings}\nstorage: {{ tsdb: {{ out_of_order_time_window: 1h }} }}\n");
        self.run(free_port(), &config)
    }

    fn run(mut self, port: u16, config: &str) -> Self {
        let path = self.dir.path().join("prometheus.yml");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", self.dir.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--web.enable-remote-write-receiver")
            .arg("--web.enable-otlp-receiver")
            .arg("--web.enable-admin-api")
            .arg("--enable-feature=exemplar-storage,promql-experimental-functions,metadata-wal-records");
        let running = Running::start(&mut command, port, self.dir.path().join("log"));
        running.wait_until("/-/ready");
        self.running = Some(running);
        self
    }

    fn config(&self, port: u16, floodmark: SocketAddr, exporter: SocketAddr) -> String {
        let versions = ["prometheus.WriteRequest", "io.prometheus.write.v2.Request"];
        let mut config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s }}\n\
             scrape_configs:\n\
             - {{ job_name: prometheus, static_configs: [ {{ targets: ['127.0.0.1:{port}'] }} ] }}\n\
             - {{ job_name: node, static_configs: [ {{ targets: ['{exporter}'] }} ] }}\n\
             remote_write:\n"
        );
        for (tenant, version) in TENANTS.iter().zip(versions) {
            config.push_str(&format!(
                "- url: http://{floodmark}/api/v1/write\n  name: {tenant}\n  headers: {{ X-Scope-OrgID: {tenant} }}\n  \
                 protobuf_message: {version}\n  send_exemplars: true\n  metadata_config: {{ send_interval: 2s }}\n  \
                 queue_config: {{ batch_send_deadline: 500ms, max_backoff: 1s }}\n"
            ));
        }
        config
    }

    pub(crate) fn send(&self, request: &Request) -> Reply {
        let running = self.running.as_ref().expect("Prometheus was started");
        http::once(running.address(), request).unwrap_or_else(|error| {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            panic!("Prometheus does not answer: {error:?}\n{log}");
        })
    }

    /// Turns OpenMetrics text into blocks in the data directory of this Prometheus. Returns `None` if
    /// promtool is missing.
    pub(crate) fn make_blocks(&self, text: &[u8]) -> Option<PathBuf> {
        let promtool = find(&["promtool"])?;
        let (input, data) = (self.dir.path().join("input"), self.dir.path().join("data"));
        std::fs::write(&input, text).unwrap();
        let output = Command::new(promtool)
            .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet"])
            .args([&input, &data])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(data)
    }

    pub(crate) fn metric(&self, name: &str) -> Vec<f64> {
        let text = self.send(&Request::get("/metrics")).text();
        let lines =
            text.lines().filter(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        lines.map(|l| l.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
    }

    /// Waits until each of the remote-write queues has sent a sample that was scraped after `time_ms`.
    pub(crate) fn wait_until_sent(&mut self, time_ms: i64) {
        wait_for("Prometheus to catch up", || {
            let sent = self.metric("prometheus_remote_storage_queue_highest_sent_timestamp_seconds");
            let all = sent.len() == self.queues && sent.iter().all(|s| *s > time_ms as f64 / 1000.0 + 1.0);
            all.then_some(())
        });
    }

    pub(crate) fn assert_nothing_was_dropped(&self) {
        for what in ["samples", "exemplars", "metadata"] {
            let failed = self.metric(&format!("prometheus_remote_storage_{what}_failed_total"));
            assert!(failed.iter().all(|n| *n == 0.0), "{what}: {failed:?} were dropped; see {}", self.log());
        }
        let retried: f64 = self.metric("prometheus_remote_storage_samples_retried_total").iter().sum();
        assert!(retried > 0.0, "no outage was noticed");
    }

    fn log(&self) -> String {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        read(&self.dir.path().join("log"))
    }
}
