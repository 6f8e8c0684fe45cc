use super::*;

#[test]
fn numbers_are_written_as_in_python() {
    for (value, expected_general, expected_shortest) in [
        (0.0, "0", "0.0"),
        (2.0, "2", "2.0"),
        (-0.5, "-0.5", "-0.5"),
        (1.0 / 3.0, "0.333333", "0.3333333333333333"),
        (1_234_567.0, "1.23457e+06", "1234567.0"),
        (999_999.5, "1e+06", "999999.5"),
        (1e16, "1e+16", "1e+16"),
        (1.5e-5, "1.5e-05", "1.5e-05"),
        (0.0001, "0.0001", "0.0001"),
        (1e100, "1e+100", "1e+100"),
        (f64::INFINITY, "inf", "inf"),
        (f64::NAN, "nan", "nan"),
    ] {
        assert_eq!(general(value), expected_general);
        assert_eq!(shortest(value), expected_shortest);
    }
}
