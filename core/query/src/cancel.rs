//! Giving up on an answer that nobody waits for any more.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::QueryError;

/// A flag shared by the asker and the answerer. Questions look at it between procedures and images.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises it, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// `Err(Cancelled)` once it is raised.
    pub fn check(&self) -> Result<(), QueryError> {
        if self.0.load(Ordering::Relaxed) { Err(QueryError::Cancelled) } else { Ok(()) }
    }
}
