use super::*;
use crate::kind::Kind;
use crate::kind::metrics::{METRICS, ROLLUP};
use crate::live_file::LiveFile;
use model::TimeRange;

mod days;

fn file(date: i32, sequence: i64, bytes: u64) -> LiveFile {
    let date = Date(date);
    let range = TimeRange::new(date.start_ms(), date.end_ms());
    LiveFile {
        path: format!("{sequence}"),
        date,
        bytes,
        rows: 1,
        names: None,
        range,
        sequence,
        applied: 0,
        is_early: false,
    }
}

fn named(date: i32, sequence: i64, bytes: u64, names: (&str, &str)) -> LiveFile {
    let path = format!("{sequence}{}", names.0);
    LiveFile { path, names: Some((names.0.into(), names.1.into())), ..file(date, sequence, bytes) }
}

const LIMITS: CompactLimits = CompactLimits {
    file_bytes: 1 << 30,
    job_bytes: 1 << 32,
    fan_in: 4,
    files_min: 3,
    window_bytes: 1 << 20,
    row_group_bytes: 4 << 20,
};

fn planned(files: &[LiveFile]) -> Vec<Job> {
    planned_of(&METRICS, files)
}

fn planned_of(kind: &Kind, files: &[LiveFile]) -> Vec<Job> {
    let mut files = files.to_vec();
    files.sort_by_key(|f| (f.date, f.rank()));
    plan(kind, &files, Date(7), &LIMITS, |f| f.path == "13")
}

fn check(files: &[LiveFile], expected: &[(i32, &[&str])]) {
    check_of(&METRICS, files, expected);
}

fn check_of(kind: &Kind, files: &[LiveFile], expected: &[(i32, &[&str])]) {
    let jobs = planned_of(kind, files);
    let found: Vec<(i32, Vec<&str>)> =
        jobs.iter().map(|j| (j.date.0, j.files.iter().map(|f| f.path.as_str()).collect())).collect();
    let expected: Vec<(i32, Vec<&str>)> = expected.iter().map(|(d, f)| (*d, f.to_vec())).collect();
    assert_eq!(found, expected);
}

#[test]
fn days_that_go_on_are_merged_as_files_pile_up() {
    check(&[], &[]);
    check(&[file(7, 1, 9), file(7, 2, 9)], &[]);
    check(&[file(7, 1, 9), file(7, 2, 9), file(7, 3, 9)], &[(7, &["1", "2", "3"])]);
    check(&[file(5, 1, 9), file(6, 2, 9), file(7, 3, 9)], &[]);
    let many: Vec<_> = (0..9).map(|n| file(7, n, 10)).collect();
    check(&many, &[(7, &["0", "1", "2", "3"]), (7, &["4", "5", "6", "7"])]);
    // small files after a large one do not cause the large one to be rewritten
    check(&[file(7, 1, 1 << 24), file(7, 2, 9), file(7, 3, 9)], &[]);
    // a file between two of similar size is merged with them
    check(
        &[file(7, 1, 1 << 24), file(7, 2, 9), file(7, 3, 1 << 24), file(7, 4, 1 << 24)],
        &[(7, &["1", "2", "3", "4"])],
    );
    check(&[file(7, 1, 9), file(7, 2, 9), file(7, 3, 1 << 24), file(7, 4, 9), file(7, 5, 9)], &[]);
}

#[test]
fn days_that_are_over_are_merged_down() {
    check(&[file(5, 1, 9), file(5, 2, 9)], &[(5, &["1", "2"])]);
    // a large file is rewritten only for enough late data
    check(&[file(5, 1, 1 << 30), file(5, 2, 9)], &[]);
    check(&[file(5, 1, 1 << 30), file(5, 2, 1 << 29)], &[(5, &["1", "2"])]);
    check(&[file(5, 1, 1 << 30), file(5, 2, 9), file(5, 3, 9)], &[(5, &["1", "2", "3"])]);
    check(&[file(5, 1, 1 << 30), file(5, 2, 1 << 30)], &[(5, &["1", "2"])]);
}

