//! In-order issue: slots, operands and units, cycle by cycle (DCPI §6.1.3, §6.3).
//!
//! Input: a block, and the state in which its predecessor left the machine. Output: M and the static stalls of each
//! instruction. Complexity: linear in the block's instructions and their operands.

use std::ops::Range;

use dwell_image::{Flow, Instruction, Operand, RegisterSet};

use super::{Schedule, StaticStall, address_registers};
use crate::{
    Cause,
    machine::{ClassCost, MachineModel, Opcode},
};

/// The time at which something becomes free or ready, and the instruction that determines it. It is small, since all are
/// copied for each edge.
#[derive(Clone, Copy, Debug)]
struct Ready {
    cycle: i32,
    /// The instruction's index + 1; 0 for none.
    by: u32,
}

const ALWAYS: Ready = Ready { cycle: 0, by: 0 };

impl Ready {
    fn new(cycle: i64, by: Option<usize>) -> Ready {
        let cycle = i32::try_from(cycle).unwrap_or(i32::MAX);
        Ready { cycle, by: by.map_or(0, |i| u32::try_from(i + 1).unwrap_or(0)) }
    }

    fn cycle(self) -> i64 {
        i64::from(self.cycle)
    }

    fn by(self) -> Option<usize> {
        self.by.checked_sub(1).map(|i| i as usize)
    }
}

/// The state of issue after an instruction.
#[derive(Clone)]
pub struct Issue<'m> {
    model: &'m MachineModel,
    /// The time at which each register's value is ready for computation.
    registers: [Ready; 128],
    /// The time at which each register is ready as an address.
    addresses: [Ready; 128],
    /// The units of all pools, in the order of the model. A copy for each edge must be cheap.
    units: Vec<(Ready, bool)>,
    cycle: i64,
    slots_used: i64,
    closed_by: Option<usize>,
}

/// A change of M because of a predecessor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// Index of the instruction whose M changes.
    pub instruction: usize,
    /// The change in cycles: positive if it waits for the predecessor's results, negative if it issues together with its
    /// end.
    pub cycles: f64,
    /// The cause of a longer wait.
    pub cause: Cause,
    /// Index of the instruction that causes it.
    pub culprit: Option<usize>,
}

/// Number of a block's instructions that a predecessor may affect.
const CARRY_REACH: usize = 16;

/// Issues a block's instructions as early as the model allows. Stores M and the static stalls.
pub fn schedule_block(
    model: &MachineModel,
    instructions: &[Instruction],
    range: Range<usize>,
    schedule: &mut Schedule,
) {
    let mut issue = Issue::new(model);
    for i in range {
        let wait = issue.step(&instructions[i], schedule.opcodes[i], i);
        schedule.issue_cycles_min[i] = wait.cycles as f64;
        schedule.issue_cycles_floor[i] = wait.cycles_floor as f64;
        for (cause, slots, culprit) in wait.lost.into_iter().filter(|lost| lost.1 > 0) {
            let cycles = slots as f64 / f64::from(model.issue_width);
            schedule.static_stalls[i].push(StaticStall { cause, cycles, culprit });
            if cause != Cause::Slotting {
                schedule.waits_for[i] = culprit;
            }
        }
    }
}

/// Returns the state at a block's end. It takes kilobytes, so it is computed again rather than kept for every block.
pub fn after_block<'m>(
    model: &'m MachineModel,
    instructions: &[Instruction],
    range: Range<usize>,
    schedule: &Schedule,
) -> Issue<'m> {
    let mut issue = Issue::new(model);
    range.for_each(|i| _ = issue.step(&instructions[i], schedule.opcodes[i], i));
    issue
}

/// Returns how M changes if a block runs after a predecessor that left the state `issue` (the paper's third challenge,
/// §6.1.3, where predecessors are ignored).
pub fn carry_over(
    mut issue: Issue,
    instructions: &[Instruction],
    range: Range<usize>,
    schedule: &Schedule,
) -> Vec<Carried> {
    let mut carried = Vec::new();
    for i in range.take(CARRY_REACH) {
        let wait = issue.step(&instructions[i], schedule.opcodes[i], i);
        let cycles = wait.cycles as f64 - schedule.issue_cycles_min[i];
        if cycles != 0.0 {
            let lost = wait.lost.iter().rev().find(|lost| lost.1 > 0);
            let (cause, culprit) = lost.map_or((Cause::Slotting, None), |lost| (lost.0, lost.2));
            carried.push(Carried { instruction: i, cycles, cause, culprit });
        }
    }
    carried
}

/// The cycles of an instruction at the head, and those that it loses to each cause.
struct Wait {
    cycles: i64,
    /// The cycles if every operand were ready and no unit were busy for long.
    cycles_floor: i64,
    lost: [(Cause, i64, Option<usize>); 3],
}

