//! Recognizes moments of a running thread in its emulated future.
//!
//! Enters: where the thread was at some moments, with its registers, and where emulation is. Leaves: after how many steps it was
//! there, and the path between two moments. Never here: how a thread is sampled (`crate::sys::tracer`).
//!
//! A thread that was released goes the way that emulation computes, unless memory that it reads was changed before we copied it.
//! So all general registers of a sample are those of some emulated step. That proves the path up to there, if no other step has the
//! same ones. A state that comes again before the next system call that is known is not used.

use crate::path::Path;

/// Most steps that a processor makes in a nanosecond: eight in each cycle, at 5 GHz.
const STEPS_PER_NS_MAX: f64 = 40.0;
/// Emulation gives a moment up after so many times as many steps as the thread made before in the same time.
const PATIENCE: f64 = 2.0;
/// Number of moments in succession that are not met before emulation ends; one is enough if none was met.
const MISSES_MAX: u32 = 2;
/// Emulation looks for the same states after the last moment, for this part of the steps between moments.
const TAIL: f64 = 0.15;
/// It looks for them for so many steps at least for each nanosecond. The states of a loop that keeps what changes in memory come again and
/// again, and soon: faster than all but the slowest programs come to a moment.
const STEPS_PER_NS_TAIL: f64 = 0.5;
/// And until it has made this part of the steps that it would have made at the speed before the first moment that is used.
const TAIL_AS_BEFORE: f64 = 0.5;
/// A state that comes again within this part of the steps before is as good as one that does not: it is known when it was there.
const AGAIN: f64 = 0.01;
/// Number of moments that must be met for certain, two of them late enough to be used. As many that are used are enough.
const MOMENTS_MIN: usize = 3;
/// Steps in equal times may differ by this factor. States that were met by chance are at random distances.
const RATES_APART_MAX: f64 = 8.0;

/// A moment is where a running thread was, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The next instruction.
    pub pc: u64,
    /// The general registers, by their number in the instruction set.
    pub general: [u64; 16],
    /// The thread's CPU time in user mode since it was released, in ns.
    pub cpu_ns: u64,
    /// Number of page faults before, since then.
    pub faults: u64,
    /// Number of system calls before, since then, if they are known.
    pub calls: usize,
}

/// This is what the thread did between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    pub path: Path,
    /// The CPU time that the thread took for it, in ns.
    pub cpu_ns: u64,
}

/// A moment that emulation came to.
struct Met<'m> {
    moment: &'m Moment,
    /// Number of steps before.
    made: usize,
    /// The path since the first one that was met; empty if it is not used.
    path: Path,
}

/// Moments in the order of time, and how far emulation has come.
pub struct Moments<'m> {
    moments: &'m [Moment],
    /// CPU time from which on moments are used: shortly after a stop a thread is slower than usual.
    from_ns: u64,
    /// CPU time of a path that has no time.
    span_ns: u64,
    next: usize,
    misses: u32,
    met: Vec<Met<'m>>,
    /// Number of system calls that emulation has made.
    calls: usize,
}

impl<'m> Moments<'m> {
    /// Creates the list. Moments before `from_ns` only tell whether emulation is on the right way. `span_ns` is the CPU time between the
    /// first and the last one of a timed thread, as a rule.
    pub fn new(moments: &'m [Moment], from_ns: u64, span_ns: u64) -> Moments<'m> {
        Moments { moments, from_ns, span_ns, next: 0, misses: 0, met: Vec::new(), calls: 0 }
    }

    /// Returns where all moments are, in order.
    pub fn pcs(&self) -> Vec<u64> {
        let mut pcs: Vec<u64> = self.moments.iter().map(|moment| moment.pc).collect();
        pcs.sort_unstable();
        pcs.dedup();
        pcs
    }

    /// Returns the moments to look for before the next system call: the next one, and those that were met, to see whether their state
    /// comes again.
    pub fn awaited(&self) -> impl Iterator<Item = &'m Moment> {
        let all = self.met.iter().map(|met| met.moment).chain(self.moments.get(self.next));
        all.filter(|moment| moment.calls == self.calls)
    }

