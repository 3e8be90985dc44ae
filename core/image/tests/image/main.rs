//! The image room against fixtures, against other tools, and against damage.

mod built;
mod debug_files;
mod decoding;
mod fixtures;
mod frames;
mod hostile;
mod minidebug;
mod narrow;
mod parts;
mod procedure_table;
mod procedures;
mod regressions;
mod system;
mod unwind;
