//! What counts in short windows say of the time between them.
//!
//! Enters: for each window what was counted in it, and for the time before the next one what one block of each procedure, its *anchor*,
//! was counted then. Leaves: executions of all blocks over all that time.
//!
//! A program is slower in a window than between them, and does other work there. Two references tell what the work between windows was:
//! the executions of the procedure's anchor, which are known all the time, and the program's CPU time, corrected by how much slower
//! it is in windows according to all anchors. For each block the one is taken from which the windows differ less. Sums are kept, not
//! windows, so memory does not grow. Complexity: linear in what was counted.
//!
//! A call that began before a window is not counted in it, and one that goes on after it is counted in part. About half a call is
//! missing in each window, so the executions of a procedure that is entered rarely are uncertain by that part.

use std::collections::BTreeMap;

use dwell_profile::VirtualAddress;

use super::ProcedureCounts;

/// Executions of an anchor, in windows and between them, without which they say nothing.
const ANCHOR_MIN: f64 = 30.0;
/// How much slower a program is in windows if no anchor shows it.
const SLOWER: f64 = 1.3;
/// Standard deviations of the logarithm of that factor: the least one, that if few anchors show it, and that if none does; of
/// executions in few windows; and the least one of executions: with 0.01 the truth was within the interval for 62 % of the samples
/// only (docs/accuracy.md).
const SLOWER_DEVIATION: f64 = 0.02;
const SLOWER_BY_FEW: f64 = 0.1;
const SLOWER_UNKNOWN: f64 = 0.2;
/// With fewer anchors their spread says little.
const ANCHORS_MIN: usize = 3;
const FEW_WINDOWS: f64 = 0.1;
const DEVIATION_MIN: f64 = 0.05;

/// The counts of a process.
#[derive(Default)]
pub struct Windows {
    procedures: BTreeMap<VirtualAddress, Procedure>,
    /// CPU time between windows, in ns.
    between_ns: f64,
}

/// The anchors by the first addresses of their procedures.
pub type Anchors = BTreeMap<VirtualAddress, VirtualAddress>;

/// Sums over the windows of a procedure.
#[derive(Default)]
struct Procedure {
    blocks: BTreeMap<VirtualAddress, Block>,
    /// Number of windows.
    windows: f64,
    /// CPU time in ns of the windows, and executions of the anchor in them: sums and sums of squares.
    time: Sums,
    anchor: Sums,
    /// Executions of the anchor between the windows.
    anchor_between: f64,
    /// CPU time between windows, in ns, before its first one.
    between_before_ns: f64,
    /// Samples before its first window.
    samples_before: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
    }
}

/// Sums over the windows of a block.
#[derive(Default)]
struct Block {
    executions: Sums,
    /// Sums of products with the CPU time and with the anchor's executions.
    by_time: f64,
    by_anchor: f64,
}

/// Executions of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockEstimate {
    /// The address of its first instruction.
    pub block: VirtualAddress,
    /// How often it was executed.
    pub executions: f64,
    /// Standard deviation of the logarithm of `executions`.
    pub deviation: f64,
    /// Samples before the time that `executions` covers.
    pub samples_before: u64,
}

impl Windows {
    /// Adds what was counted in a window. `anchors` are blocks by procedure, `samples` the number of samples so far.
    pub fn add_window(&mut self, counts: Vec<ProcedureCounts>, anchors: &Anchors, cpu_ns: u64, samples: u64) {
        let time = cpu_ns as f64;
        for ProcedureCounts { entry, blocks } in counts {
            let anchor = anchors.get(&entry).map_or(0.0, |anchor| executions_of(&blocks, *anchor));
            let between_before_ns = self.between_ns;
            let procedure = self.procedures.entry(entry).or_insert_with(|| Procedure {
                between_before_ns,
                samples_before: samples,
                ..Procedure::default()
            });
            procedure.windows += 1.0;
            procedure.time.add(time);
            procedure.anchor.add(anchor);
            for (block, count) in blocks {
                let sums = procedure.blocks.entry(block).or_default();
                sums.executions.add(count as f64);
                sums.by_time += count as f64 * time;
                sums.by_anchor += count as f64 * anchor;
            }
        }
    }

    /// Adds what was counted between two windows.
    pub fn add_between(&mut self, counts: &[ProcedureCounts], anchors: &Anchors, cpu_ns: u64) {
        self.between_ns += cpu_ns as f64;
        for ProcedureCounts { entry, blocks } in counts {
            if let (Some(anchor), Some(procedure)) = (anchors.get(entry), self.procedures.get_mut(entry)) {
                procedure.anchor_between += executions_of(blocks, *anchor);
            }
        }
    }

    /// Returns how much slower the program is in windows than between them, if anchors show it.
    pub fn slower(&self) -> Option<f64> {
        self.slower_and_deviation().map(|(slower, _)| slower)
    }

