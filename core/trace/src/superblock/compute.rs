//! Which registers an instruction sets to what can be computed from registers and constants alone.
//!
//! These are the *easy* definitions of Larus, "Abstract Execution" (1990), section 4: they are executed again when the trace is
//! read. All others (loads, results of flags, of system calls) are *impossible* and are recorded if an address depends on them.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::registers::{General, RegisterSet};

/// The new value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    pub to: General,
    /// Whether only the lower 32 bits are computed; the upper ones become zero.
    pub is_32: bool,
    pub value: Value,
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Constant(i64),
    Register(General),
}

/// What a register is set to. Registers have their values from before the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Constant(i64),
    Copy(General),
    Add(General, Operand),
    Subtract(General, Operand),
    And(General, Operand),
    Or(General, Operand),
    Xor(General, Operand),
    ShiftLeft(General, u8),
    ShiftRight(General, u8),
    ShiftRightSigned(General, u8),
    Negate(General),
    Not(General),
    Multiply(General, i64),
    /// The lowest bytes of a register, this many, extended by zeros.
    ZeroExtend(General, u8),
    /// The lowest bytes of a register, this many, extended by the sign.
    SignExtend(General, u8),
    Address {
        base: Option<General>,
        index: Option<General>,
        scale: u8,
        displacement: i64,
    },
}

impl Value {
    /// Returns the registers that the value depends on.
    pub fn sources(self) -> RegisterSet {
        let of = |operand| match operand {
            Operand::Constant(_) => None,
            Operand::Register(register) => Some(register),
        };
        let (first, second) = match self {
            Value::Constant(_) => (None, None),
            Value::Copy(a) | Value::Negate(a) | Value::Not(a) | Value::Multiply(a, _) => (Some(a), None),
            Value::ShiftLeft(a, _) | Value::ShiftRight(a, _) | Value::ShiftRightSigned(a, _) => {
                (Some(a), None)
            }
            Value::ZeroExtend(a, _) | Value::SignExtend(a, _) => (Some(a), None),
            Value::Add(a, b) | Value::Subtract(a, b) => (Some(a), of(b)),
            Value::And(a, b) | Value::Or(a, b) | Value::Xor(a, b) => (Some(a), of(b)),
            Value::Address { base, index, .. } => (base, index),
        };
        first.into_iter().chain(second).collect()
    }

    /// Returns whether a value is an address only if the one that it depends on is near an address: then 48 bits of that are enough.
    /// A sum of two registers can be an address although neither is near one.
    pub fn keeps_addresses(self) -> bool {
        match self {
            Value::Copy(_) => true,
            Value::Add(_, operand) | Value::Subtract(_, operand) => matches!(operand, Operand::Constant(_)),
            Value::Address { base, index, .. } => base.is_none() || index.is_none(),
            _ => false,
        }
    }
}

impl Compute {
    /// Returns the new value of the register.
    pub fn evaluate(&self, registers: &[u64; 16]) -> u64 {
        let get = |register: General| registers[usize::from(register.0)];
        let operand = |operand| match operand {
            Operand::Constant(constant) => constant as u64,
            Operand::Register(register) => get(register),
        };
        let mask = |value: u64| if self.is_32 { value & 0xffff_ffff } else { value };
        mask(match self.value {
            Value::Constant(constant) => constant as u64,
            Value::Copy(a) => get(a),
            Value::Add(a, b) => get(a).wrapping_add(operand(b)),
            Value::Subtract(a, b) => get(a).wrapping_sub(operand(b)),
            Value::And(a, b) => get(a) & operand(b),
            Value::Or(a, b) => get(a) | operand(b),
            Value::Xor(a, b) => get(a) ^ operand(b),
            Value::ShiftLeft(a, by) => get(a) << by,
            Value::ShiftRight(a, by) => mask(get(a)) >> by,
            Value::ShiftRightSigned(a, by) if self.is_32 => (get(a) as i32 >> by) as u64,
            Value::ShiftRightSigned(a, by) => (get(a) as i64 >> by) as u64,
            Value::Negate(a) => get(a).wrapping_neg(),
            Value::Not(a) => !get(a),
            Value::Multiply(a, by) => get(a).wrapping_mul(by as u64),
            Value::ZeroExtend(a, bytes) => extended(get(a), bytes, false),
            Value::SignExtend(a, bytes) => extended(get(a), bytes, true),
            Value::Address { base, index, scale, displacement } => {
                let base = base.map_or(0, get);
                let index = index.map_or(0, get).wrapping_mul(u64::from(scale));
                base.wrapping_add(index).wrapping_add(displacement as u64)
            }
        })
    }
}

