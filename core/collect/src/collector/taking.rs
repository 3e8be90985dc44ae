//! The collector's part in handing out what it counted.
//!
//! Enters: its counts. Leaves: a batch to be stored. Never here: the database.

use dwell_profile::{Event, ImageKind, ImageRecord, PathBurst};
use rustc_hash::FxHashMap;

use super::{
    AHEAD_NOT_TAKEN, AHEAD_TAKEN, Collector, KERNEL_TIME, Key, NOT_TAKEN, TAKEN,
    dimensions::ValuesIndex,
    rows::{Numbered, Rows, Texts, Who},
};
use crate::{
    apps::{AppInstance, ExecutionId},
    host::Host,
    images::ImageIndex,
};

/// What was counted since the last [`Collector::take`].
#[derive(Debug, Default)]
pub struct Batch {
    /// The counts.
    pub rows: Rows,
    /// The images that occur in them and in the bursts, or got symbols.
    pub images: Vec<ImageRecord>,
    /// The path bursts.
    pub paths: Vec<PathBurst>,
}

/// Which of the texts a key's parts are.
#[derive(Default)]
struct Numbers {
    images: FxHashMap<ImageIndex, u32>,
    who: FxHashMap<(ExecutionId, ValuesIndex), u32>,
    texts: Texts,
    /// What was sampled of images whose symbols are asked for; of the others nothing.
    offsets: FxHashMap<ImageIndex, Vec<u64>>,
}

impl<H: Host> Collector<H> {
    /// Hands out what was counted since the last time.
    pub fn take(&mut self) -> Batch {
        let pids: Vec<u32> = self.jit_addresses.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.name_jit_code(pid));
        let mut counts = std::mem::take(&mut self.counts);
        let mut numbers = Numbers::default();
        counts.keys().for_each(|key| self.number(key, &mut numbers));
        let Numbers { images, who, mut texts, mut offsets } = numbers;
        texts.events = self.all_events();
        let sampled = self.events.len() as u8;
        let rows = Rows::new(
            texts,
            counts.drain().map(|(Key { offset, image, execution, dimensions, event }, count)| Numbered {
                image: images[&image],
                event: event.checked_sub(KERNEL_TIME).map_or(event, |derived| sampled + derived),
                who: who[&(execution, dimensions)],
                offset,
                count,
            }),
        );
        self.counts = counts; // Its memory serves the next batch.
        self.dimensions.forget_values();
        for image in self.stepping.images.drain().chain(self.images.with_new_symbols()) {
            offsets.entry(image).or_default();
        }
        let images = offsets.into_iter().map(|(image, offsets)| self.record_with_symbols(image, offsets));
        Batch { rows, images: images.collect(), paths: std::mem::take(&mut self.stepping.bursts) }
    }

    fn number(&mut self, key: &Key, numbers: &mut Numbers) {
        let Numbers { images, who, texts, offsets } = numbers;
        let record = self.images.record(key.image);
        images.entry(key.image).or_insert_with(|| {
            offsets.insert(key.image, Vec::new());
            texts.images.push(record.id.clone());
            texts.images.len() as u32 - 1
        });
        if matches!(record.kind, ImageKind::Kernel | ImageKind::Module) {
            offsets.entry(key.image).or_default().push(key.offset);
        }
        who.entry((key.execution, key.dimensions)).or_insert_with(|| {
            let AppInstance { app, instance } = self.apps.resolve(key.execution);
            texts.who.push(Who { app, instance, dimensions: self.dimensions.values(key.dimensions) });
            texts.who.len() as u32 - 1
        });
    }

    /// The sampled ones, then those derived from registers, as [`Key`] numbers them.
    fn all_events(&self) -> Vec<Event> {
        const DERIVED: [(u8, Event); 5] = [
            (KERNEL_TIME, Event::KERNEL_TIME),
            (TAKEN, Event::BRANCH_TAKEN),
            (NOT_TAKEN, Event::BRANCH_NOT_TAKEN),
            (AHEAD_TAKEN, Event::AHEAD_TAKEN),
            (AHEAD_NOT_TAKEN, Event::AHEAD_NOT_TAKEN),
        ];
        debug_assert!(DERIVED.iter().zip(KERNEL_TIME..=u8::MAX).all(|((number, _), at)| *number == at));
        self.events.iter().cloned().chain(DERIVED.map(|(_, event)| event)).collect()
    }
}
