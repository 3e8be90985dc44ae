//! Observes the system calls of a thread for a few milliseconds.
//!
//! Enters: a thread, and when it is released. Leaves: its calls in order, with their times and what they wrote to its memory. Never here:
//! what they mean ([`crate::emulate::calls`]).
//!
//! The kernel's tracepoints report when a call begins and ends, and the thread does not stop. What the call wrote is in the sample if it is
//! on the stack, or in the file that was read ([`super::files`]). Otherwise it is read from memory as soon as we learn of the call, a few
//! microseconds later; a thread that changed it by then is emulated wrongly, which is noticed. While a process observes calls, those of
//! all others take the kernel a tenth of a microsecond longer.

use std::{
    io,
    ops::Range,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use dwell_profile::{CpuId, Pid, Tid};
use rustix::{param::page_size, process::getppid, thread::gettid};

use super::{copy::Remote, files::Files, writable::pages_of_file};
use crate::{
    emulate::calls::{Bytes, Call, Effect},
    registers::{REGISTER_COUNT, Registers},
    sys::{
        event::{Attributes, Counter, PerfEvent},
        ring::Ring,
        tracepoint,
    },
};

/// Pages of the ring, which has room for 200 calls.
const PAGES: usize = 64;
/// Bytes of the stack in a sample.
const STACK_BYTES: u32 = 512;
/// The event counts on whichever CPU its thread runs.
const ANY_CPU: CpuId = CpuId(u32::MAX);
/// Number of calls that are observed to see what that costs.
const CALLS_OBSERVED: usize = 64;
/// Time after which no more of them are awaited.
const PATIENCE: Duration = Duration::from_millis(20);
/// Types of records: losses and samples.
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Value for registers of 64-bit code.
const REGISTERS_64: u64 = 2;
/// Positions in a sample, in words: its event, its thread's CPU time so far, and the tracepoint's fields.
const EVENT: usize = 1;
const RUNNING_NS: usize = 7;
const FIELDS: usize = 8;
/// The numbers of the stack pointer and of two arguments among the general registers.
const STACK_POINTER: usize = 4;
const SECOND: usize = 6;
const FOURTH: usize = 10;
/// Position of the call's number among the fields, in bytes: their size, and what all tracepoints have, are before.
const NUMBER: usize = 4 + 8;

/// The numbers of both tracepoints, and what they cost.
#[derive(Clone, Copy)]
pub struct Tracepoints {
    enter: u64,
    exit: u64,
    /// Time in ns that an observed call takes before it begins and after it has ended.
    pub around_ns: u64,
}

impl Tracepoints {
    /// Finds them, and observes calls of a thread of ours to see what that costs. Needs permission for both.
    pub fn find() -> io::Result<Tracepoints> {
        let mut tracepoints = Tracepoints {
            enter: tracepoint::id("raw_syscalls/sys_enter")?,
            exit: tracepoint::id("raw_syscalls/sys_exit")?,
            around_ns: 0,
        };
        let calls = thread::scope(|scope| {
            let ((to_us, from_thread), (to_thread, from_us)) = (mpsc::channel(), mpsc::channel());
            scope.spawn(move || {
                let _ = to_us.send(gettid());
                // The events begin to count together, because the thread waits.
                if from_us.recv().is_ok() {
                    for _ in 0..CALLS_OBSERVED {
                        let _ = getppid();
                    }
                }
            });
            let tid = Tid(from_thread.recv().map_err(io::Error::other)?.as_raw_nonzero().get() as u32);
            let mut observer = CallObserver::open(tid, tracepoints, Files::of(Pid(std::process::id())))?;
            observer.start()?;
            to_thread.send(()).map_err(io::Error::other)?;
            let end = Instant::now() + PATIENCE;
            while observer.calls.len() < CALLS_OBSERVED && Instant::now() < end {
                observer.look();
            }
            Ok::<_, io::Error>(observer.finish().0)
        })?;
        let mut around: Vec<u64> =
            calls.windows(2).map(|pair| pair[1].begin_ns.saturating_sub(pair[0].end_ns)).collect();
        around.sort_unstable();
        tracepoints.around_ns = *around.get(around.len() / 2).ok_or(io::ErrorKind::TimedOut)?;
        Ok(tracepoints)
    }
}

/// A call, and the thread's CPU time since its release when the call began and ended.
pub struct ObservedCall {
    pub call: Call,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Its time in ns that is not in between.
    pub around_ns: u64,
}

/// The tracepoints of one thread.
pub struct CallObserver {
    enters: PerfEvent,
    exits: PerfEvent,
    exit: u64,
    ring: Ring,
    remote: Remote,
    files: Files,
    /// Pages of files that were mapped since it was last looked at.
    pub mapped: Vec<u64>,
    /// When the call that has not ended began.
    begin_ns: Option<u64>,
    calls: Vec<ObservedCall>,
    /// Whether no call is missing.
    is_whole: bool,
    around_ns: u64,
}

impl CallObserver {
    /// Opens the events, which do not sample yet.
    pub fn open(tid: Tid, tracepoints: Tracepoints, files: Files) -> io::Result<CallObserver> {
        let attributes = |id| Attributes { times: true, ..Attributes::of(Counter::of_tracepoint(id), 1) };
        let enters = PerfEvent::open(&attributes(tracepoints.enter), Some(tid), ANY_CPU)?;
        let of_exits = Attributes {
            registers: true,
            fields: true,
            stack_bytes: STACK_BYTES,
            ..attributes(tracepoints.exit)
        };
        let exits = PerfEvent::open(&of_exits, Some(tid), ANY_CPU)?;
        let ring = Ring::map(&exits, PAGES * page_size())?;
        enters.set_output(&exits)?;
        Ok(CallObserver {
            exit: exits.id()?,
            enters,
            exits,
            ring,
            remote: Remote::of(tid.0 as libc::pid_t),
            files,
            mapped: Vec::new(),
            begin_ns: None,
            calls: Vec::new(),
            is_whole: true,
            around_ns: tracepoints.around_ns,
        })
    }

    /// Starts to observe the thread, which is stopped in user mode.
    pub fn start(&mut self) -> io::Result<()> {
        self.files.find_positions();
        self.exits.enable()?;
        self.enters.enable()
    }

    /// Observes what happened since the last call. Call it as often as possible: what a call wrote must still be there.
    pub fn look(&mut self) {
        let CallObserver { exit, ring, remote, files, mapped, begin_ns, calls, is_whole, around_ns, .. } =
            self;
        ring.each_record(&mut Vec::new(), |record| {
            let words = record.as_chunks::<8>().0;
            let word = |at: usize| words.get(at).map(|bytes| u64::from_ne_bytes(*bytes));
            match word(0).map(|header| header as u32) {
                Some(RECORD_SAMPLE) if word(EVENT) != Some(*exit) => *begin_ns = word(RUNNING_NS),
                Some(RECORD_SAMPLE) if *is_whole => match (begin_ns.take(), word(RUNNING_NS), call(record)) {
                    (Some(begin_ns), Some(end_ns), Some(mut call)) => {
                        files.note(&mut call);
                        if let Effect::Writes(bytes) = Effect::of(call.number, &call.general)
                            && call.written.is_none()
                        {
                            call.written =
                                remote.bytes(bytes.address, bytes.length).map(|b| (bytes.address, b));
                        }
                        mapped.extend(mapping(&call).into_iter().flatten());
                        calls.push(ObservedCall { call, begin_ns, end_ns, around_ns: *around_ns });
                    }
                    // It began before.
                    (None, ..) if calls.is_empty() => {}
                    _ => *is_whole = false,
                },
                Some(RECORD_LOST) => *is_whole = false,
                _ => {}
            }
        });
    }

    /// Returns all calls, up to the first one that is not known, and the files that were read.
    pub fn finish(self) -> (Vec<ObservedCall>, Files) {
        (self.calls, self.files)
    }
}

/// Returns what a record says of a call that ended; `None` if it was made by 32-bit code. What it wrote is only there if that is on the
/// part of the stack that the record contains.
fn call(record: &[u8]) -> Option<Call> {
    let fields = record.get(8 * FIELDS..)?;
    let size = u32::from_ne_bytes(*fields.first_chunk()?) as usize;
    let number = u64::from_ne_bytes(*fields.get(NUMBER..)?.first_chunk()?);
    let words = fields.get(4 + size..)?.as_chunks::<8>().0;
    let mut next = words.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    if next.next()? != REGISTERS_64 {
        return None;
    }
    let mut registers = Registers([0; REGISTER_COUNT]);
    for register in &mut registers.0 {
        *register = next.next()?;
    }
    let general = std::array::from_fn(|number| registers.general(number as u8));
    let written = match Effect::of(number, &general) {
        Effect::Writes(bytes) => {
            let stack = words.get(REGISTER_COUNT + 1..)?.as_flattened();
            on_stack(stack, general[STACK_POINTER], bytes).map(|found| (bytes.address, found.to_vec()))
        }
        _ => None,
    };
    Some(Call { number, general, written })
}

/// Returns the pages of a file that a call has mapped.
fn mapping(call: &Call) -> Option<Range<u64>> {
    let [start, length, flags] = [0, SECOND, FOURTH].map(|register: usize| call.general[register]);
    let is_file = call.number == libc::SYS_mmap as u64 && flags as i32 & libc::MAP_ANONYMOUS == 0;
    (is_file && (start as i64) > 0).then(|| pages_of_file(start, start.saturating_add(length)))
}

/// Returns bytes of the stack, whose part in a record begins with its size and ends with how much of that is there.
fn on_stack(record: &[u8], top: u64, bytes: Bytes) -> Option<&[u8]> {
    let size = u64::from_ne_bytes(*record.first_chunk()?) as usize;
    let stack = record.get(8..8 + size)?;
    let filled = u64::from_ne_bytes(*record.get(8 + size..)?.first_chunk()?) as usize;
    let start = usize::try_from(bytes.address.checked_sub(top)?).ok()?;
    stack.get(..filled)?.get(start..start.checked_add(bytes.length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_observation_costs_is_known() {
        let around_ns = Tracepoints::find().unwrap().around_ns;
        assert!((50..100_000).contains(&around_ns), "{around_ns} ns");
    }

    #[test]
    fn calls_of_a_thread_are_observed() {
        let tracepoints = Tracepoints::find().unwrap();
        let (to_us, from_thread) = std::sync::mpsc::channel();
        let (to_thread, from_us) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            to_us.send(Tid(gettid().as_raw_nonzero().get() as u32)).unwrap();
            from_us.recv().unwrap();
            for _ in 0..3 {
                let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: the kernel writes the live value.
                unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now) };
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(2) {}
            }
        });
        let mut observer =
            CallObserver::open(from_thread.recv().unwrap(), tracepoints, Files::of(Pid(std::process::id())))
                .unwrap();
        observer.start().unwrap();
        to_thread.send(()).unwrap();
        while !thread.is_finished() {
            observer.look();
        }
        thread.join().unwrap();
        observer.look();
        let (calls, _) = observer.finish();
        let is_ours = |observed: &&ObservedCall| observed.call.number == libc::SYS_clock_gettime as u64;
        let ours: Vec<&ObservedCall> = calls.iter().filter(is_ours).collect();
        assert_eq!(ours.len(), 3);
        let mut last = (0, 0);
        for observed in ours {
            let Call { general, written, .. } = &observed.call;
            let (at, bytes) = written.as_ref().unwrap();
            assert_eq!((*at, bytes.len(), general[0]), (general[6], 16, 0));
            let number = |at: usize| i64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            let time = (number(0), number(8));
            assert!(time > last && observed.begin_ns < observed.end_ns);
            last = time;
        }
    }
}
