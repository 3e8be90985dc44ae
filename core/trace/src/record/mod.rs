//! Records a command: it runs from a cache of code in its own memory, and stops for the tracer only at code that is new, at a full
//! stream, and at few system calls.

mod engine;
mod ptrace;
mod space;
mod thread;

pub use engine::{Recorded, Recording, record};

pub use crate::store::Mapping;
