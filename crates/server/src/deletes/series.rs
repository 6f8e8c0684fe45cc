//! Drops exemplars from the heads, and hides series whose samples were all deleted, so that no list names them.
//!
//! ```text
//!   for each partition   select series ─▶ delete their exemplars ─▶ hide those of which nothing is left
//! ```
//!
//! A series is kept if it has samples in the head, because they were written during the delete; if it has exemplars, which
//! were not in the range of the delete; and if its newest sample was not in this range. Lists name other series only as long
//! as the table has samples of them.

use super::panicked;
use crate::node::Node;
use crate::partition::{Command, DeleteSeries};
use crate::query_source::{Canceled, Turns};
use crate::refusal::Refusal;
use model::{ErrorKind, TenantId};
use query::{Interrupt, Matcher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tables::Delete;
use tokio::sync::oneshot;

/// Selecting series takes at most this long. It keeps series of all tenants from being evicted, so the patterns of a delete
/// must not decide how long it takes.
const SELECT_TIME: Duration = Duration::from_secs(30);

/// The time is checked at every 64th question, because tests of values without a pattern take less time than reading the clock.
const QUESTIONS: u64 = 64;

/// Interval between yields to writers. A yield may take milliseconds.
const YIELD_TIME: Duration = Duration::from_micros(500);

/// Yields to writers. Ends when the node stops, and after [`SELECT_TIME`].
#[derive(Debug)]
struct Yielding {
    node: Node,
    began: Instant,
    /// True if the tests of values may take long.
    needs_engine: bool,
    questions: AtomicU64,
    yielded_us: AtomicU64,
    /// Stays true, because a selection that was told to end is incomplete.
    is_over: AtomicBool,
}

impl Yielding {
    fn new(node: &Node, delete: &Delete, began: Instant) -> Self {
        Self {
            node: node.clone(),
            began,
            needs_engine: delete.selectors.iter().flatten().any(Matcher::needs_engine),
            questions: AtomicU64::new(0),
            yielded_us: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    fn check_time(&self) {
        let passed = self.node.reads().clock.instant().saturating_duration_since(self.began);
        let passed_us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        let since_us = passed_us.saturating_sub(self.yielded_us.load(Ordering::Relaxed));
        if u128::from(since_us) >= YIELD_TIME.as_micros() {
            self.yielded_us.store(passed_us, Ordering::Relaxed);
            if !self.node.reads().traffic.is_quiet() {
                std::thread::yield_now();
            }
        }
        if passed >= SELECT_TIME || self.node.readiness().is_stopping() {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Why the selection has ended.
    fn refusal(&self) -> Refusal {
        if self.node.readiness().is_stopping() {
            return Refusal::stopping();
        }
        let took = format!(
            "the samples are deleted, but not all of their exemplars, and lists still name some of their series, because selecting \
             the series in memory took longer than {} s",
            SELECT_TIME.as_secs()
        );
        match self.needs_engine {
            true => {
                let message = format!(
                    "{took}; repeat the delete with values instead of patterns, or with fewer selectors"
                );
                Refusal::new(ErrorKind::TooLarge, "deletes", message)
            }
            false => Refusal::busy("deletes", format!("{took}; repeat the delete")),
        }
    }
}

impl Interrupt for Yielding {
    fn is_set(&self) -> bool {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        if !self.is_over() && (self.needs_engine || number.is_multiple_of(QUESTIONS)) {
            self.check_time();
        }
        self.is_over()
    }
}

type Answer = oneshot::Receiver<Result<(), Refusal>>;

/// After the series are selected, takes a fifth of the time of the partitions' owners at most: about eight seconds for a million series in a partition. It
/// does not wait for readers or writers, whatever they refer to.
pub(super) async fn forget(node: &Node, tenant: &TenantId, delete: &Arc<Delete>) -> Result<(), Refusal> {
    let (there, of, what) = (node.clone(), tenant.clone(), Arc::clone(delete));
    let asked = tokio::task::spawn_blocking(move || {
        let began = there.reads().clock.instant();
        ask(&there, &of, &what, began)
    });
    let answers = asked.await.unwrap_or_else(|_| Err(panicked()))?;
    for answer in answers {
        answer.await.map_err(|_| Refusal::stopping())??;
    }
    Ok(())
}

/// Asks each partition to delete what the delete selects there.
fn ask(node: &Node, tenant: &TenantId, delete: &Arc<Delete>, began: Instant) -> Result<Vec<Answer>, Refusal> {
    let yielding = Yielding::new(node, delete, began);
    let mut answers = Vec::new();
    for (partition, commands) in node.reads().partitions.iter().zip(&node.writes().commands) {
        let pin = partition.head.read().pin();
        // also without such series, because the journal may have exemplars that the head no longer has
        let series = Turns::new(partition, tenant, &yielding).select_any(&delete.selectors);
        let series = series.map_err(|Canceled| yielding.refusal())?;
        if yielding.is_over() {
            return Err(yielding.refusal()); // the last question may have been asked in the middle of a batch of values
        }
        let (reply, answer) = oneshot::channel();
        let request = DeleteSeries {
            tenant: tenant.clone(),
            delete: Arc::clone(delete),
            series: series.unwrap_or_default(),
            pin,
            reply,
        };
        commands.send(Command::DeleteSeries(request)).map_err(|_| Refusal::stopping())?;
        answers.push(answer);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::tests::write_of;
    use crate::write_path::tests::small_node;
    use model::TimeRange;

    #[tokio::test(flavor = "multi_thread")]
    async fn selecting_series_ends_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let node = small_node(dir.path());
        node.readiness().wait_for_replay().await;
        let tenant = TenantId::anonymous();
        write_of(&node, &tenant, 1000).await;
        let now = node.reads().clock.instant();
        let check = |selector: &str, kind| {
            let selectors = vec![query::parse_selector(selector).unwrap()];
            let delete = Arc::new(Delete { selectors, range: TimeRange::ALL });
            let ask = |began| ask(&node, &tenant, &delete, began).map(|answers| answers.len());
            let refusal = ask(now.checked_sub(SELECT_TIME).unwrap()).unwrap_err();
            assert_eq!((refusal.kind, refusal.reason), (kind, "deletes"));
            assert_eq!(ask(now).unwrap(), node.reads().partitions.len());
            // once it is over, it stays so, at whichever question that is
            for number in 0..2 * QUESTIONS {
                let yielding = Yielding::new(&node, &delete, now);
                assert!((0..number).all(|_| !yielding.is_set()));
                let yielding = Yielding { began: now.checked_sub(SELECT_TIME).unwrap(), ..yielding };
                let most = if yielding.needs_engine { 0 } else { QUESTIONS };
                let asked = (0..=most).take_while(|_| !yielding.is_set()).count() as u64;
                assert!(asked <= most, "question {number}");
                assert!((0..3 * QUESTIONS).all(|_| yielding.is_set()), "question {number}");
            }
        };
        check(r#"{__name__=~".*x+"}"#, ErrorKind::TooLarge);
        check(r#"{__name__="m"}"#, ErrorKind::Unavailable);
        tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
    }
}
