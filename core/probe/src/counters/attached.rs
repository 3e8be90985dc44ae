//! The counters of a process.
//!
//! Enters: addresses with their numbers of samples. Leaves: counters in the procedures around them, and what they counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};

use dwell_collect::process_cpu_ns;
use dwell_image::ImageAddress;
use dwell_profile::{Tid, VirtualAddress};
use serde::{Deserialize, Serialize};

use super::{
    copy::Span,
    procedure::{CountedProcedure, Version},
};
use crate::{
    ProbeError, Probes,
    patch::{function_code::FunctionCode, plan::Refusal},
    probes::{Probe, system, traced, verify_bytes},
    process::{
        installation::{AREA_BYTES, COUNTERS_MAX, Installation},
        patcher::{Change, exchange},
        procfs,
        tracer::Tracer,
    },
    process_images::MappedImage,
};

/// Largest size of a copy, which must fit into one area.
const COPY_BYTES_MAX: usize = AREA_BYTES as usize / 2;
/// Number of counters that count at once, so that the journal has room for them.
const ON_MAX: usize = 6000;
/// How long to wait until each thread that runs was stopped once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Executions a second of all anchors together, at most, and of the only one: they cost about 2 ns each.
const ANCHORS_RATE_MAX: f64 = 2_000_000.0;
const ONLY_ANCHOR_RATE_MAX: f64 = 5_000_000.0;
/// Share of the samples that a procedure must have.
const SHARE_MIN: f64 = 0.002;

/// The counters of a process.
#[derive(Default)]
pub struct Counters {
    procedures: Vec<CountedProcedure>,
    /// Addresses of the procedures that have counters or were refused.
    known: BTreeSet<VirtualAddress>,
    /// Number of counters that have code.
    number: usize,
    /// The values that were read last.
    values: Vec<u64>,
    /// Since when all chosen blocks are counted.
    counting: Stopwatch,
}

/// The time for which something lasts, with interruptions.
#[derive(Default)]
struct Stopwatch {
    before: Duration,
    since: Option<Instant>,
}

impl Stopwatch {
    fn go_on(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn stop(&mut self) {
        self.before += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    fn elapsed(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
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
    /// The blocks of procedures, by their entries, that are counted all the time.
    pub anchors: Vec<(VirtualAddress, VirtualAddress)>,
    /// The longest time for which a thread was stopped.
    pub stopped_ns: u64,
}

/// What was counted since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executions {
    /// The process's CPU time when its counters were read, in ns.
    pub cpu_ns: u64,
    /// Each procedure that is counted.
    pub procedures: Vec<ProcedureExecutions>,
}

/// Executions of a procedure's blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcedureExecutions {
    /// The procedure's first address.
    pub entry: VirtualAddress,
    /// Executions by the address of each block's first instruction.
    pub blocks: Vec<(VirtualAddress, u64)>,
}

impl Probes {
    /// Counts the blocks of the procedures that have most of the samples. In those that are counted already, chooses again which blocks
    /// have counters, by what was counted so far. What is counted meanwhile is lost.
    pub fn add_counters(
        &mut self,
        images: &[MappedImage],
        samples: &[(VirtualAddress, u64)],
    ) -> Result<Added, ProbeError> {
        let mut added = Added::default();
        let before = self.counters.procedures.len();
        self.counters.procedures.iter_mut().for_each(CountedProcedure::choose);
        self.counters.plan(images, samples, &mut added.refused);
        added.procedures = (self.counters.procedures.len() - before) as u64;
        let added = self.switch(added)?;
        self.counters.counting.go_on();
        Ok(added)
    }

    /// Counts one block of each procedure alone, its anchor, which is not executed often.
    pub fn rest_counters(&mut self) -> Result<Added, ProbeError> {
        self.counters.counting.stop();
        let seconds = self.counters.counting.elapsed().as_secs_f64().max(1e-3);
        let procedures = &mut self.counters.procedures;
        let mut rate = ANCHORS_RATE_MAX;
        loop {
            let limit = (rate * seconds) as u64;
            let executions: u64 = procedures.iter_mut().map(|p| p.choose_anchor(limit)).sum();
            if executions as f64 <= ANCHORS_RATE_MAX * seconds || rate < 1.0 {
                break;
            }
            rate /= 2.0;
        }
        if procedures.iter().all(|procedure| procedure.chosen.is_empty()) {
            // One anchor is better than none.
            let limit = (ONLY_ANCHOR_RATE_MAX * seconds) as u64;
            let least = procedures.iter_mut().filter(|procedure| procedure.least() <= limit);
            if let Some(procedure) = least.min_by_key(|procedure| procedure.least()) {
                procedure.choose_anchor(procedure.least());
            }
        }
        self.counters.procedures.iter_mut().for_each(CountedProcedure::keep_anchor);
        self.switch(Added::default())
    }

