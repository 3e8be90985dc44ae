//! The cycles that a block typically takes, out of order.
//!
//! Input: the block, its opcodes, and the flow as far as it is known. Output: cycles of one execution. Complexity: linear
//! in the block and the edges that enter it.
//!
//! The model's bounds are best cases that programs rarely come near: cycles over them spread by a factor of 2.6 (standard
//! deviation of the logarithm 0.95, within procedures, weighted by samples), and not at random. The things that a block
//! waits for add up: the transfer of control into it, its loads, its divisions, and the part of its entries that were
//! mispredicted. A sum of these was fitted to the blocks of the programs of role "tune" (callgrind's counts, Zen 4;
//! logarithms, one scale for each procedure, Student's t), each program predicted from the others. It leaves a deviation
//! of 0.84, and 0.77 with the peaks that [`out_of_order`](super::out_of_order) looks for, where the bounds leave 0.82
//! with them.

use super::{Evidence, likely_flow::Flow};
use crate::{
    cfg::{CfgEdge, EdgeKind},
    machine::OpcodeClass,
};

/// Cycles of entering a block: half of all transfers leave the rest of a line unused.
const ENTRY_CYCLES: f64 = 1.06;
/// Factor of the front end's bound: programs rarely use more than half of it.
pub const FRONT_END_TIMES: f64 = 2.0;
const LOAD_CYCLES: f64 = 0.94;
const DIVIDE_CYCLES: f64 = 12.8;
const FLOATING_CYCLES: f64 = 1.14;
/// Cycles of an entry by a branch's rarer direction. This is less than a misprediction costs, because many are predicted.
const RARER_CYCLES: f64 = 4.2;

/// Returns the cycles that one execution of `block` typically takes. Without a `flow`, entries count as predicted.
pub fn typical_cycles(evidence: &Evidence, block: usize, flow: Option<&Flow>) -> f64 {
    let schedule = evidence.schedule;
    let of_instruction = |i: usize| {
        let opcode = schedule.opcodes[i];
        let work = match opcode.class {
            _ if opcode.divides() => DIVIDE_CYCLES,
            OpcodeClass::FpAdd | OpcodeClass::FpMultiply => FLOATING_CYCLES,
            _ => 0.0,
        };
        let load = if opcode.load { LOAD_CYCLES } else { 0.0 };
        FRONT_END_TIMES * schedule.slot_cycles[i] + load + work
    };
    let instructions: f64 = evidence.cfg.blocks[block].clone().map(of_instruction).sum();
    let rarer = flow.map_or(0.0, |flow| rarer_part(evidence, block, flow));
    let cycles = ENTRY_CYCLES + instructions + RARER_CYCLES * rarer;
    debug_assert_eq!(verify_cycles(evidence, block, cycles), Ok(()));
    cycles
}

/// Checks that a block takes at least the cycles of an entry and of its instructions in the front end, and at most those
/// if each instruction loaded and divided and every other entry were mispredicted.
fn verify_cycles(evidence: &Evidence, block: usize, cycles: f64) -> Result<(), String> {
    let range = evidence.cfg.blocks[block].clone();
    let front_end: f64 = range.clone().map(|i| evidence.schedule.slot_cycles[i]).sum();
    let least = ENTRY_CYCLES + front_end;
    let each = LOAD_CYCLES + DIVIDE_CYCLES;
    let most = ENTRY_CYCLES + FRONT_END_TIMES * front_end + each * range.len() as f64 + 0.5 * RARER_CYCLES;
    let is_within = least <= cycles * (1.0 + 1e-9) && cycles <= most * (1.0 + 1e-9);
    if is_within { Ok(()) } else { Err(format!("block {block}: {cycles} cycles, not {least} to {most}")) }
}

/// Returns, averaged over the block's entries by branches, the part of the rarer direction of the branch; 0 where no
/// entry is by a branch. No predictor does worse than that.
fn rarer_part(evidence: &Evidence, block: usize, flow: &Flow) -> f64 {
    let cfg = evidence.cfg;
    let is_chosen = |e: &CfgEdge| matches!(e.kind, EdgeKind::Taken | EdgeKind::NotTaken);
    let (mut rarer, mut entries) = (0.0, 0.0);
    for &edge in &cfg.predecessors[block] {
        let frequency = flow.edges[edge];
        entries += frequency;
        let from = flow.blocks.get(cfg.edges[edge].from).filter(|_| is_chosen(&cfg.edges[edge]));
        if let Some(&from) = from.filter(|f| **f > 0.0) {
            let part = (frequency / from).min(1.0);
            rarer += frequency * part.min(1.0 - part);
        }
    }
    if entries > 0.0 { rarer / entries } else { 0.0 }
}
