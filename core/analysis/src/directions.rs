//! Directions of branches from samples before them.
//!
//! Input: for each instruction, the directions that samples there predicted for the next conditional branch, and those
//! observed on branches themselves. Output: counts at the branches. Complexity: O(n · the longest path to a branch, which
//! is bounded).
//!
//! Samples are taken by time, and the direction of a branch may depend on what took the time: a load that misses more
//! often before one direction has more samples of that direction. But each instruction before a branch was executed
//! equally often, so each gives the same probability; its time only determines how many samples it has. Therefore the
//! instructions' shares are averaged, as if each sample weighed 1 over the instruction's samples (docs/measured.md: most
//! of the bias is removed, at the price of variance); instructions with few samples weigh less. The result has as many
//! counts as the average is certain of.

use dwell_image::{Flow, Instruction};

/// Greatest number of instructions between a sample and its branch.
const WAY_MAX: usize = 32;
/// Number of samples at which an instruction has half of its full weight.
const HALF_WEIGHT: f64 = 8.0;

/// Returns how often each conditional branch is taken and not taken, up to a scale for each. `at_branch` holds the
/// directions observed on branches, `ahead` those that samples at each instruction predicted for the next branch; both
/// are as long as `instructions`.
pub fn directions(
    instructions: &[Instruction],
    at_branch: &[(u64, u64)],
    ahead: &[(u64, u64)],
) -> Vec<(u64, u64)> {
    let mut seen: Vec<Average> = vec![Average::default(); instructions.len()];
    for (branch, counts) in at_branch.iter().enumerate().take(instructions.len()) {
        seen[branch].add(*counts);
    }
    for (from, counts) in ahead.iter().enumerate().filter(|(_, c)| c.0 > 0 || c.1 > 0) {
        if let Some(branch) = branch_after(instructions, from) {
            seen[branch].add(*counts);
        }
    }
    let found: Vec<(u64, u64)> = seen.iter().map(Average::counts).collect();
    debug_assert_eq!(verify_directions(&found, instructions, at_branch, ahead), Ok(()));
    found
}

/// Checks that only branches and observed instructions have counts, and that the average is no more certain than all
/// observations, up to rounding at each branch.
fn verify_directions(
    found: &[(u64, u64)],
    instructions: &[Instruction],
    at_branch: &[(u64, u64)],
    ahead: &[(u64, u64)],
) -> Result<(), String> {
    let sum = |counts: &[(u64, u64)]| counts.iter().map(|c| c.0 as f64 + c.1 as f64).sum::<f64>();
    let is_seen = |i: usize| at_branch.get(i).is_some_and(|c| *c != (0, 0));
    let is_branch = |i: usize| matches!(instructions[i].flow, Flow::Branch { .. });
    let has_counts = found.iter().enumerate().filter(|(_, c)| **c != (0, 0));
    let stray = has_counts.map(|(i, _)| i).find(|&i| !is_seen(i) && !is_branch(i));
    let (all, seen) = (sum(found), sum(at_branch) + sum(ahead));
    match stray {
        Some(i) => Err(format!("instruction {i} is no branch, and has {:?}", found[i])),
        None if found.len() != instructions.len() => Err(format!("{} instructions", found.len())),
        None if all > (seen + found.len() as f64) * (1.0 + 1e-9) => {
            Err(format!("{all} directions of {seen} that were seen"))
        }
        None => Ok(()),
    }
}

/// Returns the first conditional branch that straight-line code and direct jumps reach.
fn branch_after(instructions: &[Instruction], from: usize) -> Option<usize> {
    let mut at = from;
    for _ in 0..WAY_MAX {
        at = match instructions.get(at)?.flow {
            Flow::Branch { .. } => return Some(at),
            Flow::Next => at + 1,
            Flow::Jump { target } => instructions.binary_search_by_key(&target, |i| i.address).ok()?,
            _ => return None,
        };
    }
    None
}

/// A weighted average of shares.
#[derive(Clone, Copy, Default)]
struct Average {
    weight: f64,
    taken: f64,
    /// The sum of squared weights over counts, which is proportional to the variance.
    spread: f64,
}

impl Average {
    fn add(&mut self, (taken, not_taken): (u64, u64)) {
        let count = taken as f64 + not_taken as f64;
        if count > 0.0 {
            let weight = count / (count + HALF_WEIGHT);
            self.weight += weight;
            self.taken += weight * taken as f64 / count;
            self.spread += weight * weight / count;
        }
    }

    fn counts(&self) -> (u64, u64) {
        if self.weight == 0.0 {
            return (0, 0);
        }
        let (share, count) = (self.taken / self.weight, self.weight * self.weight / self.spread);
        ((share * count).round() as u64, ((1.0 - share) * count).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_image::{Arch, ImageAddress};

    /// `0: mov eax, ebx; 1: jmp 3; 2: nop; 3: add eax, 1; 4: je 0; 5: ret`
    fn code() -> Vec<Instruction> {
        let bytes = [0x89, 0xd8, 0xeb, 0x01, 0x90, 0x83, 0xc0, 0x01, 0x74, 0xf6, 0xc3];
        dwell_image::instructions(Arch::X86_64, &bytes, ImageAddress(0x100))
    }

    #[test]
    fn directions_of_the_branch_itself_are_kept() {
        let mut at = vec![(0, 0); 6];
        at[4] = (30, 10);
        assert_eq!(directions(&code(), &at, &[(0, 0); 6]), at);
    }

    #[test]
    fn instructions_have_equal_weight_however_long_they_take() {
        // A load misses when the branch will be taken: nearly all of its 9,000 samples precede a taken branch.
        // Elsewhere half do.
        let ahead = [(400, 400), (0, 0), (7, 7), (9_000, 1_000), (0, 0), (3, 3)];
        let found = directions(&code(), &[(0, 0); 6], &ahead);
        let share = found[4].0 as f64 / (found[4].0 + found[4].1) as f64;
        assert!((0.6..0.66).contains(&share), "{found:?}: of 0.5, 0.9 and 0.5 the mean");
        assert!(found[4].0 + found[4].1 < 900, "no more certain than the least certain: {found:?}");
        assert_eq!([0, 1, 2, 3, 5].map(|i| found[i]), [(0, 0); 5]);
    }

    #[test]
    fn nonsensical_input_does_not_panic() {
        assert_eq!(directions(&[], &[(1, 2)], &[(3, 4)]), []);
        let found = directions(&code(), &[(u64::MAX, u64::MAX); 9], &[(u64::MAX, 0); 9]);
        assert_eq!(found.len(), 6);
    }
}
