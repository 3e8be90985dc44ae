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
    sampler::{Costs, PERIOD_NS, Sampler},
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

/// Number of moments from then on that are looked for.
const MOMENTS: usize = 6;
/// CPU time between three samples, rather less than more.
const SPAN_NS: u64 = 2 * PERIOD_NS - 100_000;
/// Time between two looks for samples, and the time after which no more are awaited when the thread should be as fast as usual: it may
/// have to wait for its CPU.
const LOOK_NS: u64 = 500_000;
const LOOKS_NS: u64 = 18 * LOOK_NS;
/// Time after which pages that have come to memory meanwhile are copied.
const AGAIN_NS: u64 = 200_000;
/// Time for which calls are observed after the last moment: emulation goes on after it, too.
const TAIL_NS: u64 = 300_000;
/// Greatest part of a thread's time that observing its calls may take, and its page faults, whose cost is known better. Code that uses
/// new memory is another part of the program, so that without it the rest would say too little.
const AROUND_PART_MAX: f64 = 0.15;
const FAULTS_PART_MAX: f64 = 0.35;
/// Number of turns of an empty loop between two looks for calls, about a microsecond.
const TURNS: usize = 32;
/// Limit of the CPU time of emulation while the thread runs, and of the time, if others want the CPU.
const CPU_NS_MAX: u64 = 250_000_000;
const NS_MAX: u64 = 1_000_000_000;

/// What observes a thread while it runs: its moments and, if it makes many, its system calls.
pub struct Observer {
    pub sampler: Sampler,
    pub costs: Costs,
    pub calls: Option<CallObserver>,
    /// Pages of files that it has mapped.
    pub mapped: Vec<u64>,
    /// This is why its time would not be the usual one, if it would not.
    pub untimed: Option<Ending>,
    /// The CPU time after its release for which it may be slower than usual.
    pub slow_ns: u64,
}

impl Observer {
    /// Starts to observe the thread, which is stopped in user mode.
    pub fn start(&mut self) -> io::Result<()> {
        self.calls.as_mut().map_or(Ok(()), CallObserver::start)?;
        self.sampler.start()
    }

