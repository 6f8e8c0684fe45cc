//! Simulates hundreds of seeds, and checks that two runs with the same seed are equal.

mod slow;

use sim::fault::Fault;

/// Each test run simulates the seeds from 0 up to this number. Without `FLOODMARK_LONG`, it also simulates a
/// quarter as many new seeds.
const SEEDS: u64 = 120;

/// With `FLOODMARK_LONG=1`, a test run simulates this many new seeds.
const SEEDS_LONG: u64 = 5000;

/// This many seeds are simulated for each named fault, from 0 on.
const SEEDS_OF_FAULT: u64 = 100;

fn run_all(from: u64, seeds: u64, fault: Option<Fault>) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    let reports = std::thread::scope(|scope| {
        let share = |thread| {
            let mine = (from..from + seeds).filter(move |seed| seed % threads == thread);
            scope.spawn(move || {
                mine.filter_map(|seed| sim::run(seed, fault).report(seed, fault)).collect::<Vec<_>>()
            })
        };
        let shares: Vec<_> = (0..threads).map(share).collect();
        shares.into_iter().flat_map(|share| share.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(reports.is_empty(), "{}", reports.join("\n\n"));
}

#[test]
fn no_sample_is_lost_or_doubled() {
    run_all(0, SEEDS, None);
}

#[test]
fn no_sample_is_lost_or_doubled_with_fresh_seeds() {
    let from = stdx::rng::Rng::fresh_seed() >> 16;
    println!("from seed {from}");
    let is_long = std::env::var_os("FLOODMARK_LONG").is_some();
    run_all(from, if is_long { SEEDS_LONG } else { SEEDS / 4 }, None);
}

#[test]
fn equal_seeds_are_equal_runs() {
    for seed in 0..8 {
        let (first, second) = (sim::run(seed, None), sim::run(seed, None));
        assert_eq!(first.trace.text(), second.trace.text(), "seed {seed}");
        assert_eq!(first.failure, second.failure, "seed {seed}");
    }
}

#[test]
fn repeated_requests_change_nothing() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Resends));
}

#[test]
fn late_samples_are_stored_within_the_window_and_refused_beyond_it() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::LateSamples));
}

#[test]
fn long_imports_beside_a_running_node_lose_and_double_nothing() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Imports));
}

#[test]
fn deletes_remove_the_selected_samples_and_no_others() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Deletes));
}

#[test]
fn every_delta_counts_once() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Deltas));
}

#[test]
fn samples_of_many_days_are_sealed_in_passes() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Backfills));
}

#[test]
fn only_samples_without_room_are_refused_and_none_is_lost() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Memory));
}

#[test]
fn a_tenant_that_cannot_be_sealed_does_not_keep_the_journal() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::BlockedTenants));
}

#[test]
fn new_directories_survive_a_power_loss_before_anything_in_them_is_acknowledged() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Directories));
}

#[test]
fn a_replay_that_lacks_memory_seals_as_it_goes() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Replay));
}

#[test]
fn nothing_expires_by_a_clock_that_is_wrong_and_all_by_one_that_is_right() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::Clocks));
}

#[test]
fn tables_in_local_files_survive_a_power_loss_with_all_folders_above_them() {
    run_all(0, SEEDS_OF_FAULT, Some(Fault::LocalStore));
}
