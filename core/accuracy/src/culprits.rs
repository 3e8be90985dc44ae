//! Judges causes and culprits: the dynamic stalls of the analysis against a simulator's (DCPI §6.3, which could only
//! correlate with event samples).
//!
//! Input: an analysis of each procedure, and its true cycles at the head of the queue by cause and culprit. Output:
//! scores weighted by truly stalled cycles. Instructions with fewer than [`SAMPLES_MIN`] time samples are left out of
//! every score, with their truth; the share of stalled cycles that this excludes is reported. Linear.

use std::collections::BTreeMap;

use dwell_analysis::{Cause, DataSource, Level, ProcedureAnalysis, Stall as Blame, StallKind};
use serde::Serialize;

use crate::{
    capture::{Expectation, Expected},
    program::{Procedure, Program, Stall},
    truth::TrueCause,
};

/// Instructions with fewer time samples are left out.
pub const SAMPLES_MIN: u64 = 10;
/// A range contains the truth if it does after it was widened by this part of the truth.
const RANGE_PART: f64 = 0.10;
/// A range contains the truth if it does after it was widened by this number of cycles per execution, below which the
/// analysis reports no stall.
const RANGE_CYCLES: f64 = 0.25;

/// Sums of one program, in truly stalled cycles unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Dynamically stalled cycles of the judged instructions.
    pub stalled: f64,
    /// Dynamically stalled cycles of instructions with too few samples.
    pub left_out: f64,
    /// Cycles whose true cause is listed.
    pub cause_listed: f64,
    /// Cycles whose true cause is listed with the true culprit.
    pub culprit_listed: f64,
    /// Cycles whose true cause is listed with a range that contains the truth.
    pub range_right: f64,
    /// Stalled cycles times the number of causes listed for their instruction.
    pub causes_times: f64,
    /// Stalled cycles times the number of (cause, culprit) pairs listed.
    pub suspects_times: f64,
    /// Cycles of data misses that are listed with their culprit, if the truth has their level.
    pub leveled: f64,
    /// The part of these cycles whose true level is among the levels listed.
    pub level_listed: f64,
    /// These cycles times the number of levels listed.
    pub levels_times: f64,
    /// Cycles at instructions for which no dynamic stall is reported.
    pub unreported: f64,
    /// Cycles that the analysis calls unexplained, as it measures them.
    pub unexplained: f64,
    /// All cycles of the judged instructions, stalled or not.
    pub cycles: f64,
    /// Sums by true cause.
    pub causes: BTreeMap<String, CauseScores>,
    /// One item for each procedure and cause, as in Figure 10.
    #[serde(skip)]
    pub attributed: Vec<Attributed>,
}

/// Sums of one cause, in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CauseScores {
    /// Cycles truly stalled by it.
    pub stalled: f64,
    /// Cycles for which it is listed.
    pub cause_listed: f64,
    /// Cycles for which it is listed with the true culprit.
    pub culprit_listed: f64,
    /// Cycles for which it is listed with a range that contains the truth.
    pub range_right: f64,
}

/// The true cycles that a procedure lost to a cause, and the range that the analysis attributes to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attributed {
    /// The cause that the cycles are attributed to.
    pub cause: Cause,
    /// The cycles that were truly lost to the cause over the run.
    pub truth: f64,
    /// The lower bound of the analysis, in cycles.
    pub low: f64,
    /// The upper bound of the analysis, in cycles.
    pub high: f64,
}

/// Computes the scores of one program; `None` if no simulator provided the truth.
pub fn score(program: &Program, analyses: &[ProcedureAnalysis]) -> Option<Scores> {
    let mut scores = Scores::default();
    let period = program.evidence.period_cycles.unwrap_or(1.0);
    for ((procedure, truth), analysis) in program.evidence.procedures.iter().zip(&program.truth).zip(analyses)
    {
        let stalls = truth.stalls.as_ref()?;
        let mut by_instruction: BTreeMap<usize, Vec<&Stall>> = BTreeMap::new();
        stalls.iter().for_each(|s| by_instruction.entry(s.instruction).or_default().push(s));
        for (&i, stalls) in &by_instruction {
            let executions = truth.executions[i].unwrap_or(0) as f64;
            instruction(&mut scores, procedure, analysis, (i, executions), stalls);
        }
        let mut attributed = Attribution::default();
        for (i, cost) in analysis.instructions.iter().enumerate() {
            let executions = cost.frequency.unwrap_or(0.0) * period;
            attributed.blame(&cost.stalls, executions);
            attributed.truth(by_instruction.get(&i).map_or(&[][..], |s| s));
            if procedure.samples[i] >= SAMPLES_MIN {
                let unexplained = cost.stalls.iter().filter(|s| s.cause == Cause::Unexplained);
                scores.unexplained += unexplained.map(|s| s.cycles_max).sum::<f64>() * executions;
            }
        }
        scores.attributed.extend(attributed.0.into_iter().map(|(cause, [truth, low, high])| Attributed {
            cause,
            truth,
            low,
            high,
        }));
    }
    Some(scores)
}

