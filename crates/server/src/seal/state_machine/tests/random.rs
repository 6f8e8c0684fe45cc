//! Sends events in random orders, and checks the outcome with a model of heads, journals and tables.

use super::*;
use stdx::rng::{Rng, mix};

const PARTITIONS: usize = 2;
const TENANTS: [&str; 3] = ["a", "b", "c"];

/// Samples are spread over `DAYS` days, and one pass seals the samples of `PASS_DAYS` days.
const DAYS: u64 = 6;
const PASS_DAYS: usize = 2;

const COMMANDS_MAX: usize = 200;

/// Once nothing fails any more, everything must be sealed after this many turns.
const TURNS_MAX: usize = 500;

type Record = (u64, i32);

type Records = BTreeMap<u64, Record>;

#[derive(Default)]
struct Partition {
    end: u64,
    live: BTreeMap<TenantId, Records>,
    frozen: BTreeMap<TenantId, Records>,
    outstanding: Option<Frozen>,
}

#[derive(Default)]
struct TableModel {
    records: BTreeSet<u64>,
    floodmarks: [u64; PARTITIONS],
    /// Set for a partition while its records are sealed in several passes: the end of these records, and the last day
    /// whose samples are in the table.
    passes: [Option<(u64, Date)>; PARTITIONS],
}

struct World {
    seed: u64,
    rng: Rng,
    trace: Vec<String>,
    /// Probability that a command fails. It may fail before or after it has taken effect.
    faults: f64,
    view: View,
    sealing: Sealing,
    partitions: Vec<Partition>,
    marks: Vec<Mark>,
    tables: BTreeMap<TenantId, TableModel>,
    broken: Option<TenantId>,
    file: StagedFile,
    /// For each staged file, by its path, the records that it has.
    files: BTreeMap<String, Vec<u64>>,
    pins: Pins,
    records: u64,
    flushes: u64,
    /// Flushes without an answer. For each, the number of records that had been accepted before it.
    waiting: BTreeMap<FlushId, u64>,
}

impl World {
    fn new(seed: u64, file: StagedFile) -> Self {
        let view = view(PARTITIONS);
        let mark = |n| Mark { source: format!("j/{n}"), upto: 0, attempt: None, tenants: BTreeMap::new() };
        Self {
            seed,
            rng: Rng::new(mix(seed)),
            trace: Vec::new(),
            faults: 0.15,
            sealing: Sealing::new(thresholds(PARTITIONS), view.now),
            view,
            partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
            marks: (0..PARTITIONS).map(mark).collect(),
            tables: TENANTS.iter().map(|name| (tenant(name), TableModel::default())).collect(),
            broken: None,
            file,
            files: BTreeMap::new(),
            pins: Pins::default(),
            records: 0,
            flushes: 0,
            waiting: BTreeMap::new(),
        }
    }

    fn run(mut self) {
        for _ in 0..100 {
            self.happen();
            self.turn();
        }
        (self.faults, self.broken) = (0.0, None);
        let mut turns = 0;
        self.flush();
        while !self.waiting.is_empty() || self.sealing.is_unfinished() {
            turns += 1;
            assert!(turns < TURNS_MAX, "flushes {:?} wait forever", self.waiting);
            self.advance(1000);
            self.turn();
        }
        for partition in &self.partitions {
            assert!(partition.frozen.values().chain(partition.live.values()).all(Records::is_empty));
        }
        let sealed: usize = self.tables.values().map(|table| table.records.len()).sum();
        assert_eq!(sealed as u64, self.records);
    }

    fn fails(&mut self) -> bool {
        self.rng.chance(self.faults)
    }

    fn advance(&mut self, ms: u64) {
        self.view.now += Duration::from_millis(ms);
        self.view.now_ms += ms as i64;
    }

