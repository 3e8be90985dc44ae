//! Straight-line AArch64 code → the operations that decide the branch after it, as far as registers are known.
//!
//! Enters: bytes of code. Leaves: a [`NextBranch`]. If an instruction is not modelled, the registers that it may write are
//! unknown from then on. If these registers are not known either, decoding ends without a result. Encodings: Arm ARM (DDI
//! 0487), chapter C4.

use super::{Decision, Form, Kind, NextBranch, Operand, Operation, Source, What};

/// Number of instructions that are decoded.
const INSTRUCTIONS_MAX: usize = 24;
const STACK_POINTER: u8 = 31;
const ZERO: Source = Source::Constant(0);

/// Returns the first conditional branch that the code reaches, if registers at its beginning decide it.
pub fn next_branch(code: &[u8]) -> Option<NextBranch> {
    let mut decoder = Decoder { known: u32::MAX, flags_known: false, operations: Vec::new() };
    for (index, word) in code.chunks_exact(4).take(INSTRUCTIONS_MAX).enumerate() {
        let word = Word(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        if let Some(decision) = decision(word) {
            let is_known = match decision {
                Decision::Condition(_) => decoder.flags_known,
                Decision::Zero { source, .. } | Decision::Bit { source, .. } => decoder.knows(source),
            };
            let operations = decoder.operations.into_boxed_slice();
            return is_known.then_some(NextBranch { operations, decision, distance: (4 * index) as u8 });
        }
        decoder.instruction(word)?;
    }
    None
}

#[derive(Clone, Copy)]
struct Word(u32);

impl Word {
    fn bits(self, high: u32, low: u32) -> u32 {
        self.0 >> low & ((2 << (high - low)) - 1)
    }

    fn bit(self, at: u32) -> bool {
        self.0 >> at & 1 == 1
    }

    fn number(self, low: u32) -> u8 {
        self.bits(low + 4, low) as u8
    }

    /// Returns the register whose number is at bit `low`. Number 31 is the zero register.
    fn or_zero(self, low: u32) -> Source {
        if self.number(low) == 31 { ZERO } else { Source::Register(self.number(low)) }
    }

    /// Returns the register whose number is at bit `low`. Number 31 is the stack pointer.
    fn or_stack(self, low: u32) -> Source {
        Source::Register(self.number(low))
    }

    fn is_wide(self) -> bool {
        self.bit(31)
    }
}

/// Returns the condition of a conditional branch; `None` for other instructions.
fn decision(word: Word) -> Option<Decision> {
    let taken_if_zero = !word.bit(24);
    match word.0 & 0x7e00_0000 {
        0x3400_0000 => Some(Decision::Zero { source: word.or_zero(0), wide: word.is_wide(), taken_if_zero }),
        0x3600_0000 => {
            let bit = (word.bits(31, 31) << 5 | word.bits(23, 19)) as u8;
            Some(Decision::Bit { source: word.or_zero(0), bit, taken_if_zero })
        }
        _ if word.0 & 0xff00_0010 == 0x5400_0000 && word.bits(3, 1) != 7 => {
            Some(Decision::Condition(word.bits(3, 0) as u8))
        }
        _ => None,
    }
}

struct Decoder {
    /// Registers whose value is known, as bits; bit 31 is the stack pointer.
    known: u32,
    flags_known: bool,
    operations: Vec<Operation>,
}

impl Decoder {
    fn knows(&self, source: Source) -> bool {
        match source {
            Source::Register(number) => self.known >> number & 1 == 1,
            Source::Constant(_) => true,
        }
    }

    fn forget(&mut self, number: u8) {
        self.known &= !(1 << number);
    }

    /// Marks a destination register as unknown; number 31 drops the result.
    fn forget_general(&mut self, number: u8) {
        if number != STACK_POINTER {
            self.forget(number);
        }
    }

    /// Interprets an instruction. Returns `None` if its effects are unknown.
    fn instruction(&mut self, word: Word) -> Option<()> {
        match word.bits(28, 25) {
            0b1000 | 0b1001 => self.immediate(word),
            0b0101 | 0b1101 => self.register(word),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => self.memory(word),
            0b0111 | 0b1111 => self.vector(word),
            _ if word.0 & 0xffff_f01f == 0xd503_201f => self.forget(30), // hints; some sign the return address
            _ => return None,
        }
        Some(())
    }

    /// Adds an operation if everything that it reads is known; otherwise marks what it writes as unknown.
    fn push(&mut self, word: Word, to: Option<u8>, reads: &[Source], reads_flags: bool, what: What) {
        let sets_flags = matches!(what, What::Arithmetic { sets_flags: true, .. } | What::Compare { .. });
        let is_known = reads.iter().all(|&s| self.knows(s)) && (self.flags_known || !reads_flags);
        if sets_flags {
            self.flags_known = is_known;
        }
        if let Some(to) = to {
            self.known = self.known & !(1 << to) | u32::from(is_known) << to;
        }
        if is_known && (to.is_some() || sets_flags) {
            self.operations.push(Operation { to, wide: word.is_wide(), what });
        }
    }

    fn arithmetic(
        &mut self,
        word: Word,
        to: Option<u8>,
        kind: Kind,
        left: Source,
        right: Operand,
        flags: bool,
    ) {
        let inverted = false;
        let what = What::Arithmetic { kind, left, right, inverted, sets_flags: flags };
        self.push(word, to, &[left, right.source], false, what);
    }

    fn immediate(&mut self, word: Word) {
        let plain = |value: u64| Operand { source: Source::Constant(value), form: Form::Plain };
        let to_stack = |flags: bool| to(word, !flags);
        match word.bits(25, 23) {
            0b010 => {
                let (kind, flags) = (add_or_sub(word), word.bit(29));
                let value = u64::from(word.bits(21, 10)) << (12 * word.bits(22, 22));
                self.arithmetic(word, to_stack(flags), kind, word.or_stack(5), plain(value), flags);
            }
            0b100 => {
                let (kind, flags) = logical(word);
                match logical_constant(word) {
                    Some(value) => {
                        self.arithmetic(word, to_stack(flags), kind, word.or_zero(5), plain(value), flags);
                    }
                    None => self.forget(word.number(0)),
                }
            }
            0b101 => self.move_wide(word),
            0b110 => {
                let from = word.or_zero(5);
                let (rotate, last) = (word.bits(21, 16) as u8, word.bits(15, 10) as u8);
                let what = What::Bitfield { opc: word.bits(30, 29) as u8, from, rotate, last };
                let is_sound = word.is_wide() == word.bit(22) && (word.is_wide() || (rotate | last) < 32);
                let target = to(word, false).map_or(ZERO, Source::Register);
                // Only `bfm` reads the register that it writes.
                let reads = if word.bits(30, 29) == 1 { [from, target] } else { [from, from] };
                if is_sound && word.bits(30, 29) != 3 {
                    self.push(word, to(word, false), &reads, false, what);
                } else {
                    self.forget_general(word.number(0));
                }
            }
            _ => self.forget(word.number(0)), // addresses relative to the pc, tags, extr
        }
    }

    fn move_wide(&mut self, word: Word) {
        let shift = 16 * word.bits(22, 21) as u8;
        let value = u64::from(word.bits(20, 5)) << shift;
        let (kind, left, value) = match word.bits(30, 29) {
            0b00 => (Kind::Or, ZERO, !value),
            0b10 => (Kind::Or, ZERO, value),
            0b11 => (Kind::Insert { shift }, word.or_zero(0), value),
            _ => return self.forget_general(word.number(0)),
        };
        let right = Operand { source: Source::Constant(value), form: Form::Plain };
        self.arithmetic(word, to(word, false), kind, left, right, false);
    }

    fn register(&mut self, word: Word) {
        let shifted = || Operand {
            source: word.or_zero(16),
            form: Form::Shifted { kind: word.bits(23, 22) as u8, amount: word.bits(15, 10) as u8 },
        };
        let is_sound = word.is_wide() || !word.bit(15);
        let flags = word.bit(29);
        match word.bits(28, 24) {
            0b01010 if is_sound => {
                let (kind, sets_flags) = logical(word);
                let (left, right) = (word.or_zero(5), shifted());
                let what = What::Arithmetic { kind, left, right, inverted: word.bit(21), sets_flags };
                self.push(word, to(word, false), &[left, right.source], false, what);
            }
            0b01011 if !word.bit(21) && is_sound && word.bits(23, 22) != 3 => {
                self.arithmetic(word, to(word, false), add_or_sub(word), word.or_zero(5), shifted(), flags);
            }
            0b01011 if word.bits(23, 21) == 1 && word.bits(12, 10) <= 4 => {
                let form =
                    Form::Extended { option: word.bits(15, 13) as u8, amount: word.bits(12, 10) as u8 };
                let right = Operand { source: word.or_zero(16), form };
                self.arithmetic(word, to(word, !flags), add_or_sub(word), word.or_stack(5), right, flags);
            }
            0b11010 => self.conditional(word),
            _ => {
                self.forget_general(word.number(0));
                self.flags_known &= word.bits(28, 24) == 0b11011; // multiplications leave them
            }
        }
    }

    /// Interprets conditional selections and comparisons; the rest of their group is not modelled.
    fn conditional(&mut self, word: Word) {
        let condition = word.bits(15, 12) as u8;
        match word.bits(23, 21) {
            0b100 if !word.bit(29) && !word.bit(11) => {
                let (then, otherwise) = (word.or_zero(5), word.or_zero(16));
                let (invert, increment) = (word.bit(30), word.bit(10));
                let what = What::Select { condition, then, otherwise, invert, increment };
                self.push(word, to(word, false), &[then, otherwise], true, what);
            }
            0b010 if word.bit(29) && !word.bit(10) && !word.bit(4) => {
                let left = word.or_zero(5);
                let constant = Source::Constant(u64::from(word.bits(20, 16)));
                let right = if word.bit(11) { constant } else { word.or_zero(16) };
                let (negative, flags) = (!word.bit(30), word.bits(3, 0) as u8);
                let what = What::Compare { condition, left, right, negative, flags };
                self.push(word, None, &[left, right], true, what);
            }
            group => {
                self.forget_general(word.number(0));
                // Additions with carry and their like may set flags; divisions, shifts and reversals do not.
                self.flags_known &= group == 0b110 && !word.bit(29);
            }
        }
    }

    fn memory(&mut self, word: Word) {
        let (is_vector, base) = (word.bit(26), word.number(5));
        let written = |load: bool| (load && !is_vector).then(|| word.number(0));
        let (first, second, updates) = match (word.bits(29, 27), word.bit(24)) {
            (0b111, true) => (written(word.bits(23, 22) != 0), None, false),
            (0b111, false) if !word.bit(21) => (written(word.bits(23, 22) != 0), None, word.bit(10)),
            (0b111, false) if word.bits(11, 10) == 0b10 => (written(word.bits(23, 22) != 0), None, false),
            (0b101, _) => {
                let load = word.bit(22);
                (written(load), (load && !is_vector).then(|| word.number(10)), word.bit(23))
            }
            (0b011, false) => (written(true), None, false),
            _ => {
                // Exclusive and atomic accesses and structures may write any register that they name.
                [0, 10, 16].iter().for_each(|&low| self.forget_general(word.number(low)));
                (None, None, true)
            }
        };
        first.into_iter().chain(second).for_each(|number| self.forget_general(number));
        if updates {
            self.forget(base);
        }
    }

    /// Some vector instructions write a general register, some the flags.
    fn vector(&mut self, word: Word) {
        self.forget_general(word.number(0));
        let compares = word.0 & 0x5f20_0c00 == 0x1e20_0400 || word.0 & 0x5f20_fc00 == 0x1e20_2000;
        self.flags_known &= !compares;
    }
}

/// Returns the destination. With `stack`, register 31 is the stack pointer; otherwise it drops the result.
fn to(word: Word, stack: bool) -> Option<u8> {
    let number = word.number(0);
    (stack || number != 31).then_some(number)
}

fn add_or_sub(word: Word) -> Kind {
    if word.bit(30) { Kind::Sub } else { Kind::Add }
}

fn logical(word: Word) -> (Kind, bool) {
    match word.bits(30, 29) {
        0b00 => (Kind::And, false),
        0b01 => (Kind::Or, false),
        0b10 => (Kind::Xor, false),
        _ => (Kind::And, true),
    }
}

/// Returns a logical constant: a rotated run of ones, repeated (DecodeBitMasks in the Arm ARM).
fn logical_constant(word: Word) -> Option<u64> {
    let (rotate, ones) = (word.bits(21, 16), word.bits(15, 10));
    let lengths = word.bits(22, 22) << 6 | (!ones & 63);
    let element_bits = 1u32 << 31u32.checked_sub(lengths.leading_zeros()).filter(|&l| l > 0)?;
    let mask = element_bits - 1;
    let (ones, rotate) = (ones & mask, rotate & mask);
    if ones == mask || (element_bits == 64 && !word.is_wide()) {
        return None;
    }
    let run = (1u64 << (ones + 1)) - 1;
    let element_mask = u64::MAX >> (64 - element_bits);
    let up = if rotate == 0 { 0 } else { run << (element_bits - rotate) };
    let element = (run >> rotate | up) & element_mask;
    Some((0..64 / element_bits).fold(0, |all, k| all | element << (k * element_bits)))
}
