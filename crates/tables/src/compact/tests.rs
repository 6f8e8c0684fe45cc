use super::*;
use model::TimeRange;

fn file(date: i32, sequence: i64, bytes: u64) -> LiveFile {
    let date = Date(date);
    let range = TimeRange::new(date.start_ms(), date.end_ms());
    LiveFile { path: format!("{sequence}"), date, bytes, rows: 1, names: None, range, sequence }
}

fn check(files: &[LiveFile], expected: &[(i32, &[&str])]) {
    let limits = CompactLimits {
        file_bytes: 1 << 30,
        job_bytes: 1 << 31,
        fan_in: 4,
        files_min: 3,
        ..CompactLimits::default()
    };
    let jobs = plan(files, Date(7), &limits, |f| f.path == "13");
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
    // a large one first: the small ones after it wait for each other, not for it
    check(&[file(7, 1, 1 << 24), file(7, 2, 9), file(7, 3, 9)], &[]);
    // neighbours only: what lies between two of like size goes with them
    check(
        &[file(7, 1, 1 << 24), file(7, 2, 9), file(7, 3, 1 << 24), file(7, 4, 1 << 24)],
        &[(7, &["1", "2", "3", "4"])],
    );
    check(&[file(7, 1, 9), file(7, 2, 9), file(7, 3, 1 << 24), file(7, 4, 9), file(7, 5, 9)], &[]);
}

#[test]
fn days_that_are_over_are_merged_down() {
    check(&[file(5, 1, 9), file(5, 2, 9)], &[(5, &["1", "2"])]);
    // a little that came late is not worth the rewriting of a large file, until it is more
    check(&[file(5, 1, 1 << 30), file(5, 2, 9)], &[]);
    check(&[file(5, 1, 1 << 30), file(5, 2, 1 << 29)], &[(5, &["1", "2"])]);
    check(&[file(5, 1, 1 << 30), file(5, 2, 9), file(5, 3, 9)], &[(5, &["1", "2", "3"])]);
    check(&[file(5, 1, 1 << 30), file(5, 2, 1 << 30)], &[]);
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
fn jobs_are_cut_by_names() {
    let check = |groups: &[(&str, u64)], count, expected: &[(Option<&str>, Option<&str>)]| {
        let groups = groups.iter().map(|(n, b)| (n.to_string(), *b)).collect();
        let cut = cut_names(groups, count);
        let cut: Vec<_> = cut.iter().map(|r| (r.from.as_deref(), r.before.as_deref())).collect();
        assert_eq!(cut, expected);
    };
    check(&[], 4, &[(None, None)]);
    check(&[("a", 5), ("b", 5)], 1, &[(None, None)]);
    check(&[("a", 5), ("b", 5)], 2, &[(None, Some("b")), (Some("b"), None)]);
    check(&[("b", 5), ("a", 5), ("a", 5), ("c", 5)], 2, &[(None, Some("b")), (Some("b"), None)]);
    check(&[("a", 5), ("a", 5), ("a", 5)], 3, &[(None, None)]);
}
