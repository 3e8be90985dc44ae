//! Counts of executions as terms of the flow fit in order, and as points of the mixture.
//!
//! Input: samples of retired instructions, path bursts, breakpoint counts. Output: terms for [`flow_fit`](super::flow_fit),
//! and for each class a point that never stalls. Complexity: linear, except for sorting the groups of windows and for the
//! likelihood of each counted class. The paper has samples of time only.
//!
//! Retired instructions count executions on the flow's scale. Bursts, and each group of windows, do so up to a factor
//! that only time determines. A class's count is therefore no more certain than the *other* classes of the same scale
//! make the factor; otherwise its own time would count twice.

use super::{
    Evidence, counted,
    flow_fit::{Flow, Known, Scaled},
    likely_flow::Count,
    mixture::{self, Point, Stalls},
    retired, stepped,
};

/// The least relative error of a count, as of a class's points.
const ERROR_MIN: f64 = 0.01;
/// The least relative error of a count on a scale of its own: bursts and windows begin at random times, and slow phases
/// have more of these. Stall-free points are exact and counts are not, so that counts only decide what stalls leave open.
const RELATIVE_ERROR_MIN: f64 = 0.05;
/// Greatest number of scales. Those with the most counts are used, since each is one more system in every step of the
/// fit.
const SCALES_MAX: usize = 6;

/// The counts of a procedure.
pub struct Counts {
    /// The counts on the flow's scale.
    absolute: Vec<Term>,
    /// The counts of each other scale.
    relative: Vec<Vec<Term>>,
    /// Blocks whose outgoing edges were counted, with the counts.
    pub odds: Vec<(usize, Vec<(usize, f64)>)>,
}

/// A count: the number of independent samples, and how many of them to expect per execution of the block.
#[derive(Clone, Copy)]
struct Term {
    block: usize,
    samples: f64,
    exposure: f64,
}

impl Term {
    fn from_count(count: &Count, error_min: f64) -> Term {
        let reliance = Count { error: count.error.max(error_min), ..*count }.reliance();
        Term { block: count.block, samples: reliance * count.samples, exposure: reliance * count.exposure }
    }

    /// Returns an issue point worth `part` of the count, at its scale's factor.
    fn point(&self, part: f64, factor: f64) -> Point {
        let cycles = part * factor * self.exposure;
        Point {
            samples: part * self.samples,
            cycles,
            cycles_floor: cycles,
            hidden_prior: 0.0,
            stall_prior: 0.0,
            is_head: false,
        }
    }
}

impl Counts {
    /// Collects the counts of the evidence.
    pub fn from_evidence(evidence: &Evidence) -> Counts {
        let bursts = stepped::counts(evidence);
        let breakpoints = counted::counts(evidence, usize::from(!bursts.is_empty()));
        let scales = breakpoints.last().map_or(usize::from(!bursts.is_empty()), |c| c.scale + 1);
        let mut relative = vec![Vec::new(); scales];
        bursts
            .iter()
            .chain(&breakpoints)
            .for_each(|c| relative[c.scale].push(Term::from_count(c, RELATIVE_ERROR_MIN)));
        // A single count determines nothing but its own factor.
        relative.retain(|terms| terms.len() > 1 && terms.iter().any(|t| t.samples > 0.0));
        relative.sort_by_key(|terms| std::cmp::Reverse(terms.len()));
        relative.truncate(SCALES_MAX);
        let absolute = retired::counts(evidence).iter().map(|c| Term::from_count(c, ERROR_MIN)).collect();
        Counts { absolute, relative, odds: stepped::odds(evidence) }
    }

    /// Adds the samples of all counts and the exposures of those on the flow's scale.
    pub fn add(&self, known: &mut [Known]) {
        for term in &self.absolute {
            known[term.block].cycles += term.exposure;
        }
        for term in self.relative.iter().flatten().chain(&self.absolute) {
            known[term.block].samples += term.samples;
        }
    }

    /// Returns the other counts, whose factors the fit determines.
    pub fn scales(&self) -> Vec<Scaled> {
        let count = |t: &Term| (t.block, t.samples, t.exposure);
        let scaled = |terms: &Vec<Term>| Scaled { counts: terms.iter().map(count).collect() };
        self.relative.iter().map(scaled).collect()
    }

    /// Returns the points of counts on the flow's scale, each with its block.
    pub fn points(&self) -> impl Iterator<Item = (usize, Point)> {
        self.absolute.iter().map(|t| (t.block, t.point(1.0, 1.0)))
    }

    /// Returns the points of the other counts, given a flow. `points` returns the points of a block's class without
    /// counts.
    pub fn points_by<'p>(
        &self,
        flow: &Flow,
        points: impl Fn(usize) -> &'p [Point],
        stalls: &Stalls,
    ) -> Vec<(usize, Point)> {
        let mut known = Vec::new();
        for (terms, scaled) in self.relative.iter().zip(self.scales()) {
            let factor = scaled.factor(&flow.blocks);
            let certainty = |t: &Term| {
                let by_time = mixture::log_variance(points(t.block), flow.blocks[t.block], stalls);
                1.0 / (by_time + 1.0 / t.samples)
            };
            let certainties: Vec<f64> = terms.iter().map(certainty).collect();
            let all: f64 = certainties.iter().sum();
            for (term, own) in terms.iter().zip(&certainties) {
                let of_factor = (all - own).max(0.0);
                let part = of_factor / (of_factor + term.samples).max(f64::MIN_POSITIVE);
                known.push((term.block, term.point(part, factor)));
            }
        }
        known.retain(|(_, point)| point.cycles > 0.0);
        debug_assert_eq!(verify_points(&known), Ok(()));
        known
    }
}

/// Checks that each point takes time, never stalls, and is no more certain than [`RELATIVE_ERROR_MIN`] allows.
fn verify_points(known: &[(usize, Point)]) -> Result<(), String> {
    let samples_max = (1.0 + 1e-9) / (RELATIVE_ERROR_MIN * RELATIVE_ERROR_MIN);
    let is_sound = |p: &Point| {
        p.cycles.is_finite()
            && (0.0..=samples_max).contains(&p.samples)
            && p.stall_prior + p.hidden_prior == 0.0
    };
    match known.iter().find(|(_, p)| !is_sound(p)) {
        Some(wrong) => Err(format!("{wrong:?}")),
        None => Ok(()),
    }
}
