//! The counters of a process.
//!
//! Enters: addresses with their numbers of samples. Leaves: counters in the procedures around them, and what they counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use dwell_image::ImageAddress;
use serde::{Deserialize, Serialize};

use super::{
    code::{Span, assemble},
    place::CounterPlace,
    procedure::{CountedProcedure, Counter},
};
use crate::{
    ProbeError, Probes,
    patch::{plan::Refusal, trampoline::jump},
    probes::{Probe, system, traced, verify_bytes},
    process::{
        installation::{COUNTERS_MAX, Installation},
        patcher::{Change, exchange},
        tracer::Tracer,
    },
    process_images::MappedImage,
};

/// A generous size of a counter's code.
const CODE_BYTES: usize = 256;
/// Share of the samples that a procedure must have.
const SHARE_MIN: f64 = 0.002;

/// The counters of a process.
#[derive(Default)]
pub struct Counters {
    procedures: Vec<CountedProcedure>,
    /// Addresses of the procedures that have counters or were refused.
    known: BTreeSet<u64>,
    /// Number of counters that have code.
    number: usize,
    /// The values that were read last.
    values: Vec<u64>,
}

/// What was changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Added {
    /// Number of procedures that are counted now and were not before.
    pub procedures: u64,
    /// Number of counters that count now.
    pub counters: u64,
    /// Number of procedures that cannot be counted, by cause.
    pub refused: BTreeMap<String, u64>,
    /// Code that counts and was not there before.
    pub spans: Vec<Span>,
}

impl Probes {
    /// Counts the blocks of the procedures that have most of the samples. In those that are counted already, chooses again which blocks
    /// have counters, by what was counted so far. What is counted meanwhile is lost.
    pub fn add_counters(&mut self, images: &[MappedImage], samples: &[(u64, u64)]) -> Result<Added, ProbeError> {
        let mut added = Added::default();
        let before = self.counters.procedures.len();
        self.counters.procedures.iter_mut().for_each(CountedProcedure::choose);
        self.counters.plan(images, samples, &mut added.refused);
        added.procedures = (self.counters.procedures.len() - before) as u64;
        self.switch(added)
    }

    /// Puts the chosen counters into the code, and removes the others.
    fn switch(&mut self, mut added: Added) -> Result<Added, ProbeError> {
        let pid = self.pid;
        let Probes { installation, counters, probes, .. } = self;
        let ((), stopped) = traced(pid, |tracer| {
            installation.map_counters(tracer).map_err(|source| system(pid, "map counters", source))?;
            counters.write_code(installation, tracer, &mut added).map_err(|source| system(pid, "map code", source))?;
            let changes = counters.changes();
            let additions: Vec<Change> = changes.iter().filter(|change| !change.is_removal).cloned().collect();
            verify_bytes(installation, &additions).map_err(|source| system(pid, "read the code", source))?;
            let removals = additions.iter().map(Change::removal).chain(counters.removals());
            let all: Vec<Change> = probes.values().flat_map(Probe::removals).chain(removals).collect();
            installation.write_journal(&all).map_err(|source| system(pid, "write the journal", source))?;
            exchange(tracer, &installation.memory, &changes).map_err(|source| system(pid, "patch the code", source))
        })?;
        self.stopped_max = self.stopped_max.max(stopped);
        self.counters.note_switched();
        added.counters = self.counters.removals().count() as u64;
        Ok(added)
    }

    /// Returns the executions since the last call of each block whose executions are known, named by the address of its first
    /// instruction.
    pub fn executions(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let Counters { number, values, .. } = &mut self.counters;
        let now = self.installation.counters(*number)?;
        values.resize(now.len(), 0);
        let increases: Vec<u64> = now.iter().zip(&*values).map(|(now, before)| now.wrapping_sub(*before)).collect();
        *values = now;
        if std::env::var_os("DWELL_DEBUG_COUNTS").is_some() {
            eprintln!("total {} of {} {} on", increases.iter().sum::<u64>(), increases.len(), self.counters.removals().count());
        }
        let Counters { procedures, .. } = &mut self.counters;
        Ok(procedures.iter_mut().flat_map(|procedure| procedure.executions(&increases)).collect())
    }
}

