//! Path bursts one by one: what each went through, and how long the thread itself took for it if that is known.
//!
//! Input: the evidence of merged epochs, and their clocks. Output: the bursts with their time in cycles, and their transfers
//! between a procedure's instructions. Cost: linear in the transfers of path bursts, once for each selection.
//!
//! Time is in cycles, since that is what a procedure's samples over its frequency are, whatever the sampling period is. So
//! epochs with other periods, events or clocks can be merged.

use std::collections::{BTreeMap, BTreeSet};

use dwell_analysis::program::{Burst, BurstTransfer, Bursts};
use dwell_image::{ImageOffset, ProcedureOffsets};
use dwell_profile::{ControlTransfer, EpochProfile, Event, ExecutionEvidence, ImageId, ImageKind};
use rustc_hash::FxHashMap;

use crate::load::{
    programs::Programs,
    samples::{ImageSamples, file_indexes},
};

/// Number of groups of bursts of which no time is known: a week of them does not need more.
const GROUPS: usize = 512;

/// The path bursts, and their transfers by image (an index), offset and burst.
#[derive(Default)]
pub struct BurstTransfers {
    /// The path bursts of the selection. Those of which no time is known are one for each group.
    pub bursts: Bursts,
    /// Whether times are left out because the samples are of several applications.
    pub has_times_of_several: bool,
    by_image: FxHashMap<usize, BTreeMap<(ImageOffset, usize), f64>>,
}

impl BurstTransfers {
    /// Reads the path bursts of these epochs, whose primary event is `event`. There are none if that does not measure time:
    /// the samples could not be compared with them. Of several applications together no time is known.
    pub fn new(
        profiles: &[EpochProfile],
        images: &[ImageSamples],
        programs: &Programs,
        event: Option<&Event>,
    ) -> Self {
        let mut bursts = BurstTransfers::default();
        let Some(event) = event.filter(|event| event.is_time()) else { return bursts };
        let kinds: FxHashMap<&ImageId, ImageKind> =
            images.iter().map(|image| (&image.record.id, image.record.kind)).collect();
        let index = file_indexes(images);
        let taken: BTreeSet<usize> = images.iter().flat_map(|image| image.epochs.iter().copied()).collect();
        let (mut all, mut uncovered) = (0, 0);
        let mut untimed = Vec::new();
        for (number, EpochProfile { epoch, evidence, .. }) in profiles.iter().enumerate() {
            let clock_hz = epoch.cpu.clock_hz.filter(|hz| *hz > 0.0);
            let record = epoch.events.get(event).filter(|_| taken.contains(&number));
            let samples = record.map_or(0, |record| record.samples);
            let mut is_covered = false;
            for (transfers, cpu_ns) in evidence.iter().filter_map(path) {
                if !programs.has(transfers, &index) {
                    continue;
                }
                let length = length(transfers);
                let cycles = clock_hz.zip(cpu_ns).map(|(hz, ns)| ns as f64 * hz / 1e9);
                let cycles = cycles.filter(|_| !is_in_kernel(transfers, &kinds));
                bursts.has_times_of_several |= programs.are_several() && cycles.is_some();
                let cycles = cycles.filter(|_| !programs.are_several());
                is_covered |= cycles.is_some();
                if cycles.is_none() {
                    untimed.push((transfers, length));
                    continue;
                }
                bursts.bursts.all.push(Burst { cycles, transfers: length });
                bursts.add_transfers(bursts.bursts.all.len() - 1, transfers, &index);
            }
            all += samples;
            uncovered += if is_covered { 0 } else { samples };
        }
        bursts.add_untimed(&untimed, &index);
        bursts.bursts.uncovered_part = uncovered as f64 / all.max(1) as f64;
        bursts
    }

    /// Adds bursts of which no time is known, which are these transfers and their number.
    fn add_untimed(&mut self, untimed: &[(&[ControlTransfer], f64)], index: &FxHashMap<&ImageId, usize>) {
        let first = self.bursts.all.len();
        for (at, (transfers, length)) in untimed.iter().enumerate() {
            let group = first + at % GROUPS;
            if group == self.bursts.all.len() {
                self.bursts.all.push(Burst { cycles: None, transfers: 0.0 });
            }
            self.bursts.all[group].transfers += length;
            self.add_transfers(group, transfers, index);
        }
    }

    /// Adds the transfers of a burst.
    fn add_transfers(
        &mut self,
        burst: usize,
        transfers: &[ControlTransfer],
        index: &FxHashMap<&ImageId, usize>,
    ) {
        for ControlTransfer { from, count, .. } in transfers {
            if let Some(&image) = index.get(&from.image) {
                let of_image = self.by_image.entry(image).or_default();
                *of_image.entry((from.offset, burst)).or_default() += *count as f64;
            }
        }
    }

    /// Returns the transfers from the instructions of a procedure of the image with this index.
    pub fn within(&self, image_index: usize, offsets: &ProcedureOffsets) -> Vec<BurstTransfer> {
        let (start, end) = offsets.range().into_inner();
        let all = self.by_image.get(&image_index).into_iter();
        let own = all.flat_map(|all| all.range((start, 0)..=(end, usize::MAX)));
        own.filter_map(|(&(from, burst), &count)| {
            Some(BurstTransfer { burst, from: offsets.index_of(from)?, count })
        })
        .collect()
    }
}

/// Returns the transfers of a path burst, and its CPU time in ns if that is known.
fn path(evidence: &ExecutionEvidence) -> Option<(&[ControlTransfer], Option<u64>)> {
    match evidence {
        ExecutionEvidence::PathBurst { transfers, cpu_ns, .. } => Some((transfers, *cpu_ns)),
        _ => None,
    }
}

/// Returns the number of transfers in all code.
fn length(transfers: &[ControlTransfer]) -> f64 {
    transfers.iter().map(|transfer| transfer.count as f64).sum()
}

/// Returns whether transfers include the kernel's own.
fn is_in_kernel(transfers: &[ControlTransfer], kinds: &FxHashMap<&ImageId, ImageKind>) -> bool {
    let is_of_kernel = |image: &ImageId| !matches!(kinds.get(image), Some(kind) if *kind != ImageKind::Kernel && *kind != ImageKind::Module);
    transfers.iter().any(|transfer| is_of_kernel(&transfer.from.image) || is_of_kernel(&transfer.to.image))
}
