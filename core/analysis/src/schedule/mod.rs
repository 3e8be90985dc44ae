//! The cost of each block without dynamic stalls (DCPI §6.1.3 and §6.3).
//!
//! Input: instructions, their control-flow graph, a machine model. Output: for each instruction the least cycles at the
//! head of the machine (DCPI's M) and its static stalls; for each block its best case. Complexity: linear in instructions
//! × registers and units used (times a constant number of iterations for a loop of one block).
//!
//! As in the paper a block is scheduled by itself. The effects of its predecessors are kept apart, by edge, since their
//! weight depends on frequencies.

mod in_order;
mod left_behind;
mod out_of_order;
mod risk;

use std::ops::Range;

use dwell_image::{Arch, Instruction, RegisterSet};

pub use in_order::Carried;
pub use risk::Risks;
use rustc_hash::FxHashMap;

use crate::{
    Cause,
    cfg::Cfg,
    machine::{MachineModel, Opcode, Order},
};

/// The schedule of a procedure. Vectors are indexed by instruction unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// The class of each instruction.
    pub opcodes: Vec<Opcode>,
    /// Least cycles at the head: whole cycles, 0 if it issues or retires with its predecessor (DCPI's M).
    pub issue_cycles_min: Vec<f64>,
    /// In order, M if every operand were ready: the rest of M when earlier stalls hide the latency that it waits for.
    pub issue_cycles_floor: Vec<f64>,
    /// The slots that it takes, in cycles: `1 / width`, 0 for the second half of a fused pair.
    pub slot_cycles: Vec<f64>,
    /// Why it waits longer than its slot.
    pub static_stalls: Vec<Vec<StaticStall>>,
    /// Index of the instruction whose latency or unit is part of M, if there is one.
    pub waits_for: Vec<Option<usize>>,
    /// Whether it counts as one instruction with its predecessor.
    pub is_fused: Vec<bool>,
    /// Cycles of one execution of each block without dynamic stalls.
    pub best_case_cycles: Vec<f64>,
    /// For each block, the load on the loop's own critical chain whose address comes from that chain (a pointer chase).
    pub chased_load: Vec<Option<usize>>,
    /// In order, the possible dynamic stalls; empty out of order.
    pub risks: Vec<Risks>,
    /// In order, for each edge of the graph, the changes of its target's M; empty out of order.
    pub carried: Vec<Vec<Carried>>,
}

/// Cycles that are lost because of the instructions themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StaticStall {
    /// `Slotting`, `Dependency` or `FunctionalUnit`.
    pub cause: Cause,
    /// Cycles per execution.
    pub cycles: f64,
    /// Index of the instruction that causes the wait, if one does.
    pub culprit: Option<usize>,
}

impl Schedule {
    /// Schedules every block.
    pub fn new(model: &MachineModel, arch: Arch, instructions: &[Instruction], cfg: &Cfg) -> Schedule {
        let n = instructions.len();
        let mut schedule = Schedule {
            opcodes: instructions.iter().map(|i| Opcode::from_instruction(arch, i)).collect(),
            issue_cycles_min: vec![0.0; n],
            issue_cycles_floor: vec![0.0; n],
            slot_cycles: vec![1.0 / f64::from(model.issue_width); n],
            static_stalls: vec![Vec::new(); n],
            waits_for: vec![None; n],
            is_fused: vec![false; n],
            best_case_cycles: vec![0.0; cfg.blocks.len()],
            chased_load: vec![None; cfg.blocks.len()],
            risks: Vec::new(),
            carried: Vec::new(),
        };
        if model.order == Order::InOrder {
            schedule.risks = risk::risks(model, instructions, &schedule.opcodes, cfg);
        }
        schedule.fuse_pairs(model, arch, instructions, cfg);
        for (block, range) in cfg.blocks.iter().enumerate() {
            match model.order {
                Order::InOrder => {
                    in_order::schedule_block(model, instructions, range.clone(), &mut schedule);
                }
                Order::OutOfOrder => {
                    let repeats = cfg.loops_on_itself(block);
                    out_of_order::schedule_block(model, instructions, range.clone(), repeats, &mut schedule);
                }
            }
            let cycles = schedule.cycles_of(range.clone());
            schedule.best_case_cycles[block] = cycles;
            if model.order == Order::OutOfOrder {
                schedule.chased_load[block] = schedule.find_chased_load(instructions, range.clone());
            }
        }
        if model.order == Order::InOrder {
            schedule.carried = schedule.carried_over(model, instructions, cfg);
        }
        debug_assert_eq!(schedule.verify(cfg), Ok(()));
        schedule
    }

