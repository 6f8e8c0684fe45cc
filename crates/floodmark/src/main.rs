//! The Floodmark binary.
fn main() {}
