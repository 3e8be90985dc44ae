//! The values of a word over time → by how much it counted, or why it is not believed.
//!
//! Enters: values with the times of their reads, moments at which a watchpoint disturbed the program, and confirmations that the word's
//! writers are still the same. Leaves: [`Counted`]: how much was added in spans of undisturbed time. Never here: I/O, clocks.
//!
//! A word that goes back was set anew (or its memory is another's by now): it is not believed, nor is what it counted before. (Counting
//! between such moments gave 0.67 of the truth in xz: they come where the rate is another.)
//! The interval to the next read is at most half the time since the word last went back, so that at any steady rate a word that is set to
//! zero is below its last value when it is read next: it cannot be set unseen. What was never confirmed never counts.

/// The longest interval between reads.
pub const INTERVAL_NS_MAX: u64 = 250_000_000;
/// The shortest.
pub const INTERVAL_NS_MIN: u64 = 1_000_000;
/// Reads that moved before a word is judged.
const JUDGED_MOVES: u32 = 20;
/// The rate that nine of ten reads are below, over the one that one of ten is below.
const SPREAD_MAX: f64 = 40.0;
/// Rates that are remembered.
const RATES_MAX: usize = 512;
/// The shortest time between two executions of an instruction that adds to memory: what it stored it must load again.
const EXECUTION_NS_MIN: f64 = 0.2;

/// Why a word is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It goes back too often.
    GoesBack,
    /// Its rate varies by more than executions do.
    Varies,
}

/// What was added while nothing disturbed the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The sum of the differences, in the direction of the steps.
    pub added: u64,
    /// The spans of time in which they were made: begin and end, in ns.
    pub spans: Vec<(u64, u64)>,
}

/// A word's values.
#[derive(Clone, Debug)]
pub struct Series {
    bits: u32,
    step: i64,
    last: Option<(u64, u64)>,
    /// The last value before a watchpoint was set, until the next is read.
    before_cut: Option<u64>,
    /// When the span began that goes on.
    span_ns: u64,
    /// Since when it did not go back.
    forward_ns: Option<u64>,
    unconfirmed: Counted,
    moves: u32,
    backward: u32,
    rates: Vec<f64>,
    doubt: Option<Doubt>,
}

impl Series {
    /// A word of so many bytes to which so much is added at a time. Where writers add different amounts it is the one of
    /// smallest size, and sign counts alone.
    pub fn new(size: u8, step: i64) -> Self {
        Series {
            bits: 8 * u32::from(size),
            step,
            last: None,
            before_cut: None,
            span_ns: 0,
            forward_ns: None,
            unconfirmed: Counted::default(),
            moves: 0,
            backward: 0,
            rates: Vec::new(),
            doubt: None,
        }
    }

    /// Another step, once more writers are known.
    pub fn set_step(&mut self, step: i64) {
        self.step = step;
    }

    /// Takes a read in.
    pub fn read(&mut self, time_ns: u64, value: u64) {
        let Some((last_ns, last)) = self.last.replace((time_ns, value)) else {
            self.span_ns = time_ns;
            self.forward_ns.get_or_insert(time_ns);
            if self.before_cut.take().is_some_and(|before| self.difference(before, value) < 0) {
                self.backward += 1;
                self.judge();
            }
            return;
        };
        let elapsed_ns = time_ns.saturating_sub(last_ns).max(1) as f64;
        let difference = self.difference(last, value);
        if difference == 0 {
            return;
        }
        self.moves += 1;
        let most = elapsed_ns / EXECUTION_NS_MIN * 4096.0;
        if difference < 0 || difference as f64 > most || difference % self.step.abs() != 0 {
            self.backward += 1;
            self.forward_ns = Some(time_ns);
            self.forget();
            self.span_ns = time_ns;
        } else {
            self.unconfirmed.added = self.unconfirmed.added.saturating_add(difference as u64);
            if self.rates.len() < RATES_MAX {
                self.rates.push(difference as f64 / elapsed_ns);
            }
        }
        self.judge();
    }

    /// What was added, in the direction of the step.
    fn difference(&self, last: u64, value: u64) -> i64 {
        let unused = 64 - self.bits;
        let difference = (value.wrapping_sub(last) << unused) as i64 >> unused;
        if self.step < 0 { difference.saturating_neg() } else { difference }
    }

    fn judge(&mut self) {
        if self.backward > 0 {
            self.doubt = Some(Doubt::GoesBack);
            return;
        }
        let is_time = self.rates.len() >= JUDGED_MOVES as usize && self.rates.len().is_power_of_two();
        if self.moves >= JUDGED_MOVES && self.doubt.is_none() && is_time {
            let mut rates = self.rates.clone();
            rates.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| rates[(share * (rates.len() - 1) as f64) as usize];
            if at(0.9) > SPREAD_MAX * at(0.1) {
                self.doubt = Some(Doubt::Varies);
            }
        }
    }

    /// A watchpoint is about to disturb the program: what is added from the last read on does not count.
    pub fn cut(&mut self) {
        if let Some((last_ns, last)) = self.last.take() {
            self.before_cut = Some(last);
            if last_ns > self.span_ns {
                self.unconfirmed.spans.push((self.span_ns, last_ns));
            }
        }
    }

    /// What was read since the last confirmation does not count.
    pub fn forget(&mut self) {
        self.unconfirmed = Counted::default();
    }

    /// The writers are still the same, as was found out after the last [`Series::cut`]: what was read until then counts.
    pub fn confirm(&mut self) -> Counted {
        let is_judged = self.moves >= JUDGED_MOVES && self.doubt.is_none();
        if is_judged { std::mem::take(&mut self.unconfirmed) } else { Counted::default() }
    }

