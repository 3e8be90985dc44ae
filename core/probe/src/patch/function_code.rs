//! A function's instructions: which of them leave the function, and which are jumped to.
//!
//! Enters: bytes and addresses. Leaves: decoded instructions with what patching needs to know of them.

use std::{collections::BTreeSet, ops::Range};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::{from_image::IndirectJumps, incoming::Jump, plan::Refusal};

/// A contiguous range of a function's code: the whole function, or the hot or cold part of a function that the compiler split.
#[derive(Clone, Debug)]
pub struct Part {
    /// Address of the first byte in the process.
    pub address: u64,
    /// The code as it is in the process.
    pub bytes: Vec<u8>,
    /// Number of bytes of `bytes` that belong to the part. Those after it show whether there is padding.
    pub length: usize,
}

impl Part {
    fn range(&self) -> Range<u64> {
        self.address..self.address + self.length as u64
    }
}

/// How an instruction leaves the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It does not.
    None,
    /// It always does: a return or a tail call.
    Always,
    /// It does if its condition holds: a conditional tail call.
    IfTaken,
}

/// A part with its decoded instructions.
pub struct DecodedPart {
    /// The part's bytes.
    pub part: Part,
    /// Its instructions, ascending and without gaps.
    pub instructions: Vec<Instruction>,
    /// For each instruction, how it leaves the function.
    pub exits: Vec<Exit>,
}

/// The decoded code of a function.
pub struct FunctionCode {
    /// The parts; the first one begins with the function's entry.
    pub parts: Vec<DecodedPart>,
    /// Addresses of the function that are jumped to: by its own branches, by its jump tables and landing pads, or from outside.
    pub targets: BTreeSet<u64>,
    /// The first indirect jump whose targets are not known.
    pub unknown_jump: Option<u64>,
    /// The first jump of the function to its entry.
    pub jump_to_entry: Option<u64>,
}

impl FunctionCode {
    /// Decodes a function.
    pub fn decode(parts: Vec<Part>, jumps: IndirectJumps) -> Result<Self, Refusal> {
        let IndirectJumps { mut targets, resolved, tail_calls } = jumps;
        let entry = parts.first().ok_or(Refusal::NoCode)?.address;
        let mut decoded = Vec::with_capacity(parts.len());
        let (mut unknown_jump, mut jump_to_entry) = (None, None);
        let is_inside = |address: u64| parts.iter().any(|part| part.range().contains(&address));
        for part in &parts {
            let instructions = decode_part(part)?;
            let mut exits = Vec::with_capacity(instructions.len());
            for instruction in &instructions {
                let target = branch_target(instruction);
                if let Some(target) = target.filter(|target| is_inside(*target)) {
                    if target == entry {
                        jump_to_entry.get_or_insert(instruction.ip());
                    }
                    targets.insert(target);
                }
                let leaves = target.is_some_and(|target| !is_inside(target));
                exits.push(match instruction.flow_control() {
                    FlowControl::Return => Exit::Always,
                    FlowControl::UnconditionalBranch if leaves => Exit::Always,
                    FlowControl::ConditionalBranch if leaves => Exit::IfTaken,
                    FlowControl::IndirectBranch if tail_calls.contains(&instruction.ip()) => Exit::Always,
                    FlowControl::IndirectBranch => {
                        if !resolved.contains(&instruction.ip()) {
                            unknown_jump.get_or_insert(instruction.ip());
                        }
                        Exit::None
                    }
                    _ => Exit::None,
                });
            }
            decoded.push(DecodedPart { part: part.clone(), instructions, exits });
        }
        Ok(FunctionCode { parts: decoded, targets, unknown_jump, jump_to_entry })
    }

    /// Adds a jump that was found outside of the function. Jumps to the entry are calls.
    pub fn add_jump_from_outside(&mut self, jump: Jump) {
        let is_own = self.ranges().any(|range| range.contains(&jump.from));
        if !is_own && jump.to != self.entry() {
            self.targets.insert(jump.to);
        }
    }

    /// Returns the ranges of the parts.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.parts.iter().map(|decoded| decoded.part.range())
    }

    /// Returns the address of the entry.
    pub fn entry(&self) -> u64 {
        self.parts[0].part.address
    }
}

fn decode_part(part: &Part) -> Result<Vec<Instruction>, Refusal> {
    let code = part.bytes.get(..part.length).ok_or(Refusal::NoCode)?;
    let mut instructions = Vec::with_capacity(part.length / 4);
    for instruction in Decoder::with_ip(64, code, part.address, DecoderOptions::NONE) {
        if instruction.is_invalid() {
            return Err(Refusal::Undecodable { address: instruction.ip() });
        }
        instructions.push(instruction);
    }
    if instructions.is_empty() { Err(Refusal::NoCode) } else { Ok(instructions) }
}

/// Returns the target of a direct jump; `None` for calls and all else.
fn branch_target(instruction: &Instruction) -> Option<u64> {
    let is_jump = matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
    );
    let is_near = instruction.op_count() > 0
        && matches!(
            instruction.op0_kind(),
            OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16
        );
    (is_jump && is_near).then(|| instruction.near_branch_target())
}

/// Returns whether an instruction does the same at another address, once the encoder has corrected its operands. Calls are moved
/// in a way of their own.
pub fn is_movable(instruction: &Instruction) -> bool {
    let is_plain = !matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Xbegin | Mnemonic::Xabort | Mnemonic::Xend
    );
    is_plain
        && !matches!(
            instruction.flow_control(),
            FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend
        )
        && !(is_call(instruction) && calls_by_stack(instruction))
}

/// Returns whether the instruction calls a function.
pub fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// Returns whether a call finds its target by the stack pointer, which the moved call has changed by then.
fn calls_by_stack(instruction: &Instruction) -> bool {
    use iced_x86::Register::{RSP, SP};
    instruction.flow_control() == FlowControl::IndirectCall
        && (matches!(instruction.memory_base(), RSP | SP)
            || (0..instruction.op_count())
                .any(|i| instruction.op_kind(i) == OpKind::Register && instruction.op_register(i) == RSP))
}
