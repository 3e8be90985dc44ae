//! Exchanges code of a running process.
//!
//! Enters: places, each with the bytes that are there and those that are to be there. Leaves: the process with all of them
//! exchanged, or as it was. No thread executes a mixture:
//!
//! 1. Each place gets an `int3` as its first byte, where a thread that arrives stops.
//! 2. Every thread is seen outside of the places' other bytes, and no signal handler will return there. A thread that stands there
//!    continues in the copy of its instruction.
//! 3. The other bytes are written, all processors are visited, the first bytes are written.
//!
//! (Intel, "Software Developer's Manual", volume 3, "Handling Self- and Cross-Modifying Code".)

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    time::{Duration, Instant},
};

use super::{
    code_memory::CodeMemory,
    signal_frames::any_returns_to,
    tracer::{Stop, Tracer},
};
use crate::patch::plan::JUMP_BYTES;

const INT3: u8 = 0xcc;
/// How long to wait for threads to leave the places. Those that arrive at a place wait as long.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for signal handlers that interrupted a thread in the middle of a place, and how long before looking again.
const HANDLERS: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_micros(200);

/// A place that changes.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its address.
    pub address: u64,
    /// What is there.
    pub from: [u8; JUMP_BYTES],
    /// What is to be there.
    pub to: [u8; JUMP_BYTES],
    /// What the program has there itself.
    pub own: [u8; JUMP_BYTES],
    /// Instructions that begin within the bytes and where their copies are. A thread there is moved.
    pub copies: Vec<(u64, u64)>,
}

impl Change {
    /// Returns the change that puts the program's own code back.
    pub fn removal(&self) -> Change {
        Change { address: self.address, from: self.to, to: self.own, own: self.own, copies: Vec::new() }
    }

    fn middle(&self) -> Range<u64> {
        self.address + 1..self.address + JUMP_BYTES as u64
    }
}

/// Exchanges all places. If a thread does not leave them in time, nothing is changed and the error is `TimedOut`.
pub fn exchange(tracer: &mut Tracer, code: &CodeMemory, changes: &[Change]) -> io::Result<()> {
    // A forked child shares the areas of ours.
    let own = changes.iter().filter(|change| !code.is_ours(change.address));
    tracer.originals.extend(own.map(|change| (change.address, change.own)));
    tracer.breakpoints.extend(changes.iter().map(|change| change.address));
    code.write(changes.iter().map(|change| (change.address, &[INT3][..])))?;
    let left = leave(tracer, code, changes);
    let is_left = left.is_ok();
    if is_left {
        code.write(changes.iter().map(|change| (change.address + 1, &change.to[1..])))?;
        visit_all_processors();
    }
    let first = |change: &'_ Change| if is_left { change.to[0] } else { change.from[0] };
    let firsts: Vec<[u8; 1]> = changes.iter().map(|change| [first(change)]).collect();
    code.write(changes.iter().zip(&firsts).map(|(change, first)| (change.address, &first[..])))?;
    for (tid, _) in tracer.stopped() {
        tracer.release(tid)?;
    }
    left
}

/// Waits until no thread stands in the middle of a place, or will return there from a signal handler.
fn leave(tracer: &mut Tracer, code: &CodeMemory, changes: &[Change]) -> io::Result<()> {
    let mut pointers = BTreeMap::new();
    let is_harmless = |pc: u64| !changes.iter().any(|change| change.middle().contains(&pc));
    tracer.settle(PATIENCE, is_harmless, |tracee, pc| {
        let inside = changes.iter().filter(|change| change.middle().contains(&pc));
        let copy = inside.flat_map(|change| &change.copies).find(|(original, _)| *original == pc);
        let mut registers = tracee.registers()?;
        pointers.insert(tracee.tid, registers.rsp);
        if let Some((_, copy)) = copy {
            registers.rip = *copy;
            tracee.set_registers(&registers)?;
        }
        Ok(())
    })?;
    let mut addresses: Vec<u64> = changes.iter().map(|change| change.address).collect();
    addresses.sort_unstable();
    let is_middle = |pc: u64| {
        let before = addresses[..addresses.partition_point(|address| *address < pc)].last();
        before.is_some_and(|address| pc < address + JUMP_BYTES as u64)
    };
    let end = Instant::now() + HANDLERS;
    while any_returns_to(code.process(), tracer.pid(), &pointers, &is_middle)? {
        if Instant::now() > end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        while let Some((tid, stop)) = tracer.next_stop(LOOK)? {
            if !matches!(stop, Stop::Breakpoint(_)) {
                tracer.release(tid)?;
            }
        }
    }
    Ok(())
}

/// Runs the calling thread on each processor once, so that each has fetched its instructions anew.
pub fn visit_all_processors() {
    // SAFETY: zeros are an empty set, the sets are live, and a number beyond their size is not added. If a processor may not be
    // used, the previous set stays.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        libc::sched_getaffinity(0, size, &raw mut before);
        for processor in 0..libc::sysconf(libc::_SC_NPROCESSORS_ONLN).max(1) as usize {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size, &raw const set);
        }
        libc::sched_setaffinity(0, size, &raw const before);
    }
}
