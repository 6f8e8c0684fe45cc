//! Acknowledged samples must survive kill -9 and SIGTERM, and the server must start from every state of its
//! data directory.

use crate::harness::ledger::Writer;
use crate::harness::process::command;
use crate::harness::{Options, Request, Server, wait_for};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stdx::rng::Rng;

/// How often the server is killed. With `FLOODMARK_LONG=1`, it is ten times as often.
fn kills() -> usize {
    if std::env::var_os("FLOODMARK_LONG").is_some() { 200 } else { 20 }
}

fn seed() -> u64 {
    let seed = std::env::var("FLOODMARK_SEED").ok().map(|s| s.parse().expect("FLOODMARK_SEED is a number"));
    let seed = seed.unwrap_or_else(Rng::fresh_seed);
    eprintln!("FLOODMARK_SEED={seed}");
    seed
}

#[test]
fn kill_9_at_random_moments_loses_and_doubles_nothing() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    // segments are small, so that some kills happen just after a segment was begun
    let mut server = Server::start(Options::default().config("segment_size = \"1MiB\""));
    let mut writers: Vec<_> = (0..3).map(|id| Writer::new(seed, id)).collect();
    for kill in 0..kills() {
        let before: Vec<_> = writers.iter().map(|w| w.acknowledged).collect();
        let load_ms = 20 + rng.below(400);
        under_load(&mut server, &mut writers, Duration::from_millis(load_ms), Server::kill9);
        server.restart();
        for (writer, before) in writers.iter().zip(before) {
            writer.verify(&server, before);
        }
        let acknowledged: u64 = writers.iter().map(Writer::sample_count).sum();
        eprintln!("kill {kill} after {load_ms} ms: {acknowledged} samples in all");
    }
    for writer in &mut writers {
        let last = writer.write_once(&server);
        last.expect(204, &[]);
        writer.has_unacknowledged_request = false;
        writer.verify(&server, 0);
    }
    let samples: u64 = writers.iter().map(Writer::sample_count).sum();
    assert!(samples > 0);
    let series = format!("{}", writers.len() * 20);
    assert_eq!(server.metric("floodmark_head_series").to_string(), series);
}

fn under_load(
    server: &mut Server,
    writers: &mut [Writer],
    how_long: Duration,
    end: impl FnOnce(&mut Server),
) {
    let stop = AtomicBool::new(false);
    let address = server.address;
    std::thread::scope(|threads| {
        let running: Vec<_> = writers.iter_mut().map(|w| threads.spawn(|| w.run(address, &stop))).collect();
        // the only purpose of this sleep is that the server ends at a random time
        std::thread::sleep(how_long);
        end(server);
        stop.store(true, Ordering::Relaxed);
        for writer in running {
            writer.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        }
    });
}

#[test]
fn sigterm_under_load_finishes_accepted_requests() {
    let seed = seed();
    let mut server = Server::new();
    let mut writers: Vec<_> = (0..3).map(|id| Writer::new(seed, id)).collect();
    for round in 0..3 {
        let mut status = None;
        let end = |server: &mut Server| status = Some(server.terminate());
        under_load(&mut server, &mut writers, Duration::from_millis(100 + 150 * round), end);
        assert_eq!(status.and_then(|s| s.code()), Some(0));
        server.restart();
        for writer in &writers {
            assert!(writer.acknowledged > 0);
            writer.verify(&server, 0);
        }
    }
    assert_eq!(server.log_lines("stopped").len(), 3, "not every stop was orderly");
}

/// Data that was handed to the operating system survives when only the process is killed, even if it was
/// never synced.
#[test]
fn kill_9_loses_nothing_without_fsync_either() {
    let seed = seed();
    let mut server = Server::start(Options::default().arg("--durability").arg("os"));
    let mut writers: Vec<_> = (0..2).map(|id| Writer::new(seed, id)).collect();
    for _ in 0..3 {
        under_load(&mut server, &mut writers, Duration::from_millis(150), Server::kill9);
        server.restart();
        for writer in &writers {
            writer.verify(&server, 0);
        }
    }
}

#[test]
fn sigterm_does_not_wait_for_a_body_for_ever() {
    let mut server = Server::start(Options::default().config("body_timeout = \"2s\""));
    let mut writer = Writer::new(6, 1);
    writer.write_once(&server).expect(204, &[]);
    let mut half = crate::harness::Connection::open(server.address).unwrap();
    let head = Request::write(&[]).header("Content-Length", "1000").head();
    half.send_bytes(head.as_bytes()).unwrap();
    half.send_bytes(b"half").unwrap();
    let began = std::time::Instant::now();
    assert_eq!(server.terminate().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(15), "took {:?}", began.elapsed());
    server.restart();
    writer.verify(&server, 0);
}

#[test]
fn sigterm_during_replay_ends_in_order() {
    let seed = seed();
    let mut server = Server::new();
    let mut writers: Vec<_> = (0..3).map(|id| Writer::new(seed, id)).collect();
    under_load(&mut server, &mut writers, Duration::from_millis(800), Server::kill9);
    for _ in 0..3 {
        server.restart_unready();
        assert_eq!(server.terminate().code(), Some(0));
    }
    server.restart();
    for writer in &writers {
        writer.verify(&server, 0);
    }
}

