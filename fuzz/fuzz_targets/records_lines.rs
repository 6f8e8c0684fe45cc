#![no_main]

use protocol::records::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::fuzz::records(Format::Lines, bytes));
