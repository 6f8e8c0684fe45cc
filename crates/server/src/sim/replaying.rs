//! Lets owners replay on threads of their own, of which only one runs at a time. The driver chooses the next
//! thread, so that runs are deterministic.

use crate::partition::Owner;
use crate::refusal::Refusal;
use crate::world::Pause;
use parking_lot::{Condvar, Mutex};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use stdx::clock::Clock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Driver,
    Owner(usize),
}

/// Whoever has the baton may run. The driver and the owners pass it to each other.
#[derive(Debug)]
pub(super) struct Baton {
    turn: Mutex<Turn>,
    passed: Condvar,
    clock: Arc<dyn Clock>,
}

impl Baton {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { turn: Mutex::new(Turn::Driver), passed: Condvar::new(), clock }
    }

    fn pass(&self, to: Turn) {
        *self.turn.lock() = to;
        self.passed.notify_all();
    }

    fn wait_for(&self, turn: Turn) {
        let mut current = self.turn.lock();
        self.passed.wait_while(&mut current, |current| *current != turn);
    }
}

impl Pause for Baton {
    fn pause(&self, time: Duration) {
        self.clock.sleep(time);
        let turn = *self.turn.lock();
        if turn != Turn::Driver {
            self.pass(Turn::Driver);
            self.wait_for(turn);
        }
    }
}

pub(super) type Replayed = Result<bool, Refusal>;

#[derive(Debug)]
pub(super) struct Replaying {
    number: usize,
    baton: Arc<Baton>,
    done: Receiver<(Box<Owner>, Replayed)>,
    thread: JoinHandle<()>,
}

/// Passes the baton back to the driver when the owner's thread ends, even by a panic.
struct HandBack(Arc<Baton>);

impl Drop for HandBack {
    fn drop(&mut self) {
        self.0.pass(Turn::Driver);
    }
}

impl Replaying {
    /// Starts a thread that replays when it gets its first turn.
    pub(super) fn begin(number: usize, mut owner: Box<Owner>, baton: &Arc<Baton>) -> Self {
        let (send, done) = sync_channel(1);
        let own = Arc::clone(baton);
        let thread = thread::spawn(move || {
            own.wait_for(Turn::Owner(number));
            let _hand_back = HandBack(own);
            let send = send; // dropped before the baton is passed
            let replayed = owner.begin();
            let _ = send.send((owner, replayed)); // the receiver is gone if the driver panicked
        });
        Self { number, baton: Arc::clone(baton), done, thread }
    }

    /// Runs the replay until it has to wait, or has ended. In the second case, returns the owner and the
    /// result.
    pub(super) fn turn(self) -> Result<(Box<Owner>, Replayed), Self> {
        self.baton.pass(Turn::Owner(self.number));
        self.baton.wait_for(Turn::Driver);
        match self.done.try_recv() {
            Ok(done) => Ok(done),
            Err(TryRecvError::Empty) => Err(self),
            Err(TryRecvError::Disconnected) => {
                let panic = self.thread.join().expect_err("BUG: a replay ended without a result or a panic");
                resume_unwind(panic)
            }
        }
    }
}
