//! The control-flow graph of one procedure (DCPI §6.1.1).
//!
//! Input: its instructions by ascending address, and the recovered targets of indirect jumps. Output: basic blocks, and
//! edges between them and two virtual nodes, the entry and the exit. Complexity: linear, with a hash look-up for each
//! address.
//!
//! Deviations from the paper: blocks without a known predecessor (landing pads, second entries) get an edge from the
//! entry, and each loop without an exit gets an edge from its latch to the exit, so that every block is on a path from
//! the entry to the exit. The rest of the analysis relies on that.

use std::{collections::BTreeMap, ops::Range};

use dwell_image::{Flow, ImageAddress, Instruction, MemoryOperand, Operand};
use rustc_hash::FxHashMap;

use crate::graph;

/// A block's index, [`Cfg::entry`] or [`Cfg::exit`].
pub type Node = usize;

/// The blocks and edges of one procedure.
#[derive(Clone, Debug)]
pub struct Cfg {
    /// The range of each block's instructions. Together the ranges cover the procedure.
    pub blocks: Vec<Range<usize>>,
    /// All edges, by ascending source.
    pub edges: Vec<CfgEdge>,
    /// Indices of the edges that leave each node, including entry and exit.
    pub successors: Vec<Vec<usize>>,
    /// Indices of the edges that enter each node.
    pub predecessors: Vec<Vec<usize>>,
    /// Whether the targets of an indirect jump are unknown.
    pub missing_edges: bool,
}

/// An edge of a [`Cfg`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfgEdge {
    /// The node that it leaves.
    pub from: Node,
    /// The node that it enters.
    pub to: Node,
    /// Why control takes it.
    pub kind: EdgeKind,
}

/// Why control takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// The procedure is entered.
    Enter,
    /// The entry's edge to a block without a known predecessor.
    Unseen,
    /// Control continues with the next instruction, without a branch.
    FallThrough,
    /// A conditional branch is taken.
    Taken,
    /// A conditional branch is not taken.
    NotTaken,
    /// An unconditional jump is executed.
    Jump,
    /// An indirect jump with recovered targets is executed.
    Table,
    /// Control leaves the procedure: a return, a tail call, a call that does not return, a stop, or the end of the
    /// instructions.
    Leave,
    /// The edge out of a loop without an exit, which makes the graph connected.
    Endless,
}

impl EdgeKind {
    /// Whether a predictor chooses the edge.
    pub fn is_predicted(self) -> bool {
        matches!(self, EdgeKind::Taken | EdgeKind::NotTaken | EdgeKind::Table)
    }

    /// Whether control never takes the edge as far as the instructions show.
    pub fn is_pseudo(self) -> bool {
        matches!(self, EdgeKind::Unseen | EdgeKind::Endless)
    }
}

impl Cfg {
    /// Builds the graph of a procedure.
    pub fn build(instructions: &[Instruction], jump_targets: &BTreeMap<usize, Vec<ImageAddress>>) -> Cfg {
        let index = AddressIndex::new(instructions);
        let blocks = find_blocks(instructions, jump_targets, &index);
        let mut builder =
            Builder { instructions, jump_targets, index, blocks, edges: Vec::new(), missing: false };
        builder.connect_blocks();
        let cfg = builder.finish();
        debug_assert_eq!(cfg.verify(instructions.len()), Ok(()));
        cfg
    }

    /// Returns the virtual node before the first block.
    pub fn entry(&self) -> Node {
        self.blocks.len()
    }

    /// Returns the virtual node after all exits.
    pub fn exit(&self) -> Node {
        self.blocks.len() + 1
    }

    /// Returns the index of the block of each instruction.
    pub fn block_of_instructions(&self) -> Vec<usize> {
        let mut block_of = Vec::with_capacity(self.blocks.last().map_or(0, |b| b.end));
        for (block, range) in self.blocks.iter().enumerate() {
            block_of.extend(range.clone().map(|_| block));
        }
        block_of
    }

    /// Whether a block is its own successor.
    pub fn loops_on_itself(&self, block: usize) -> bool {
        self.successors[block].iter().any(|&e| self.edges[e].to == block)
    }

