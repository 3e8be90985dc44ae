//! Out-of-order bounds of a block: front end, ports, and for a loop of one block its loop-carried chain.
//!
//! Input: a block. Output: its best case, M and static stalls of each instruction. Complexity: linear in its instructions
//! and their operands, for a constant number of iterations. DCPI's machine was in order and needed no such bounds.
//!
//! The best case is the greatest of the three. The excess over the front end's bound is a static stall, charged to the
//! instructions of the chain or to those that occupy the unit. M follows retirement: the first instruction of each group
//! of `retire_width` takes a cycle, the others none (DCPI clusters with M = 1 for a group; docs/measured.md).

use std::{collections::BTreeMap, ops::Range};

use dwell_image::{Instruction, MemoryOperand, Register, RegisterSet};
use rustc_hash::FxHashMap;

use super::{Schedule, StaticStall, address_registers};
use crate::{
    Cause,
    machine::{MachineModel, OpcodeClass},
};

/// Computes M, the static stalls and thereby the best case of a block.
pub fn schedule_block(
    model: &MachineModel,
    instructions: &[Instruction],
    range: Range<usize>,
    repeats: bool,
    schedule: &mut Schedule,
) {
    retire_in_groups(model, range.clone(), schedule);
    let front_end: f64 = range.clone().map(|i| schedule.slot_cycles[i]).sum();
    let ports = port_bound(model, range.clone(), repeats, schedule);
    let chain = repeats.then(|| Chain::new(model, instructions, range, schedule));
    match chain {
        Some(chain) if chain.cycles > front_end && chain.cycles >= ports.cycles => {
            chain.charge(chain.cycles - front_end, schedule);
        }
        _ if ports.cycles > front_end => ports.charge(ports.cycles - front_end, schedule),
        _ => {}
    }
}

fn retire_in_groups(model: &MachineModel, range: Range<usize>, schedule: &mut Schedule) {
    let mut retired = 0;
    for i in range {
        if schedule.is_fused[i] {
            continue;
        }
        schedule.issue_cycles_min[i] = f64::from(u8::from(retired % model.retire_width == 0));
        retired += 1;
    }
}

/// Returns the pool of units that is busy longest, and the instructions that occupy it.
#[derive(Default)]
struct Ports {
    cycles: f64,
    users: Vec<(usize, f64)>,
}

/// In a block that does not repeat only units that stay busy count: its neighbours use the idle cycles of the others.
fn port_bound(model: &MachineModel, range: Range<usize>, repeats: bool, schedule: &Schedule) -> Ports {
    let mut pools: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    for i in range {
        let opcode = schedule.opcodes[i];
        let mut classes = vec![opcode.class];
        if opcode.load && opcode.class != OpcodeClass::Load {
            classes.push(OpcodeClass::Load);
        }
        if opcode.store && opcode.class != OpcodeClass::Store {
            classes.push(OpcodeClass::Store);
        }
        let is_free = schedule.is_fused[i] || (opcode.class == OpcodeClass::Move && model.eliminates_moves);
        for class in classes.into_iter().filter(|_| !is_free) {
            let cost = model.cost(class);
            if let Some(unit) = cost.unit.as_deref().filter(|_| repeats || cost.busy > 1.0) {
                pools.entry(unit).or_default().push((i, cost.busy));
            }
        }
    }
    let bounds = pools.into_iter().map(|(unit, users)| {
        let busy: f64 = users.iter().map(|u| u.1).sum();
        Ports { cycles: busy / f64::from(model.units[unit]), users }
    });
    bounds.fold(Ports::default(), |worst, p| if p.cycles > worst.cycles { p } else { worst })
}

impl Ports {
    fn charge(&self, lost_cycles: f64, schedule: &mut Schedule) {
        let busy: f64 = self.users.iter().map(|u| u.1).sum();
        for &(i, own) in &self.users {
            let stall = StaticStall {
                cause: Cause::FunctionalUnit,
                cycles: lost_cycles * own / busy,
                culprit: Some(i),
            };
            schedule.static_stalls[i].push(stall);
        }
    }
}

/// The longest chain of dependencies that a loop of one block carries from iteration to iteration.
struct Chain {
    cycles: f64,
    /// The members with their part of the chain's cycles, and the instruction that each waits for.
    members: Vec<(usize, f64, Option<usize>)>,
}

/// The time of a value and the step that computed it, as an index into [`Flow::steps`].
#[derive(Clone, Copy, Default)]
struct Value {
    cycles: f64,
    step: Option<usize>,
}

#[derive(Clone, Copy)]
struct Step {
    instruction: usize,
    from: Option<usize>,
    done_cycles: f64,
}

/// A memory operand and how often its registers had been written. Equal keys name the same location.
type Location = (Option<Register>, u32, Option<Register>, u32, u8, i64);

/// The data flow of consecutive iterations with unlimited units.
struct Flow<'a> {
    model: &'a MachineModel,
    registers: [Value; 128],
    versions: [u32; 128],
    memory: FxHashMap<Location, Value>,
    steps: Vec<Step>,
}

