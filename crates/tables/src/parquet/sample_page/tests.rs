use super::*;
use stdx::rng::Rng;

/// True if the checks accept these times for a page whose rows have these `spans`.
fn in_order(times: &[i64], spans: &[(usize, i64, i64)], rng: &mut Rng) -> bool {
    let mut rows = Ascending { rows: spans, at: 0, last: 0, begins: true, broken: false };
    rows.see(Steps::First(times[0]));
    let steps: Vec<i64> = times.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    let mut rest = &steps[..];
    while let [first, ..] = rest {
        let alike = rest.iter().take_while(|step| *step == first).count();
        let some = if rng.chance(0.5) {
            rows.see(Steps::Alike(alike, *first));
            alike
        } else {
            let some = 1 + rng.below(rest.len().min(64) as u64) as usize;
            let least = *rest[..some].iter().min().unwrap();
            let more: Vec<u64> = rest[..some].iter().map(|step| step.wrapping_sub(least) as u64).collect();
            rows.see(Steps::Each(least, &more));
            some
        };
        rest = &rest[some..];
    }
    !rows.broken && rows.rows.is_empty()
}

#[test]
fn rows_ascend_from_their_starts_to_their_ends() {
    let mut rng = Rng::announced();
    for _ in 0..3000 {
        let (mut times, mut spans) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(4) {
            let (start, jitter) = (rng.below(1_000_000) as i64, 1 + rng.below(3));
            let row: Vec<i64> =
                (0..1 + rng.below(200) as i64).map(|i| start + 15 * i + rng.below(jitter) as i64).collect();
            times.extend_from_slice(&row);
            spans.push((times.len(), start.max(row[0]), row[row.len() - 1]));
        }
        assert!(in_order(&times, &spans, &mut rng), "{times:?} {spans:?}");

        let at = rng.below(times.len() as u64) as usize;
        let before = times[at];
        let first = at == 0 || spans.iter().any(|(end, ..)| *end == at);
        // a time that does not ascend, one in the far future, and one that overflows
        for bad in
            [times[at.saturating_sub(1)].min(before - 15), before.wrapping_add(1 << 50), before ^ i64::MIN]
        {
            times[at] = bad;
            assert!(!in_order(&times, &spans, &mut rng), "{at} {first} {times:?} {spans:?}");
        }
        times[at] = before;

        let at = rng.below(spans.len() as u64) as usize;
        let mut moved = spans.clone();
        match rng.below(2) {
            0 => moved[at].1 += 1,
            _ => moved[at].2 -= 1,
        }
        assert!(!in_order(&times, &moved, &mut rng), "{times:?} {moved:?}");
    }
}