/// The true cycles and the bounds of the analysis, by cause.
#[derive(Default)]
struct Attribution(BTreeMap<Cause, [f64; 3]>);

impl Attribution {
    fn blame(&mut self, stalls: &[Blame], executions: f64) {
        for stall in stalls.iter().filter(|s| s.kind == StallKind::Dynamic) {
            let sums = self.0.entry(stall.cause).or_default();
            sums[1] += stall.cycles_min * executions;
            sums[2] += stall.cycles_max * executions;
        }
    }

    fn truth(&mut self, stalls: &[&Stall]) {
        for stall in stalls {
            if let TrueCause::Dynamic(cause) = stall.cause {
                self.0.entry(cause).or_default()[0] += stall.cycles;
            }
        }
    }
}

fn instruction(
    scores: &mut Scores,
    procedure: &Procedure,
    analysis: &ProcedureAnalysis,
    (i, executions): (usize, f64),
    stalls: &[&Stall],
) {
    let true_cause = |s: &&Stall| match s.cause {
        TrueCause::Base => None,
        TrueCause::Dynamic(cause) => Some((cause, **s)),
    };
    let dynamic: Vec<_> = stalls.iter().filter_map(true_cause).collect();
    let stalled: f64 = dynamic.iter().map(|(_, stall)| stall.cycles).sum();
    if procedure.samples[i] < SAMPLES_MIN {
        scores.left_out += stalled;
        return;
    }
    let all = &analysis.instructions[i].stalls;
    let listed: Vec<&Blame> =
        all.iter().filter(|s| s.kind == StallKind::Dynamic && s.cause != Cause::Unexplained).collect();
    let mut causes: Vec<Cause> = listed.iter().map(|s| s.cause).collect();
    causes.sort_unstable();
    causes.dedup();
    scores.cycles += stalls.iter().map(|s| s.cycles).sum::<f64>();
    scores.stalled += stalled;
    scores.causes_times += stalled * causes.len() as f64;
    scores.suspects_times += stalled * listed.len() as f64;
    if !all.iter().any(|s| s.kind == StallKind::Dynamic) {
        scores.unreported += stalled;
    }
    let mut by_cause: BTreeMap<Cause, f64> = BTreeMap::new();
    for (cause, Stall { culprit, cycles, level, .. }) in dynamic {
        *by_cause.entry(cause).or_default() += cycles;
        let is_listed = listed.iter().any(|s| s.cause == cause);
        let blamed = listed.iter().find(|s| s.cause == cause && is_same(procedure, i, s.culprit, culprit));
        let is_culprit = blamed.is_some();
        if let (Some(blamed), Some(level)) = (blamed, level) {
            scores.level(&blamed.sources, level, cycles);
        }
        let of = scores.causes.entry(format!("{cause:?}")).or_default();
        of.stalled += cycles;
        if is_listed {
            of.cause_listed += cycles;
            scores.cause_listed += cycles;
        }
        if is_culprit {
            of.culprit_listed += cycles;
            scores.culprit_listed += cycles;
        }
    }
    for (cause, cycles) in by_cause {
        if contains(&listed, cause, cycles / executions.max(1.0)) {
            scores.causes.entry(format!("{cause:?}")).or_default().range_right += cycles;
            scores.range_right += cycles;
        }
    }
}

/// Whether an instruction's analysis says what a kernel's comment does. A divider whose use follows from the text alone
/// may be reported as a busy unit. A culprit in another procedure, such as a return, cannot be named; any culprit is
/// accepted for it.
pub fn agrees(procedure: &Procedure, analysis: &ProcedureAnalysis, i: usize, expected: Expectation) -> bool {
    let cost = &analysis.instructions[i];
    let is_unit = |c: Cause| c == Cause::FunctionalUnit && expected.cause == Cause::Divider;
    let mut stalls = cost.stalls.iter().filter(|s| s.cause == expected.cause || is_unit(s.cause));
    let is_here = |address| procedure.instructions.iter().any(|i| i.address.0 == address);
    match expected.verdict {
        Expected::Culprit(culprit) => {
            stalls.any(|s| is_same(procedure, i, s.culprit, Some(culprit)) || !is_here(culprit))
        }
        Expected::Kernel => cost.kernel.is_some_and(|k| k.cause == expected.cause),
        Expected::Never => stalls.next().is_none(),
    }
}

/// No culprit and the waiting instruction itself are equivalent.
fn is_same(procedure: &Procedure, i: usize, blamed: Option<usize>, truth: Option<u64>) -> bool {
    let own = procedure.instructions[i].address.0;
    let blamed = blamed.and_then(|b| procedure.instructions.get(b)).map_or(own, |b| b.address.0);
    blamed == truth.unwrap_or(own)
}

/// Whether the ranges listed for a cause, added up over its culprits, contain the true cycles per execution.
fn contains(listed: &[&Blame], cause: Cause, cycles: f64) -> bool {
    let of = || listed.iter().filter(|s| s.cause == cause);
    let (low, high) = of().fold((0.0, 0.0), |sum, s| (sum.0 + s.cycles_min, sum.1 + s.cycles_max));
    let margin = RANGE_CYCLES.max(RANGE_PART * cycles);
    of().next().is_some() && low - margin <= cycles && cycles <= high + margin
}

