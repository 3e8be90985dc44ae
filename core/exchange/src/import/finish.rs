//! Converts what was read of a profile to an epoch: images are located, and sums become whole samples.
//!
//! Enters: everything that was read. Leaves: the epoch, its images, and its rows in the order of a segment. Never here:
//! records.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::Arc,
};

use dwell_attribution::{AppInstance, ExecutionId};
use dwell_image::Image;
use dwell_profile::{
    AccumulatedSamples, CodePlace, Event, ImageId, ImageKind, ImageOffset, ImagePlace, ImagePlaces,
    ImageRecord, SampleRun, StackRoot,
};
use jiff::Timestamp;
use linux_perf_data::DsoKey;
use rustc_hash::FxHashMap;

use super::{
    Gathered, ImportFile, branches,
    call_stacks::{self, ImportedStacks, Place, Root},
    epoch::event_of,
    imported::{EventTally, ImportedProfile, Target},
    jit::PerfMaps,
    jit_layout::{JitImages, JitTargets, Moved},
    locate::Locator,
    slot::{Slot, UsedPlaces},
};

impl ImportedProfile {
    pub(super) fn finish(mut self, request: &ImportFile, locator: &Locator<'_>, now: Timestamp) -> Gathered {
        let mut notes = self.notes();
        let mut missing = Vec::new();
        let sums = std::mem::take(&mut self.sums).finish();
        let call_stacks = std::mem::take(&mut self.call_stacks);
        let used = UsedPlaces::new(&sums, call_stacks.places());
        let maps = PerfMaps::new(request, locator.written(), self.origin.took);
        let generated = self.name_jit_code(&maps, &used, &mut missing);
        let mut records: BTreeMap<u32, ImageRecord> = BTreeMap::new();
        for target in used.targets() {
            if records.contains_key(&target) {
                continue;
            }
            let (mut record, mut note) = self.image(target, locator);
            let is_named = self.names.has(target);
            if is_named && note.is_none() {
                note = self.is_another(&mut record, target, locator);
            }
            // If the profile does not report where the kernel begins, its own names are more reliable than those from
            // the kernel's symbols.
            if record.kind == ImageKind::Kernel && (!is_named || self.kernel.layout.text.is_some()) {
                match self.kernel_names(request) {
                    Ok(names) => record.symbols = names.under(&used.offsets(target)),
                    Err(why) if !is_named => notes.push(why),
                    Err(_) => {}
                }
            }
            let numbered = matches!(self.targets[target as usize], Target::Numbered(_));
            record.places = ImagePlaces { numbered, ..self.names.of(target) };
            missing.extend(note);
            records.insert(target, record);
        }
        if self.names.left_out > 0 {
            notes.push(format!(
                "{} places have no name: the profile has more names than a recording may contain",
                self.names.left_out
            ));
        }
        let events: Vec<Event> = self.attributes.iter().map(|(name, _)| event_of(name)).collect();
        let executions = sums.slots().map(|slot| slot.execution).chain(call_stacks.executions());
        let applications = self.spaces.applications(executions);
        let jit = self.jit_images(&used, &call_stacks, &applications, &generated);
        let images = Images { records: &records, generated: &generated, jit: &jit };
        let groups = groups(&sums, &applications, &images, &events);
        let root = |root: &Root| {
            let AppInstance { app, instance } = applications[&root.execution].clone();
            StackRoot { event: events[usize::from(root.event)].clone(), app, instance, end: root.end }
        };
        let place = |execution, place| images.place(&applications[&execution].app, place);
        let call_stacks = call_stacks.stored(&self.events, root, place);
        let hot = if locator.may_fetch() { hottest(&sums) } else { BTreeSet::new() };
        records
            .iter()
            .filter(|(target, _)| hot.contains(target))
            .for_each(|(_, r)| locator.fetch_debug_info(r));
        let branches = std::mem::take(&mut self.branches);
        // Code that only branches led through has no record yet.
        for target in (0..self.targets.len() as u32).filter(|_| branches.branches > 0) {
            if matches!(self.targets[target as usize], Target::File(_)) {
                records.entry(target).or_insert_with(|| self.image(target, locator).0);
            }
        }
        let evidence = branches::evidence(branches, &records);
        let mut epoch = self.epoch(request, &events, notes, now);
        epoch.call_stacks = call_stacks::record(&call_stacks);
        let images = image_records(records, jit.records());
        let samples = self.events.iter().map(|e| e.samples).sum::<u64>() - self.tallies.members;
        let rows = Rows::new(groups, sums, self.events);
        Gathered { epoch, images, rows, evidence, call_stacks, missing, samples }
    }

