use crate::events::Events;
use crate::graphite_rules::GraphiteRules;
use crate::limits::head_memory::HeadMemory;
use crate::limits::pacer::{Pacer, Traffic};
use crate::seal::Lake;
use crate::settings::{Overrides, Settings};
use crate::wallclock::WallClock;
use std::sync::Arc;
use stdx::clock::Clock;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) rules: Arc<GraphiteRules>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wall: Arc<WallClock>,
    pub(crate) lake: Arc<Lake>,
    pub(crate) heads: Arc<HeadMemory>,
    pub(crate) events: Arc<Events>,
    pub(crate) traffic: Arc<Traffic>,
}

impl Context {
    pub(super) fn pacer(&self) -> Pacer {
        Pacer::new(Arc::clone(&self.clock), Arc::clone(&self.traffic), Arc::clone(&self.heads))
    }
}
