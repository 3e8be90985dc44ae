//! Finds out how long a thread takes for what it does after a burst.
//!
//! Enters: a thread that was just released, and what it will do: its registers and memory as they were. Leaves: a part of its path, and
//! the CPU time that it took for exactly that. Never here: a stop.

use super::{Remote, now_ns, sampler::Sampler, sleep, store, time_ns};
use crate::{
    emulate::{
        Emulator, End, Thread,
        moments::{Moment, Moments},
    },
    path::PathCounter,
    sys::tracer::{Ending, Slot},
};

/// CPU time after a release for which a thread is slower than usual, because its caches and predictions were those of others.
const SLOW_NS: u64 = 580_000;
/// Number of moments from then on that are looked for.
const MOMENTS: usize = 4;
/// Time between two looks for samples, and most looks: a thread may have to wait for its CPU.
const LOOK_NS: u64 = 500_000;
const LOOKS_MAX: usize = 16;
/// Limit of the CPU time of emulation while the thread runs, and of the time, if others want the CPU.
const CPU_NS_MAX: u64 = 120_000_000;
const NS_MAX: u64 = 500_000_000;

/// Emulates a released thread from where emulation stopped on, and stores what is known of its time.
pub fn time(emulator: &mut Emulator, thread: &mut Thread<Remote>, sampler: Sampler, slot: &mut Slot) {
    let cpu_begin_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let moments = moments_of(sampler);
    yield_to_all();
    let begin_ns = now_ns();
    let is_late = || {
        let is_long = now_ns() - begin_ns > NS_MAX;
        is_long || time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns > CPU_NS_MAX
    };
    let mut counter = PathCounter::new(0);
    let mut moments = Moments::new(&moments, SLOW_NS);
    let end = emulator.find(thread, &mut counter, &mut moments, is_late);
    let untimed = match moments.timed(counter.made()) {
        Some(timed) if store(slot, &timed.path) => {
            slot.timed_ns = timed.cpu_ns;
            Ending::Complete
        }
        Some(_) => Ending::TooManyTransfers,
        None if end == End::Complete => Ending::Differs,
        None => end.into(),
    };
    slot.untimed = untimed as u32;
    slot.beside_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns;
}

/// Returns moments of a thread that was just released: a few of them after it became as fast as usual.
fn moments_of(mut sampler: Sampler) -> Vec<Moment> {
    let mut moments: Vec<Moment> = Vec::new();
    let first = |moments: &[Moment]| moments.partition_point(|moment| moment.cpu_ns < SLOW_NS);
    for _ in 0..LOOKS_MAX {
        sleep(LOOK_NS);
        sampler.take(&mut moments);
        if moments.len() >= first(&moments) + MOMENTS {
            break;
        }
    }
    moments.truncate(first(&moments) + MOMENTS);
    moments
}

/// Gives the calling thread the lowest priority.
fn yield_to_all() {
    const LOWEST: libc::c_int = 19;
    // SAFETY: takes no pointer. On Linux it is the calling thread's priority alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
}
