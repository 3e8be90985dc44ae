//! Straight-line x86-64 code → the operations that decide the branch after it, as far as registers are known.
//!
//! Enters: bytes of code. Leaves: a [`NextBranch`]. If an instruction is not modelled, its length must be known, and the
//! registers that it may write are unknown from then on. If these are not known either, decoding ends without a result.

use super::{Kind, NextBranch, Operation, Part, Source};
use crate::x86::{Base, MemoryOperand, RSP, Segment};

/// Number of instructions that are interpreted before the branch.
const INSTRUCTIONS_MAX: usize = 16;

/// Returns the first conditional branch that the code reaches, if registers at its beginning decide it.
pub fn next_branch(code: &[u8]) -> Option<NextBranch> {
    let mut decoder = Decoder { code, at: 0, known: u16::MAX, flags_known: true, operations: Vec::new() };
    for before in 0..=INSTRUCTIONS_MAX {
        if let Some(condition) = condition(code.get(decoder.at..)?) {
            let is_comparison =
                matches!(decoder.operations[..], [Operation::Arithmetic { writes: false, .. }]);
            return decoder.flags_known.then(|| NextBranch {
                operations: decoder.operations.into_boxed_slice(),
                condition,
                distance: decoder.at as u8, // Less than CODE_BYTES.
                is_at_branch: before == 0 || before == 1 && is_comparison,
            });
        }
        decoder.instruction()?;
    }
    None
}

/// Returns the condition of the `jcc` at the start of `code`.
fn condition(code: &[u8]) -> Option<u8> {
    match *code {
        [op @ 0x70..=0x7f, _, ..] => Some(op & 15),
        [0x0f, op @ 0x80..=0x8f, _, _, _, _, ..] => Some(op & 15),
        // A `jcc` with a branch hint (0x2e, 0x3e) or BND (0xf2) before it is rare and left undecided.
        _ => None,
    }
}

/// Decodes straight-line code, keeping track of what is known.
struct Decoder<'a> {
    code: &'a [u8],
    at: usize,
    /// Registers whose whole value is known, as bits.
    known: u16,
    flags_known: bool,
    operations: Vec<Operation>,
}

/// Prefixes of an instruction.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand16: bool,
    repeat: bool,
    rex: Option<u8>,
}

/// The operands that a ModRM byte and what follows it name.
#[derive(Clone, Copy)]
struct Operands {
    /// The register field.
    reg: u8,
    rm: Rm,
}

/// The operand that is a register or in memory.
#[derive(Clone, Copy)]
enum Rm {
    Register(u8),
    Memory(MemoryOperand),
}

