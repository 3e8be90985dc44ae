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
    procedure::{CountedProcedure, PlannedCounter},
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
/// Number of procedures that one request may add.
const PROCEDURES_MAX: usize = 200;
/// Share of the samples that a procedure must have.
const SHARE_MIN: f64 = 0.002;

/// The counters of a process.
#[derive(Default)]
pub struct Counters {
    procedures: Vec<CountedProcedure>,
    /// Addresses of the procedures that have counters or were refused.
    known: BTreeSet<u64>,
    /// Number of counters.
    number: usize,
    /// The jumps to the counters' code.
    pub(crate) changes: Vec<Change>,
}

/// What was added.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Added {
    /// Number of procedures.
    pub procedures: u64,
    /// Number of counters.
    pub counters: u64,
    /// Number of procedures that cannot be counted, by cause.
    pub refused: BTreeMap<String, u64>,
    /// The code that counts.
    pub spans: Vec<Span>,
}

impl Probes {
    /// Counts the blocks of the procedures that have most of the samples, unless they are counted already.
    pub fn add_counters(&mut self, images: &[MappedImage], samples: &[(u64, u64)]) -> Result<Added, ProbeError> {
        let mut added = Added::default();
        let planned = self.counters.plan(images, samples, &mut added.refused);
        if planned.is_empty() {
            return Ok(added);
        }
        let pid = self.pid;
        let Probes { installation, counters, probes, .. } = self;
        let (changes, stopped) = traced(pid, |tracer| {
            installation.map_counters(tracer).map_err(|source| system(pid, "map counters", source))?;
            let mut changes = Vec::new();
            for (mut procedure, planned) in planned {
                for counter in planned {
                    let placed = place(installation, tracer, &counter, counters.number)
                        .map_err(|source| system(pid, "map code near a function", source))?;
                    let Some((change, spans)) = placed else {
                        *added.refused.entry(Refusal::TooFar.to_string()).or_default() += 1;
                        continue;
                    };
                    procedure.placed(&counter, counters.number);
                    counters.number += 1;
                    added.counters += 1;
                    added.spans.extend(spans);
                    changes.push(change);
                }
                counters.procedures.push(procedure);
                added.procedures += 1;
            }
            verify_bytes(installation, &changes).map_err(|source| system(pid, "read the code", source))?;
            let all = counters.changes.iter().chain(&changes).map(Change::removal);
            let all: Vec<Change> = probes.values().flat_map(Probe::removals).chain(all).collect();
            installation.write_journal(&all).map_err(|source| system(pid, "write the journal", source))?;
            exchange(tracer, &installation.memory, &changes)
                .map_err(|source| system(pid, "patch the code", source))?;
            Ok(changes)
        })?;
        self.stopped_max = self.stopped_max.max(stopped);
        self.counters.changes.extend(changes);
        Ok(added)
    }

    /// Returns the executions so far of each block whose executions are known, named by the address of its first instruction.
    pub fn executions(&self) -> io::Result<Vec<(u64, u64)>> {
        let sums = self.installation.counters(self.counters.number)?;
        Ok(self.counters.procedures.iter().flat_map(|procedure| procedure.executions(&sums)).collect())
    }
}

type Planned = Vec<(CountedProcedure, Vec<PlannedCounter>)>;

impl Counters {
    /// Plans the counters of the procedures that have most of the samples, as long as there is room.
    fn plan(&mut self, images: &[MappedImage], samples: &[(u64, u64)], refused: &mut BTreeMap<String, u64>) -> Planned {
        let all: u64 = samples.iter().map(|(_, number)| number).sum();
        let mut planned = Planned::new();
        let mut room = COUNTERS_MAX - self.number;
        let mut of_procedures: BTreeMap<(usize, u64), Vec<(u64, u64)>> = BTreeMap::new();
        for (address, number) in samples {
            let is_in = |image: &MappedImage| (image.mapping.start..image.mapping.end).contains(address);
            let Some(image) = images.iter().position(is_in) else { continue };
            let Some(procedure) = images[image].procedure_at(*address) else { continue };
            of_procedures.entry((image, procedure.address.0)).or_default().push((*address, *number));
        }
        let sum = |samples: &[(u64, u64)]| samples.iter().map(|(_, number)| number).sum::<u64>();
        let mut hottest: Vec<_> = of_procedures.into_iter().collect();
        hottest.sort_by_key(|(_, samples)| std::cmp::Reverse(sum(samples)));
        hottest.retain(|((image, address), samples)| {
            sum(samples) as f64 >= SHARE_MIN * all as f64
                && self.known.insert(address.wrapping_add(images[*image].bias))
        });
        hottest.truncate(PROCEDURES_MAX);
        for ((at, address), samples) in hottest {
            let image = &images[at];
            let Some(procedure) = image.image.procedure_at(ImageAddress(address)) else { continue };
            let code = image.codes(&[procedure]).pop().expect("one code for one procedure");
            let plan = code.and_then(|code| CountedProcedure::plan(image, &procedure, &code, &samples));
            match plan {
                Ok((_, counters)) if counters.len() > room => {
                    *refused.entry(Refusal::TooMany.to_string()).or_default() += 1;
                }
                Ok((procedure, counters)) => {
                    room -= counters.len();
                    planned.push((procedure, counters));
                }
                Err(refusal) => *refused.entry(refusal.cause().to_owned()).or_default() += 1,
            }
        }
        planned
    }
}

/// Writes a counter's code, and returns the jump to it; `None` if there is no room near it.
fn place(
    installation: &mut Installation,
    tracer: &mut Tracer,
    counter: &PlannedCounter,
    number: usize,
) -> io::Result<Option<(Change, Vec<Span>)>> {
    let region = &counter.place.region;
    let Some((_, at)) = installation.place(tracer, region.address, CODE_BYTES)? else { return Ok(None) };
    let counter_at = installation.placement.counters_at as u32 + 8 * number as u32;
    let code = assemble(&counter.place, counter_at, at);
    let (Ok(code), Some(to)) = (code, jump(region.address, at)) else { return Ok(None) };
    installation.write_trampoline(at, &code.code);
    let change = Change { address: region.address, from: region.original, to, is_removal: false, copies: code.copies };
    Ok(Some((change, code.spans)))
}
