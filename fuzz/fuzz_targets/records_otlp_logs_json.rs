#![no_main]

use protocol::otlp::Media;
use protocol::records::otlp::Signal;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::fuzz::otlp_records(Signal::Logs, Media::Json, bytes));