    /// Returns how much slower it is, and the standard deviation of the logarithm for a procedure without an anchor: the mean over
    /// the anchors, each with the same weight for its executions, and their spread, since counting slows procedures differently.
    fn slower_and_deviation(&self) -> Option<(f64, f64)> {
        let anchored = self.procedures.values().filter(|procedure| procedure.is_anchored());
        let logs: Vec<(f64, f64)> = anchored
            .map(|procedure| {
                let weight = procedure.anchor.sum.min(procedure.anchor_between).sqrt();
                let rate_within = procedure.anchor.sum / procedure.time.sum.max(1.0);
                let rate_between = procedure.anchor_between / procedure.between_ns(self).max(1.0);
                (weight, (rate_between / rate_within).ln())
            })
            .collect();
        let total: f64 = logs.iter().map(|(weight, _)| weight).sum();
        if total <= 0.0 {
            return None;
        }
        let mean = logs.iter().map(|(weight, log)| weight * log).sum::<f64>() / total;
        let spread = logs.iter().map(|(weight, log)| weight * (log - mean).powi(2)).sum::<f64>() / total;
        let least = if logs.len() < ANCHORS_MIN { SLOWER_BY_FEW } else { SLOWER_DEVIATION };
        Some((mean.exp().max(1.0), spread.sqrt().max(least)))
    }

    /// Returns the executions of all blocks.
    pub fn estimates(&self) -> Vec<BlockEstimate> {
        let slower = self.slower_and_deviation().unwrap_or((SLOWER, SLOWER_UNKNOWN));
        self.procedures
            .iter()
            .flat_map(|(entry, procedure)| procedure.estimates(*entry, procedure.between_ns(self), slower))
            .collect()
    }
}

impl Procedure {
    fn is_anchored(&self) -> bool {
        self.anchor.sum.min(self.anchor_between) >= ANCHOR_MIN
    }

    /// Returns the CPU time between windows since its first one.
    fn between_ns(&self, all: &Windows) -> f64 {
        all.between_ns - self.between_before_ns
    }

    /// Returns half a call as a part of those in a window.
    fn cut_part(&self, entry: VirtualAddress) -> f64 {
        let calls = self.blocks.get(&entry).map_or(0.0, |block| block.executions.sum) / self.windows;
        (0.5 / calls.max(f64::MIN_POSITIVE)).min(1.0)
    }

    fn estimates(
        &self,
        entry: VirtualAddress,
        between_ns: f64,
        (slower, slower_deviation): (f64, f64),
    ) -> impl Iterator<Item = BlockEstimate> + '_ {
        let by_time = between_ns * slower / self.time.sum.max(1.0);
        let by_anchor = self.is_anchored().then(|| self.anchor_between / self.anchor.sum);
        let anchor_deviation = self.anchor.sum.min(self.anchor_between).max(1.0).sqrt().recip();
        let cut_part = self.cut_part(entry);
        self.blocks.iter().map(move |(&block, sums)| {
            let of_time = (by_time, self.spread(sums, self.time, sums.by_time).hypot(slower_deviation));
            let of_anchor = by_anchor
                .map(|ratio| (ratio, self.spread(sums, self.anchor, sums.by_anchor).hypot(anchor_deviation)));
            let (ratio, error) = match of_anchor {
                Some(of_anchor) if of_anchor.1 <= of_time.1 => of_anchor,
                _ => of_time,
            };
            let deviation = (error * ratio / (1.0 + ratio)).hypot(cut_part).max(DEVIATION_MIN);
            let executions = sums.executions.sum * (1.0 + ratio);
            BlockEstimate { block, executions, deviation, samples_before: self.samples_before }
        })
    }

    /// Returns how far windows are from one number of executions for each unit of a reference: the standard deviation of the logarithm
    /// of their sum (W. G. Cochran, "Sampling Techniques", 1977, 6.3: the ratio estimate).
    fn spread(&self, block: &Block, reference: Sums, products: f64) -> f64 {
        if self.windows < 3.0 {
            return FEW_WINDOWS;
        }
        let rate = block.executions.sum / reference.sum.max(1.0);
        let squares = block.executions.squares - 2.0 * rate * products + rate * rate * reference.squares;
        (squares.max(0.0) * self.windows / (self.windows - 1.0)).sqrt() / block.executions.sum.max(1.0)
    }
}

