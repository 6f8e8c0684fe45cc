//! A stream as a table: its batches in the buffer, and the files of its table, each record once.
//!
//! ```text
//!   buffer ─ batches ─┐
//!                     ├─▶ StreamTable ─ scan ─▶ rows of batches that are not in the table ─▶ rows of files
//!   table ── files ───┘
//!            floodmark
//! ```
//!
//! The batches are taken first. Whatever has left the buffer before is in the table then, and the floodmark of the same version of
//! the table says which of the batches are in it as well. The files stay as long as the query has them. The batches do not, so
//! that a query takes no memory from writers: a scan reads them first, and fails if they are gone.

use super::{TenantCatalog, unreadable};
use crate::streams::Shared;
use crate::streams::buffer::Durable;
use crate::streams::loader::TIME_US_MAX;
use journal::records;
use model::{AttributeKind, Records, StreamName};
use sql::{Batches, Memory, RecordBatch, SchemaRef, Select, Source, SourceError, Times};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use tables::delta::{Files, Floodmark};
use tables::kind::attributes::{AttributeColumns, Seen};
use tables::read::records::schema;
use tables::write::records::{RecordBatch as StreamBatch, Unloaded, conform};
use tables::{DAY_MS, Date, RecordScan, RecordSelect, Stop, Table};

const DAY_US: i64 = DAY_MS * 1000;

/// At most so many batches, spread evenly, are decoded to see which attributes a stream has that was never loaded. An attribute of other
/// batches only is in `attributes`, as rare ones are.
const SEEN_BATCHES_MAX: usize = 16;

pub(super) struct StreamTable(Arc<Inner>);

struct Inner {
    streams: Arc<Shared>,
    stream: StreamName,
    batches: Vec<Batch>,
    table: Option<(Arc<Table>, Arc<Files>)>,
    /// What the table has of the batches, by the names that it has for their journal.
    floodmarks: Vec<Floodmark>,
    columns: AttributeColumns,
    schema: SchemaRef,
    /// For the lists of files and batches.
    _memory: Memory,
}

/// While it is open, the table counts for the query, and then again among those that are open.
impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.table.take());
        self.streams.tables.close_some();
    }
}

impl fmt::Debug for StreamTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { stream, batches, .. } = &*self.0;
        f.debug_struct("StreamTable")
            .field("stream", stream)
            .field("batches", &batches.len())
            .finish_non_exhaustive()
    }
}

/// A batch that was in the buffer.
struct Batch {
    durable: Held,
    /// Position in [`Inner::floodmarks`].
    source: usize,
}

enum Held {
    Kept(Arc<Durable>),
    Seen(Weak<Durable>),
}

impl Batch {
    fn get(&self) -> Result<Arc<Durable>, SourceError> {
        match &self.durable {
            Held::Kept(durable) => Ok(Arc::clone(durable)),
            Held::Seen(durable) => durable.upgrade().ok_or(SourceError::Expired),
        }
    }
}

impl StreamTable {
    /// `None` if there is no such stream.
    pub(super) fn open(
        catalog: &TenantCatalog,
        stream: StreamName,
        memory: Memory,
    ) -> Result<Option<Self>, SourceError> {
        let TenantCatalog { tenant, streams, lake, keeps_batches } = catalog;
        let key = (tenant.clone(), stream);
        let batches = streams.buffer.batches(&key);
        let table = streams.tables.existing(&lake.tables, &key).map_err(unreadable)?;
        if table.is_none() && batches.is_empty() {
            return Ok(None);
        }
        // the names that tables have for parts of the journal, each with the offset at which its part ends
        let mut sources = Vec::<(String, u64)>::new();
        let mut named = Vec::with_capacity(batches.len());
        for durable in batches {
            if sources.last().is_none_or(|(_, end)| durable.offset.0 >= *end) {
                // names are forgotten only for what the journal has deleted, and that is in the table
                let Some(source) = streams.source_of(durable.offset) else { continue };
                sources.push(source);
            }
            named.push((sources.len() - 1, durable));
        }
        let mut floodmarks = vec![Floodmark::default(); sources.len()];
        let mut columns = AttributeColumns::new();
        let table = match table {
            None => None,
            Some(table) => {
                let names: Vec<_> = sources.iter().map(|(name, _)| name.clone()).collect();
                let (files, progress) = table.files_and_progress(&names).map_err(unreadable)?;
                (floodmarks, columns) = (progress, table.attributes());
                Some((table, files))
            }
        };
        named.retain(|(source, durable)| durable.offset.0 >= floodmarks[*source].upto);
        let batches = named;
        if table.as_ref().is_none_or(|(_, files)| files.all().is_empty()) {
            // the first load chooses columns likewise
            add_columns(&mut columns, &batches, &memory)?;
        }
        let held = table.as_ref().map_or(0, |(table, _)| table.memory_bytes());
        let kept = batches.iter().filter(|_| *keeps_batches).map(|(_, durable)| durable.batch.payload.len());
        memory.resize(held + kept.sum::<usize>() + batches.len() * size_of::<Batch>())?;
        let held = |durable: Arc<Durable>| match keeps_batches {
            true => Held::Kept(durable),
            false => Held::Seen(Arc::downgrade(&durable)),
        };
        let batch = |(source, durable)| Batch { durable: held(durable), source };
        let (batches, schema) = (batches.into_iter().map(batch).collect(), schema(&columns));
        let (_, stream) = key;
        let streams = Arc::clone(streams);
        let inner = Inner { streams, stream, batches, table, floodmarks, columns, schema, _memory: memory };
        Ok(Some(Self(Arc::new(inner))))
    }
}

