//! The value of a register, as far as constants, one variable and one load determine it.
//!
//! Input: a register and the instruction that uses it. Output: `constant + term × 2^shift`, where the term is an unknown
//! register or the entry of a table. Complexity: at most [`DEPTH_MAX`] definitions deep, with a search of
//! [`super::reach`] for each.

use std::cell::RefCell;

use dwell_image::{Arch, Instruction, MemoryOperand, Operand, Register};
use rustc_hash::FxHashMap;

use super::{
    reach::Reach,
    step::{Step, step},
};

/// Number of definitions that are followed from a jump to its table.
const DEPTH_MAX: u32 = 12;
/// The least address of a table: the first page is never mapped.
const ADDRESS_MIN: u64 = 4096;

/// A value of the form `constant + term × 2^shift`.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// `None` if no constant was added: an index is no address.
    pub constant: Option<u64>,
    pub term: Option<(Term, i8)>,
}

/// The variable part.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// The value of the register before instruction `at`.
    Unknown { register: Register, at: usize },
    /// The value that instruction `at` loads.
    Load { address: Box<Value>, bytes: u8, signed: bool, at: usize },
}

impl Value {
    fn constant(value: u64) -> Value {
        Value { constant: Some(value), term: None }
    }

    fn unknown(register: Register, at: usize) -> Value {
        Value { constant: None, term: Some((Term::Unknown { register, at }, 0)) }
    }

    fn is_constant(&self) -> bool {
        self.term.is_none() && self.constant.is_some()
    }

    /// Whether it is more than another name of an unknown register. Copies of an index are not followed, since the
    /// comparison that bounds it may name the copy.
    fn is_informative(&self) -> bool {
        self.constant.is_some() || !matches!(self.term, Some((Term::Unknown { .. }, 0)))
    }

    /// Adds two values. Returns `None` if both have a variable part.
    fn plus(self, other: Value) -> Option<Value> {
        let constant = match (self.constant, other.constant) {
            (Some(a), Some(b)) => Some(a.wrapping_add(b)),
            (a, b) => a.or(b),
        };
        match (self.term, other.term) {
            (Some(_), Some(_)) => None,
            (a, b) => Some(Value { constant, term: a.or(b) }),
        }
    }

    fn shifted(self, by: i8) -> Option<Value> {
        let constant = match self.constant {
            Some(value) if by >= 0 => Some(value.checked_shl(by as u32)?),
            Some(value) => Some(value.checked_shr(by.unsigned_abs().into())?),
            None => None,
        };
        let term = match self.term {
            Some((term, shift)) => Some((term, shift.checked_add(by)?)),
            None => None,
        };
        Some(Value { constant, term })
    }

    /// Reinterprets a loaded value with another width or sign: `sxth` of a loaded half.
    fn extended(self, bits: u8, sign: bool) -> Value {
        match self.term {
            Some((Term::Load { address, bytes, at, .. }, 0))
                if bytes * 8 == bits && self.constant.is_none() =>
            {
                Value { constant: None, term: Some((Term::Load { address, bytes, signed: sign, at }, 0)) }
            }
            term => Value { constant: self.constant, term },
        }
    }
}

/// Evaluates registers.
pub struct Evaluator<'a> {
    pub arch: Arch,
    pub instructions: &'a [Instruction],
    pub reach: Reach<'a>,
    /// Known values by register and instruction. One that is being evaluated is unknown.
    pub known: RefCell<FxHashMap<(Register, usize), Value>>,
}

