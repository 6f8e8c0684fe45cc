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

const NOT_ALL: &str =
    "the samples are deleted, but not all of their exemplars, and lists still name some of their series";

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
        let seconds = SELECT_TIME.as_secs();
        let took = format!("{NOT_ALL}, because selecting the series in memory took longer than {seconds} s");
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

/// Drops exemplars from the heads, and hides series. Once the series are selected, this takes at most a fifth of the time of the
/// partitions' owners: about eight seconds for a million series in a partition. It does not wait for readers or writers, whatever
/// they refer to.
pub(super) async fn forget(node: &Node, tenant: &TenantId, delete: &Arc<Delete>) -> Result<(), Refusal> {
    let (there, of, what) = (node.clone(), tenant.clone(), Arc::clone(delete));
    let asked = tokio::task::spawn_blocking(move || {
        let mut answers = Vec::new();
        let began = there.reads().clock.instant();
        let asked = ask(&there, &of, &what, began, &mut answers);
        (asked, answers)
    });
    let (asked, answers) = asked.await.unwrap_or_else(|_| (Err(panicked()), Vec::new()));
    // also after an error, because partitions that were asked have work to do, and the places for deletes limit how much
    let answered = all_of(answers).await;
    asked.and(answered)
}

/// Waits for all answers. If there are errors, returns the first.
async fn all_of(answers: Vec<Answer>) -> Result<(), Refusal> {
    let mut all = Ok(());
    for answer in answers {
        let answer = answer.await.unwrap_or_else(|_| Err(gone()));
        all = all.and(answer.map_err(not_all));
    }
    all
}

fn not_all(mut refusal: Refusal) -> Refusal {
    refusal.message = format!("{NOT_ALL}; repeat the delete: {}", refusal.message);
    refusal
}

/// A partition drops requests when it ends.
fn gone() -> Refusal {
    Refusal::busy("deletes", "a partition is closed, or the server is stopping")
}

/// Asks each partition to delete what the delete selects there. Adds the answers of those that were asked, also if it fails.
fn ask(
    node: &Node,
    tenant: &TenantId,
    delete: &Arc<Delete>,
    began: Instant,
    answers: &mut Vec<Answer>,
) -> Result<(), Refusal> {
    let yielding = Yielding::new(node, delete, began);
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
        commands.send(Command::DeleteSeries(request)).map_err(|_| not_all(gone()))?;
        answers.push(answer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::tests::write_of;
    use crate::write_path::tests::small_node;
    use model::TimeRange;

    #[tokio::test]
    async fn a_delete_that_a_partition_refuses_says_that_the_samples_are_deleted() {
        let (reply, done) = oneshot::channel();
        reply.send(Ok(())).unwrap();
        let (reply, failed) = oneshot::channel();
        reply.send(Err(Refusal::new(ErrorKind::Unavailable, "journal", "the disk is full"))).unwrap();
        let (late, still_works) = oneshot::channel();
        let mut all = std::pin::pin!(all_of(vec![done, failed, still_works]));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(all.as_mut().poll(&mut context).is_pending(), "it waits for the others");
        late.send(Ok(())).unwrap();
        let refusal = all.await.unwrap_err();
        assert_eq!((refusal.kind, refusal.reason), (ErrorKind::Unavailable, "journal"));
        for part in ["the samples are deleted", "repeat the delete: the disk is full"] {
            assert!(refusal.message.contains(part), "{refusal}");
        }
        // a closed partition drops the request
        let (_, dropped) = oneshot::channel();
        let refusal = all_of(vec![dropped]).await.unwrap_err();
        assert!(refusal.message.contains("the samples are deleted"), "{refusal}");
    }

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
            let ask = |began| {
                let mut answers = Vec::new();
                ask(&node, &tenant, &delete, began, &mut answers).map(|()| answers.len())
            };
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
