//! Tables in a real S3 service. VersityGW provides it on top of a directory.

use super::{compact, fill, flush, seed};
use crate::harness::ledger::Writer;
use crate::harness::programs::{Running, find, free_port};
use crate::harness::{Options, Server, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const KEY: &str = "floodmark";
const SECRET: &str = "a secret that no log may show";

struct S3 {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    running: Option<Running>,
}

impl S3 {
    fn start() -> Option<Self> {
        let Some(program) = find(&["versitygw"]) else {
            stdx::skipped::for_want_of("VersityGW (scripts/test-servers.sh)");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("buckets/lake")).unwrap();
        let mut s3 = Self { program, dir, port: free_port(), running: None };
        s3.restart();
        Some(s3)
    }

    fn restart(&mut self) {
        let mut command = Command::new(&self.program);
        command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
        command.args(["--port", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--quiet", "--keep-alive", "--health", "/health", "posix"]).arg(self.buckets());
        let running = Running::start(&mut command, self.port, self.dir.path().join("log"));
        running.wait_until("/health");
        self.running = Some(running);
    }

    fn stop(&mut self) {
        self.running = None;
    }

    fn buckets(&self) -> PathBuf {
        self.dir.path().join("buckets")
    }

    fn options(&self) -> Options {
        let config = format!(
            "seal_after = \"200ms\"\ntables = \"s3://lake/here\"\n[tables_options]\naws_endpoint = \"http://127.0.0.1:{}\"\n\
             aws_region = \"us-east-1\"\naws_allow_http = \"true\"\naws_access_key_id = \"{KEY}\"\naws_secret_access_key = \"{SECRET}\"",
            self.port
        );
        let excuses = ["cannot be sealed", "can be sealed again", "cannot read a table"];
        excuses.into_iter().fold(Options::default().config(&config), Options::allow)
    }
}

fn is_in(path: &Path, text: &str) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| {
        entries.any(|e| e.is_ok_and(|e| e.file_name().to_string_lossy().contains(text)))
    })
}

#[test]
fn tables_in_s3_take_everything_once_though_the_service_goes_away() {
    let Some(mut s3) = S3::start() else { return };
    let mut server = Server::start(s3.options());
    let mut writer = Writer::new(seed(), 1);
    fill(&server, &mut writer, 5);
    s3.stop();
    let failures = server.metric("floodmark_seal_failures_total");
    wait_for("a failure", || {
        writer.write_once(&server).expect(204, &[]);
        (server.metric("floodmark_seal_failures_total") > failures).then_some(())
    });
    server.kill9();
    s3.restart();
    server.restart();
    flush(&server);
    writer.verify(&server, 0);
    compact(&server);
    server.kill9();
    server.restart();
    assert_eq!(server.metric("floodmark_journal_replayed_samples_total"), 0.0);
    writer.verify(&server, 0);
    let table = s3.buckets().join("lake/here/anonymous/metrics");
    assert!(is_in(&table, "_delta_log") && is_in(&table, "date="), "the table is not at its URL");
    assert!(!server.data_dir().join("tables").exists(), "the data directory has tables too");
}

#[test]
fn a_checkpoint_in_s3_that_is_cut_short_is_put_aside() {
    let Some(s3) = S3::start() else { return };
    let mut server = Server::start(s3.options().allow("last checkpoint cannot be used"));
    let mut writer = Writer::new(seed(), 1);
    fill(&server, &mut writer, 20);
    compact(&server);
    server.kill9();
    let log = s3.buckets().join("lake/here/anonymous/metrics/_delta_log");
    let names = || std::fs::read_dir(&log).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let checkpoint =
        names().find(|name| name.ends_with(".checkpoint.parquet")).expect("upkeep wrote no checkpoint");
    let file = std::fs::OpenOptions::new().write(true).open(log.join(&checkpoint)).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    server.restart();
    writer.verify(&server, 0);
    assert_eq!(server.metric("floodmark_tables_log_repairs_total"), 1.0);
    assert!(is_in(&log, "_damaged-") && !is_in(&log, &checkpoint) && !is_in(&log, "_last_checkpoint"));
    compact(&server);
    assert!(
        is_in(&log, ".checkpoint.parquet") && is_in(&log, "_last_checkpoint"),
        "no new checkpoint was written"
    );
    server.kill9();
    server.restart();
    writer.verify(&server, 0);
    assert_eq!(server.metric("floodmark_tables_log_repairs_total"), 0.0, "the log was repaired again");
}