impl Evaluator<'_> {
    /// Returns the value of `register` before instruction `at`.
    pub fn register(&self, register: Register, at: usize) -> Value {
        let value = self.at_depth(register, at, 0);
        debug_assert_eq!(verify_value(&value, self.instructions), Ok(()));
        value
    }

    /// Returns the value that instruction `at` computes for `register`.
    pub fn result(&self, register: Register, at: usize) -> Option<Value> {
        self.written(register, at, 0)
    }

    /// Returns the value that instruction `at` loads from a memory operand.
    pub fn loaded(&self, memory: &MemoryOperand, bytes: u8, at: usize) -> Option<Value> {
        self.load(memory, bytes, false, at, 0)
    }

    fn at_depth(&self, register: Register, at: usize, depth: u32) -> Value {
        if Some(register) == self.arch.zero() {
            return Value::constant(0);
        }
        let unknown = Value::unknown(register, at);
        if let Some(known) = self.known.borrow().get(&(register, at)) {
            return known.clone();
        }
        if depth >= DEPTH_MAX || !self.reach.spend(1) {
            return unknown;
        }
        self.known.borrow_mut().insert((register, at), unknown.clone());
        let definitions = self.reach.definitions(register, at);
        let mut values = definitions.at.iter().map(|&d| self.written(register, d, depth));
        let value = match definitions.at[..] {
            [] if definitions.from_entry => None,
            [] => self.sole_address(register, depth),
            [_] if !definitions.from_entry => values.next().flatten(),
            _ => sole_address_among(values),
        };
        let value = value.unwrap_or(unknown);
        self.known.borrow_mut().insert((register, at), value.clone());
        value
    }

    /// Returns the only address that the procedure writes to a register: a table that is kept there for a whole loop,
    /// seen from a block without a known predecessor.
    fn sole_address(&self, register: Register, depth: u32) -> Option<Value> {
        if !self.reach.spend(self.instructions.len()) {
            return None;
        }
        let written = (0..self.instructions.len()).filter(|&i| self.reach.is_write(i, register));
        let constants = written
            .filter(|&i| !matches!(step(self.arch, &self.instructions[i], register), Step::Load { .. }))
            .map(|i| self.written(register, i, depth.max(DEPTH_MAX - 3)));
        sole_address_among(constants)
    }

    /// Returns the value of a slot of the stack, if all stores to it agree: compilers spill addresses of tables.
    fn spilled(&self, slot: &MemoryOperand, depth: u32) -> Option<Value> {
        if !self.reach.spend(self.instructions.len()) {
            return None;
        }
        let stores = self.instructions.iter().enumerate().filter_map(|(i, instruction)| {
            let store = instruction.store().filter(|s| s.base == slot.base && s.index.is_none())?;
            let mut registers = instruction.operands.iter().filter_map(|o| match o {
                Operand::Register { register, .. } => Some(*register),
                _ => None,
            });
            // The second register of a pair is stored eight bytes further on.
            let distance = slot.displacement.checked_sub(store.displacement)?;
            let stored = match (distance, instruction.mnemonic.starts_with("stp")) {
                (0, _) => registers.next(),
                (8, true) => registers.nth(1),
                _ => return None,
            };
            Some(stored.map(|register| self.at_depth(register, i, depth + 1)))
        });
        sole_address_among(stores)
    }

    fn is_frame_slot(&self, memory: &MemoryOperand) -> bool {
        let frame_pointer = match self.arch {
            Arch::X86_64 | Arch::X86 => 5,
            Arch::Aarch64 => 29,
            Arch::Riscv64 => 8,
        };
        let is_frame = |r: Register| r == self.arch.stack_pointer() || r.0 == frame_pointer;
        memory.index.is_none() && memory.base.is_some_and(is_frame)
    }

    /// Returns the value that instruction `i` computes for `register`.
    fn written(&self, register: Register, i: usize, depth: u32) -> Option<Value> {
        let of = |register| self.at_depth(register, i, depth + 1);
        match step(self.arch, &self.instructions[i], register) {
            Step::Constant(value) => Some(Value::constant(value)),
            Step::Copy(from) => Some(of(from)).filter(Value::is_informative),
            Step::Extend { from, bits, sign } => {
                Some(of(from).extended(bits, sign)).filter(Value::is_informative)
            }
            Step::Shift(from, by) => self.index(from, i, depth).shifted(by),
            Step::Offset(from, by) => {
                let value = of(from);
                let constant = value.constant?.wrapping_add_signed(by);
                Some(Value { constant: Some(constant), ..value })
            }
            Step::Sum { a, b, extend, shift } => {
                let mut second = of(b);
                if let Some((bits, sign)) = extend {
                    second = second.extended(bits, sign);
                }
                of(a).plus(second.shifted(shift)?).filter(|sum| sum.constant.is_some())
            }
            Step::Address(memory) => self.address(memory, i, depth).filter(|v| v.constant.is_some()),
            Step::Load { memory, bytes: 8, .. } if self.is_frame_slot(memory) => self.spilled(memory, depth),
            Step::Load { memory, bytes, signed } => self.load(memory, bytes, signed, i, depth),
            Step::Opaque => None,
        }
    }

    /// Converts a value for use as an index: where it was loaded from does not matter.
    fn index(&self, register: Register, at: usize, depth: u32) -> Value {
        let value = self.at_depth(register, at, depth + 1);
        match value.term {
            Some((Term::Load { .. }, _)) => Value::unknown(register, at),
            _ => value,
        }
    }

    fn load(&self, memory: &MemoryOperand, bytes: u8, signed: bool, at: usize, depth: u32) -> Option<Value> {
        let address = self.address(memory, at, depth)?;
        address.constant?;
        let term = Term::Load { address: Box::new(address), bytes, signed, at };
        Some(Value { constant: None, term: Some((term, 0)) })
    }

    fn address(&self, memory: &MemoryOperand, at: usize, depth: u32) -> Option<Value> {
        if let Some(address) = memory.address {
            return Some(Value::constant(address.0));
        }
        let of = |register| self.at_depth(register, at, depth + 1);
        // Without a base the displacement is the table; with one it is an offset.
        let sum = match (memory.base, memory.index) {
            (None, None) => return None,
            (Some(base), None) => {
                let value = of(base);
                value.constant?;
                value
            }
            (None, Some(_)) => Value::constant(0),
            (Some(base), Some(_)) => of(base),
        };
        let sum = match memory.index {
            Some(index) => {
                sum.plus(self.index(index, at, depth).shifted(memory.scale.max(1).trailing_zeros() as i8)?)?
            }
            None => sum,
        };
        let constant = sum.constant?.wrapping_add_signed(memory.displacement);
        Some(Value { constant: Some(constant), ..sum })
    }
}

/// Checks that a value names instructions of the procedure, that what it loads has a known address, and that something of
/// it is known: a constant or the variable part.
fn verify_value(value: &Value, instructions: &[Instruction]) -> Result<(), String> {
    match &value.term {
        Some((Term::Unknown { at, .. }, _)) if *at < instructions.len() => Ok(()),
        Some((Term::Load { address, at, .. }, _)) if *at < instructions.len() => {
            let has_address = address.constant.is_some();
            has_address.then_some(()).ok_or_else(|| format!("{value:?} is loaded from nowhere"))?;
            verify_value(address, instructions)
        }
        None if value.constant.is_some() => Ok(()),
        _ => Err(format!("{value:?} in a procedure of {} instructions", instructions.len())),
    }
}

/// Returns the only address among the values of several writes. Writes that are no constants are assumed not to reach:
/// other code follows a call that does not return, and a register is restored before a return.
fn sole_address_among(values: impl Iterator<Item = Option<Value>>) -> Option<Value> {
    let is_address = |v: &Value| v.is_constant() && v.constant >= Some(ADDRESS_MIN);
    let mut addresses = values.flatten().filter(is_address);
    let first = addresses.next()?;
    addresses.all(|a| a == first).then_some(first)
}
