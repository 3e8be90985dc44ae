//! What counts in short windows say of the time between them.
//!
//! Enters: for each window what was counted in it, and for the time before the next one what one block of each procedure, its *anchor*,
//! was counted then. Leaves: executions of all blocks over all that time.
//!
//! A program is slower in a window than between them, and does other work there. So a window is not extrapolated by its time, but
//! by its work: the executions of a block for each execution of its procedure's anchor, times the anchor's executions over all
//! the time. Where a procedure has no anchor, its share of the work is that of all anchors together. Complexity: linear in what
//! was counted.

use std::collections::BTreeMap;

use super::ProcedureCounts;

/// Executions of an anchor, in windows and between them, without which they say nothing of the work.
const ANCHOR_MIN: u64 = 30;
/// How much slower a program is in windows, where no anchor shows it.
const SLOWER: f64 = 1.4;
/// Standard deviation of the logarithm of executions without an anchor of any procedure; with those of others; of a few windows; and
/// the least one.
const UNANCHORED: f64 = 0.3;
const ANCHORED_ELSEWHERE: f64 = 0.05;
const FEW_WINDOWS: f64 = 0.1;
const DEVIATION_MIN: f64 = 0.01;

/// The counts of a process.
#[derive(Default)]
pub struct Windows {
    procedures: BTreeMap<u64, Procedure>,
    /// CPU time in windows and between them, in ns.
    cpu_ns: [u64; 2],
    windows: usize,
}

#[derive(Default)]
struct Procedure {
    /// Executions of blocks in each window, with the anchor's.
    windows: Vec<(Vec<(u64, u64)>, u64)>,
    /// Executions of the anchor in windows and between them.
    anchor: [u64; 2],
}

/// Executions of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockEstimate {
    /// The address of its first instruction.
    pub block: u64,
    /// How often it was executed.
    pub executions: f64,
    /// Standard deviation of the logarithm of `executions`.
    pub deviation: f64,
}

impl Windows {
    /// Adds what was counted in a window. `anchors` are blocks by procedure.
    pub fn add_window(&mut self, counts: Vec<ProcedureCounts>, anchors: &BTreeMap<u64, u64>, cpu_ns: u64) {
        self.windows += 1;
        self.cpu_ns[0] += cpu_ns;
        for ProcedureCounts { entry, blocks } in counts {
            let executions = anchors.get(&entry).map_or(0, |anchor| executions_of(&blocks, *anchor));
            let procedure = self.procedures.entry(entry).or_default();
            procedure.anchor[0] += executions;
            procedure.windows.push((blocks, executions));
        }
    }

    /// Adds what was counted between two windows.
    pub fn add_between(&mut self, counts: &[ProcedureCounts], anchors: &BTreeMap<u64, u64>, cpu_ns: u64) {
        self.cpu_ns[1] += cpu_ns;
        for ProcedureCounts { entry, blocks } in counts {
            if let (Some(anchor), Some(procedure)) = (anchors.get(entry), self.procedures.get_mut(entry)) {
                procedure.anchor[1] += executions_of(blocks, *anchor);
            }
        }
    }

    /// Returns how much slower the program is in windows than between them.
    pub fn slower(&self) -> f64 {
        let [within, between] = self.cpu_ns.map(|ns| ns as f64);
        let of_work = self.work().map(|ratio| within / between.max(1.0) * ratio);
        of_work.filter(|slower| slower.is_finite()).unwrap_or(SLOWER).max(1.0)
    }

    /// Returns the work between windows as a multiple of that in windows, as all anchors show it.
    fn work(&self) -> Option<f64> {
        let anchored = self.procedures.values().map(|procedure| procedure.anchor);
        let shares = anchored.filter(|[a, b]| *a.min(b) >= ANCHOR_MIN).map(|[within, between]| {
            let all = (within + between) as f64;
            [within as f64 / all, between as f64 / all]
        });
        let [within, between] = shares.fold([0.0, 0.0], |[a, b], [within, between]| [a + within, b + between]);
        (within > 0.0).then(|| between / within)
    }

    /// Returns the executions of all blocks.
    pub fn estimates(&self) -> Vec<BlockEstimate> {
        let [within, between] = self.cpu_ns.map(|ns| ns as f64);
        let (ratio, error) = match self.work() {
            Some(ratio) => (ratio, ANCHORED_ELSEWHERE),
            None => (between / (within / SLOWER).max(1.0), UNANCHORED),
        };
        self.procedures.values().flat_map(|procedure| procedure.estimates(ratio, error)).collect()
    }
}

