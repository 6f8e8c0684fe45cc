//! Counts the datagrams that the kernel drops because the buffer of a socket is full. The socket's reader never sees them.

use std::os::fd::AsRawFd;
use stdx::telemetry::Counter;

/// Follows the kernel's count of one socket.
#[derive(Debug)]
pub(super) struct Overflow {
    datagrams: Counter,
    seen: u32,
}

impl Overflow {
    pub(super) const fn new(datagrams: Counter) -> Self {
        Self { datagrams, seen: 0 }
    }

    /// Adds what was dropped since the last call.
    pub(super) fn count(&mut self, socket: &impl AsRawFd) {
        let Some(dropped) = dropped_datagrams(socket) else { return };
        self.datagrams.add(dropped.wrapping_sub(self.seen).into());
        self.seen = dropped;
    }
}

/// The kernel's count, which wraps. Source: `SO_MEMINFO` in `socket(7)`, and `SK_MEMINFO_DROPS` in `linux/sock_diag.h`.
#[cfg(target_os = "linux")]
fn dropped_datagrams(socket: &impl AsRawFd) -> Option<u32> {
    const DROPS: usize = 8;
    let mut info = [0_u32; DROPS + 1];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, and the length that it has written to `length`
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (result == 0 && length as usize == size_of_val(&info)).then_some(info[DROPS])
}

#[cfg(not(target_os = "linux"))]
fn dropped_datagrams(_: &impl AsRawFd) -> Option<u32> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn datagrams_that_do_not_fit_are_counted_once() {
        let [receiver, sender] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let (counter, sent) = (Counter::default(), 5_000);
        let mut overflow = Overflow::new(counter.clone());
        overflow.count(&receiver);
        assert_eq!(counter.get(), 0);
        for _ in 0..sent {
            sender.send(&[b'x'; 1000]).unwrap();
        }
        overflow.count(&receiver);
        overflow.count(&receiver);
        let mut buffer = [0; 1000];
        let read = std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).count() as u64;
        assert!(read > 0 && read < sent, "{read} of {sent} fit");
        assert_eq!(read + counter.get(), sent);
    }
}