    /// Lets the chosen blocks be counted, and no others.
    fn switch(&mut self, mut added: Added) -> Result<Added, ProbeError> {
        let pid = self.pid;
        let Probes { installation, counters, probes, .. } = self;
        let ((), stopped) = traced(pid, |tracer| {
            tracer.bases = Some(installation.bases.clone());
            installation.map_counters(tracer).map_err(|source| system(pid, "map counters", source))?;
            if tracer.bases.as_ref().is_some_and(|bases| bases.is_foreign) {
                return Err(ProbeError::Unsuitable { pid, reason: "it uses its gs register" });
            }
            counters
                .write_copies(installation, tracer, &mut added)
                .map_err(|source| system(pid, "map code", source))?;
            let changes = counters.changes();
            verify_bytes(installation, &changes).map_err(|source| system(pid, "read the code", source))?;
            // Whatever happens now, all of these may have to be removed.
            let journal =
                counters.removals().chain(counters.missing().flat_map(|version| version.switch(false)));
            let all: Vec<Change> = probes.values().flat_map(Probe::removals).chain(journal).collect();
            installation.write_journal(&all).map_err(|source| system(pid, "write the journal", source))?;
            exchange(tracer, &installation.code(), &changes)
                .map_err(|source| system(pid, "patch the code", source))?;
            counters.note_switched();
            installation.bases = tracer.bases.take().unwrap_or(installation.bases.clone());
            Ok(())
        })?;
        self.stopped_max = self.stopped_max.max(stopped);
        added.stopped_ns = stopped.as_nanos() as u64;
        added.counters = self.counters.removals().count() as u64 / 2;
        added.anchors = self.counters.procedures.iter().filter_map(CountedProcedure::anchor).collect();
        Ok(added)
    }

    /// Gives threads counters of their own that have none and run. Returns whether there were any: what was counted since they
    /// exist may be too low, since several may have used the same counters.
    pub fn separate_threads(&mut self) -> Result<bool, ProbeError> {
        let pid = self.pid;
        let of = &self.installation.bases.of;
        let threads = procfs::threads(pid).map_err(|source| system(pid, "list the threads", source))?;
        let others: Vec<Tid> = threads.into_iter().filter(|tid| !of.contains_key(tid)).collect();
        let runs = |tid: &Tid| procfs::position(pid, *tid) == Some(procfs::Position::Running);
        // A single thread may use the counters that belong to no other.
        if (of.is_empty() && others.len() < 2) || !others.iter().any(runs) {
            return Ok(false);
        }
        let installation = &mut self.installation;
        let ((), stopped) = traced(pid, |tracer| {
            tracer.bases = Some(installation.bases.clone());
            tracer
                .settle(PATIENCE, |_| true, |_, _| Ok(()))
                .map_err(|source| system(pid, "stop the threads", source))?;
            installation.bases = tracer.bases.take().unwrap_or(installation.bases.clone());
            Ok(())
        })?;
        self.stopped_max = self.stopped_max.max(stopped);
        Ok(true)
    }

