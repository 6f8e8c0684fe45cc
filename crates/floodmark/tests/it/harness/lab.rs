//! Runs `floodmark lab` as a process.

use super::process::command;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Output, Stdio};

pub(crate) struct Running {
    child: Child,
    /// Everything that the lab has written to stderr up to the line that [`Running::start`] waited for.
    pub(crate) said: String,
}

impl Running {
    /// Starts the lab, and waits until it writes a line that contains `text` to stderr.
    pub(crate) fn start(args: &[&str], text: &str) -> Self {
        let mut child =
            command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start the lab");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut said = String::new();
        while !said.contains(text) {
            assert_ne!(stderr.read_line(&mut said).expect("read stderr"), 0, "the lab ended: {said}");
        }
        // keep reading, because the lab would block when the pipe is full
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self { child, said }
    }

    pub(crate) fn interrupt(mut self) -> (Option<i32>, String) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT).expect("interrupt the lab");
        let mut printed = String::new();
        self.child.stdout.take().expect("stdout is piped").read_to_string(&mut printed).expect("read stdout");
        let status = self.child.wait().expect("wait for the lab");
        (status.code(), printed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn lab(args: &[&str]) -> Output {
    let path = std::env::var_os("PATH").unwrap_or_default();
    command(&[&["lab"], args].concat())
        .env("PATH", path)
        .stdout(Stdio::piped())
        .output()
        .expect("run the lab")
}

/// Returns what a command wrote to stdout. Panics if the command failed.
#[track_caller]
pub(crate) fn good(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}
