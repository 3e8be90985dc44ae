//! What path bursts are worth: bursts that begin at random times, corrected to counts of executions.
//!
//! Input: bursts (runs of straight-line code by transfers between addresses). Output: a weight for each burst, such that
//! weighted counts are proportional to executions. Complexity: O(t log t) in the transfers, plus a bounded number of
//! passes over the code that bursts touched.
//!
//! A burst begins at a random *time* and has a fixed number of *instructions*, so a phase in which instructions take
//! long gets more bursts than its share of executions (the paper's double sampling, DCPI §7, has that bias and does not
//! correct it). Time per execution, from samples, cannot tell by how much: with F = Σ wₚₕₐₛₑ·bursts and w = F/S, any
//! weights of phases that no burst connects agree with themselves. What tells is that control goes on: weighted right,
//! bursts *end* in each piece of code as often as the program runs it. So where a burst ended, let another go on that
//! passed there, and so on for ever; how often each burst is visited is its weight. This is the stationary distribution
//! of a Markov chain over the bursts, whose slow directions, from phase to phase, rest on the bursts that cross over. A
//! little of the chain begins anew anywhere: phases that nothing connects keep their weight of 1.
//!
//! Pieces are 32 bytes of code, about a block. Executions are counted in bytes of code, since the ratio of bytes to
//! instructions is nearly the same everywhere, so that no code needs to be decoded.

use rustc_hash::FxHashMap;

/// An address that stands for all code whose steps were not recorded.
pub const ELSEWHERE: u64 = u64::MAX;

/// Size of a piece of code in bytes, as a shift.
const PIECE_SHIFT: u32 = 5;
/// Straight-line code that is longer is a mistake: no burst has so many steps.
const RUN_BYTES_MAX: u64 = 64 << 10;
/// Pieces of code that all bursts together may touch: some hundred times what a long recording's do. Those of a damaged
/// file beyond that are left out.
const PIECES_MAX: usize = 4 << 20;
/// As if so many more bursts had begun anywhere and ended anywhere.
const PRIOR_CROSSINGS: f64 = 2.0;
/// The chain is followed until its weights change by less than that in a step …
const CHANGE_MIN: f64 = 1e-5;
/// … or that many counts have been looked at.
const WORK_MAX: usize = 30_000_000;
/// Bursts with which half of a piece's own rate is believed.
const PRIOR_BURSTS: f64 = 2.0;
/// Weights stay within that factor of their mean: rates that differ by more are noise.
const WEIGHT_RANGE: f64 = 30.0;

/// A burst. Addresses order the code of all images; give each image a range of its own.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// The first instruction.
    pub first: u64,
    /// The instruction after the last that was executed.
    pub last: u64,
    /// From an instruction to another that is not simply the next, or the next after a branch not taken; how often.
    pub transfers: &'a [(u64, u64, u64)],
}

/// The weight of each burst, 1 on average over the code that was executed.
pub fn weights(bursts: &[Burst]) -> Vec<f64> {
    let mut room = PIECES_MAX;
    let counted: Vec<Counts> = bursts.iter().map(|b| piece_counts(b, &mut room)).collect();
    let visits = visits(&counted, bursts);
    let mut weights = smoothed(&counted, &visits);
    normalize(&counted, &mut weights);
    verify_weights(&weights);
    weights
}

/// How often each instruction was executed in a burst: runs of code (first address, address of the last instruction's
/// first byte + 1, executions), ascending, apart from each other.
pub fn runs(burst: &Burst) -> Vec<(u64, u64, u64)> {
    let mut changes: Vec<(u64, i128)> = vec![(burst.first, 1), (burst.last, -1)];
    for &(from, to, count) in burst.transfers {
        changes.push((to, i128::from(count)));
        changes.push((from.saturating_add(1), -i128::from(count)));
    }
    changes.retain(|(address, _)| *address != ELSEWHERE);
    changes.sort_unstable();
    let mut runs = Vec::new();
    let mut executions = 0_i128;
    for pair in changes.windows(2) {
        let [(start, change), (end, _)] = [pair[0], pair[1]];
        // What is not balanced (a place elsewhere, a damaged file) must not go on for ever.
        executions = (executions + change).max(0);
        if start < end && executions > 0 && end - start <= RUN_BYTES_MAX {
            runs.push((start, end, u64::try_from(executions).unwrap_or(u64::MAX)));
        }
    }
    runs
}

/// Executions by piece of code, in pieces' lengths.
type Counts = FxHashMap<u64, f64>;

