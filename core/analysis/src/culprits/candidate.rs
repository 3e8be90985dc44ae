//! A cause that may explain a stall.

use crate::Cause;

/// A cause that was not ruled out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Why.
    pub cause: Cause,
    /// The most cycles per execution it can explain.
    pub cycles_max: f64,
    /// The instruction to blame, where one is.
    pub culprit: Option<usize>,
}
