use super::buffer::Key;
use crate::seal::tenant_tables::TenantTables;
use model::{StreamName, TenantId};
use std::collections::VecDeque;
use tables::TableError;

/// Names are listed this many at a time.
const PAGE: usize = 1000;

/// Lists a tenant's streams that have tables, little by little.
#[derive(Debug)]
pub(super) struct Listing {
    tenant: TenantId,
    page: VecDeque<StreamName>,
    /// The last name that was listed.
    after: Option<String>,
    is_complete: bool,
}

impl Listing {
    pub(super) const fn of(tenant: TenantId) -> Self {
        Self { tenant, page: VecDeque::new(), after: None, is_complete: false }
    }

    /// Only this stream, which may have no table.
    pub(super) fn only((tenant, stream): Key) -> Self {
        Self { tenant, page: VecDeque::from([stream]), after: None, is_complete: true }
    }

    pub(super) const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub(super) fn next(&mut self, tables: &TenantTables) -> Result<Option<Key>, TableError> {
        while self.page.is_empty() && !self.is_complete {
            let names = tables.streams(&self.tenant, self.after.as_deref(), PAGE)?;
            self.is_complete = names.len() < PAGE;
            self.page = names.iter().filter_map(|name| StreamName::parse(name).ok()).collect();
            self.after = names.into_iter().next_back();
        }
        Ok(self.page.pop_front().map(|stream| (self.tenant.clone(), stream)))
    }
}
