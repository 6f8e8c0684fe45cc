//! A source of series for Graphite's targets, with the events of a tenant.

use super::{EventQuery, Events, TagSet};
use model::TenantId;
use query::graphite::source::Select;
use query::graphite::{LabelSource, Selection, Source};
use query::{Interrupt, SourceError};

#[derive(Debug)]
pub(crate) struct EventSource<'a> {
    pub(crate) series: LabelSource<'a>,
    pub(crate) events: &'a Events,
    pub(crate) tenant: &'a TenantId,
    /// Events before this time have expired.
    pub(crate) expired_before_ms: i64,
    pub(crate) interrupt: &'a dyn Interrupt,
}

impl Source for EventSource<'_> {
    fn select(&self, select: &Select<'_>) -> Result<Box<dyn Selection + '_>, SourceError> {
        self.series.select(select)
    }

    fn events(
        &self,
        tags: &[&str],
        from_s: i64,
        until_s: i64,
        each: &mut dyn FnMut(i64),
    ) -> Result<(), SourceError> {
        let query = EventQuery {
            from_ms: from_s.saturating_mul(1000).max(self.expired_before_ms),
            until_ms: until_s.saturating_mul(1000).saturating_sub(1),
            tags,
            set: TagSet::All,
        };
        self.events.find(self.tenant, &query, self.interrupt, |_, record| {
            each(record.when_ms.div_euclid(1000));
            Ok(())
        })?;
        Ok(())
    }
}
