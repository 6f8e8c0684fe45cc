//! Signals that ask a command to end: SIGINT, SIGTERM and SIGHUP.

use anyhow::{Context, Result, bail};
use lab::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Runs `work` until it is done. On the first signal, `stop` is set, so that `work` ends early and still
/// returns a result. On a second signal, `work` is dropped.
pub(crate) async fn stoppable<T>(stop: &Stop, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut signals = Signals::listen()?;
    let mut asked = false;
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = signals.next() => match std::mem::replace(&mut asked, true) {
                false => stop.now(),
                true => bail!("a second signal ended the command; there is no result"),
            },
        }
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if SIGHUP must be ignored, because the process was started by `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) },
        })
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Returns true if SIGHUP is ignored, which is how `nohup` starts a process. It is the lowest bit of `SigIgn`
/// in `/proc/self/status`.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
