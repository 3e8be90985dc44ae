//! Loops, and what an iteration of each executes and accesses.
//!
//! Input: the graph with frequencies. Output: a forest of loops with their sums. Complexity: linear in blocks and edges
//! for each level of nesting, at most [`DEPTH_MAX`].
//!
//! A loop is a strongly connected component. Its inner loops are the strongly connected components that remain after the
//! edges back to its header are cut (Steensgaard, "Sequentializing program dependence graphs", 1993), so irreducible
//! loops are found too.

use dwell_image::{Instruction, Register};
use rustc_hash::FxHashMap;

use super::register_step::{self, Step};
use crate::{cfg::Cfg, frequency::Estimates, graph, machine::OpcodeClass, schedule::Schedule};

/// Number of levels of nesting that are found.
const DEPTH_MAX: usize = 12;

/// Bytes of a line of code, on all machines that we know.
const LINE_BYTES: u64 = 64;
/// Number of lines in the smallest page.
const LINES_IN_PAGE: u64 = 64;
/// Number of sets of a typical first-level instruction cache of eight ways. A cache with more sets has fewer ways.
const SETS: usize = 64;

/// A loop of the procedure, with sums over its executions. Counts of executions are in the units of frequencies.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The innermost loop around it.
    pub parent: Option<usize>,
    /// An upper bound on how often it is entered from outside.
    pub entries: f64,
    /// How often its header is executed.
    pub iterations: f64,
    /// The greatest number of its lines of code that share a set of the instruction cache.
    pub lines_in_set_max: usize,
    /// Number of pages of its code.
    pub pages: usize,
    /// Executions of loads and stores.
    pub accesses: f64,
    /// Executions of stores.
    pub stores: f64,
    /// Time samples of its instructions, with the skid undone.
    pub samples: f64,
    /// It calls a function or enters the kernel, so that other code runs within it.
    pub leaves: bool,
}

/// The loops of a procedure. A loop is identified by its index; outer loops come first.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    all: Vec<Loop>,
    innermost: Vec<Option<usize>>,
    members: Vec<Vec<usize>>,
    steps: FxHashMap<(usize, Register), Step>,
}

impl Loops {
    /// Finds all loops.
    pub fn new(instructions: &[Instruction], cfg: &Cfg, schedule: &Schedule, estimates: &Estimates) -> Loops {
        let mut loops = Loops { innermost: vec![None; cfg.blocks.len()], ..Loops::default() };
        let mut successors: Vec<Vec<usize>> = cfg.successors[..cfg.blocks.len()]
            .iter()
            .map(|es| es.iter().map(|&e| cfg.edges[e].to).filter(|&to| to < cfg.blocks.len()).collect())
            .collect();
        for _ in 0..DEPTH_MAX {
            let found = loops.peel(&mut successors, instructions, cfg, schedule, estimates);
            if !found {
                break;
            }
        }
        debug_assert_eq!(loops.verify(), Ok(()));
        loops
    }

    /// Checks that each loop lies within its parent, which has a smaller index, and that no number of entries is
    /// negative.
    fn verify(&self) -> Result<(), String> {
        for (id, one) in self.all.iter().enumerate() {
            let is_inside =
                one.parent.is_none_or(|p| p < id && self.members[p].len() >= self.members[id].len());
            if !is_inside || one.entries < 0.0 || self.members[id].is_empty() {
                return Err(format!("loop {id}: {one:?}"));
            }
        }
        Ok(())
    }

    /// Adds one level of loops and cuts the edges back to their headers. Returns whether there was any loop.
    fn peel(
        &mut self,
        successors: &mut [Vec<usize>],
        instructions: &[Instruction],
        cfg: &Cfg,
        schedule: &Schedule,
        estimates: &Estimates,
    ) -> bool {
        let components = graph::strong_components(successors);
        let mut found = false;
        for (id, members) in components.members.iter().enumerate() {
            let repeats = members.len() > 1 || successors[members[0]].contains(&members[0]);
            if !repeats {
                continue;
            }
            found = true;
            let inside = |b: usize| components.of.get(b) == Some(&id);
            let mut one = measure(members, instructions, cfg, schedule, estimates);
            let header = enter(&mut one, members, &inside, cfg, estimates);
            one.parent = self.innermost[members[0]];
            self.note_steps(members, instructions, cfg, schedule);
            members.iter().for_each(|&b| self.innermost[b] = Some(self.all.len()));
            self.all.push(one);
            self.members.push(members.clone());
            for &block in members {
                successors[block].retain(|&to| to != header && components.of[to] == id);
            }
        }
        found
    }

