//! Time that threads are off the CPU: from context switches to counts of [`Event::OFF_CPU`](dwell_profile::Event::OFF_CPU).
//!
//! Enters: where and when threads leave a CPU, and when they get one again, in order of time. Leaves: a number of periods for each
//! wait, its place and its stack. Never here: time on a CPU.
//!
//! A wait counts once for each period that it lasts. The part that is left over counts with a probability of its share of a
//! period, so that many short waits add up to their time, whatever their rhythm. Most waits are shorter than a period and count
//! nothing; only stacks of the others are unwound, or of those that last longer than a round.

use dwell_attribution::Interval;
use dwell_profile::{DerivedEvent, EventIndex, Pid, Tid, VirtualAddress};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Collector,
    attribution::Attribution,
    call_stacks::{CallStacks, UnwoundStack},
    counts::SampleCounts,
    unknown::Cause,
};
use crate::{
    host::Host,
    random::Random,
    source::{
        owned_record::RawCallStack,
        records::{Sample, SwitchTo},
    },
};

/// The waits of all threads.
#[derive(Debug)]
pub struct Waits {
    /// The event that counts the time off the CPU.
    event: EventIndex,
    period_ns: u64,
    random: Random,
    threads: FxHashMap<Tid, Wait>,
    /// Threads that have ended, at most as many as the machine has numbers for. Those of a whole machine leave their CPU once
    /// more after that.
    ended: FxHashSet<Tid>,
}

/// A thread that is off the CPU.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) pid: Pid,
    /// The time that is not counted yet begins here.
    since_ns: u64,
    /// Whether the thread could run, if it had a CPU.
    pub(super) is_ready: bool,
    pub(super) place: WaitPlace,
}

/// The place at which a thread waits, as far as it is known.
#[derive(Debug)]
pub(super) enum WaitPlace {
    /// The sample and the copy of the stack when the thread left its CPU.
    Raw(Sample, Box<RawCallStack>),
    /// The user instruction that entered the kernel, and the stack.
    Unwound(VirtualAddress, UnwoundStack),
    /// The kernel does not show it, or the thread left its CPU before it was watched.
    Unknown,
}

/// A part of a wait that is to be counted: its event, the thread, where it waits, and the number of periods.
pub(super) struct CountedWait<'a> {
    pub(super) event: EventIndex,
    pub(super) tid: Tid,
    pub(super) wait: &'a mut Wait,
    pub(super) periods: u64,
}

impl Waits {
    /// Returns the waits of no thread. `seed` may be any number.
    pub fn new(event: EventIndex, period_ns: u64, seed: u64) -> Self {
        let (threads, ended) = Default::default();
        Waits { event, period_ns: period_ns.max(1), random: Random::new(seed), threads, ended }
    }

    /// Returns the event that counts the time off the CPU.
    pub(super) fn event(&self) -> EventIndex {
        self.event
    }

    /// Sets the period from now on.
    pub fn set_period(&mut self, period_ns: u64) {
        self.period_ns = period_ns.max(1);
    }

    /// A thread leaves its CPU. If it was thought to wait already, its return was lost, and nothing of that wait is known.
    pub(super) fn begin(&mut self, time_ns: u64, sample: Sample, stack: Box<RawCallStack>) {
        let (pid, tid) = (sample.pid, sample.tid);
        if pid == Pid::IDLE || pid == Pid::ENDED || self.ended.remove(&tid) {
            return;
        }
        let place = WaitPlace::Raw(sample, stack);
        self.threads.insert(tid, Wait { pid, since_ns: time_ns, is_ready: false, place });
    }

    /// A thread was off the CPU already at `time_ns`, when recording began. `pc` is the user instruction at which it waits, where
    /// that is known.
    pub fn begin_unseen(&mut self, time_ns: u64, (pid, tid): (Pid, Tid), pc: Option<VirtualAddress>) {
        let place = pc.map_or(WaitPlace::Unknown, |pc| WaitPlace::Unwound(pc, UnwoundStack::of_place(pc)));
        let wait = Wait { pid, since_ns: time_ns, is_ready: false, place };
        self.threads.entry(tid).or_insert(wait);
    }