impl Procedure {
    fn estimates(&self, elsewhere: f64, error_elsewhere: f64) -> Vec<BlockEstimate> {
        let [within, between] = self.anchor;
        let is_anchored = within.min(between) >= ANCHOR_MIN;
        let ratio = if is_anchored { between as f64 / within as f64 } else { elsewhere };
        let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for (blocks, _) in &self.windows {
            blocks.iter().for_each(|(block, count)| sums.entry(*block).or_default().0 += *count as f64);
        }
        // How far windows are from one number of executions for each of the anchor.
        let windows = self.windows.len() as f64;
        for (blocks, anchor) in &self.windows {
            for (block, count) in blocks {
                let Some((sum, squares)) = sums.get_mut(block) else { continue };
                let expected = if is_anchored { *sum * *anchor as f64 / within as f64 } else { *sum / windows };
                *squares += (*count as f64 - expected).powi(2);
            }
        }
        let share = ratio / (1.0 + ratio);
        let estimate = |(block, (sum, squares)): (u64, (f64, f64))| {
            let spread = if windows >= 3.0 { (squares * windows / (windows - 1.0)).sqrt() / sum.max(1.0) } else { FEW_WINDOWS };
            let error = spread.hypot(if is_anchored { 1.0 / (within.min(between) as f64).sqrt() } else { error_elsewhere });
            let deviation = (share * error).max(DEVIATION_MIN);
            BlockEstimate { block, executions: sum * (1.0 + ratio), deviation }
        };
        sums.into_iter().map(estimate).collect()
    }
}

fn executions_of(blocks: &[(u64, u64)], block: u64) -> u64 {
    blocks.iter().find(|(other, _)| *other == block).map_or(0, |(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: u64 = 0x100;

    fn counts(blocks: &[(u64, u64)]) -> Vec<ProcedureCounts> {
        vec![ProcedureCounts { entry: ENTRY, blocks: blocks.to_vec() }]
    }

    #[test]
    fn work_is_extrapolated_by_the_anchor_and_not_by_time() {
        let anchors = BTreeMap::from([(ENTRY, 0x110)]);
        let mut windows = Windows::default();
        for _ in 0..4 {
            // Twice as slow: 100 executions of the anchor in 2 ms, then 900 in 9 ms.
            windows.add_window(counts(&[(0x110, 100), (0x120, 5000)]), &anchors, 2_000_000);
            windows.add_between(&counts(&[(0x110, 900)]), &anchors, 9_000_000);
        }
        assert!((windows.slower() - 2.0).abs() < 1e-9);
        let estimates = windows.estimates();
        assert_eq!(estimates.iter().map(|e| (e.block, e.executions)).collect::<Vec<_>>(), [(0x110, 4000.0), (0x120, 200_000.0)]);
        assert!(estimates.iter().all(|e| e.deviation < 0.06), "{estimates:?}");
    }

    #[test]
    fn a_procedure_without_anchor_follows_the_others() {
        let anchors = BTreeMap::from([(ENTRY, 0x110)]);
        let mut windows = Windows::default();
        let other = ProcedureCounts { entry: 0x500, blocks: vec![(0x500, 70)] };
        for _ in 0..3 {
            let mut all = counts(&[(0x110, 100)]);
            all.push(other.clone());
            windows.add_window(all, &anchors, 1000);
            windows.add_between(&counts(&[(0x110, 400)]), &anchors, 3000);
        }
        let estimates = windows.estimates();
        assert_eq!(estimates.last().map(|e| (e.block, e.executions)), Some((0x500, 1050.0)));
    }

    #[test]
    fn windows_that_differ_are_less_certain() {
        let anchors = BTreeMap::from([(ENTRY, 0x110)]);
        let mut windows = Windows::default();
        for count in [10, 4000, 500, 90] {
            windows.add_window(counts(&[(0x110, 1000), (0x120, count)]), &anchors, 1000);
            windows.add_between(&counts(&[(0x110, 20_000)]), &anchors, 20_000);
        }
        let [steady, varied] = windows.estimates()[..] else { panic!() };
        assert!(steady.deviation < 0.05 && varied.deviation > 0.5, "{steady:?} {varied:?}");
    }

    #[test]
    fn without_any_anchor_only_time_is_left() {
        let mut windows = Windows::default();
        windows.add_window(counts(&[(0x110, 1000)]), &BTreeMap::new(), 1400);
        windows.add_between(&[], &BTreeMap::new(), 9000);
        let [only] = windows.estimates()[..] else { panic!() };
        assert!((only.executions - 10_000.0).abs() < 1.0 && only.deviation > 0.2, "{only:?}");
    }
}
