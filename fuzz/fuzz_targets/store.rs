#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_fuzz_targets::store(data));