    /// Returns what is seen of a thread that was just released until a few moments after it became as fast as usual. `meanwhile` does a
    /// part of other work, with the pages of files that the thread has mapped, and returns whether that was all for now.
    fn observe(mut self, mut meanwhile: impl FnMut(&[u64]) -> bool) -> Observed {
        let mut moments: Vec<Moment> = Vec::new();
        let slow_ns = self.slow_ns;
        let first = |moments: &[Moment]| moments.partition_point(|moment| moment.cpu_ns < slow_ns);
        let begin_ns = now_ns();
        let (mut end_ns, mut again_ns) = (begin_ns + slow_ns + LOOKS_NS, begin_ns);
        let mut is_all = false;
        while now_ns() < end_ns {
            if now_ns() >= again_ns {
                self.mapped.extend(self.calls.iter_mut().flat_map(|calls| calls.mapped.drain(..)));
                is_all = meanwhile(&self.mapped);
                again_ns = now_ns() + if is_all { AGAIN_NS } else { 0 };
            }
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
        let untimed = take_into_account(&calls, self.costs, &mut moments).err().or(self.untimed);
        Observed { moments, untimed, calls: calls.into_iter().map(|observed| observed.call).collect(), files }
    }
}

/// What was seen of a thread while it ran.
struct Observed {
    /// Where it was, with its time in user mode.
    moments: Vec<Moment>,
    /// Why that time is not known.
    untimed: Option<Ending>,
    calls: Vec<Call>,
    /// The files that its calls read.
    files: Option<Files>,
}

/// Says of moments how many calls were before, and leaves out what the thread did not do itself: its calls, page faults, and
/// samples. Fails with what takes too large a part of the time at some moment: that is not known so well.
fn take_into_account(calls: &[ObservedCall], costs: Costs, moments: &mut [Moment]) -> Result<(), Ending> {
    let mut known = Ok(());
    for (samples, moment) in (0..).zip(moments.iter_mut()) {
        moment.calls = calls.partition_point(|observed| observed.end_ns <= moment.cpu_ns);
        let before = &calls[..moment.calls];
        let around_ns: u64 = before.iter().map(|observed| observed.around_ns).sum();
        let in_calls_ns: u64 = before.iter().map(|observed| observed.end_ns - observed.begin_ns).sum();
        let in_faults_ns = moment.faults * costs.fault_ns;
        let left_out_ns = in_calls_ns + around_ns + in_faults_ns + samples * costs.sample_ns;
        moment.cpu_ns = moment.cpu_ns.saturating_sub(left_out_ns);
        let are_much = |ns: u64, part_max: f64| ns as f64 > part_max * moment.cpu_ns as f64;
        if are_much(around_ns, AROUND_PART_MAX) {
            known = Err(Ending::SystemCall);
        } else if are_much(in_faults_ns, FAULTS_PART_MAX) {
            known = known.and(Err(Ending::PageFaults));
        }
    }
    known
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
    let slow_ns = observer.slow_ns;
    let Observed { moments, untimed: why_unknown, calls, files } =
        observer.observe(|mapped| emulator.copy_near(thread, mapped));
    yield_to_all();
    thread.calls = Calls::new(calls, heap_end);
    thread.repetitions_max = REPETITIONS_MAX_BESIDE;
    let begin_ns = now_ns();
    let is_late = || {
        let is_long = now_ns() - begin_ns > NS_MAX;
        is_long || time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns > CPU_NS_MAX
    };
    let mut moments = Moments::new(&moments, slow_ns, SPAN_NS);
    let end = emulator.find(thread, &mut moments, is_late);
    let mut untimed = match moments.timed(emulator.made()).filter(|_| why_unknown.is_none()) {
        Some(timed) if store(slot, &timed.path) => {
            slot.timed_ns = timed.cpu_ns;
            Ending::Complete
        }
        Some(_) => Ending::TooManyTransfers,
        None if end == End::Complete => Ending::Differs,
        None => end.into(),
    };
    if untimed != Ending::SystemCall {
        // A call that is not known is the first thing to see to: the next bursts observe calls.
        untimed = why_unknown.unwrap_or(untimed);
    }
    if let Some(path) = moments.followed().filter(|_| slot.timed_ns == 0) {
        // What cannot be timed is often of another kind: without it, all else would count for too much.
        if !store(slot, &path) {
            untimed = Ending::TooManyTransfers;
        }
    }
    slot.untimed = untimed as u32;
    thread.memory.finish();
    slot.beside_ns += time_ns(libc::CLOCK_THREAD_CPUTIME_ID) - cpu_begin_ns;
    files
}

/// Gives the calling thread the lowest priority.
fn yield_to_all() {
    const LOWEST: libc::c_int = 19;
    // SAFETY: takes no pointer. On Linux it is the calling thread's priority alone.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(cpu_ns: u64, faults: u64) -> Moment {
        Moment { pc: 1, general: [0; 16], cpu_ns, faults, calls: 0 }
    }

    fn call(begin_ns: u64, end_ns: u64) -> ObservedCall {
        let call = Call { number: 39, general: [0; 16], written: None };
        ObservedCall { call, begin_ns, end_ns, around_ns: 10_000 }
    }

    #[test]
    fn time_that_the_thread_did_not_need_itself_is_left_out() {
        let costs = Costs { sample_ns: 16_000, fault_ns: 1_000 };
        let mut moments = [moment(600_000, 0), moment(1_200_000, 20)];
        assert_eq!(take_into_account(&[call(700_000, 800_000)], costs, &mut moments), Ok(()));
        assert_eq!(moments[0].cpu_ns, 600_000);
        assert_eq!(moments[1].cpu_ns, 1_200_000 - 100_000 - 10_000 - 20_000 - 16_000);
        assert_eq!(moments.map(|moment| moment.calls), [0, 1]);
    }

    #[test]
    fn a_time_of_which_much_is_left_out_is_not_known() {
        let costs = Costs { sample_ns: 0, fault_ns: 1_000 };
        let ended = |faults, calls: &[ObservedCall]| {
            take_into_account(calls, costs, &mut [moment(1_000_000, faults)])
        };
        assert_eq!(ended(100, &[]), Ok(()));
        assert_eq!(ended(300, &[]), Err(Ending::PageFaults));
        let calls: Vec<ObservedCall> = (0..30).map(|n| call(n * 1000, n * 1000 + 1)).collect();
        assert_eq!(ended(20, &calls), Err(Ending::SystemCall));
        // The calls before each moment are known all the same: the thread can be followed.
        let mut moments = [moment(100_000, 90), moment(2_000_000, 90)];
        assert_eq!(take_into_account(&calls, costs, &mut moments), Err(Ending::SystemCall));
        assert_eq!(moments.map(|moment| moment.calls), [30, 30]);
    }
}
