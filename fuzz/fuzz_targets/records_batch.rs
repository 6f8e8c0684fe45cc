#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    journal::fuzz::batch(bytes);
});
