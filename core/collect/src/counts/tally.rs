//! One word: who writes it, what was counted, and what that means in executions.
//!
//! Enters: writes that watchpoints saw, values that were read. Leaves: executions by instruction, each with its error, or a refusal.
//! Never here: I/O, clocks.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    candidates::Word,
    series::{Counted, Doubt, Series},
    writers::Writer,
};

/// Rounds of a watchpoint at different times before a word is believed.
pub const ROUNDS_MIN: usize = 3;
/// Rounds without any write before a word that was never written is given up.
const IDLE_ROUNDS_MAX: u32 = 4;
/// Share of the writes that may come from instructions without a known step.
const UNKNOWN_SHARE_MAX: f64 = 0.03;
/// Logarithmic error of a word that counts, whoever reads it.
const DEVIATION: f64 = 0.03;
/// The largest error of a count that is worth having.
const DEVIATION_MAX: f64 = 0.2;
/// Of the samples of an execution, the share that a word must have counted for. What a program does not count in the rest is not known.
const COVERED_MIN: f64 = 0.7;
/// The logarithmic error for the share of the time that a word did not count for: in the first quarter of a run xz executed instructions
/// twice as often as later.
const UNCOVERED_DEVIATION: f64 = 0.7;
/// Executions below which a count says too little.
const EXECUTIONS_MIN: f64 = 2000.0;

/// An instruction's address, its executions, and the standard deviation of their logarithm.
type Executed = (u64, f64, f64);

/// What a round of the watchpoint saw of a word.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Writes by known writers.
    pub known: Vec<Writer>,
    /// Writes by others.
    pub unknown: u32,
    /// The threads that wrote.
    pub tids: BTreeSet<u32>,
}

/// A word's state.
#[derive(Debug)]
pub struct Tally {
    /// The word.
    pub word: Word,
    /// Its values, once it was seen to be written by instructions that count.
    pub series: Option<Series>,
    writers: BTreeMap<u64, Writer>,
    /// Writes by writer, of each round that had any.
    rounds: Vec<BTreeMap<u64, u32>>,
    unknown: u32,
    tids: BTreeSet<u32>,
    idle: u32,
    /// What was confirmed, and waits for the samples of its time.
    pub pending: Vec<Counted>,
    added: u64,
    samples: u64,
    /// Samples that it counted for, ever.
    covered: u64,
    has_counted: bool,
}

impl Tally {
    /// A word of which nothing is known yet.
    pub fn new(word: Word) -> Self {
        Tally {
            word,
            series: None,
            writers: BTreeMap::new(),
            rounds: Vec::new(),
            unknown: 0,
            tids: BTreeSet::new(),
            idle: 0,
            pending: Vec::new(),
            added: 0,
            samples: 0,
            covered: 0,
            has_counted: false,
        }
    }

    /// Whether it was seen in so many rounds that short ones are enough from now on.
    pub fn is_verified(&self) -> bool {
        self.rounds.len() >= ROUNDS_MIN
    }

    /// Whether anything was handed out.
    pub fn has_counted(&self) -> bool {
        self.has_counted
    }

