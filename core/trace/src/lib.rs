//! Exact traces of all instructions and data addresses of a program, by abstract execution: only what cannot be computed is
//! recorded, and the rest is regenerated when the trace is read (Larus 1990; Mazières and Smith, "Abstract Execution in a
//! Multi-Tasking Environment", 1994).
//!
//! Enters: a command, or a folder with a trace. Leaves: such a folder, or instructions and references in their order. Never here:
//! text of listings, arguments of the command line, the database.

#![allow(unsafe_code)] // ptrace, and the memory of the traced program

mod counts;
mod emit;
mod error;
mod layout;
mod record;
mod regenerate;
mod store;
mod superblock;

pub use counts::{Counts, ImageCounts};
pub use error::TraceError;
pub use record::{Mapping, Recorded, Recording, record};
pub use regenerate::{Broken, Item, Stream, Totals, Trace};
pub use store::{Manifest, ThreadEntry};
pub use superblock::plan::{Access, Detail};
