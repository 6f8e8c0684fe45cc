//! A semaphore whose waiters take turns by key, such as their tenant.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A semaphore for requests that have a key, such as their tenant. Keys with waiting requests take turns, no
/// matter how many requests each of them has. The limits on connections and memory also limit the number of
/// waiters.
#[derive(Debug)]
pub(crate) struct FairPermits<K: Key>(Arc<Mutex<State<K>>>);

pub(crate) trait Key: Clone + Eq + Hash + Debug + Send + Sync {}

impl<K: Clone + Eq + Hash + Debug + Send + Sync> Key for K {}

#[derive(Debug)]
struct State<K: Key> {
    free: usize,
    waiting: HashMap<K, VecDeque<Waiter<K>>>,
    /// The keys that have waiters, in the order in which they get their turns. Each key occurs once.
    turns: VecDeque<K>,
}

#[derive(Debug)]
struct Waiter<K: Key> {
    /// Whether it comes before the other waiters of the key.
    is_first: bool,
    permit: oneshot::Sender<Permit<K>>,
}

/// Permission to continue. When it is dropped, the next waiter gets it.
#[derive(Debug)]
pub(crate) struct Permit<K: Key>(Option<FairPermits<K>>);

impl<K: Key> Clone for FairPermits<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Key> FairPermits<K> {
    pub(crate) fn new(free: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free, waiting: HashMap::new(), turns: VecDeque::new() })))
    }

    pub(crate) async fn acquire(&self, key: &K) -> Permit<K> {
        self.acquire_at(key, false).await
    }

    /// Like [`Self::acquire`], but comes before the key's waiters that called `acquire`. Other keys have their turns as before.
    pub(crate) async fn acquire_first(&self, key: &K) -> Permit<K> {
        self.acquire_at(key, true).await
    }

    async fn acquire_at(&self, key: &K, is_first: bool) -> Permit<K> {
        let waits = {
            let mut state = self.0.lock();
            if state.free > 0 {
                state.free -= 1;
                return Permit(Some(self.clone()));
            }
            state.wait(key, is_first)
        };
        waits.await.expect("BUG: a place in the queue was dropped without its turn")
    }

    fn release(&self) {
        loop {
            let next = {
                let mut state = self.0.lock();
                let Some(next) = state.next() else {
                    state.free += 1;
                    return;
                };
                next
            };
            match next.permit.send(Permit(Some(self.clone()))) {
                Ok(()) => return,
                Err(mut permit) => permit.0 = None, // the waiter was canceled: try the next one
            }
        }
    }
}

impl<K: Key> State<K> {
    fn wait(&mut self, key: &K, is_first: bool) -> oneshot::Receiver<Permit<K>> {
        let (permit, receiver) = oneshot::channel();
        let waiter = Waiter { is_first, permit };
        match self.waiting.get_mut(key) {
            Some(waiting) => {
                if waiting.len() == waiting.capacity() {
                    waiting.retain(|waiter| !waiter.permit.is_closed()); // canceled waiters would add up
                }
                if is_first {
                    let before = waiting.iter().take_while(|waiter| waiter.is_first).count();
                    waiting.insert(before, waiter);
                } else {
                    waiting.push_back(waiter);
                }
            }
            None => {
                self.turns.push_back(key.clone());
                self.waiting.insert(key.clone(), VecDeque::from([waiter]));
            }
        }
        receiver
    }

    fn next(&mut self) -> Option<Waiter<K>> {
        while let Some(key) = self.turns.pop_front() {
            let waiting = self.waiting.get_mut(&key).expect("BUG: a key with a turn has no waiter");
            // skip waiters that were canceled: they must not use up their key's turn
            let next = std::iter::from_fn(|| waiting.pop_front()).find(|waiter| !waiter.permit.is_closed());
            if waiting.is_empty() {
                self.waiting.remove(&key);
            } else {
                self.turns.push_back(key);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl<K: Key> Drop for Permit<K> {
    fn drop(&mut self) {
        if let Some(permits) = self.0.take() {
            permits.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn tenants_take_turns_and_those_that_are_gone_lose_theirs() {
        let permits = FairPermits::new(1);
        let (many, few) = (TenantId::parse("many").unwrap(), TenantId::parse("few").unwrap());
        let Poll::Ready(mut held) = poll(pin!(permits.acquire(&many))) else { panic!("a permit is free") };
        let mut of_many: Vec<_> = (0..3).map(|_| Box::pin(permits.acquire(&many))).collect();
        assert!(of_many.iter_mut().all(|waiter| poll(waiter.as_mut()).is_pending()));
        let mut of_few = Box::pin(permits.acquire(&few));
        assert!(poll(of_few.as_mut()).is_pending());
        drop(of_many.remove(0));
        drop(std::mem::replace(&mut held, Permit(None)));
        let Poll::Ready(first) = poll(of_many[0].as_mut()) else { panic!("the first remaining waiter") };
        assert!(poll(of_few.as_mut()).is_pending());
        drop(first);
        assert!(poll(of_many[1].as_mut()).is_pending());
        let Poll::Ready(second) = poll(of_few.as_mut()) else { panic!("the other tenant's turn") };
        drop(of_many.pop()); // cancels the last waiter
        drop(second);
        let state = permits.0.lock();
        assert_eq!((state.free, state.turns.len()), (1, 0));
        drop(state);
        assert!(poll(pin!(permits.acquire(&few))).is_ready());
    }

    #[test]
    fn a_waiter_may_come_before_the_others_of_its_key_only() {
        let permits = FairPermits::new(1);
        let [a, b] = ["a", "b"].map(|name| TenantId::parse(name).unwrap());
        let Poll::Ready(held) = poll(pin!(permits.acquire(&a))) else { panic!("a permit is free") };
        let mut later = Box::pin(permits.acquire(&a));
        assert!(poll(later.as_mut()).is_pending());
        let mut of_b = Box::pin(permits.acquire(&b));
        assert!(poll(of_b.as_mut()).is_pending());
        let [mut first, mut second] = [(); 2].map(|()| Box::pin(permits.acquire_first(&a)));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        drop(held);
        let Poll::Ready(held) = poll(first.as_mut()) else { panic!("the first of its tenant") };
        drop(held);
        let Poll::Ready(held) = poll(of_b.as_mut()) else { panic!("the other tenant's turn") };
        assert!(poll(second.as_mut()).is_pending() && poll(later.as_mut()).is_pending());
        drop(held);
        let Poll::Ready(held) = poll(second.as_mut()) else { panic!("before the one that came earlier") };
        assert!(poll(later.as_mut()).is_pending());
        drop(held);
        assert!(poll(later.as_mut()).is_ready());
    }

    #[test]
    fn a_permit_that_was_given_but_not_taken_comes_back() {
        let permits = FairPermits::new(1);
        let tenant = TenantId::anonymous();
        let Poll::Ready(held) = poll(pin!(permits.acquire(&tenant))) else { panic!("a permit is free") };
        let mut waiter = Box::pin(permits.acquire(&tenant));
        assert!(poll(waiter.as_mut()).is_pending());
        drop(held);
        drop(waiter);
        assert_eq!(permits.0.lock().free, 1);
    }
}
