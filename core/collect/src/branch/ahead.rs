//! The same for a sample anywhere before its branch: straight-line code is interpreted from the sampled registers on.
//!
//! Enters: the bytes from a sampled pc on; a sample's registers. Leaves: whether the first conditional branch that is
//! reached will be taken. What is not in the sample (memory, flags of what we do not model) is unknown, and so is what
//! depends on it; only a branch whose flags are known throughout counts. Whether they are depends on the code alone, so
//! a pc is decoded once, into the few operations that a sample there takes (below 100 ns).

mod decode;

use super::{Flags, Registers, Source, position};

/// Bytes of code that are looked at.
pub const AHEAD_BYTES: usize = 96;

/// How to decide the first conditional branch after a pc; what is remembered of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    operations: Box<[Operation]>,
    condition: u8,
    /// Bytes from the pc to the branch.
    distance: u8,
}

/// A register's part that is written.
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
    /// Zero-extended, or sign-extended, from so many bits.
    Move {
        to: Part,
        from: Source,
        from_bits: u8,
        signed: bool,
    },
    /// `to` stays as it is in a comparison or test.
    Arithmetic {
        kind: Kind,
        to: Part,
        from: Source,
        writes: bool,
    },
    /// `inc`, `dec`: the carry stays.
    Step {
        to: Part,
        up: bool,
    },
    Not {
        to: Part,
    },
    Negate {
        to: Part,
    },
    /// Left, or right, or right with the sign.
    Shift {
        to: Part,
        count: u8,
        left: bool,
        signed: bool,
    },
    /// `lea`.
    Address {
        to: Part,
        base: Option<u8>,
        index: Option<(u8, u8)>,
        displacement: i32,
    },
    /// `cmov`.
    Choose {
        to: Part,
        from: Source,
        condition: u8,
    },
    /// `setcc`.
    Set {
        to: Part,
        condition: u8,
    },
}

impl Ahead {
    /// The recipe for a sample whose pc has these bytes (x86-64), if the branch after it can be decided there.
    pub fn decode(code: &[u8]) -> Option<Ahead> {
        decode::ahead(code)
    }

    /// How far after the pc the branch is that can be decided there.
    pub fn branch_distance(code: &[u8]) -> Option<u8> {
        Ahead::decode(code).map(|ahead| ahead.distance)
    }

    /// Whether the branch was about to be taken.
    pub fn taken(&self, registers: &Registers) -> bool {
        let mut machine =
            Machine { registers: registers.clone(), flags: Flags::from_register(registers.0[super::FLAGS]) };
        self.operations.iter().for_each(|operation| machine.run(operation));
        machine.flags.satisfy(self.condition)
    }
}

struct Machine {
    registers: Registers,
    flags: Flags,
}

impl Machine {
    fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Move { to, from, from_bits, signed } => {
                let value = extend(from.value(&self.registers), from_bits, signed);
                self.write(to, value);
            }
            Operation::Arithmetic { kind, to, from, writes } => {
                let operands = super::Operands { left: to.place, right: from, width_bits: to.width_bits };
                let values = operands.values(&self.registers);
                let (result, flags) = values.arithmetic(kind);
                self.flags = flags;
                if writes {
                    self.write(to, result);
                }
            }
            Operation::Step { to, up } => {
                let operands =
                    super::Operands { left: to.place, right: Source::Constant(1), width_bits: to.width_bits };
                let kind = if up { Kind::Add } else { Kind::Sub };
                let (result, flags) = operands.values(&self.registers).arithmetic(kind);
                self.flags = Flags { carry: self.flags.carry, ..flags };
                self.write(to, result);
            }
            Operation::Not { to } => self.write(to, !to.place.value(&self.registers)),
            Operation::Negate { to } => {
                let operands =
                    super::Operands { left: Source::Constant(0), right: to.place, width_bits: to.width_bits };
                let (result, flags) = operands.values(&self.registers).arithmetic(Kind::Sub);
                self.flags = flags;
                self.write(to, result);
            }
            Operation::Shift { to, count, left, signed } => self.shift(to, count, left, signed),
            Operation::Address { to, base, index, displacement } => {
                let register = |r: u8| self.registers.0[position(r)];
                let base = base.map_or(0, register);
                let index = index.map_or(0, |(r, shift)| register(r) << shift);
                self.write(to, base.wrapping_add(index).wrapping_add(i64::from(displacement) as u64));
            }
            Operation::Choose { to, from, condition } => {
                // A condition that does not hold still clears the upper half of a 32-bit register.
                let source = if self.flags.satisfy(condition) { from } else { to.place };
                self.write(to, source.value(&self.registers));
            }
            Operation::Set { to, condition } => self.write(to, u64::from(self.flags.satisfy(condition))),
        }
    }

    /// By 1 and more; the overflow flag is known for a shift by 1 only, which `Decoder` sees to.
    fn shift(&mut self, to: Part, count: u8, left: bool, signed: bool) {
        let bits = u32::from(to.width_bits);
        let (count, mask) = (u32::from(count), u64::MAX >> (64 - bits));
        let value = to.place.value(&self.registers) & mask;
        let wide = extend(value, to.width_bits, signed);
        let result = if left {
            value << count
        } else if signed {
            (wide as i64 >> count) as u64
        } else {
            value >> count
        } & mask;
        let carry = if left { value >> (bits - count) & 1 } else { wide >> (count - 1) & 1 };
        let sign = |v: u64| v >> (bits - 1) & 1 == 1;
        let overflow = match (left, signed) {
            (true, _) => sign(result) != (carry == 1),
            (false, true) => false,
            (false, false) => sign(value),
        };
        self.flags = Flags {
            carry: carry == 1,
            overflow,
            zero: result == 0,
            sign: sign(result),
            parity: (result as u8).count_ones().is_multiple_of(2),
        };
        self.write(to, result);
    }

    fn write(&mut self, to: Part, value: u64) {
        let (number, shift) = match to.place {
            Source::Register(number) => (number, 0),
            Source::HighByte(number) => (number, 8),
            Source::Constant(_) => return,
        };
        let register = &mut self.registers.0[position(number)];
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

impl super::Values {
    fn arithmetic(&self, kind: Kind) -> (u64, Flags) {
        let (left, right) = (self.left, self.right);
        match kind {
            Kind::Sub => (left.wrapping_sub(right) & self.mask, self.compare()),
            Kind::And => (left & right, self.of_result(left & right)),
            Kind::Or => (left | right, self.of_result(left | right)),
            Kind::Xor => (left ^ right, self.of_result(left ^ right)),
            Kind::Add => {
                let result = left.wrapping_add(right) & self.mask;
                let overflow = (left ^ result) & (right ^ result) & self.sign != 0;
                (result, Flags { carry: result < left, overflow, ..self.of_result(result) })
            }
        }
    }
}
