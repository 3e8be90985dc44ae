//! Loop counters of sampled code: loops of samples, exits to watch, and rows of execution counts.
//!
//! Enters: samples with registers, and what breakpoints saw at exits. Leaves: execution counts. Never here: how loops are
//! found ([`crate::evidence::counts::loops`]) and how samples are paired ([`crate::evidence::counts::pairs`]).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use dwell_attribution::{Applications, ExecutionId, ImageIndex, Images};
use dwell_profile::{
    CodePlace, CountSource, CountsRecord, ExecutionCount, ImageOffset, Pid, Tid, VirtualAddress,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    attribution::{Attribution, SampleContext},
    branch_directions::read_code,
    spot::Spot,
};
use crate::{
    evidence::counts::{
        exits::Watch,
        loops::{Counter, Loops, Register},
        pairs::{CounterId, EXITS_MAX, Exits, Pairs, Seen, Tally, executions},
    },
    host::Host,
    registers::Registers,
    source::{
        owned_record::RawExits,
        records::{Mode, Sample},
    },
};

/// Number of samples at a place before its loops are searched.
const SAMPLES_BEFORE: u8 = 3;
/// Limits of the places and counters that are kept.
const PLACES_MAX: usize = 1 << 16;
const COUNTERS_MAX: usize = 1 << 12;
/// Number of places whose loops may be searched at once, and the number of samples that allow one more search. A search
/// takes up to a few hundred µs.
const LOOKS_FIRST: u64 = 64;
const SAMPLES_PER_LOOK: u64 = 100;
/// Largest difference between two counters of one block. If they differ more, neither is used.
const DISAGREEMENT_MAX: f64 = 0.05;

/// An application and its instance.
type App = (Arc<str>, u32);

/// The usable counters of a block, each with its executions and the standard deviation of their logarithm.
type OfBlock = Vec<(CounterId, f64, f64)>;

/// State of a sampled place.
enum Place {
    /// Number of samples at the place; its loops were not searched yet.
    Seen(u8),
    /// The counters whose loop bodies contain the place.
    In(Box<[CounterId]>),
}

/// Observations of a counter in an application during the epoch.
#[derive(Default)]
struct Total {
    tally: Tally,
    exits: Exits,
    /// Number of pairs when the exits were last watched.
    pairs_watched: u64,
    /// Totals that were already handed out: executions of the counter, samples of the application.
    taken: (f64, u64),
}

/// The thread that was sampled in a loop last, where exits can be watched.
#[derive(Clone, Copy)]
struct Latest {
    pid: Pid,
    tid: Tid,
    execution: ExecutionId,
    image: ImageIndex,
    /// The address at which offset 0 would be.
    base: VirtualAddress,
}

/// State of the loop counters.
#[derive(Default)]
pub(super) struct LoopCounters {
    places: FxHashMap<(ImageIndex, u64), Place>,
    /// What searches found, by image.
    loops: FxHashMap<ImageIndex, Vec<Loops>>,
    counters: Vec<Counter>,
    images: Vec<ImageIndex>,
    by_writer: FxHashMap<(ImageIndex, u64, Register), CounterId>,
    pairs: Pairs,
    /// Time samples by execution that were not added to those of their application yet.
    samples: FxHashMap<ExecutionId, u64>,
    samples_of_apps: FxHashMap<App, u64>,
    totals: BTreeMap<(CounterId, App), Total>,
    latest: Option<Latest>,
    /// Exits that were not taken in a window. They count once the thread is found in the same loop, further on.
    waiting: HashMap<Tid, (RawExits, App, Registers)>,
    looks: u64,
    all_samples: u64,
    refused: BTreeMap<String, u64>,
}

impl LoopCounters {
    /// Forgets a thread's open samples in loops, so that the next one is not paired with them: it was disturbed between.
    pub(super) fn interrupt(&mut self, tid: Tid) {
        self.pairs.interrupt(tid);
    }

