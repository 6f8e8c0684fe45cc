//! Bodies of the micro-benchmarks; the tests run them small, so that they never rot.
