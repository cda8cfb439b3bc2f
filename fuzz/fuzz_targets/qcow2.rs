#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| drop(xfskit_fuzz_harness::disk::qcow2(input)));
