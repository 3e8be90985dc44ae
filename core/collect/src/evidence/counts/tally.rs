//! One word: the instructions that write it, the amount that it counted, and the executions that follow from that.
//!
//! Enters: writes that watchpoints observed, values that were read. Leaves: executions by instruction, each with its
//! error, or the reason why there are none. Never here: I/O, clocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use dwell_profile::{Tid, VirtualAddress};

use super::{
    candidates::Word,
    increments::Increment,
    series::{Doubt, Series, Span},
};

/// Number of rounds of a watchpoint at different times before a word is believed.
pub const ROUNDS_MIN: usize = 3;
/// Writes of a round until a word is verified, later, and of a word that several instructions write.
const WRITES_FIRST: i32 = 12;
const WRITES_LATER: i32 = 4;
const WRITES_SHARED: i32 = 20;
/// A word that was never written is given up after this many rounds without a write.
const IDLE_ROUNDS_MAX: u32 = 4;
/// Logarithmic error of a word's count, independent of how it was read.
const DEVIATION: f64 = 0.02;
/// The largest error at which a count is used.
const DEVIATION_MAX: f64 = 0.08;
/// The logarithmic error for the samples before and after all spans: in the first quarter of a run xz executed
/// instructions twice as often as later.
const OUTSIDE_DEVIATION: f64 = 0.5;
/// Number of spans from which the rate's spread over time can be computed.
const SPANS_MIN: usize = 8;
/// Share of an instruction's writes that must be to the word.
const OWN_MIN: f64 = 0.8;
/// Number of rounds from which the shares of several writers can be computed.
const SHARED_ROUNDS_MIN: usize = 8;
/// Least number of executions that is used.
const EXECUTIONS_MIN: f64 = 2000.0;
/// Number of spans that are kept apart; more are added up in pairs.
const SPANS_MAX: usize = 512;

/// An instruction's address, its executions, and the standard deviation of their logarithm.
pub type Executed = (VirtualAddress, f64, f64);

/// The observations of a word in a round of the watchpoint.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Writes by known increments.
    pub known: Vec<Increment>,
    /// Number of writes that set it to a constant.
    pub set: u32,
    /// Number of writes by other instructions.
    pub unknown: u32,
    /// The threads that wrote.
    pub tids: BTreeSet<Tid>,
    /// The amount added per nanosecond just before the round; `None` if it is unknown.
    pub rate_before: Option<f64>,
}

/// The writes that a round observed.
#[derive(Debug)]
struct Seen {
    by_writer: BTreeMap<VirtualAddress, u32>,
    writes: f64,
    /// The same value as in [`Round`].
    rate_before: Option<f64>,
}

/// The state of a word.
#[derive(Debug)]
pub struct Tally {
    /// The word.
    pub word: Word,
    /// Its values, once increments were observed to write it.
    pub series: Option<Series>,
    writers: BTreeMap<VirtualAddress, Increment>,
    /// Each round that had writes.
    rounds: Vec<Seen>,
    tids: BTreeSet<Tid>,
    idle: u32,
    /// Confirmed spans that wait for the samples of their time.
    pub pending: Vec<Span>,
    counted: Vec<Counted>,
    /// Number of the execution's samples from the first span to the last.
    samples_within: Range<u64>,
}

/// The amount counted in one or several spans, and the execution's samples of that time.
#[derive(Clone, Copy, Debug)]
struct Counted {
    span: Span,
    samples: u64,
}

/// The executions that a word counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Executions {
    /// Number of samples of the execution that they stand for.
    pub samples: u64,
    /// The executions of each instruction.
    pub of: Vec<Executed>,
}

impl Tally {
    /// Creates the state of a word about which nothing is known.
    pub fn new(word: Word) -> Self {
        Tally {
            word,
            series: None,
            writers: BTreeMap::new(),
            rounds: Vec::new(),
            tids: BTreeSet::new(),
            idle: 0,
            pending: Vec::new(),
            counted: Vec::new(),
            samples_within: 0..0,
        }
    }

    /// Whether it was observed in enough rounds, so that short ones are sufficient from now on.
    pub fn is_verified(&self) -> bool {
        self.rounds.len() >= ROUNDS_MIN
    }

