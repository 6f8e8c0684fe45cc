//! Which events a reader asks for.

use super::EventsError;
use super::file::Record;
use query::Interrupt;

/// Limit on the tags of an event, and on those of a request.
pub(crate) const TAGS_MAX: usize = 1000;

/// Limit on the bytes of a request's tags. An event has no more.
pub(crate) const TAGS_BYTES_MAX: usize = super::BODY_BYTES_MAX;

/// An event has at most 65,536 tags: those before there was a limit have that many. Between two looks at the interrupt,
/// this many are compared, which takes less than a millisecond.
const TAGS_PER_LOOK: usize = 1000;

/// How many of the wanted tags an event must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagSet {
    All,
    Any,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EventQuery<'a> {
    pub(crate) from_ms: i64,
    /// Inclusive.
    pub(crate) until_ms: i64,
    /// If there are none, tags do not matter.
    pub(crate) tags: &'a [&'a str],
    pub(crate) set: TagSet,
}

/// Compares events with a query. The time for an event grows with its own tags, and hardly with the wanted ones.
#[derive(Debug)]
pub(super) struct Matcher<'q> {
    query: &'q EventQuery<'q>,
    /// The wanted tags in order, each with the number of the last event that has it.
    wanted: Vec<(&'q str, u64)>,
    /// Number of the event that is compared, from 1 on.
    event: u64,
}

impl<'q> Matcher<'q> {
    pub(super) fn new(query: &'q EventQuery<'q>) -> Result<Self, EventsError> {
        if query.tags.len() > TAGS_MAX {
            return Err(EventsError::TooManyTags);
        }
        let mut wanted: Vec<_> = query.tags.iter().map(|tag| (*tag, 0)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Ok(Self { query, wanted, event: 0 })
    }

    pub(super) fn matches(
        &mut self,
        record: &Record<'_>,
        interrupt: &dyn Interrupt,
    ) -> Result<bool, EventsError> {
        if !(self.query.from_ms..=self.query.until_ms).contains(&record.when_ms) {
            return Ok(false);
        }
        self.event += 1;
        let mut missing = match self.query.set {
            TagSet::All => self.wanted.len(),
            TagSet::Any => self.wanted.len().min(1),
        };
        for (i, own) in tags_of(&record.tags).enumerate() {
            if missing == 0 {
                break;
            }
            if i % TAGS_PER_LOOK == TAGS_PER_LOOK - 1 && interrupt.is_set() {
                return Err(EventsError::Canceled);
            }
            if let Ok(at) = self.wanted.binary_search_by_key(&own, |(tag, _)| tag)
                && self.wanted[at].1 != self.event
            {
                self.wanted[at].1 = self.event;
                missing -= 1;
            }
        }
        Ok(missing == 0)
    }
}

/// The tags of an event. As in graphite-web, commas separate tags, too, although answers show them.
fn tags_of(tags: &str) -> impl Iterator<Item = &str> {
    tags.split(|c: char| c.is_ascii_whitespace() || c == ',').filter(|tag| !tag.is_empty())
}