    /// Checks the properties that the rest of the analysis relies on. Returns the first violation as text.
    pub fn verify(&self, instructions: usize) -> Result<(), String> {
        let mut next = 0;
        for (i, block) in self.blocks.iter().enumerate() {
            if block.start != next || block.is_empty() {
                return Err(format!("block {i} is {block:?}, expected to start at {next}"));
            }
            next = block.end;
        }
        if next != instructions {
            return Err(format!("blocks end at {next} of {instructions} instructions"));
        }
        let successors: Vec<Vec<Node>> =
            self.successors.iter().map(|es| es.iter().map(|&e| self.edges[e].to).collect()).collect();
        let predecessors: Vec<Vec<Node>> =
            self.predecessors.iter().map(|es| es.iter().map(|&e| self.edges[e].from).collect()).collect();
        let forward = graph::reachable(&successors, [self.entry()]);
        let backward = graph::reachable(&predecessors, [self.exit()]);
        match (0..self.blocks.len()).find(|&b| !forward[b] || !backward[b]) {
            Some(b) => Err(format!("block {b} lies on no path from the entry to the exit")),
            None => Ok(()),
        }
    }
}

/// Finds the instruction at an address.
struct AddressIndex<'a> {
    instructions: &'a [Instruction],
    starts: FxHashMap<ImageAddress, usize>,
}

impl<'a> AddressIndex<'a> {
    fn new(instructions: &'a [Instruction]) -> Self {
        let mut starts = FxHashMap::default();
        for (i, instruction) in instructions.iter().enumerate() {
            starts.entry(instruction.address).or_insert(i);
        }
        AddressIndex { instructions, starts }
    }

    /// Returns the instruction that contains `address`: jumps into the middle of an instruction skip a prefix (`je 1f;
    /// lock; 1: cmpxchg`).
    fn get(&self, address: ImageAddress) -> Option<usize> {
        self.starts.get(&address).copied().or_else(|| {
            let after = self.instructions.partition_point(|i| i.address <= address);
            let i = after.checked_sub(1)?;
            (address < self.instructions[i].end() && self.instructions[i].address < address).then_some(i)
        })
    }
}

/// Whether control may go elsewhere than to the next instruction after instruction `i`.
fn ends_block(instructions: &[Instruction], i: usize) -> bool {
    match instructions[i].flow {
        Flow::Next => false,
        // A call that no code, or no code that is executed, follows does not return.
        Flow::Call { .. } => does_not_return(instructions, i),
        _ => true,
    }
}

fn does_not_return(instructions: &[Instruction], call: usize) -> bool {
    instructions.get(call + 1).is_none_or(|next| next.flow == Flow::Stop)
}