impl Scores {
    fn level(&mut self, listed: &[DataSource], truth: Level, cycles: f64) {
        self.leveled += cycles;
        self.levels_times += cycles * listed.len() as f64;
        if listed.iter().any(|s| s.level == truth) {
            self.level_listed += cycles;
        }
    }

    /// Adds another program's sums, divided by their weight.
    pub fn add(&mut self, more: &Scores, weight: f64) {
        let pairs = [
            (&mut self.stalled, more.stalled),
            (&mut self.left_out, more.left_out),
            (&mut self.cause_listed, more.cause_listed),
            (&mut self.culprit_listed, more.culprit_listed),
            (&mut self.range_right, more.range_right),
            (&mut self.causes_times, more.causes_times),
            (&mut self.suspects_times, more.suspects_times),
            (&mut self.leveled, more.leveled),
            (&mut self.level_listed, more.level_listed),
            (&mut self.levels_times, more.levels_times),
            (&mut self.unreported, more.unreported),
            (&mut self.unexplained, more.unexplained),
            (&mut self.cycles, more.cycles),
        ];
        pairs.into_iter().for_each(|(to, from)| *to += from * weight);
        for (cause, from) in &more.causes {
            let to = self.causes.entry(cause.clone()).or_default();
            to.stalled += from.stalled * weight;
            to.cause_listed += from.cause_listed * weight;
            to.culprit_listed += from.culprit_listed * weight;
            to.range_right += from.range_right * weight;
        }
        self.attributed.extend(&more.attributed);
    }

    /// Returns the mean over programs, each weighted by the stalled part of its cycles.
    pub fn mean<'a>(all: impl Iterator<Item = &'a Scores>) -> Scores {
        let mut sum = Scores::default();
        all.filter(|s| s.cycles > 0.0).for_each(|s| sum.add(s, 1.0 / s.cycles));
        sum
    }

    /// Returns a sum as a share of the stalled cycles.
    pub fn of_stalled(&self, sum: f64) -> f64 {
        if self.stalled > 0.0 { sum / self.stalled } else { 0.0 }
    }

    /// Returns the paper's "unexplained": as a share of all cycles, including what was not reported.
    pub fn unexplained_of_cycles(&self) -> f64 {
        if self.cycles > 0.0 { (self.unexplained + self.unreported) / self.cycles } else { 0.0 }
    }
}

/// Returns the correlation over procedures of the true cycles with the lower bound, the upper bound and the middle of the
/// range for a cause: the counterpart of Figure 10. Returns `None` with fewer than three procedures, or where nothing
/// varies.
pub fn correlations(attributed: &[Attributed], cause: Cause) -> Option<(usize, [f64; 3])> {
    let of: Vec<&Attributed> = attributed.iter().filter(|a| a.cause == cause).collect();
    let truth: Vec<f64> = of.iter().map(|a| a.truth).collect();
    let with =
        |value: fn(&Attributed) -> f64| pearson(&truth, &of.iter().map(|a| value(a)).collect::<Vec<_>>());
    Some((of.len(), [with(|a| a.low)?, with(|a| a.high)?, with(|a| (a.low + a.high) / 2.0)?]))
}

fn pearson(x: &[f64], y: &[f64]) -> Option<f64> {
    let n = x.len() as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        xy += (x - mean_x) * (y - mean_y);
        xx += (x - mean_x).powi(2);
        yy += (y - mean_y).powi(2);
    }
    let r = xy / (xx * yy).sqrt();
    (x.len() >= 3 && r.is_finite()).then_some(r)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_by_hand() {
        let of = |truth, low, high| Attributed { cause: Cause::ICacheMiss, truth, low, high };
        let all = [of(1.0, 0.0, 2.0), of(2.0, 0.0, 4.0), of(3.0, 3.0, 6.0)];
        let (n, [low, high, _]) = correlations(&all, Cause::ICacheMiss).unwrap();
        assert!(n == 3 && (high - 1.0).abs() < 1e-12 && (low - 0.866).abs() < 1e-3, "{low} {high}");
        assert_eq!(correlations(&all, Cause::DtlbMiss), None);
        assert_eq!(correlations(&all[..2], Cause::ICacheMiss), None);
    }

    #[test]
    fn a_range_contains_the_truth_with_a_margin() {
        let blame = |cycles_min, cycles_max| Blame {
            kind: StallKind::Dynamic,
            cause: Cause::DCacheMiss,
            cycles_min,
            cycles_max,
            culprit: None,
            sources: Vec::new(),
        };
        let (a, b) = (blame(2.0, 5.0), blame(1.0, 5.0));
        assert!(contains(&[&a, &b], Cause::DCacheMiss, 10.9));
        assert!(!contains(&[&a, &b], Cause::DCacheMiss, 12.0));
        assert!(!contains(&[&a, &b], Cause::DCacheMiss, 2.6));
        assert!(!contains(&[&a, &b], Cause::WriteBuffer, 0.0));
    }
}
