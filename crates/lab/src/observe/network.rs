//! Bytes over the network interfaces, as the target's network namespace counts them.

use super::{Look, rate};
use std::fs;

/// The interfaces of a namespace.
#[derive(Debug)]
pub(super) struct Network {
    path: String,
    before: Option<Bytes>,
}

/// Bytes so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    received: u64,
    sent: u64,
    /// Within the machine; each byte is sent and received once.
    loopback: u64,
}

impl Network {
    /// That of a process, or of this one.
    pub(super) fn new(pid: Option<u32>) -> Self {
        let path = pid.map_or("/proc/net/dev".to_owned(), |pid| format!("/proc/{pid}/net/dev"));
        let before = bytes(&path);
        Self { path, before }
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        let now = bytes(&self.path);
        if let Some((now, before)) = now.zip(self.before) {
            look.set("network/received", "bytes/s", rate(now.received, before.received, seconds));
            look.set("network/sent", "bytes/s", rate(now.sent, before.sent, seconds));
            look.set("network/loopback", "bytes/s", rate(now.loopback, before.loopback, seconds));
        }
        self.before = now.or(self.before);
    }
}

fn bytes(path: &str) -> Option<Bytes> {
    Some(parse(&fs::read_to_string(path).ok()?))
}

pub(super) fn parse(text: &str) -> Bytes {
    let mut sum = Bytes::default();
    for (name, counts) in text.lines().filter_map(|line| line.split_once(':')) {
        let number = |at: usize| counts.split_whitespace().nth(at).and_then(|n| n.parse().ok()).unwrap_or(0);
        match name.trim() {
            "lo" => sum.loopback += number(0),
            _ => (sum.received, sum.sent) = (sum.received + number(0), sum.sent + number(8)),
        }
    }
    sum
}