    fn happen(&mut self) {
        match self.rng.below(8) {
            0..3 => {
                let number = self.rng.below(PARTITIONS as u64) as usize;
                let name = tenant(TENANTS[self.rng.below(TENANTS.len() as u64) as usize]);
                let (day, partition) = (self.rng.below(DAYS) as i32, &mut self.partitions[number]);
                partition.live.entry(name).or_default().insert(self.records, (partition.end, day));
                partition.end += 1;
                self.records += 1;
            }
            3 => self.flush(),
            4 => {
                let ms = self.rng.below(2000);
                self.advance(ms);
            }
            5 => {
                let name = TENANTS[self.rng.below(TENANTS.len() as u64) as usize];
                self.broken = self.rng.chance(0.3).then(|| tenant(name));
            }
            6 => self.view.journal_bytes.iter_mut().for_each(|bytes| *bytes += 50),
            _ => {}
        }
    }

    fn flush(&mut self) {
        let id = FlushId(self.flushes);
        self.flushes += 1;
        self.waiting.insert(id, self.records);
        self.sealing.handle(&self.view, Event::Flush(id));
    }

    fn turn(&mut self) {
        let has_live = self.partitions.iter().any(|p| p.live.values().any(|records| !records.is_empty()));
        self.view.unsealed_since_ms = has_live.then_some(self.view.now_ms - 60_000);
        self.sealing.handle(&self.view, Event::Tick);
        let mut commands = 0;
        while let Some(command) = self.sealing.poll() {
            commands += 1;
            assert!(commands < COMMANDS_MAX, "a turn does not end");
            if self.rng.chance(0.3) && self.faults > 0.0 {
                self.happen();
            }
            self.trace.push(show(&command));
            let event = match command {
                Command::Report(_) => continue,
                Command::Answer { flush, flushed } => {
                    self.check_answer(flush, &flushed);
                    continue;
                }
                _ if self.fails() && self.rng.chance(0.5) => Event::Failed(SealError::Closed(0)),
                command => self.execute(command),
            };
            let loses_answer = !matches!(event, Event::Committed(_) | Event::Relocated(_)) && self.fails();
            let event = if loses_answer { Event::Failed(SealError::Closed(0)) } else { event };
            self.trace.push(format!("  {event:?}"));
            self.check_marks();
            self.sealing.handle(&self.view, event);
        }
    }

    fn execute(&mut self, command: Command) -> Event {
        match command {
            Command::Freeze { partition, except, .. } => self.freeze(partition, &except),
            Command::Stage { partition, tenants } => self.stage(partition, tenants),
            Command::Check { tenants, is_own } => self.check(tenants, is_own),
            Command::WriteMarks(update) => {
                self.marks.iter_mut().enumerate().for_each(|(number, mark)| update.apply(number, mark));
                Event::Done
            }
            Command::Commit { blocks, is_own } => self.commit(blocks, is_own),
            Command::AwaitReaders { since, .. } => {
                let since = since.unwrap_or_else(|| self.pins.end_generation());
                Event::Readers { since, are_gone: !self.fails() }
            }
            Command::Release { partition, what } => self.release(partition, &what),
            Command::Relocate { partition, movable } => self.relocate(partition, &movable),
            Command::Truncate { partition } => {
                self.view.journal_bytes[partition] = 10;
                Event::Done
            }
            Command::ExpireReaders(_) => Event::Done,
            command => panic!("{command:?} is not expected"),
        }
    }

    fn freeze(&mut self, number: usize, except: &BTreeSet<TenantId>) -> Event {
        let partition = &mut self.partitions[number];
        if partition.outstanding.is_none() {
            for (name, records) in partition.live.iter_mut().filter(|(name, _)| !except.contains(name)) {
                let frozen = partition.frozen.entry(name.clone()).or_default();
                assert!(frozen.is_empty(), "{name} is frozen twice");
                frozen.append(records);
            }
            partition.outstanding = Some(Frozen { upto: Offset(partition.end), samples: 0 });
        }
        let frozen = partition.outstanding.expect("it was set");
        let tenants = partition.frozen.iter().filter(|(_, records)| !records.is_empty());
        Event::Frozen { frozen, tenants: tenants.map(|(name, _)| name.clone()).collect() }
    }

