//! Traffic over the network interfaces that the target uses.

use super::{Look, rate};
use crate::observe::procfs::Process;
use procfs::net::DeviceStatus;

#[derive(Debug)]
pub(super) struct Network {
    of: Process,
    before: Option<Bytes>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bytes {
    received: u64,
    sent: u64,
    /// Traffic from the machine to itself. Each byte is counted once, although it is both sent and received.
    loopback: u64,
}

impl Network {
    /// Observes the network namespace of process `pid`, or of this process.
    pub(super) fn new(pid: Option<u32>) -> Self {
        let of = pid.map_or(Process::Own, Process::Id);
        Self { of, before: bytes(of) }
    }

    pub(super) fn look(&mut self, seconds: f64, look: &mut Look) {
        let now = bytes(self.of);
        if let Some((now, before)) = now.zip(self.before) {
            look.set("network/received", "bytes/s", rate(now.received, before.received, seconds));
            look.set("network/sent", "bytes/s", rate(now.sent, before.sent, seconds));
            look.set("network/loopback", "bytes/s", rate(now.loopback, before.loopback, seconds));
        }
        self.before = now.or(self.before);
    }
}

fn bytes(process: Process) -> Option<Bytes> {
    Some(sum(process.open()?.dev_status().ok()?.into_values()))
}

fn sum(interfaces: impl Iterator<Item = DeviceStatus>) -> Bytes {
    let mut sum = Bytes::default();
    for DeviceStatus { name, recv_bytes, sent_bytes, .. } in interfaces {
        match name.as_str() {
            "lo" => sum.loopback += recv_bytes,
            _ => (sum.received, sum.sent) = (sum.received + recv_bytes, sum.sent + sent_bytes),
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead;
    use procfs::net::InterfaceDeviceStatus;

    #[test]
    fn the_loopback_interface_is_counted_apart() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 7 0 0 0 0 0 0 0 7 0 0 0 0 0 0 0\n  eth0: 5 1 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n  \
                    br0: 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let interfaces = InterfaceDeviceStatus::from_read(text.as_bytes()).unwrap();
        assert_eq!(sum(interfaces.0.into_values()), Bytes { received: 6, sent: 9, loopback: 7 });
    }
}
