//! Shows progress on stderr, as a bar in a terminal, and otherwise as a line every ten seconds.

use crate::output::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const LINE_EVERY: Duration = Duration::from_secs(10);

const STEPS: u64 = 1000;

#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    bar: Option<ProgressBar>,
    quiet: bool,
    last: Instant,
}

impl Progress {
    pub(crate) fn new(label: String, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{prefix} {bar:30} {percent:>3} % {msg} {eta}");
            bar.set_style(style.expect("BUG: the template of the progress bar is invalid"));
            bar.set_prefix(label.clone());
            bar
        });
        Self { label, bar, quiet, last: Instant::now() }
    }

    /// `done` is the finished fraction of the work, from 0 to 1.
    pub(crate) fn at(&mut self, done: f64, samples: u64) {
        match &self.bar {
            Some(bar) => {
                bar.set_position((done * STEPS as f64) as u64);
                bar.set_message(format!("{:.1} M samples", samples as f64 / 1e6));
            }
            None if !self.quiet && self.last.elapsed() >= LINE_EVERY => {
                self.last = Instant::now();
                note(format_args!(
                    "{}: {:.0} %, {:.1} M samples",
                    self.label,
                    done * 100.0,
                    samples as f64 / 1e6
                ));
            }
            None => {}
        }
    }

    pub(crate) fn say(&self, what: &'static str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what);
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
