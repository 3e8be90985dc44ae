//! The collector's handling of loop counters: loops of samples, exits to watch, and rows of execution counts.
//!
//! Enters: samples with registers, and what breakpoints saw at exits. Leaves: execution counts. Never here: how loops are
//! found ([`crate::counts::loops`]) and how samples are paired ([`crate::counts::pairs`]).

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use dwell_attribution::{ExecutionId, ImageIndex};
use dwell_profile::{
    CountSource, CountsRecord, Event, EventIndex, ExecutionCount, ImageOffset, PathPlace, Pid, Tid,
};
use rustc_hash::FxHashMap;

use super::{Collector, code::read_code};
use crate::{
    branch::Registers,
    counts::{
        loops::{Counter, Register, counters},
        pairs::{CounterId, EXITS_MAX, Exits, Pairs, Seen, Tally, executions},
    },
    host::Host,
    items::RawExits,
    records::Sample,
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
    told: (f64, u64),
}

/// The thread that was sampled in a loop last, where exits can be watched.
#[derive(Clone, Copy)]
struct Latest {
    pid: Pid,
    tid: Tid,
    execution: ExecutionId,
    image: ImageIndex,
    /// Difference between address and offset.
    base: u64,
}

/// A request to watch the exits of a loop in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The process of the thread.
    pub pid: Pid,
    /// The thread to watch.
    pub tid: Tid,
    /// The counter of the loop.
    pub counter: CounterId,
    /// Addresses of the loop's exits.
    pub addresses: Vec<u64>,
}

/// State of the loop counters.
#[derive(Default)]
pub(super) struct Loops {
    is_on: bool,
    places: FxHashMap<(ImageIndex, u64), Place>,
    counters: Vec<Counter>,
    images: Vec<ImageIndex>,
    by_writer: FxHashMap<(ImageIndex, u64, Register), CounterId>,
    pairs: Pairs,
    /// Time samples by execution since they were last settled.
    samples: FxHashMap<ExecutionId, u64>,
    samples_of_apps: FxHashMap<App, u64>,
    totals: BTreeMap<(CounterId, App), Total>,
    latest: Option<Latest>,
    /// Exits that were not taken in a window. They count once the thread is found in the same loop, further on.
    waiting: HashMap<Tid, (RawExits, App, Registers)>,
    looks: u64,
    all_samples: u64,
    stored: u64,
    refused: BTreeMap<String, u64>,
}

impl Loops {
    /// Forgets everything except whether counting is on, because images were renumbered or a new epoch begins.
    pub(super) fn clear(&mut self) {
        *self = Loops { is_on: self.is_on, ..Loops::default() };
    }

    pub(super) fn interrupt(&mut self, tid: Tid) {
        self.pairs.interrupt(tid);
    }

    /// Returns the settled time samples of an application.
    fn app_samples(&self, app: &App) -> u64 {
        self.samples_of_apps.get(app).copied().unwrap_or(0)
    }
}

impl<H: Host> Collector<H> {
    /// Starts to pair samples in loops.
    pub fn keep_loops(&mut self) {
        self.loops.is_on = true;
    }

    /// Notes a time sample at any place.
    pub(super) fn note_time(&mut self, event: EventIndex, execution: ExecutionId) {
        if self.loops.is_on && self.events.iter().position(Event::is_time) == Some(event.index()) {
            let execution = self.apps.counted_as(execution);
            *self.loops.samples.entry(execution).or_default() += 1;
            self.loops.all_samples += 1;
        }
    }

    /// Notes a sample of user code with registers.
    pub(super) fn note_loops(
        &mut self,
        event: EventIndex,
        sample: &Sample,
        place: (ImageIndex, u64),
        execution: ExecutionId,
        registers: &Registers,
    ) {
        if !self.loops.is_on || self.events.iter().position(Event::is_time) != Some(event.index()) {
            return;
        }
        let execution = self.apps.counted_as(execution);
        self.look_for_loops(place, execution);
        let loops = &mut self.loops;
        let within: &[CounterId] = match loops.places.get(&place) {
            Some(Place::In(within)) => within,
            _ => &[],
        };
        if let Some((exits, app, before)) = loops.waiting.remove(&sample.tid) {
            let counter = &loops.counters[exits.counter.0 as usize];
            // Windows slow down only threads that leave the loop, so the exact length of the window matters little here.
            let is_further = within.contains(&exits.counter)
                && executions(
                    counter,
                    &before,
                    registers,
                    self.sampled.until_ns.saturating_sub(exits.since_ns),
                )
                .is_ok();
            if is_further && let Some(total) = loops.totals.get_mut(&(exits.counter, app)) {
                total.exits.add(counter, exits.running_ns, 0);
            }
        }
        let time_ns = self.sampled.until_ns;
        let seen = Seen { tid: sample.tid, execution, time_ns, registers };
        loops.pairs.sample(&loops.counters, within, seen);
        if !within.is_empty() {
            let base = sample.pc.wrapping_sub(place.1);
            loops.latest = Some(Latest { pid: sample.pid, tid: sample.tid, execution, image: place.0, base });
        }
    }

