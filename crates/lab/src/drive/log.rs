use crate::result::{Event, EventKind};
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) begin: Instant,
    events: Arc<Mutex<Vec<Event>>>,
}

const EVENTS_MAX: usize = 10_000;

impl Log {
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), events: Arc::default() }
    }

    pub(crate) fn add(&self, kind: EventKind, text: impl Into<String>) {
        let event = Event::new(self.begin.elapsed().as_secs_f64(), kind, text);
        let mut events = self.events.lock().expect("BUG: a task panicked while adding an event");
        if events.len() < EVENTS_MAX {
            events.push(event);
        }
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        let mut events =
            std::mem::take(&mut *self.events.lock().expect("BUG: a task panicked while adding an event"));
        events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        events
    }
}
