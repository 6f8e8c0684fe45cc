#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    protocol::fuzz::graphite_protobuf(false, bytes);
    protocol::fuzz::graphite_protobuf(true, bytes);
});
