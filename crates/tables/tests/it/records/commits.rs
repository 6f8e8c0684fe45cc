//! Commits of blocks, also in several passes.

use super::*;
use crate::faults::{Failing, Faults, Put};
use object_store::path::Path;
use object_store::{PutOptions, PutPayload};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tables::TableError;
use tables::delta::{Floodmark, Sweeper};

#[test]
fn a_block_is_committed_once_and_staged_files_without_a_commit_are_swept() {
    let folder = TempDir::new().unwrap();
    let batches = [batch("s", records(&[&[("level", AttributeValue::Text("info"))] as &[_]; 3]))];
    {
        // the process dies between staging and commit
        let table = open(&folder);
        block(&table, 4, &batches, RecordLimits::default());
    }
    let table = open(&folder);
    assert!(table.attributes().list().is_empty() && contents(&table, RecordSelect::ALL).is_empty());
    assert!(table.floodmarks(["j"]).unwrap().is_empty());
    let mut block = block(&table, 4, &batches, RecordLimits::default());
    block.after = None;
    assert!(matches!(
        table.commit(std::slice::from_ref(&block), NOW).unwrap()[..],
        [Outcome::Committed { .. }]
    ));
    assert_eq!(table.commit(std::slice::from_ref(&block), NOW).unwrap(), [Outcome::Already { floodmark: 4 }]);
    // another process has staged the same records
    let other = open(&folder);
    let mut again = self::block(&other, 4, &batches, RecordLimits::default());
    again.after = None;
    assert_eq!(other.commit(&[again], NOW).unwrap(), [Outcome::Already { floodmark: 4 }]);
    assert_eq!(contents(&other, RecordSelect::ALL), all_expected(&batches));
    let swept = Sweeper::default().sweep(&table, 0, 0).unwrap();
    assert_eq!((swept.files, swept.waiting), (2, 0));
    assert_eq!(contents(&table, RecordSelect::ALL), all_expected(&batches));
}

#[test]
fn a_block_of_many_days_is_staged_in_passes() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let mut rng = Rng::announced();
    let mut batches = Vec::new();
    for _ in 0..20 {
        let mut builder = RecordsBuilder::new();
        for _ in 0..50 {
            builder.put("n", AttributeValue::Int(rng.below(100) as i64)).unwrap();
            builder.end(DAY_US + rng.below(11) as i64 * 24 * HOUR_US + rng.below(1000) as i64);
        }
        batches.push(batch("s", builder.finish()));
    }
    let (mut after, mut passes, mut progress) = (None, 0, Floodmark::default());
    loop {
        let stem = FileStem::sealed(rng.next_u64().into());
        let limits = if rng.chance(0.5) { SMALL } else { RecordLimits::default() };
        let mut stager = RecordsStager::new(&table, stem, limits, after).with_files_max(3);
        batches.iter().for_each(|batch| stager.push(batch.clone()).unwrap());
        let staged = stager.finish().unwrap();
        let days: std::collections::BTreeSet<_> = staged.files.iter().map(|file| file.summary.date).collect();
        assert!(
            staged.files.len() <= 3 || days.len() == 1,
            "{} files of {} days",
            staged.files.len(),
            days.len()
        );
        let block = StagedBlock {
            source: "j".into(),
            after: None,
            upto: 9,
            through: staged.through,
            files: staged.files,
        };
        let outcome = table.commit_pass(&block, &progress, NOW).unwrap();
        assert!(matches!(outcome, Outcome::Committed { .. }), "{outcome:?}");
        passes += 1;
        match staged.through {
            Some(through) => (after, progress) = (Some(through), progress.after_pass(9, through)),
            None => break,
        }
        assert_eq!(table.progress("j").unwrap().as_ref(), Some(&progress));
    }
    assert!((4..=11).contains(&passes), "{passes}");
    assert_eq!(contents(&table, RecordSelect::ALL), all_expected(&batches));
    assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 9);
}

/// A store that fails for a while after a put of a log entry.
#[derive(Debug, Clone, Default)]
struct Outage {
    /// What becomes of an entry, and how many are put before it.
    next: Arc<Mutex<Option<(Put, usize)>>>,
    is_on: Arc<AtomicBool>,
}