    /// Takes a round in; what was read before it is confirmed by it. An error says why the word is not believed.
    pub fn round(&mut self, round: &Round) -> Result<(), &'static str> {
        if round.known.is_empty() && round.unknown == 0 {
            self.idle += 1;
            let is_hopeless = self.rounds.is_empty() && self.idle >= IDLE_ROUNDS_MAX;
            return if is_hopeless { Err("not written while it was watched") } else { Ok(()) };
        }
        let mut by_writer: BTreeMap<u64, u32> = BTreeMap::new();
        for writer in &round.known {
            *by_writer.entry(writer.pc).or_default() += 1;
            self.writers.insert(writer.pc, *writer);
        }
        self.rounds.push(by_writer);
        self.unknown += round.unknown;
        self.tids.extend(&round.tids);
        let writes: u32 = self.rounds.iter().flat_map(BTreeMap::values).sum();
        if f64::from(self.unknown) > UNKNOWN_SHARE_MAX * f64::from(writes + self.unknown) {
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
            let counted = series.confirm();
            if counted.added > 0 {
                self.pending.push(counted);
            }
        }
        Ok(())
    }

    /// Why its values are not believed.
    pub fn doubt(&self) -> Option<&'static str> {
        Some(match self.series.as_ref()?.doubt()? {
            Doubt::GoesBack => "goes back",
            Doubt::Varies => "its rate varies too much",
        })
    }

    /// Adds what was counted while so many samples were taken.
    pub fn add(&mut self, added: u64, samples: u64) {
        self.added += added;
        self.samples += samples;
        self.covered += samples;
    }

    /// Executions by instruction, and the samples they stand for, since the last call: address, executions, logarithmic error.
    /// Nothing while that is too little, or too small a part of the execution's samples so far.
    pub fn take(&mut self, samples_of_execution: u64) -> Option<(u64, Vec<Executed>)> {
        let shares = self.shares();
        let per_write: f64 =
            shares.iter().map(|(pc, share, _)| share * self.writers[pc].step.unsigned_abs() as f64).sum();
        let writes = self.added as f64 / per_write.max(1.0);
        let covered = (self.covered as f64 / (samples_of_execution as f64).max(1.0)).min(1.0);
        let is_enough = covered >= COVERED_MIN && (self.has_counted || writes >= EXECUTIONS_MIN);
        if self.samples == 0 || !is_enough {
            return None;
        }
        self.has_counted = true;
        let samples = std::mem::take(&mut self.samples);
        self.added = 0;
        let uncovered = UNCOVERED_DEVIATION * (1.0 - covered);
        let counts = shares
            .into_iter()
            .map(|(pc, share, deviation)| (pc, writes * share, deviation.hypot(DEVIATION).hypot(uncovered)))
            .filter(|(.., deviation)| *deviation <= DEVIATION_MAX);
        Some((samples, counts.collect()))
    }

    /// Each writer's share of the writes, and the logarithmic error of that. Rounds are short stretches at random times: where
    /// writers take turns, shares differ from round to round by more than chance, which the error includes.
    fn shares(&self) -> Vec<(u64, f64, f64)> {
        let writes: u32 = self.rounds.iter().flat_map(BTreeMap::values).sum();
        let rounds: Vec<(&BTreeMap<u64, u32>, f64)> = self
            .rounds
            .iter()
            .map(|round| (round, f64::from(round.values().sum::<u32>())))
            .filter(|(_, writes)| *writes > 0.0)
            .collect();
        let of = |pc: &u64| {
            let share_in = |round: &BTreeMap<u64, u32>, writes: f64| {
                f64::from(round.get(pc).copied().unwrap_or(0)) / writes
            };
            let of_writer: u32 = rounds.iter().filter_map(|(round, _)| round.get(pc)).sum();
            let share = f64::from(of_writer) / f64::from(writes.max(1));
            if share >= 1.0 {
                return (*pc, 1.0, 0.0);
            }
            let n = rounds.len() as f64;
            let squares: f64 =
                rounds.iter().map(|(round, writes)| (share_in(round, *writes) - share).powi(2)).sum();
            let between = (squares / (n * (n - 1.0).max(1.0))).sqrt();
            let binomial = (share * (1.0 - share) / f64::from(writes.max(1))).sqrt();
            (*pc, share, between.max(binomial) / share.max(1e-9))
        };
        self.writers.keys().map(of).collect()
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::writers::Operand;

    fn writer(pc: u64, step: i64, is_locked: bool) -> Writer {
        let operand = Operand { base: None, displacement: 0x4000, size: 8 };
        Writer { pc, next_pc: pc + 4, operand, step, is_locked }
    }

    fn round(known: &[(u64, i64, usize)], unknown: u32, tids: &[u32]) -> Round {
        let known = known.iter().flat_map(|&(pc, step, n)| std::iter::repeat_n(writer(pc, step, false), n));
        Round { known: known.collect(), unknown, tids: tids.iter().copied().collect() }
    }

    fn tally() -> Tally {
        Tally::new(Word { address: 0x4000, size: 8 })
    }

    #[test]
    fn one_writer_has_all() {
        let mut tally = tally();
        (0..3).for_each(|_| tally.round(&round(&[(0x10, 4, 16)], 0, &[7])).unwrap());
        tally.add(4000, 10);
        assert_eq!(tally.take(10), None, "too little yet");
        tally.add(8000, 20);
        assert_eq!(tally.take(30), Some((30, vec![(0x10, 3000.0, DEVIATION)])));
        tally.add(4, 1);
        assert_eq!(tally.take(31), Some((1, vec![(0x10, 1.0, DEVIATION)])));
    }

    #[test]
    fn a_small_part_of_the_time_is_too_little() {
        let mut tally = tally();
        (0..3).for_each(|_| tally.round(&round(&[(0x10, 1, 16)], 0, &[7])).unwrap());
        tally.add(1_000_000, 10);
        assert_eq!(tally.take(100), None);
        tally.add(8_000_000, 80);
        let (samples, counts) = tally.take(100).unwrap();
        assert!(samples == 90 && counts[0].1 == 9_000_000.0 && counts[0].2 > 0.07, "{counts:?}");
    }

    #[test]
    fn several_writers_share() {
        let mut tally = tally();
        (0..10).for_each(|_| tally.round(&round(&[(0x10, 1, 12), (0x20, 2, 4)], 0, &[7])).unwrap());
        tally.add(100_000, 10);
        let (_, counts) = tally.take(10).unwrap();
        assert_eq!(counts.len(), 2);
        assert!((counts[0].1 - 60_000.0).abs() < 1.0 && (counts[1].1 - 20_000.0).abs() < 1.0, "{counts:?}");
    }

    #[test]
    fn writers_that_take_turns_are_not_told_apart() {
        let mut tally = tally();
        for at in 0..6 {
            let pc = if at % 2 == 0 { 0x10 } else { 0x20 };
            tally.round(&round(&[(pc, 1, 16)], 0, &[7])).unwrap();
        }
        tally.add(100_000, 10);
        assert_eq!(tally.take(10).unwrap().1, []);
    }

    #[test]
    fn refusals() {
        let refused = |rounds: &[Round]| {
            let mut tally = tally();
            rounds.iter().find_map(|round| tally.round(round).err())
        };
        let one = round(&[(0x10, 1, 16)], 0, &[7]);
        assert_eq!(refused(&[one.clone(), one.clone()]), None);
        assert_eq!(
            refused(&[one.clone(), round(&[(0x10, 1, 15)], 1, &[7]), round(&[], 16, &[7])]),
            Some("written by instructions without a known step")
        );
        assert_eq!(refused(&[one.clone(), round(&[(0x10, 1, 16)], 0, &[8])]), Some("threads share it"));
        assert_eq!(refused(&[one.clone(), round(&[(0x20, -1, 16)], 0, &[7])]), Some("steps of both signs"));
        assert_eq!(
            refused(&[const { Round { known: Vec::new(), unknown: 0, tids: BTreeSet::new() } }; 4]),
            Some("not written while it was watched")
        );
        let locked =
            Round { known: vec![writer(0x10, 1, true); 16], unknown: 0, tids: BTreeSet::from([7, 8]) };
        assert_eq!(refused(&[locked.clone(), locked]), None);
    }
}
