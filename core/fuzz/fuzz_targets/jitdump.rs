//! Files that a JIT compiler names its code in: any process may write one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = dwell_collect::jitdump::find_in_jitdump(bytes, &[0, 0x1000, 0x7f00_0000_0000, u64::MAX]);
});
