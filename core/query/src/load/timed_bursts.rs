//! Path bursts of which it is known how long the thread itself took for them.
//!
//! Input: the evidence of merged epochs, and their clocks. Output: the bursts with their time in cycles, and their transfers
//! between a procedure's instructions. Cost: linear in the transfers of these bursts, once for each selection.
//!
//! Time is in cycles, since that is what a procedure's samples over its frequency are, whatever the sampling period is. So
//! epochs with other periods, events or clocks can be merged.

use std::collections::BTreeMap;

use dwell_analysis::program::{TimedBurst, TimedBursts, TimedTransfer};
use dwell_image::{ImageOffset, ProcedureOffsets};
use dwell_profile::{ControlTransfer, EpochProfile, Event, ExecutionEvidence, ImageId, ImageKind};
use rustc_hash::FxHashMap;

use crate::load::samples::{ImageSamples, file_indexes};

/// The timed bursts, and their transfers by image (an index), offset and burst.
#[derive(Default)]
pub struct TimedTransfers {
    /// The timed bursts of the selection.
    pub bursts: TimedBursts,
    by_image: FxHashMap<usize, BTreeMap<(ImageOffset, usize), f64>>,
    /// Transfers in path bursts that are not timed.
    untimed: FxHashMap<usize, BTreeMap<ImageOffset, f64>>,
    /// Sum of the squares of their numbers of transfers.
    untimed_squares: f64,
}

impl TimedTransfers {
    /// Reads the timed bursts of these epochs, whose primary event is `event`. There are none if that does not measure time:
    /// the samples could not be compared with them.
    pub fn new(profiles: &[EpochProfile], images: &[ImageSamples], event: Option<&Event>) -> Self {
        let mut timed = TimedTransfers::default();
        let Some(event) = event.filter(|event| event.is_time()) else { return timed };
        let kinds: FxHashMap<&ImageId, ImageKind> =
            images.iter().map(|image| (&image.record.id, image.record.kind)).collect();
        let index = file_indexes(images);
        let (mut all, mut uncovered) = (0, 0);
        for EpochProfile { epoch, evidence, .. } in profiles {
            let samples = epoch.events.get(event).map_or(0, |record| record.samples);
            let before = timed.bursts.bursts.len();
            timed.add_untimed(evidence, &index);
            for (transfers, cpu_ns) in evidence.iter().filter_map(path) {
                let clock_hz = epoch.cpu.clock_hz.filter(|hz| *hz > 0.0);
                let counted = transfers_in_all(transfers, &kinds);
                if let Some((clock_hz, counted)) = clock_hz.zip(counted) {
                    timed.add(TimedBurst { cycles: cpu_ns * clock_hz / 1e9, transfers: counted });
                    timed.add_transfers(transfers, &index);
                }
            }
            all += samples;
            uncovered += if timed.bursts.bursts.len() == before { samples } else { 0 };
        }
        timed.bursts.uncovered_part = uncovered as f64 / all.max(1) as f64;
        timed
    }

    /// Adds path bursts that are not timed.
    fn add_untimed(&mut self, evidence: &[ExecutionEvidence], index: &FxHashMap<&ImageId, usize>) {
        let is_untimed =
            |e: &&ExecutionEvidence| matches!(e, ExecutionEvidence::PathBurst { cpu_ns: None, .. });
        let bursts = || evidence.iter().filter(is_untimed).map(ExecutionEvidence::transfers);
        for transfers in bursts() {
            let length: u64 = transfers.iter().map(|transfer| transfer.count).sum();
            self.bursts.untimed += length as f64;
            self.untimed_squares += (length as f64).powi(2);
        }
        self.bursts.untimed_bursts = self.bursts.untimed.powi(2) / self.untimed_squares.max(1.0);
        for ControlTransfer { from, count, .. } in bursts().flatten() {
            if let Some(&image) = index.get(&from.image) {
                *self.untimed.entry(image).or_default().entry(from.offset).or_default() += *count as f64;
            }
        }
    }

    fn add(&mut self, burst: TimedBurst) {
        self.bursts.bursts.push(burst);
    }

    /// Adds the transfers of the last burst.
    fn add_transfers(&mut self, transfers: &[ControlTransfer], index: &FxHashMap<&ImageId, usize>) {
        let burst = self.bursts.bursts.len() - 1;
        for ControlTransfer { from, count, .. } in transfers {
            if let Some(&image) = index.get(&from.image) {
                let of_image = self.by_image.entry(image).or_default();
                *of_image.entry((from.offset, burst)).or_default() += *count as f64;
            }
        }
    }

    /// Returns the transfers from the instructions of a procedure of the image with this index.
    pub fn within(&self, image_index: usize, offsets: &ProcedureOffsets) -> Vec<TimedTransfer> {
        let (start, end) = offsets.range().into_inner();
        let all = self.by_image.get(&image_index).into_iter();
        let own = all.flat_map(|all| all.range((start, 0)..=(end, usize::MAX)));
        own.filter_map(|(&(from, burst), &count)| {
            Some(TimedTransfer { burst, from: offsets.index_of(from)?, count })
        })
        .collect()
    }
}

impl TimedTransfers {
    /// Returns the number of transfers from the instructions of such a procedure in bursts that are not timed.
    pub fn untimed_within(&self, image_index: usize, offsets: &ProcedureOffsets) -> f64 {
        let own = self.untimed.get(&image_index).into_iter().flat_map(|all| all.range(offsets.range()));
        own.filter(|(from, _)| offsets.index_of(**from).is_some()).map(|(_, count)| count).sum()
    }
}

/// Returns the transfers of a timed path burst, and its CPU time in ns.
fn path(evidence: &ExecutionEvidence) -> Option<(&[ControlTransfer], f64)> {
    match evidence {
        ExecutionEvidence::PathBurst { transfers, cpu_ns, .. } => Some((transfers, (*cpu_ns)? as f64)),
        _ => None,
    }
}

/// Returns the number of transfers of a burst in all code; `None` if that includes the kernel's own.
fn transfers_in_all(transfers: &[ControlTransfer], kinds: &FxHashMap<&ImageId, ImageKind>) -> Option<f64> {
    let is_of_kernel = |image: &ImageId| !matches!(kinds.get(image), Some(kind) if *kind != ImageKind::Kernel && *kind != ImageKind::Module);
    let mut sum = 0.0;
    for ControlTransfer { from, to, count } in transfers {
        if is_of_kernel(&from.image) || is_of_kernel(&to.image) {
            return None;
        }
        sum += *count as f64;
    }
    Some(sum)
}
