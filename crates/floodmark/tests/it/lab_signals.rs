//! Runs of the lab that are ended by signals.

use crate::harness::process::command;
use crate::harness::{Options, Request, Server, wait_for};
use crate::lab::{events, run, scenario, start_liar, target};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

struct Watched {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Watched {
    fn start(args: &[&str]) -> Self {
        Self::of(&mut command(args))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start the lab");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        Self { child, stderr }
    }

    fn wait_for(&mut self, text: &str) {
        let mut said = String::new();
        while !said.contains(text) {
            assert_ne!(self.stderr.read_line(&mut said).expect("read stderr"), 0, "the lab ended: {said}");
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("send a signal");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A process that wrote its id to a file. It is killed when this is dropped.
struct Stray(PathBuf);

impl Stray {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(std::fs::read_to_string(&self.0).ok()?.trim().parse().ok()?)
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        self.pid().map(|pid| kill_process(pid, Signal::KILL));
    }
}

fn plain(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn a_terminal_that_goes_away_ends_the_run_and_its_result_is_kept() {
    let folder = tempfile::tempdir().expect("make a directory");
    let server = Server::new();
    let path = scenario(folder.path(), "1h", &target(server.address));
    let save = folder.path().join("result.json");
    // `env` makes sure that SIGHUP is not ignored, even if the tests run under nohup
    let lab = [env!("CARGO_BIN_EXE_floodmark"), "lab", "run", &path, "--out", plain(&save)];
    let mut watched = Watched::of(Command::new("env").arg("--default-signal=HUP").args(lab));
    watched.wait_for("tenants, ");
    wait_for("the first samples", || {
        let tenant = Request::get("/api/v1/query?query=count(metric_1)").header("X-Scope-OrgID", "tenant-1");
        server.send(&tenant).text().contains("\"value\"").then_some(())
    });
    // closes the output, as happens when a terminal is closed
    drop((watched.child.stdout.take(), std::mem::replace(&mut watched.stderr, BufReader::new(closed()))));
    watched.signal(Signal::HUP);
    assert_eq!(watched.child.wait().expect("wait for the lab").code(), Some(1));
    let result: Value = serde_json::from_slice(&std::fs::read(&save).expect("the result")).expect("JSON");
    assert_eq!((&result["partial"], &result["verify"]["lost"]), (&true.into(), &0.into()));
}

fn closed() -> ChildStderr {
    let mut child = Command::new("true").stderr(Stdio::piped()).spawn().expect("run true");
    child.wait().expect("wait");
    child.stderr.take().expect("stderr is piped")
}

#[test]
fn under_nohup_a_terminal_that_goes_away_ends_nothing() {
    let folder = tempfile::tempdir().expect("make a directory");
    let server = Server::new();
    let path = scenario(folder.path(), "1h", &target(server.address));
    let lab = [env!("CARGO_BIN_EXE_floodmark"), "lab", "run", &path];
    let mut watched = Watched::of(Command::new("nohup").args(lab));
    watched.wait_for("writing");
    watched.signal(Signal::HUP);
    watched.signal(Signal::INT);
    // if SIGHUP had counted as the first signal, SIGINT would be the second and prevent the result
    assert_eq!(watched.child.wait().expect("wait for the lab").code(), Some(1));
}

#[test]
fn a_second_signal_does_not_wait_for_a_result_and_leaves_no_target() {
    let folder = tempfile::tempdir().expect("make a directory");
    let (start, pid) = (folder.path().join("start.sh"), folder.path().join("pid"));
    std::fs::write(&start, format!("echo $$ > {}; exec sleep 600", pid.display())).expect("write");
    // a server that accepts connections but never answers
    let mute = TcpListener::bind("127.0.0.1:0").expect("listen");
    let target = format!(
        "[target]\ntimeout = '10m'\nwrite = 'http://{0}/api/v1/write'\nready = 'http://{0}/ready'\n\
         read = 'http://{1}'\nstart = 'sh {2}'\n[verify]\nprobes_per_s = 0\n",
        start_liar(),
        mute.local_addr().expect("an address"),
        start.display()
    );
    let path = scenario(folder.path(), "1h", &target);
    let mut watched = Watched::start(&["lab", "run", &path]);
    watched.wait_for("writing");
    let started = Stray(pid);
    let pid = wait_for("the target", || started.pid());
    watched.signal(Signal::INT);
    watched.wait_for("verifying");
    watched.signal(Signal::INT);
    assert_eq!(watched.child.wait().expect("wait for the lab").code(), Some(2));
    assert!(
        !Path::new(&format!("/proc/{}", pid.as_raw_pid())).exists(),
        "the target outlives the run that started it"
    );
}

/// A fault kills a target that was not started by the lab. `restart` returns the script that starts it again.
fn killed_and_restarted_by(restart: impl Fn(&str, &Path) -> String) {
    let folder = tempfile::tempdir().expect("make a directory");
    let data = folder.path().join("data");
    let server = Server::start(Options::default().data_dir(&data));
    let SocketAddr::V4(address) = server.address else { panic!("an address of version 4") };
    let serve =
        format!("{} serve --http {address} --data-dir {}", env!("CARGO_BIN_EXE_floodmark"), data.display());
    let (script, pid) = (folder.path().join("restart.sh"), folder.path().join("pid"));
    std::fs::write(&script, restart(&serve, &pid)).expect("write");
    let restarted = Stray(pid);
    let rest = format!(
        "{}pid = {}\nready = 'http://{address}/-/ready'\n[[fault]]\nat = '500ms'\ndo = 'kill'\n\
         restart = 'sh {}'\n[verdict]\nrestarts = 0",
        target(server.address),
        server.pid(),
        script.display()
    );
    let result = run(folder.path(), "2s", &rest, &[]);
    assert!(events(&result).contains("restarted and ready"), "{result}");
    assert!(TcpStream::connect(address).is_ok(), "a target that the run does not own ended with the run");
    assert!(restarted.pid().is_some());
}

#[test]
fn a_target_of_somebody_else_stays_when_the_run_ends() {
    killed_and_restarted_by(|serve, pid| format!("echo $$ > {}; exec {serve} 2>/dev/null", pid.display()));
}

#[test]
fn a_restart_may_be_done_by_a_service_manager() {
    killed_and_restarted_by(|serve, pid| {
        format!("setsid {serve} >/dev/null 2>&1 & echo $! > {}", pid.display())
    });
}