impl Decoder<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = self.code.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn constant(&mut self, bytes: usize) -> Option<i32> {
        let found = self.code.get(self.at..self.at + bytes)?;
        self.at += bytes;
        Some(match *found {
            [a] => i32::from(a as i8),
            [a, b] => i32::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
            _ => return None,
        })
    }

    /// Interprets one instruction other than a conditional branch. Returns `None` if it leaves straight-line code or is unknown.
    fn instruction(&mut self) -> Option<()> {
        let mut prefixes = Prefixes::default();
        let opcode = loop {
            match self.byte()? {
                0x66 => prefixes.operand16 = true,
                0xf3 | 0xf2 => prefixes.repeat = true,
                rex @ 0x40..=0x4f => {
                    prefixes.rex = Some(rex);
                    break self.byte()?;
                }
                opcode => break opcode,
            }
        };
        match opcode {
            0x0f => self.two_byte(prefixes),
            0xc5 | 0xc4 => self.vex(opcode),
            _ => self.one_byte(opcode, prefixes),
        }
    }

    fn one_byte(&mut self, opcode: u8, prefixes: Prefixes) -> Option<()> {
        let width = prefixes.width(opcode & 1 == 0);
        match opcode {
            0x00..=0x3f if opcode & 7 < 6 => self.alu_forms(opcode, prefixes)?,
            0x50..=0x57 => self.stack(-8),
            0x58..=0x5f => {
                self.stack(8);
                self.forget(prefixes.register(opcode & 7, 1));
            }
            0x63 => {
                let operands = self.operands(prefixes)?;
                self.extending(operands, prefixes, 32, true);
            }
            0x68 => drop((self.constant(4)?, self.stack(-8))),
            0x6a => drop((self.constant(1)?, self.stack(-8))),
            0x69 | 0x6b => {
                let operands = self.operands(prefixes)?;
                self.constant(if opcode == 0x6b { 1 } else { prefixes.constant_bytes(false) })?;
                self.unknown(operands.reg);
            }
            0x80 | 0x81 | 0x83 => {
                let operands = self.operands(prefixes)?;
                let bytes = if opcode == 0x81 { prefixes.constant_bytes(false) } else { 1 };
                let constant = Source::Constant(self.constant(bytes)?);
                let to = operands.rm().map(|r| prefixes.part(r, width));
                self.alu(operands.field(), to, Some(constant));
            }
            0x84 | 0x85 => {
                let operands = self.operands(prefixes)?;
                let from = prefixes.part(operands.reg, width).place;
                self.test(operands.rm().map(|r| prefixes.part(r, width)), from);
            }
            0x86 | 0x87 => {
                let operands = self.operands(prefixes)?;
                self.forget(operands.reg);
                operands.rm().into_iter().for_each(|r| self.forget(r));
            }
            0x88..=0x8b => {
                let operands = self.operands(prefixes)?;
                let (reg, rm) = (prefixes.part(operands.reg, width), operands.rm());
                let rm = rm.map(|r| prefixes.part(r, width));
                match (opcode & 2 == 0, rm) {
                    (true, Some(rm)) => self.copy(rm, reg.place),
                    (true, None) => {}
                    (false, Some(rm)) => self.copy(reg, rm.place),
                    (false, None) => self.forget_part(reg),
                }
            }
            0x8d => self.address(prefixes)?,
            0x90 if prefixes.register(0, 1) == 0 => {} // `nop`. With REX.B it exchanges r8 and the accumulator.
            0x98 => {
                let part = prefixes.part(0, prefixes.width(false));
                let (from_bits, signed) = (part.width_bits / 2, true);
                self.push(Operation::Move { to: part, from: part.place, from_bits, signed }, &[part.place]);
            }
            0x99 => self.forget(2),
            0xa8 | 0xa9 => {
                let constant = self.constant(prefixes.constant_bytes(opcode == 0xa8))?;
                self.test(Some(prefixes.part(0, width)), Source::Constant(constant));
            }
            0xb0..=0xbf => {
                let to = prefixes.part(prefixes.register(opcode & 7, 1), prefixes.width(opcode < 0xb8));
                if to.width_bits == 64 {
                    self.at += 8;
                    self.forget_part(to);
                } else {
                    let constant = Source::Constant(self.constant(usize::from(to.width_bits / 8))?);
                    self.copy(to, constant);
                }
            }
            0xc0 | 0xc1 | 0xd0 | 0xd1 => {
                let operands = self.operands(prefixes)?;
                let count = if opcode < 0xd0 { self.constant(1)? as u8 } else { 1 };
                self.shift(operands, prefixes, width, count);
            }
            0xd2 | 0xd3 => {
                let operands = self.operands(prefixes)?;
                operands.rm().into_iter().for_each(|r| self.forget(r));
                self.flags_known = false;
            }
            0xc6 | 0xc7 => {
                let operands = self.operands(prefixes)?;
                let constant = Source::Constant(self.constant(prefixes.constant_bytes(opcode == 0xc6))?);
                if let Some(r) = operands.rm() {
                    self.copy(prefixes.part(r, width), constant);
                }
            }
            0xc9 => [4, 5].into_iter().for_each(|r| self.forget(r)),
            0xeb | 0xe9 => {
                let distance = self.constant(if opcode == 0xeb { 1 } else { 4 })?;
                let target = self.at as i64 + i64::from(distance);
                self.at = usize::try_from(target).ok().filter(|t| *t < self.code.len())?;
            }
            0xf6 | 0xf7 => self.group_f6(opcode == 0xf6, prefixes, width)?,
            0xfe | 0xff => {
                let operands = self.operands(prefixes)?;
                match (operands.field(), operands.rm()) {
                    (field @ (0 | 1), Some(r)) => self.step(prefixes.part(r, width), field == 0),
                    (0 | 1, None) => self.flags_known = false,
                    (6, _) if opcode == 0xff => self.stack(-8),
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn alu_forms(&mut self, opcode: u8, prefixes: Prefixes) -> Option<()> {
        let (kind, byte) = (opcode >> 3, opcode & 1 == 0);
        let width = prefixes.width(byte);
        if opcode & 7 >= 4 {
            let constant = Source::Constant(self.constant(prefixes.constant_bytes(byte))?);
            self.alu(kind, Some(prefixes.part(0, width)), Some(constant));
            return Some(());
        }
        let operands = self.operands(prefixes)?;
        let reg = prefixes.part(operands.reg, width);
        let rm = operands.rm().map(|r| prefixes.part(r, width));
        if opcode & 2 == 0 {
            self.alu(kind, rm, Some(reg.place));
        } else {
            self.alu(kind, Some(reg), rm.map(|p| p.place));
        }
        Some(())
    }

    /// Interprets `add or adc sbb and sub xor cmp`, by their number; an operand in memory is `None`.
    fn alu(&mut self, kind: u8, to: Option<Part>, from: Option<Source>) {
        let writes = kind != 7;
        let kind = match kind {
            0 => Some(Kind::Add),
            1 => Some(Kind::Or),
            4 => Some(Kind::And),
            5 | 7 => Some(Kind::Sub),
            6 => Some(Kind::Xor),
            _ => None,
        };
        self.arithmetic(kind, to, from, writes);
    }

    fn test(&mut self, to: Option<Part>, from: Source) {
        self.arithmetic(Some(Kind::And), to, Some(from), false);
    }

    fn arithmetic(&mut self, kind: Option<Kind>, to: Option<Part>, from: Option<Source>, writes: bool) {
        let (Some(kind), Some(part), Some(source)) = (kind, to, from) else {
            self.flags_known = false;
            to.filter(|_| writes).into_iter().for_each(|p| self.forget_part(p));
            return;
        };
        let cleared = matches!(kind, Kind::Xor | Kind::Sub) && part.place == source && part.width_bits >= 32;
        if cleared || (self.knows(part.place) && self.knows(source)) {
            self.operations.push(Operation::Arithmetic { kind, to: part, from: source, writes });
            self.flags_known = true;
            if cleared && writes {
                self.remember(part.place);
            }
        } else {
            self.flags_known = false;
            if writes {
                self.forget_part(part);
            }
        }
    }

    fn step(&mut self, to: Part, up: bool) {
        // The carry is left as it was, known or not.
        let flags_known = self.flags_known && self.knows(to.place);
        self.push(Operation::Increment { to, up }, &[to.place]);
        self.flags_known = flags_known;
    }

    fn shift(&mut self, operands: Operands, prefixes: Prefixes, width: u8, count: u8) {
        let count = count & if width == 64 { 63 } else { 31 };
        let field = operands.field();
        let Some(to) = operands.rm().map(|r| prefixes.part(r, width)) else {
            self.flags_known &= count == 0;
            return;
        };
        match field {
            _ if count == 0 => {}
            4 | 5 | 7 if count < width && self.knows(to.place) => {
                self.operations.push(Operation::Shift { to, count, left: field == 4, signed: field == 7 });
                // Overflow is undefined for counts above 1, so that no compiler uses it then.
                self.flags_known = true;
            }
            _ => {
                self.forget_part(to);
                self.flags_known = false;
            }
        }
    }

    fn group_f6(&mut self, byte: bool, prefixes: Prefixes, width: u8) -> Option<()> {
        let operands = self.operands(prefixes)?;
        let part = operands.rm().map(|r| prefixes.part(r, width));
        match operands.field() {
            0 | 1 => {
                let constant = self.constant(prefixes.constant_bytes(byte))?;
                self.test(part, Source::Constant(constant));
            }
            2 => part.into_iter().for_each(|to| self.push(Operation::Not { to }, &[to.place])),
            3 => match part {
                Some(to) => {
                    self.flags_known = self.knows(to.place);
                    self.push(Operation::Negate { to }, &[to.place]);
                }
                None => self.flags_known = false,
            },
            _ => {
                [0, 2].into_iter().for_each(|r| self.forget(r));
                self.flags_known = false;
            }
        }
        Some(())
    }

    fn two_byte(&mut self, prefixes: Prefixes) -> Option<()> {
        let opcode = self.byte()?;
        let width = prefixes.width(false);
        match opcode {
            0x38 | 0x3a => {
                let third = self.byte()?;
                self.vector(if opcode == 0x38 { 2 } else { 3 }, third, prefixes)?;
            }
            // Prefetches, nop and endbr64.
            0x0d | 0x18 | 0x1e | 0x1f if opcode != 0x1e || prefixes.repeat => drop(self.operands(prefixes)?),
            0x40..=0x4f => {
                let operands = self.operands(prefixes)?;
                let to = prefixes.part(operands.reg, width);
                match operands.rm().map(|r| prefixes.part(r, width).place) {
                    Some(from) if self.flags_known => {
                        self.push(Operation::MoveIf { to, from, condition: opcode & 15 }, &[to.place, from]);
                    }
                    _ => self.forget_part(to),
                }
            }
            0x90..=0x9f => {
                let operands = self.operands(prefixes)?;
                let Some(to) = operands.rm().map(|r| prefixes.part(r, 8)) else { return Some(()) };
                if self.flags_known {
                    self.push(Operation::SetIf { to, condition: opcode & 15 }, &[to.place]);
                } else {
                    self.forget_part(to);
                }
            }
            0xa3 => {
                self.operands(prefixes)?;
                self.flags_known = false;
            }
            0xba => {
                let operands = self.operands(prefixes)?;
                self.constant(1)?;
                operands.rm().filter(|_| operands.field() > 4).into_iter().for_each(|r| self.forget(r));
                self.flags_known = false;
            }
            0xaf | 0xb8 | 0xbc | 0xbd => {
                let operands = self.operands(prefixes)?;
                self.unknown(operands.reg);
            }
            0xb6 | 0xb7 | 0xbe | 0xbf => {
                let operands = self.operands(prefixes)?;
                let from_bits = if opcode & 1 == 0 { 8 } else { 16 };
                self.extending(operands, prefixes, from_bits, opcode >= 0xbe);
            }
            0xc8..=0xcf => self.forget(prefixes.register(opcode & 7, 1)),
            _ => self.vector(1, opcode, prefixes)?,
        }
        Some(())
    }

    fn vex(&mut self, first: u8) -> Option<()> {
        let second = self.byte()?;
        let (map, rex_bits, last) = match first {
            0xc5 => (1, u8::from(second & 0x80 == 0) << 2, second),
            _ => {
                let third = self.byte()?;
                (second & 31, !second >> 5 & 7, third)
            }
        };
        let prefixes = Prefixes {
            operand16: last & 3 == 1,
            repeat: last & 2 != 0,
            rex: Some(0x40 | rex_bits | (last >> 4 & 8)),
        };
        let opcode = self.byte()?;
        match (map, opcode) {
            (1, 0x77) => Some(()),
            (1, _) => self.vector(1, opcode, prefixes),
            (2 | 3, 0..=0xef) => self.vector(map, opcode, prefixes),
            _ => None,
        }
    }

    /// Marks the general registers and flags that a vector or floating-point instruction writes as unknown.
    fn vector(&mut self, map: u8, opcode: u8, prefixes: Prefixes) -> Option<()> {
        let known = match map {
            1 => {
                matches!(opcode, 0x10..=0x17 | 0x28..=0x2f | 0x50..=0x76 | 0x7c..=0x7f | 0xc2 | 0xc4..=0xc6 | 0xd0..=0xfe)
            }
            2 => opcode <= 0xf1,
            _ => opcode < 0xf0,
        };
        if !known {
            return None;
        }
        let operands = self.operands(prefixes)?;
        if map == 3 || (map == 1 && matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6)) {
            self.constant(1)?;
        }
        match (map, opcode) {
            (1, 0x2e | 0x2f) | (2, 0x17 | 0x0e | 0x0f) => self.flags_known = false,
            (1, 0x2c | 0x2d | 0x50 | 0xc5 | 0xd7) => self.forget(operands.reg),
            (1, 0x7e) if !prefixes.repeat => operands.rm().into_iter().for_each(|r| self.forget(r)),
            (2, 0xf0 | 0xf1) => self.unknown(operands.reg),
            (3, 0x14..=0x17) => operands.rm().into_iter().for_each(|r| self.forget(r)),
            (3, 0x60..=0x63) => self.unknown(1),
            _ => {}
        }
        Some(())
    }

    fn operands(&mut self, prefixes: Prefixes) -> Option<Operands> {
        let modrm = self.byte()?;
        let (mode, reg, low) = (modrm >> 6, prefixes.register(modrm >> 3 & 7, 4), modrm & 7);
        if mode == 3 {
            return Some(Operands { reg, rm: Rm::Register(prefixes.register(low, 1)) });
        }
        let mut base = Base::Register(prefixes.register(low, 1));
        let mut index = None;
        let mut is_wide = mode == 2;
        if low == 4 {
            let sib = self.byte()?;
            let number = prefixes.register(sib >> 3 & 7, 2);
            index = (number != RSP).then_some((number, sib >> 6));
            base = Base::Register(prefixes.register(sib & 7, 1));
            if sib & 7 == 5 && mode == 0 {
                (base, is_wide) = (Base::None, true);
            }
        } else if low == 5 && mode == 0 {
            (base, is_wide) = (Base::Instruction, true);
        }
        let displacement = match (mode, is_wide) {
            (_, true) => self.constant(4)?,
            (1, _) => self.constant(1)?,
            _ => 0,
        };
        Some(Operands { reg, rm: Rm::Memory(memory(base, index, displacement)) })
    }

    fn address(&mut self, prefixes: Prefixes) -> Option<()> {
        let operands = self.operands(prefixes)?;
        let to = prefixes.part(operands.reg, prefixes.width(false));
        match operands.rm {
            Rm::Memory(address) if address.base != Base::Instruction => self.effective_address(to, address),
            _ => self.forget_part(to),
        }
        Some(())
    }

    fn effective_address(&mut self, to: Part, address: MemoryOperand) {
        let base = match address.base {
            Base::Register(number) => Source::Register(number),
            Base::None | Base::Instruction => Source::Constant(0),
        };
        let index = address.index.map_or(Source::Constant(0), |(number, _)| Source::Register(number));
        self.push(Operation::EffectiveAddress { to, address }, &[base, index]);
    }

    fn extending(&mut self, operands: Operands, prefixes: Prefixes, from_bits: u8, signed: bool) {
        let to = prefixes.part(operands.reg, prefixes.width(false));
        match operands.rm().map(|r| prefixes.part(r, from_bits).place) {
            Some(from) => self.push(Operation::Move { to, from, from_bits, signed }, &[from]),
            None => self.forget_part(to),
        }
    }

    fn copy(&mut self, to: Part, from: Source) {
        self.push(Operation::Move { to, from, from_bits: 64, signed: false }, &[from]);
    }

    /// Moves the stack pointer.
    fn stack(&mut self, change: i32) {
        let to = Part { place: Source::Register(RSP), width_bits: 64 };
        self.effective_address(to, memory(Base::Register(RSP), None, change));
    }

    /// Adds an operation that writes a register if all `sources` are known; otherwise marks the register as unknown.
    fn push(&mut self, operation: Operation, sources: &[Source]) {
        let (Operation::Move { to, .. }
        | Operation::Arithmetic { to, .. }
        | Operation::Increment { to, .. }
        | Operation::Not { to }
        | Operation::Negate { to }
        | Operation::Shift { to, .. }
        | Operation::EffectiveAddress { to, .. }
        | Operation::MoveIf { to, .. }
        | Operation::SetIf { to, .. }) = operation;
        // A write to a part of a register does not make the rest known.
        if sources.iter().all(|s| self.knows(*s)) && (to.width_bits >= 32 || self.knows(to.place)) {
            self.operations.push(operation);
            self.remember(to.place);
        } else {
            self.forget_part(to);
        }
    }

    fn knows(&self, source: Source) -> bool {
        match source {
            Source::Constant(_) => true,
            Source::Register(r) | Source::HighByte(r) => self.known >> r & 1 == 1,
        }
    }

    fn remember(&mut self, place: Source) {
        if let Source::Register(r) | Source::HighByte(r) = place {
            self.known |= 1 << r;
        }
    }

    fn forget_part(&mut self, part: Part) {
        if let Source::Register(r) | Source::HighByte(r) = part.place {
            self.forget(r);
        }
    }

    fn forget(&mut self, register: u8) {
        self.known &= !(1 << register);
    }

    /// Marks a register and the flags as unknown.
    fn unknown(&mut self, register: u8) {
        self.forget(register);
        self.flags_known = false;
    }
}

fn memory(base: Base, index: Option<(u8, u8)>, displacement: i32) -> MemoryOperand {
    let displacement = i64::from(displacement) as u64;
    MemoryOperand { base, index, displacement, segment: Segment::Flat, is_32_bit: false }
}

impl Operands {
    /// Returns the register field, which extends the opcode.
    fn field(&self) -> u8 {
        self.reg & 7
    }

    /// Returns the other operand if it is a register.
    fn rm(&self) -> Option<u8> {
        match self.rm {
            Rm::Register(number) => Some(number),
            Rm::Memory(_) => None,
        }
    }
}

impl Prefixes {
    fn width(self, byte: bool) -> u8 {
        match (byte, self.rex.unwrap_or(0) & 8 != 0, self.operand16) {
            (true, ..) => 8,
            (_, true, _) => 64,
            (_, _, true) => 16,
            _ => 32,
        }
    }

    fn constant_bytes(self, byte: bool) -> usize {
        usize::from(self.width(byte).min(32) / 8)
    }

    /// Returns the number of a register field, extended by a bit of REX.
    fn register(self, low: u8, bit: u8) -> u8 {
        low | if self.rex.unwrap_or(0) & bit != 0 { 8 } else { 0 }
    }

    fn part(self, register: u8, width_bits: u8) -> Part {
        let high = width_bits == 8 && self.rex.is_none() && (4..8).contains(&register);
        let place = if high { Source::HighByte(register - 4) } else { Source::Register(register) };
        Part { place, width_bits }
    }
}