#[test]
fn no_job_is_larger_than_it_may_be() {
    check(&[file(5, 1, 1 << 31), file(5, 2, 1 << 31), file(5, 3, 9)], &[(5, &["1", "2"])]);
    check(&[file(5, 1, 1 << 32), file(5, 2, 1 << 31)], &[]);
    // the first job writes large files, so the next plan cuts its output at the metric names of these files
    let many: Vec<_> = (0..8).map(|n| file(5, n, 1 << 30)).collect();
    check(&many, &[(5, &["0", "1", "2", "3"])]);
}

#[test]
fn files_of_one_sequence_stay_together() {
    let shards = [file(5, 1, 9), file(5, 1, 9), file(5, 1, 9), file(5, 2, 9), file(5, 2, 9)];
    check(&shards, &[]);
    check(&shards[1..], &[(5, &["1", "1", "2", "2"])]);
}

#[test]
fn nothing_is_merged_across_a_file_that_is_left_alone() {
    let days = [file(5, 11, 9), file(5, 12, 9), file(5, 13, 9), file(5, 14, 9)];
    check(&days, &[(5, &["11", "12"])]);
}

#[test]
fn early_files_are_merged_with_the_first_others_or_among_themselves() {
    let early = |sequence, bytes| LiveFile { is_early: true, ..file(7, sequence, bytes) };
    // by rank, early files come before the others
    let small = [early(20, 9), file(7, 11, 9), file(7, 12, 9), file(7, 21, 9)];
    check(&small, &[(7, &["20", "11", "12", "21"])]);
    // a file too large for the job separates early files from later ones
    let past = [early(20, 9), file(7, 11, 1 << 24), file(7, 21, 9), file(7, 22, 9)];
    check(&past, &[]);
    let past = [&past[..], &[file(7, 23, 9)]].concat();
    check(&past, &[(7, &["21", "22", "23"])]);
    let many = [early(20, 9), early(21, 9), early(22, 9), file(7, 11, 1 << 24), file(7, 23, 9)];
    check(&many, &[(7, &["20", "21", "22"])]);
}

#[test]
fn a_day_is_merged_by_name_ranges_of_its_large_files() {
    let large = 1 << 30;
    let base = [named(5, 1, large, ("a", "f")), named(5, 1, large, ("g", "m"))];
    let with = |more: &[LiveFile]| [&base[..], more].concat();
    // each range is merged separately
    let narrow = [named(5, 2, large, ("a", "e")), named(5, 3, large, ("h", "z"))];
    check(&with(&narrow), &[(5, &["1a", "2a"]), (5, &["1g", "3h"])]);
    // a wide file is cut where the large files begin
    let jobs = planned(&with(&[named(5, 2, large, ("b", "k"))]));
    assert_eq!((jobs.len(), jobs[0].files.len(), jobs[0].cuts.as_slice()), (1, 1, &["g".to_string()][..]));
    // a wide file is not cut into tiny files
    check(&with(&[named(5, 2, 9, ("b", "k"))]), &[]);
    check(&with(&[named(5, 2, 9, ("b", "k")), named(5, 3, 9, ("b", "k"))]), &[(5, &["2b", "3b"])]);
    // there is no cut within a metric
    let shared = [named(5, 1, large, ("a", "g")), named(5, 1, large, ("g", "m"))];
    let whole = [named(5, 2, large, ("a", "z"))];
    check(&[&shared[..], &whole].concat(), &[(5, &["1a", "1g", "2a"])]);
}

#[test]
fn wide_and_narrow_files_are_not_merged_past_each_other() {
    let large = 1 << 30;
    let base = [named(5, 1, large, ("a", "e")), named(5, 1, large, ("g", "m"))];
    let between = [named(5, 2, 9, ("b", "k")), named(5, 3, large, ("a", "e")), named(5, 4, 9, ("b", "k"))];
    let files = [&base[..], &between].concat();
    check(&files, &[]);
    // files of a rollup with different series may be merged in any order
    check_of(&ROLLUP, &files, &[(5, &["2b", "4b"]), (5, &["1a", "3a"])]);
    let aside = [named(5, 2, 9, ("f", "k")), named(5, 3, large, ("a", "e")), named(5, 4, 9, ("f", "k"))];
    check(&[&base[..], &aside].concat(), &[(5, &["2f", "4f"]), (5, &["1a", "3a"])]);
}
