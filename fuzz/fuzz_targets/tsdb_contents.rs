#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::tsdb::fuzz::block_contents(bytes));
