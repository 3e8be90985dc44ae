//! The process that is probed: its threads, its memory, and what is written to it.

pub mod code_memory;
pub mod copied;
pub mod followed;
pub mod hook;
pub mod installation;
pub mod launch;
pub mod patcher;
pub mod payload;
pub mod placement;
pub mod procfs;
pub mod signal_frames;
pub mod tracee;
pub mod tracer;