    /// Returns the number of writes that its next round should observe: many until it is verified, and if several
    /// instructions write it.
    pub fn writes_wanted(&self) -> i32 {
        match (self.is_verified(), self.writers.len()) {
            (false, _) => WRITES_FIRST,
            (true, 0 | 1) => WRITES_LATER,
            (true, _) => WRITES_SHARED,
        }
    }

    /// Takes a round into account, which confirms what was read before it. Fails with the reason why the word is not
    /// believed.
    pub fn round(&mut self, round: &Round) -> Result<(), &'static str> {
        if round.known.is_empty() && round.set + round.unknown == 0 {
            self.idle += 1;
            let is_hopeless = self.rounds.is_empty() && self.idle >= IDLE_ROUNDS_MAX;
            return if is_hopeless { Err("not written while it was watched") } else { Ok(()) };
        }
        let mut by_writer: BTreeMap<VirtualAddress, u32> = BTreeMap::new();
        for writer in &round.known {
            *by_writer.entry(writer.pc).or_default() += 1;
            self.writers.insert(writer.pc, *writer);
        }
        let writes = round.known.len() as f64;
        self.rounds.push(Seen { by_writer, writes, rate_before: round.rate_before });
        self.tids.extend(&round.tids);
        // A few such writes may add more than all others.
        if round.unknown > 0 {
            return Err("written by instructions without a known step");
        }
        if self.tids.len() > 1 && self.writers.values().any(|writer| !writer.is_locked) {
            return Err("threads share it");
        }
        let mut steps = self.writers.values().map(|writer| writer.step);
        let first = steps.next().unwrap_or(1);
        if !steps.clone().all(|step| (step > 0) == (first > 0)) {
            return Err("steps of both signs");
        }
        let step = steps.fold(first.abs(), |a, b| gcd(a, b.abs())) * first.signum();
        match &mut self.series {
            None => self.series = Some(Series::new(self.word.size, step)),
            Some(series) => series.set_step(step),
        }
        let is_verified = self.is_verified();
        if let Some(series) = self.series.as_mut().filter(|_| is_verified) {
            self.pending.extend(series.confirm());
        }
        Ok(())
    }

    /// Returns why its values are not believed.
    pub fn doubt(&self) -> Option<&'static str> {
        Some(match self.series.as_ref()?.doubt()? {
            Doubt::GoesBack => "goes back",
            Doubt::Varies => "its rate varies too much",
        })
    }

    /// Adds a span with the execution's samples in it: those from the first number to the second, counted from the
    /// execution's start.
    pub fn add(&mut self, span: Span, samples: Range<u64>) {
        if self.counted.is_empty() {
            self.samples_within.start = samples.start;
        }
        self.samples_within.end = samples.end;
        if self.counted.len() >= SPANS_MAX {
            let pairs = self.counted.chunks(2);
            self.counted =
                pairs.map(|pair| pair.iter().skip(1).fold(pair[0], |sum, next| sum.and(next))).collect();
        }
        self.counted.push(Counted { span, samples: samples.end - samples.start });
    }

    /// Returns the executions by instruction, and the samples that they stand for, of an execution with so many samples
    /// in all. Fails with the reason why there are none. `own` returns for an instruction the share of its writes that are to
    /// this word, and the logarithmic error of
    /// the share.
    pub fn executions(
        &self,
        of_execution: u64,
        own: impl Fn(&Increment) -> (f64, f64),
    ) -> Result<Executions, &'static str> {
        let (added, spread) = self.added();
        let samples: u64 = self.counted.iter().map(|counted| counted.samples).sum();
        let shares = self.shares();
        if shares.is_empty() {
            return Err("too uncertain");
        }
        let per_write: f64 =
            shares.iter().map(|(pc, share, _)| share * self.writers[pc].step.unsigned_abs() as f64).sum();
        let writes = added / per_write.max(1.0);
        if samples == 0 || writes < EXECUTIONS_MIN {
            return Err("counted too little");
        }
        let all = of_execution.max(samples) as f64;
        let before_and_after = all - (self.samples_within.end - self.samples_within.start) as f64;
        let uncovered = 1.0 - samples as f64 / all;
        // Samples between the spans resemble those in the spans as far as the rate is uniform. Samples before and after
        // all spans need not.
        let (between, outside) = match self.between() {
            Some(deviation) => (deviation * uncovered.sqrt(), before_and_after.max(0.0) / all),
            None => (0.0, uncovered),
        };
        let outside = OUTSIDE_DEVIATION * outside;
        let of: Vec<Executed> = shares
            .into_iter()
            .filter_map(|(pc, share, of_share)| {
                let (own, of_own) = own(&self.writers[&pc]);
                let errors = [of_share, of_own, DEVIATION, spread, between, outside];
                let deviation = errors.iter().map(|error| error * error).sum::<f64>().sqrt();
                (own >= OWN_MIN && deviation <= DEVIATION_MAX).then_some((
                    pc,
                    writes * share / own,
                    deviation,
                ))
            })
            .collect();
        if of.is_empty() { Err("too uncertain") } else { Ok(Executions { samples, of }) }
    }

    /// Returns the amount added in all spans, and its logarithmic error because of moments at which the word went back.
    fn added(&self) -> (f64, f64) {
        let sum = |of: &dyn Fn(&Counted) -> u64| self.counted.iter().map(of).sum::<u64>() as f64;
        let added = sum(&|counted| counted.span.added);
        let broken_ns = sum(&|counted| counted.span.broken_ns);
        let most = added / sum(&|counted| counted.span.moved_ns).max(1.0) * broken_ns;
        let least = sum(&|counted| counted.span.broken_added).min(most);
        let all = added + 0.5 * (least + most);
        (all, 0.5 * (most - least) / all.max(1.0))
    }

    /// Returns the logarithmic error of the rate, from its spread over the spans; `None` if there are too few.
    fn between(&self) -> Option<f64> {
        let spans = self.counted.len();
        let added: f64 = self.counted.iter().map(|counted| counted.span.added as f64).sum();
        let samples: f64 = self.counted.iter().map(|counted| counted.samples as f64).sum();
        if spans < SPANS_MIN || added == 0.0 || samples == 0.0 {
            return None;
        }
        let rate = added / samples;
        let off = |counted: &Counted| (counted.span.added as f64 - rate * counted.samples as f64) / added;
        let squares: f64 = self.counted.iter().map(|counted| off(counted).powi(2)).sum();
        Some((squares * spans as f64 / (spans as f64 - 1.0)).sqrt())
    }

    /// Returns each writer's share of the writes, and the logarithmic error of the share; empty if there are several and
    /// too little is known.
    ///
    /// A round observes a number of writes from a random *time* on, and slow phases contain more time than writes. So
    /// each round stands for the amount that the word counted just before it, when nothing disturbed the program (ratio
    /// estimation, Cochran, "Sampling Techniques", 3rd ed., ch. 6).
    fn shares(&self) -> Vec<(VirtualAddress, f64, f64)> {
        if let [only] = *self.writers.keys().collect::<Vec<_>>() {
            return vec![(*only, 1.0, 0.0)];
        }
        let rounds: Vec<(&Seen, f64)> = self
            .rounds
            .iter()
            .filter(|round| round.writes > 0.0)
            .filter_map(|round| Some((round, round.rate_before?)))
            .collect();
        let (n, total) = (rounds.len() as f64, rounds.iter().map(|(_, weight)| weight).sum::<f64>());
        if rounds.len() < SHARED_ROUNDS_MIN || total <= 0.0 {
            return Vec::new();
        }
        let of = |pc: &VirtualAddress| {
            let share_in = |round: &Seen| {
                round.by_writer.get(pc).map_or(0.0, |writes| f64::from(*writes) / round.writes)
            };
            let share = rounds.iter().map(|(round, weight)| weight * share_in(round)).sum::<f64>() / total;
            let off = |(round, weight): &(&Seen, f64)| (weight * (share_in(round) - share) / total).powi(2);
            let between = (rounds.iter().map(off).sum::<f64>() * n / (n - 1.0)).sqrt();
            (*pc, share, between / share.max(1e-9))
        };
        self.writers.keys().map(of).collect()
    }
}

