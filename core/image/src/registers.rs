//! Registers as small numbers. All widths of one register share a number.

use std::borrow::Cow;

pub mod aarch64;
mod register;
pub mod riscv;
pub mod x86;

pub use register::Register;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86, whose registers are halves of those of x86-64.
    X86,
    /// 64-bit ARM.
    Aarch64,
    /// 64-bit RISC-V.
    Riscv64,
}

impl Arch {
    /// Returns the name as `uname -m` spells it: `x86_64`, `i386`, `aarch64`, `riscv64`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::X86 => "i386",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
        }
    }

    /// Returns the stack pointer, which pushes, calls (x86) and stack slots use.
    pub fn stack_pointer(self) -> Register {
        match self {
            Arch::X86_64 | Arch::X86 => x86::RSP,
            Arch::Aarch64 => aarch64::SP,
            Arch::Riscv64 => riscv::SP,
        }
    }

    /// Returns the program counter, the base of pc-relative operands.
    pub fn instruction_pointer(self) -> Register {
        match self {
            Arch::X86_64 | Arch::X86 => x86::RIP,
            Arch::Aarch64 => aarch64::PC,
            Arch::Riscv64 => riscv::PC,
        }
    }

    /// Returns the register of arithmetic flags, if the architecture has one.
    pub fn flags(self) -> Option<Register> {
        match self {
            Arch::X86_64 | Arch::X86 => Some(x86::FLAGS),
            Arch::Aarch64 => Some(aarch64::NZCV),
            Arch::Riscv64 => None,
        }
    }

    /// Returns the register that always reads 0. It appears as an operand, but never among the registers read or written.
    pub fn zero(self) -> Option<Register> {
        match self {
            Arch::X86_64 | Arch::X86 => None,
            Arch::Aarch64 => Some(aarch64::ZERO),
            Arch::Riscv64 => Some(riscv::ZERO),
        }
    }
}

impl Register {
    /// Returns the name of the whole register (`rax`, `zmm3`, `x5`, `v7`, `a0`), or `?<number>` if `arch` has no such
    /// register.
    pub fn name(self, arch: Arch) -> Cow<'static, str> {
        match arch {
            Arch::X86_64 | Arch::X86 => x86::name(self),
            Arch::Aarch64 => aarch64::name(self),
            Arch::Riscv64 => riscv::name(self),
        }
    }

    /// Returns the register that a disassembler calls `name`; a name of a part stands for the whole register (`eax` →
    /// `rax`).
    pub fn named(arch: Arch, name: &str) -> Option<Register> {
        match arch {
            Arch::X86_64 | Arch::X86 => x86::named(name),
            Arch::Aarch64 => aarch64::named(name),
            Arch::Riscv64 => riscv::named(name),
        }
    }
}

/// A set of registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegisterSet(pub u128);

impl RegisterSet {
    /// The empty set.
    pub const EMPTY: RegisterSet = RegisterSet(0);

    /// Adds a register to the set.
    pub fn insert(&mut self, register: Register) {
        self.0 |= 1 << (register.0 & 127);
    }

    /// Removes a register from the set.
    pub fn remove(&mut self, register: Register) {
        self.0 &= !(1 << (register.0 & 127));
    }

    /// Returns whether the set contains a register.
    pub fn contains(self, register: Register) -> bool {
        self.0 >> (register.0 & 127) & 1 == 1
    }

    /// Returns the registers that are in both sets.
    pub fn intersection(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 & other.0)
    }

    /// Returns the registers that are in either set.
    pub fn union(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 | other.0)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the registers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let first = (rest != 0).then(|| Register(rest.trailing_zeros() as u8));
            rest &= rest.wrapping_sub(1);
            first
        })
    }
}

impl FromIterator<Register> for RegisterSet {
    fn from_iter<I: IntoIterator<Item = Register>>(registers: I) -> Self {
        let mut set = RegisterSet::EMPTY;
        registers.into_iter().for_each(|r| set.insert(r));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_number() {
        for arch in [Arch::X86_64, Arch::Aarch64, Arch::Riscv64] {
            for number in 0..128 {
                let name = Register(number).name(arch);
                if !name.starts_with('?') {
                    assert_eq!(Register::named(arch, &name), Some(Register(number)), "{name}");
                }
            }
        }
    }

    #[test]
    fn parts_share_the_whole_register() {
        for (arch, part, whole) in [
            (Arch::X86_64, "al", "rax"),
            (Arch::X86_64, "ah", "rax"),
            (Arch::X86_64, "r9d", "r9"),
            (Arch::X86_64, "sil", "rsi"),
            (Arch::X86_64, "xmm17", "zmm17"),
            (Arch::Aarch64, "w30", "x30"),
            (Arch::Aarch64, "wsp", "sp"),
            (Arch::Aarch64, "d7", "v7"),
            (Arch::Riscv64, "x10", "a0"),
        ] {
            assert_eq!(Register::named(arch, part), Register::named(arch, whole), "{part}");
        }
    }
}
