//! Executes instructions that test or change a bit of a string of bits in memory: `bt`, `bts`, `btr` and `btc` with a register.
//!
//! Enters: a thread and such an instruction. Leaves: its memory and the carry flag. The register is the number of the bit, counted from the
//! operand on and perhaps far from it (Intel SDM, volume 2, "BT"); so the processor cannot execute the instruction on a copy of the
//! operand. Never here: the other flags, which are undefined except zero and stay as they are.

use iced_x86::Mnemonic;

use super::{End, Thread, instruction::PreparedInstruction, memory::Fetch};
use crate::x86::{Flags, register_number};

impl<F: Fetch> Thread<F> {
    /// Executes an instruction of this kind. Fails where the memory cannot be read.
    pub(super) fn bit(&mut self, prepared: &PreparedInstruction) -> Result<(), End> {
        let register = prepared.instruction.op1_register();
        let bytes = register.size();
        let number = register_number(register).ok_or(End::Unknown)?;
        let index = self.registers.general[usize::from(number)];
        let index = match bytes {
            2 => i64::from(index as i16),
            4 => i64::from(index as i32),
            _ => index as i64,
        };
        let bits = 8 * bytes as i64;
        let distance = index.div_euclid(bits) * bytes as i64;
        let address = self.address(prepared.memory)?.wrapping_add_signed(distance);
        let mask = 1_u64 << index.rem_euclid(bits);
        let mut word = [0; 8];
        self.memory.read(address, &mut word[..bytes])?;
        let value = u64::from_le_bytes(word);
        let changed = match prepared.instruction.mnemonic() {
            Mnemonic::Bts => value | mask,
            Mnemonic::Btr => value & !mask,
            Mnemonic::Btc => value ^ mask,
            _ => value,
        };
        if prepared.instruction.mnemonic() != Mnemonic::Bt {
            self.memory.write(address, &changed.to_le_bytes()[..bytes])?;
        }
        self.registers.flags = Flags(self.registers.flags).with(Flags::CARRY, value & mask != 0).0;
        Ok(())
    }
}
