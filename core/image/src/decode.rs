//! Decodes bytes to instructions with Capstone, and converts these to plain data.
//!
//! Costs of instructions are not handled here. Bytes that cannot be decoded become `(bad)` instructions, and decoding goes
//! on after them.

mod aarch64;
mod aarch64_access;
mod decoder;
mod riscv;
mod riscv_builder;
mod riscv_compressed;
mod x86;
mod x86_access;

use std::cell::RefCell;

use capstone::Insn;
use decoder::Decoder;
use smallvec::SmallVec;

use crate::{Arch, Flow, ImageAddress, Instruction, RegisterSet};

thread_local! {
    /// A handle is expensive to create and cheap to use, and only one thread may use it.
    static DECODERS: RefCell<Vec<Decoder>> = const { RefCell::new(Vec::new()) };
}

/// Decodes `code`, whose first byte is at `start`. The lengths of the instructions add up to that of the code.
pub fn instructions(arch: Arch, code: &[u8], start: ImageAddress) -> Vec<Instruction> {
    DECODERS.with_borrow_mut(|decoders| {
        if !decoders.iter().any(|d| d.arch == arch) {
            decoders.extend(Decoder::new(arch));
        }
        match decoders.iter().find(|d| d.arch == arch) {
            Some(decoder) => decoder.decode(code, start),
            None => Vec::new(),
        }
    })
}

impl Decoder {
    fn decode(&self, code: &[u8], start: ImageAddress) -> Vec<Instruction> {
        let mut instructions = Vec::with_capacity(code.len() / 4);
        let Ok(mut iterator) = self.capstone.disasm_iter(code, start.0) else { return instructions };
        let mut at = 0;
        while at < code.len() {
            let decoded = iterator.next().and_then(|insn| self.instruction(&insn));
            let instruction = decoded.unwrap_or_else(|| self.bad(&code[at..], start.offset(at as u64)));
            at += usize::from(instruction.length);
            if instruction.flow == Flow::Stop && &*instruction.mnemonic == BAD {
                iterator.reset(&code[at..], start.0.wrapping_add(at as u64));
            }
            instructions.push(instruction);
        }
        if self.arch == Arch::Riscv64 {
            riscv::resolve_far_calls(&mut instructions);
        }
        instructions
    }

    fn instruction(&self, insn: &Insn<'_>) -> Option<Instruction> {
        let detail = self.capstone.insn_detail(insn).ok()?;
        let mnemonic = insn.mnemonic()?;
        let operands = insn.op_str().unwrap_or("");
        let parts = match self.arch {
            Arch::X86_64 | Arch::X86 => x86::parts(self, insn, &detail),
            Arch::Aarch64 => aarch64::parts(self, insn, &detail),
            Arch::Riscv64 => riscv::parts(self, insn, &detail),
        };
        let text = match (self.arch, operands) {
            (_, "") => mnemonic.into(),
            (Arch::Riscv64, _) => {
                format!("{mnemonic} {}", riscv::absolute_target(operands, parts.flow)).into()
            }
            _ => format!("{mnemonic} {operands}").into(),
        };
        let mut instruction = Instruction {
            address: ImageAddress(insn.address()),
            length: u8::try_from(insn.len()).ok()?,
            mnemonic: mnemonic.rsplit(' ').next().unwrap_or(mnemonic).into(),
            text,
            reads: parts.reads,
            writes: parts.writes,
            operands: parts.operands,
            flow: parts.flow,
        };
        if let Some(zero) = self.arch.zero() {
            instruction.reads.remove(zero);
            instruction.writes.remove(zero);
        }
        Some(instruction)
    }

    /// Returns the instruction for bytes that cannot be decoded: one byte on x86, otherwise the length of an instruction.
    fn bad(&self, code: &[u8], address: ImageAddress) -> Instruction {
        let length = match self.arch {
            Arch::X86_64 | Arch::X86 => 1,
            Arch::Aarch64 => 4,
            Arch::Riscv64 if code[0] & 3 == 3 => 4,
            Arch::Riscv64 => 2,
        };
        Instruction {
            address,
            length: length.min(code.len()) as u8,
            mnemonic: BAD.into(),
            text: BAD.into(),
            reads: RegisterSet::EMPTY,
            writes: RegisterSet::EMPTY,
            operands: SmallVec::new(),
            flow: Flow::Stop,
        }
    }
}

const BAD: &str = "(bad)";
