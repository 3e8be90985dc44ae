//! The number of a register.

use std::fmt;

/// A register of an [`Arch`](crate::Arch). Numbers are dense and below 128. Parts of one register (`al`, `eax`, `rax`; `w0`,
/// `x0`; `xmm1`, `ymm1`) share a number, and all flags are one register. The numbers are stable: [`x86`](crate::x86),
/// [`aarch64`](crate::aarch64), [`riscv`](crate::riscv).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u8);

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// Parses `prefix` followed by a plain decimal number below `count`. Returns the register with this number above `first`.
pub(super) fn numbered(name: &str, prefix: &str, first: u8, count: u8) -> Option<Register> {
    let digits = name.strip_prefix(prefix)?;
    let number: u8 = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
    (number < count).then(|| Register(first + number))
}
