#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    protocol::fuzz::pieces_of_body(protocol::Encoding::Gzip, bytes);
    protocol::fuzz::pieces_of_body(protocol::Encoding::Zstd, bytes);
});
