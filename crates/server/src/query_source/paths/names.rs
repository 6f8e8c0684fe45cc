//! Reads the names of untagged metrics from heads and tables.

use crate::query_source::{Canceled, Context, LeftOut, Turns, list, tables_select};
use crate::refusal::Refusal;
use head::UntaggedWalk;
use model::labels::METRIC_NAME;
use model::{TenantId, TimeRange};
use query::Interrupt;
use std::sync::Arc;

/// Calls `take` with the names in the heads that begin with `prefix`, perhaps repeatedly.
pub(in crate::query_source) fn in_heads<E: From<Canceled>>(
    context: &Context,
    tenant: &TenantId,
    prefix: &str,
    interrupt: &dyn Interrupt,
    take: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mut taken: Vec<String> = Vec::new();
    for partition in context.partitions.iter() {
        let turns = Turns::new(partition, tenant, interrupt);
        let (mut walk, mut is_last) = (UntaggedWalk::since(0), false);
        while !is_last {
            is_last = turns.turn(|head| {
                walk.names(head, |name| {
                    if name.starts_with(prefix) {
                        taken.push(name.into());
                    }
                })
            })?;
            // outside of the turn, so the head is not locked
            taken.drain(..).try_for_each(|name| take(&name))?;
        }
    }
    Ok(())
}

/// Calls `take` with the names in the tenant's table that begin with `prefix`, perhaps repeatedly. Returns warnings about
/// data that could not be read.
pub(in crate::query_source) fn in_tables<E: From<Canceled> + From<Refusal>>(
    context: &Context,
    tenant: &TenantId,
    prefix: &str,
    interrupt: &Arc<dyn Interrupt>,
    take: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<Vec<String>, E> {
    let mut select = tables_select(&[], TimeRange::ALL, false, interrupt);
    if !prefix.is_empty() {
        select.name_prefix = prefix.to_owned();
        let prefix = prefix.to_owned();
        let is_wanted = move |name: &str| name.starts_with(&prefix);
        select.matchers.push(tables::Matcher::new(METRIC_NAME, is_wanted));
    }
    let (left_out, mut outcome) = (LeftOut::default(), Ok(()));
    let listed = list(context, tenant, &left_out, &**interrupt, |table, cache| {
        tables::scan::labels::series(table, cache, &select, &mut |labels| {
            let mut all = labels.iter();
            if let (Some((METRIC_NAME, name)), None) = (all.next(), all.next()) {
                outcome = take(name);
            }
            outcome.is_ok() && !interrupt.is_set()
        })
    });
    outcome?;
    listed.map_err(|error| Refusal::new(error.kind, "tables", error.message))?;
    match interrupt.is_set() {
        true => Err(Canceled.into()),
        false => Ok(left_out.texts()),
    }
}
