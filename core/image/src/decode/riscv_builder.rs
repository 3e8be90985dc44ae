//! Collects the effects of a RISC-V instruction while its fields are decoded.

use smallvec::SmallVec;

use super::decoder::Parts;
use crate::riscv::{F0, RA, T0, ZERO};
use crate::{Flow, ImageAddress, MemoryOperand, Operand, Register, RegisterSet};

/// Collects the effects of an instruction, operand by operand in the order of the text.
pub(super) struct Builder {
    pub(super) address: u64,
    pub(super) parts: Parts,
}

/// Returns a bit field: `bits` bits from bit `low` on.
pub(super) fn field(word: u32, low: u32, bits: u32) -> u32 {
    word >> low & ((1 << bits) - 1)
}

/// Returns the lowest `bits` bits of a number as a signed number.
pub(super) fn signed(value: u32, bits: u32) -> i64 {
    i64::from((value << (32 - bits)) as i32 >> (32 - bits))
}

/// Returns the integer register with this number.
pub(super) fn x(number: u32) -> Register {
    Register(number as u8)
}

/// Returns the floating-point register with this number.
pub(super) fn f(number: u32) -> Register {
    Register(F0.0 + number as u8)
}

impl Builder {
    pub(super) fn new(address: u64) -> Builder {
        let (reads, writes, operands) = (RegisterSet::EMPTY, RegisterSet::EMPTY, SmallVec::new());
        Builder { address, parts: Parts { reads, writes, operands, flow: Flow::Next } }
    }

    pub(super) fn write(&mut self, register: Register) -> &mut Self {
        self.parts.writes.insert(register);
        self.operand(register)
    }

    pub(super) fn read(&mut self, register: Register) -> &mut Self {
        self.parts.reads.insert(register);
        self.operand(register)
    }

    /// Adds an operand that is both source and destination.
    pub(super) fn update(&mut self, register: Register) -> &mut Self {
        self.parts.reads.insert(register);
        self.write(register)
    }

    pub(super) fn immediate(&mut self, value: i64) -> &mut Self {
        self.parts.operands.push(Operand::Immediate(value));
        self
    }

    pub(super) fn load(&mut self, base: Register, displacement: i64, width_bytes: u16) {
        self.memory(base, displacement, width_bytes, true, false);
    }

    pub(super) fn store(&mut self, base: Register, displacement: i64, width_bytes: u16) {
        self.memory(base, displacement, width_bytes, false, true);
    }

    pub(super) fn memory(
        &mut self,
        base: Register,
        displacement: i64,
        width_bytes: u16,
        read: bool,
        written: bool,
    ) {
        self.parts.reads.insert(base);
        let (base, scale) = (Some(base), 1);
        let memory =
            MemoryOperand { base, scale, displacement, width_bytes, read, written, ..Default::default() };
        self.parts.operands.push(Operand::Memory(memory));
    }

    pub(super) fn branch(&mut self, distance: i64) {
        let target = self.target(distance);
        self.parts.flow = Flow::Branch { target };
    }

    /// Adds a jump that stores its return address in `link`.
    pub(super) fn jump(&mut self, link: Register, distance: i64) {
        let target = self.target(distance);
        self.parts.writes.insert(link);
        self.parts.flow =
            if link == ZERO { Flow::Jump { target } } else { Flow::Call { target: Some(target) } };
    }

    /// Adds a jump through a register. By convention it is a return if the register is a link register and no return address
    /// is stored (ISA manual, §2.5, "return-address stack hints").
    pub(super) fn jump_register(&mut self, link: Register, through: Register) {
        self.parts.writes.insert(link);
        self.parts.flow = match () {
            _ if link != ZERO => Flow::Call { target: None },
            _ if through == RA || through == T0 => Flow::Return,
            _ => Flow::IndirectJump,
        };
    }

    pub(super) fn flow(&mut self, flow: Flow) {
        self.parts.flow = flow;
    }

    fn target(&mut self, distance: i64) -> ImageAddress {
        let target = self.address.wrapping_add_signed(distance);
        self.parts.operands.push(Operand::Immediate(target as i64));
        ImageAddress(target)
    }

    fn operand(&mut self, register: Register) -> &mut Self {
        self.parts.operands.push(Operand::Register { register, width_bits: 64 });
        self
    }
}
