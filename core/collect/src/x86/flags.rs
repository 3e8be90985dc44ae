//! The arithmetic flags of x86-64.

/// The arithmetic flags, at their bits in the RFLAGS register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u64);

impl Flags {
    pub const CARRY: u64 = 1;
    pub const PARITY: u64 = 1 << 2;
    pub const ADJUST: u64 = 1 << 4;
    pub const ZERO: u64 = 1 << 6;
    pub const SIGN: u64 = 1 << 7;
    pub const OVERFLOW: u64 = 1 << 11;
    /// All flags that an arithmetic instruction sets.
    pub const ARITHMETIC: u64 =
        Self::CARRY | Self::PARITY | Self::ADJUST | Self::ZERO | Self::SIGN | Self::OVERFLOW;

    /// Returns the flags after a logical operation of `bits` bits: carry and overflow are clear.
    pub fn from_result(result: u64, bits: u32) -> Flags {
        let result = truncated(result, bits);
        Flags(0)
            .with(Self::PARITY, (result as u8).count_ones().is_multiple_of(2))
            .with(Self::ZERO, result == 0)
            .with(Self::SIGN, result >> (bits - 1) & 1 == 1)
    }

    /// Returns the flags after `left + right`.
    pub fn from_addition(left: u64, right: u64, bits: u32) -> Flags {
        let (left, right) = (truncated(left, bits), truncated(right, bits));
        let result = truncated(left.wrapping_add(right), bits);
        let is_overflow = (left ^ result) & (right ^ result) & 1 << (bits - 1) != 0;
        Flags::from_result(result, bits)
            .with(Self::CARRY, result < left)
            .with(Self::ADJUST, (left ^ right ^ result) & 0x10 != 0)
            .with(Self::OVERFLOW, is_overflow)
    }

    /// Returns the flags after `left - right`, which is also what a comparison sets.
    pub fn from_subtraction(left: u64, right: u64, bits: u32) -> Flags {
        let (left, right) = (truncated(left, bits), truncated(right, bits));
        let result = left.wrapping_sub(right);
        let is_overflow = (left ^ right) & (left ^ result) & 1 << (bits - 1) != 0;
        Flags::from_result(result, bits)
            .with(Self::CARRY, left < right)
            .with(Self::ADJUST, (left ^ right ^ result) & 0x10 != 0)
            .with(Self::OVERFLOW, is_overflow)
    }

    /// Sets or clears the flags in `mask`.
    pub fn with(self, mask: u64, is_set: bool) -> Flags {
        Flags(if is_set { self.0 | mask } else { self.0 & !mask })
    }

    /// Returns whether any flag in `mask` is set.
    pub fn has(self, mask: u64) -> bool {
        self.0 & mask != 0
    }

    /// Returns whether a condition holds. `condition` is the low four bits of the opcode of a `jcc`, `setcc` or `cmovcc`: eight
    /// conditions, each followed by its negation (Intel SDM volume 1, appendix B).
    pub fn satisfy(self, condition: u8) -> bool {
        let is_less = self.has(Self::SIGN) != self.has(Self::OVERFLOW);
        let holds = match condition >> 1 {
            0 => self.has(Self::OVERFLOW),
            1 => self.has(Self::CARRY),
            2 => self.has(Self::ZERO),
            3 => self.has(Self::CARRY | Self::ZERO),
            4 => self.has(Self::SIGN),
            5 => self.has(Self::PARITY),
            6 => is_less,
            _ => self.has(Self::ZERO) || is_less,
        };
        holds != (condition & 1 == 1)
    }
}

/// Keeps the low `bits` bits.
fn truncated(value: u64, bits: u32) -> u64 {
    value & u64::MAX >> (64 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_set_the_flags_of_a_subtraction() {
        for (a, b) in [(1_u64, 2_u64), (0x80, 1), (5, 5), (0xff, 0x7f)] {
            let expected = (a as i8).overflowing_sub(b as i8);
            let flags = Flags::from_subtraction(a, b, 8);
            assert_eq!(flags.has(Flags::OVERFLOW), expected.1, "{a} {b}");
            assert_eq!(flags.has(Flags::SIGN), expected.0 < 0, "{a} {b}");
            assert_eq!((flags.has(Flags::CARRY), flags.has(Flags::ZERO)), (a < b, a == b));
        }
    }
}
