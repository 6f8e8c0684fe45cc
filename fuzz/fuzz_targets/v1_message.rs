#![no_main]

use protocol::remote_write::Version;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::fuzz::remote_write_message(Version::V1, bytes));