    /// A thread got a CPU or left it. If it had waited for a period or more, its wait is counted.
    pub(super) fn switch(
        &mut self,
        time_ns: u64,
        (pid, tid): (Pid, Tid),
        to: SwitchTo,
        count: impl FnOnce(CountedWait<'_>),
    ) {
        if to == SwitchTo::Running {
            let Some(mut wait) = self.threads.remove(&tid) else { return };
            let periods = self.periods(time_ns.saturating_sub(wait.since_ns));
            if periods > 0 {
                count(CountedWait { event: self.event, tid, wait: &mut wait, periods });
            }
        } else if pid != Pid::IDLE && pid != Pid::ENDED && !self.ended.contains(&tid) {
            let unknown = Wait { pid, since_ns: time_ns, is_ready: false, place: WaitPlace::Unknown };
            self.threads.entry(tid).or_insert(unknown).is_ready = to == SwitchTo::Ready;
        }
    }

    /// A thread was seen running.
    pub(super) fn saw_running(&mut self, tid: Tid) {
        self.threads.remove(&tid);
    }

    /// A thread began. Its number may have been that of a thread that has ended.
    pub(super) fn begin_thread(&mut self, tid: Tid) {
        self.threads.remove(&tid);
        self.ended.remove(&tid);
    }

    /// A thread ended.
    pub(super) fn end_thread(&mut self, tid: Tid) {
        self.threads.remove(&tid);
        self.ended.insert(tid);
    }

    /// Context switches were lost. Threads that seem to wait may have run meanwhile.
    pub fn forget_all(&mut self) {
        self.threads.clear();
    }

    /// Returns the waits whose stacks were not unwound yet.
    pub(super) fn raw(&mut self) -> impl Iterator<Item = &mut Wait> {
        self.threads.values_mut().filter(|wait| matches!(wait.place, WaitPlace::Raw(..)))
    }

    /// Counts the time of all waits up to now. They go on.
    pub(super) fn settle(&mut self, now_ns: u64, mut count: impl FnMut(CountedWait<'_>)) {
        let Waits { event, threads, random, period_ns, .. } = self;
        for (tid, wait) in threads {
            let duration_ns = now_ns.saturating_sub(wait.since_ns);
            wait.since_ns = wait.since_ns.max(now_ns);
            let periods = periods_of(duration_ns, *period_ns, random);
            if periods > 0 {
                count(CountedWait { event: *event, tid: *tid, wait, periods });
            }
        }
    }

    fn periods(&mut self, duration_ns: u64) -> u64 {
        periods_of(duration_ns, self.period_ns, &mut self.random)
    }
}

impl Wait {
    /// Unwinds the stack, if that was not done yet, and drops its copy.
    pub(super) fn unwind<H: Host>(&mut self, attribution: &mut Attribution<H>, stacks: &mut CallStacks) {
        let WaitPlace::Raw(sample, stack) = &self.place else { return };
        self.place = match &sample.registers {
            Some(registers) => {
                let execution = attribution.execution_of(self.pid);
                let unwound = stacks.unwound(attribution, sample, stack, execution);
                WaitPlace::Unwound(registers.entered_from(), unwound)
            }
            None => WaitPlace::Unknown, // The kernel shows no registers of 32-bit code.
        };
    }
}

/// The parts of the collector in which the periods of waits are counted.
pub(super) struct WaitSums<'a, H> {
    pub(super) attribution: &'a mut Attribution<H>,
    pub(super) counts: &'a mut SampleCounts,
    pub(super) call_stacks: &'a mut CallStacks,
}

impl<H: Host> WaitSums<'_, H> {
    /// Counts a part of a wait at the user instruction that entered the kernel. Waits of the kernel's own threads are not
    /// counted: most of them always wait.
    pub(super) fn add(&mut self, time_ns: u64, counted: CountedWait<'_>) {
        let CountedWait { event, tid, wait, periods } = counted;
        let WaitSums { attribution, counts, call_stacks } = self;
        let interval = Interval { since_ns: time_ns, until_ns: time_ns };
        let context = attribution.context((wait.pid, tid, None), interval);
        if attribution.processes.get(wait.pid).is_some_and(|process| process.kernel_thread) {
            return;
        }
        if !attribution.keeps(counts, context.execution, event.into(), periods) {
            return;
        }
        wait.unwind(attribution, call_stacks);
        let place = match &wait.place {
            WaitPlace::Unwound(pc, _) => {
                (attribution.user_place(wait.pid, *pc, context.execution), pc.as_offset())
            }
            _ => (Err(Cause::NoPlace), 0),
        };
        attribution.count(counts, &context, event.into(), place, periods);
        if wait.is_ready {
            let preempted = DerivedEvent::Preempted.into();
            attribution.count(counts, &context, preempted, place, periods);
        }
        if let (WaitPlace::Unwound(_, stack), true) = (&wait.place, call_stacks.is_on()) {
            call_stacks.add_unwound(attribution, event, (wait.pid, stack), &context, periods);
        }
    }
}

