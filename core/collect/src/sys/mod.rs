//! All code that needs `unsafe`: perf events and their ring buffers, the measured clock, starting a command, stepping a
//! thread, executing an instruction of another program.
//!
//! Enters: validated values. Leaves: safe types. Never here: the meaning of a record's bytes.
#![allow(unsafe_code)] // No other folder contains unsafe code. Each block says why it is sound.

pub mod alarm;
pub mod bpf;
pub mod breakpoint;
pub mod clock;
pub mod clocks;
pub mod command;
pub mod event;
pub mod event_times;
pub mod guard;
pub mod heap;
pub mod inherited;
pub mod interrupt;
pub mod kmod;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod native;
pub mod process_memory;
pub mod ring;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod tracepoint;
pub mod tracer;
pub mod usage;
pub mod watchpoint;