#[test]
fn another_number_of_partitions_does_not_move_series() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(7, 1);
    for partitions in [2, 5, 1] {
        let config = format!("partitions = {partitions}");
        let options = Options::default().data_dir(dir.path()).config(&config).allow("partitions");
        let mut server = Server::start(options);
        writer.write_once(&server).expect(204, &[]);
        writer.verify(&server, 0);
        assert_eq!(server.metric("floodmark_head_series"), 20.0);
        assert!(server.terminate().success());
    }
}

#[test]
fn an_idle_server_stops_at_once_even_with_open_connections() {
    let mut server = Server::new();
    let mut idle = crate::harness::Connection::open(server.address).unwrap();
    idle.send(&Request::get("/-/ready")).unwrap().expect(200, &[]);
    let began = std::time::Instant::now();
    assert_eq!(server.terminate().code(), Some(0));
    // the server does not wait for idle connections, because they have no request in progress
    assert!(began.elapsed() < Duration::from_secs(15), "took {:?}", began.elapsed());
}

#[test]
fn an_empty_directory_starts_and_starts_again() {
    let mut server = Server::new();
    for _ in 0..3 {
        assert_eq!(server.query("count({__name__=~\".+\"})", 1000)["result"], serde_json::json!([]));
        assert_eq!(server.terminate().code(), Some(0));
        server.restart();
    }
    server.kill9();
    server.restart();
    let mut writer = Writer::new(1, 1);
    writer.write_once(&server).expect(204, &[]);
    writer.verify(&server, 0);
}

#[test]
fn a_start_can_be_killed_at_any_moment() {
    let mut rng = Rng::new(seed());
    for _ in 0..15 {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let mut child =
                command(&["serve", "--http", "127.0.0.1:0", "--data-dir"]).arg(dir.path()).spawn().unwrap();
            // the only purpose of this sleep is that the kill happens at a random time
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let server = Server::start(Options::default().data_dir(dir.path()));
        let mut writer = Writer::new(8, 1);
        writer.write_once(&server).expect(204, &[]);
        writer.verify(&server, 0);
    }
}

#[test]
fn a_second_process_on_the_same_directory_refuses() {
    let mut server = Server::new();
    let mut writer = Writer::new(2, 1);
    writer.write_once(&server).expect(204, &[]);
    let dir = server.data_dir();
    let mut second = command(&["serve", "--http", "127.0.0.1:0", "--data-dir"]);
    let second = second.arg(&dir).output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.code().is_some_and(|code| code != 0), "{text}");
    assert!(text.contains("in use by another process") && text.contains(dir.to_str().unwrap()), "{text}");
    // the first server is not affected, and releases the directory when it is killed
    writer.write_once(&server).expect(204, &[]);
    server.kill9();
    server.restart();
    writer.verify(&server, 0);
}

#[test]
fn failed_starts_name_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let config = dir.path().join("c.toml");
    std::fs::write(&config, "memroy = \"1GiB\"").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let data = dir.path().join("data");
    let (data, file, config) = (data.to_str().unwrap(), file.to_str().unwrap(), config.to_str().unwrap());
    let check = |args: &[&str], mentions: &[&str]| {
        let ended = command(&[&["serve"], args].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{args:?} started");
        for mention in mentions {
            assert!(text.contains(mention), "{mention:?} is not in: {text}");
        }
        assert!(!text.contains("panicked"), "{text}");
    };
    check(&["--data-dir", file], &[file]);
    check(&["--data-dir", data, "--http", &taken], &[&taken, "listen"]);
    check(&["--data-dir", data, "--http", "nowhere"], &["nowhere"]);
    check(&["--data-dir", data, "--memory", "1MiB"], &["memory", "1MiB", "64MiB"]);
    check(&["--data-dir", data, "--memory", "lots"], &["memory", "lots", "512MiB"]);
    check(&["--data-dir", data, "--durability", "maybe"], &["durability", "maybe", "fsync"]);
    check(&["--data-dir", data, "--config", config], &["memroy", config]);
    check(&["--data-dir", data, "--config", "/nonexistent"], &["/nonexistent"]);
}

/// While the journal is replayed, the server must answer that it is not ready.
#[test]
fn nothing_is_acknowledged_or_ready_before_replay_is_done() {
    let seed = seed();
    let mut server = Server::new();
    let mut writers: Vec<_> = (0..3).map(|id| Writer::new(seed, id)).collect();
    under_load(&mut server, &mut writers, Duration::from_millis(1500), Server::kill9);
    server.restart_unready();
    // until the server is ready, it refuses queries instead of returning incomplete results
    wait_for("readiness", || {
        let reply = server.send(&Request::get("/-/ready"));
        assert!([200, 503].contains(&reply.status), "{reply:?}");
        (reply.status == 200).then_some(())
    });
    for writer in &writers {
        writer.verify(&server, 0);
    }
}