    /// Says how many system calls emulation has made. Returns whether other moments are awaited from now on.
    pub fn set_calls(&mut self, calls: usize) -> bool {
        let has_awaited = |moments: &Moments| moments.awaited().next().is_some();
        let before = self.calls != calls && has_awaited(self);
        let is_changed = self.calls != calls;
        self.calls = calls;
        is_changed && (before || has_awaited(self))
    }

    /// Returns whether a moment that is awaited is at `pc` with these registers.
    pub fn is_awaited(&self, pc: u64, general: &[u64; 16]) -> bool {
        self.awaited().any(|moment| moment.pc == pc && moment.general == *general)
    }

    /// Notes that emulation is at `pc` with these registers, after the steps of `path`. Returns whether other moments are awaited from
    /// now on.
    pub fn note(&mut self, pc: u64, general: &[u64; 16], path: Path) -> bool {
        let calls = self.calls;
        let is_here =
            |moment: &Moment| moment.calls == calls && moment.pc == pc && moment.general == *general;
        let (before, made) = (self.met.len(), path.steps as f64);
        // At which time it was here is unknown.
        self.met.retain(|met| !is_here(met.moment) || made <= (1.0 + AGAIN) * met.made as f64);
        let is_changed = self.met.len() < before;
        let Some(moment) = self.moments.get(self.next).filter(|moment| is_here(moment)) else {
            return is_changed;
        };
        (self.next, self.misses) = (self.next + 1, 0);
        if !is_changed {
            self.met.push(Met { moment, made: path.steps as usize, path });
        }
        true
    }

    fn is_used(&self, moment: &Moment) -> bool {
        moment.cpu_ns >= self.from_ns
    }