impl Counted {
    fn and(self, next: &Counted) -> Counted {
        let (a, b) = (self.span, next.span);
        let span = Span {
            begin_ns: a.begin_ns,
            end_ns: b.end_ns,
            added: a.added.saturating_add(b.added),
            moved_ns: a.moved_ns + b.moved_ns,
            broken_ns: a.broken_ns + b.broken_ns,
            broken_added: a.broken_added.saturating_add(b.broken_added),
        };
        Counted { span, samples: self.samples + next.samples }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        evidence::counts::increments::WordOperand,
        x86::{Base, MemoryOperand, Segment},
    };

    fn writer(pc: u64, step: i64, is_locked: bool) -> Increment {
        let memory = MemoryOperand {
            base: Base::None,
            index: None,
            displacement: 0x4000,
            segment: Segment::Flat,
            is_32_bit: false,
        };
        let word = WordOperand { memory, size: 8 };
        let pc = VirtualAddress(pc);
        Increment { pc, next_pc: pc.offset(4), word, step, is_locked }
    }

    fn round(known: &[(u64, i64, usize)], unknown: u32, tids: &[Tid]) -> Round {
        let known = known.iter().flat_map(|&(pc, step, n)| std::iter::repeat_n(writer(pc, step, false), n));
        let tids = tids.iter().copied().collect();
        Round { known: known.collect(), unknown, tids, rate_before: Some(1.0), ..Round::default() }
    }

