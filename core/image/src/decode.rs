//! Bytes → instructions, by Capstone, into plain data.
//!
//! Never here: what instructions cost. Undecodable bytes become `(bad)` instructions and decoding goes on after them.

mod aarch64;
mod aarch64_access;
mod riscv;
mod riscv_compressed;
mod x86;
mod x86_access;

use std::cell::RefCell;

use capstone::prelude::*;
use capstone::{Insn, RegId};
use smallvec::SmallVec;

use crate::{Arch, Flow, ImageAddress, Instruction, Operand, Register, RegisterSet};

/// More register numbers than any architecture has in Capstone.
const CAPSTONE_REGISTERS_MAX: u16 = 1024;

thread_local! {
    /// A handle is costly to make, cheap to use, and of one thread.
    static DECODERS: RefCell<Vec<Decoder>> = const { RefCell::new(Vec::new()) };
}

/// The instructions of `code`, whose first byte is at `start`. Their lengths add up to the code's.
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

struct Decoder {
    arch: Arch,
    capstone: Capstone,
    /// Our register and the bits of it, by Capstone's number.
    registers: Vec<Option<(Register, u16)>>,
}

/// What the architectures' readers fill in.
struct Parts {
    reads: RegisterSet,
    writes: RegisterSet,
    operands: SmallVec<[Operand; 3]>,
    flow: Flow,
}

impl Decoder {
    fn new(arch: Arch) -> Option<Decoder> {
        let mut capstone = build(arch).ok()?;
        capstone.set_unsigned(false).ok()?;
        let name = |id| capstone.reg_name(RegId(id));
        let register = |id| {
            let name = name(id)?;
            Some((Register::named(arch, &name)?, width_bits(arch, &name)))
        };
        let registers = (0..CAPSTONE_REGISTERS_MAX).map(register).collect();
        Some(Decoder { arch, capstone, registers })
    }

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

    /// Bytes that decode to nothing: one on x86, else an instruction's length.
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

    fn register(&self, id: RegId) -> Option<Register> {
        self.sized_register(id).map(|(register, _)| register)
    }

    fn sized_register(&self, id: RegId) -> Option<(Register, u16)> {
        self.registers.get(usize::from(id.0)).copied().flatten()
    }

    fn set(&self, ids: &[RegId]) -> RegisterSet {
        ids.iter().filter_map(|id| self.register(*id)).collect()
    }
}

const BAD: &str = "(bad)";

fn build(arch: Arch) -> CsResult<Capstone> {
    use capstone::arch::{arm64, riscv, x86};
    match arch {
        Arch::X86_64 | Arch::X86 => Capstone::new()
            .x86()
            .mode(if arch == Arch::X86 { x86::ArchMode::Mode32 } else { x86::ArchMode::Mode64 })
            .syntax(x86::ArchSyntax::Intel)
            .detail(true)
            .build(),
        Arch::Aarch64 => Capstone::new().arm64().mode(arm64::ArchMode::Arm).detail(true).build(),
        Arch::Riscv64 => Capstone::new()
            .riscv()
            .mode(riscv::ArchMode::RiscV64)
            .extra_mode([riscv::ArchExtraMode::RiscVC].into_iter())
            .detail(true)
            .build(),
    }
}

/// How many bits of its register a name means.
fn width_bits(arch: Arch, name: &str) -> u16 {
    match arch {
        Arch::X86_64 | Arch::X86 => crate::x86::width_bits(name),
        Arch::Aarch64 => crate::aarch64::width_bits(name),
        Arch::Riscv64 => 64,
    }
}
