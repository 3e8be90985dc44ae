//! The code that a patched place jumps to.
//!
//! Enters: a region and the addresses of the payload. Leaves: machine code for one address. It calls the payload, executes the
//! instructions that were overwritten, and continues behind them. Every register and flag is as it was, since compilers may
//! know which registers a function leaves alone (gcc's `-fipa-ra`); only the payload's own stack below the stack pointer
//! changes, which is dead at a function's entry and exits.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, ConditionCode, FlowControl, IcedError, Instruction,
    InstructionBlock,
};

use super::{
    function_code::{Exit, is_call},
    plan::{JUMP_BYTES, Region},
};

/// Where the payload is in the process.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Address of the gate, the payload's first argument.
    pub gate: u64,
    /// Address of the code that a function's entry calls.
    pub enter: u64,
    /// Address of the code that its exits call.
    pub leave: u64,
}

/// A trampoline for one address.
#[derive(Clone, Debug)]
pub struct Trampoline {
    /// The machine code.
    pub code: Vec<u8>,
    /// For each instruction that moved: its address, and the address where a thread that stands before it must continue.
    pub copies: Vec<(u64, u64)>,
}

/// Assembles the trampoline of a region at an address, which must be within 2 GiB of the region and of the payload.
pub fn assemble(
    region: &Region,
    function: u32,
    payload: Payload,
    address: u64,
) -> Result<Trampoline, IcedError> {
    let mut assembler = Assembler { address, code: Vec::new() };
    let mut copies = Vec::with_capacity(region.instructions.len());
    // Conditional tail calls: where their branch's displacement is, and the branch.
    let mut taken: Vec<(usize, &Instruction)> = Vec::new();
    if region.is_entry {
        assembler.call_payload(payload.gate, payload.enter, function);
    }
    for (instruction, exit) in region.instructions.iter().zip(&region.exits) {
        copies.push((instruction.ip(), assembler.here()));
        match exit {
            Exit::Always => {
                assembler.call_payload(payload.gate, payload.leave, function);
                assembler.instruction(instruction)?;
            }
            Exit::IfTaken => taken.push((assembler.branch_if(instruction.condition_code()), instruction)),
            Exit::None if is_call(instruction) => assembler.call(instruction)?,
            Exit::None => assembler.instruction(instruction)?,
        }
    }
    let jump = |to| Instruction::with_branch(Code::Jmp_rel32_64, to);
    assembler.instruction(&jump(region.end())?)?;
    for (displacement_at, branch) in taken {
        assembler.land(displacement_at);
        assembler.call_payload(payload.gate, payload.leave, function);
        assembler.instruction(&jump(branch.near_branch_target())?)?;
    }
    Ok(Trampoline { code: assembler.code, copies })
}

/// Returns the jump that is written at `from`.
pub fn jump(from: u64, to: u64) -> Option<[u8; JUMP_BYTES]> {
    let distance = to.wrapping_sub(from.wrapping_add(JUMP_BYTES as u64)) as i64;
    let mut bytes = [0xe9; JUMP_BYTES];
    bytes[1..].copy_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
    Some(bytes)
}

/// Size in bytes of what [`Assembler::call_payload`] pushes: nine registers and the flags.
const SAVED_BYTES: u8 = 80;

/// Machine code that grows.
pub struct Assembler {
    /// Address of its first byte.
    pub address: u64,
    /// The code so far.
    pub code: Vec<u8>,
}

impl Assembler {
    /// Returns the address of the next byte.
    pub fn here(&self) -> u64 {
        self.address + self.code.len() as u64
    }

    /// Adds bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// Calls the payload with the address of the stack slot that the stack pointer points at.
    fn call_payload(&mut self, gate: u64, payload: u64, function: u32) {
        self.put(&[0x50]); // push rax
        self.put(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf; seto al
        self.put(&[0x50, 0x51, 0x52, 0x56, 0x57]); // push rax, rcx, rdx, rsi, rdi
        self.put(&[0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53]); // push r8, r9, r10, r11
        self.put(&[0x48, 0xbf]); // mov rdi, gate
        self.put(&gate.to_le_bytes());
        self.put(&[0x48, 0x8d, 0x74, 0x24, SAVED_BYTES]); // lea rsi, [rsp + SAVED_BYTES]
        self.put(&[0x48, 0x89, 0xea]); // mov rdx, rbp
        self.put(&[0xb9]); // mov ecx, function
        self.put(&function.to_le_bytes());
        let distance = payload.wrapping_sub(self.here() + 5) as i32;
        self.put(&[0xe8]); // call payload
        self.put(&distance.to_le_bytes());
        self.put(&[0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]); // pop r11, r10, r9, r8
        self.put(&[0x5f, 0x5e, 0x5a, 0x59, 0x58]); // pop rdi, rsi, rdx, rcx, rax
        self.put(&[0x04, 0x7f, 0x9e, 0x58]); // add al, 0x7f (sets OF again); sahf; pop rax
    }

    /// Encodes an instruction of another address.
    pub fn instruction(&mut self, instruction: &Instruction) -> Result<(), IcedError> {
        let instructions = [*instruction];
        let block = InstructionBlock::new(&instructions, self.here());
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)?;
        self.put(&encoded.code_buffer);
        Ok(())
    }

    /// Encodes a call that returns to where the original one does: pushes that address and jumps. No flag changes.
    fn call(&mut self, instruction: &Instruction) -> Result<(), IcedError> {
        let back = instruction.next_ip().to_le_bytes();
        self.put(&[0x48, 0x8d, 0x64, 0x24, 0xf8]); // lea rsp, [rsp - 8]
        self.put(&[0xc7, 0x04, 0x24]); // mov dword [rsp], …
        self.put(&back[..4]);
        self.put(&[0xc7, 0x44, 0x24, 0x04]); // mov dword [rsp + 4], …
        self.put(&back[4..]);
        let jump = if instruction.flow_control() == FlowControl::Call {
            Instruction::with_branch(Code::Jmp_rel32_64, instruction.near_branch_target())?
        } else {
            let mut jump = *instruction;
            jump.set_code(Code::Jmp_rm64);
            jump
        };
        self.instruction(&jump)
    }

    /// Encodes a conditional branch whose target [`Assembler::land`] sets, and returns where its displacement is.
    fn branch_if(&mut self, condition: ConditionCode) -> usize {
        // The numbers of `ConditionCode` are those of the processor plus one.
        self.put(&[0x0f, 0x80 | (condition as u8).wrapping_sub(1) & 15, 0, 0, 0, 0]);
        self.code.len() - 4
    }

    fn land(&mut self, displacement_at: usize) {
        let distance = (self.code.len() - displacement_at - 4) as i32;
        self.code[displacement_at..displacement_at + 4].copy_from_slice(&distance.to_le_bytes());
    }
}
