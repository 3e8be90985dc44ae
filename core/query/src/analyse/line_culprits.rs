//! Finds the causes of the lost cycles of a source line, and which of them cannot be told apart.
//!
//! A *suspect* is a cause together with the place of the instruction to blame. Input: the line's instructions with their
//! stalls. Output: the leading suspects, and ties among them. Cost: quadratic in the suspects of each instruction.

use std::{collections::BTreeMap, sync::Arc};

use dwell_analysis::{Cause, StallKind};

use crate::{
    analyse::{
        costs::ProcedureCosts,
        listing::{likelihood, stall_range},
    },
    answer::{LineCulprit, LineTie},
    cause_names::{names, waits_for},
};

/// Largest number of suspects in an answer.
const CULPRITS_MAX: usize = 6;
/// Least share of the line's time that a suspect must be able to explain.
const SHARE_MIN: f64 = 0.1;
/// Two suspects are tied if they may explain the same cycles, and these are at least this part of what either may explain.
const COMMON_PART_MIN: f64 = 0.5;

/// A suspect: whether its cause is dynamic, the cause, and the file and line of the instruction to blame.
type Suspect = (bool, Cause, Option<(Arc<str>, Option<u32>)>);

/// Least and largest number of samples.
type Range = (f64, f64);

/// Suspects of one line.
#[derive(Default)]
pub struct LineCulprits {
    ranges: BTreeMap<Suspect, Range>,
    /// One entry for each instruction with dynamic stalls: its suspects, each with the most samples that it may explain, and
    /// the instruction's samples.
    stalled: Vec<(Vec<(Suspect, f64)>, f64)>,
}

impl LineCulprits {
    /// Adds one instruction (an index) of the line. `now` maps a line as it was built to its current place.
    pub fn add(
        &mut self,
        costs: &ProcedureCosts,
        index: usize,
        now: impl Fn((Arc<str>, u32)) -> (Arc<str>, Option<u32>),
    ) {
        let cost = &costs.analysis.instructions[index];
        if cost.frequency.is_none() {
            return;
        }
        if let Some(kernel) = cost.kernel {
            let own = costs.lines[index].clone().map(&now);
            self.blame((true, kernel.cause, own), (kernel.samples as f64, kernel.samples as f64));
        }
        let mut suspects = Vec::new();
        for stall in &cost.stalls {
            let blamed = stall.culprit.and_then(|c| costs.lines[c].clone()).map(&now);
            let suspect = (stall.kind == StallKind::Dynamic, stall.cause, blamed);
            let share = stall_range(costs, cost, stall).share;
            let range = (share.min * cost.head_samples, share.max * cost.head_samples);
            self.blame(suspect.clone(), range);
            if suspect.0 {
                suspects.push((suspect, range.1));
            }
        }
        if !suspects.is_empty() {
            self.stalled.push((suspects, cost.head_samples));
        }
    }

    fn blame(&mut self, suspect: Suspect, (min, max): Range) {
        let range = self.ranges.entry(suspect).or_default();
        *range = (range.0 + min, range.1 + max);
    }

    /// Returns the leading suspects of the line, and the ties among them. `samples` is the number of the line's time
    /// samples.
    pub fn finish(self, samples: f64, period: Option<f64>) -> (Vec<LineCulprit>, Vec<LineTie>) {
        let share = |max: f64| if samples > 0.0 { (max / samples).min(1.0) } else { 0.0 };
        let cycles = |of: f64| period.map(|p| p * of.min(samples));
        let leading = self.leading(&share);
        let ties = self.ties(&leading, &share);
        let culprit = |((dynamic, cause, blamed), (min, max)): &(Suspect, Range)| {
            let (file, line) = blamed.clone().map_or((None, None), |(f, l)| (Some(f.to_string()), l));
            LineCulprit {
                kind: if *dynamic { StallKind::Dynamic } else { StallKind::Static },
                cause: names(*cause).name.to_owned(),
                label: names(*cause).label,
                cycles_min: cycles(*min),
                cycles_max: cycles(*max),
                share_max: share(*max),
                file,
                line,
            }
        };
        let tie = |(culprits, (min, max)): (Vec<usize>, Range)| {
            let causes: Vec<Cause> = culprits.iter().map(|&c| leading[c].0.1).collect();
            LineTie {
                text: waits_for(&causes),
                culprits,
                share_max: share(max),
                cycles_min: cycles(min),
                cycles_max: cycles(max),
            }
        };
        (leading.iter().map(culprit).collect(), ties.into_iter().map(tie).collect())
    }