fn executions_of(blocks: &[(VirtualAddress, u64)], block: VirtualAddress) -> f64 {
    blocks.iter().find(|(other, _)| *other == block).map_or(0.0, |(_, count)| *count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: u64 = 0x110;

    fn procedure(entry: u64, blocks: &[(u64, u64)]) -> ProcedureCounts {
        let blocks = blocks.iter().map(|&(block, count)| (VirtualAddress(block), count)).collect();
        ProcedureCounts { entry: VirtualAddress(entry), blocks }
    }

    fn counts(blocks: &[(u64, u64)]) -> Vec<ProcedureCounts> {
        vec![procedure(ENTRY, blocks)]
    }

    /// Returns anchors that are the entries of their procedures.
    fn anchors_at(entries: &[u64]) -> Anchors {
        entries.iter().map(|&entry| (VirtualAddress(entry), VirtualAddress(entry))).collect()
    }

    fn executions(windows: &Windows) -> Vec<(u64, u64)> {
        windows
            .estimates()
            .iter()
            .map(|estimate| (estimate.block.0, estimate.executions.round() as u64))
            .collect()
    }

    #[test]
    fn work_is_extrapolated_by_the_anchor() {
        let anchors = anchors_at(&[ENTRY]);
        let mut windows = Windows::default();
        for (work, slow) in [(10, 2), (30, 2), (20, 3), (40, 1)] {
            windows.add_window(
                counts(&[(0x110, 10 * work), (0x120, 500 * work)]),
                &anchors,
                1000 * work * slow,
                0,
            );
            windows.add_between(&counts(&[(0x110, 900)]), &anchors, 90_000);
        }
        assert_eq!(executions(&windows), [(0x110, 4600), (0x120, 230_000)]);
        assert!(windows.estimates().iter().all(|e| e.deviation < 0.06), "{:?}", windows.estimates());
    }

    #[test]
    fn time_is_corrected_by_the_anchors_of_others() {
        let anchors = anchors_at(&[ENTRY]);
        let mut windows = Windows::default();
        for _ in 0..4 {
            let mut all = counts(&[(0x110, 100)]);
            all.push(procedure(0x500, &[(0x500, 70)]));
            // 100 executions of the anchor in 2 ms, then 900 in 9 ms.
            windows.add_window(all, &anchors, 2_000_000, 0);
            windows.add_between(&counts(&[(0x110, 900)]), &anchors, 9_000_000);
        }
        assert!((windows.slower().unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(executions(&windows), [(0x110, 4000), (0x500, 2800)]);
    }

    #[test]
    fn procedures_without_an_anchor_are_as_uncertain_as_anchors_differ() {
        const WITHOUT: u64 = 0x500;
        let deviation = |slow: [u64; 3]| {
            let entries = [0x100, 0x200, 0x300];
            let anchors = anchors_at(&entries);
            let mut windows = Windows::default();
            for _ in 0..4 {
                let anchored = |executions: [u64; 3]| {
                    let of = |(entry, executions)| procedure(entry, &[(entry, executions)]);
                    entries.into_iter().zip(executions).map(of).collect::<Vec<_>>()
                };
                let mut all = anchored(slow.map(|slow| 120 / slow));
                all.push(procedure(WITHOUT, &[(WITHOUT, 70)]));
                windows.add_window(all, &anchors, 1_000_000, 0);
                windows.add_between(&anchored([1200; 3]), &anchors, 10_000_000);
            }
            let estimates = windows.estimates();
            estimates.iter().find(|estimate| estimate.block.0 == WITHOUT).expect("it was counted").deviation
        };
        assert_eq!(deviation([2, 2, 2]), DEVIATION_MIN);
        assert!(deviation([1, 2, 4]) > 0.4);
    }

    #[test]
    fn a_procedure_that_is_counted_later_stands_for_later_time() {
        let mut windows = Windows::default();
        windows.add_window(counts(&[(0x110, 100)]), &Anchors::new(), 1000, 0);
        windows.add_between(&[], &Anchors::new(), 1000);
        let later = procedure(0x500, &[(0x500, 10)]);
        windows.add_window(vec![later], &Anchors::new(), 1000, 7);
        windows.add_between(&[], &Anchors::new(), 1000);
        let estimates = windows.estimates();
        assert_eq!((estimates[1].executions.round(), estimates[1].samples_before), (23.0, 7));
    }

    #[test]
    fn calls_as_long_as_windows_are_uncertain() {
        let deviation = |calls: u64| {
            let mut windows = Windows::default();
            let anchors = anchors_at(&[ENTRY]);
            for _ in 0..40 {
                windows.add_window(counts(&[(ENTRY, calls), (0x120, 1000 * calls)]), &anchors, 1000, 0);
                windows.add_between(&counts(&[(ENTRY, 20 * calls)]), &anchors, 20_000);
            }
            windows.estimates()[1].deviation
        };
        assert!((0.5..0.55).contains(&deviation(1)) && deviation(100) == DEVIATION_MIN);
    }

    #[test]
    fn windows_that_differ_are_less_certain() {
        let anchors = anchors_at(&[ENTRY]);
        let mut windows = Windows::default();
        for count in [10, 4000, 500, 90] {
            windows.add_window(counts(&[(0x110, 1000), (0x120, count)]), &anchors, 1000, 0);
            windows.add_between(&counts(&[(0x110, 20_000)]), &anchors, 20_000);
        }
        let [steady, varied] = windows.estimates()[..] else { panic!() };
        assert!(steady.deviation < 0.06 && varied.deviation > 0.5, "{steady:?} {varied:?}");
    }
}
