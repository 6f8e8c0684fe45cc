#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tables::read::fuzz::values(bytes));
