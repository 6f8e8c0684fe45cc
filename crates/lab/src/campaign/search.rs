//! Searches for a limit: the largest load, or the smallest size, that passes.
//!
//! ```text
//!   up:    1 ─ pass ─▶ 2 ─ pass ─▶ 4 ─ FAIL      bracket: doubled until it fails
//!                          └── 3 ─ pass ─ 3.5 …   halved until it is narrow
//!                                └─ confirmed by running it again; if that fails, a lower value is tried
//! ```
//!
//! This module does no I/O: the caller runs each trial and reports its outcome.

/// The search ends when the best value that passed and the nearest value that failed differ by at most this factor.
pub const PRECISION_DEFAULT: f64 = 1.1;

const RUNS_MAX: usize = 60;

/// If the limit that was found fails when it is run again, the search steps back: it multiplies a load by this factor,
/// and divides a size by it.
const STEP_BACK: f64 = 0.9;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    Try {
        value: f64,
        confirming: bool,
    },
    /// Best value that passed and was confirmed.
    Found(f64),
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Search {
    /// True to search for the largest load that passes, false for the smallest size.
    largest: bool,
    min: f64,
    max: f64,
    precision: f64,
    confirmations: u32,
    /// The best value that passed so far. `bad` is the value nearest to it that failed.
    good: Option<f64>,
    bad: Option<f64>,
    confirmed: u32,
    tried: Option<f64>,
    runs: usize,
}

impl Search {
    pub fn for_largest(min: f64, max: f64, precision: f64, confirmations: u32) -> Self {
        Self::new(true, min, max, precision, confirmations)
    }

    pub fn for_smallest(min: f64, max: f64, precision: f64, confirmations: u32) -> Self {
        Self::new(false, min, max, precision, confirmations)
    }

    fn new(largest: bool, min: f64, max: f64, precision: f64, confirmations: u32) -> Self {
        assert!(min > 0.0 && max >= min && precision > 1.0, "BUG: the bounds of a search were not checked");
        Self {
            largest,
            min,
            max,
            precision,
            confirmations,
            good: None,
            bad: None,
            confirmed: 0,
            tried: None,
            runs: 0,
        }
    }

    pub fn choose_next(&mut self) -> Next {
        let next = self.choose();
        self.tried = match next {
            Next::Try { value, .. } => Some(value),
            _ => None,
        };
        next
    }

    fn choose(&self) -> Next {
        // begin at the end of the range that is more likely to pass: a small load or a large size
        let (easy, hard) = if self.largest { (self.min, self.max) } else { (self.max, self.min) };
        let unconfirmed = |value| Next::Try { value, confirming: false };
        let Some(good) = self.good else {
            return match self.bad {
                None => unconfirmed(easy),
                Some(bad) if self.at_end(bad, easy) || self.runs >= RUNS_MAX => Next::Nothing,
                // the confirmation of the best value failed, so nothing is known to pass
                Some(bad) => {
                    unconfirmed(self.clamp(if self.largest { bad * STEP_BACK } else { bad / STEP_BACK }))
                }
            };
        };
        let narrow = match self.bad {
            Some(bad) => (bad / good).max(good / bad) <= self.precision,
            None => self.at_end(good, hard),
        };
        if narrow || self.runs >= RUNS_MAX {
            if self.confirmed >= self.confirmations {
                return Next::Found(good);
            }
            return Next::Try { value: good, confirming: true };
        }
        let value = match self.bad {
            Some(bad) => (good * bad).sqrt(),
            None => self.clamp(if self.largest { good * 2.0 } else { good / 2.0 }),
        };
        unconfirmed(value)
    }

    pub fn report(&mut self, passed: bool) {
        let value = self.tried.take().expect("BUG: an outcome was reported without a trial");
        self.runs += 1;
        let again = self.good == Some(value);
        match (passed, again) {
            (true, true) => self.confirmed += 1,
            (true, false) => (self.good, self.confirmed) = (Some(value), 0),
            (false, true) => (self.good, self.bad, self.confirmed) = (None, Some(value), 0),
            (false, false) => self.bad = Some(value),
        }
    }

    fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.min, self.max)
    }

    fn at_end(&self, value: f64, end: f64) -> bool {
        (value / end - 1.0).abs() < 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(mut search: Search, mut passes: impl FnMut(f64, usize) -> bool) -> (Option<f64>, usize) {
        for run in 0..1_000 {
            match search.choose_next() {
                Next::Try { value, .. } => search.report(passes(value, run)),
                Next::Found(value) => return (Some(value), run),
                Next::Nothing => return (None, run),
            }
        }
        panic!("the search does not end");
    }

    #[test]
    fn finds_the_limit_within_its_precision() {
        for limit in [1.0, 1.3, 7.0, 99.0, 640.0, 1_000.0] {
            let (found, runs) = find(Search::for_largest(1.0, 1_000.0, 1.1, 1), |value, _| value <= limit);
            let found = found.unwrap();
            assert!(found <= limit && found * 1.1 >= limit.min(1_000.0), "{found} for {limit}");
            assert!(runs <= 18, "{runs} runs for {limit}");
            let (found, _) = find(Search::for_smallest(1.0, 1_000.0, 1.1, 1), |value, _| value >= limit);
            assert!((limit..=limit * 1.1).contains(&found.unwrap()), "{found:?} for {limit}");
        }
    }

    #[test]
    fn says_so_when_nothing_passes() {
        assert_eq!(find(Search::for_largest(1.0, 10.0, 1.1, 1), |_, _| false), (None, 1));
        assert_eq!(find(Search::for_smallest(1.0, 10.0, 1.1, 1), |_, _| false), (None, 1));
    }

    #[test]
    fn an_unconfirmed_limit_is_lowered() {
        // values above 4 and up to 6 pass only the first time that they are tried
        let mut seen = Vec::new();
        let (found, _) = find(Search::for_largest(1.0, 100.0, 1.05, 2), |value, _| {
            let lucky = !seen.contains(&value.to_bits());
            seen.push(value.to_bits());
            value <= 4.0 || (value <= 6.0 && lucky)
        });
        assert!((3.0..=4.0).contains(&found.unwrap()), "{found:?}");
    }
}
