//! The next conditional branch of AArch64 code.
//!
//! perf samples no flags here, so a `b.cond` is decided only where the instruction that sets its flags comes after the pc; what
//! is loaded from memory is unknown. Registers are x0 to x30, then the stack pointer.

mod decode;

/// Number of registers that are interpreted.
const REGISTER_COUNT: usize = 32;

/// The first conditional branch after a pc, and how to decide it from the registers there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextBranch {
    operations: Box<[Operation]>,
    decision: Decision,
    distance: u8,
}

/// An operand before it is shifted or extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Register(u8),
    Constant(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    /// Shifted by `lsl`, `lsr`, `asr` or `ror`, numbered as they are encoded.
    Shifted {
        kind: u8,
        amount: u8,
    },
    /// Extended by `uxtb` … `sxtx`, numbered as they are encoded, then shifted left.
    Extended {
        option: u8,
        amount: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operand {
    source: Source,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Add,
    Sub,
    And,
    Or,
    Xor,
    /// `movk`: replaces the 16 bits at `shift`.
    Insert {
        shift: u8,
    },
}

/// An instruction that the branch may depend on. `to` is `None` where the result is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    to: Option<u8>,
    wide: bool,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Arithmetic {
        kind: Kind,
        left: Source,
        right: Operand,
        /// Whether the right operand is complemented.
        inverted: bool,
        sets_flags: bool,
    },
    /// `sbfm`, `bfm` or `ubfm`, distinguished by `opc`.
    Bitfield { opc: u8, from: Source, rotate: u8, last: u8 },
    /// `csel`, `csinc`, `csinv`, `csneg`.
    Select { condition: u8, then: Source, otherwise: Source, invert: bool, increment: bool },
    /// `ccmp`, `ccmn`.
    Compare { condition: u8, left: Source, right: Source, negative: bool, flags: u8 },
}

/// The condition of the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Condition(u8),
    /// `cbz`, `cbnz`.
    Zero {
        source: Source,
        wide: bool,
        taken_if_zero: bool,
    },
    /// `tbz`, `tbnz`.
    Bit {
        source: Source,
        bit: u8,
        taken_if_zero: bool,
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

    /// Whether a sample at this pc is on the branch.
    pub fn is_at_branch(&self) -> bool {
        self.distance == 0
    }

    /// Whether the branch was about to be taken, given the registers of a sample; missing registers count as 0.
    pub fn taken(&self, registers: &[u64]) -> bool {
        let mut machine = Machine { registers: [0; REGISTER_COUNT], flags: Flags::default() };
        machine.registers.iter_mut().zip(registers).for_each(|(to, from)| *to = *from);
        self.operations.iter().for_each(|operation| machine.run(operation));
        match self.decision {
            Decision::Condition(condition) => machine.flags.satisfy(condition),
            Decision::Zero { source, wide, taken_if_zero } => {
                (masked(machine.value(source), wide) == 0) == taken_if_zero
            }
            Decision::Bit { source, bit, taken_if_zero } => {
                (machine.value(source) >> bit & 1 == 0) == taken_if_zero
            }
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Flags {
    negative: bool,
    zero: bool,
    carry: bool,
    overflow: bool,
}

impl Flags {
    fn from_bits(bits: u8) -> Flags {
        let bit = |at: u8| bits >> at & 1 == 1;
        Flags { negative: bit(3), zero: bit(2), carry: bit(1), overflow: bit(0) }
    }

    fn satisfy(self, condition: u8) -> bool {
        let Flags { negative, zero, carry, overflow } = self;
        let holds = match condition >> 1 {
            0 => zero,
            1 => carry,
            2 => negative,
            3 => overflow,
            4 => carry && !zero,
            5 => negative == overflow,
            6 => negative == overflow && !zero,
            _ => return true,
        };
        holds != (condition & 1 == 1)
    }
}

struct Machine {
    registers: [u64; REGISTER_COUNT],
    flags: Flags,
}

impl Machine {
    fn value(&self, source: Source) -> u64 {
        match source {
            Source::Register(number) => self.registers[usize::from(number & 31)],
            Source::Constant(value) => value,
        }
    }

    fn run(&mut self, operation: &Operation) {
        let wide = operation.wide;
        let result = match operation.what {
            What::Arithmetic { kind, left, right, inverted, sets_flags } => {
                let left = masked(self.value(left), wide);
                let right = shaped(self.value(right.source), right.form, wide);
                let right = masked(if inverted { !right } else { right }, wide);
                let (result, flags) = arithmetic(kind, left, right, wide);
                if sets_flags {
                    self.flags = flags;
                }
                result
            }
            What::Bitfield { opc, from, rotate, last } => {
                let old = operation.to.map_or(0, |to| self.registers[usize::from(to & 31)]);
                bitfield(opc, old, masked(self.value(from), wide), rotate, last, wide)
            }
            What::Select { condition, then, otherwise, invert, increment } => {
                if self.flags.satisfy(condition) {
                    self.value(then)
                } else {
                    let value = self.value(otherwise);
                    let value = if invert { !value } else { value };
                    value.wrapping_add(u64::from(increment))
                }
            }
            What::Compare { condition, left, right, negative, flags } => {
                let (left, right) = (masked(self.value(left), wide), masked(self.value(right), wide));
                let kind = if negative { Kind::Add } else { Kind::Sub };
                self.flags = if self.flags.satisfy(condition) {
                    arithmetic(kind, left, right, wide).1
                } else {
                    Flags::from_bits(flags)
                };
                return;
            }
        };
        if let Some(to) = operation.to {
            self.registers[usize::from(to & 31)] = masked(result, wide);
        }
    }
}

fn masked(value: u64, wide: bool) -> u64 {
    if wide { value } else { value & 0xffff_ffff }
}

fn sign(value: u64, wide: bool) -> bool {
    value >> (if wide { 63 } else { 31 }) & 1 == 1
}

fn shaped(value: u64, form: Form, wide: bool) -> u64 {
    match form {
        Form::Plain => value,
        Form::Shifted { kind, amount } => {
            let (value, amount) = (masked(value, wide), u32::from(amount));
            match (kind, wide) {
                (0, _) => value << amount,
                (1, _) => value >> amount,
                (2, true) => (value as i64 >> amount) as u64,
                (2, false) => (value as u32 as i32 >> amount) as u32 as u64,
                (_, true) => value.rotate_right(amount),
                (_, false) => u64::from((value as u32).rotate_right(amount)),
            }
        }
        Form::Extended { option, amount } => {
            let unused = 64 - (8 << (option & 3));
            let up = value << unused;
            let extended = if option & 4 == 0 { up >> unused } else { (up as i64 >> unused) as u64 };
            extended << amount
        }
    }
}

fn arithmetic(kind: Kind, left: u64, right: u64, wide: bool) -> (u64, Flags) {
    let of_result = |result: u64, carry: bool, overflow: bool| {
        let result = masked(result, wide);
        (result, Flags { negative: sign(result, wide), zero: result == 0, carry, overflow })
    };
    let sum = |right: u64, carry: u64| {
        let full = u128::from(left) + u128::from(right) + u128::from(carry);
        let result = masked(full as u64, wide);
        let is_carried = full >> (if wide { 64 } else { 32 }) != 0;
        of_result(result, is_carried, sign((left ^ result) & (right ^ result), wide))
    };
    match kind {
        Kind::Add => sum(right, 0),
        Kind::Sub => sum(masked(!right, wide), 1),
        Kind::And => of_result(left & right, false, false),
        Kind::Or => of_result(left | right, false, false),
        Kind::Xor => of_result(left ^ right, false, false),
        Kind::Insert { shift } => of_result(left & !(0xffff << shift) | right, false, false),
    }
}

/// Moves a run of bits from one place to another, as `sbfm`, `bfm` and `ubfm` do (DecodeBitMasks in the Arm ARM, DDI 0487).
fn bitfield(opc: u8, old: u64, value: u64, rotate: u8, last: u8, wide: bool) -> u64 {
    let bits = if wide { 64 } else { 32 };
    let (rotate, last) = (u32::from(rotate), u32::from(last));
    let ones = |count: u32| if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    // The field's width, where it comes from and where it goes.
    let (width, from, to) =
        if last >= rotate { (last - rotate + 1, rotate, 0) } else { (last + 1, 0, bits - rotate) };
    let field = value >> from & ones(width);
    let placed = field << to;
    match opc {
        0 if field >> (width - 1) & 1 == 1 => placed | !ones(width + to),
        1 => old & !(ones(width) << to) | placed,
        _ => placed,
    }
}
