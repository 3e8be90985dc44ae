//! Finds out how long a thread takes for what it does after a burst.
//!
//! Enters: a thread that was just released, and what it will do: its registers and memory as they were. Leaves: a part of its path, and
//! the CPU time that it took for exactly that. Never here: a stop.

use std::{hint, io};

use super::{
    Remote,
    calls::{CallObserver, ObservedCall},
    files::Files,
    now_ns,
    sampler::Sampler,
    sleep, store, time_ns,
};
use crate::{
    emulate::{
        Emulator, End, Thread,
        calls::{Call, Calls},
        moments::{Moment, Moments},
        strings::REPETITIONS_MAX_BESIDE,
    },
    sys::tracer::{Ending, Slot},
};

/// CPU time after a release for which a thread may be slower than usual, because its caches and predictions were those of others.
const SLOW_NS: u64 = 2_380_000;
/// Number of moments from then on that are looked for.
const MOMENTS: usize = 6;
/// Time between two looks for samples, and the time after which no more are awaited: a thread may have to wait for its CPU.
const LOOK_NS: u64 = 500_000;
const LOOKS_NS: u64 = 24 * LOOK_NS;
/// Time for which calls are observed after the last moment: emulation goes on after it, too.
const TAIL_NS: u64 = 300_000;
/// Greatest part of a thread's time that observing its calls may take.
const AROUND_PART_MAX: f64 = 0.15;
/// Number of turns of an empty loop between two looks for calls, about a microsecond.
const TURNS: usize = 32;
/// Limit of the CPU time of emulation while the thread runs, and of the time, if others want the CPU.
const CPU_NS_MAX: u64 = 120_000_000;
const NS_MAX: u64 = 500_000_000;

/// What observes a thread while it runs: its moments and, if it makes many, its system calls.
pub struct Observer {
    pub sampler: Sampler,
    /// The thread's CPU time in ns that a sample takes.
    pub sample_ns: u64,
    pub calls: Option<CallObserver>,
}

impl Observer {
    /// Starts to observe the thread, which is stopped in user mode.
    pub fn start(&mut self) -> io::Result<()> {
        self.calls.as_mut().map_or(Ok(()), CallObserver::start)?;
        self.sampler.start()
    }

    /// Returns moments of a thread that was just released, a few of them after it became as fast as usual, with its time in user mode; and
    /// its calls, with the files that they read. `meanwhile` does a part of other work, and returns whether that was all.
    fn observe(mut self, mut meanwhile: impl FnMut() -> bool) -> (Vec<Moment>, Vec<Call>, Option<Files>) {
        let mut moments: Vec<Moment> = Vec::new();
        let first = |moments: &[Moment]| moments.partition_point(|moment| moment.cpu_ns < SLOW_NS);
        let begin_ns = now_ns();
        let mut end_ns = begin_ns + LOOKS_NS;
        let mut is_all = false;
        while now_ns() < end_ns {
            is_all = is_all || meanwhile();
            match &mut self.calls {
                None if is_all => sleep(LOOK_NS),
                None => continue,
                Some(calls) => {
                    calls.look();
                    (0..TURNS).for_each(|_| hint::spin_loop());
                }
            }
            let before = moments.len();
            self.sampler.take(&mut moments);
            if moments.len() > before && moments.len() >= first(&moments) + MOMENTS {
                if self.calls.is_none() {
                    break;
                }
                end_ns = end_ns.min(now_ns() + TAIL_NS);
            }
        }
        moments.truncate(first(&moments) + MOMENTS);
        let (calls, files) = self.calls.map(CallObserver::finish).unzip();
        let calls = calls.unwrap_or_default();
        take_into_account(&calls, self.sample_ns, &mut moments);
        (moments, calls.into_iter().map(|observed| observed.call).collect(), files)
    }
}

/// Says of moments how many calls were before, and leaves out what the thread did not do itself: its calls, and samples.
fn take_into_account(calls: &[ObservedCall], sample_ns: u64, moments: &mut Vec<Moment>) {
    let mut is_known = true;
    for (samples, moment) in (0..).zip(moments.iter_mut()) {
        moment.calls = calls.partition_point(|observed| observed.end_ns <= moment.cpu_ns);
        let before = &calls[..moment.calls];
        let around_ns: u64 = before.iter().map(|observed| observed.around_ns).sum();
        let in_calls_ns: u64 = before.iter().map(|observed| observed.end_ns - observed.begin_ns).sum();
        let left_out_ns = in_calls_ns + around_ns + samples * sample_ns;
        moment.cpu_ns = moment.cpu_ns.saturating_sub(left_out_ns);
        is_known &= around_ns as f64 <= AROUND_PART_MAX * moment.cpu_ns as f64;
    }
    if !is_known {
        // What observing the calls costs is not known that well.
        moments.clear();
    }
}

/// Emulates a released thread from where emulation stopped on, and stores what is known of its time. `heap_end` is where its heap ended
/// when it was released. Returns the files that its process read.
pub fn time(
    emulator: &mut Emulator,
    thread: &mut Thread<Remote>,
    observer: Observer,
    heap_end: Option<u64>,
    slot: &mut Slot,
) -> Option<Files> {
    let cpu_begin_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let (moments, calls, files) = observer.observe(|| emulator.copy_near(thread));
    yield_to_all();
    let makes_many_calls = moments.is_empty() && !calls.is_empty();
    thread.calls = Calls::new(calls, heap_end);
    thread.repetitions_max = REPETITIONS_MAX_BESIDE;
    let begin_ns = now_ns();
    let is_late = || {
        let is_long = now_ns() - begin_ns > NS_MAX;
        is_long || time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns > CPU_NS_MAX
    };
    let mut moments = Moments::new(&moments, SLOW_NS);
    let end = emulator.find(thread, &mut moments, is_late);
    let mut untimed = match moments.timed(emulator.made()) {
        Some(timed) if store(slot, &timed.path) => {
            slot.timed_ns = timed.cpu_ns;
            Ending::Complete
        }
        Some(_) => Ending::TooManyTransfers,
        None if makes_many_calls => Ending::SystemCall,
        None if moments.is_slow() => Ending::Slow,
        None if end == End::Complete => Ending::Differs,
        None => end.into(),
    };
    if let Some(path) = moments.followed().filter(|_| slot.timed_ns == 0) {
        // What cannot be timed is often of another kind: without it, all else would count for too much.
        if !store(slot, path) {
            untimed = Ending::TooManyTransfers;
        }
    }
    slot.untimed = untimed as u32;
    thread.memory.finish();
    slot.beside_ns = time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns;
    files
}

/// Gives the calling thread the lowest priority.
fn yield_to_all() {
    const LOWEST: libc::c_int = 19;
    // SAFETY: takes no pointer. On Linux it is the calling thread's priority alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
}
