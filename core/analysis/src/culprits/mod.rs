//! Who is to blame for cycles that the model does not explain: guilty until proven innocent (DCPI §6.3).
//!
//! Input: an instruction with a dynamic stall, the graph, frequencies, event samples. Output: every cause that could not
//! be ruled out, each with the most it can explain, as a range. Complexity: linear in the instructions looked back at,
//! at most [`LOOK_BACK`] for each stall and predecessor.
//!
//! Out of order the instruction at the head waits for itself alone, since its elders have retired; in order it waits for
//! its operands' producers. What is charged to the head out of order had its skid undone before.

mod fetch;
mod operands;

use std::{collections::BTreeMap, ops::Range};

use dwell_image::Instruction;
use dwell_profile::Event;

use crate::{
    Cause, Confidence, Stall, StallKind,
    cfg::Cfg,
    frequency::Estimates,
    machine::{MachineModel, OpcodeClass, Order},
    schedule::Schedule,
};

/// Instructions that a search for a producer goes back.
const LOOK_BACK: usize = 64;
/// A predecessor that is executed less than this part of the stalled block is ignored.
const RARE_PART: f64 = 0.02;

/// What the search looks at.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The machine that was sampled.
    pub model: &'a MachineModel,
    /// The procedure.
    pub instructions: &'a [Instruction],
    /// Its graph.
    pub cfg: &'a Cfg,
    /// The model's expectation.
    pub schedule: &'a Schedule,
    /// Frequencies.
    pub estimates: &'a Estimates,
    /// How often branches were seen to go either way.
    pub directions: &'a [(u64, u64)],
    /// Other events' samples and periods.
    pub events: &'a BTreeMap<Event, (Vec<u64>, u64)>,
    /// Cycles between two time samples, where known: without it event samples bound nothing.
    pub period_cycles: Option<f64>,
}

/// A cause that was not ruled out.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Suspect {
    cause: Cause,
    /// The most cycles per execution it can explain.
    cycles_max: f64,
    culprit: Option<usize>,
}

/// The ranges of all causes for `excess_cycles` lost per execution by instruction `i` of `block`.
pub fn explain(scene: &Scene, block: usize, i: usize, excess_cycles: f64) -> Vec<Stall> {
    let mut suspects = Vec::new();
    fetch::suspects(scene, block, i, &mut suspects);
    operands::suspects(scene, block, i, &mut suspects);
    own_suspects(scene, i, &mut suspects);
    for suspect in &mut suspects {
        bound_by_events(scene, block, i, suspect);
    }
    ranges(merged(suspects), excess_cycles)
}

/// What the instruction's own class brings with it.
fn own_suspects(scene: &Scene, i: usize, suspects: &mut Vec<Suspect>) {
    let opcode = scene.schedule.opcodes[i];
    let mut accuse = |cause, culprit| suspects.push(Suspect { cause, cycles_max: f64::INFINITY, culprit });
    if opcode.store {
        accuse(Cause::WriteBuffer, Some(i));
    }
    if opcode.synchronizes() {
        accuse(Cause::Synchronization, Some(i));
    }
    if opcode.class == OpcodeClass::System {
        accuse(Cause::System, Some(i));
    }
}

/// One suspect for each cause and culprit, with the larger of the bounds.
fn merged(suspects: Vec<Suspect>) -> Vec<Suspect> {
    let mut kept: Vec<Suspect> = Vec::new();
    for suspect in suspects.into_iter().filter(|s| s.cycles_max > 0.0) {
        match kept.iter_mut().find(|k| k.cause == suspect.cause && k.culprit == suspect.culprit) {
            Some(k) => k.cycles_max = k.cycles_max.max(suspect.cycles_max),
            None => kept.push(suspect),
        }
    }
    kept
}

/// Each suspect explains at most its bound, and at least what all the others together cannot.
fn ranges(suspects: Vec<Suspect>, excess_cycles: f64) -> Vec<Stall> {
    let cap = |s: &Suspect| s.cycles_max.min(excess_cycles);
    let total: f64 = suspects.iter().map(cap).sum();
    let dynamic = |cause, cycles_min, cycles_max, culprit| Stall {
        kind: StallKind::Dynamic,
        cause,
        cycles_min,
        cycles_max,
        culprit,
    };
    let mut stalls: Vec<Stall> = suspects
        .iter()
        .map(|s| dynamic(s.cause, (excess_cycles - (total - cap(s))).max(0.0).min(cap(s)), cap(s), s.culprit))
        .collect();
    stalls.sort_by(|a, b| b.cycles_max.total_cmp(&a.cycles_max).then(a.cause.cmp(&b.cause)));
    let unexplained = excess_cycles - total;
    if unexplained > 1e-9 * excess_cycles {
        stalls.push(dynamic(Cause::Unexplained, unexplained, unexplained, None));
    }
    stalls
}

