//! Divides the account `auth`, the memory whose use depends on callers and other services.
//!
//! | share | for |
//! | ---: | --- |
//! | 5/16 | verified tokens |
//! | 3/16 | cached answers of the forward service |
//! | 3/16 | requests to the forward service: 1/16 for their headers, 2/16 for those that it is answering; half of each for known networks, half for others |
//! | 2/16 | keys from URLs |
//! | 2/16 | networks: known ones and their rates, for tokens and for the forward service |
//! | 1/16 | tokens with a wrong signature |
//!
//! The file of credentials (8 MiB at most) and answers with keys (512 KiB at most) are not in the account.

use stdx::budget::Account;

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) verified_bytes: usize,
    pub(super) wrong_bytes: usize,
    pub(super) answers_bytes: usize,
    /// Limit on each of the four maps of networks: known networks and rates, for tokens and for the forward service.
    pub(super) networks_bytes: usize,
    pub(super) questions_bytes: usize,
    pub(super) asked_bytes: usize,
    pub(super) keys: Account,
}

impl Memory {
    pub(super) fn shared_out(bytes: u64) -> Self {
        let share = |sixteenths: u64| bytes / 16 * sixteenths;
        Self {
            verified_bytes: share(5) as usize,
            wrong_bytes: share(1) as usize,
            answers_bytes: share(3) as usize,
            networks_bytes: (share(2) / 4) as usize,
            questions_bytes: share(1) as usize,
            asked_bytes: share(2) as usize,
            keys: Account::new("auth keys", share(2)),
        }
    }
}

#[cfg(test)]
impl Memory {
    pub(super) fn ample() -> Self {
        Self::shared_out(32 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::budget::{Budget, TOTAL_BYTES_MIN};

    #[test]
    fn the_shares_fit_into_the_account() {
        for total in (0..=12).map(|n| (TOTAL_BYTES_MIN << n) + 12_345) {
            let bytes = Budget::of(total).unwrap().auth_bytes;
            let memory = Memory::shared_out(bytes);
            let caches =
                memory.verified_bytes + memory.wrong_bytes + memory.answers_bytes + 4 * memory.networks_bytes;
            let questions = memory.questions_bytes + memory.asked_bytes;
            let sum = (caches + questions) as u64 + memory.keys.limit_bytes();
            assert!((bytes - 32..=bytes).contains(&sum), "{sum} of {bytes} in {total}");
        }
    }
}
