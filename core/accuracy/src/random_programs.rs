//! Generated programs: random control-flow graphs with known frequencies, sampled as a core would be.
//!
//! Enters: a seed. Leaves: a [`Program`] of several procedures. Its text is real machine code, decoded as any other; the
//! probabilities of its branches, and so its executions, are drawn, not run. In order (AArch64) samples fall where the
//! model's cycles do, and a quarter of the issue points have a dynamic stall; out of order (x86-64) samples skid by one
//! instruction (docs/measured.md), and some contain directions of branches. Linear.

use std::collections::BTreeMap;

use dwell_analysis::{MachineModel, cfg::EdgeKind, machine::Order, schedule::Schedule};
use dwell_image::{Arch, ImageAddress};

use crate::{
    program::{Evidence, Procedure, Program, TrueEdge, Truth},
    random::Random,
};

/// Average cycles between two samples.
const PERIOD_CYCLES: f64 = 100_000.0;
/// Number of samples of a program. By Zipf's law most are in the first procedure. A recording of a minute has a tenth.
const SAMPLES: f64 = 500_000.0;
/// Number of procedures of a program.
const PROCEDURES: usize = 20;
/// The part of the issue points that have a dynamic stall.
const STALLED_PART: f64 = 0.25;
/// The part of a branch's executions, in periods, whose direction a sample shows.
const SEEN_PART: f64 = 0.3;
/// Number of programs of a set.
const PROGRAMS: u64 = 8;

/// The names of the sets, with their machine and instruction set.
const SETS: [(&str, &str, Arch); 2] =
    [("random-inorder", "generic-inorder-2", Arch::Aarch64), ("random-outoforder", "amd-zen4", Arch::X86_64)];

/// A program to be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The name of its set.
    pub set: &'static str,
    machine: &'static str,
    arch: Arch,
    seed: u64,
}

/// Returns all programs of all sets.
pub fn recipes() -> Vec<Recipe> {
    let of = |(set, machine, arch)| (0..PROGRAMS).map(move |seed| Recipe { set, machine, arch, seed });
    SETS.into_iter().flat_map(of).collect()
}

impl Recipe {
    /// Returns the program's name.
    pub fn name(&self) -> String {
        format!("seed-{}", self.seed)
    }

    /// Generates the program; `None` if the model is not known.
    pub fn program(&self) -> Option<Program> {
        let model = MachineModel::named(self.machine)?;
        let mut random = Random::from_text(&format!("{} {}", self.set, self.seed));
        let zipf: f64 = (0..PROCEDURES).map(|rank| 1.0 / (rank + 1) as f64).sum();
        let (mut procedures, mut truth) = (Vec::new(), Vec::new());
        for index in 0..PROCEDURES {
            let start = ImageAddress(0x10_0000 * (index as u64 + 1));
            let mut drawn = Drawn::new(&mut random, self.arch, start);
            let mut procedure = drawn.procedure(index);
            let schedule = Schedule::new(model, self.arch, &procedure.instructions, &procedure.cfg);
            let cycles = cycles_at_head(&mut random, model, &schedule, &drawn);
            let own: f64 = drawn.executions.iter().zip(&cycles).map(|(e, c)| e * c).sum();
            let share = SAMPLES / zipf / (index + 1) as f64;
            drawn.executions.iter_mut().for_each(|e| *e *= share * PERIOD_CYCLES / own);
            sample(&mut random, model, (&schedule, &cycles), &drawn, &mut procedure);
            procedures.push(procedure);
            truth.push(drawn.truth());
        }
        let (arch, period_cycles) = (self.arch, Some(PERIOD_CYCLES));
        Some(Program {
            evidence: Evidence {
                arch,
                model: model.clone(),
                period_cycles,
                procedures,
                has_breakpoint_counts: false,
                mca: None,
            },
            truth,
            is_absolute: true,
            stray_samples: 0,
            unsampled_edge_executions: 0,
        })
    }
}

