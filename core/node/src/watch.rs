//! Reports when the database changes: a thread polls its generation, which is cheap.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use dwell_query::Query;
use napi::{
    Status,
    threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode},
};

/// Called without arguments; does not keep the process alive.
pub type OnChange = ThreadsafeFunction<(), (), (), Status, false, true>;

/// Interval between two looks at the database.
const INTERVAL: Duration = Duration::from_millis(500);

/// Watches until dropped.
pub struct Watch {
    /// Dropping the sender ends the thread at once.
    _stop: Sender<()>,
}

impl Watch {
    /// Calls `on_change` after each change of `query`'s database.
    pub fn start(query: Arc<Query>, on_change: OnChange) -> Self {
        let (stop, stopped) = mpsc::channel();
        thread::spawn(move || {
            let mut seen = query.generation();
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = query.generation();
                if now != seen {
                    seen = now;
                    on_change.call((), ThreadsafeFunctionCallMode::NonBlocking);
                }
            }
        });
        Watch { _stop: stop }
    }
}