/// As long as there is `room` for more pieces, of which it takes what it needs.
fn piece_counts(burst: &Burst, room: &mut usize) -> Counts {
    let mut counts = Counts::default();
    for (start, end, executions) in runs(burst) {
        for piece in start >> PIECE_SHIFT..=(end - 1) >> PIECE_SHIFT {
            if counts.len() >= *room {
                break;
            }
            let low = piece << PIECE_SHIFT;
            let high = low | ((1 << PIECE_SHIFT) - 1);
            let bytes = (end - 1).min(high) - start.max(low) + 1;
            *counts.entry(piece).or_default() +=
                executions as f64 * bytes as f64 / f64::from(1 << PIECE_SHIFT);
        }
    }
    *room -= counts.len();
    counts
}

/// How often the chain visits each burst, 1 on average.
fn visits(bursts: &[Counts], ends: &[Burst]) -> Vec<f64> {
    let mut totals = Counts::default();
    bursts.iter().flatten().for_each(|(piece, n)| *totals.entry(*piece).or_default() += n);
    let end_of = |b: &Burst| Some(b.last >> PIECE_SHIFT).filter(|p| totals.get(p).is_some_and(|n| *n > 0.0));
    let ends: Vec<Option<u64>> = ends.iter().map(end_of).collect();
    let count = bursts.len() as f64;
    let anew = PRIOR_CROSSINGS / (count + PRIOR_CROSSINGS);
    let mut visits = vec![1.0; bursts.len()];
    let work = bursts.iter().map(|b| b.len() + 1).sum::<usize>().max(1);
    for _ in 0..(WORK_MAX / work).max(1) {
        let mut arrived = Counts::default();
        let mut lost = 0.0;
        for (end, visits) in ends.iter().zip(&visits) {
            match end {
                Some(piece) => *arrived.entry(*piece).or_default() += visits,
                None => lost += visits,
            }
        }
        arrived.iter_mut().for_each(|(piece, n)| *n /= totals[piece]);
        let anywhere = anew + (1.0 - anew) * lost / count;
        let passed = |b: &Counts| b.iter().map(|(p, n)| n * arrived.get(p).unwrap_or(&0.0)).sum::<f64>();
        let next: Vec<f64> = bursts.iter().map(|b| anywhere + (1.0 - anew) * passed(b)).collect();
        let change = next.iter().zip(&visits).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
        visits = next;
        if change < CHANGE_MIN {
            break;
        }
    }
    visits
}

/// A burst's weight from those of all that went through the same code: one burst's own visits are mostly chance.
fn smoothed(bursts: &[Counts], visits: &[f64]) -> Vec<f64> {
    /// A piece of code: executions in all bursts, the same by visits, and how many bursts were there.
    #[derive(Default)]
    struct Piece {
        plain: f64,
        weighted: f64,
        bursts: f64,
    }
    let mut pieces: FxHashMap<u64, Piece> = FxHashMap::default();
    for (burst, visits) in bursts.iter().zip(visits) {
        for (piece, n) in burst {
            let piece = pieces.entry(*piece).or_default();
            piece.plain += n;
            piece.weighted += n * visits;
            piece.bursts += 1.0;
        }
    }
    let excess = |piece: &Piece| {
        let own = piece.plain / piece.weighted.max(f64::MIN_POSITIVE);
        own.powf(piece.bursts / (piece.bursts + PRIOR_BURSTS))
    };
    let excess: FxHashMap<u64, f64> = pieces.iter().map(|(at, p)| (*at, excess(p))).collect();
    let weight = |burst: &Counts| {
        let executed: f64 = burst.values().sum();
        let excess: f64 = burst.iter().map(|(piece, n)| n * excess[piece]).sum();
        if excess > 0.0 { executed / excess } else { 1.0 }
    };
    bursts.iter().map(weight).collect()
}

fn normalize(bursts: &[Counts], weights: &mut [f64]) {
    let executed: Vec<f64> = bursts.iter().map(|b| b.values().sum()).collect();
    let weighted: f64 = executed.iter().zip(weights.iter()).map(|(n, w)| n * w).sum();
    let mean = weighted / executed.iter().sum::<f64>();
    if mean.is_finite() && mean > 0.0 {
        weights.iter_mut().for_each(|w| *w = (*w / mean).clamp(1.0 / WEIGHT_RANGE, WEIGHT_RANGE));
    }
}

