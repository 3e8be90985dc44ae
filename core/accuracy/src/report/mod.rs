//! Verdicts for people.

pub mod text;
