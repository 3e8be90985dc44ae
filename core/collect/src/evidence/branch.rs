//! Which way a conditional branch was about to go, computed from a sample's registers (DCPI §7, "interpretation").
//!
//! Enters: the bytes of code from a sampled pc on, and the registers of a sample there. Leaves: the next conditional branch and
//! its direction. Never here: memory of the sampled process, state, I/O.
//!
//! The code between the pc and the branch is straight-line code. [`NextBranch::decode`] turns it into the few operations that
//! the branch depends on, and [`NextBranch::taken`] executes them on the registers of a sample, in less than 100 ns. Values
//! that a sample does not contain (memory, the effects of instructions that are not modelled) are unknown, and so are values
//! that depend on them. A branch is decided only if all values that it depends on are known. This property depends on the
//! code only, so each pc is decoded once. Each architecture has its implementation, [`x86`] or [`a64`], with the same
//! interface.
//!
//! The bytes are decoded here rather than by `dwell-image`: these few forms take 20 ns, the disassembler 10 µs, and on
//! a build of a C project every second sample is at a pc that was not sampled before. A test compares the two.

pub mod a64;
pub mod x86;

#[cfg(target_arch = "aarch64")]
pub use a64::NextBranch;
#[cfg(not(target_arch = "aarch64"))]
pub use x86::NextBranch;

/// Bytes of code that are decoded from a sampled pc on.
pub const CODE_BYTES: usize = 96;
