#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rules::fuzz::ingest_rules(bytes));