/// A kind of instruction to generate.
#[derive(Clone, Copy, Debug)]
enum Code {
    Bytes(&'static [u8]),
    /// A conditional branch to a label.
    Branch(usize),
    /// A jump to a label.
    Jump(usize),
}

/// A procedure as it was drawn.
struct Drawn {
    arch: Arch,
    start: ImageAddress,
    code: Vec<Code>,
    /// The kind of each instruction.
    executions: Vec<f64>,
    /// The probability that each conditional branch is taken.
    taken: BTreeMap<usize, f64>,
    /// The index of the instruction at each label.
    labels: Vec<usize>,
}

const A64: [&[u8]; 6] = [
    &0x8b03_0041u32.to_le_bytes(), // add x1, x2, x3
    &0xca05_0024u32.to_le_bytes(), // eor x4, x1, x5
    &0xf940_00e6u32.to_le_bytes(), // ldr x6, [x7]
    &0xf900_0106u32.to_le_bytes(), // str x6, [x8]
    &0xcb01_00c9u32.to_le_bytes(), // sub x9, x6, x1
    &0x9b09_7c82u32.to_le_bytes(), // mul x2, x4, x9
];
const A64_COMPARE: &[u8] = &0xeb15_029fu32.to_le_bytes(); // cmp x20, x21
const A64_RETURN: &[u8] = &0xd65f_03c0u32.to_le_bytes();
const X86: [&[u8]; 6] = [
    &[0x48, 0x01, 0xd8],       // add rax, rbx
    &[0x48, 0x8b, 0x37],       // mov rsi, [rdi]
    &[0x48, 0x89, 0x02],       // mov [rdx], rax
    &[0x49, 0x29, 0xc0],       // sub r8, rax
    &[0x4d, 0x0f, 0xaf, 0xc8], // imul r9, r8
    &[0x48, 0x8d, 0x58, 0x08], // lea rbx, [rax + 8]
];
const X86_COMPARE: &[u8] = &[0x4d, 0x39, 0xfe]; // cmp r14, r15
const X86_RETURN: &[u8] = &[0xc3];

impl Drawn {
    fn new(random: &mut Random, arch: Arch, start: ImageAddress) -> Drawn {
        let mut drawn =
            Drawn { arch, start, code: vec![], executions: vec![], taken: BTreeMap::new(), labels: vec![] };
        drawn.region(random, 1.0, 3);
        drawn.emit(Code::Bytes(if drawn.is_x86() { X86_RETURN } else { A64_RETURN }), 1.0);
        drawn
    }

    fn is_x86(&self) -> bool {
        self.arch == Arch::X86_64
    }

    fn emit(&mut self, code: Code, executions: f64) {
        self.code.push(code);
        self.executions.push(executions);
    }

    fn label(&mut self) -> usize {
        self.labels.push(usize::MAX);
        self.labels.len() - 1
    }

    fn place(&mut self, label: usize) {
        self.labels[label] = self.code.len();
    }

    fn straight(&mut self, random: &mut Random, executions: f64) {
        let words = if self.is_x86() { X86 } else { A64 };
        for _ in 0..2 + random.below(8) {
            self.emit(Code::Bytes(words[random.below(words.len())]), executions);
        }
    }

    fn branch(&mut self, label: usize, executions: f64, probability: f64) {
        self.emit(Code::Bytes(if self.is_x86() { X86_COMPARE } else { A64_COMPARE }), executions);
        self.taken.insert(self.code.len(), probability);
        self.emit(Code::Branch(label), executions);
    }

    fn region(&mut self, random: &mut Random, executions: f64, depth: usize) {
        for _ in 0..1 + random.below(3) {
            self.straight(random, executions);
            match if depth == 0 { 9 } else { random.below(4) } {
                0 | 1 => self.diamond(random, executions, depth),
                2 => self.repeat(random, executions, depth),
                _ => {}
            }
        }
    }

    fn diamond(&mut self, random: &mut Random, executions: f64, depth: usize) {
        let (other, join) = (self.label(), self.label());
        let p = [0.02, 0.3, 0.5, 0.8, 0.97][random.below(5)];
        self.branch(other, executions, p);
        self.region(random, executions * (1.0 - p), depth - 1);
        self.emit(Code::Jump(join), executions * (1.0 - p));
        self.place(other);
        self.region(random, executions * p, depth - 1);
        self.place(join);
    }

    fn repeat(&mut self, random: &mut Random, executions: f64, depth: usize) {
        let head = self.label();
        let trips = [2.0, 5.0, 20.0][random.below(3)];
        self.place(head);
        self.region(random, executions * trips, depth - 1);
        self.branch(head, executions * trips, 1.0 - 1.0 / trips);
    }

