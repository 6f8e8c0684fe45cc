//! Tells a connection when its points have left the queue of new series.

use crate::partition::submission::StreamId;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Held by queued points of a connection. Clones belong to the same connection. It is small, because millions may be held.
#[derive(Debug, Clone)]
pub(super) struct Ticket(Arc<Sender>);

#[derive(Debug)]
struct Sender {
    /// `None` if the points do not come from one sender.
    address: Option<IpAddr>,
    any_lost: Arc<AtomicBool>,
    /// True if points of existing series were stored since [`Tickets::take_has_stored`].
    has_stored: AtomicBool,
    /// Closed when the last ticket is dropped.
    _open: mpsc::Sender<()>,
}

/// The connection's side of its tickets.
#[derive(Debug)]
pub(super) struct Tickets {
    ticket: Ticket,
    any_lost: Arc<AtomicBool>,
    ended: mpsc::Receiver<()>,
}

impl Ticket {
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns an id that no other open connection has.
    pub(super) fn stream(&self) -> StreamId {
        StreamId(Arc::as_ptr(&self.0).addr())
    }

    pub(super) fn sender(&self) -> Option<IpAddr> {
        self.0.address
    }

    /// Records that points of existing series were stored.
    pub(super) fn stored(&self) {
        self.0.has_stored.store(true, Ordering::Relaxed);
    }

    /// Records that a point was dropped.
    pub(super) fn lost(&self) {
        self.0.any_lost.store(true, Ordering::Relaxed);
    }
}

impl Tickets {
    pub(super) fn new() -> Self {
        Self::from(None)
    }

    pub(super) fn from(address: Option<IpAddr>) -> Self {
        let ((open, ended), any_lost) = (mpsc::channel(1), Arc::<AtomicBool>::default());
        let has_stored = AtomicBool::new(false);
        let sender = Sender { address, any_lost: Arc::clone(&any_lost), has_stored, _open: open };
        Self { ticket: Ticket(Arc::new(sender)), any_lost, ended }
    }

    pub(super) const fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// True if points of existing series that the connection sent were stored since the last call.
    pub(super) fn take_has_stored(&self) -> bool {
        self.ticket.0.has_stored.swap(false, Ordering::Relaxed)
    }

    /// True if points of the connection are queued. `others` is the number of its tickets that belong to no points.
    pub(super) fn any_queued(&self, others: usize) -> bool {
        Arc::strong_count(&self.ticket.0) > 1 + others
    }

    /// Waits until all queued points of the connection were stored or dropped. Returns true if all were stored.
    pub(super) async fn all_stored(self) -> bool {
        let Self { ticket, any_lost, mut ended } = self;
        drop(ticket);
        let _ = ended.recv().await; // nothing is ever sent: this returns when the last ticket is dropped
        !any_lost.load(Ordering::Relaxed)
    }
}
