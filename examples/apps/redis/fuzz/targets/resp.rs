//! Fuzz target of the parser of requests. The function `check` in `../../src/resp/check.rs` lists the properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| app_redis::check_parser(bytes));
