//! Who sent which lines of a body that was gathered from datagrams.

use std::net::IpAddr;

/// Limit on the changes of the sender within a body that are remembered. What follows the last one has an unknown sender.
const RUNS_MAX: usize = 256;

/// Bytes of one sender, up to the next run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    start: u32,
    sender: Option<IpAddr>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Senders(Vec<Run>);

impl Senders {
    /// Upper bound on the memory, also while it grows.
    pub(super) const BYTES_MAX: usize = 2 * RUNS_MAX * size_of::<Run>();

    pub(super) const fn unknown() -> Self {
        Self(Vec::new())
    }

    /// Must be called in the order of the bytes. `start` is where the bytes of this sender begin.
    pub(super) fn add(&mut self, start: usize, sender: IpAddr) {
        let Self(runs) = self;
        let is_same = runs.last().is_some_and(|last| last.sender == Some(sender));
        if !is_same && runs.len() < RUNS_MAX {
            let sender = Some(sender).filter(|_| runs.len() + 1 < RUNS_MAX);
            runs.push(Run { start: start as u32, sender });
        }
    }

    /// The senders of the same lines in another order.
    pub(super) fn in_any_order(&self) -> Self {
        if self.0.len() == 1 { self.clone() } else { Self::unknown() }
    }

    /// The sender of all bytes. `None` if there are several, or if it is unknown.
    pub(super) fn only(&self) -> Option<IpAddr> {
        match self.0[..] {
            [Run { sender, .. }] => sender,
            _ => None,
        }
    }

    /// The sender of a line of `bytes`. The first line has the number 1.
    pub(super) fn of_line(&self, number: usize, bytes: &[u8]) -> Option<IpAddr> {
        if self.0.len() < 2 {
            return self.only();
        }
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let start: usize = lines.take(number.saturating_sub(1)).map(<[u8]>::len).sum();
        let after = self.0.partition_point(|run| run.start as usize <= start);
        self.0[..after].last()?.sender
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Run>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    #[test]
    fn each_line_has_the_sender_of_its_datagram() {
        let mut senders = Senders::unknown();
        assert_eq!((senders.only(), senders.of_line(1, b"a\n")), (None, None));
        senders.add(0, address(1));
        senders.add(4, address(1));
        assert_eq!((senders.only(), senders.of_line(1, b"")), (Some(address(1)), Some(address(1))));
        assert_eq!(senders.in_any_order().only(), Some(address(1)));
        senders.add(6, address(2));
        let bytes = b"a\nb\nc\nd\n\n";
        let found: Vec<_> = (1..=5).map(|number| senders.of_line(number, bytes)).collect();
        assert_eq!(senders.in_any_order().only(), None);
        let (first, second) = (Some(address(1)), Some(address(2)));
        assert_eq!((senders.only(), found), (None, vec![first, first, first, second, second]));
    }

    #[test]
    fn senders_beyond_the_limit_are_unknown() {
        let mut senders = Senders::unknown();
        (0..1000).for_each(|number| senders.add(2 * number, address(number)));
        assert!(senders.memory_bytes() <= Senders::BYTES_MAX);
        let bytes = b"x\n".repeat(1000);
        for number in [1, 2, RUNS_MAX - 1] {
            assert_eq!(senders.of_line(number, &bytes), Some(address(number - 1)));
        }
        for number in [RUNS_MAX, RUNS_MAX + 1, 1000] {
            assert_eq!(senders.of_line(number, &bytes), None);
        }
    }
}
