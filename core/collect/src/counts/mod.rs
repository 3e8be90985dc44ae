//! Executions counted by what programs count themselves: words in memory to which code adds constants.
//!
//! Enters: code of sampled programs. Leaves: the instructions that count, and where their words are. Never here: anything that stops
//! or changes a program.

#![allow(dead_code)] // The reader of words is not there yet; the decoder is tested by itself.

pub mod exits;
pub mod loops;
pub mod pairs;
mod writers;
