//! Runs programs other than Floodmark as processes.

use super::http::{self, Request};
use super::wait_for;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use stdx::rng::Rng;

/// Finds a free port. It is outside the range from which the system assigns ports, so it stays free while a
/// server is down.
pub(crate) fn free_port() -> u16 {
    let mut rng = Rng::new(Rng::fresh_seed());
    wait_for("a free port", || {
        let port = 20_000 + rng.below(12_000) as u16;
        TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
    })
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Running {
    pub(crate) fn start(command: &mut Command, port: u16, log: PathBuf) -> Self {
        let out = File::options().create(true).append(true).open(&log).unwrap();
        let mut running = Self::start_with_stderr(command, port, out);
        running.log = log;
        running
    }

    pub(crate) fn start_with_stderr(command: &mut Command, port: u16, stderr: File) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        Self { child, port, log: PathBuf::new() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub(crate) fn wait_until(&self, path: &str) {
        wait_for(path, || http::once(self.address(), &Request::get(path)).ok().filter(|r| r.status == 200));
    }

    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(20).collect();
            eprintln!("end of {}, newest line first:\n{}", self.log.display(), tail.join("\n"));
        }
    }
}

pub(crate) fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/floodmark");
    std::env::var_os("FLOODMARK_CACHE").map_or_else(home, PathBuf::from)
}

/// Finds the first of these programs that exists. Searches in `$FLOODMARK_CACHE/bin` first, then in `$PATH`.
pub(crate) fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(cache().join("bin")).chain(std::env::split_paths(&path));
    let mut candidates = folders.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    candidates.find(|p| p.is_file())
}
