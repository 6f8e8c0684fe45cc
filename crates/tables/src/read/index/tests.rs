use super::*;

#[test]
fn sorted_lists_are_intersected() {
    let check = |a: &[u32], b: &[u32], expected: &[u32]| {
        assert_eq!(both(a, b), expected, "{a:?} {b:?}");
        assert_eq!(both(b, a), expected, "{b:?} {a:?}");
    };
    check(&[], &[1, 2], &[]);
    check(&[2], &[1, 2, 3], &[2]);
    check(&[0, 5, 9], &[1, 5, 8, 9], &[5, 9]);
    let many: Vec<u32> = (0..1000).collect();
    check(&[0, 1, 500, 998, 999, 2000], &many, &[0, 1, 500, 998, 999]);
    check(&(0..1000).step_by(3).collect::<Vec<_>>(), &many, &(0..1000).step_by(3).collect::<Vec<_>>());
    assert_eq!(without(5, &[0, 3]), [1, 2, 4]);
    assert_eq!(without(2, &[]), [0, 1]);
}
