//! Superblocks: code with one entry and several exits, which is recorded by one byte and the values that cannot be computed.

pub mod compute;
pub mod path;
pub mod plan;
pub mod registers;