impl Faults for Outage {
    fn put(&self, path: &Path, _: &PutPayload, _: &PutOptions) -> Put {
        let is_entry = path.as_ref().ends_with(".json") && path.as_ref().contains("_delta_log");
        let mut next = self.next.lock().unwrap();
        if let Some((_, before @ 1..)) = next.as_mut().filter(|_| is_entry) {
            *before -= 1;
            return Put::Done;
        }
        let Some((fate, _)) = next.take_if(|_| is_entry) else { return Put::Done };
        self.is_on.store(true, Ordering::SeqCst);
        fate
    }

    fn is_alive(&self) -> bool {
        !self.is_on.load(Ordering::SeqCst)
    }
}

/// Batches of a stream that are not known to be in the table, as a node has them.
#[derive(Debug, Default)]
struct Waiting(Vec<(u64, RecordBatch)>);

impl Waiting {
    /// Loads the batches, with at most two files in a pass.
    fn load(&mut self, table: &Arc<Table>) -> Result<(), String> {
        let error = |error: TableError| error.to_string();
        let after = table.floodmarks(["j"]).map_err(error)?.get("j").copied();
        let mut progress = table.progress("j").map_err(error)?.unwrap_or_default();
        self.0.retain(|(offset, _)| *offset >= progress.upto);
        let Some((first, _)) = self.0.first() else { return Ok(()) };
        let (end, mut through) =
            progress.interrupted(*first).map_or((u64::MAX, None), |(end, through)| (end, Some(through)));
        let block = self.0.iter().take_while(|(offset, _)| *offset < end);
        let upto = block.clone().last().map_or(0, |(offset, _)| offset + 1);
        loop {
            let stem = FileStem::sealed(Rng::fresh_seed().into());
            let mut stager =
                RecordsStager::new(table, stem, RecordLimits::default(), through).with_files_max(2);
            block.clone().try_for_each(|(_, batch)| stager.push(batch.clone())).map_err(error)?;
            let staged = stager.finish().map_err(error)?;
            through = staged.through;
            let pass = StagedBlock { source: "j".into(), after, upto, through, files: staged.files };
            match table.commit_pass(&pass, &progress, NOW).map_err(error)? {
                mismatch @ Outcome::FloodmarkMismatch { .. } => return Err(format!("{mismatch:?}")),
                Outcome::Committed { .. } | Outcome::Already { .. } => {}
            }
            match through {
                Some(through) => progress = progress.after_pass(upto, through),
                None => break,
            }
        }
        self.0.retain(|(offset, _)| *offset >= upto);
        Ok(())
    }
}

/// The answer to the first pass of a block is lost, and the log cannot be read either. Until the next attempt, another batch
/// arrives, so that it is a block of other batches.
#[test]
fn a_pass_whose_answer_was_lost_is_not_repeated_by_a_longer_block() {
    for fate in [Put::AnswerLost, Put::Refused] {
        for entry in 0..3 {
            for restarts in [false, true] {
                let folder = TempDir::new().unwrap();
                open(&folder);
                let outage = Outage::default();
                let faults = outage.clone();
                let location = location(&folder).with_store(|store| Arc::new(Failing { store, faults }));
                let opened = || Arc::new(Table::open_or_create(&RECORDS, location.clone()).unwrap());
                let mut table = opened();
                let days = |days: std::ops::Range<i64>| {
                    let mut builder = RecordsBuilder::new();
                    for day in days {
                        builder.put("day", AttributeValue::Int(day)).unwrap();
                        builder.end(DAY_US + day * 24 * HOUR_US);
                    }
                    batch("s", builder.finish())
                };
                let all = [(10, days(0..5)), (29, days(2..4)), (35, days(1..7))];
                let mut waiting = Waiting(all[..2].to_vec());
                *outage.next.lock().unwrap() = Some((fate, entry));
                waiting.load(&table).unwrap_err();
                outage.is_on.store(false, Ordering::SeqCst);
                if restarts {
                    table = opened();
                }
                waiting.0.push(all[2].clone());
                // an attempt fails if the table has something else than the block was staged for
                let attempts = (0..3).take_while(|_| waiting.load(&table).is_err()).count();
                assert!(attempts < 3, "{fate:?} {entry}");
                waiting.load(&table).unwrap();
                assert!(waiting.0.is_empty());
                let batches: Vec<_> = all.iter().map(|(_, batch)| batch.clone()).collect();
                let table = open(&folder);
                assert_eq!(
                    contents(&table, RecordSelect::ALL),
                    all_expected(&batches),
                    "{fate:?} {entry} {restarts}"
                );
                assert_eq!(table.floodmarks(["j"]).unwrap()["j"], 36);
            }
        }
    }
}
