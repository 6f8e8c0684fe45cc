//! Open tables of streams.
//!
//! At any time, all users of a table have the same [`Table`], so that a reader sees every commit of the loader. A table that is in
//! use is not closed.

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
    places: HashMap<Key, Used>,
    uses: u64,
    memory: Reservation,
    /// Streams whose tables were fenced by this process.
    fenced: HashSet<Key>,
}

#[derive(Debug)]
struct Used {
    place: Arc<Place>,
    last: u64,
}

/// Where the table of a stream is while it is open. Locked while the table is being opened.
type Place = Mutex<Opened>;

#[derive(Debug, Default)]
struct Opened {
    table: Option<Arc<Table>>,
    is_fenced: bool,
}

impl Used {
    /// Memory of the table if nobody uses it. A place that is in use may be locked.
    fn unused_bytes(&self) -> Option<usize> {
        if Arc::strong_count(&self.place) > 1 {
            return None;
        }
        match &self.place.lock().table {
            Some(table) if Arc::strong_count(table) > 1 => None,
            Some(table) => Some(table.memory_bytes()),
            None => Some(0),
        }
    }

    fn bytes(&self) -> usize {
        let table = self.place.try_lock().and_then(|opened| opened.table.clone());
        table.map_or(0, |table| table.memory_bytes())
    }
}

impl StreamTables {
    pub(crate) fn within(bytes_max: usize, account: &Account) -> Self {
        let memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
        let open = Open { places: HashMap::new(), uses: 0, memory, fenced: HashSet::new() };
        Self { bytes_max, open: Mutex::new(open) }
    }

    /// Opens a stream's table for its writer, or creates it. The first time, a process that was started earlier can no longer
    /// change it afterwards.
    pub(crate) fn open_or_create(&self, of: &TenantTables, key: &Key) -> Result<Arc<Table>, TableError> {
        let table = self.with(key, true, |opened| {
            let table = match &opened.table {
                Some(table) => Arc::clone(table),
                None => Arc::new(Table::open_or_create(&tables::RECORDS, of.stream(key)?)?),
            };
            if !opened.is_fenced {
                self.fence(key, &table)?;
            }
            *opened = Opened { table: Some(Arc::clone(&table)), is_fenced: true };
            Ok(Some(table))
        });
        Ok(table?.expect("BUG: a created table is missing"))
    }

    /// Opens a stream's table, if there is one. If that is its only use, it is closed before others.
    pub(crate) fn existing(&self, of: &TenantTables, key: &Key) -> Result<Option<Arc<Table>>, TableError> {
        self.with(key, false, |opened| {
            if opened.table.is_none() {
                opened.table = Table::open(&tables::RECORDS, of.stream(key)?)?.map(Arc::new);
            }
            Ok(opened.table.clone())
        })
    }

    fn fence(&self, key: &Key, table: &Table) -> Result<(), TableError> {
        if self.open.lock().fenced.contains(key) {
            return Ok(());
        }
        table.fence()?;
        let mut open = self.open.lock();
        if open.fenced.len() >= FENCED_MAX {
            open.fenced.clear();
        }
        open.fenced.insert(key.clone());
        Ok(())
    }

    /// Opens a table in its place, unless it is open.
    fn with(
        &self,
        key: &Key,
        is_writer: bool,
        open: impl FnOnce(&mut Opened) -> Result<Option<Arc<Table>>, TableError>,
    ) -> Result<Option<Arc<Table>>, TableError> {
        let place = self.place(key, is_writer);
        let mut opened = place.lock();
        let was_open = opened.table.is_some();
        let table = open(&mut opened);
        let is_open = opened.table.is_some();
        drop(opened);
        drop(place);
        if !is_open {
            self.forget(key);
        } else if !was_open {
            self.close_some();
        }
        table
    }

    fn place(&self, key: &Key, is_writer: bool) -> Arc<Place> {
        let mut open = self.open.lock();
        open.uses += 1;
        let last = if is_writer { open.uses } else { 0 };
        let used = open.places.entry(key.clone()).or_insert_with(|| Used { place: Arc::default(), last });
        used.last = used.last.max(last);
        Arc::clone(&used.place)
    }

    /// Forgets a stream that has no table, unless somebody is opening it.
    fn forget(&self, key: &Key) {
        let mut open = self.open.lock();
        if open.places.get(key).is_some_and(|used| used.unused_bytes() == Some(0)) {
            open.places.remove(key);
        }
    }

    /// Closes tables until the others are within the limit. Called after a table has grown.
    pub(crate) fn close_some(&self) {
        let mut open = self.open.lock();
        let mut bytes: usize = open.places.values().map(Used::bytes).sum();
        let mut unused: usize = open.places.values().filter_map(Used::unused_bytes).sum();
        // closing all others for a large table that is in use would only make them be opened again
        while bytes > self.bytes_max && unused > self.bytes_max / 2 && open.places.len() > 1 {
            let closable = open.places.iter().filter(|(_, used)| used.unused_bytes().is_some());
            let Some((key, used)) = closable.min_by_key(|(_, used)| used.last) else { break };
            let key = key.clone();
            // others may have let go of it, or made it larger, since the sum was made
            let closed = used.bytes();
            bytes = bytes.saturating_sub(closed);
            unused = unused.saturating_sub(closed);
            open.places.remove(&key);
        }
        // a single table, and tables that are being read, may take more, which the loader must put up with
        let reserved = open.memory.resize(bytes.min(self.bytes_max) as u64);
        debug_assert!(reserved.is_ok(), "BUG: the loader left no room for open tables");
    }
}
