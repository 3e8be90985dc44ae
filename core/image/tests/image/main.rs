//! The image room against fixtures, against other tools, and against damage.

mod debug_files;
mod decoding;
mod fixtures;
mod frames;
mod hostile;
mod narrow;
mod outline;
mod procedures;
mod regressions;
mod system;