    fn tally() -> Tally {
        Tally::new(Word { address: VirtualAddress(0x4000), size: 8 })
    }

    /// Returns the state of a word after rounds with these writers, and after spans of 100 ms, each given by the amount that was
    /// added and the number of samples.
    fn counted(rounds: &[Round], spans: &[(u64, u64)]) -> Tally {
        counted_with_gaps(rounds, spans, 0)
    }

    /// Returns the same with this number of samples between two spans.
    fn counted_with_gaps(rounds: &[Round], spans: &[(u64, u64)], gap: u64) -> Tally {
        let mut tally = tally();
        rounds.iter().for_each(|round| tally.round(round).unwrap());
        let mut next = 0;
        for ((added, samples), at) in spans.iter().zip(0..) {
            let begin_ns = at * 100_000_000;
            let span = Span { begin_ns, end_ns: begin_ns + 100_000_000, added: *added, ..Span::default() };
            tally.add(span, next..next + samples);
            next += samples + gap;
        }
        tally
    }

    fn alone(_: &Increment) -> (f64, f64) {
        (1.0, 0.0)
    }

    fn one() -> Vec<Round> {
        vec![round(&[(0x10, 4, 16)], 0, &[Tid(7)]); 3]
    }

    #[test]
    fn a_single_writer_gets_all_executions() {
        let tally = counted(&one(), &[(4000, 100); 3]);
        let counted = tally.executions(300, alone).unwrap();
        assert_eq!(counted, Executions { samples: 300, of: vec![(VirtualAddress(0x10), 3000.0, DEVIATION)] });
        assert_eq!(tally.executions(400, alone), Err("too uncertain"));
        assert_eq!(self::counted(&one(), &[(4000, 100)]).executions(100, alone), Err("counted too little"));
    }

    #[test]
    fn samples_outside_of_spans_are_less_certain_than_between_them() {
        let steady = [(40_000, 100); 10];
        let deviation = |tally: &Tally, of| tally.executions(of, alone).unwrap().of[0].2;
        assert!((deviation(&counted_with_gaps(&one(), &steady, 100), 1900) - DEVIATION).abs() < 1e-9);
        assert!(deviation(&counted(&one(), &steady), 1100) > 0.045);
        let unsteady = [(25_000, 100), (55_000, 100)].repeat(10);
        let of_all = deviation(&counted(&one(), &unsteady), 2000);
        assert!((of_all - DEVIATION).abs() < 1e-9, "all was counted");
        let of_half = deviation(&counted_with_gaps(&one(), &unsteady, 100), 3900);
        assert!(of_half > 0.05 && of_half < 0.07, "{of_half}");
    }