/// Blocks that run right before `block`, with their edges; rare ones are ignored (DCPI §6.3). `None` stands for the
/// world outside.
fn predecessors<'a>(
    scene: &'a Scene,
    block: usize,
) -> impl Iterator<Item = (usize, Option<Range<usize>>)> + 'a {
    let edges = scene.cfg.predecessors[block].iter().copied();
    edges
        .filter(move |&edge| !is_rare(scene, edge, block))
        .map(|edge| (edge, scene.cfg.blocks.get(scene.cfg.edges[edge].from).cloned()))
}

/// Whether an edge is certainly taken much less often than `block` is executed: by an estimate worth its name, or
/// because nothing was ever sampled at its start while the block has many samples.
fn is_rare(scene: &Scene, edge: usize, block: usize) -> bool {
    let own = scene.estimates.blocks[block].map_or(0.0, |e| e.frequency);
    let samples = |node: usize| {
        let range = scene.cfg.blocks.get(node).cloned().unwrap_or(0..0);
        range.map(|i| scene.estimates.head_samples[i]).sum::<f64>()
    };
    let from = scene.cfg.edges[edge].from;
    let is_unsampled = from != block
        && from < scene.cfg.blocks.len()
        && samples(from) < RARE_PART * RARE_PART * samples(block)
        && samples(block) >= 100.0;
    let is_known = scene.estimates.edges[edge].is_some_and(|e| e.confidence > Confidence::Low);
    let is_seldom = scene.estimates.edges[edge].is_some_and(|e| e.frequency < RARE_PART * own);
    is_unsampled || (is_known && is_seldom)
}

/// The events that count a cause, and what one of them costs at most.
fn counted_by(cause: Cause) -> &'static [(&'static str, Cost)] {
    use Cost::*;
    match cause {
        Cause::DCacheMiss => &[("L1-dcache-load-misses", Memory), ("cache-misses", MemoryBeyondLastLevel)],
        Cause::ICacheMiss => &[("L1-icache-load-misses", Memory)],
        Cause::DtlbMiss => &[("dTLB-load-misses", DtlbMiss)],
        Cause::ItlbMiss => &[("iTLB-load-misses", ItlbMiss)],
        Cause::BranchMispredict => &[("branch-misses", Mispredict)],
        _ => &[],
    }
}

#[derive(Clone, Copy)]
enum Cost {
    Memory,
    /// Without such an event the data may still come from the last level.
    MemoryBeyondLastLevel,
    DtlbMiss,
    ItlbMiss,
    Mispredict,
}

/// Pessimistically every event costs all it can (DCPI §6.3, IMISS).
fn bound_by_events(scene: &Scene, block: usize, i: usize, suspect: &mut Suspect) {
    let memory = &scene.model.memory;
    let Some(executions) = executions(scene, block) else { return };
    for (name, cost) in counted_by(suspect.cause) {
        let Some((samples, period)) = scene.events.get(&Event::named(name)) else { continue };
        let (each, without) = match cost {
            Cost::Memory => (memory.memory_cycles, 0.0),
            Cost::MemoryBeyondLastLevel => (memory.memory_cycles, memory.last_level_cycles),
            Cost::DtlbMiss => (memory.dtlb_miss_cycles, 0.0),
            Cost::ItlbMiss => (memory.itlb_miss_cycles, 0.0),
            Cost::Mispredict => (scene.model.mispredict_cycles, 0.0),
        };
        let near = near_samples(scene, suspect.culprit.unwrap_or(i), i, samples);
        let bound = near * *period as f64 / executions * each + without;
        suspect.cycles_max = suspect.cycles_max.min(bound);
    }
}

fn executions(scene: &Scene, block: usize) -> Option<f64> {
    let frequency = scene.estimates.blocks[block]?.frequency;
    Some(frequency * scene.period_cycles?).filter(|&e| e > 0.0)
}

/// Event samples from the culprit to a little behind the stalled instruction (they skid too), and three standard errors.
fn near_samples(scene: &Scene, culprit: usize, i: usize, samples: &[u64]) -> f64 {
    const SKID_MAX: usize = 4;
    let from = culprit.min(i).max(i.saturating_sub(LOOK_BACK));
    let to = (culprit.max(i) + SKID_MAX).min(scene.instructions.len());
    let near: f64 = samples.get(from..to.min(samples.len())).unwrap_or(&[]).iter().map(|&s| s as f64).sum();
    near + 3.0 * near.max(1.0).sqrt()
}

/// Whether the machine's head waits for its elders' results.
fn is_in_order(scene: &Scene) -> bool {
    scene.model.order == Order::InOrder
}