    /// Notes a sample that was dropped, since counting executions disturbed its thread.
    pub(super) fn note_dropped<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        sample: &Sample,
        is_time: bool,
    ) {
        self.interrupt(sample.tid);
        if sample.mode != Mode::User || !is_time {
            return;
        }
        let execution = attribution.execution_of(sample.pid);
        let Some(Spot::Image(image, offset)) = attribution.mapped_place(sample.pid, sample.pc, execution)
        else {
            return;
        };
        let Some(Place::In(within)) = self.places.get(&(image, offset)) else { return };
        let execution = attribution.apps.counted_as(execution);
        within.iter().for_each(|counter| self.pairs.dropped(*counter, execution));
    }

    /// Returns the time samples of an application that were added up so far.
    fn app_samples(&self, app: &App) -> u64 {
        self.samples_of_apps.get(app).copied().unwrap_or(0)
    }

    /// Notes a time sample at any place.
    pub(super) fn note_time(&mut self, apps: &mut Applications, execution: ExecutionId) {
        *self.samples.entry(apps.counted_as(execution)).or_default() += 1;
        self.all_samples += 1;
    }

    /// Notes a time sample of user code with registers.
    pub(super) fn observe<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        context: &SampleContext,
        sample: &Sample,
        place: (ImageIndex, u64),
        registers: &Registers,
    ) {
        let execution = attribution.apps.counted_as(context.execution);
        let time_ns = context.interval.until_ns;
        self.look_for_loops(attribution, place, execution);
        let within: &[CounterId] = match self.places.get(&place) {
            Some(Place::In(within)) => within,
            _ => &[],
        };
        if let Some((exits, app, before)) = self.waiting.remove(&sample.tid) {
            let counter = &self.counters[exits.counter.0 as usize];
            // Windows slow down only threads that leave the loop, so the exact length of the window matters little here.
            let is_further = within.contains(&exits.counter)
                && executions(counter, &before, registers, time_ns.saturating_sub(exits.since_ns)).is_ok();
            if is_further && let Some(total) = self.totals.get_mut(&(exits.counter, app)) {
                total.exits.add(counter, exits.running_ns, 0);
            }
        }
        let seen = Seen { tid: sample.tid, execution, time_ns, registers };
        self.pairs.sample(&self.counters, within, seen);
        if !within.is_empty() {
            let base = sample.pc.back(place.1);
            self.latest = Some(Latest { pid: sample.pid, tid: sample.tid, execution, image: place.0, base });
        }
    }

    fn look_for_loops<H: Host>(
        &mut self,
        attribution: &mut Attribution<H>,
        (image, offset): (ImageIndex, u64),
        execution: ExecutionId,
    ) {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&(image, offset)) {
            return;
        }
        let place = self.places.entry((image, offset)).or_insert(Place::Seen(0));
        let Place::Seen(samples) = place else { return };
        *samples = samples.saturating_add(1);
        let before = *samples;
        let of_image = self.loops.entry(image).or_default();
        let found = match of_image.iter().position(|loops| loops.are_those_of(offset)) {
            Some(known) => known,
            None if before < SAMPLES_BEFORE
                || self.looks > LOOKS_FIRST + self.all_samples / SAMPLES_PER_LOOK =>
            {
                return;
            }
            None => {
                self.looks += 1;
                let (images, host) = (&attribution.images, &mut attribution.host);
                let mut read = |at, bytes: &mut [u8]| read_code(images, host, image, at, bytes);
                of_image.push(Loops::explore(offset, &mut read));
                of_image.len() - 1
            }
        };
        let within = self.counters_at(image, offset, found);
        for id in &within {
            self.pairs.samples_before(*id, execution, u64::from(before - 1));
        }
        self.places.insert((image, offset), Place::In(within));
    }

    /// Returns the counters of a place in some loops of an image, and gives identifiers to new ones.
    fn counters_at(&mut self, image: ImageIndex, offset: u64, loops: usize) -> Box<[CounterId]> {
        let mut within = Vec::new();
        let loops = self.loops.get(&image).and_then(|of_image| of_image.get(loops));
        for counter in loops.into_iter().flat_map(|loops| loops.counters_at(offset)) {
            let key = (image, counter.writer, counter.register);
            match self.by_writer.get(&key) {
                // Exploration is bounded, so a loop found from another place may look different.
                Some(id) if self.counters[id.0 as usize].holds(offset) => within.push(*id),
                None if self.counters.len() < COUNTERS_MAX => {
                    let id = CounterId(self.counters.len() as u32);
                    self.counters.push(counter.clone());
                    self.images.push(image);
                    self.by_writer.insert(key, id);
                    within.push(id);
                }
                Some(_) | None => {}
            }
        }
        within.into()
    }

    /// Returns a counter whose exits are worth watching, in the thread that was sampled in a loop last.
    pub(super) fn loop_to_watch(&mut self, apps: &mut Applications) -> Option<Watch> {
        let latest = self.latest.take()?;
        self.add_to_totals(apps, Some(latest.execution));
        let of = apps.resolve(latest.execution);
        let app: App = (of.app.clone(), of.instance);
        let app_samples = self.app_samples(&app);
        let within: Vec<CounterId> = self.pairs.last(latest.tid).map(|(counter, _)| counter).collect();
        let mut best: Option<(u64, CounterId)> = None;
        for id in within {
            let counter = &self.counters[id.0 as usize];
            let Some(total) = self.totals.get(&(id, app.clone())) else { continue };
            let is_due = match total.tally.judge(counter, &total.exits, app_samples) {
                Err("exits not watched") => true,
                Ok(_) => total.tally.pairs >= 2 * total.pairs_watched,
                Err(_) => false,
            };
            let is_here = self.images[id.0 as usize] == latest.image && counter.exits.len() <= EXITS_MAX;
            if is_due && is_here && best.is_none_or(|(pairs, _)| total.tally.pairs > pairs) {
                best = Some((total.tally.pairs, id));
            }
        }
        let (pairs, id) = best?;
        let total = self.totals.get_mut(&(id, app))?;
        total.pairs_watched = pairs;
        let exits = total.exits.due(&self.counters[id.0 as usize]);
        let addresses: Vec<VirtualAddress> = exits.iter().map(|exit| latest.base.offset(*exit)).collect();
        (!addresses.is_empty()).then_some(Watch { pid: latest.pid, tid: latest.tid, counter: id, addresses })
    }

    /// Notes what breakpoints saw at a counter's exits. Samples before and after it are not paired, because the thread was
    /// disturbed.
    pub(super) fn note_exits(&mut self, apps: &mut Applications, execution: ExecutionId, raw: &RawExits) {
        let execution = apps.counted_as(execution);
        let of = apps.resolve(execution);
        let app: App = (of.app.clone(), of.instance);
        let before = self.pairs.last(raw.tid).find(|(counter, _)| *counter == raw.counter);
        let before = before.map(|(_, registers)| registers.clone());
        self.pairs.interrupt(raw.tid);
        let (Some(before), Some(counter)) = (before, self.counters.get(raw.counter.0 as usize)) else {
            return;
        };
        if raw.executions == 0 {
            self.waiting.insert(raw.tid, (raw.clone(), app, before));
        } else if let Some(total) = self.totals.get_mut(&(raw.counter, app)) {
            total.exits.add(counter, raw.running_ns, raw.executions);
        }
    }

    /// Adds the observations of one execution, or of all, to the totals of their applications, after which executions may be
    /// forgotten. Until counts are stored, only one is added, because other executions may not have their names yet.
    fn add_to_totals(&mut self, apps: &mut Applications, only: Option<ExecutionId>) {
        let is_due = |execution: ExecutionId| only.is_none_or(|only| only == execution);
        let (samples, rest): (FxHashMap<_, _>, FxHashMap<_, _>) =
            std::mem::take(&mut self.samples).into_iter().partition(|(execution, _)| is_due(*execution));
        self.samples = rest;
        for (execution, samples) in samples {
            let of = apps.resolve(execution);
            *self.samples_of_apps.entry((of.app.clone(), of.instance)).or_default() += samples;
        }
        for ((counter, execution), tally) in self.pairs.take(&is_due) {
            let of = apps.resolve(execution);
            self.totals.entry((counter, (of.app.clone(), of.instance))).or_default().tally.add(&tally);
        }
    }

    /// Returns the samples in each counter's body at places whose loops were not searched, since they were sampled too rarely,
    /// as a share of the counter's other samples. Which application they belong to is not known.
    fn rare_samples(&self) -> FxHashMap<CounterId, f64> {
        let seen = self.places.iter().filter_map(|(place, state)| match state {
            Place::Seen(samples) => Some((*place, u64::from(*samples))),
            Place::In(_) => None,
        });
        let seen: BTreeMap<(ImageIndex, u64), u64> = seen.collect();
        let mut known: FxHashMap<CounterId, u64> = FxHashMap::default();
        for ((id, _), total) in &self.totals {
            *known.entry(*id).or_default() += total.tally.samples;
        }
        let share = |(id, samples): (CounterId, u64)| {
            let (image, counter) = (self.images[id.0 as usize], &self.counters[id.0 as usize]);
            let within = counter.body.iter().flat_map(|b| seen.range((image, b.start)..(image, b.end)));
            (id, within.map(|(_, samples)| *samples).sum::<u64>() as f64 / samples.max(1) as f64)
        };
        known.into_iter().map(share).collect()
    }

    /// Returns the executions that were counted since the last call.
    pub(super) fn take(
        &mut self,
        apps: &mut Applications,
        images: &Images,
    ) -> (Vec<ExecutionCount>, FxHashSet<ImageIndex>) {
        self.add_to_totals(apps, None);
        self.refused.clear();
        let mut found: BTreeMap<(ImageIndex, u64, App), OfBlock> = BTreeMap::new();
        let rare = self.rare_samples();
        for ((id, app), total) in &self.totals {
            let counter = &self.counters[id.0 as usize];
            let app_samples = self.app_samples(app);
            let mut tally = total.tally.clone();
            tally.samples += (rare.get(id).copied().unwrap_or(0.0) * tally.samples as f64).round() as u64;
            match tally.judge(counter, &total.exits, app_samples) {
                Ok((executions, deviation)) => {
                    let block = counter.body.iter().rfind(|block| block.start <= counter.writer);
                    let block = block.map_or(counter.writer, |block| block.start);
                    let key = (self.images[id.0 as usize], block, app.clone());
                    found.entry(key).or_default().push((*id, executions, deviation));
                }
                Err("few pairs" | "little time") => {}
                Err(cause) => *self.refused.entry(format!("loop: {cause}")).or_default() += 1,
            }
        }
        let (mut rows, mut counted) = (Vec::new(), FxHashSet::default());
        for ((image, _, app), mut of_block) in found {
            of_block.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)));
            let (id, executions, deviation) = of_block[0];
            // Counters with different loop bodies see different samples, but they agree if both are certain.
            let differs = |other: f64, other_deviation: f64| {
                (other / executions).ln().abs() > DISAGREEMENT_MAX + 2.0 * deviation.hypot(other_deviation)
            };
            if of_block.iter().any(|(_, other, deviation)| differs(*other, *deviation)) {
                *self.refused.entry("loop: counters disagree".to_owned()).or_default() += 1;
                continue;
            }
            let samples = self.samples_of_apps.get(&app).copied().unwrap_or(0);
            let Some(total) = self.totals.get_mut(&(id, app.clone())) else { continue };
            let more = (executions - total.taken.0).max(0.0);
            let count = ExecutionCount {
                place: CodePlace {
                    image: images.record(image).id.clone(),
                    offset: ImageOffset(self.counters[id.0 as usize].writer),
                },
                app: app.0.to_string(),
                instance: app.1,
                executions: more.round() as u64,
                samples: samples.saturating_sub(total.taken.1),
                deviation_ppm: (deviation * 1e6) as u32,
                source: CountSource::InductionRegister,
            };
            total.taken = (executions.max(total.taken.0), samples);
            if count.samples > 0 {
                counted.insert(image);
                rows.push(count);
            }
        }
        (rows, counted)
    }

    /// Adds the results of loop counters to a record.
    pub fn add_to(&self, record: &mut CountsRecord) {
        let promising = |total: &&Total| total.tally.promises(1).is_ok();
        record.loops = self.totals.values().filter(promising).count() as u64;
        record.pairs = self.totals.values().map(|total| total.tally.pairs).sum();
        for (cause, number) in &self.refused {
            *record.refused.entry(cause.clone()).or_default() += number;
        }
    }
}
