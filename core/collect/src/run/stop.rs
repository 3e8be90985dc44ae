//! Flags that end a collection or begin a new epoch. Signals and other threads set them.

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

/// Value of the flag if the program itself requested the end.
const BY_PROGRAM: usize = usize::MAX;

/// Requests the end of a collection, from another thread or by a signal. The collection stores its samples first. Clones
/// share one flag: 0, the number of the signal, or [`BY_PROGRAM`].
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Creates a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a flag that SIGINT and SIGTERM set.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_usize(signal, stop.0.clone(), signal as usize)?;
        }
        Ok(stop)
    }

    /// Requests the end.
    pub fn stop(&self) {
        // An error means that a signal has set the flag already.
        let _ = self.0.compare_exchange(0, BY_PROGRAM, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns whether the end was requested.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the signal that requested the end, if it was a signal.
    pub fn signal(&self) -> Option<Signal> {
        match self.0.load(Ordering::Relaxed) as i32 {
            SIGINT => Some(Signal::INT),
            SIGTERM => Some(Signal::TERM),
            _ => None,
        }
    }

    /// Sends a command the signal that ended its collection, or SIGTERM if there was none. A Ctrl-C is not sent again,
    /// because it has already reached the command, and many programs abort at a second one.
    pub fn pass_on(&self, command: Pid) {
        let signal = self.signal().unwrap_or(Signal::TERM);
        if signal != Signal::INT || !is_in_foreground() {
            let _ = kill_process(command, signal); // An error means that the command has ended.
        }
    }
}

/// Returns whether a Ctrl-C at the terminal reaches us and our children.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Requests a new epoch, from another thread or by SIGHUP. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Renew(Arc<AtomicBool>);

impl Renew {
    /// Creates a flag that is not set, and that no signal sets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a flag that SIGHUP sets.
    pub fn on_signal() -> io::Result<Self> {
        let renew = Self::new();
        signal_hook::flag::register(SIGHUP, renew.0.clone())?;
        Ok(renew)
    }

    /// Requests a new epoch.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether a new epoch was requested since the last call, and clears the flag.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
