//! The possible dynamic stalls of each instruction of an in-order machine (DCPI §6.3's candidates, before any sample is
//! considered).
//!
//! Input: instructions, their opcodes, the graph. Output: the possible reasons of each instruction. Complexity: linear in
//! instructions × registers. An instruction without a reason almost never stalls, so its samples determine its block's
//! frequency better than any other's.

use dwell_image::{Flow, Instruction, RegisterSet};

use crate::{
    cfg::Cfg,
    machine::{MachineModel, Opcode, OpcodeClass},
};

/// The possible reasons for a dynamic stall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Risks {
    /// Control may come from a branch or from other code: a misprediction, or a line that was not fetched.
    pub entered: bool,
    /// The instruction starts a cache line.
    pub line: bool,
    /// It uses a value that may not have arrived from memory.
    pub data: bool,
    /// It loads: its page may not be in the TLB.
    pub load: bool,
    /// It needs room in the store buffer.
    pub store: bool,
    /// It synchronizes, divides, multiplies or enters the kernel.
    pub unit: bool,
}

impl Risks {
    /// Returns the reasons of both.
    pub fn union(self, other: Risks) -> Risks {
        Risks {
            entered: self.entered || other.entered,
            line: self.line || other.line,
            data: self.data || other.data,
            load: self.load || other.load,
            store: self.store || other.store,
            unit: self.unit || other.unit,
        }
    }
}

/// Returns the risks of each instruction.
pub fn risks(
    model: &MachineModel,
    instructions: &[Instruction],
    opcodes: &[Opcode],
    cfg: &Cfg,
) -> Vec<Risks> {
    let left: Vec<RegisterSet> =
        cfg.blocks.iter().map(|b| awaited_after(&instructions[b.clone()], &opcodes[b.clone()])).collect();
    let mut risks = vec![Risks::default(); instructions.len()];
    for (block, range) in cfg.blocks.iter().enumerate() {
        let sources = cfg.predecessors[block].iter().map(|&e| cfg.edges[e].from);
        let mut awaited =
            sources.filter_map(|from| left.get(from)).fold(RegisterSet::EMPTY, |all, &set| all.union(set));
        for i in range.clone() {
            let (instruction, opcode) = (&instructions[i], opcodes[i]);
            risks[i] = Risks {
                entered: i == range.start || matches!(instructions[i - 1].flow, Flow::Call { .. }),
                line: starts_line(model, instructions, i),
                data: !instruction.reads.intersection(awaited).is_empty(),
                load: opcode.load,
                store: opcode.store,
                unit: opcode.divides()
                    || opcode.multiplies()
                    || opcode.synchronizes()
                    || opcode.class == OpcodeClass::System,
            };
            awaited = step(awaited, instruction, opcode);
        }
    }
    risks
}

/// The registers that a load wrote and no instruction has used since.
fn awaited_after(instructions: &[Instruction], opcodes: &[Opcode]) -> RegisterSet {
    let start = RegisterSet::EMPTY;
    instructions.iter().zip(opcodes).fold(start, |awaited, (i, &opcode)| step(awaited, i, opcode))
}

/// An instruction that reads a register waits for it, so that later ones do not.
fn step(awaited: RegisterSet, instruction: &Instruction, opcode: Opcode) -> RegisterSet {
    if matches!(instruction.flow, Flow::Call { .. }) {
        return RegisterSet::EMPTY;
    }
    let done = instruction.reads.union(instruction.writes);
    let rest = awaited.iter().filter(|&r| !done.contains(r)).collect::<RegisterSet>();
    if opcode.load { rest.union(instruction.writes) } else { rest }
}

fn starts_line(model: &MachineModel, instructions: &[Instruction], i: usize) -> bool {
    let line = |address: u64| address / model.memory.line_bytes;
    let last_byte = instructions[i].end().0.wrapping_sub(1);
    i.checked_sub(1)
        .is_none_or(|before| line(instructions[before].end().0.wrapping_sub(1)) != line(last_byte))
}
