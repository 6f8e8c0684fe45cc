//! A full disk. Writes must be refused, reads must work, and writes must be accepted again without a restart
//! once there is space.

use crate::graphite::lines;
use crate::harness::ledger::Writer;
use crate::harness::{Options, Request, Server, now_ms, wait_for};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// A small file system in memory, which is unmounted when this is dropped.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    /// Returns `None` if this process is not permitted to mount file systems.
    pub(crate) fn mount(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size},mode=0700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "floodmark-test"])
            .arg(dir.path())
            .output();
        match mounted {
            Ok(done) if done.status.success() => Some(Self(dir)),
            other => {
                eprintln!("mount: {other:?}");
                stdx::skipped::for_want_of("right to mount a small disk (root)");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn fill(&self) {
        let filler = self.path().join("filler");
        let mut file = File::options().append(true).create(true).open(filler).unwrap();
        for size in [1 << 20, 1 << 12] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn until_refused(server: &Server, writers: &mut [Writer]) -> String {
    loop {
        for writer in &mut *writers {
            let reply = writer.write_once(server);
            if reply.status == 204 {
                continue;
            }
            reply.expect(503, &["the journal failed", "full"]);
            let retry_after = reply.header("retry-after").expect("Retry-After");
            assert!((1..=60).contains(&retry_after.parse::<u32>().unwrap()), "{retry_after}");
            return reply.text();
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers() {
    let Some(disk) = SmallDisk::mount("24m") else { return };
    let data = disk.path().join("data");
    let options = Options::default().data_dir(&data).config("partitions = 2\nsegment_size = \"2MiB\"");
    let mut server = Server::start(options.allow("cannot write a group of requests to the journal"));
    let mut writers = [Writer::new(5, 1), Writer::new(5, 2)];
    let mut newcomers = Vec::new();
    for round in 0..3 {
        disk.fill();
        let text = until_refused(&server, &mut writers);
        eprintln!("round {round}: {text}");
        let mut newcomer = Writer::new(5, 10 + round);
        newcomer.write_once(&server).expect(503, &[]);
        for writer in &mut writers {
            // every writer is refused, but can read what was stored before
            writer.write_once(&server).expect(503, &[]);
            writer.verify(&server, 0);
        }
        if round == 1 {
            // the server starts although the disk is full, and serves reads
            server.kill9();
            server.restart();
            for writer in &mut writers {
                writer.verify(&server, 0);
            }
            until_refused(&server, &mut writers);
        }
        disk.make_room();
        for writer in &mut writers {
            wait_for("writing to resume", || (writer.write_once(&server).status == 204).then_some(()));
            writer.write_once(&server).expect(204, &[]);
            writer.verify(&server, 0);
        }
        newcomer.write_once(&server).expect(204, &[]);
        newcomers.push(newcomer);
    }
    server.kill9();
    server.restart();
    for writer in writers.iter().chain(&newcomers) {
        writer.verify(&server, 0);
    }
    let warnings = server.log_lines(" WARN ").len();
    assert!(warnings < 200, "{warnings} warnings: a warning for each refusal would fill the disk");
}

/// Only the journal is on the full disk. The tables are on another disk, so sealing can make room.
#[test]
fn a_full_disk_under_the_journal_is_emptied_into_tables_that_lie_elsewhere() {
    let Some(disk) = SmallDisk::mount("24m") else { return };
    let tables = tempfile::tempdir().unwrap();
    let config = format!(
        "partitions = 2\nsegment_size = \"2MiB\"\nseal_after = \"1h\"\nseal_size = \"1GiB\"\ntables = \"file://{}\"",
        tables.path().display()
    );
    let options = Options::default().data_dir(&disk.path().join("data")).config(&config);
    let server = Server::start(
        options
            .allow("cannot write a group of requests to the journal")
            .allow("the journal is not truncated"),
    );
    let mut writers = [Writer::new(6, 1), Writer::new(6, 2)];
    for round in 0..3 {
        disk.fill();
        let text = until_refused(&server, &mut writers);
        disk.fill();
        eprintln!("round {round}: {text}");
        server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
        for writer in &mut writers {
            wait_for("writing to resume", || (writer.write_once(&server).status == 204).then_some(()));
            writer.verify(&server, 0);
        }
        disk.make_room();
        server.send(&Request::post("/api/v1/admin/flush", Vec::new())).expect(200, &["success"]);
    }
}

/// While the disk is full, bodies of lines are refused, and written again later. Of two values for the same time, the later
/// must win nevertheless.
#[test]
fn lines_that_wait_for_a_full_disk_stay_in_order() {
    let Some(disk) = SmallDisk::mount("24m") else { return };
    let options = lines::options().data_dir(&disk.path().join("data"));
    let options = options.config("partitions = 2\nsegment_size = \"2MiB\"");
    let server = Server::start(options.allow("cannot write a group of requests to the journal"));
    let (at_s, stream) = (now_ms() / 1000 - 10, lines::connect(&server));
    let body =
        move |value: u32| (0..300).map(move |i| format!("disk.n{i} {value} {at_s}\n")).collect::<String>();
    let is_stored =
        |value| server.value(&format!("count({{__name__=~'disk.*'}} == {value})"), now_ms()) == Some(300.0);
    (&stream).write_all(body(0).as_bytes()).unwrap();
    wait_for("the series", || is_stored(0).then_some(()));
    let mut last = 0;
    for _ in 0..4 {
        disk.fill();
        let (mut writer, stop) = (stream.try_clone().unwrap(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let sender = std::thread::spawn(move || {
            let mut value = last;
            while !stopped.load(Ordering::Relaxed) {
                value += 1;
                writer.write_all(body(value).as_bytes()).unwrap();
            }
            value
        });
        let paused = || server.metric("floodmark_graphite_paused_bodies");
        wait_for("a refusal", || (paused() > 0.0).then_some(()));
        disk.make_room();
        wait_for("the end of the refusals", || (paused() == 0.0).then_some(()));
        stop.store(true, Ordering::Relaxed);
        last = sender.join().unwrap();
        wait_for("the last value", || is_stored(last).then_some(()));
    }
    assert!(lines::all_durable(&stream));
    assert!(is_stored(last));
}
