//! Call stacks of samples: from registers and a copy of the stack to the addresses of frames.
//!
//! Enters: user-mode registers, bytes of a stack, unwind information of images. Leaves: frames, and why there are no more.
//! Never here: system calls, what an address belongs to, counts. A stack is never stored: it is unwound as soon as its sample
//! is applied, when the mappings of that moment are known.
//!
//! [`walk`] needs three registers of each frame: the stack pointer, rbp, and the instruction pointer. Compilers describe all
//! code by these, except for prologues that align the stack and some assembly.

pub mod rules;
pub mod walk;
