#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pando_fuzz_targets::page_store(data));
