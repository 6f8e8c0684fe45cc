#![no_main]

use protocol::otlp::Media;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::fuzz::loki_records(Media::Json, bytes));