    fn used(&self) -> impl DoubleEndedIterator<Item = &Met<'m>> {
        self.met.iter().filter(|met| self.is_used(met.moment))
    }

    /// Gives up moments that cannot come any more after `made` steps. Returns whether others are awaited from now on.
    pub fn pass(&mut self, made: usize) -> bool {
        let mut has_passed = false;
        while let Some(moment) = self.moments.get(self.next)
            && (moment.calls < self.calls || made as f64 > self.steps_max(moment))
        {
            (self.next, self.misses, has_passed) = (self.next + 1, self.misses + 1, true);
        }
        has_passed
    }

    /// Returns the number of steps after which a moment is given up.
    fn steps_max(&self, moment: &Moment) -> f64 {
        match (self.used().next(), self.used().next_back()) {
            (Some(first), Some(last)) if last.moment.cpu_ns > first.moment.cpu_ns => {
                let ns = moment.cpu_ns - last.moment.cpu_ns;
                last.made as f64 + PATIENCE * rate(first, last) * ns as f64
            }
            _ => STEPS_PER_NS_MAX * moment.cpu_ns as f64,
        }
    }

    /// Returns about how many steps after `made` ones more may be learned.
    pub fn steps_left(&self, made: usize) -> usize {
        let until = match (self.used().next(), self.used().next_back(), self.moments.get(self.next)) {
            (Some(first), Some(last), _) if self.is_enough() => tail(first, last),
            (.., Some(moment)) => self.steps_max(moment),
            _ => 0.0,
        };
        (until - made as f64).max(0.0) as usize
    }

    fn is_enough(&self) -> bool {
        self.next >= self.moments.len() || self.used().count() >= MOMENTS_MIN
    }

    /// Returns whether nothing more can be learned after `made` steps.
    pub fn is_over(&self, made: usize) -> bool {
        let is_certain = match (self.used().next(), self.used().next_back()) {
            (Some(first), Some(last)) => self.is_certain(first, last, made),
            _ => true,
        };
        let is_lost = self.misses >= if self.met.is_empty() { 1 } else { MISSES_MAX };
        is_lost || (self.is_enough() && is_certain)
    }

    /// Returns what the thread did between the first and the last moment that were met for certain; `None` if there are too few.
    pub fn timed(&self, made: usize) -> Option<Timed> {
        let mut used: Vec<&Met> = self.used().collect();
        while let [first, .., last] = used[..]
            && !self.is_certain(first, last, made)
        {
            used.pop();
        }
        let before = self.met.len() - self.used().count();
        let [first, .., last] = used[..] else { return None };
        if used.len() + before < MOMENTS_MIN {
            return None;
        }
        let overall = rate(first, last);
        let rates = used.windows(2).map(|pair| rate(pair[0], pair[1]));
        let rate_before = first.made as f64 / first.moment.cpu_ns as f64;
        let is_like = |rate: f64| (1.0 / RATES_APART_MAX..RATES_APART_MAX).contains(&(rate / overall));
        let is_steady = rates.chain([rate_before]).all(is_like);
        is_steady.then(|| Timed {
            path: last.path.since(&first.path),
            cpu_ns: last.moment.cpu_ns - first.moment.cpu_ns,
        })
    }

    /// Returns the path to the last moment that was met, for about as much of its time as the path of a timed thread has: if it were more,
    /// what cannot be timed would count for too much. The thread went this way, unless the moment was met by chance, which happens in
    /// loops that keep what changes in memory.
    pub fn followed(&self) -> Option<Path> {
        let last = self.met.last()?;
        let since = last.moment.cpu_ns.checked_sub(self.span_ns);
        let first = self.met.iter().rfind(|met| since.is_some_and(|since| met.moment.cpu_ns <= since));
        Some(first.map_or_else(|| last.path.clone(), |first| last.path.since(&first.path)))
    }

    /// Returns whether the last moment would have come again within `made` steps, or before a system call, if that is possible.
    fn is_certain(&self, first: &Met, last: &Met, made: usize) -> bool {
        made as f64 >= tail(first, last) || last.moment.calls < self.calls
    }
}

/// Returns the number of steps after which the last moment does not come again.
fn tail(first: &Met, last: &Met) -> f64 {
    let tail = last.made as f64 + TAIL * (last.made - first.made) as f64;
    let rate_before = first.made as f64 / first.moment.cpu_ns as f64;
    let as_before = rate_before * (last.moment.cpu_ns - first.moment.cpu_ns) as f64;
    let tail = tail.max(first.made as f64 + TAIL_AS_BEFORE * as_before);
    tail.max(STEPS_PER_NS_TAIL * last.moment.cpu_ns as f64)
}

