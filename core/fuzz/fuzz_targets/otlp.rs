//! Any bytes as profiles of OpenTelemetry: a message, messages as JSON, and messages with their lengths. Must not panic, hang or eat
//! memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| dwell_exchange::fuzzing::otlp(bytes));