    fn carried_over(
        &self,
        model: &MachineModel,
        instructions: &[Instruction],
        cfg: &Cfg,
    ) -> Vec<Vec<Carried>> {
        let mut carried = vec![Vec::new(); cfg.edges.len()];
        for (range, edges) in cfg.blocks.iter().zip(&cfg.successors) {
            let end = in_order::after_block(model, instructions, range.clone(), self);
            for &edge in edges {
                if let Some(next) = cfg.blocks.get(cfg.edges[edge].to) {
                    carried[edge] = in_order::carry_over(end.clone(), instructions, next.clone(), self);
                }
            }
        }
        carried
    }

    /// Returns the cycles that the model expects at instruction `i`: its slot and its static stalls.
    pub fn expected_cycles(&self, i: usize) -> f64 {
        self.slot_cycles[i] + self.static_stalls[i].iter().map(|s| s.cycles).sum::<f64>()
    }

    /// Returns, in order, by instruction the average static stalls that predecessors leave behind. `parts` are for each
    /// edge the part of its target's executions that come by it; those of a block add up to at most 1.
    /// edge, those of its target's executions that come by it, not above 1 for a block in all.
    pub fn left_behind(&self, cfg: &Cfg, parts: &[f64]) -> FxHashMap<usize, Vec<StaticStall>> {
        left_behind::stalls(self, cfg, |edge| parts[edge])
    }

    fn cycles_of(&self, range: Range<usize>) -> f64 {
        range.map(|i| self.expected_cycles(i)).sum()
    }

    fn fuse_pairs(&mut self, model: &MachineModel, arch: Arch, instructions: &[Instruction], cfg: &Cfg) {
        for block in &cfg.blocks {
            for i in block.start + 1..block.end {
                if model.fuses(arch, &instructions[i - 1], &instructions[i]) {
                    self.is_fused[i] = true;
                    self.slot_cycles[i] = 0.0;
                }
            }
        }
    }

    /// Returns the load on the chain whose address the block itself computes: not a stack slot, not a constant.
    fn find_chased_load(&self, instructions: &[Instruction], range: Range<usize>) -> Option<usize> {
        let written = range.clone().fold(RegisterSet::EMPTY, |all, i| all.union(instructions[i].writes));
        range.clone().find(|&i| {
            let is_on_chain = self.static_stalls[i].iter().any(|s| s.cause == Cause::Dependency);
            let address = address_registers(&instructions[i]);
            is_on_chain && self.opcodes[i].load && !address.intersection(written).is_empty()
        })
    }

    /// Checks that nothing is negative and that every block costs something.
    pub fn verify(&self, cfg: &Cfg) -> Result<(), String> {
        for (i, m) in self.issue_cycles_min.iter().enumerate() {
            if !m.is_finite()
                || *m < 0.0
                || !self.expected_cycles(i).is_finite()
                || self.expected_cycles(i) < 0.0
            {
                return Err(format!(
                    "instruction {i} takes {m} cycles, expected {}",
                    self.expected_cycles(i)
                ));
            }
        }
        match (0..cfg.blocks.len()).find(|&b| self.best_case_cycles[b] <= 0.0) {
            Some(b) => Err(format!("block {b} costs {}", self.best_case_cycles[b])),
            None => Ok(()),
        }
    }
}

/// Returns the base and index registers of an instruction's memory operands.
pub(crate) fn address_registers(instruction: &Instruction) -> RegisterSet {
    instruction.memory().flat_map(|m| [m.base, m.index]).flatten().collect()
}
