//! Sleeps with a precision of less than a millisecond.
//!
//! Tokio's timers round up to a whole millisecond, which is half of a fast target's latency. The kernel's timers are
//! accurate to about 50 µs.

use std::time::Instant;

#[cfg(target_os = "linux")]
mod precise {
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::os::fd::OwnedFd;
    use std::time::Duration;
    use tokio::io::unix::AsyncFd;

    /// A kernel timer (timerfd), which the runtime polls like a socket.
    #[derive(Debug)]
    pub(super) struct KernelTimer(AsyncFd<OwnedFd>);

    impl KernelTimer {
        #[expect(
            deprecated,
            reason = "the replacement is unsafe because the descriptor must stay open, which an OwnedFd guarantees"
        )]
        pub(super) fn new() -> std::io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
        }

        /// Sleeps for `time`, which must not be zero.
        pub(super) async fn sleep(&self, time: Duration) -> std::io::Result<()> {
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let it_value = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
            let once = Itimerspec { it_interval: none, it_value };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            loop {
                let mut ready = self.0.readable().await?;
                match rustix::io::read(self.0.get_ref(), &mut [0; 8]) {
                    Ok(_) => return Ok(()),
                    Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Timer {
    #[cfg(target_os = "linux")]
    kernel: Option<precise::KernelTimer>,
}

impl Timer {
    /// Uses a kernel timer if there is one, otherwise Tokio's. Must be called within a runtime.
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            kernel: precise::KernelTimer::new().ok(),
        }
    }

    /// Returns at once if `due` has passed.
    pub(crate) async fn sleep_until(&self, due: Instant) {
        let time = due.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return;
        }
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &self.kernel
            && kernel.sleep(time).await.is_ok()
        {
            return;
        }
        tokio::time::sleep_until(due.into()).await;
    }
}

impl Default for Timer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn never_wakes_early() {
        let timer = Timer::new();
        for us in [0, 1, 50, 900, 1_500] {
            let due = Instant::now() + Duration::from_micros(us);
            timer.sleep_until(due).await;
            assert!(Instant::now() >= due);
        }
    }
}