    /// Why it is not believed.
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// When it should be read next, if it was read last at `now_ns`.
    pub fn interval_ns(&self, now_ns: u64) -> u64 {
        let forward_ns = now_ns.saturating_sub(self.forward_ns.unwrap_or(now_ns));
        // No more than a quarter of the numbers there are may pass, or it is not known how often they did.
        let fastest = self.rates.iter().copied().fold(1e-12, f64::max);
        let until_wrap = ((1_u64 << (self.bits - 2).min(62)) as f64 / (4.0 * fastest)).min(1e15) as u64;
        let settled = if self.moves < JUDGED_MOVES { INTERVAL_NS_MIN } else { forward_ns / 4 };
        settled.min(until_wrap).clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const MS: u64 = 1_000_000;

    /// Reads a word as the reader would, with a confirmation each 200 ms, for 4 s; `word` says the value at a time, `truth` how much
    /// was added up to it. What was counted over what was added in the same spans, and why it was not believed.
    fn simulate(
        size: u8,
        step: i64,
        word: impl Fn(f64) -> u64,
        truth: impl Fn(f64) -> f64,
    ) -> (Option<f64>, Option<Doubt>) {
        let (mut counted, mut true_sum) = (0.0, 0.0);
        let mut random = Random::new(7);
        let mut series = Series::new(size, step);
        let (mut now_ns, mut next_ns) = (5 * MS, 200 * MS);
        while now_ns < 4000 * MS && series.doubt().is_none() {
            series.read(now_ns, word(now_ns as f64 * 1e-9));
            if now_ns >= next_ns {
                next_ns += 200 * MS;
                series.cut();
                let part = series.confirm();
                counted += part.added as f64;
                true_sum += part
                    .spans
                    .iter()
                    .map(|(begin, end)| truth(*end as f64 * 1e-9) - truth(*begin as f64 * 1e-9))
                    .sum::<f64>();
                now_ns += MS;
            }
            now_ns += series.interval_ns(now_ns) + (random.uniform() * 2e5) as u64;
        }
        ((true_sum > 0.0).then(|| counted / true_sum), series.doubt())
    }

    #[test]
    fn what_only_grows_is_exact() {
        let rate = 3e6;
        let (ratio, doubt) = simulate(8, 1, |t| (t * rate) as u64, |t| t * rate);
        assert!((ratio.unwrap() - 1.0).abs() < 1e-4 && doubt.is_none(), "{ratio:?}");
        let down = |t: f64| 0_u64.wrapping_sub(8 * (t * rate) as u64);
        let (ratio, doubt) = simulate(8, -8, down, |t| 8.0 * t * rate);
        assert!((ratio.unwrap() - 1.0).abs() < 1e-4 && doubt.is_none(), "{ratio:?}");
        // 32 bits that wrap twice a second.
        let rate = 8.6e9;
        let (ratio, doubt) = simulate(4, 1, |t| (t * rate) as u64 & 0xffff_ffff, |t| t * rate);
        assert!((ratio.unwrap() - 1.0).abs() < 1e-4 && doubt.is_none(), "{ratio:?}");
    }

    #[test]
    fn what_is_set_anew_now_and_then_is_counted_between() {
        // Every 900 ms from zero.
        let (rate, every) = (1e6, 0.9);
        let (ratio, _) = simulate(8, 1, |t| ((t % every) * rate) as u64, |t| t * rate);
        assert!(ratio.is_none_or(|r| (r - 1.0).abs() < 0.01), "{ratio:?}");
        for millis in [3.0, 10.0, 37.0, 100.0, 333.0, 1500.0] {
            let every = millis / 1e3;
            let (ratio, doubt) = simulate(8, 1, |t| ((t % every) * rate) as u64, |t| t * rate);
            assert_eq!(doubt, Some(Doubt::GoesBack), "{millis} ms");
            assert!(ratio.is_none_or(|r| (r - 1.0).abs() < 0.02), "{millis} ms: {ratio:?} {doubt:?}");
        }
    }

    #[test]
    fn what_is_set_anew_all_the_time_is_refused() {
        let (rate, every) = (1e6, 0.000_5);
        let (ratio, doubt) = simulate(8, 1, |t| ((t % every) * rate) as u64, |t| t * rate);
        assert_eq!((ratio, doubt), (None, Some(Doubt::GoesBack)));
    }

    #[test]
    fn other_data_are_refused() {
        let noise = |t: f64| (t * 1e9) as u64 ^ ((t * 1e9) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (ratio, doubt) = simulate(8, 1, noise, |t| t);
        assert!(ratio.is_none() && doubt.is_some());
        // Steps of 8 that are none.
        let (ratio, _) = simulate(8, 8, |t| (t * 1e6) as u64, |t| t * 1e6);
        assert!(ratio.is_none_or(|r| (r - 1.0).abs() < 0.02), "{ratio:?}");
    }

    #[test]
    fn what_was_not_confirmed_does_not_count() {
        let mut series = Series::new(8, 1);
        (0..30).for_each(|at| series.read(at * MS, at * 1000));
        series.cut();
        assert_eq!(series.confirm(), Counted { added: 29_000, spans: vec![(0, 29 * MS)] });
        (40..50).for_each(|at| series.read(at * MS, at * 1000));
        series.read(50 * MS, 3);
        series.cut();
        assert_eq!((series.doubt(), series.confirm()), (Some(Doubt::GoesBack), Counted::default()));
    }
}
