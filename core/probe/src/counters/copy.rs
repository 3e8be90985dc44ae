//! A copy of a procedure that counts its blocks.
//!
//! Enters: a procedure's code and where its counters go. Leaves: machine code for one address, and the jumps that lead there and back.
//!
//! Jumping out of a block and back costs two jumps for each count, twice what the counter does. So counted blocks jump into a copy of
//! the whole procedure, where counters stand between the instructions, and control stays there until a call. Calls, and all else
//! that must not move, are executed in the program's own code, so return addresses are the program's own; the next counted block
//! jumps into the copy again. In the copy and in the program's own code alike, a block's execution counts once.
//!
//! No register and no flag that is alive changes. A thread's counters are at its gs register, which programs for x86-64 do not use:
//! it is 0 in all threads, or a number of bytes of ours. So no thread needs a lock.

use dwell_profile::VirtualAddress;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, IcedError, Instruction,
    InstructionBlock,
};
use serde::{Deserialize, Serialize};

use super::place::CounterPlace;
use crate::{
    patch::{
        function_code::{DecodedPart, FunctionCode, is_call, is_movable},
        plan::JUMP_BYTES,
        trampoline::jump,
    },
    process::patcher::Change,
};

/// A copy at one address.
pub struct CountingCopy {
    /// The machine code. It leads back at each gate.
    pub code: Vec<u8>,
    /// What the code consists of, ascending.
    pub spans: Vec<Span>,
    /// The gates of the counters, in their order.
    pub gates: Vec<Gate>,
}

/// How control gets into the copy and out of it at a counter.
#[derive(Clone)]
pub struct Gate {
    /// Makes the program's own code lead into the copy.
    pub enter: Change,
    /// Makes the copy lead back.
    pub leave: Change,
}

/// A range of code and the instruction of the program that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first address.
    pub start: VirtualAddress,
    /// The address behind the last.
    pub end: VirtualAddress,
    /// The instruction's address; none for code that the program does not have.
    pub stands_for: Option<VirtualAddress>,
}

/// An instruction of the copy.
struct Copied {
    /// The instruction of the program that it is, or that comes next.
    original: u64,
    is_counter: bool,
}

/// Returns a number of bytes that a copy does not exceed.
pub fn bytes_max(code: &FunctionCode, counters: usize) -> usize {
    // A branch of two bytes may become one of six.
    3 * code.parts[0].part.length + 48 * counters + 64
}

/// Assembles the copy of a function's first part at `address`, which must be within 2 GiB of it. Each counter has a place and
/// the address where it is if gs is 0. Returns `None` if the code cannot be encoded there.
pub fn assemble(
    code: &FunctionCode,
    counters: &[(&CounterPlace, u32)],
    address: u64,
) -> Option<CountingCopy> {
    let part = &code.parts[0];
    let (instructions, copied) = list(part, counters).ok()?;
    let block = InstructionBlock::new(&instructions, address);
    let encoded =
        BlockEncoder::encode(64, block, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS).ok()?;
    let starts: Vec<Option<u64>> = encoded
        .new_instruction_offsets
        .iter()
        .map(|offset| (*offset != u32::MAX).then_some(address + u64::from(*offset)))
        .collect();
    let end = address + encoded.code_buffer.len() as u64;
    let mut spans: Vec<Span> = Vec::with_capacity(copied.len());
    for (start, copied) in starts.iter().zip(&copied) {
        // If there is none, it became several, which belong to the one before.
        let Some(start) = start.map(VirtualAddress) else { continue };
        if let Some(last) = spans.last_mut() {
            last.end = start;
        }
        let stands_for = (!copied.is_counter).then_some(VirtualAddress(copied.original));
        spans.push(Span { start, end: VirtualAddress(end), stands_for });
    }
    let at = |original: u64| {
        let index = copied.partition_point(|copied| copied.original < original);
        copied.get(index).filter(|copied| copied.original == original).and(starts[index])
    };
    let gate = |(place, _): &(&CounterPlace, u32)| {
        let region = &place.region;
        let copy = at(region.address)?;
        let offset = (copy - address) as usize;
        let code = encoded.code_buffer.get(offset..offset + JUMP_BYTES)?.try_into().ok()?;
        let middle = copy + 1..copy + JUMP_BYTES as u64;
        let back =
            starts.iter().zip(&copied).filter_map(|(start, copied)| Some(((*start)?, copied.original)));
        let moved = region.instructions.iter().map(|instruction| instruction.ip());
        Some(Gate {
            enter: Change {
                address: region.address,
                from: region.original,
                to: jump(region.address, copy)?,
                own: region.original,
                copies: moved.map(|original| Some((original, at(original)?))).collect::<Option<_>>()?,
            },
            leave: Change {
                address: copy,
                from: code,
                to: jump(copy, region.address)?,
                own: code,
                copies: back.filter(|(start, _)| middle.contains(start)).collect(),
            },
        })
    };
    let gates: Vec<Gate> = counters.iter().map(gate).collect::<Option<_>>()?;
    let mut code = encoded.code_buffer.clone();
    for Gate { leave, .. } in &gates {
        code[(leave.address - address) as usize..][..JUMP_BYTES].copy_from_slice(&leave.to);
    }
    Some(CountingCopy { code, spans, gates })
}

/// Lists the instructions of the copy. Those that nothing in the copy may jump to have the address 0.
fn list(
    part: &DecodedPart,
    counters: &[(&CounterPlace, u32)],
) -> Result<(Vec<Instruction>, Vec<Copied>), IcedError> {
    let range = part.part.address..part.part.address + part.part.length as u64;
    let (mut instructions, mut copied) = (Vec::new(), Vec::new());
    for instruction in &part.instructions {
        let original = instruction.ip();
        let mut address = original;
        let is_here =
            |(place, _): &&(&CounterPlace, u32)| place.region.instructions[place.before].ip() == original;
        if let Some((place, counter)) = counters.iter().find(is_here) {
            for mut counting in count(*counter, place.keeps_flags) {
                counting.set_ip(std::mem::take(&mut address));
                instructions.push(counting);
                copied.push(Copied { original, is_counter: true });
            }
        }
        // A label whose address is taken must not be one in the copy.
        let names_own =
            instruction.is_ip_rel_memory_operand() && range.contains(&instruction.ip_rel_memory_address());
        let mut copy = *instruction;
        if is_call(instruction) || !is_movable(instruction) || names_own {
            copy = Instruction::with_branch(Code::Jmp_rel32_64, original)?;
            address = 0;
        }
        copy.set_ip(address);
        instructions.push(copy);
        copied.push(Copied { original, is_counter: false });
    }
    let mut end = Instruction::with_branch(Code::Jmp_rel32_64, range.end)?;
    end.set_ip(0);
    instructions.push(end);
    copied.push(Copied { original: range.end, is_counter: true });
    Ok((instructions, copied))
}

/// Returns the instructions that increment a counter.
fn count(counter: u32, keeps_flags: bool) -> Vec<Instruction> {
    let mut code = Vec::new();
    if keeps_flags {
        code.extend([0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]: below the red zone
        code.extend([0x50, 0x9f, 0x0f, 0x90, 0xc0]); // push rax; lahf; seto al
    }
    code.extend([0x65, 0x48, 0xff, 0x04, 0x25]); // inc qword gs:[counter]
    code.extend(counter.to_le_bytes());
    if keeps_flags {
        code.extend([0x04, 0x7f, 0x9e, 0x58]); // add al, 0x7f (sets OF again); sahf; pop rax
        code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
    }
    Decoder::with_ip(64, &code, 0, DecoderOptions::NONE).into_iter().collect()
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
