//! A cause that may explain a stall.

use crate::Cause;

/// A cause that was not ruled out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The cause that may explain the stall.
    pub cause: Cause,
    /// An upper bound on the cycles per execution that it explains.
    pub cycles_max: f64,
    /// The index of the instruction that causes the stall, where one does.
    pub culprit: Option<usize>,
}
