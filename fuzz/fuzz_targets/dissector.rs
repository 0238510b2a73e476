#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| docent_fuzz::protocol::dissector(data));
