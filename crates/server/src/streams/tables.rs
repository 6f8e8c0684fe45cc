//! Open tables of streams.

use super::buffer::Key;
use crate::seal::tenant_tables::TenantTables;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use stdx::budget::{Account, Reservation};
use tables::{Table, TableError};

/// This many streams are known to be fenced. Others are fenced again when their tables are opened again.
const FENCED_MAX: usize = 1000;

/// If open tables take more memory than this, those used longest ago are closed.
#[derive(Debug)]
pub(crate) struct StreamTables {
    pub(super) bytes_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    tables: HashMap<Key, Used>,
    uses: u64,
    memory: Reservation,
    /// Streams whose tables were fenced by this process.
    fenced: HashSet<Key>,
}

#[derive(Debug)]
struct Used {
    table: Arc<Table>,
    last: u64,
}

impl StreamTables {
    pub(crate) fn within(bytes_max: usize, account: &Account) -> Self {
        let memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
        let open = Open { tables: HashMap::new(), uses: 0, memory, fenced: HashSet::new() };
        Self { bytes_max, open: Mutex::new(open) }
    }

    /// Opens a stream's table, or creates it. The first time, a process that was started earlier can no longer change it
    /// afterwards.
    pub(crate) fn open_or_create(&self, of: &TenantTables, key: &Key) -> Result<Arc<Table>, TableError> {
        if let Some(table) = self.find(key) {
            return Ok(table);
        }
        let table = Arc::new(Table::open_or_create(&tables::RECORDS, of.stream(key)?)?);
        if !self.open.lock().fenced.contains(key) {
            table.fence()?;
        }
        self.keep(key, &table);
        Ok(table)
    }

    /// Opens a stream's table, if there is one.
    pub(super) fn existing(&self, of: &TenantTables, key: &Key) -> Result<Option<Arc<Table>>, TableError> {
        if let Some(table) = self.find(key) {
            return Ok(Some(table));
        }
        Ok(Table::open(&tables::RECORDS, of.stream(key)?)?.map(Arc::new))
    }

    fn find(&self, key: &Key) -> Option<Arc<Table>> {
        let mut open = self.open.lock();
        open.uses += 1;
        let uses = open.uses;
        let used = open.tables.get_mut(key)?;
        used.last = uses;
        Some(Arc::clone(&used.table))
    }

    fn keep(&self, key: &Key, table: &Arc<Table>) {
        let mut open = self.open.lock();
        open.uses += 1;
        let last = open.uses;
        open.tables.insert(key.clone(), Used { table: Arc::clone(table), last });
        if open.fenced.len() >= FENCED_MAX {
            open.fenced.clear();
        }
        open.fenced.insert(key.clone());
        drop(open);
        self.close_some();
    }

    /// Closes tables until the others are within the limit. Called after a table has grown.
    pub(crate) fn close_some(&self) {
        let mut open = self.open.lock();
        let mut bytes: usize = open.tables.values().map(|used| used.table.memory_bytes()).sum();
        while bytes > self.bytes_max
            && open.tables.len() > 1
            && let Some(oldest) = open.tables.iter().min_by_key(|(_, used)| used.last)
        {
            let key = oldest.0.clone();
            bytes -= open.tables.remove(&key).map_or(0, |used| used.table.memory_bytes());
        }
        // a single table may take more, which the loader must put up with
        let reserved = open.memory.resize(bytes.min(self.bytes_max) as u64);
        debug_assert!(reserved.is_ok(), "BUG: the loader left no room for open tables");
    }
}
