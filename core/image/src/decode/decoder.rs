//! Capstone's handle for an instruction set, and the mapping of its registers to ours.

use capstone::RegId;
use capstone::prelude::*;
use smallvec::SmallVec;

use crate::{Arch, Flow, Operand, Register, RegisterSet};

/// Upper limit of Capstone's register numbers for all architectures.
const CAPSTONE_REGISTERS_MAX: u16 = 1024;

/// A Capstone handle for one instruction set.
pub(super) struct Decoder {
    pub(super) arch: Arch,
    pub(super) capstone: Capstone,
    /// Our register and the width of the part in bits, by Capstone's number.
    registers: Vec<Option<(Register, u16)>>,
}

/// Results that the code for each architecture fills in.
pub(super) struct Parts {
    pub(super) reads: RegisterSet,
    pub(super) writes: RegisterSet,
    pub(super) operands: SmallVec<[Operand; 3]>,
    pub(super) flow: Flow,
}

impl Decoder {
    pub(super) fn new(arch: Arch) -> Option<Decoder> {
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

    pub(super) fn register(&self, id: RegId) -> Option<Register> {
        self.sized_register(id).map(|(register, _)| register)
    }

    pub(super) fn sized_register(&self, id: RegId) -> Option<(Register, u16)> {
        self.registers.get(usize::from(id.0)).copied().flatten()
    }

    pub(super) fn set(&self, ids: &[RegId]) -> RegisterSet {
        ids.iter().filter_map(|id| self.register(*id)).collect()
    }
}

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

/// Returns the width in bits of the part of a register that a name stands for.
fn width_bits(arch: Arch, name: &str) -> u16 {
    match arch {
        Arch::X86_64 | Arch::X86 => crate::x86::width_bits(name),
        Arch::Aarch64 => crate::aarch64::width_bits(name),
        Arch::Riscv64 => 64,
    }
}