    fn len(&self, code: Code) -> usize {
        match code {
            Code::Bytes(bytes) => bytes.len(),
            _ if !self.is_x86() => 4,
            Code::Branch(_) => 6,
            Code::Jump(_) => 5,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut offsets = vec![0];
        self.code.iter().for_each(|&c| offsets.push(offsets[offsets.len() - 1] + self.len(c)));
        let mut bytes = Vec::new();
        for (i, &code) in self.code.iter().enumerate() {
            let distance =
                |label: usize, from: usize| offsets[self.labels[label]] as i32 - offsets[from] as i32;
            match code {
                Code::Bytes(own) => bytes.extend_from_slice(own),
                Code::Branch(label) if self.is_x86() => {
                    bytes.extend_from_slice(&[0x0f, 0x85]); // jne
                    bytes.extend_from_slice(&distance(label, i + 1).to_le_bytes());
                }
                Code::Jump(label) if self.is_x86() => {
                    bytes.push(0xe9);
                    bytes.extend_from_slice(&distance(label, i + 1).to_le_bytes());
                }
                Code::Branch(label) => {
                    let words = (distance(label, i) / 4) as u32 & 0x7_ffff;
                    bytes.extend_from_slice(&(0x5400_0001 | words << 5).to_le_bytes()); // b.ne
                }
                Code::Jump(label) => {
                    let words = (distance(label, i) / 4) as u32 & 0x3ff_ffff;
                    bytes.extend_from_slice(&(0x1400_0000 | words).to_le_bytes());
                }
            }
        }
        bytes
    }

    /// Creates the procedure without samples.
    fn procedure(&self, index: usize) -> Procedure {
        let instructions = dwell_image::instructions(self.arch, &self.bytes(), self.start);
        debug_assert_eq!(instructions.len(), self.code.len(), "every word decodes");
        Procedure::new(format!("random_{index}"), instructions, BTreeMap::new())
    }

    fn truth(&self) -> Truth {
        let mut edges = Vec::new();
        for (from, code) in self.code.iter().enumerate() {
            let executions = self.executions[from];
            let mut edge = |to, part: f64| {
                edges.push(TrueEdge { from, to, executions: (executions * part).round() as u64 });
            };
            match *code {
                Code::Bytes(_) => {}
                Code::Jump(label) => edge(self.labels[label], 1.0),
                Code::Branch(label) => {
                    let p = self.taken.get(&from).copied().unwrap_or(0.0);
                    edge(self.labels[label], p);
                    edge(from + 1, 1.0 - p);
                }
            }
        }
        let executions = self.executions.iter().map(|e| Some(e.round() as u64)).collect();
        Truth { executions, edges, ..Truth::default() }
    }
}

/// Returns for each instruction the cycles of an execution at the head of the machine: what the model expects, plus a
/// log-uniform stall for some.
fn cycles_at_head(random: &mut Random, model: &MachineModel, schedule: &Schedule, drawn: &Drawn) -> Vec<f64> {
    let cycles = |i| {
        let expected = match model.order {
            Order::OutOfOrder => schedule.expected_cycles(i),
            Order::InOrder => schedule.issue_cycles_min[i],
        };
        let is_stalled = random.unit() < STALLED_PART && expected > 0.0;
        expected + if is_stalled { 100f64.powf(random.unit()) - 0.9 } else { 0.0 }
    };
    (0..drawn.executions.len()).map(cycles).collect()
}

/// Draws samples of time and, out of order, directions of branches.
fn sample(
    random: &mut Random,
    model: &MachineModel,
    (schedule, cycles): (&Schedule, &[f64]),
    drawn: &Drawn,
    procedure: &mut Procedure,
) {
    let is_out_of_order = model.order == Order::OutOfOrder;
    let heads: Vec<f64> = drawn.executions.iter().zip(cycles).map(|(e, c)| e * c / PERIOD_CYCLES).collect();
    let landed = if is_out_of_order { skid(procedure, schedule, drawn, &heads) } else { heads };
    procedure.samples = landed.iter().map(|&mean| random.poisson(mean)).collect();
    for (&branch, &p) in drawn.taken.iter().filter(|_| is_out_of_order) {
        let seen = drawn.executions[branch] / PERIOD_CYCLES * SEEN_PART;
        procedure.directions[branch] = (random.poisson(seen * p), random.poisson(seen * (1.0 - p)));
    }
}

/// Moves samples one instruction later, along the edges that are taken; a fused pair counts as one. Those beyond the
/// procedure are the caller's.
fn skid(procedure: &Procedure, schedule: &Schedule, drawn: &Drawn, heads: &[f64]) -> Vec<f64> {
    let cfg = &procedure.cfg;
    let mut landed = vec![0.0; heads.len()];
    for (block, range) in cfg.blocks.iter().enumerate() {
        for i in range.clone() {
            let next = if schedule.is_fused.get(i + 1) == Some(&true) { i + 2 } else { i + 1 };
            if next < range.end {
                landed[next] += heads[i];
                continue;
            }
            for &e in &cfg.successors[block] {
                let p = match (cfg.edges[e].kind, drawn.taken.get(&(range.end - 1))) {
                    (EdgeKind::Taken, Some(p)) => *p,
                    (EdgeKind::NotTaken, Some(p)) => 1.0 - p,
                    _ => 1.0,
                };
                if let Some(to) = cfg.blocks.get(cfg.edges[e].to) {
                    landed[to.start] += heads[i] * p;
                }
            }
        }
    }
    landed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What enters a block leaves it, as far as rounding goes, and the same seed gives the same program.
    #[test]
    fn truth_conserves_flow_and_repeats() {
        for recipe in recipes().into_iter().filter(|r| r.seed < 2) {
            let (one, other) = (recipe.program().expect("a model"), recipe.program().expect("a model"));
            assert_eq!(one.evidence.procedures[3].samples, other.evidence.procedures[3].samples);
            for (procedure, truth) in one.evidence.procedures.iter().zip(&one.truth) {
                assert!(procedure.samples.iter().sum::<u64>() > 0);
                for range in &procedure.cfg.blocks[1..] {
                    let entered: u64 =
                        truth.edges.iter().filter(|e| e.to == range.start).map(|e| e.executions).sum();
                    let before = range.start - 1;
                    let is_plain = !truth.edges.iter().any(|e| e.from == before);
                    let fell = if is_plain { truth.executions[before].unwrap_or(0) } else { 0 };
                    let own = truth.executions[range.start].unwrap_or(0);
                    assert!(own.abs_diff(entered + fell) <= 4, "{own} is not {entered} + {fell}");
                }
            }
        }
    }
}