/// Adds the columns that the table would get for the attributes of some batches.
fn add_columns(
    columns: &mut AttributeColumns,
    batches: &[(usize, Arc<Durable>)],
    memory: &Memory,
) -> Result<(), SourceError> {
    let step = batches.len().div_ceil(SEEN_BATCHES_MAX).max(1);
    let (mut seen, mut records) = (HashMap::<(Box<str>, AttributeKind), u64>::new(), 0);
    for (_, durable) in batches.iter().rev().step_by(step) {
        let Some(decoded) = decode(durable, memory)? else { continue };
        records += decoded.len() as u64;
        for attribute in decoded.attributes {
            *seen.entry((attribute.path.clone(), attribute.kind())).or_default() +=
                attribute.rows.len() as u64;
        }
    }
    let seen: Vec<_> =
        seen.iter().map(|((path, kind), records)| Seen { path, kind: *kind, records: *records }).collect();
    columns.choose(&seen, records);
    Ok(())
}

/// Decodes a batch, after memory for it was reserved. `None` if it is damaged; the loader leaves it out, too, and says so.
fn decode(durable: &Durable, memory: &Memory) -> Result<Option<Records>, SourceError> {
    let Ok(bytes) = records::records_memory(&durable.batch.payload) else { return Ok(None) };
    memory.resize(bytes)?;
    let Ok((_, mut records)) = records::decode(&durable.batch.payload) else { return Ok(None) };
    // as the loader does
    records.times_us.iter_mut().for_each(|time_us| *time_us = (*time_us).clamp(0, TIME_US_MAX));
    Ok(Some(records))
}

impl Source for StreamTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    fn times(&self) -> Times {
        Times { time: Some("time"), date: Some("date") }
    }

    fn scan(&self, select: Select) -> Result<Box<dyn Batches>, SourceError> {
        let fields = self.0.schema.fields().iter().filter(|field| select.columns.contains(field.name()));
        let schema = Arc::new(sql::Schema::new(fields.cloned().collect::<Vec<_>>()));
        let table = Arc::clone(&self.0);
        Ok(Box::new(StreamRows { table, schema, select, next: 0, open: None, files: None }))
    }
}

/// Rows of a stream: first those of batches, then those of files.
struct StreamRows {
    table: Arc<Inner>,
    schema: SchemaRef,
    select: Select,
    /// The next batch.
    next: usize,
    open: Option<Open>,
    files: Option<RecordScan>,
}

/// A batch of which some rows are still to be returned.
struct Open {
    rows: Unloaded,
    memory_bytes: usize,
}

impl Batches for StreamRows {
    fn next(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        loop {
            if self.select.stop.is_set() {
                return Err(SourceError::Stopped);
            }
            if let Some(Open { rows, memory_bytes }) = &mut self.open {
                // what a row has beyond the window
                let more = rows.next_bytes().saturating_sub(self.select.window_bytes);
                self.select.memory.resize(*memory_bytes + more)?;
                if let Some(rows) = rows.next() {
                    return Ok(Some(rows.map_err(unreadable)?));
                }
                self.open = None;
            }
            let Some(batch) = self.table.batches.get(self.next) else { break };
            self.next += 1;
            self.open = self.open_batch(&*batch.get()?, batch.source)?;
        }
        self.select.memory.resize(0)?;
        self.next_of_files()
    }

    fn warnings(&self) -> Vec<String> {
        self.files.iter().flat_map(RecordScan::warnings).collect()
    }
}

impl StreamRows {
    /// Decodes a batch for its rows that are wanted and not in the table.
    fn open_batch(&self, durable: &Durable, source: usize) -> Result<Option<Open>, SourceError> {
        let memory = &self.select.memory;
        let Some(mut records) = decode(durable, memory)? else { return Ok(None) };
        let Inner { stream, floodmarks, columns, .. } = &*self.table;
        Unloaded::select(&mut records, columns, &self.schema);
        let batch = StreamBatch {
            stream: stream.as_str().into(),
            arrival_us: durable.batch.arrival_us,
            id: durable.batch.id.map(|id| id.to_bytes().as_slice().into()),
            records: Arc::new(records),
        };
        let memory_bytes = Unloaded::memory_bytes(&batch);
        memory.resize(memory_bytes)?;
        let [from, to] = self.select.range_us;
        let is_wanted = |time_us: i64| {
            let day = Date((time_us / DAY_US) as i32);
            (from..=to).contains(&time_us) && !floodmarks[source].covers(durable.offset.0, day)
        };
        let (schema, slice_bytes) = (Arc::clone(&self.schema), self.select.window_bytes);
        let rows = Unloaded::new(batch, columns, schema, slice_bytes, is_wanted);
        Ok(Some(Open { rows, memory_bytes }))
    }

    fn next_of_files(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let Some((table, files)) = &self.table.table else { return Ok(None) };
        let scan = match &mut self.files {
            Some(scan) => scan,
            files_scan => {
                let stop = self.select.stop.clone();
                let select = RecordSelect {
                    range_us: self.select.range_us,
                    stream: None,
                    columns: Some(self.select.columns.clone()),
                    stop: Stop::when(move || stop.is_set()),
                };
                let scan = RecordScan::open_files(table, files, select).map_err(unreadable)?;
                files_scan.insert(scan.with_window(self.select.window_bytes))
            }
        };
        let rows = scan.next_batch().map_err(unreadable)?;
        self.select.memory.resize(scan.held_bytes().saturating_sub(self.select.window_bytes))?;
        if rows.is_none() && scan.has_lost_files() {
            // perhaps another program has removed them: the next attempt reads a new version
            table.refresh().map_err(unreadable)?;
            return Err(SourceError::Expired);
        }
        Ok(rows.map(|rows| conform(&rows, &self.schema)))
    }
}
