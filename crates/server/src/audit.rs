//! The audit log.
//!
//! Each administrative request writes a line. Refused requests of one sender for one reason write at most one line a
//! second.
//!
//! Headers and parameters whose names suggest a secret are left out.

use crate::refusal::Refusal;
use axum::http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stdx::clock::Clock;

/// When one sender is refused repeatedly for the same reason, at most one line per interval is written.
const EVERY: Duration = Duration::from_secs(1);

/// Limit on the pairs of sender and reason that are counted separately. All further pairs share one counter and one
/// line.
const SENDERS_MAX: usize = 256;

const TEXT_BYTES_MAX: usize = 1 << 10;

#[derive(Debug)]
struct Refused {
    logged: Instant,
    count: u64,
}

#[derive(Debug)]
pub(crate) struct Audit {
    clock: Arc<dyn Clock>,
    /// Counters by sender and reason. All pairs beyond the limit are counted under `None`.
    refused: Mutex<HashMap<Option<(IpAddr, &'static str)>, Refused>>,
}

impl Audit {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, refused: Mutex::default() }
    }

    pub(crate) fn served(
        &self,
        caller: &str,
        client: SocketAddr,
        method: &Method,
        uri: &Uri,
        status: StatusCode,
    ) {
        let query = without_secrets(beginning(uri.query().unwrap_or_default()));
        let path = beginning(uri.path());
        tracing::info!(target: "audit", %caller, %client, %method, path, query, status = status.as_u16(), "operation");
    }

    pub(crate) fn refused(&self, sender: IpAddr, path: &str, refusal: &Refusal) {
        if let Some(count) = self.counted(sender, refusal.reason) {
            let (reason, path) = (refusal.reason, beginning(path));
            tracing::warn!(target: "audit", %sender, reason, path, count, why = %refusal, "requests refused");
        }
    }

    pub(crate) fn refused_handshake(&self, sender: IpAddr, why: &str) {
        if let Some(count) = self.counted(sender, "certificate") {
            tracing::warn!(target: "audit", %sender, reason = "certificate", count, why = beginning(why), "handshakes refused");
        }
    }

    /// Counts a refused request. If a line may be written now, returns the number of requests refused since the last
    /// line.
    fn counted(&self, sender: IpAddr, reason: &'static str) -> Option<u64> {
        let now = self.clock.instant();
        let is_due = |refused: &Refused| now.saturating_duration_since(refused.logged) >= EVERY;
        let mut all = self.refused.lock();
        let mut key = Some((sender, reason));
        if all.len() >= SENDERS_MAX && !all.contains_key(&key) {
            all.retain(|_, refused| !is_due(refused));
            key = key.filter(|_| all.len() < SENDERS_MAX);
        }
        let Some(refused) = all.get_mut(&key) else {
            all.insert(key, Refused { logged: now, count: 0 });
            return Some(1);
        };
        refused.count += 1;
        if !is_due(refused) {
            return None;
        }
        refused.logged = now;
        Some(std::mem::take(&mut refused.count))
    }
}

/// A parameter whose name contains one of these words has a secret value, which is not logged.
const SECRET_NAMES: [&str; 5] = ["auth", "key", "pass", "secret", "token"];

fn without_secrets(query: &str) -> String {
    let shown = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        let lower = name.to_ascii_lowercase();
        let is_secret = SECRET_NAMES.iter().any(|word| lower.contains(word));
        if is_secret { format!("{name}=…") } else { pair.to_owned() }
    };
    query.split('&').map(shown).collect::<Vec<_>>().join("&")
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use stdx::clock::ManualClock;

    #[test]
    fn a_flood_is_a_line_a_second_with_a_count() {
        let clock = Arc::new(ManualClock::at(0));
        let audit = Audit::new(Arc::<ManualClock>::clone(&clock));
        let sender = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        assert_eq!(audit.counted(sender(1), "unauthenticated"), Some(1));
        for _ in 0..10_000 {
            assert_eq!(audit.counted(sender(1), "unauthenticated"), None);
        }
        assert_eq!(audit.counted(sender(1), "rights"), Some(1));
        assert_eq!(audit.counted(sender(2), "unauthenticated"), Some(1));
        clock.advance(1_000);
        assert_eq!(audit.counted(sender(1), "unauthenticated"), Some(10_001));
        assert_eq!(audit.counted(sender(1), "unauthenticated"), None);
    }

    #[test]
    fn values_of_parameters_that_may_be_secret_are_left_out() {
        for (query, expected) in [
            ("", ""),
            ("mode=diff&tenant=a", "mode=diff&tenant=a"),
            ("Token=abc&mode=diff", "Token=…&mode=diff"),
            ("access_token=a=b&a", "access_token=…&a"),
            ("x=1&password", "x=1&password=…"),
        ] {
            assert_eq!(without_secrets(query), expected);
        }
    }

    #[test]
    fn a_flood_of_senders_is_bounded() {
        let clock = Arc::new(ManualClock::at(0));
        let audit = Audit::new(Arc::<ManualClock>::clone(&clock));
        let sender = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        let lines =
            (0..100_000).filter(|&number| audit.counted(sender(number), "unauthenticated").is_some()).count();
        assert_eq!(lines, SENDERS_MAX + 1);
        assert_eq!(audit.refused.lock().len(), SENDERS_MAX + 1);
        clock.advance(1_000);
        assert_eq!(audit.counted(sender(7_000_000), "unauthenticated"), Some(1), "there is room again");
    }
}
