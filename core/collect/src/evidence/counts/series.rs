//! The values of a word over time → the amount that it counted, or the reason why it is not believed.
//!
//! Enters: values with the times of their reads, moments at which a watchpoint disturbed the program, and confirmations
//! that the word's writers are still the same. Leaves: [`Span`]s: the amount that was added in intervals of undisturbed
//! time. Never here: I/O, clocks.
//!
//! A word that goes back was set between two reads. The amount added between them is known only within limits: at least
//! the word's new value (if it begins at zero), at most what it counts in that time elsewhere. A span records the time of
//! such reads, so that its error is known. Reads are frequent enough to make that time a small part of all: after a word
//! went back the interval begins at its minimum and grows with the time since, up to a share of the mean time between two
//! such moments. At any steady rate a word that is set to zero is then below its last value at the next read, so that
//! this cannot go unnoticed. Spans that were never confirmed do not count.

/// The longest interval between reads, in ns.
pub const INTERVAL_NS_MAX: u64 = 250_000_000;
/// The shortest intervals, in ns: the first, and shorter ones for words that go back too often for it.
const INTERVALS_NS_MIN: [u64; 3] = [1_000_000, 250_000, 60_000];
/// Number of reads between two moments at which a word goes back.
const READS_PER_RESET: u64 = 16;
/// Number of reads that moved before a word is judged.
const JUDGED_MOVES: u32 = 20;
/// Number of moments at which a word went back before it is judged by them.
const BROKEN_JUDGED: u32 = 3;
/// Greatest share of the time between different reads that is before reads that went back.
const BROKEN_SHARE_MAX: f64 = 0.2;
/// Greatest ratio between the rate that nine of ten reads are below and the one that one of ten is below.
const SPREAD_MAX: f64 = 40.0;
/// Number of rates that are remembered.
const RATES_MAX: usize = 512;
/// Number of spans that wait for a confirmation.
const UNCONFIRMED_MAX: usize = 1024;
/// The shortest time in ns between two executions of an instruction that adds to memory, because it must load what it
/// stored.
const EXECUTION_NS_MIN: f64 = 0.2;

/// Why a word is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The word goes back too often.
    GoesBack,
    /// The word's rate varies by more than executions do.
    Varies,
}

/// The amount that was added in an interval of time in which nothing disturbed the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The beginning in ns.
    pub begin_ns: u64,
    /// The end in ns.
    pub end_ns: u64,
    /// The sum of the differences, in the direction of the steps, except those of reads that went back.
    pub added: u64,
    /// The time in ns between reads that moved on and the ones before them.
    pub moved_ns: u64,
    /// The time in ns between reads that went back and the ones before them.
    pub broken_ns: u64,
    /// The least amount that was added in that time.
    pub broken_added: u64,
}

/// The values of a word.
#[derive(Clone, Debug)]
pub struct Series {
    bits: u32,
    step: i64,
    last: Option<(u64, u64)>,
    /// The amount added per nanosecond between the last two reads; `None` if the word went back, and after a cut.
    latest_rate: Option<f64>,
    /// The current span.
    span: Span,
    /// Spans that wait for a confirmation.
    unconfirmed: Vec<Span>,
    /// The time in ns when the word went back last, or was read first.
    forward_ns: Option<u64>,
    /// The shortest interval, one of [`INTERVALS_NS_MIN`].
    level: usize,
    moves: u32,
    broken: u32,
    /// The time in ns between consecutive reads: all, those that moved on, those that went back.
    read_ns: u64,
    moved_ns: u64,
    broken_ns: u64,
    rates: Vec<f64>,
    doubt: Option<Doubt>,
}

impl Series {
    /// Creates the series of a word of `size` bytes to which `step` is added at a time. If increments add different
    /// amounts, `step` is the one of the smallest absolute value, and only its sign matters.
    pub fn new(size: u8, step: i64) -> Self {
        Series {
            bits: 8 * u32::from(size),
            step,
            last: None,
            latest_rate: None,
            span: Span::default(),
            unconfirmed: Vec::new(),
            forward_ns: None,
            level: 0,
            moves: 0,
            broken: 0,
            read_ns: 0,
            moved_ns: 0,
            broken_ns: 0,
            rates: Vec::new(),
            doubt: None,
        }
    }

    /// Changes the step when more increments are known.
    pub fn set_step(&mut self, step: i64) {
        self.step = step;
    }