    fn stage(&mut self, number: usize, tenants: BTreeMap<TenantId, Option<Date>>) -> Event {
        let mut results = BTreeMap::new();
        for (name, after) in tenants {
            if self.rng.chance(self.faults / 4.0) {
                return Event::Staged(PerTenant { results, cut_short: Some(SealError::Closed(0)) });
            }
            let result = if self.broken.as_ref() == Some(&name) || self.fails() {
                Err(broken())
            } else {
                Ok(self.stage_pass(number, &name, after))
            };
            results.insert(name, result);
        }
        Event::Staged(PerTenant { results, cut_short: None })
    }

    fn stage_pass(&mut self, number: usize, name: &TenantId, after: Option<Date>) -> Staged {
        let frozen = &self.partitions[number].frozen[name];
        let left = frozen.iter().filter(|(_, (_, day))| after.is_none_or(|after| *day > after.0));
        let days: BTreeSet<_> = left.clone().map(|(_, (_, day))| *day).collect();
        let through = (days.len() > PASS_DAYS).then(|| Date(*days.iter().nth(PASS_DAYS - 1).expect("more")));
        let taken = left.filter(|(_, (_, day))| through.is_none_or(|through| *day <= through.0));
        let records: Vec<_> = taken.map(|(record, _)| *record).collect();
        if records.is_empty() {
            return Staged::default();
        }
        let path = self.files.len().to_string();
        self.files.insert(path.clone(), records);
        Staged { files: vec![StagedFile { path, ..self.file.clone() }], through }
    }

    fn check(&mut self, tenants: BTreeMap<TenantId, Vec<usize>>, is_own: bool) -> Event {
        let mut results = BTreeMap::new();
        for (name, partitions) in tenants {
            if self.broken.as_ref() == Some(&name) || self.fails() {
                results.insert(name, Err(broken()));
                continue;
            }
            let found = |partition: usize| {
                let (own, mark) = (self.marks[partition].of(&name), &self.marks[partition]);
                let upto = self.tables[&name].floodmarks[partition];
                let is_known = upto <= own.upto || own.attempt == Some(upto);
                let source = if is_own { own.source } else { mark.source.clone() };
                Found { partition, source, upto: Some(upto), attempt: own.attempt, is_known }
            };
            let found = partitions.into_iter().map(found).collect::<Vec<_>>();
            assert!(found.iter().all(|found| found.is_known), "{name}: {found:?} is not accounted for");
            results.insert(name, Ok(found));
        }
        Event::Checked(PerTenant { results, cut_short: None })
    }

    fn commit(&mut self, blocks: BTreeMap<TenantId, Vec<Block>>, _is_own: bool) -> Event {
        let mut results = BTreeMap::new();
        for (name, blocks) in blocks {
            let is_broken = self.broken.as_ref() == Some(&name);
            if is_broken || self.fails() {
                results.insert(name, Err(broken()));
                continue;
            }
            let attempts = blocks.iter().map(|block| self.marks[block.partition].of(&name).attempt);
            let is_noted = attempts.zip(&blocks).all(|(attempt, block)| attempt == Some(block.upto));
            assert!(is_noted, "{name} is committed before the attempt is noted");
            let samples = blocks.into_iter().map(|block| self.commit_block(&name, block)).sum();
            let flushed = Flushed { tables: 1, commits: 1, samples, ..Flushed::default() };
            // the commit succeeded, but its answer may be lost
            let result = if self.fails() { Err(broken()) } else { Ok(flushed) };
            results.insert(name, result);
        }
        let cut_short = self.fails().then_some(SealError::Closed(0));
        Event::Committed(PerTenant { results, cut_short })
    }

    fn commit_block(&mut self, name: &TenantId, Block { partition, upto, staged }: Block) -> u64 {
        let table = self.tables.get_mut(name).expect("it is there");
        let has_pass = |(end, day): (u64, Date)| end == upto && staged.through.is_some_and(|t| t <= day);
        assert!(table.floodmarks[partition] <= upto, "{name} has more than the block");
        if table.floodmarks[partition] == upto || table.passes[partition].is_some_and(has_pass) {
            return 0;
        }
        let mut samples = 0;
        for record in staged.files.iter().flat_map(|file| &self.files[&file.path]) {
            assert!(table.records.insert(*record), "record {record} of {name} is committed twice");
            samples += 1;
        }
        match staged.through {
            Some(through) => table.passes[partition] = Some((upto, through)),
            None => (table.floodmarks[partition], table.passes[partition]) = (upto, None),
        }
        samples
    }

