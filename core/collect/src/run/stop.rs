//! A flag that ends a collection.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::{
    process::{Pid, Signal, getpgrp, kill_process},
    termios::tcgetpgrp,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Stands for a request that no signal made.
const BY_PROGRAM: usize = usize::MAX;

/// Ends a collection, from another thread or by a signal; what was collected is stored first. Clones share one flag: 0, the
/// signal's number, or [`BY_PROGRAM`].
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Not asked for yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asked for by SIGINT or SIGTERM.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_usize(signal, stop.0.clone(), signal as usize)?;
        }
        Ok(stop)
    }

    /// Asks for it.
    pub fn stop(&self) {
        let _ = self.0.compare_exchange(0, BY_PROGRAM, Ordering::Relaxed, Ordering::Relaxed); // A signal was first.
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The signal that asked for it.
    pub fn signal(&self) -> Option<Signal> {
        match self.0.load(Ordering::Relaxed) as i32 {
            SIGINT => Some(Signal::INT),
            SIGTERM => Some(Signal::TERM),
            _ => None,
        }
    }

    /// Sends a command the signal that ended its collection, or SIGTERM where none did. A Ctrl-C has reached it already: many
    /// programs take a second one for impatience.
    pub fn pass_on(&self, command: Pid) {
        let signal = self.signal().unwrap_or(Signal::TERM);
        if signal != Signal::INT || !is_in_foreground() {
            let _ = kill_process(command, signal); // Where it fails, the command has ended.
        }
    }
}

/// Whether a Ctrl-C at the terminal is for us and our children.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
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