impl Chain {
    /// Executes some iterations and determines how much later each ends than the one before.
    fn new(
        model: &MachineModel,
        instructions: &[Instruction],
        range: Range<usize>,
        schedule: &Schedule,
    ) -> Chain {
        const ITERATIONS: usize = 24;
        const STEPS_MAX: usize = 100_000;
        let iterations = (STEPS_MAX / range.len()).clamp(4, ITERATIONS) / 2 * 2;
        let mut flow = Flow {
            model,
            registers: [Value::default(); 128],
            versions: [0; 128],
            memory: FxHashMap::default(),
            steps: Vec::with_capacity(iterations * range.len()),
        };
        let (mut half, mut last) = (Value::default(), Value::default());
        for iteration in 1..=iterations {
            last = Value::default();
            for i in range.clone() {
                let done = flow.step(&instructions[i], i, schedule);
                last = if done.cycles >= last.cycles { done } else { last };
            }
            if iteration == iterations / 2 {
                half = last;
            }
        }
        let rounds = (iterations / 2) as f64;
        let steps_from = range.len() * (iterations / 2);
        Chain { cycles: (last.cycles - half.cycles) / rounds, members: flow.trace(last, steps_from, rounds) }
    }

    fn charge(&self, lost_cycles: f64, schedule: &mut Schedule) {
        let total: f64 = self.members.iter().map(|m| m.1).sum();
        for &(i, own, culprit) in self.members.iter().filter(|m| m.1 > 0.0) {
            let cycles = lost_cycles * own / total;
            schedule.static_stalls[i].push(StaticStall { cause: Cause::Dependency, cycles, culprit });
            schedule.waits_for[i] = culprit;
        }
    }
}

impl Flow<'_> {
    fn step(&mut self, instruction: &Instruction, i: usize, schedule: &Schedule) -> Value {
        let opcode = schedule.opcodes[i];
        let addresses = address_registers(instruction);
        let data = RegisterSet(instruction.reads.0 & !addresses.0);
        let mut start = later(self.latest(data), self.latest(addresses));
        if opcode.load {
            let mut loaded = self.latest(addresses);
            if let Some(stored) = instruction.load().and_then(|m| self.memory.get(&self.location(m))) {
                loaded = later(loaded, *stored);
            }
            loaded.cycles += self.model.memory.l1_cycles;
            start = later(start, loaded);
        }
        let done_cycles = start.cycles + self.own_latency(opcode.class);
        let done = Value { cycles: done_cycles, step: Some(self.steps.len()) };
        self.steps.push(Step { instruction: i, from: start.step, done_cycles });
        self.write(instruction, opcode.class, done);
        done
    }

    /// The latency without that of a plain load, which comes from the memory's figures.
    fn own_latency(&self, class: OpcodeClass) -> f64 {
        match class {
            OpcodeClass::Load => (self.model.cost(class).latency - self.model.memory.l1_cycles).max(0.0),
            OpcodeClass::Move if self.model.eliminates_moves => 0.0,
            _ => self.model.cost(class).latency,
        }
    }

    fn write(&mut self, instruction: &Instruction, class: OpcodeClass, done: Value) {
        if let Some(location) = instruction.store().map(|m| self.location(m)) {
            self.memory.insert(location, done);
        }
        // Pushes, pops, calls and returns move the stack pointer without latency.
        let is_stack_engine = matches!(class, OpcodeClass::Call | OpcodeClass::Return)
            || matches!(&*instruction.mnemonic, "push" | "pop");
        for register in instruction.writes.iter() {
            let slot = usize::from(register.0 & 127);
            self.versions[slot] += 1;
            if !(is_stack_engine && is_address(instruction, register)) {
                self.registers[slot] = done;
            }
        }
    }

    fn latest(&self, registers: RegisterSet) -> Value {
        registers.iter().map(|r| self.registers[usize::from(r.0 & 127)]).fold(Value::default(), later)
    }

    fn location(&self, m: &MemoryOperand) -> Location {
        let version = |r: Option<Register>| r.map_or(0, |r| self.versions[usize::from(r.0 & 127)]);
        (m.base, version(m.base), m.index, version(m.index), m.scale, m.displacement)
    }

    /// Follows the chain that ends last, back to step `until`, and adds up each instruction's part per iteration.
    fn trace(&self, last: Value, until: usize, rounds: f64) -> Vec<(usize, f64, Option<usize>)> {
        let mut parts: BTreeMap<usize, (f64, usize, Option<usize>)> = BTreeMap::new();
        let mut at = last.step;
        while let Some(step) = at.filter(|&s| s >= until) {
            let Step { instruction, from, done_cycles } = self.steps[step];
            let before = from.map_or(0.0, |f| self.steps[f].done_cycles);
            let part = parts.entry(instruction).or_default();
            part.0 += (done_cycles - before) / rounds;
            part.1 += 1;
            part.2 = from.map(|f| self.steps[f].instruction);
            at = from;
        }
        // What the chain passes only at its end is not carried from one iteration to the next.
        let carried = parts.into_iter().filter(|(_, (_, times, _))| *times as f64 * 2.0 >= rounds);
        carried.map(|(i, (cycles, _, from))| (i, cycles, from)).collect()
    }
}

fn later(a: Value, b: Value) -> Value {
    if b.cycles > a.cycles { b } else { a }
}

fn is_address(instruction: &Instruction, register: Register) -> bool {
    address_registers(instruction).contains(register)
}
