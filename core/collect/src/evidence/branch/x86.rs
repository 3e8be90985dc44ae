//! The next conditional branch of x86-64 code.
//!
//! A sample carries the flags, so that a branch is decided where the sample is on the `jcc` itself, too. A comparison or test of
//! registers and constants that a `jcc` follows at once is macro-fused with it: the `jcc` is almost never sampled then (3 of
//! 50,044 samples), and a sample on the comparison counts as one on the branch.

mod decode;

use crate::{
    registers::{FLAGS, position},
    x86::{Flags, MemoryOperand},
};

/// The first conditional branch after a pc, and how to decide it from the registers there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextBranch {
    operations: Box<[Operation]>,
    /// The low four bits of the branch's opcode.
    condition: u8,
    distance: u8,
    is_at_branch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A general register, by hardware number.
    Register(u8),
    /// Bits 8 to 15 of a register (`ah`, `ch`, `dh`, `bh`).
    HighByte(u8),
    Constant(i32),
}

/// The part of a register that an operation writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    place: Source,
    width_bits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Sub,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// A move that extends the source from `from_bits`, with its sign or with zeros.
    Move {
        to: Part,
        from: Source,
        from_bits: u8,
        signed: bool,
    },
    /// Arithmetic or logic. A comparison or test does not write `to`.
    Arithmetic {
        kind: Kind,
        to: Part,
        from: Source,
        writes: bool,
    },
    /// `inc` (`up`) or `dec`, which leave the carry flag.
    Increment {
        to: Part,
        up: bool,
    },
    Not {
        to: Part,
    },
    Negate {
        to: Part,
    },
    /// A shift to the left or to the right, the latter with the sign or with zeros.
    Shift {
        to: Part,
        count: u8,
        left: bool,
        signed: bool,
    },
    /// `lea`.
    EffectiveAddress {
        to: Part,
        address: MemoryOperand,
    },
    /// `cmovcc`.
    MoveIf {
        to: Part,
        from: Source,
        condition: u8,
    },
    /// `setcc`.
    SetIf {
        to: Part,
        condition: u8,
    },
}

impl NextBranch {
    /// Decodes the code from a pc on. Returns `None` if registers there do not decide the next branch.
    pub fn decode(code: &[u8]) -> Option<NextBranch> {
        decode::next_branch(code)
    }

    /// Returns the number of bytes from the pc to the branch.
    pub fn distance(&self) -> u8 {
        self.distance
    }

    /// Whether a sample at this pc counts as one on the branch: it is on the branch, or on a comparison that is fused with it.
    pub fn is_at_branch(&self) -> bool {
        self.is_at_branch
    }

    /// Whether the branch was about to be taken, given the registers of a sample; missing registers count as 0.
    pub fn taken(&self, registers: &[u64]) -> bool {
        let value = |at: usize| registers.get(at).copied().unwrap_or(0);
        let general = std::array::from_fn(|number| value(position(number as u8)));
        let mut machine = Machine { general, flags: Flags(value(FLAGS)) };
        self.operations.iter().for_each(|operation| machine.run(operation));
        machine.flags.satisfy(self.condition)
    }
}

struct Machine {
    general: [u64; 16],
    flags: Flags,
}

impl Machine {
    fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Move { to, from, from_bits, signed } => {
                self.write(to, extend(self.value(from), from_bits, signed));
            }
            Operation::Arithmetic { kind, to, from, writes } => {
                let result = self.arithmetic(kind, to.place, from, to.width_bits);
                if writes {
                    self.write(to, result);
                }
            }
            Operation::Increment { to, up } => {
                let carry = self.flags.has(Flags::CARRY);
                let kind = if up { Kind::Add } else { Kind::Sub };
                let result = self.arithmetic(kind, to.place, Source::Constant(1), to.width_bits);
                self.flags = self.flags.with(Flags::CARRY, carry);
                self.write(to, result);
            }
            Operation::Not { to } => self.write(to, !self.value(to.place)),
            Operation::Negate { to } => {
                let result = self.arithmetic(Kind::Sub, Source::Constant(0), to.place, to.width_bits);
                self.write(to, result);
            }
            Operation::Shift { to, count, left, signed } => self.shift(to, count, left, signed),
            Operation::EffectiveAddress { to, address } => {
                self.write(to, address.effective_address(0, |number| self.general[usize::from(number & 15)]));
            }
            Operation::MoveIf { to, from, condition } => {
                // A condition that does not hold still clears the upper half of a 32-bit register.
                let source = if self.flags.satisfy(condition) { from } else { to.place };
                self.write(to, self.value(source));
            }
            Operation::SetIf { to, condition } => self.write(to, u64::from(self.flags.satisfy(condition))),
        }
    }

    fn value(&self, source: Source) -> u64 {
        match source {
            Source::Register(number) => self.general[usize::from(number & 15)],
            Source::HighByte(number) => self.general[usize::from(number & 15)] >> 8,
            Source::Constant(constant) => i64::from(constant) as u64,
        }
    }

    /// Sets the flags and returns the result, whose bits above the width are undefined.
    fn arithmetic(&mut self, kind: Kind, left: Source, right: Source, width_bits: u8) -> u64 {
        let (left, right, bits) = (self.value(left), self.value(right), u32::from(width_bits));
        let (result, flags) = match kind {
            Kind::Add => (left.wrapping_add(right), Flags::from_addition(left, right, bits)),
            Kind::Sub => (left.wrapping_sub(right), Flags::from_subtraction(left, right, bits)),
            Kind::And => (left & right, Flags::from_result(left & right, bits)),
            Kind::Or => (left | right, Flags::from_result(left | right, bits)),
            Kind::Xor => (left ^ right, Flags::from_result(left ^ right, bits)),
        };
        self.flags = flags;
        result
    }

    /// Shifts by 1 or more. The overflow flag is defined for a shift by 1 only, and no compiler reads it after others.
    fn shift(&mut self, to: Part, count: u8, left: bool, signed: bool) {
        let bits = u32::from(to.width_bits);
        let count = u32::from(count);
        let value = extend(self.value(to.place), to.width_bits, signed);
        let (result, carry) = if left {
            (value << count, value >> (bits - count) & 1)
        } else if signed {
            ((value as i64 >> count) as u64, value >> (count - 1) & 1)
        } else {
            (value >> count, value >> (count - 1) & 1)
        };
        let sign = |v: u64| v >> (bits - 1) & 1 == 1;
        let overflow = match (left, signed) {
            (true, _) => sign(result) != (carry == 1),
            (false, true) => false,
            (false, false) => sign(value),
        };
        let flags = Flags::from_result(result, bits);
        self.flags = flags.with(Flags::CARRY, carry == 1).with(Flags::OVERFLOW, overflow);
        self.write(to, result);
    }

    fn write(&mut self, to: Part, value: u64) {
        let (number, shift) = match to.place {
            Source::Register(number) => (number, 0),
            Source::HighByte(number) => (number, 8),
            Source::Constant(_) => return,
        };
        let register = &mut self.general[usize::from(number & 15)];
        *register = match to.width_bits {
            64 => value,
            32 => value & 0xffff_ffff,
            bits => {
                let mask = (u64::MAX >> (64 - u32::from(bits))) << shift;
                *register & !mask | value << shift & mask
            }
        };
    }
}

fn extend(value: u64, from_bits: u8, signed: bool) -> u64 {
    let up = 64 - u32::from(from_bits);
    if signed { ((value << up) as i64 >> up) as u64 } else { value << up >> up }
}
