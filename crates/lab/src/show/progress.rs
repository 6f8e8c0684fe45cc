//! Reports the progress of a run while it is under way.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use stdx::units::short;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Preparing,
    Writing,
    Verifying,
    Recording,
    Replaying,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Preparing => "preparing",
            Self::Writing => "writing",
            Self::Verifying => "verifying",
            Self::Recording => "recording",
            Self::Replaying => "replaying",
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub phase: Phase,
    /// Share of this phase that is completed, from 0 to 1.
    pub part: f64,
    pub elapsed: Duration,
    /// Number of samples that were acknowledged or, while verifying, read back.
    pub samples: u64,
    /// Samples per second, usually over about the last second. For a recording, it is the mean since the start.
    pub samples_per_s: f64,
    /// p99 latency over about the last second. `None` if there was no answer.
    pub p99_s: Option<f64>,
    /// Number of answers that reported no success. While verifying, the number of samples that were lost, doubled or
    /// wrong.
    pub refused: u64,
    /// Number of requests without an answer.
    pub broken: u64,
}

/// Gets reports about a run. Its methods are called several times per second and must return quickly.
pub trait Observer: Send + Sync {
    fn progress(&self, progress: &Progress);
    fn note(&self, text: &str);
    /// Called after each second of the load. The state of the load can be formatted as lines by calling `_state`.
    fn second(&self, _state: &dyn Fn() -> String) {}
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {
    fn progress(&self, _: &Progress) {}
    fn note(&self, _: &str) {}
}

/// Reports on stderr. On a terminal, it keeps a progress line and the state of the load up to date. Elsewhere, it
/// prints a line every few seconds.
#[derive(Debug)]
pub struct Stderr {
    bar: Option<ProgressBar>,
    /// Formatted state of the load. Empty if there is no load now.
    live: Mutex<String>,
    /// Phase and time of the line that was printed last, if stderr is not a terminal.
    last_line: Mutex<Option<(Phase, Instant)>>,
}

const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

impl Stderr {
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix:>10} [{bar:24}] {msg}")
                .expect("BUG: the template of the progress bar is invalid");
            let bar = ProgressBar::with_draw_target(Some(1_000), ProgressDrawTarget::stderr());
            bar.with_style(style.progress_chars("=> "))
        });
        Self { bar, live: Mutex::default(), last_line: Mutex::new(None) }
    }
}

impl Default for Stderr {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints a line to stderr. Unlike `eprintln!`, it does not panic if stderr is closed.
fn say(text: impl std::fmt::Display) {
    writeln!(std::io::stderr().lock(), "{text}").ok();
}

impl Observer for Stderr {
    fn progress(&self, progress: &Progress) {
        let part = progress.part.clamp(0.0, 1.0);
        if let Some(bar) = &self.bar {
            bar.set_prefix(progress.phase.to_string());
            bar.set_position((part * 1_000.0) as u64);
            let mut live = self.live.lock().expect("BUG: an observer panicked");
            if !matches!(progress.phase, Phase::Writing | Phase::Replaying) {
                live.clear();
            }
            bar.set_message(format!("{}{live}", line(progress)));
            return;
        }
        let mut last_line = self.last_line.lock().expect("BUG: an observer panicked");
        if last_line.is_none_or(|(phase, at)| phase != progress.phase || at.elapsed() >= PLAIN_INTERVAL) {
            *last_line = Some((progress.phase, Instant::now()));
            say(format_args!("{} {:.0} %: {}", progress.phase, part * 100.0, line(progress)));
        }
    }

    fn second(&self, state: &dyn Fn() -> String) {
        if self.bar.is_some() {
            *self.live.lock().expect("BUG: an observer panicked") = state();
        }
    }

    fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => say(text),
        }
    }
}

fn line(progress: &Progress) -> String {
    let Progress { elapsed, samples, samples_per_s, p99_s, refused, broken, phase, .. } = progress;
    let mut line = format!(
        "{:.0} s  {} samples  {}/s",
        elapsed.as_secs_f64(),
        short(*samples as f64),
        short(*samples_per_s)
    );
    if let Some(p99_s) = p99_s {
        line += &format!("  p99 {:.1} ms", p99_s * 1e3);
    }
    let refused_word = if *phase == Phase::Verifying { "bad" } else { "refused" };
    for (count, word) in [(refused, refused_word), (broken, "unanswered")] {
        if *count > 0 {
            line += &format!("  {count} {word}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_went_wrong_only_if_something_did() {
        let mut progress = Progress {
            phase: Phase::Writing,
            part: 0.5,
            elapsed: Duration::from_secs(10),
            samples: 1_234_567,
            samples_per_s: 123_456.0,
            p99_s: Some(0.0123),
            refused: 0,
            broken: 0,
        };
        assert_eq!(line(&progress), "10 s  1.23M samples  123k/s  p99 12.3 ms");
        (progress.refused, progress.broken) = (3, 1);
        assert_eq!(line(&progress), "10 s  1.23M samples  123k/s  p99 12.3 ms  3 refused  1 unanswered");
    }
}
