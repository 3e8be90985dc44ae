//! Everything that needs `unsafe`: perf events and their ring buffers, the measured clock, starting a command.
//!
//! Enters: validated values of ours. Leaves: safe types. Never here: the meaning of a record's bytes.
#![allow(unsafe_code)] // The only folder that may; each block says why it is sound.

pub mod clock;
pub mod command;
pub mod event;
pub mod interrupt;
pub mod ring;
pub mod stepper;
pub mod usage;
