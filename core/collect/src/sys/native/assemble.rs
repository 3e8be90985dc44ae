//! Puts instructions one after the other at an address.
//!
//! Enters: instructions. Leaves: bytes. Never here: what they are for.

use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

/// Encodes instructions for consecutive addresses, all of them below 2 GiB, so that each can name a place in memory by its
/// absolute address.
pub struct Assembler {
    encoder: Encoder,
    start: u64,
    /// Distances of branches, and where they lead.
    patches: Vec<(u64, u64)>,
    /// The address of the next instruction.
    pub at: u64,
    /// Whether all instructions could be encoded.
    pub is_sound: bool,
}

impl Assembler {
    pub fn new(at: u64) -> Assembler {
        Assembler { encoder: Encoder::new(64), start: at, patches: Vec::new(), at, is_sound: true }
    }

    /// Returns the bytes.
    pub fn take(mut self) -> Vec<u8> {
        let mut code = self.encoder.take_buffer();
        for (patch, target) in self.patches {
            let at = (patch - self.start) as usize;
            code[at..at + 4].copy_from_slice(&(target.wrapping_sub(patch + 4) as u32).to_le_bytes());
        }
        code
    }

    pub fn add(&mut self, instruction: &Instruction) {
        match self.encoder.encode(instruction, self.at) {
            Ok(length) => self.at += length as u64,
            Err(_) => self.is_sound = false,
        }
    }

    pub fn built(&mut self, instruction: Result<Instruction, IcedError>) {
        match instruction {
            Ok(instruction) => self.add(&instruction),
            Err(_) => self.is_sound = false,
        }
    }

    /// Appends bytes that mean the same at each address.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let mut all = self.encoder.take_buffer();
        all.extend_from_slice(bytes);
        self.encoder.set_buffer(all);
        self.at += bytes.len() as u64;
    }

    pub fn one(&mut self, code: Code) {
        self.add(&Instruction::with(code));
    }

    pub fn load(&mut self, register: Register, place: MemoryOperand) {
        self.built(Instruction::with2(Code::Mov_r64_rm64, register, place));
    }

    pub fn store(&mut self, place: MemoryOperand, register: Register) {
        self.built(Instruction::with2(Code::Mov_rm64_r64, place, register));
    }

    pub fn store_number(&mut self, place: MemoryOperand, number: u32) {
        self.built(Instruction::with2(Code::Mov_rm32_imm32, place, number as i32));
    }

    pub fn constant(&mut self, register: Register, value: u64) {
        self.built(match u32::try_from(value) {
            Ok(value) => Instruction::with2(Code::Mov_r32_imm32, narrow(register), value as i32),
            Err(_) => Instruction::with2(Code::Mov_r64_imm64, register, value),
        });
    }

    pub fn lea(&mut self, register: Register, place: MemoryOperand) {
        self.built(Instruction::with2(Code::Lea_r64_m, register, place));
    }

    pub fn branch(&mut self, code: Code, target: u64) {
        self.built(Instruction::with_branch(code, target));
    }

    /// Appends a jump or a conditional branch whose target is not known yet. Returns the address of the distance to be patched.
    pub fn open_branch(&mut self, code: Code) -> u64 {
        let here = self.at;
        self.branch(code, here);
        self.at - 4
    }

    /// Lets an open branch lead to the next instruction.
    pub fn patch(&mut self, patch: u64) {
        self.patches.push((patch, self.at));
    }
}

/// Returns the place with an absolute address.
pub fn place(address: u64) -> MemoryOperand {
    MemoryOperand::with_displ(address, 8)
}

/// Returns the lower half of a general register.
pub fn narrow(register: Register) -> Register {
    Register::EAX + register.number() as u32
}