/// Returns the steps in a nanosecond between two moments.
fn rate(first: &Met, last: &Met) -> f64 {
    (last.made - first.made) as f64 / (last.moment.cpu_ns - first.moment.cpu_ns).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{PathCounter, Span};

    /// Emulates one instruction after the other, each with a register that tells its number.
    struct Emulation<'m> {
        moments: Moments<'m>,
        counter: PathCounter,
    }

    impl Emulation<'_> {
        fn of(moments: &[Moment]) -> Emulation<'_> {
            Emulation { moments: Moments::new(moments, 100, 180), counter: PathCounter::new(0) }
        }

        fn go(mut self, states: impl IntoIterator<Item = (u64, u64)>) -> Self {
            for (pc, value) in states {
                if self.moments.awaited().any(|m| m.pc == pc) {
                    let path = self.counter.path_so_far(pc);
                    self.moments.note(pc, &[value; 16], path);
                }
                self.counter.pass(pc as u32, || Span { first: pc, last: pc, steps: 1 });
            }
            self
        }

        fn timed(&self) -> Option<Timed> {
            self.moments.timed(self.counter.made())
        }
    }

    /// A loop of ten instructions, which counts its iterations.
    fn states(steps: std::ops::Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        steps.map(|step| (step % 10, step / 10))
    }

    /// The thread makes a step in each nanosecond.
    fn moments(steps: &[u64]) -> Vec<Moment> {
        let moment =
            |step: u64| Moment { pc: step % 10, general: [step / 10; 16], cpu_ns: step, faults: 0, calls: 0 };
        steps.iter().map(|step| moment(*step)).collect()
    }

    #[test]
    fn the_path_between_moments_has_their_time() {
        let moments = moments(&[53, 115, 203, 307, 402]);
        let emulation = Emulation::of(&moments).go(states(0..470));
        // The third moment that is used is enough, with a tail of 0.15 × 192 steps.
        assert!(emulation.moments.is_over(470) && !emulation.moments.is_over(402));
        let timed = emulation.timed().unwrap();
        assert_eq!((timed.cpu_ns, timed.path.steps), (287, 287));
        assert_eq!((timed.path.first.0, timed.path.last.0), (5, 2));
        let transfers = timed.path.numbers();
        let count = |from, to| transfers.iter().find(|t| (t.0, t.1) == (from, to)).map(|t| t.2);
        assert_eq!((count(9, 0), count(5, 6), count(1, 2)), (Some(29), Some(29), Some(29)));
    }

    #[test]
    fn a_last_moment_that_may_come_again_is_not_used() {
        let moments = moments(&[115, 203, 307, 402]);
        let emulation = Emulation::of(&moments).go(states(0..440));
        assert_eq!(emulation.timed().unwrap().cpu_ns, 307 - 115);
        // Two are too few.
        assert_eq!(Emulation::of(&moments[1..]).go(states(0..410)).timed(), None);
        assert_eq!(Emulation::of(&moments[..0]).go(states(0..410)).timed(), None);
    }

    #[test]
    fn the_path_of_an_untimed_thread_is_about_as_long() {
        let moments = moments(&[53, 115, 203, 307, 402]);
        let steps = |moments| Emulation::of(moments).go(states(0..410)).moments.followed().map(|p| p.steps);
        assert_eq!(steps(&moments), Some(402 - 203));
        assert_eq!((steps(&moments[..1]), steps(&moments[..0])), (Some(53), None));
    }

    /// Moments shortly after the stop prove the way, too.
    #[test]
    fn two_moments_are_enough_after_another_one() {
        let moments = moments(&[53, 115, 203]);
        assert_eq!(Emulation::of(&moments).go(states(0..800)).timed().unwrap().cpu_ns, 203 - 115);
        assert_eq!(Emulation::of(&moments[..2]).go(states(0..800)).timed(), None);
    }

    #[test]
    fn states_that_come_again_are_not_used() {
        let moments = moments(&[115, 203, 307, 402, 499, 600]);
        // The states of the first moment and of the third one come again later.
        let again = states(0..550).chain([(5, 11), (7, 30)]).chain(states(552..800));
        let timed = Emulation::of(&moments).go(again).timed().unwrap();
        assert_eq!((timed.cpu_ns, timed.path.steps, timed.path.first.0), (600 - 203, 600 - 203, 3));
        let back = timed.path.numbers().into_iter().find(|t| (t.0, t.1) == (9, 0));
        assert_eq!(back.map(|t| t.2), Some(39));
        // Nothing is known of a loop whose state is in memory.
        let loop_in_memory = (0..800).map(|step| (step % 10, 11));
        let all: Vec<Moment> = moments.iter().map(|m| Moment { general: [11; 16], ..m.clone() }).collect();
        assert_eq!(Emulation::of(&all).go(loop_in_memory).timed(), None);
    }

    /// Each state is there once in what was emulated, but the thread has made many more steps in that time.
    #[test]
    fn states_of_a_long_loop_are_not_taken_for_those_of_a_slow_thread() {
        let slow = moments(&[115, 203, 307, 402]);
        let slow: Vec<Moment> =
            slow.iter().map(|m| Moment { cpu_ns: 1000 * m.cpu_ns, ..m.clone() }).collect();
        let emulation = Emulation::of(&slow).go(states(0..100_000));
        assert!(!emulation.moments.is_over(100_000) && emulation.timed().is_none());
        assert!(Emulation::of(&slow).go(states(0..210_000)).timed().is_some());
    }

    #[test]
    fn moments_at_random_distances_are_not_believed() {
        let mut moments = moments(&[115, 203, 307, 402]);
        moments[1].cpu_ns = 122;
        assert_eq!(Emulation::of(&moments).go(states(0..800)).timed(), None);
        moments[1].cpu_ns = 190;
        assert!(Emulation::of(&moments).go(states(0..800)).timed().is_some());
        moments[0].cpu_ns = 100;
        moments[0] = Moment { pc: 2, general: [0; 16], ..moments[0].clone() };
        assert_eq!(Emulation::of(&moments).go(states(0..800)).timed(), None, "much too early");
    }

    #[test]
    fn a_state_that_comes_again_soon_is_as_good() {
        let moments = moments(&[115, 203, 307, 402]);
        let again = |at: u64| states(0..at).chain([(7, 30)]).chain(states(at + 1..800));
        let timed = Emulation::of(&moments).go(again(309)).timed().unwrap();
        assert_eq!((timed.cpu_ns, timed.path.steps), (402 - 115, 402 - 115));
        let later = Emulation::of(&moments).go(again(312)).timed().unwrap();
        assert_eq!(
            later.path.transfers.iter().map(|t| t.2).max(),
            timed.path.transfers.iter().map(|t| t.2).max()
        );
        assert_eq!(Emulation::of(&moments[..3]).go(again(312)).timed(), None);
    }

    #[test]
    fn a_state_is_looked_for_between_two_system_calls_only() {
        let mut moments = moments(&[115, 203, 307, 402]);
        (1..4).for_each(|at| moments[at].calls = at);
        let mut emulation = Emulation::of(&moments);
        for calls in 0..4 {
            let is_awaited = emulation.moments.set_calls(calls);
            assert!(calls == 0 || is_awaited);
            // The first state comes again and again.
            let first = if calls == 0 { 0 } else { 100 * calls as u64 + 20 };
            let steps = states(first..100 * calls as u64 + 120);
            emulation = emulation.go(steps.chain((calls > 0).then_some((5, 11))));
        }
        assert!(!emulation.moments.set_calls(3) && emulation.moments.set_calls(4));
        assert_eq!(emulation.timed().map(|timed| timed.cpu_ns), Some(402 - 115));
        assert!(emulation.moments.awaited().next().is_none() && emulation.moments.is_over(0));
        // A call too many: the second one cannot come any more.
        let mut missed = Moments::new(&moments[1..], 100, 180);
        assert!(!missed.pass(0) && missed.set_calls(1) && missed.set_calls(2) && missed.pass(0));
    }

    #[test]
    fn moments_that_do_not_come_are_given_up() {
        let mut moments = moments(&[115, 203, 307, 402, 500]);
        moments[3].general = [999_999; 16];
        let mut emulation = Emulation::of(&moments).go(states(0..320));
        assert!(!emulation.moments.pass(490));
        // A step in each nanosecond, so it is 190 steps away at most.
        assert!(emulation.moments.pass(498));
        let timed = emulation.go(states(320..800)).timed().unwrap();
        assert_eq!((timed.cpu_ns, timed.path.steps), (385, 385));

        moments.iter_mut().for_each(|moment| moment.general = [999_999; 16]);
        let mut lost = Moments::new(&moments, 100, 180);
        assert!(!lost.pass(115 * 40) && lost.pass(115 * 40 + 1) && lost.is_over(115 * 40 + 1));
    }
}