impl Counters {
    /// Plans the counters of the procedures that have most of the samples, as long as there is room.
    fn plan(&mut self, images: &[MappedImage], samples: &[(u64, u64)], refused: &mut BTreeMap<String, u64>) {
        let mut of_procedures: BTreeMap<(usize, u64), Vec<(u64, u64)>> = BTreeMap::new();
        for (address, number) in samples {
            let is_in = |image: &MappedImage| (image.mapping.start..image.mapping.end).contains(address);
            let Some(image) = images.iter().position(is_in) else { continue };
            let Some(procedure) = images[image].procedure_at(*address) else { continue };
            of_procedures.entry((image, procedure.address.0)).or_default().push((*address, *number));
        }
        let sum = |samples: &[(u64, u64)]| samples.iter().map(|(_, number)| number).sum::<u64>();
        let least = (SHARE_MIN * sum(samples) as f64).max(1.0) as u64;
        let mut hottest: Vec<_> = of_procedures.into_iter().filter(|(_, samples)| sum(samples) >= least).collect();
        hottest.sort_by_key(|(_, samples)| std::cmp::Reverse(sum(samples)));
        let mut room = COUNTERS_MAX - self.procedures.iter().map(|procedure| procedure.chosen.len()).sum::<usize>();
        for ((at, address), samples) in hottest {
            let image = &images[at];
            if !self.known.insert(address.wrapping_add(image.bias)) {
                continue;
            }
            let Some(procedure) = image.image.procedure_at(ImageAddress(address)) else { continue };
            let code = image.codes(&[procedure]).pop().expect("one code for one procedure");
            let plan = code.and_then(|code| CountedProcedure::plan(image, &procedure, &code, &samples));
            match plan {
                Ok(procedure) if procedure.chosen.len() > room => {
                    *refused.entry(Refusal::TooMany.cause().to_owned()).or_default() += 1;
                }
                Ok(procedure) => {
                    room -= procedure.chosen.len();
                    self.procedures.push(procedure);
                }
                Err(refusal) => *refused.entry(refusal.cause().to_owned()).or_default() += 1,
            }
        }
    }

    /// Writes the code of chosen counters that have none. A block for which there is no room is not counted.
    fn write_code(&mut self, installation: &mut Installation, tracer: &mut Tracer, added: &mut Added) -> io::Result<()> {
        for procedure in &mut self.procedures {
            for block in procedure.chosen.clone() {
                let Some(place) = procedure.place(block).filter(|_| procedure.counters[block].is_none()) else { continue };
                let is_room = self.number < COUNTERS_MAX;
                let placed = if is_room { write(installation, tracer, place, self.number)? } else { None };
                let Some((change, spans)) = placed else {
                    *added.refused.entry(Refusal::TooFar.cause().to_owned()).or_default() += 1;
                    procedure.chosen.retain(|other| *other != block);
                    continue;
                };
                added.spans.extend(spans);
                procedure.counters[block] = Some(Counter { number: self.number, change, is_on: false });
                self.number += 1;
            }
        }
        Ok(())
    }

    /// Returns all counters, and whether each is chosen.
    fn all(&mut self) -> impl Iterator<Item = (&mut Counter, bool)> {
        self.procedures.iter_mut().flat_map(|CountedProcedure { counters, chosen, .. }| {
            let counters = counters.iter_mut().enumerate();
            counters.filter_map(|(block, counter)| Some((counter.as_mut()?, chosen.contains(&block))))
        })
    }

    /// Returns what must change so that just the chosen counters count.
    fn changes(&mut self) -> Vec<Change> {
        let changed = self.all().filter(|(counter, is_chosen)| counter.is_on != *is_chosen);
        changed.map(|(counter, on)| if on { counter.change.clone() } else { counter.change.removal() }).collect()
    }

    fn note_switched(&mut self) {
        self.all().for_each(|(counter, is_chosen)| counter.is_on = is_chosen);
    }

    /// Returns the changes that remove all counters which count.
    pub(crate) fn removals(&self) -> impl Iterator<Item = Change> + '_ {
        let counters = self.procedures.iter().flat_map(|procedure| procedure.counters.iter().flatten());
        counters.filter(|counter| counter.is_on).map(|counter| counter.change.removal())
    }
}

/// Writes a counter's code, and returns the jump to it; `None` if there is no room near it.
fn write(
    installation: &mut Installation,
    tracer: &mut Tracer,
    place: &CounterPlace,
    number: usize,
) -> io::Result<Option<(Change, Vec<Span>)>> {
    let region = &place.region;
    let Some((_, at)) = installation.place(tracer, region.address, CODE_BYTES)? else { return Ok(None) };
    let counter_at = installation.placement.counters_at as u32 + 8 * number as u32;
    let code = assemble(place, counter_at, at);
    let (Ok(code), Some(to)) = (code, jump(region.address, at)) else { return Ok(None) };
    installation.write_trampoline(at, &code.code);
    let (address, from) = (region.address, region.original);
    Ok(Some((Change { address, from, to, is_removal: false, copies: code.copies }, code.spans)))
}