impl<'m> Issue<'m> {
    /// Returns the state at a block's start without a predecessor.
    fn new(model: &'m MachineModel) -> Issue<'m> {
        let units = model.units.values().map(|&count| count as usize).sum();
        Issue {
            model,
            registers: [ALWAYS; 128],
            addresses: [ALWAYS; 128],
            units: vec![(ALWAYS, false); units],
            cycle: -1,
            slots_used: i64::from(model.issue_width),
            closed_by: None,
        }
    }

    fn step(&mut self, instruction: &Instruction, opcode: Opcode, i: usize) -> Wait {
        let cost = self.model.cost(opcode.class);
        let width = i64::from(self.model.issue_width);
        let group_is_full = self.slots_used >= width;
        let is_first = cost.alone || cost.starts_group;
        let must_move = group_is_full || self.closed_by.is_some() || (is_first && self.slots_used > 0);
        let slot_cycle = self.cycle + i64::from(must_move);
        let operands = self.operands_ready(instruction, cost);
        let after_operands = slot_cycle.max(operands.cycle());
        let (unit, unit_is_shared_slot) = self.units_ready(cost, after_operands);
        let cycle = after_operands.max(unit.cycle());

        let slot_at =
            |cycle: i64, now: &Self| cycle * width + if cycle == now.cycle { now.slots_used } else { 0 };
        let ideal = self.cycle * width + self.slots_used;
        let (at_slot, at_operands, at_unit) =
            (slot_at(slot_cycle, self), slot_at(after_operands, self), slot_at(cycle, self));
        let unit_cause = if unit_is_shared_slot { Cause::Slotting } else { Cause::FunctionalUnit };
        let (port, port_is_short) = self.units_ready(cost, slot_cycle);
        let floor = if port_is_short { slot_cycle.max(port.cycle()) } else { slot_cycle };
        let wait = Wait {
            cycles: cycle - self.cycle,
            cycles_floor: floor.min(cycle) - self.cycle,
            lost: [
                (Cause::Slotting, at_slot - ideal, self.closed_by),
                (Cause::Dependency, at_operands - at_slot, operands.by()),
                (unit_cause, at_unit - at_operands, unit.by()),
            ],
        };
        self.issue_at(cycle, instruction, i, cost, self.model.latency(opcode));
        wait
    }

    /// Data is needed `late` cycles after issue, addresses at once.
    fn operands_ready(&self, instruction: &Instruction, cost: &ClassCost) -> Ready {
        let latest = |worst: Ready, r: Ready| if r.cycle > worst.cycle { r } else { worst };
        let addresses = address_registers(instruction);
        let data = RegisterSet(instruction.reads.0 & !addresses.0);
        let data = data.iter().map(|r| self.registers[usize::from(r.0 & 127)]).fold(ALWAYS, latest);
        let data = Ready { cycle: data.cycle - cost.late as i32, ..data };
        addresses.iter().map(|r| self.addresses[usize::from(r.0 & 127)]).fold(data, latest)
    }

    /// Returns when its unit and its issue port are free, and whether only the start in this cycle is taken.
    fn units_ready(&self, cost: &ClassCost, at: i64) -> (Ready, bool) {
        let (unit, slot) = (self.pool_ready(&cost.unit, at), self.pool_ready(&cost.slot, at));
        if slot.0.cycle > unit.0.cycle { slot } else { unit }
    }

    fn pool_ready(&self, name: &Option<String>, at: i64) -> (Ready, bool) {
        let first = self.units[self.pool(name)].iter().min_by_key(|(free, _)| free.cycle);
        match first {
            Some(&(free, is_short)) if free.cycle() > at => (free, is_short),
            _ => (ALWAYS, false),
        }
    }

    /// Returns the range of a pool's units.
    fn pool(&self, name: &Option<String>) -> Range<usize> {
        let Some(name) = name else { return 0..0 };
        let mut start = 0;
        for (pool, &count) in &self.model.units {
            if pool == name {
                return start..start + count as usize;
            }
            start += count as usize;
        }
        0..0
    }

    fn issue_at(&mut self, cycle: i64, instruction: &Instruction, i: usize, cost: &ClassCost, latency: f64) {
        if cycle > self.cycle {
            (self.cycle, self.slots_used, self.closed_by) = (cycle, 0, None);
        }
        self.slots_used += 1;
        if cost.alone || cost.ends_group {
            self.closed_by = Some(i);
        }
        if matches!(instruction.flow, Flow::Call { .. }) {
            self.return_from_callee();
            return;
        }
        let address_latency = cost.address_latency.unwrap_or(latency);
        let updated = updated_addresses(instruction);
        for register in instruction.writes.iter() {
            let slot = usize::from(register.0 & 127);
            let cycles = if updated.contains(register) { (1.0, 1.0) } else { (latency, address_latency) };
            self.registers[slot] = Ready::new(cycle + cycles.0 as i64, Some(i));
            self.addresses[slot] = Ready::new(cycle + cycles.1 as i64, Some(i));
        }
        self.take(&cost.slot, cycle, 1.0, i);
        self.take(&cost.unit, cycle, cost.busy, i);
    }

    /// The state that the callee leaves is unknown, and M must not be too large: everything is ready and free.
    fn return_from_callee(&mut self) {
        (self.registers, self.addresses) = ([ALWAYS; 128], [ALWAYS; 128]);
        self.units.fill((ALWAYS, false));
    }

    fn take(&mut self, name: &Option<String>, cycle: i64, busy: f64, i: usize) {
        let pool = self.pool(name);
        if let Some(free) = self.units[pool].iter_mut().min_by_key(|(free, _)| free.cycle) {
            *free = (Ready::new(cycle + busy as i64, Some(i)), busy <= 1.0);
        }
    }
}

/// Returns the address registers that a load or store with writeback advances. They are ready in the next cycle, whatever
/// memory does.
fn updated_addresses(instruction: &Instruction) -> RegisterSet {
    let is_register = |o: &&Operand| matches!(o, Operand::Register { .. });
    let transferred = instruction.operands.iter().take_while(is_register);
    let transferred: RegisterSet = transferred
        .filter_map(|o| match o {
            Operand::Register { register, .. } => Some(*register),
            _ => None,
        })
        .collect();
    let updated = address_registers(instruction).intersection(instruction.writes);
    RegisterSet(updated.0 & !transferred.0)
}
