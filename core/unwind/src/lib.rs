//! Call stacks: from registers and a copy of the stack to the addresses of frames.
//!
//! Enters: user-mode registers, bytes of a stack, unwind information of images. Leaves: frames, and why there are no more.
//! Never here: system calls, what an address belongs to, counts, formats. Whoever records or imports samples says which image
//! an address belongs to, at the moment of the sample.
//!
//! [`walk`] needs three registers of each frame: the stack pointer, rbp, and the instruction pointer. Compilers describe all
//! code by these, except for prologues that align the stack and some assembly.

mod calls;
mod rules;
mod walk;

pub use calls::{CODE_BEFORE_BYTES, ends_with_call, ends_with_system_call};
pub use rules::Rules;
pub use walk::{Code, CodeOfProcess, FRAMES_MAX, Frame, StackCopy, continue_by_chain, walk};
