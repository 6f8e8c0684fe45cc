use super::*;

#[test]
fn tags_are_sorted_and_unique() {
    let mut tags = Tags::of_name("cpu;z=1;a=2;z=3");
    assert_eq!(tags.iter().collect::<Vec<_>>(), [("a", "2"), ("name", "cpu"), ("z", "3")]);
    tags.set("m", "4");
    tags.set("a", "5");
    assert_eq!((tags.get("m"), tags.get("a"), tags.get("b")), (Some("4"), Some("5"), None));
    tags.keep_common(&Tags::of_name("cpu;a=5;z=4"));
    assert_eq!(tags.iter().collect::<Vec<_>>(), [("a", "5"), ("name", "cpu")]);
}

#[test]
fn a_coarser_series_has_fewer_values() {
    let mut series = Series::computed("a".into(), 0, 300, 60, vec![1.0, 3.0, 5.0, f64::NAN, 9.0]);
    series.coarsen(2);
    assert_eq!((series.step_s, &series.values[..]), (120, &[2.0, 5.0, 9.0][..]));
    series.coarsen(1);
    assert_eq!(series.step_s, 120);
    let times: Vec<_> = series.points().map(|(time_s, _)| time_s).collect();
    assert_eq!(times, [0, 120, 240]);
}
