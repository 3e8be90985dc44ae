//! The kernel: system calls, traps that the program causes, and page faults.
//!
//! A system instruction is always a candidate, and in order the instruction after it. A page fault can happen at every
//! access, takes longer than any miss, and is rare: it is a candidate where an event counted it, or where the stall is
//! longer than all other candidates can explain together.

use dwell_profile::Event;

use crate::{
    Cause, KernelTime,
    culprits::{
        candidate::Candidate,
        context::ProcedureContext,
        reuse::{Grain, fresh_part},
        stalled::StalledInstruction,
    },
    machine::OpcodeClass,
};

/// Entering the kernel takes at least this many times as long as the longest miss.
const TIMES_MIN: f64 = 2.0;
/// Fewer samples in the kernel may belong to any instruction that was interrupted.
const SAMPLES_MIN: u64 = 3;

/// Adds the system instruction, if there is one.
pub fn candidates(stalled: &StalledInstruction, candidates: &mut Vec<Candidate>) {
    let StalledInstruction { context, i, .. } = *stalled;
    let before = (context.is_in_order() && !stalled.is_head()).then(|| i.wrapping_sub(1));
    let is_system = |&j: &usize| context.opcode(j).class == OpcodeClass::System;
    for culprit in [Some(i), before].into_iter().flatten().filter(is_system) {
        candidates.push(Candidate {
            cause: Cause::System,
            cycles_max: f64::INFINITY,
            culprit: Some(culprit),
        });
    }
}

/// Returns the time in the kernel that was sampled on behalf of instruction `i`: a page fault if it accesses memory,
/// otherwise a system call or an interrupt. The samples are of the time event, so that they compare with frequencies.
pub fn charged(context: &ProcedureContext, i: usize, frequency: Option<f64>) -> Option<KernelTime> {
    let (samples, _) = context.events.get(&Event::KERNEL_TIME)?;
    let count = samples.get(i).copied().filter(|&s| s >= SAMPLES_MIN)?;
    let cycles = (count as f64 / frequency.filter(|&f| f > 0.0)?).min(f64::MAX);
    let opcode = context.opcode(i);
    let accesses = opcode.load || opcode.store;
    let cause =
        if accesses && opcode.class != OpcodeClass::System { Cause::PageFault } else { Cause::System };
    Some(KernelTime { cause, samples: count, cycles })
}

/// Adds page faults of the instruction's own accesses. `explained_cycles` is what the other candidates explain at most.
pub fn page_faults(stalled: &StalledInstruction, explained_cycles: f64, candidates: &mut Vec<Candidate>) {
    let StalledInstruction { context, i, excess_cycles, .. } = *stalled;
    let opcode = context.opcode(i);
    let counted = context.events.get(&Event::named("page-faults"));
    let is_counted = counted.is_some_and(|(samples, _)| samples.get(i).is_some_and(|&s| s > 0));
    let longest = context.model.memory.memory_cycles + context.model.memory.dtlb_miss_cycles;
    let is_long = excess_cycles > TIMES_MIN * longest;
    let is_needed = is_long && explained_cycles < excess_cycles && counted.is_none();
    let accesses = opcode.load || opcode.store;
    if accesses && (is_counted || is_needed) && fresh_part(context, i, Grain::page(context)) > 0.0 {
        candidates.push(Candidate { cause: Cause::PageFault, cycles_max: f64::INFINITY, culprit: Some(i) });
    }
}
