use super::*;
use proptest::prelude::*;

/// Builds a file from the values of each archive's slots, of which the first begins at the given time.
fn file(header: &Header, archives: &[(i64, &[f64])]) -> Vec<u8> {
    let mut bytes = header.encode().unwrap();
    for (number, (start_s, values)) in archives.iter().enumerate() {
        bytes.resize(header.offset(number) as usize, 0);
        bytes.extend(header.archives[number].encode(*start_s, values));
    }
    bytes.resize(header.file_bytes() as usize, 0);
    bytes
}

fn header(archives: &[(u32, u32)]) -> Header {
    let archives = archives.iter().map(|(step_s, points)| Archive { step_s: *step_s, points: *points });
    Header { method: 1, x_files_factor: 0.5, archives: archives.collect() }
}

fn read(bytes: &[u8], now_s: i64) -> Vec<(i64, f64)> {
    let mut found = Vec::new();
    File::parse(bytes).unwrap().each(now_s, |_, at_s, value| found.push((at_s, value)));
    found
}

const NONE: f64 = f64::NAN;

#[test]
fn golden_bytes() {
    let header = Header { method: 2, x_files_factor: 0.25, ..header(&[(60, 2), (120, 2)]) };
    let bytes = file(&header, &[(1_795_284_000, &[1.5, -2.0]), (1_795_284_000, &[-0.5])]);
    let expected = [
        [0, 0, 0, 2, 0, 0, 0, 240, 0x3e, 0x80, 0, 0].as_slice(), // sum, 240 s, 0.25
        &[0, 0, 0, 2, 0, 0, 0, 40, 0, 0, 0, 60, 0, 0, 0, 2],     // two archives; one at byte 40
        &[0, 0, 0, 64, 0, 0, 0, 120, 0, 0, 0, 2],                // the other at byte 64
        &[0x6b, 0x01, 0xdc, 0x20, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0],
        &[0x6b, 0x01, 0xdc, 0x5c, 0xc0, 0, 0, 0, 0, 0, 0, 0],
        &[0x6b, 0x01, 0xdc, 0x20, 0xbf, 0xe0, 0, 0, 0, 0, 0, 0],
        &[0; 12],
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(File::parse(&bytes).unwrap().header, header);
}

#[test]
fn the_finest_value_counts() {
    let header = header(&[(10, 6), (30, 10), (60, 10)]);
    // 10 s: the latest minute. 30 s and 60 s: everything
    let fine: Vec<f64> = (0..6).map(f64::from).collect();
    let half: Vec<f64> = (0..10).map(|i| 100.0 + f64::from(i)).collect();
    let minutes: Vec<f64> = (0..10).map(|i| 200.0 + f64::from(i)).collect();
    let bytes = file(&header, &[(6540, &fine), (6300, &half), (6000, &minutes)]);
    let found = read(&bytes, i64::MAX);
    let times: Vec<i64> = found.iter().map(|(at_s, _)| *at_s).collect();
    // the 30 s archive covers what is after 6290: the minute at 6240 is in part covered, and counts as a whole.
    // The 10 s archive covers what is after 6530: the slot at 6510 ends at 6540
    let minutes = (6000..6300).step_by(60);
    let expected: Vec<i64> =
        minutes.chain((6300..6540).step_by(30)).chain((6540..6600).step_by(10)).collect();
    assert_eq!(times, expected);
    assert_eq!(found.last(), Some(&(6590, 5.0)));
    // as of an earlier time, later points do not exist
    assert_eq!(read(&bytes, 6550).last(), Some(&(6550, 1.0)));
    assert_eq!(File::parse(&bytes).unwrap().points_after(6550), 4 + 1);
}

#[test]
fn coarse_values_replace_or_complete_finer_ones() {
    let header = header(&[(10, 6), (60, 10)]);
    // latest 650: 10 s covers 600 to 650, 60 s the rest
    let bytes = file(&header, &[(600, &[1.0, NONE, 2.0, NONE, NONE, 3.0]), (120, &[7.0, NONE, 8.0])]);
    assert_eq!(read(&bytes, i64::MAX), [(120, 7.0), (240, 8.0), (600, 1.0), (620, 2.0), (650, 3.0)]);
    // latest 640: 10 s covers 590 to 640; the slot at 540 has a coarse value, which replaces 590
    let fine = [9.0, 1.0, NONE, NONE, NONE, 2.0];
    let bytes = file(&header, &[(590, &fine), (540, &[8.0])]);
    assert_eq!(read(&bytes, i64::MAX), [(540, 8.0), (600, 1.0), (640, 2.0)]);
    // without a coarse value, 590 stays
    let bytes = file(&header, &[(590, &fine), (480, &[8.0])]);
    assert_eq!(read(&bytes, i64::MAX), [(480, 8.0), (590, 9.0), (600, 1.0), (640, 2.0)]);
    // without finer values, the coarse one of the covered minute is used
    let bytes = file(&header, &[(0, &[]), (540, &[8.0, 9.0])]);
    assert_eq!(read(&bytes, i64::MAX), [(540, 8.0), (600, 9.0)]);
}

#[test]
fn rings_wrap_and_stale_points_are_missing() {
    let header = header(&[(10, 4)]);
    let mut bytes = header.encode().unwrap();
    // the ring was written from 100 to 150: 140 and 150 replaced 100 and 110
    for (at_s, value) in [(140u32, 4.0f64), (150, 5.0), (120, 2.0), (90, 9.0)] {
        bytes.extend(at_s.to_be_bytes());
        bytes.extend(value.to_be_bytes());
    }
    assert_eq!(read(&bytes, i64::MAX), [(120, 2.0), (140, 4.0), (150, 5.0)]);
}

#[test]
fn errors_say_what_is_wrong() {
    let good = file(&header(&[(10, 6), (60, 10)]), &[(600, &[1.0]), (600, &[1.0])]);
    let check = |at: usize, byte: u8, error: &str| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(File::parse(&bytes).unwrap_err().to_string(), error);
    };
    check(3, 9, "unknown aggregation method 9");
    check(8, 0x7f, "the xFilesFactor is not a number from 0 to 1");
    check(15, 0, "0 archives, there must be 1 to 64");
    check(15, 200, "200 archives, there must be 1 to 64");
    check(23, 0, "archive 0 has no points, or a step of zero");
    check(25, 1, "archive 0 is not in the file");
    check(
        35,
        65,
        "the step of archive 1 is not a multiple of the step before it, or its retention is not longer",
    );
    assert_eq!(
        File::parse(&good[..10]).unwrap_err().to_string(),
        "the file has 10 bytes, its header needs 16"
    );
    assert_eq!(
        File::parse(&good[..20]).unwrap_err().to_string(),
        "the file has 20 bytes, its header needs 40"
    );
}

proptest! {
    #[test]
    fn mutated_files_never_panic(
        values in prop::collection::vec(0u32..20, 0..6),
        changes in prop::collection::vec((0usize..400, any::<u8>()), 0..12),
        now_s in any::<i32>(),
    ) {
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        let mut bytes = file(&header(&[(1, 6), (6, 8), (60, 10)]), &[(1000, &values), (960, &values), (600, &[])]);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        crate::fuzz::whisper_file(&bytes);
        if let Ok(file) = File::parse(&bytes) {
            file.each(i64::from(now_s), |_, _, _| {});
        }
    }
}
