//! The collector's way of handing out its counts.
//!
//! Enters: the counts. Leaves: a batch to be stored. Never here: the database.

use dwell_attribution::{AppInstance, ImageIndex};
use dwell_profile::{ExecutionCount, ImageKind, ImageRecord, PathBurst, Settled};
use rustc_hash::FxHashMap;

use super::{
    Collector, Slot,
    rows::{Rows, Texts},
};
use crate::host::Host;

/// Everything that was counted since the last [`Collector::take`].
#[derive(Default)]
pub struct Batch {
    /// Counts of samples and derived events.
    pub rows: Rows,
    /// Images that occur in the counts or bursts, or got symbols.
    pub images: Vec<ImageRecord>,
    /// Path bursts and counted windows.
    pub paths: Vec<PathBurst>,
    /// Execution counts.
    pub executions: Vec<ExecutionCount>,
}

impl<H: Host> Collector<H> {
    /// Returns everything that was counted since the last call.
    pub fn take(&mut self) -> Batch {
        self.name_all_code();
        self.take_stacks();
        let counted = std::mem::take(&mut self.counts).finish();
        let texts: Vec<Texts> = counted.slots().map(|slot| self.texts(slot)).collect();
        let mut offsets = self.offsets(&counted);
        self.dimensions.forget_values();
        let mut executions = self.take_executions();
        executions.extend(self.take_loop_counts());
        for image in self.stepping.images.drain().chain(self.images.with_new_symbols()) {
            offsets.entry(image).or_default();
        }
        let images = offsets.into_iter().map(|(image, offsets)| self.record_with_symbols(image, offsets));
        let images = images.collect();
        let rows = Rows::new(counted, texts.into_iter());
        Batch { rows, images, paths: std::mem::take(&mut self.stepping.bursts), executions }
    }

    fn texts(&mut self, slot: Slot) -> Texts {
        let Slot { image, execution, dimensions, event } = slot;
        let AppInstance { app, instance } = self.apps.resolve(execution);
        Texts {
            image: self.images.record(image).id.clone(),
            event: event.event(&self.events),
            app,
            instance,
            dimensions: self.dimensions.values(dimensions),
        }
    }

    /// Returns the counted images, with the sampled offsets of those that need symbols.
    fn offsets(&self, counted: &Settled<Slot>) -> FxHashMap<ImageIndex, Vec<u64>> {
        let mut offsets: FxHashMap<ImageIndex, Vec<u64>> = FxHashMap::default();
        for (number, slot) in counted.slots().enumerate() {
            let of_image = offsets.entry(slot.image).or_default();
            if matches!(self.images.record(slot.image).kind, ImageKind::Kernel | ImageKind::Module) {
                of_image.extend(counted.of(number).map(|(offset, _)| offset));
            }
        }
        offsets
    }
}