    /// Adds a read.
    pub fn read(&mut self, time_ns: u64, value: u64) {
        self.latest_rate = None;
        let Some((last_ns, last)) = self.last.replace((time_ns, value)) else {
            self.span = Span { begin_ns: time_ns, end_ns: time_ns, ..Span::default() };
            self.forward_ns.get_or_insert(time_ns);
            return;
        };
        let elapsed_ns = time_ns.saturating_sub(last_ns).max(1);
        let difference = self.difference(last, value);
        self.span.end_ns = time_ns;
        self.read_ns += elapsed_ns;
        if difference == 0 {
            self.latest_rate = Some(0.0);
            return;
        }
        self.moves += 1;
        let most = (elapsed_ns as f64 / EXECUTION_NS_MIN + 1.0) * 4096.0;
        if difference < 0 || difference as f64 > most || difference % self.step.abs() != 0 {
            self.broken += 1;
            self.broken_ns += elapsed_ns;
            self.forward_ns = Some(time_ns);
            self.span.broken_ns += elapsed_ns;
            let since_zero = self.difference(0, value);
            if difference < 0 && self.step > 0 && since_zero > 0 && since_zero as f64 <= most {
                self.span.broken_added = self.span.broken_added.saturating_add(since_zero as u64);
            }
        } else {
            self.latest_rate = Some(difference as f64 / elapsed_ns as f64);
            self.moved_ns += elapsed_ns;
            self.span.moved_ns += elapsed_ns;
            self.span.added = self.span.added.saturating_add(difference as u64);
            if self.rates.len() < RATES_MAX {
                self.rates.push(difference as f64 / elapsed_ns as f64);
            }
        }
        self.judge();
    }

    /// Returns the amount that was added, in the direction of the step.
    fn difference(&self, last: u64, value: u64) -> i64 {
        let unused = 64 - self.bits;
        let difference = (value.wrapping_sub(last) << unused) as i64 >> unused;
        if self.step < 0 { difference.saturating_neg() } else { difference }
    }

    fn judge(&mut self) {
        if self.moves < JUDGED_MOVES || self.doubt.is_some() {
            return;
        }
        let is_often = self.broken >= BROKEN_JUDGED;
        if is_often && self.broken_ns as f64 > BROKEN_SHARE_MAX * (self.moved_ns + self.broken_ns) as f64 {
            if self.level + 1 < INTERVALS_NS_MIN.len() {
                *self = Series { level: self.level + 1, ..Series::new((self.bits / 8) as u8, self.step) };
            } else {
                self.doubt = Some(Doubt::GoesBack);
            }
        } else if self.rates.len() >= JUDGED_MOVES as usize && self.rates.len().is_power_of_two() {
            let mut rates = self.rates.clone();
            rates.sort_unstable_by(f64::total_cmp);
            let at = |share: f64| rates[(share * (rates.len() - 1) as f64) as usize];
            if at(0.9) > SPREAD_MAX * at(0.1) {
                self.doubt = Some(Doubt::Varies);
            }
        }
    }

    /// Returns the amount added per nanosecond between the last two reads, if both were in the same span and the word did
    /// not go back.
    pub fn latest_rate(&self) -> Option<f64> {
        self.latest_rate
    }

    /// Ends the span, because a watchpoint is about to disturb the program or nothing is read for a while: what is added
    /// after the last read does not count.
    pub fn cut(&mut self) {
        self.latest_rate = None;
        if self.last.take().is_some() && self.span.end_ns > self.span.begin_ns {
            if self.unconfirmed.len() >= UNCONFIRMED_MAX {
                self.unconfirmed.clear();
            }
            self.unconfirmed.push(self.span);
        }
    }

    /// Confirms that the writers were still the same after the last [`Series::cut`], so that the reads up to then count.
    pub fn confirm(&mut self) -> Vec<Span> {
        let is_judged = self.moves >= JUDGED_MOVES && self.doubt.is_none();
        if is_judged { std::mem::take(&mut self.unconfirmed) } else { Vec::new() }
    }