    /// Returns the suspects that may explain most. Among suspects of similar size, the more likely one comes first.
    fn leading(&self, share: &impl Fn(f64) -> f64) -> Vec<(Suspect, Range)> {
        let mut ranked: Vec<(Suspect, Range)> = self.ranges.clone().into_iter().collect();
        let most = ranked.iter().map(|(_, range)| range.1).fold(0.0, f64::max);
        // Bounds are rough: if a more likely cause may explain at least half of what another one may, it comes first.
        ranked.sort_by(|(a, x), (b, y)| {
            let minor = |range: &Range| range.1 < 0.5 * most;
            let likelier = likelihood(a.1).cmp(&likelihood(b.1));
            minor(x).cmp(&minor(y)).then(likelier).then(y.1.total_cmp(&x.1)).then(y.0.total_cmp(&x.0))
        });
        ranked.retain(|(_, (_, max))| share(*max) >= SHARE_MIN);
        ranked.truncate(CULPRITS_MAX);
        ranked
    }

    /// Returns groups of tied suspects (indices into `leading`), most costly first, each with the samples that it may
    /// explain together.
    fn ties(&self, leading: &[(Suspect, Range)], share: &impl Fn(f64) -> f64) -> Vec<(Vec<usize>, Range)> {
        let index = |suspect: &Suspect| leading.iter().position(|(one, _)| one == suspect);
        let stalled: Vec<(Vec<(usize, f64)>, f64)> = self
            .stalled
            .iter()
            .map(|(suspects, samples)| {
                let known = suspects.iter().filter_map(|(s, max)| Some((index(s)?, *max)));
                (known.collect(), *samples)
            })
            .collect();
        let mut common = vec![vec![0.0; leading.len()]; leading.len()];
        for (suspects, _) in &stalled {
            for &(a, x) in suspects {
                for &(b, y) in suspects.iter().filter(|(b, _)| *b != a) {
                    common[a][b] += f64::min(x, y);
                }
            }
        }
        let mut group: Vec<usize> = (0..leading.len()).collect();
        for a in 0..leading.len() {
            for b in 0..a {
                let least = leading[a].1.1.min(leading[b].1.1);
                if common[a][b] >= COMMON_PART_MIN * least {
                    let (from, to) = (group[a].max(group[b]), group[a].min(group[b]));
                    group.iter_mut().filter(|g| **g == from).for_each(|g| *g = to);
                }
            }
        }
        let mut ties = Vec::new();
        for id in 0..leading.len() {
            let members: Vec<usize> = (0..leading.len()).filter(|&s| group[s] == id).collect();
            if members.is_empty() {
                continue;
            }
            let (min, max) = match members[..] {
                [one] => leading[one].1,
                // One of the tied suspects explains what all of them may explain, so none has a minimum of its own.
                _ => (members.iter().map(|&s| leading[s].1.0).sum(), together(&members, leading, &stalled)),
            };
            ties.push((members, (min.min(max), max)));
        }
        ties.sort_by(|a, b| share(b.1.1).total_cmp(&share(a.1.1)).then(a.0.cmp(&b.0)));
        ties
    }
}

/// Returns the largest number of samples that some suspects may explain together: in each instruction no more than it has.
fn together(members: &[usize], leading: &[(Suspect, Range)], stalled: &[(Vec<(usize, f64)>, f64)]) -> f64 {
    let of_instruction = |(suspects, samples): &(Vec<(usize, f64)>, f64)| {
        let most: f64 = suspects.iter().filter(|(s, _)| members.contains(s)).map(|(_, max)| max).sum();
        most.min(*samples)
    };
    let in_stalls: f64 = stalled.iter().map(of_instruction).sum();
    // Time in the kernel is not part of any stall.
    members.iter().map(|&s| leading[s].1.1).fold(in_stalls, f64::max)
}
