use super::*;

fn exemplar(value: f64) -> Exemplar {
    Exemplar { labels: model::Labels::empty(), timestamp_ms: 0, value }
}

#[test]
fn exemplars_are_found_by_the_position_of_their_series() {
    let positions = [0, 0, 3, 4, 4, 4, 9];
    let all: Vec<_> = positions.iter().zip(0..).map(|(p, i)| (*p, exemplar(f64::from(i)))).collect();
    for position in 0..11 {
        let expected: Vec<_> = all.iter().filter(|(p, _)| *p == position).cloned().collect();
        assert_eq!(exemplars_of(&all, position), expected, "position {position}");
    }
    assert!(exemplars_of(&[], 0).is_empty());
}
