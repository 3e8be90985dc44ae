//! A flag that ends a collection.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Ends a collection, from another thread or by a signal; what was collected is stored first. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Not asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asked for by SIGINT or SIGTERM.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.0.clone())?;
        }
        Ok(stop)
    }

    /// Asks for it.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Asks for a new epoch, by SIGHUP. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Renew(Arc<AtomicBool>);

impl Renew {
    /// Not asked for yet, and by nobody but us.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asked for by SIGHUP.
    pub fn on_signal() -> io::Result<Self> {
        let renew = Self::new();
        signal_hook::flag::register(SIGHUP, renew.0.clone())?;
        Ok(renew)
    }

    /// Asks for it.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
