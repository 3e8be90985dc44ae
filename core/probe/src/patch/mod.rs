//! Where and how a function is patched. Pure: nothing here touches a process.
//!
//! Enters: a function's bytes as they are in the process, and addresses in it that are known to be jumped to. Leaves: the
//! places that are overwritten by a jump ([`plan`]), and the code that each of them jumps to ([`trampoline`]), or the reason
//! why the function cannot be patched. Never a guess: a place is patched only if nobody can jump into its middle.

pub mod from_image;
pub mod function_code;
pub mod incoming;
pub mod plan;
pub mod trampoline;

#[cfg(test)]
mod tests;