    /// Returns why the word is not believed.
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }

    /// Whether the word goes back sometimes, so that the amount it adds is known only if it is read often.
    pub fn goes_back(&self) -> bool {
        self.level > 0 || self.broken > 0
    }

    /// Returns when it should be read next, if it was read last at `now_ns`.
    pub fn interval_ns(&self, now_ns: u64) -> u64 {
        let forward_ns = now_ns.saturating_sub(self.forward_ns.unwrap_or(now_ns));
        // At most a quarter of the word's range may be added between reads, or the number of wraps is unknown.
        let fastest = self.rates.iter().copied().fold(1e-12, f64::max);
        let until_wrap = ((1_u64 << (self.bits - 2).min(62)) as f64 / (4.0 * fastest)).min(1e15) as u64;
        let between_resets = match self.broken {
            0 => u64::MAX,
            broken => self.read_ns / u64::from(broken) / READS_PER_RESET,
        };
        let settled = forward_ns / if self.moves < JUDGED_MOVES { READS_PER_RESET } else { 4 };
        settled.min(between_resets).min(until_wrap).clamp(INTERVALS_NS_MIN[self.level], INTERVAL_NS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const MS: u64 = 1_000_000;

    /// Reads a word for 4 s as the worker does, with a confirmation each 200 ms. `word` returns the value at a time, and `truth`
    /// the amount that was added up to it. Returns the lower and upper bounds of the counted amount, each divided by the amount
    /// that was added in the same spans, and the reason why the word was not believed.
    fn simulate(
        size: u8,
        step: i64,
        word: impl Fn(f64) -> u64,
        truth: impl Fn(f64) -> f64,
    ) -> (Option<(f64, f64)>, Option<Doubt>) {
        let mut random = Random::new(7);
        let mut series = Series::new(size, step);
        let (mut now_ns, mut next_ns) = (5 * MS, 200 * MS);
        let mut spans: Vec<Span> = Vec::new();
        while now_ns < 4000 * MS && series.doubt().is_none() {
            series.read(now_ns, word(now_ns as f64 * 1e-9));
            if now_ns >= next_ns {
                next_ns += 200 * MS;
                series.cut();
                spans.extend(series.confirm());
                now_ns += MS;
                continue;
            }
            now_ns += (series.interval_ns(now_ns) as f64 * (0.8 + 0.4 * random.uniform())) as u64;
        }
        let sum = |of: &dyn Fn(&Span) -> f64| spans.iter().map(of).sum::<f64>();
        let all = sum(&|span| truth(span.end_ns as f64 * 1e-9) - truth(span.begin_ns as f64 * 1e-9));
        let (added, broken_ns) = (sum(&|span| span.added as f64), sum(&|span| span.broken_ns as f64));
        let moved_ns = sum(&|span| span.moved_ns as f64);
        let least = added + sum(&|span| span.broken_added as f64);
        let most = added * (1.0 + broken_ns / moved_ns);
        ((all > 0.0).then_some((least / all, most / all)), series.doubt())
    }

    #[test]
    fn a_word_that_only_grows_is_counted_exactly() {
        let exact = |(counted, doubt): (Option<(f64, f64)>, Option<Doubt>)| {
            let (least, most) = counted.unwrap();
            assert!(
                (least - 1.0).abs() < 1e-4 && (most - 1.0).abs() < 1e-4 && doubt.is_none(),
                "{counted:?}"
            );
        };
        let rate = 3e6;
        exact(simulate(8, 1, |t| (t * rate) as u64, |t| t * rate));
        exact(simulate(8, -8, |t: f64| 0_u64.wrapping_sub(8 * (t * rate) as u64), |t| 8.0 * t * rate));
        // The word has 32 bits and wraps twice a second.
        let rate = 8.6e9;
        exact(simulate(4, 1, |t| (t * rate) as u64 & 0xffff_ffff, |t| t * rate));
    }

    #[test]
    fn a_word_that_is_rarely_reset_is_known_within_bounds() {
        let rate = 1e6;
        for millis in [1.3, 4.0, 15.0, 37.0, 100.0, 333.0, 900.0, 1500.0] {
            let every = millis / 1e3;
            let (counted, doubt) = simulate(8, 1, |t| ((t % every) * rate) as u64, |t| t * rate);
            let (least, most) = counted.unwrap();
            assert!(
                doubt.is_none() && least <= 1.0001 && most >= 0.999,
                "{millis} ms: {counted:?} {doubt:?}"
            );
            assert!(most - least < 0.1, "{millis} ms: {counted:?}");
        }
    }

    #[test]
    fn a_word_that_is_often_reset_is_refused() {
        for millis in [0.02, 0.1, 0.2] {
            let (rate, every) = (1e6, millis / 1e3);
            let (counted, doubt) = simulate(8, 1, |t| ((t % every) * rate) as u64, |t| t * rate);
            assert_eq!((counted, doubt), (None, Some(Doubt::GoesBack)));
        }
    }

    /// Words that are reset about as often as they can be read are known within bounds, or refused: never wrong.
    #[test]
    fn a_word_that_is_reset_some_thousand_times_a_second_is_right_or_refused() {
        for millis in [0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0] {
            let (rate, every) = (1e6, millis / 1e3);
            let (counted, doubt) = simulate(8, 1, |t| ((t % every) * rate) as u64, |t| t * rate);
            let is_right = counted.is_none_or(|(least, most)| least <= 1.0001 && most >= 0.999);
            assert!(is_right && (counted.is_some() || doubt.is_some()), "{millis} ms: {counted:?} {doubt:?}");
        }
    }

    #[test]
    fn words_that_do_not_count_are_refused() {
        let noise = |t: f64| (t * 1e9) as u64 ^ ((t * 1e9) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (counted, doubt) = simulate(8, 1, noise, |t| t);
        assert!(counted.is_none() && doubt.is_some());
        // The values are not multiples of the step of 8.
        let (counted, doubt) = simulate(8, 8, |t| (t * 1e6) as u64, |t| t * 1e6);
        assert!(counted.is_none() && doubt == Some(Doubt::GoesBack), "{counted:?}");
    }

    #[test]
    fn unconfirmed_spans_do_not_count() {
        let mut series = Series::new(8, 1);
        (0..30).for_each(|at| series.read(at * MS, at * 1000));
        series.cut();
        let whole = Span { end_ns: 29 * MS, added: 29_000, moved_ns: 29 * MS, ..Span::default() };
        assert_eq!(series.confirm(), [whole]);
        (40..50).for_each(|at| series.read(at * MS, at * 1000));
        series.read(50 * MS, 3);
        series.cut();
        let broken = Span {
            begin_ns: 40 * MS,
            end_ns: 50 * MS,
            added: 9000,
            moved_ns: 9 * MS,
            broken_ns: MS,
            broken_added: 3,
        };
        assert_eq!(series.confirm(), [broken]);
        assert_eq!(series.confirm(), []);
    }
}