/// Extends the lowest `bytes` bytes (1 to 8) of a value to 64 bits.
pub fn extended(value: u64, bytes: u8, is_signed: bool) -> u64 {
    let unused = 64 - 8 * u32::from(bytes);
    if is_signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused }
}

/// Returns the registers that the instruction sets to values which can be computed, except for the stack pointer's steps.
pub fn computations(instruction: &Instruction) -> Vec<Compute> {
    let i = instruction;
    match i.mnemonic() {
        Mnemonic::Cdqe => {
            return vec![Compute {
                to: General::RAX,
                is_32: false,
                value: Value::SignExtend(General::RAX, 4),
            }];
        }
        Mnemonic::Cwde => {
            return vec![Compute {
                to: General::RAX,
                is_32: true,
                value: Value::SignExtend(General::RAX, 2),
            }];
        }
        Mnemonic::Leave => {
            let value = Value::Add(General::RBP, Operand::Constant(8));
            return vec![Compute { to: General::RSP, is_32: false, value }];
        }
        _ => {}
    }
    let stack = stack_step(i);
    let own = destination(i).and_then(|(to, is_32)| Some(Compute { to, is_32, value: value(i, to)? }));
    own.into_iter().chain(stack.filter(|_| own.is_none_or(|own| own.to != General::RSP))).collect()
}

/// Returns how the instruction moves the stack pointer by pushing or popping.
fn stack_step(i: &Instruction) -> Option<Compute> {
    let by = i64::from(i.stack_pointer_increment());
    let pops_it = i.mnemonic() == Mnemonic::Pop
        && i.op0_kind() == OpKind::Register
        && i.op0_register() == Register::RSP;
    let value = Value::Add(General::RSP, Operand::Constant(by));
    (by != 0 && !pops_it).then_some(Compute { to: General::RSP, is_32: false, value })
}

/// Returns the register that the first operand names, if it is set as a whole.
fn destination(i: &Instruction) -> Option<(General, bool)> {
    let register = (i.op_count() > 0 && i.op0_kind() == OpKind::Register).then(|| i.op0_register())?;
    let to = General::of(register)?;
    match register.size() {
        8 => Some((to, false)),
        4 => Some((to, true)),
        _ => None,
    }
}

fn value(i: &Instruction, to: General) -> Option<Value> {
    use Mnemonic::*;
    let last = i.op_count().checked_sub(1)?;
    let constant = is_constant(i.op_kind(last)).then(|| i.immediate(last) as i64);
    let second = (i.op_count() >= 2 && i.op1_kind() == OpKind::Register).then(|| i.op1_register());
    let source = second.and_then(General::of);
    // The high bytes ah to dh are parts of registers, too.
    let low = second.filter(|r| !matches!(r, Register::AH | Register::BH | Register::CH | Register::DH));
    let operand = match (i.op_count(), constant, source) {
        (2, Some(constant), _) => Some(Operand::Constant(constant)),
        (2, None, Some(source)) => Some(Operand::Register(source)),
        _ => None,
    };
    let is_same = i.op_count() == 2 && second == Some(i.op0_register());
    let bits = i.op0_register().size() as u8 * 8;
    let by = constant.map(|by| by as u8 & (bits - 1)).filter(|_| i.op_count() == 2);
    Some(match i.mnemonic() {
        Mov => match operand? {
            Operand::Constant(constant) => Value::Constant(constant),
            Operand::Register(source) => Value::Copy(source),
        },
        Xor | Sub if is_same => Value::Constant(0),
        Add => Value::Add(to, operand?),
        Sub => Value::Subtract(to, operand?),
        And => Value::And(to, operand?),
        Or => Value::Or(to, operand?),
        Xor => Value::Xor(to, operand?),
        Inc => Value::Add(to, Operand::Constant(1)),
        Dec => Value::Subtract(to, Operand::Constant(1)),
        Neg => Value::Negate(to),
        Not => Value::Not(to),
        Shl | Sal => Value::ShiftLeft(to, by?),
        Shr => Value::ShiftRight(to, by?),
        Sar => Value::ShiftRightSigned(to, by?),
        Imul if i.op_count() == 3 => Value::Multiply(source?, constant?),
        Movzx => Value::ZeroExtend(source?, low?.size() as u8),
        Movsx | Movsxd => Value::SignExtend(source?, low?.size() as u8),
        Lea => {
            let (base, index) = (i.memory_base(), i.memory_index());
            let is_whole = |r: Register| matches!(r, Register::None | Register::RIP) || r.size() == 8;
            if !is_whole(base) || !is_whole(index) {
                return None;
            }
            // The displacement of an address relative to the instruction is the address itself.
            let displacement = i.memory_displacement64() as i64;
            let (base, index) = (General::of(base), General::of(index));
            Value::Address { base, index, scale: i.memory_index_scale() as u8, displacement }
        }
        _ => return None,
    })
}

