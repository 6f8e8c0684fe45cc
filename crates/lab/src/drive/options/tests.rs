use super::*;

const NOW_MS: i64 = 1_795_284_007_123;

fn base() -> WriteOptions {
    WriteOptions { metrics: 100, series_per_metric: 10, writers: 2, ..WriteOptions::default() }
}

/// First and last possible sample relative to now, and the interval, in ms.
fn times(options: &WriteOptions) -> (i64, i64, i64) {
    let plan = options.resolve(NOW_MS).unwrap().plan;
    (plan.round_ms(0) - NOW_MS, plan.round_ms(plan.rounds_max) - NOW_MS, plan.interval_ms.into())
}

#[test]
fn rounds_in_a_closed_loop_end_now() {
    let (first, end, interval) = times(&WriteOptions { rounds: Some(20), ..base() });
    assert_eq!(interval, 15_000);
    assert_eq!(end - first, 20 * 15_000);
    assert!((-15_000..=0).contains(&end), "{end}");
    let (first, end, interval) = times(&WriteOptions { rounds: Some(1_000_000), ..base() });
    assert_eq!(interval, 3);
    assert!(first >= -HORIZON_MS && end <= 0);
}

#[test]
fn a_closed_loop_has_room_for_the_fastest_target() {
    for (metrics, seconds) in [(1, 20), (100, 20), (100_000, 20), (100, 3600)] {
        let options = WriteOptions { metrics, duration: Some(Duration::from_secs(seconds)), ..base() };
        let (first, end, interval) = times(&options);
        let rounds = (end - first) / interval;
        let samples = rounds as f64 * f64::from(metrics) * 20.0;
        let enough = samples / seconds as f64 >= 0.5 * CLOSED_SAMPLES_PER_S_MAX || interval == 1;
        assert!(enough, "{metrics} metrics: {samples} samples in {seconds} s");
        assert!(first >= -HORIZON_MS - interval && end <= 0, "{first} to {end}");
    }
}

#[test]
fn an_open_schedule_goes_with_the_clock() {
    let duration = Some(Duration::from_secs(30));
    let (first, end, interval) = times(&WriteOptions { rate: Some(1_000.0), duration, ..base() });
    assert_eq!(interval, 2_000, "2,000 series at 1,000 a second");
    assert!((-4_000..=-2_000).contains(&first), "{first}");
    assert!(end <= 30_000);
    // faster than a round each millisecond: time itself has to run ahead, and so begins earlier
    let (first, end, interval) = times(&WriteOptions { rate: Some(1e7), duration, ..base() });
    assert_eq!(interval, 1);
    assert!(first < -100_000 && end <= 30_000, "{first} {end}");
}

#[test]
fn an_explicit_start_is_rounded_up_and_may_not_end_in_the_future() {
    let at = |start_ms| WriteOptions { start_ms: Some(start_ms), rounds: Some(4), ..base() };
    let plan = at(1_795_280_000_001).resolve(NOW_MS).unwrap().plan;
    assert_eq!(plan.round_ms(0), 1_795_280_010_000);
    let said = at(NOW_MS + 60_000).resolve(NOW_MS).unwrap_err().to_string();
    assert!(said.contains("in the future"), "{said}");
    assert!(at(5).resolve(NOW_MS).is_err());
    assert!(at(i64::MAX).resolve(NOW_MS).is_err());
}

#[test]
fn churn_counts_in_ticks() {
    let minute = Some(Duration::from_secs(60));
    let options = WriteOptions { rounds: Some(9), series_churn: minute, metric_churn: minute, ..base() };
    let plan = options.resolve(NOW_MS).unwrap().plan;
    assert_eq!((plan.series_churn_ticks, plan.metric_churn_ticks), (Some(4), Some(4)));
    let too_often = WriteOptions { series_churn: Some(Duration::from_secs(1)), ..options };
    assert!(too_often.resolve(NOW_MS).is_err());
}

#[test]
fn bounds_are_kept() {
    let check = |change: fn(&mut WriteOptions), why: &str| {
        let mut options = base();
        change(&mut options);
        let said = format!("{:#}", options.resolve(NOW_MS).unwrap_err());
        assert!(said.contains(why), "{said:?} does not say {why:?}");
    };
    check(|o| o.metrics = 0, "metrics");
    check(|o| o.writers = 0, "writers");
    check(|o| o.batch = 0, "batch");
    check(|o| o.batch = 1_000_000, "batch");
    check(|o| o.fleet.labels = 1, "labels");
    check(|o| o.fleet.labels = 129, "labels");
    check(|o| o.fleet.label_name_bytes = Some(2_000), "label name");
    check(|o| (o.fleet.labels, o.fleet.label_value_bytes) = (100, Some(5_000)), "labels of");
    check(|o| (o.batch, o.fleet.label_value_bytes) = (100_000, Some(100)), "smaller batch");
    check(|o| o.series_per_metric = u64::from(u32::MAX), "series");
    check(|o| o.rate = Some(f64::NAN), "rate");
    check(|o| o.rate = Some(0.0), "rate");
    check(|o| o.duration = Some(Duration::ZERO), "duration");
    check(|o| o.interval = Some(Duration::from_micros(5)), "interval");
    check(|o| (o.connections, o.writers) = (5_000, 3), "connections");
}