    fn release(&mut self, number: usize, what: &SealedSamples) -> Event {
        let partition = &mut self.partitions[number];
        let (mark, tables) = (&self.marks[number], &self.tables);
        let is_released = |name: &TenantId| match what {
            SealedSamples::All { except, .. } => !except.contains(name),
            SealedSamples::Of(only) => only == name,
        };
        if let SealedSamples::All { upto, .. } = what {
            if partition.outstanding.map(|frozen| frozen.upto) != Some(*upto) {
                return Event::Done;
            }
            partition.outstanding = None;
        }
        for (name, records) in partition.frozen.iter_mut().filter(|(name, _)| is_released(name)) {
            let is_sealed = |(record, (offset, _)): (&u64, &Record)| {
                tables[name].records.contains(record) && *offset < mark.of(name).upto
            };
            assert!(records.iter().all(is_sealed), "{name} is released, but not sealed: {records:?}");
            records.clear();
        }
        Event::Done
    }

    fn relocate(&mut self, number: usize, movable: &BTreeSet<TenantId>) -> Event {
        let mark = &mut self.marks[number];
        let upto = mark.upto;
        let mut tenants = BTreeMap::new();
        for (name, own) in mark.tenants.iter_mut().filter(|(_, own)| own.upto < upto) {
            let name = tenant(name);
            let table = &self.tables[&name];
            let is_doubtful =
                own.is_open() && (table.floodmarks[number] > own.upto || table.passes[number].is_some());
            if !movable.contains(&name) || is_doubtful {
                return Event::Relocated(None);
            }
            (own.attempt, own.passes) = (None, None);
            tenants.insert(name, false);
        }
        if tenants.is_empty() {
            return Event::Relocated(None);
        }
        let is_complete = !self.rng.chance(self.faults);
        let partition = &mut self.partitions[number];
        let from = partition.end;
        for (name, is_frozen) in &mut tenants {
            let mut records = partition.frozen.remove(name).unwrap_or_default();
            records.append(partition.live.entry(name.clone()).or_default());
            if is_complete {
                for (offset, _) in records.values_mut() {
                    (*offset, partition.end) = (partition.end, partition.end + 1);
                }
            }
            *is_frozen = !records.is_empty();
            partition.frozen.insert(name.clone(), records);
        }
        let (upto, from) = (Offset(partition.end), is_complete.then_some(Offset(from)));
        Event::Relocated(Some(Moved { upto, from, tenants }))
    }

    /// Checks that a tenant's table has every record that it must have according to the marks.
    fn check_marks(&self) {
        for (partition, mark) in self.partitions.iter().zip(&self.marks) {
            for (name, records) in partition.frozen.iter().chain(&partition.live) {
                let TenantMark { upto, .. } = mark.of(name);
                let lost = records.iter().find(|(record, (offset, _))| {
                    *offset < upto && !self.tables[name].records.contains(record)
                });
                assert_eq!(lost, None, "{name} is noted up to {upto}, but its table lacks a record");
            }
        }
    }

    /// Checks that all records accepted before a flush are in tables, unless the answer says that tenants are
    /// missing.
    fn check_answer(&mut self, flush: FlushId, flushed: &Flushed) {
        let before = self.waiting.remove(&flush).expect("a flush is answered once");
        let sealed: BTreeSet<_> = self.tables.values().flat_map(|table| &table.records).collect();
        let missing = (0..before).find(|record| !sealed.contains(record));
        assert!(
            missing.is_none() || flushed.blocked > 0,
            "{missing:?} is not in a table after flush {flush:?}"
        );
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}:\n{}", self.seed, self.trace.join("\n"));
        }
    }
}

#[test]
fn no_order_of_events_loses_or_doubles_records_or_blocks_flushes() {
    let (file, first) = (staged_file(), Rng::fresh_seed());
    for seed in (0..200).map(|n| first.wrapping_add(n)) {
        World::new(seed, file.clone()).run();
    }
}