impl<H: Host> Collector<H> {
    /// Calls `act` with the waits and with where they are counted, if the time off the CPU is counted.
    pub(super) fn with_waits(&mut self, act: impl FnOnce(&mut Waits, &mut WaitSums<'_, H>)) {
        let Collector { waits: Some(waits), attribution, counts, call_stacks, .. } = self else { return };
        act(waits, &mut WaitSums { attribution, counts, call_stacks });
    }

    /// Unwinds the stacks of threads that still wait, so that their copies can be dropped.
    pub fn unwind_waits(&mut self) {
        self.with_waits(|waits, sums| {
            waits.raw().for_each(|wait| wait.unwind(sums.attribution, sums.call_stacks));
        });
    }

    /// Counts the time until now of threads that still wait.
    pub fn settle_waits(&mut self, now_ns: u64) {
        self.with_waits(|waits, sums| waits.settle(now_ns, |wait| sums.add(now_ns, wait)));
    }
}

/// Returns the number of periods that a duration counts for: on average, its quotient.
fn periods_of(duration_ns: u64, period_ns: u64, random: &mut Random) -> u64 {
    let begun = (random.uniform() * period_ns as f64) as u64;
    duration_ns.saturating_add(begun) / period_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::records::Mode;

    const PERIOD: u64 = 1_000_000;

    fn leave(waits: &mut Waits, time_ns: u64, tid: u32) {
        let (pid, tid) = (Pid(7), Tid(tid));
        let sample =
            Sample { mode: Mode::Kernel, pc: VirtualAddress(1), pid, tid, cpu: None, registers: None };
        waits.begin(time_ns, sample, Box::default());
    }

    fn get_cpu(waits: &mut Waits, time_ns: u64, tid: u32) -> u64 {
        let mut periods = 0;
        let count = |counted: CountedWait<'_>| periods += counted.periods;
        waits.switch(time_ns, (Pid(7), Tid(tid)), SwitchTo::Running, count);
        periods
    }

    fn settled(waits: &mut Waits, now_ns: u64) -> u64 {
        let mut periods = 0;
        waits.settle(now_ns, |counted| periods += counted.periods);
        periods
    }

    #[test]
    fn waits_add_up_to_their_time() {
        let mut waits = Waits::new(EventIndex(0), PERIOD, 1);
        let mut periods = 0;
        // A tenth, a third, one and a half and seven periods, each a thousand times.
        let durations = [100_000, 333_333, 1_500_000, 7_000_000];
        let mut now = 0;
        for duration in durations.iter().cycle().take(4000) {
            leave(&mut waits, now, 8);
            now += duration;
            periods += get_cpu(&mut waits, now, 8);
        }
        let expected = 1000.0 * durations.iter().sum::<u64>() as f64 / PERIOD as f64;
        assert!((periods as f64 / expected - 1.0).abs() < 0.02, "{periods} of {expected}");
    }

    #[test]
    fn a_wait_that_goes_on_is_counted_once() {
        let mut waits = Waits::new(EventIndex(0), PERIOD, 1);
        leave(&mut waits, 0, 8);
        assert_eq!(settled(&mut waits, 10 * PERIOD), 10);
        assert_eq!(settled(&mut waits, 10 * PERIOD), 0);
        assert_eq!(get_cpu(&mut waits, 30 * PERIOD, 8), 20);
        assert_eq!(settled(&mut waits, 90 * PERIOD), 0);
    }

    #[test]
    fn a_wait_whose_end_is_not_known_is_not_counted() {
        let counts = |change: fn(&mut Waits)| {
            let mut waits = Waits::new(EventIndex(0), PERIOD, 1);
            leave(&mut waits, 0, 8);
            change(&mut waits);
            settled(&mut waits, 100 * PERIOD)
        };
        assert_eq!(counts(|_| {}), 100);
        assert_eq!(counts(|waits| waits.forget_all()), 0);
        assert_eq!(counts(|waits| waits.saw_running(Tid(8))), 0);
        assert_eq!(counts(|waits| waits.end_thread(Tid(8))), 0);
        // A thread of a whole machine leaves its CPU once more after its end.
        let leaves_after_its_end = |waits: &mut Waits| {
            waits.end_thread(Tid(8));
            leave(waits, PERIOD, 8);
        };
        assert_eq!(counts(leaves_after_its_end), 0);
        assert_eq!(counts(|waits| leave(waits, 60 * PERIOD, 8)), 40);
    }

    #[test]
    fn a_thread_that_waited_before_it_was_watched_is_counted_from_then_on() {
        let mut waits = Waits::new(EventIndex(0), PERIOD, 1);
        waits.begin_unseen(5 * PERIOD, (Pid(7), Tid(8)), Some(VirtualAddress(0x100)));
        assert_eq!(get_cpu(&mut waits, 9 * PERIOD, 8), 4);
        // The idle task and the kernel's placeholder for ended tasks do not wait.
        waits.switch(0, (Pid::IDLE, Tid(0)), SwitchTo::Waiting, |_| {});
        waits.switch(0, (Pid::ENDED, Tid(1)), SwitchTo::Waiting, |_| {});
        assert_eq!(settled(&mut waits, 100 * PERIOD), 0);
    }
}
