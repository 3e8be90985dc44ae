//! Registers as small numbers, the same for every width of one register.

use std::fmt;

/// An instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// AArch64.
    Aarch64,
    /// RISC-V, 64 bits.
    Riscv64,
}

impl Arch {
    /// As `uname -m` spells it: `x86_64`, `aarch64`, `riscv64`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
        }
    }
}

/// A register of an [`Arch`], numbered densely below 128; parts of one register (`al`, `eax`, `rax`; `w0`, `x0`;
/// `xmm1`, `ymm1`) share a number. Flags are one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u8);

/// A set of registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegisterSet(pub u128);

impl RegisterSet {
    /// No register.
    pub const EMPTY: RegisterSet = RegisterSet(0);

    /// Adds one.
    pub fn insert(&mut self, register: Register) {
        self.0 |= 1 << (register.0 & 127);
    }

    /// Whether it is in.
    pub fn contains(self, register: Register) -> bool {
        self.0 >> (register.0 & 127) & 1 == 1
    }

    /// In both.
    pub fn intersection(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 & other.0)
    }

    /// In either.
    pub fn union(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 | other.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each one, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        (0..128).map(Register).filter(move |r| self.contains(*r))
    }
}

impl FromIterator<Register> for RegisterSet {
    fn from_iter<I: IntoIterator<Item = Register>>(registers: I) -> Self {
        let mut set = RegisterSet::EMPTY;
        registers.into_iter().for_each(|r| set.insert(r));
        set
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}
