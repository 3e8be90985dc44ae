//! Finds code that was never seen to run, so that optimizers may treat it as cold.
//!
//! Input: the blocks and edges of a procedure, and the blocks in which something was seen. Output: the blocks that were
//! never seen to run. This module computes no frequencies.
//!
//! If a branch was never seen taken, the analysis still gives the taken direction some tenths of a percent of the branch's
//! executions. That is the best estimate of their number. A compiler, however, decides by the difference between rare and
//! never whether to inline a call in that code. Cost: linear in the edges.

use dwell_analysis::{Block, Edge};

/// Least part of a branch's executions for which a direction counts as taken. A direction with a smaller part may never have
/// been taken.
const SELDOM: f64 = 0.05;

/// Returns for each block whether it was never seen to run: nothing was seen in any block that is executed equally often,
/// and only rarely taken branches lead to it. The block's estimated time does not matter: if the block had taken much time
/// there would be a sample in it, so the estimate must be wrong.
pub fn never_seen(blocks: &[Block], edges: &[Edge], seen: &[bool]) -> Vec<bool> {
    let classes = blocks.iter().map(|b| b.class + 1).max().unwrap_or(0);
    let mut lives = vec![false; classes];
    for (at, block) in blocks.iter().enumerate() {
        lives[block.class] |= seen[at] || at == 0;
    }
    let frequency = |f: Option<f64>| f.unwrap_or(0.0);
    let mut leads_to: Vec<Vec<usize>> = vec![Vec::new(); classes];
    for e in edges.iter().filter(|e| frequency(e.frequency) >= SELDOM * frequency(blocks[e.from].frequency)) {
        leads_to[blocks[e.from].class].push(blocks[e.to].class);
    }
    let mut to_follow: Vec<usize> = (0..classes).filter(|class| lives[*class]).collect();
    while let Some(class) = to_follow.pop() {
        for next in std::mem::take(&mut leads_to[class]) {
            if !std::mem::replace(&mut lives[next], true) {
                to_follow.push(next);
            }
        }
    }
    blocks.iter().map(|b| !lives[b.class]).collect()
}

#[cfg(test)]
mod tests {
    use dwell_analysis::Confidence;

    use super::*;

    #[test]
    fn code_behind_rare_branches_only_counts_as_unseen() {
        let block = |frequency, class| Block {
            instructions: 0..1,
            frequency: Some(frequency),
            frequency_interval: None,
            confidence: Confidence::Low,
            cpi: None,
            cpi_interval: dwell_analysis::Interval { min: 0.0, max: f64::INFINITY },
            best_case_cpi: 1.0,
            per_entry: None,
            class,
        };
        let edge =
            |from, to, frequency| Edge { from, to, frequency: Some(frequency), confidence: Confidence::Low };
        // The graph is 0 → 1 → 5; 0 → 2 → 3 → 5 (rarely taken); 1 → 4 (one time in four).
        let blocks =
            [block(100.0, 0), block(99.6, 1), block(0.4, 2), block(0.4, 2), block(25.0, 3), block(100.0, 0)];
        let edges = [
            edge(0, 1, 99.6),
            edge(0, 2, 0.4),
            edge(2, 3, 0.4),
            edge(3, 5, 0.4),
            edge(1, 4, 25.0),
            edge(1, 5, 74.6),
            edge(4, 5, 25.0),
        ];
        let of = |seen: [bool; 6]| never_seen(&blocks, &edges, &seen);
        assert_eq!(
            of([false; 6]),
            [false, false, true, true, false, false],
            "flow alone tells of the others"
        );
        let seen = of([false, false, false, true, false, false]);
        assert_eq!(seen, [false; 6], "a sample in one block tells of all that are executed as often");
    }
}