    #[test]
    fn resets_of_a_word_are_known_within_bounds() {
        let mut tally = counted(&one(), &[]);
        for at in 0..10 {
            let begin_ns = at * 100;
            let span = Span {
                begin_ns,
                end_ns: begin_ns + 100,
                added: 9000,
                moved_ns: 90,
                broken_ns: 10,
                broken_added: 500,
            };
            tally.add(span, at * 10..at * 10 + 10);
        }
        let (added, spread) = tally.added();
        assert!(
            (added - 97_500.0).abs() < 1.0 && (spread - 2500.0 / 97_500.0).abs() < 1e-6,
            "{added} {spread}"
        );
    }

    #[test]
    fn many_spans_are_added_up() {
        let tally = counted(&one(), &[(4000, 10); 2000]);
        assert!(tally.counted.len() <= SPANS_MAX);
        let counted = tally.executions(20_000, alone).unwrap();
        assert_eq!(counted, Executions { samples: 20_000, of: vec![(VirtualAddress(0x10), 2e6, DEVIATION)] });
    }

    #[test]
    fn a_writer_of_other_words_is_executed_more_often() {
        let tally = counted(&one(), &[(40_000, 100); 3]);
        let counted = tally.executions(300, |_| (0.9, 0.03)).unwrap();
        assert!((counted.of[0].1 - 30_000.0 / 0.9).abs() < 1.0 && counted.of[0].2 > 0.036, "{counted:?}");
        assert_eq!(tally.executions(300, |_| (0.5, 0.03)), Err("too uncertain"));
    }

    #[test]
    fn several_writers_share() {
        let rounds = vec![round(&[(0x10, 1, 12), (0x20, 2, 4)], 0, &[Tid(7)]); 100];
        let counted = counted(&rounds, &[(100_000, 10)]).executions(10, alone).unwrap();
        assert_eq!(counted.of.len(), 2);
        assert!(
            (counted.of[0].1 - 60_000.0).abs() < 1.0 && (counted.of[1].1 - 20_000.0).abs() < 1.0,
            "{counted:?}"
        );
    }

    /// Two phases take equal time, and one counts nine times as fast. Rounds begin in both equally often.
    #[test]
    fn rounds_stand_for_what_was_counted_about_them() {
        let of =
            |pc: u64, rate: f64| Round { rate_before: Some(rate), ..round(&[(pc, 1, 16)], 0, &[Tid(7)]) };
        let rounds: Vec<Round> =
            (0..400).map(|at| if at % 2 == 0 { of(0x10, 0.9) } else { of(0x20, 0.1) }).collect();
        let counted = counted(&rounds, &[(100_000, 10)]).executions(10, alone).unwrap();
        assert_eq!(counted.of.len(), 1, "the other one is too uncertain: {counted:?}");
        assert!((counted.of[0].1 - 90_000.0).abs() < 1.0, "{counted:?}");
    }

    #[test]
    fn writers_that_take_turns_cannot_be_separated() {
        let turns = |at: u32| round(&[(if at.is_multiple_of(2) { 0x10 } else { 0x20 }, 1, 16)], 0, &[Tid(7)]);
        let rounds: Vec<Round> = (0..6).map(turns).collect();
        assert_eq!(counted(&rounds, &[(100_000, 10)]).executions(10, alone), Err("too uncertain"));
    }

    #[test]
    fn refusals() {
        let refused = |rounds: &[Round]| {
            let mut tally = tally();
            rounds.iter().find_map(|round| tally.round(round).err())
        };
        let one = round(&[(0x10, 1, 16)], 0, &[Tid(7)]);
        assert_eq!(refused(&[one.clone(), one.clone()]), None);
        assert_eq!(
            refused(&[one.clone(), round(&[(0x10, 1, 15)], 1, &[Tid(7)])]),
            Some("written by instructions without a known step")
        );
        assert_eq!(refused(&[one.clone(), round(&[(0x10, 1, 16)], 0, &[Tid(8)])]), Some("threads share it"));
        assert_eq!(
            refused(&[one.clone(), round(&[(0x20, -1, 16)], 0, &[Tid(7)])]),
            Some("steps of both signs")
        );
        assert_eq!(refused(&vec![Round::default(); 4]), Some("not written while it was watched"));
        let locked = Round {
            known: vec![writer(0x10, 1, true); 16],
            tids: BTreeSet::from([Tid(7), Tid(8)]),
            ..Round::default()
        };
        assert_eq!(refused(&[locked.clone(), locked]), None);
    }
}