    /// Lays out the generated code of each application.
    fn jit_images(
        &self,
        used: &UsedPlaces<'_>,
        call_stacks: &ImportedStacks,
        applications: &FxHashMap<ExecutionId, AppInstance>,
        generated: &JitTargets,
    ) -> JitImages {
        let is_generated = |target: u32| generated.contains(&target);
        let slots = used.sums.slots().map(|slot| (slot.execution, slot.target));
        let code: BTreeSet<_> = slots
            .filter(|(_, target)| is_generated(*target))
            .chain(call_stacks.in_targets(is_generated))
            .map(|(execution, target)| (applications[&execution].app.clone(), target))
            .collect();
        let mut jit = JitImages::default();
        for (app, target) in code {
            jit.add(&app, target, &used.offsets(target), &self.names);
        }
        jit
    }

    fn image(&self, target: u32, locator: &Locator<'_>) -> (ImageRecord, Option<String>) {
        let special = |id: &str, kind, path: &str| (special(ImageId::named(id), kind, path), None);
        match &self.targets[target as usize] {
            Target::Kernel => special("kernel", ImageKind::Kernel, "[kernel.kallsyms]"),
            Target::Vdso => {
                let id = self.build_id(&DsoKey::Vdso64).map_or("vdso".to_owned(), |id| format!("vdso:{id}"));
                special(&id, ImageKind::Vdso, "[vdso]")
            }
            Target::Anonymous(_) | Target::Jit { .. } => special("jit", ImageKind::Jit, "//anon"),
            Target::Numbered(path) => {
                let path = PathBuf::from(OsStr::from_bytes(path));
                (
                    ImageRecord::new(
                        ImageId::named(&format!("named:{}", path.display())),
                        ImageKind::File,
                        path,
                    ),
                    None,
                )
            }
            Target::Recorded(id, kind, path) => (ImageRecord::new(id.clone(), *kind, &**path), None),
            Target::Other(name) => special(name, ImageKind::Unknown, &format!("[{name}]")),
            Target::File(named) => locator.locate(&self.identified(named)),
        }
    }

    /// Returns a note if the file on this machine is another build than the one whose places the profile names. This
    /// check is for files without a build ID. In that case `record` becomes that of a file that was not found.
    fn is_another(&self, record: &mut ImageRecord, target: u32, locator: &Locator<'_>) -> Option<String> {
        let Target::File(named) = &self.targets[target as usize] else { return None };
        if named.build_id.is_some() || agrees(&locator.open(named)?, &self.names.of(target)) {
            return None;
        }
        let path = PathBuf::from(OsStr::from_bytes(&named.path));
        let note = format!(
            "{}: the file on this machine is another build: its functions differ from those in the profile",
            path.display()
        );
        *record =
            ImageRecord::new(ImageId::named(&format!("file:{}", path.display())), ImageKind::File, path);
        Some(note)
    }
}

/// The images of targets, as rows and frames name them.
struct Images<'a> {
    records: &'a BTreeMap<u32, ImageRecord>,
    generated: &'a JitTargets,
    jit: &'a JitImages,
}

impl Images<'_> {
    /// Returns the image of a target in an application, and its places that are elsewhere in the image.
    fn find(&self, app: &Arc<str>, target: u32) -> (ImageId, Option<Arc<Moved>>) {
        match self.generated.contains(&target) {
            true => (JitImages::id(app), self.jit.moved(app, target)),
            false => (self.records[&target].id.clone(), None),
        }
    }

    fn place(&self, app: &Arc<str>, (target, offset): Place) -> CodePlace {
        let (image, moved) = self.find(app, target);
        let moved = moved.and_then(|moved| moved.get(&offset).copied());
        CodePlace { image, offset: ImageOffset(moved.unwrap_or(offset)) }
    }
}

/// Groups slots by the database's key without the offset, in the order of the database.
fn groups(
    sums: &AccumulatedSamples<Slot>,
    applications: &FxHashMap<ExecutionId, AppInstance>,
    images: &Images<'_>,
    events: &[Event],
) -> Vec<Group> {
    let mut groups: BTreeMap<GroupKey, Vec<GroupSlot>> = BTreeMap::new();
    for (number, slot) in sums.slots().enumerate() {
        let AppInstance { app, instance } = applications[&slot.execution].clone();
        let (image, moved) = images.find(&app, slot.target);
        let event = events[usize::from(slot.event)].clone();
        groups.entry((image, event, app, instance)).or_default().push((number, slot.event, moved));
    }
    let group = |((image, event, app, instance), slots)| Group { image, event, app, instance, slots };
    groups.into_iter().map(group).collect()
}