    /// Returns the executions since the last call of each block whose executions are known, named by the address of its first
    /// instruction.
    pub fn executions(&mut self) -> io::Result<Executions> {
        let Counters { procedures, number, values, .. } = &mut self.counters;
        let cpu_ns = process_cpu_ns(self.pid).ok_or(io::ErrorKind::NotFound)?;
        let now = self.installation.counters(*number)?;
        values.resize(now.len(), 0);
        let increases: Vec<u64> =
            now.iter().zip(&*values).map(|(now, before)| now.wrapping_sub(*before)).collect();
        *values = now;
        let of = |procedure: &mut CountedProcedure| {
            let (entry, blocks) = (procedure.entry(), procedure.executions(&increases));
            ProcedureExecutions { entry, blocks }
        };
        Ok(Executions { cpu_ns, procedures: procedures.iter_mut().map(of).collect() })
    }
}

impl Counters {
    /// Plans the counters of the procedures that have most of the samples, as long as there is room.
    fn plan(
        &mut self,
        images: &[MappedImage],
        samples: &[(VirtualAddress, u64)],
        refused: &mut BTreeMap<String, u64>,
    ) {
        let mut of_procedures: BTreeMap<(usize, ImageAddress), Vec<(VirtualAddress, u64)>> = BTreeMap::new();
        for (address, number) in samples {
            let is_in = |image: &MappedImage| image.mapping.contains(*address);
            let Some(image) = images.iter().position(is_in) else { continue };
            let Some(procedure) = images[image].procedure_at(*address) else { continue };
            of_procedures.entry((image, procedure.address)).or_default().push((*address, *number));
        }
        let sum = |samples: &[(VirtualAddress, u64)]| samples.iter().map(|(_, number)| number).sum::<u64>();
        let least = (SHARE_MIN * sum(samples) as f64).max(1.0) as u64;
        let mut hottest: Vec<_> =
            of_procedures.into_iter().filter(|(_, samples)| sum(samples) >= least).collect();
        hottest.sort_by_key(|(_, samples)| std::cmp::Reverse(sum(samples)));
        let mut room =
            ON_MAX.saturating_sub(self.procedures.iter().map(|procedure| procedure.chosen.len()).sum());
        for ((at, address), samples) in hottest {
            let image = &images[at];
            if !self.known.insert(image.in_process(address)) {
                continue;
            }
            let Some(procedure) = image.image.procedure_at(address) else { continue };
            let code = image.codes(&[procedure]).pop().expect("one code for one procedure");
            // Symbols of hand-written code may be within others.
            let overlaps = |code: &FunctionCode| self.procedures.iter().any(|other| other.overlaps(code));
            let code = code.and_then(|code| if overlaps(&code) { Err(Refusal::Scattered) } else { Ok(code) });
            let plan = code.and_then(|code| CountedProcedure::plan(image, &procedure, code, &samples));
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

    /// Writes copies that count the chosen blocks, where there are none. A procedure for which there is no room is not counted.
    fn write_copies(
        &mut self,
        installation: &mut Installation,
        tracer: &mut Tracer,
        added: &mut Added,
    ) -> io::Result<()> {
        let counters = &mut *self;
        for procedure in &mut counters.procedures {
            if procedure.chosen.is_empty() || procedure.current_version().is_some() {
                continue;
            }
            let is_room = counters.number + procedure.chosen.len() <= COUNTERS_MAX;
            let written =
                if is_room { write(installation, tracer, procedure, counters.number)? } else { None };
            let Some((version, spans)) = written else {
                *added.refused.entry(Refusal::TooFar.cause().to_owned()).or_default() += 1;
                procedure.give_up();
                continue;
            };
            counters.number += procedure.chosen.len();
            added.spans.extend(spans);
            procedure.versions.push(version);
        }
        Ok(())
    }

    /// Returns what must change so that the chosen blocks are counted, and no others. Where a place leads from one copy to another
    /// one, that is one change.
    fn changes(&mut self) -> Vec<Change> {
        let outdated = self.procedures.iter_mut().flat_map(CountedProcedure::outdated);
        let mut changes: BTreeMap<u64, Change> = outdated
            .flat_map(|version| version.switch(false))
            .map(|change| (change.address, change))
            .collect();
        for mut change in self.missing().flat_map(|version| version.switch(true)).collect::<Vec<_>>() {
            if let Some(removal) = changes.get(&change.address) {
                change.from = removal.from;
            }
            changes.insert(change.address, change);
        }
        changes.into_values().collect()
    }

    /// Notes that these changes were made.
    fn note_switched(&mut self) {
        self.procedures
            .iter_mut()
            .flat_map(CountedProcedure::outdated)
            .for_each(|version| version.is_on = false);
        self.procedures
            .iter_mut()
            .filter_map(CountedProcedure::current)
            .for_each(|version| version.is_on = true);
    }

    /// Returns the copies that are to count and do not yet.
    fn missing(&self) -> impl Iterator<Item = &Version> {
        self.procedures.iter().filter_map(CountedProcedure::current_version).filter(|version| !version.is_on)
    }

    /// Returns the changes after which nothing is counted.
    pub(crate) fn removals(&self) -> impl Iterator<Item = Change> + '_ {
        let versions = self.procedures.iter().flat_map(|procedure| &procedure.versions);
        versions.filter(|version| version.is_on).flat_map(|version| version.switch(false))
    }
}

/// Writes the copy of a procedure; `None` if there is no room near it.
fn write(
    installation: &mut Installation,
    tracer: &mut Tracer,
    procedure: &CountedProcedure,
    first: usize,
) -> io::Result<Option<(Version, Vec<Span>)>> {
    let bytes = procedure.bytes_max();
    if bytes > COPY_BYTES_MAX {
        return Ok(None);
    }
    let place = installation.place(tracer, procedure.entry().0, bytes)?;
    let Some((_, at)) = place else { return Ok(None) };
    let assembled = procedure.assemble(first, installation.placement.counters_at, at);
    let Some((version, copy)) = assembled else { return Ok(None) };
    installation.write_trampoline(at, &copy.code);
    Ok(Some((version, copy.spans)))
}