    fn look_for_loops(&mut self, (image, offset): (ImageIndex, u64), execution: ExecutionId) {
        let loops = &mut self.loops;
        if loops.places.len() >= PLACES_MAX && !loops.places.contains_key(&(image, offset)) {
            return;
        }
        let place = loops.places.entry((image, offset)).or_insert(Place::Seen(0));
        let Place::Seen(samples) = place else { return };
        *samples = samples.saturating_add(1);
        let before = *samples;
        if before < SAMPLES_BEFORE || loops.looks > LOOKS_FIRST + loops.all_samples / SAMPLES_PER_LOOK {
            return;
        }
        loops.looks += 1;
        let (images, host) = (&self.images, &mut self.host);
        let found = counters(offset, &mut |at, bytes| read_code(images, host, image, at, bytes));
        let mut within = Vec::with_capacity(found.len());
        for counter in found {
            let key = (image, counter.writer, counter.register);
            let known = loops.by_writer.get(&key).copied();
            // Exploration is bounded, so a loop found from another place may look different.
            let same = known.filter(|id| loops.counters[id.0 as usize].holds(offset));
            let id = match (known, same) {
                (_, Some(id)) => id,
                (Some(_), None) => continue,
                (None, None) if loops.counters.len() < COUNTERS_MAX => {
                    let id = CounterId(loops.counters.len() as u32);
                    loops.counters.push(counter);
                    loops.images.push(image);
                    loops.by_writer.insert(key, id);
                    id
                }
                (None, None) => continue,
            };
            loops.pairs.samples_before(id, execution, u64::from(before - 1));
            within.push(id);
        }
        loops.places.insert((image, offset), Place::In(within.into()));
    }

    /// Returns a counter whose exits are worth watching, in the thread that was sampled in a loop last.
    pub fn loop_to_watch(&mut self) -> Option<Watch> {
        let latest = self.loops.latest.take()?;
        self.settle_loops(Some(latest.execution));
        let of = self.apps.resolve(latest.execution);
        let app: App = (of.app.clone(), of.instance);
        let loops = &mut self.loops;
        let app_samples = loops.app_samples(&app);
        let within: Vec<CounterId> = loops.pairs.last(latest.tid).map(|(counter, _)| counter).collect();
        let mut best: Option<(u64, CounterId)> = None;
        for id in within {
            let counter = &loops.counters[id.0 as usize];
            let Some(total) = loops.totals.get(&(id, app.clone())) else { continue };
            let is_due = match total.tally.judge(counter, &total.exits, app_samples) {
                Err("exits not watched") => true,
                Ok(_) => total.tally.pairs >= 2 * total.pairs_watched,
                Err(_) => false,
            };
            let is_here = loops.images[id.0 as usize] == latest.image && counter.exits.len() <= EXITS_MAX;
            if is_due && is_here && best.is_none_or(|(pairs, _)| total.tally.pairs > pairs) {
                best = Some((total.tally.pairs, id));
            }
        }
        let (pairs, id) = best?;
        let total = loops.totals.get_mut(&(id, app))?;
        total.pairs_watched = pairs;
        let exits = total.exits.due(&loops.counters[id.0 as usize]);
        let addresses: Vec<u64> = exits.iter().map(|exit| exit.wrapping_add(latest.base)).collect();
        (!addresses.is_empty()).then_some(Watch { pid: latest.pid, tid: latest.tid, counter: id, addresses })
    }

    /// Notes what breakpoints saw at a counter's exits. Samples before and after it are not paired, because the thread was
    /// disturbed.
    pub(super) fn loop_exits(&mut self, raw: &RawExits) {
        self.stepping.window = Some((raw.tid, raw.until_ns));
        let execution = self.execution_of(raw.pid);
        let execution = self.apps.counted_as(execution);
        let of = self.apps.resolve(execution);
        let app: App = (of.app.clone(), of.instance);
        let loops = &mut self.loops;
        let before = loops.pairs.last(raw.tid).find(|(counter, _)| *counter == raw.counter);
        let before = before.map(|(_, registers)| registers.clone());
        loops.pairs.interrupt(raw.tid);
        let (Some(before), Some(counter)) = (before, loops.counters.get(raw.counter.0 as usize)) else {
            return;
        };
        if raw.executions == 0 {
            loops.waiting.insert(raw.tid, (raw.clone(), app, before));
        } else if let Some(total) = loops.totals.get_mut(&(raw.counter, app)) {
            total.exits.add(counter, raw.running_ns, raw.executions);
        }
    }