/// Asserts that weights can be multiplied with.
pub fn verify_weights(weights: &[f64]) {
    debug_assert!(weights.iter().all(|w| w.is_finite() && *w > 0.0), "{weights:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator: tests need variety here, not quality.
    fn random(mut seed: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        }
    }

    /// A program of loops of 32 bytes (8 instructions), each with its time of a turn and its turns before the next one.
    struct Phases(Vec<(u64, u64)>);

    impl Phases {
        /// The piece of code that runs at a time, the time at which its turn began, and the length of a round.
        fn at(&self, time: u64) -> usize {
            let mut time = time % self.round();
            for (piece, (cost, turns)) in self.0.iter().enumerate() {
                if time < cost * turns {
                    return piece;
                }
                time -= cost * turns;
            }
            unreachable!("within a round")
        }

        fn round(&self) -> u64 {
            self.0.iter().map(|(cost, turns)| cost * turns).sum()
        }

        /// A burst of so many turns from a time on: (piece, turns).
        fn burst(&self, time: u64, turns: u64) -> Vec<(usize, u64)> {
            let mut left = turns;
            let mut burst = Vec::new();
            let mut at = time;
            while left > 0 {
                let piece = self.at(at);
                let (cost, turns) = self.0[piece];
                let start: u64 = self.0[..piece].iter().map(|(c, n)| c * n).sum();
                let done = (at % self.round() - start) / cost;
                let now = left.min(turns - done);
                burst.push((piece, now));
                left -= now;
                at += (turns - done) * cost - (at % self.round() - start) % cost;
            }
            burst
        }
    }

    const BASE: u64 = 0x1000;

    fn address(piece: usize) -> u64 {
        BASE + 32 * piece as u64
    }

    /// Loops run `n` times each: the back edge n − 1 times, then a fall-through to wherever the next one is. After the
    /// last turn of the burst, another would follow.
    fn transfers(burst: &[(usize, u64)]) -> Vec<(u64, u64, u64)> {
        let mut transfers = Vec::new();
        for (i, (piece, turns)) in burst.iter().enumerate() {
            let last = address(*piece) + 31;
            match burst.get(i + 1) {
                Some((next, _)) => {
                    transfers.push((last, address(*piece), turns - 1));
                    transfers.push((last, address(*next), 1));
                }
                None => transfers.push((last, address(*piece), *turns)),
            }
        }
        transfers
    }

    #[test]
    fn phases_of_different_speed_get_their_executions() {
        // Times of a turn of 2, 40 and 8; executions 60 : 20 : 20.
        let phases = Phases(vec![(2, 600), (40, 200), (8, 200)]);
        let mut random = random(7);
        let lists: Vec<Vec<(usize, u64)>> =
            (0..1000).map(|_| phases.burst(random(phases.round()), 128)).collect();
        let transfers: Vec<_> = lists.iter().map(|b| transfers(b)).collect();
        let bursts: Vec<Burst> = lists
            .iter()
            .zip(&transfers)
            .map(|(list, transfers)| {
                let (first, last) = (address(list[0].0), address(list[list.len() - 1].0));
                Burst { first, last, transfers }
            })
            .collect();
        let share = |weights: &[f64]| {
            let mut turns = [0.0; 3];
            for (list, weight) in lists.iter().zip(weights) {
                list.iter().for_each(|(piece, n)| turns[*piece] += weight * *n as f64);
            }
            let total: f64 = turns.iter().sum();
            turns.map(|t| t / total)
        };
        let naive = share(&vec![1.0; lists.len()]);
        assert!(naive[0] < 0.2 && naive[1] > 0.5, "the bias is there: {naive:?}");
        let corrected = share(&weights(&bursts));
        for (found, truth) in corrected.iter().zip([0.6, 0.2, 0.2]) {
            assert!((found / truth - 1.0).abs() < 0.3, "{corrected:?}");
        }
    }

    #[test]
    fn runs_count_each_instruction() {
        // 10: …; 13: jne 10; 15: call 40; 40: ret; 20: …, cut off before 24.
        let transfers = [(13, 10, 4), (13, 15, 1), (15, 40, 1), (40, 20, 1)];
        let burst = Burst { first: 10, last: 24, transfers: &transfers };
        assert_eq!(runs(&burst), [(10, 14, 5), (15, 16, 1), (20, 24, 1), (40, 41, 1)]);
    }

    #[test]
    fn nonsense_is_survived() {
        let transfers = [(5, 3, u64::MAX), (ELSEWHERE, 9, 3), (7, ELSEWHERE, 1), (0, u64::MAX - 1, 2)];
        let burst = Burst { first: u64::MAX - 1, last: 0, transfers: &transfers };
        let empty = Burst { first: ELSEWHERE, last: ELSEWHERE, transfers: &[] };
        let at_the_end = Burst { first: u64::MAX - 9, last: u64::MAX - 1, transfers: &[] };
        assert_eq!(weights(&[at_the_end]), [1.0]);
        assert_eq!(weights(&[burst, empty]).len(), 2);
        assert_eq!(weights(&[]), [0.0; 0]);
        assert_eq!(weights(&[empty]), [1.0]);
    }
}