/// Number of places whose names are compared with those of the image.
const COMPARED_MAX: usize = 500;

/// Returns whether at least half of the named places are in procedures with these names; spellings may differ in
/// parameters.
fn agrees(image: &Image, places: &ImagePlaces) -> bool {
    let is_called = |place: &ImagePlace| {
        let address = image.address_of(place.offset)?;
        let (procedure, said) = (image.procedure_at(address)?, place.procedure()?);
        let names = [Some(&said.function), said.linkage.as_ref()];
        let mut own = procedure.aliases();
        own.extend([procedure.name(), procedure.demangled().into()]);
        Some(own.iter().any(|own| names.into_iter().flatten().any(|name| is_alike(name, own))))
    };
    let compared: Vec<bool> =
        places.all.iter().take(COMPARED_MAX).map(|p| is_called(p).unwrap_or(false)).collect();
    2 * compared.iter().filter(|same| **same).count() >= compared.len()
}

/// Returns whether the names are equal, or one is the other followed by parameters.
fn is_alike(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(['(', '<', '@', '[']))
}

/// Least share of an event's time for which debug information is fetched: debug information is large, and cold code is
/// rarely read line by line.
const HOT_SHARE: f64 = 0.005;

fn hottest(sums: &AccumulatedSamples<Slot>) -> BTreeSet<u32> {
    let mut by_target: BTreeMap<(u16, u32), u128> = BTreeMap::new();
    let mut totals: BTreeMap<u16, u128> = BTreeMap::new();
    for (number, slot) in sums.slots().enumerate() {
        let sum: u128 = sums.of(number).map(|(_, periods)| u128::from(periods)).sum();
        *by_target.entry((slot.event, slot.target)).or_default() += sum;
        *totals.entry(slot.event).or_default() += sum;
    }
    let is_hot = |event: u16, sum: u128| sum as f64 >= HOT_SHARE * totals[&event] as f64;
    by_target.into_iter().filter(|((event, _), sum)| is_hot(*event, *sum)).map(|((_, t), _)| t).collect()
}

/// Returns the records of all images that have rows, each image once.
fn image_records(
    records: BTreeMap<u32, ImageRecord>,
    jit: BTreeMap<ImageId, ImageRecord>,
) -> Vec<ImageRecord> {
    let mut images = jit;
    // A file may have been mapped through several paths.
    ImageRecord::absorb_all(&mut images, records.into_values().filter(|r| r.id.as_str() != "jit"));
    images.into_values().collect()
}

/// The key of a group: image, event, application and instance.
type GroupKey = (ImageId, Event, Arc<str>, u32);

/// Number of a slot, number of its event, and the places that are elsewhere in the image.
type GroupSlot = (usize, u16, Option<Arc<Moved>>);

/// The slots whose rows have the same key except for the offset.
struct Group {
    image: ImageId,
    event: Event,
    app: Arc<str>,
    instance: u32,
    slots: Vec<GroupSlot>,
}

/// Least number of a group's rows that are added up before the group is complete.
const ROWS_SETTLED_MIN: usize = 1 << 14;

/// A group whose rows have been partly passed on, and how many of them.
struct Begun {
    group: Group,
    rows: Vec<(ImageOffset, u64)>,
    handed_out: usize,
}

/// Iterates over the rows of an epoch. Each row has the sum of its periods divided by the mean period, as a whole
/// number of samples. The remainder of rounding at one place is carried to the next, so that the total is unchanged.
pub(super) struct Rows {
    /// The groups that follow.
    groups: std::vec::IntoIter<Group>,
    /// The group that did not fit completely into the last segment.
    begun: Option<Begun>,
    sums: AccumulatedSamples<Slot>,
    events: Vec<EventTally>,
    /// Sum of periods of the rows before, by event.
    before: Vec<u128>,
}

impl Rows {
    fn new(groups: Vec<Group>, sums: AccumulatedSamples<Slot>, events: Vec<EventTally>) -> Self {
        let before = vec![0; events.len()];
        Rows { groups: groups.into_iter(), begun: None, sums, events, before }
    }

    pub(super) fn are_over(&self) -> bool {
        self.begun.is_none() && self.groups.as_slice().is_empty()
    }

