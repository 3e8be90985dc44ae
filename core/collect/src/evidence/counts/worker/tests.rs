//! Tests what the thread spends.

use std::{
    process::{Child, Command},
    sync::{Condvar, Mutex, atomic::AtomicU64},
};

use super::*;
use crate::{
    registers::{REGISTER_COUNT, Registers},
    sys::guard::Turns,
};

const EXECUTION: ExecutionId = ExecutionId(1);

/// A child process that is killed at the end of a test.
struct Target(Child);

impl Target {
    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn worker() -> Worker {
    let shared = Shared {
        watching_since_ns: AtomicU64::new(u64::MAX),
        inbox: Mutex::default(),
        is_last: Condvar::new(),
        output: Mutex::default(),
    };
    Worker::new(Arc::new(shared), 1.0, Protection::start(&Turns::default()))
}

fn seen(pid: Pid) -> Seen {
    Seen {
        time_ns: 1,
        pid,
        code: CodeId(1),
        execution: EXECUTION,
        pc: 0x1000,
        is_time: true,
        is_user: true,
        registers: Some(Box::new(Registers([0; REGISTER_COUNT]))),
    }
}

#[test]
fn registers_are_not_looked_at_while_more_was_spent_than_earned() {
    let target = Target(Command::new("sleep").arg("600").spawn().unwrap());
    let mut worker = worker();
    worker.traps_ns = 2 * ADVANCE_NS as u64;
    worker.solvency.0 = worker.may_spend();
    (0..2 * SAMPLES_MIN).for_each(|_| worker.sample(&seen(target.pid())));
    assert!(worker.processes.is_empty());
    worker.cpu_ns = 1e12;
    (0..2 * SAMPLES_MIN + SAMPLES_PER_CLOCK).for_each(|_| worker.sample(&seen(target.pid())));
    assert!(worker.processes.contains_key(&target.pid()));
}