fn is_constant(kind: OpKind) -> bool {
    use OpKind::*;
    matches!(
        kind,
        Immediate8
            | Immediate16
            | Immediate32
            | Immediate64
            | Immediate8to16
            | Immediate8to32
            | Immediate8to64
            | Immediate32to64
    )
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// Returns the registers that the instruction sets, with register r being 0x1_0000_0010 * (r + 1) before.
    fn check(bytes: &[u8]) -> Vec<(u8, u64)> {
        let instruction = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        let registers = std::array::from_fn(|r| 0x1_0000_0010 * (r as u64 + 1));
        let all = computations(&instruction);
        all.iter().map(|compute| (compute.to.0, compute.evaluate(&registers))).collect()
    }

    #[test]
    fn values_are_those_of_the_processor() {
        assert_eq!(check(&[0x48, 0x01, 0xc8]), [(0, 0x3_0000_0030)], "add rax, rcx");
        assert_eq!(check(&[0x01, 0xc8]), [(0, 0x30)], "add eax, ecx");
        assert_eq!(check(&[0x31, 0xc0]), [(0, 0)], "xor eax, eax");
        assert_eq!(check(&[0xb8, 0xff, 0xff, 0xff, 0xff]), [(0, 0xffff_ffff)], "mov eax, -1");
        assert_eq!(check(&[0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff]), [(0, u64::MAX)], "mov rax, -1");
        assert_eq!(
            check(&[0x48, 0x8d, 0x44, 0x88, 0xf0]),
            [(0, 0x9_0000_0080)],
            "lea rax, [rax + rcx*4 - 16]"
        );
        assert_eq!(check(&[0x48, 0x8d, 0x05, 0, 1, 0, 0]), [(0, 0x1107)], "lea rax, [rip + 0x100]");
        assert_eq!(check(&[0xc1, 0xf8, 0x21]), [(0, 8)], "sar eax, 33 shifts by 1");
        assert_eq!(check(&[0x48, 0xd1, 0xe0]), [(0, 0x2_0000_0020)], "shl rax, 1");
        assert_eq!(check(&[0x50]), [(4, 0x5_0000_0048)], "push rax");
        assert_eq!(check(&[0x5c]), [], "pop rsp");
        assert_eq!(check(&[0x58]), [(4, 0x5_0000_0058)], "pop rax: only the stack pointer");
        assert_eq!(check(&[0xc9]), [(4, 0x6_0000_0068)], "leave");
        assert_eq!(check(&[0xc2, 8, 0]), [(4, 0x5_0000_0060)], "ret 8");
        assert_eq!(check(&[0x0f, 0xb6, 0xc5]), [], "movzx eax, ch");
        assert_eq!(check(&[0x66, 0x01, 0xc8]), [], "add ax, cx");
        assert_eq!(check(&[0x48, 0x03, 0x01]), [], "add rax, [rcx]");
    }
}