fn find_blocks(
    instructions: &[Instruction],
    jump_targets: &BTreeMap<usize, Vec<ImageAddress>>,
    index: &AddressIndex,
) -> Vec<Range<usize>> {
    let mut leads = vec![false; instructions.len() + 1];
    leads[0] = true;
    for (i, instruction) in instructions.iter().enumerate() {
        leads[i + 1] |= ends_block(instructions, i);
        if let Flow::Branch { target } | Flow::Jump { target } = instruction.flow
            && let Some(target) = index.get(target)
        {
            leads[target] = true;
        }
    }
    for target in jump_targets.values().flatten().filter_map(|&t| index.get(t)) {
        leads[target] = true;
    }
    let starts: Vec<usize> = (0..instructions.len()).filter(|&i| leads[i]).collect();
    let ends = starts.iter().skip(1).copied().chain([instructions.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

struct Builder<'a> {
    instructions: &'a [Instruction],
    jump_targets: &'a BTreeMap<usize, Vec<ImageAddress>>,
    index: AddressIndex<'a>,
    blocks: Vec<Range<usize>>,
    edges: Vec<CfgEdge>,
    missing: bool,
}

impl Builder<'_> {
    fn connect_blocks(&mut self) {
        for block in 0..self.blocks.len() {
            let last = self.blocks[block].end - 1;
            match self.instructions[last].flow {
                Flow::Next => self.fall_through(block, EdgeKind::FallThrough),
                Flow::Call { .. } if does_not_return(self.instructions, last) => self.leave(block),
                Flow::Call { .. } => self.fall_through(block, EdgeKind::FallThrough),
                Flow::Branch { target } => {
                    self.go(block, target, EdgeKind::Taken);
                    self.fall_through(block, EdgeKind::NotTaken);
                }
                Flow::Jump { target } => self.go(block, target, EdgeKind::Jump),
                Flow::IndirectJump => self.indirect_jump(block, last),
                Flow::Return | Flow::Stop => self.leave(block),
            }
        }
    }

    fn exit(&self) -> Node {
        self.blocks.len() + 1
    }

    fn leave(&mut self, from: usize) {
        self.edges.push(CfgEdge { from, to: self.exit(), kind: EdgeKind::Leave });
    }

    fn fall_through(&mut self, from: usize, kind: EdgeKind) {
        let to = if from + 1 < self.blocks.len() { from + 1 } else { self.exit() };
        self.edges.push(CfgEdge { from, to, kind });
    }

    /// Adds an edge to the block of `target`, or out of the procedure (a tail call, a cold part).
    fn go(&mut self, from: usize, target: ImageAddress, kind: EdgeKind) {
        match self.block_at(target) {
            Some(to) => self.edges.push(CfgEdge { from, to, kind }),
            None if kind == EdgeKind::Taken => self.edges.push(CfgEdge { from, to: self.exit(), kind }),
            None => self.leave(from),
        }
    }

    fn block_at(&self, address: ImageAddress) -> Option<usize> {
        let i = self.index.get(address)?;
        Some(self.blocks.partition_point(|b| b.start <= i) - 1)
    }

    fn indirect_jump(&mut self, from: usize, jump: usize) {
        let Some(targets) = self.jump_targets.get(&jump) else {
            self.missing |= !is_tail_call(self.instructions, jump);
            return self.leave(from);
        };
        let mut to: Vec<Node> = targets.iter().map(|&t| self.block_at(t).unwrap_or(self.exit())).collect();
        to.sort_unstable();
        to.dedup();
        self.edges.extend(to.into_iter().map(|to| CfgEdge { from, to, kind: EdgeKind::Table }));
    }

    fn finish(mut self) -> Cfg {
        let (entry, exit) = (self.blocks.len(), self.blocks.len() + 1);
        if !self.blocks.is_empty() {
            self.edges.push(CfgEdge { from: entry, to: 0, kind: EdgeKind::Enter });
        }
        self.enter_unseen_blocks(entry);
        self.leave_endless_loops(exit);
        self.edges.sort_by_key(|e| e.from);
        let mut successors = vec![Vec::new(); self.blocks.len() + 2];
        let mut predecessors = vec![Vec::new(); self.blocks.len() + 2];
        for (i, edge) in self.edges.iter().enumerate() {
            successors[edge.from].push(i);
            predecessors[edge.to].push(i);
        }
        Cfg { blocks: self.blocks, edges: self.edges, successors, predecessors, missing_edges: self.missing }
    }

    fn adjacency(&self) -> Vec<Vec<Node>> {
        let mut successors = vec![Vec::new(); self.blocks.len() + 2];
        self.edges.iter().for_each(|e| successors[e.from].push(e.to));
        successors
    }

    fn enter_unseen_blocks(&mut self, entry: Node) {
        let successors = self.adjacency();
        let mut seen = graph::reachable(&successors, [entry]);
        for block in 0..self.blocks.len() {
            if !seen[block] {
                self.edges.push(CfgEdge { from: entry, to: block, kind: EdgeKind::Unseen });
                graph::mark_reachable(&successors, &mut seen, block);
            }
        }
    }

    /// Adds an edge from the latch to the exit, so that header and body of a simple endless loop stay in one class.
    fn leave_endless_loops(&mut self, exit: Node) {
        let successors = self.adjacency();
        let components = graph::strong_components(&successors);
        for members in &components.members {
            let id = components.of[members[0]];
            let is_end = members.iter().all(|&m| successors[m].iter().all(|&s| components.of[s] == id));
            // The first member that the depth-first search finishes is a latch.
            if is_end && !members.contains(&exit) {
                self.edges.push(CfgEdge { from: members[0], to: exit, kind: EdgeKind::Endless });
            }
        }
    }
}

/// Whether an indirect jump without a known table leaves the procedure: through a pointer that was loaded without an
/// index (a method table, the GOT), that was passed in, or that is a constant. A target that was added up or loaded with
/// an index comes from a table.
pub fn is_tail_call(instructions: &[Instruction], jump: usize) -> bool {
    const LOOK_BACK: usize = 32;
    let mut pointer = match instructions[jump].operands.first() {
        Some(Operand::Memory(m)) => return m.index.is_none(),
        Some(Operand::Register { register, .. }) => *register,
        _ => return false,
    };
    let mut is_loaded = false;
    for instruction in instructions[jump.saturating_sub(LOOK_BACK)..jump].iter().rev() {
        if !instruction.writes.contains(pointer) {
            continue;
        }
        let mnemonic = instruction.mnemonic.strip_prefix("c.").unwrap_or(&instruction.mnemonic);
        match instruction.operands.get(1) {
            Some(Operand::Register { register, .. }) if matches!(mnemonic, "mov" | "mv") => {
                pointer = *register
            }
            Some(Operand::Memory(_)) if is_loaded => return true,
            Some(Operand::Memory(m)) if m.index.is_some() || mnemonic == "add" => return false,
            // RISC-V adds the index before the load.
            Some(Operand::Memory(MemoryOperand { base: Some(base), .. })) => {
                (pointer, is_loaded) = (*base, true)
            }
            Some(Operand::Memory(_)) => return true,
            _ => {
                return mnemonic != "add"
                    || matches!(instruction.operands.last(), Some(Operand::Immediate(_)));
            }
        }
    }
    true
}