    /// Adds the observations of one execution, or of all, to the totals of their applications, after which executions may be
    /// forgotten. Until counts are stored, only one is settled, because other executions may not have their names yet.
    fn settle_loops(&mut self, only: Option<ExecutionId>) {
        let loops = &mut self.loops;
        let is_due = |execution: ExecutionId| only.is_none_or(|only| only == execution);
        let (samples, rest): (FxHashMap<_, _>, FxHashMap<_, _>) =
            std::mem::take(&mut loops.samples).into_iter().partition(|(execution, _)| is_due(*execution));
        loops.samples = rest;
        for (execution, samples) in samples {
            let of = self.apps.resolve(execution);
            *loops.samples_of_apps.entry((of.app.clone(), of.instance)).or_default() += samples;
        }
        for ((counter, execution), tally) in loops.pairs.take(&is_due) {
            let of = self.apps.resolve(execution);
            loops.totals.entry((counter, (of.app.clone(), of.instance))).or_default().tally.add(&tally);
        }
    }

    /// Returns the executions that were counted since the last call.
    pub(super) fn take_loop_counts(&mut self) -> Vec<ExecutionCount> {
        self.settle_loops(None);
        let loops = &mut self.loops;
        loops.refused.clear();
        let mut found: BTreeMap<(ImageIndex, u64, App), OfBlock> = BTreeMap::new();
        for ((id, app), total) in &loops.totals {
            let counter = &loops.counters[id.0 as usize];
            let app_samples = loops.app_samples(app);
            match total.tally.judge(counter, &total.exits, app_samples) {
                Ok((executions, deviation)) => {
                    let block = counter.body.iter().rfind(|block| block.start <= counter.writer);
                    let block = block.map_or(counter.writer, |block| block.start);
                    let key = (loops.images[id.0 as usize], block, app.clone());
                    found.entry(key).or_default().push((*id, executions, deviation));
                }
                Err("few pairs" | "little time") => {}
                Err(cause) => *loops.refused.entry(format!("loop: {cause}")).or_default() += 1,
            }
        }
        let mut rows = Vec::new();
        for ((image, _, app), mut of_block) in found {
            of_block.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.cmp(&b.0)));
            let (id, executions, deviation) = of_block[0];
            // Counters with different loop bodies see different samples, but they agree if both are certain.
            let differs = |other: f64, other_deviation: f64| {
                (other / executions).ln().abs() > DISAGREEMENT_MAX + 2.0 * deviation.hypot(other_deviation)
            };
            if of_block.iter().any(|(_, other, deviation)| differs(*other, *deviation)) {
                *loops.refused.entry("loop: counters disagree".to_owned()).or_default() += 1;
                continue;
            }
            let samples = loops.samples_of_apps.get(&app).copied().unwrap_or(0);
            let Some(total) = loops.totals.get_mut(&(id, app.clone())) else { continue };
            let more = (executions - total.told.0).max(0.0);
            let count = ExecutionCount {
                place: PathPlace {
                    image: self.images.record(image).id.clone(),
                    offset: ImageOffset(loops.counters[id.0 as usize].writer),
                },
                app: app.0.to_string(),
                instance: app.1,
                executions: more.round() as u64,
                samples: samples.saturating_sub(total.told.1),
                deviation_ppm: (deviation * 1e6) as u32,
                source: CountSource::InductionRegister,
            };
            total.told = (executions.max(total.told.0), samples);
            if count.samples > 0 {
                self.stepping.images.insert(image);
                loops.stored += 1;
                rows.push(count);
            }
        }
        rows
    }

    /// Adds the results of loop counters to a record.
    pub fn add_loops_to(&self, record: &mut CountsRecord) {
        let promising = |total: &&Total| total.tally.promises(1).is_ok();
        record.loops = self.loops.totals.values().filter(promising).count() as u64;
        record.pairs = self.loops.totals.values().map(|total| total.tally.pairs).sum();
        for (cause, number) in &self.loops.refused {
            *record.refused.entry(cause.clone()).or_default() += number;
        }
    }
}
