#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    protocol::fuzz::text_lines(protocol::exposition::Dialect::Prometheus, bytes);
    protocol::fuzz::text_lines(protocol::exposition::Dialect::OpenMetrics, bytes);
});