    fn note_steps(
        &mut self,
        members: &[usize],
        instructions: &[Instruction],
        cfg: &Cfg,
        schedule: &Schedule,
    ) {
        let id = self.all.len();
        for i in members.iter().flat_map(|&b| cfg.blocks[b].clone()) {
            let is_call = schedule.opcodes[i].class == OpcodeClass::Call;
            for register in instructions[i].writes.iter() {
                let step =
                    if is_call { Step::Unknown } else { register_step::step(&instructions[i], i, register) };
                let known = self.steps.entry((id, register));
                known.and_modify(|known| *known = known.and(step)).or_insert(step);
            }
        }
    }

    /// Returns the innermost loop around a block.
    pub fn innermost(&self, block: usize) -> Option<usize> {
        self.innermost[block]
    }

    /// Returns the number of loops.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns a loop by its index.
    pub fn get(&self, id: usize) -> &Loop {
        &self.all[id]
    }

    /// Returns the blocks of a loop.
    pub fn blocks(&self, id: usize) -> &[usize] {
        &self.members[id]
    }

    /// Returns the loops around a block, the innermost first.
    pub fn around(&self, block: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.innermost[block], |&l| self.all[l].parent)
    }

    /// Returns how a register changes in an iteration of a loop, or `None` if it does not.
    pub fn step(&self, id: usize, register: Register) -> Option<Step> {
        self.steps.get(&(id, register)).copied()
    }
}

fn measure(
    members: &[usize],
    instructions: &[Instruction],
    cfg: &Cfg,
    schedule: &Schedule,
    estimates: &Estimates,
) -> Loop {
    let mut one = Loop {
        parent: None,
        entries: 0.0,
        iterations: 0.0,
        lines_in_set_max: 0,
        pages: 0,
        accesses: 0.0,
        stores: 0.0,
        samples: 0.0,
        leaves: false,
    };
    let mut code = Vec::new();
    for &block in members {
        let frequency = estimates.blocks[block].map_or(0.0, |e| e.frequency);
        for i in cfg.blocks[block].clone() {
            let opcode = schedule.opcodes[i];
            one.accesses += frequency * f64::from(u8::from(opcode.load || opcode.store));
            one.stores += frequency * f64::from(u8::from(opcode.store));
            one.samples += estimates.head_samples[i];
            one.leaves |= matches!(opcode.class, OpcodeClass::Call | OpcodeClass::System);
        }
        let range = &cfg.blocks[block];
        let last = instructions[range.end - 1].end().0.saturating_sub(1);
        code.extend(instructions[range.start].address.0 / LINE_BYTES..=last / LINE_BYTES);
    }
    code.sort_unstable();
    code.dedup();
    measure_code(&code, &mut one);
    one
}

/// Counts how a loop's sorted lines of code are distributed over cache sets and pages.
fn measure_code(lines: &[u64], one: &mut Loop) {
    let mut sets = [0; SETS];
    lines.iter().for_each(|line| sets[*line as usize % SETS] += 1);
    one.lines_in_set_max = sets.into_iter().max().unwrap_or(0);
    one.pages = lines.chunk_by(|a, b| a / LINES_IN_PAGE == b / LINES_IN_PAGE).count();
}

/// Fills in how often the loop is entered. Returns the header: the block by which it is entered most often.
fn enter(
    one: &mut Loop,
    members: &[usize],
    inside: &dyn Fn(usize) -> bool,
    cfg: &Cfg,
    estimates: &Estimates,
) -> usize {
    let mut header = (members[0], -1.0);
    for &block in members {
        let from_outside = cfg.predecessors[block].iter().filter(|&&e| !inside(cfg.edges[e].from));
        let mut own = -1.0;
        for &edge in from_outside {
            let estimate = estimates.edges[edge];
            let entries = estimate.map_or(f64::INFINITY, |e| e.frequency * e.confidence.error_factor_max());
            own = f64::max(own, 0.0) + entries;
        }
        one.entries += f64::max(own, 0.0);
        if own > header.1 {
            header = (block, own);
        }
    }
    one.iterations = estimates.blocks[header.0].map_or(0.0, |e| e.frequency);
    header.0
}