    /// Passes at most `rows_max` rows to `sink`, run by run. A run that does not fit completely continues in the next
    /// segment.
    pub(super) fn hand_out(&mut self, rows_max: usize, sink: &mut dyn FnMut(SampleRun<'_>)) {
        let mut room = rows_max;
        while room > 0
            && let Some(Begun { group, rows, handed_out }) = self.begun.take().or_else(|| self.begin())
        {
            let until = rows.len().min(handed_out.saturating_add(room));
            room -= until - handed_out;
            let Group { image, event, app, instance, .. } = &group;
            let rows_of_it = &rows[handed_out..until];
            sink(SampleRun { image, event, app, instance: *instance, dimensions: &None, rows: rows_of_it });
            if until < rows.len() {
                self.begun = Some(Begun { group, rows, handed_out: until });
            }
        }
    }

    fn begin(&mut self) -> Option<Begun> {
        let group = self.groups.next()?;
        let rows = self.rows(&group);
        Some(Begun { group, rows, handed_out: 0 })
    }

    /// Returns the rows of a group, added up over its slots.
    fn rows(&mut self, group: &Group) -> Vec<(ImageOffset, u64)> {
        let mut rows = Vec::new();
        // Different executions of a program are sampled at much the same places, so adding up early needs only a
        // fraction of the memory.
        let mut room = ROWS_SETTLED_MIN;
        for (number, event, moved) in &group.slots {
            let event = usize::from(*event);
            let tally = &self.events[event];
            let mut before = self.before[event];
            let mut counted = tally.whole_samples(before);
            for (offset, periods) in self.sums.of(*number) {
                before += u128::from(periods);
                let count = tally.whole_samples(before) - counted;
                counted += count;
                if count > 0 {
                    let moved = moved.as_ref().and_then(|moved| moved.get(&offset));
                    rows.push((ImageOffset(moved.copied().unwrap_or(offset)), count as u64));
                }
            }
            self.before[event] = before;
            if rows.len() > room {
                SampleRun::put_in_order(&mut rows);
                room = (2 * rows.len()).max(ROWS_SETTLED_MIN);
            }
        }
        SampleRun::put_in_order(&mut rows);
        rows
    }
}

fn special(id: ImageId, kind: ImageKind, path: &str) -> ImageRecord {
    ImageRecord::new(id, kind, path)
}

#[cfg(test)]
mod tests {
    use dwell_profile::SampleAccumulator;

    use super::*;

    /// Returns the rows of one group for each number in `places`; a group has that many places, with one period each.
    fn rows(places: &[u64]) -> Rows {
        let mut sums = SampleAccumulator::default();
        for (number, places) in (0..).zip(places) {
            let slot = Slot { target: number, execution: ExecutionId(0), event: 0 };
            (0..*places).for_each(|offset| sums.add(slot, number, offset, 1));
        }
        let samples = places.iter().sum();
        let tally = EventTally { samples, periods: samples.into(), ..EventTally::default() };
        let group = |number: usize| Group {
            image: ImageId::named(&format!("i{number}")),
            event: Event::CYCLES,
            app: "app".into(),
            instance: 0,
            slots: vec![(number, 0, None)],
        };
        Rows::new((0..places.len()).map(group).collect(), sums.finish(), vec![tally])
    }

    /// Describes the rows of each segment of at most `rows_max` rows, as in `i0:0-2 i1:0-0`.
    fn segments(places: &[u64], rows_max: usize) -> Vec<String> {
        let mut rows = rows(places);
        let mut segments = Vec::new();
        while !rows.are_over() {
            let mut runs = Vec::new();
            rows.hand_out(rows_max, &mut |run| {
                let [(first, _), .., (last, _)] = run.rows else { panic!("{:?}", run.rows) };
                assert!(run.rows.iter().all(|(_, count)| *count == 1));
                runs.push(format!("{}:{}-{}", run.image.as_str(), first.0, last.0));
            });
            segments.push(runs.join(" "));
        }
        segments
    }

    #[test]
    fn a_large_group_continues_in_the_next_segment() {
        assert_eq!(segments(&[3, 2, 4], 100), ["i0:0-2 i1:0-1 i2:0-3"]);
        assert_eq!(segments(&[12, 2], 5), ["i0:0-4", "i0:5-9", "i0:10-11 i1:0-1"]);
        assert_eq!(segments(&[3, 9], 5), ["i0:0-2 i1:0-1", "i1:2-6", "i1:7-8"]);
        assert_eq!(segments(&[5, 5], 5), ["i0:0-4", "i1:0-4"]);
        assert_eq!(segments(&[], 5), [""; 0]);
    }
}
