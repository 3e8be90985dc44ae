//! What memory the instruction at a sampled pc refers to, told from the sample's registers.
//!
//! Enters: the bytes at a sampled pc; the registers of a sample there. Leaves: an address. Never here: memory of the sampled
//! process, whose the address is (that is `collector/data.rs`'s). x86-64 only.
//!
//! The instruction has not executed when the sample is taken, so its operands' registers are as it will find them. Which
//! instruction that is: in order the one that was waited for, out of order as a rule the one after it (docs/measured.md).

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory,
};

use crate::branch::Registers;

/// The longest instruction.
pub const INSTRUCTION_BYTES_MAX: usize = 15;

/// Which memory an instruction loads from or stores to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// None: it computes, jumps or merely names an address (`lea`, a prefetch).
    None,
    /// At an address that general registers tell.
    At(Address),
    /// The thread's own data (`fs`), wherever that is.
    ThreadLocal,
    /// Relative to `gs`, which is not sampled.
    Gs,
    /// At several addresses at once, told by vector registers (a gather or scatter), which are not sampled.
    Vector,
    /// The bytes are no instruction that is known.
    Undecoded,
}

/// How an address is computed. Registers are numbered as the hardware does (0 rax, 1 rcx, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    base: Option<u8>,
    index: Option<u8>,
    scale: u8,
    displacement: u64,
    /// Relative to the sampled pc; the length of the instruction is in the displacement.
    from_pc: bool,
    /// Computed with 32 bits (prefix 0x67).
    narrow: bool,
}

impl Operand {
    /// The operand of the instruction that these bytes begin with. Of several, as `movs` has, it is that which is read.
    pub fn decode(code: &[u8]) -> Operand {
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.code() == Code::INVALID {
            return Operand::Undecoded;
        }
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(&instruction).used_memory();
        let reads = |m: &&UsedMemory| {
            matches!(
                m.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let writes = |m: &&UsedMemory| matches!(m.access(), OpAccess::Write | OpAccess::CondWrite);
        match used.iter().find(reads).or_else(|| used.iter().find(writes)) {
            Some(memory) => Operand::of(&instruction, memory),
            None => Operand::None,
        }
    }

    fn of(instruction: &Instruction, memory: &UsedMemory) -> Operand {
        match memory.segment() {
            Register::FS => return Operand::ThreadLocal,
            Register::GS => return Operand::Gs,
            _ => {}
        }
        let from_pc = instruction.is_ip_rel_memory_operand()
            && matches!(memory.base(), Register::None | Register::RIP | Register::EIP);
        let base = if from_pc { Register::None } else { memory.base() };
        let (Some(base), Some(index)) = (general(base), general(memory.index())) else {
            return Operand::Vector;
        };
        let narrow = [memory.base(), memory.index()].iter().any(|r| r.is_gpr32());
        let (scale, displacement) = (memory.scale() as u8, memory.displacement());
        Operand::At(Address { base, index, scale, displacement, from_pc, narrow })
    }
}

impl Address {
    /// The virtual address, with the pc and the registers of a sample.
    pub fn value(&self, pc: u64, registers: &Registers) -> u64 {
        let value = |register: Option<u8>| register.map_or(0, |number| registers.general(number));
        let start = if self.from_pc { pc } else { value(self.base) };
        let index = value(self.index).wrapping_mul(u64::from(self.scale));
        let sum = start.wrapping_add(index).wrapping_add(self.displacement);
        if self.narrow { sum & 0xffff_ffff } else { sum }
    }
}

/// The number of a general register, `Some(None)` of no register; `None` of one that samples do not tell.
fn general(register: Register) -> Option<Option<u8>> {
    match register {
        Register::None => Some(None),
        register if register.is_gpr32() || register.is_gpr64() => {
            Some(Some((register.full_register() as u32 - Register::RAX as u32) as u8))
        }
        _ => None,
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::branch::REGISTER_COUNT;

    /// Each general register holds 0x1000 times its number plus one.
    fn registers() -> Registers {
        let mut registers = Registers([0; REGISTER_COUNT]);
        (0..16_u8).for_each(|number| registers.set_general(number, 0x1000 * (u64::from(number) + 1)));
        registers
    }

    /// What an instruction at 0x40_0000 refers to.
    fn told(code: &[u8]) -> String {
        match Operand::decode(code) {
            Operand::At(address) => format!("{:x}", address.value(0x40_0000, &registers())),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn operands_are_where_registers_say() {
        let cases: [(&[u8], &str, &str); 20] = [
            (&[0x48, 0x8b, 0x00], "mov rax, [rax]", "1000"),
            (&[0x48, 0x8b, 0x44, 0xcb, 0x10], "mov rax, [rbx+rcx*8+16]", "14010"),
            (&[0x43, 0x8b, 0x04, 0x20], "mov eax, [r8+r12]", "16000"),
            (&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0], "mov rax, [rip+16]", "400017"),
            (&[0x48, 0x89, 0x03], "mov [rbx], rax", "4000"),
            (&[0x67, 0x8b, 0x40, 0xff], "mov eax, [eax-1]", "fff"),
            (&[0x8b, 0x04, 0x25, 0, 0, 0x60, 0], "mov eax, [0x600000]", "600000"),
            (&[0x50], "push rax", "4ff8"),
            (&[0x58], "pop rax", "5000"),
            (&[0xc3], "ret", "5000"),
            (&[0xff, 0x13], "call [rbx]", "4000"),
            (&[0xa4], "movsb", "7000"),
            (&[0xf3, 0x48, 0xab], "rep stosq", "8000"),
            (&[0x48, 0x8d, 0x44, 0xcb, 0x10], "lea rax, [rbx+rcx*8+16]", "None"),
            (&[0x0f, 0x18, 0x08], "prefetcht0 [rax]", "None"),
            (&[0x48, 0x01, 0xc8], "add rax, rcx", "None"),
            (&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], "mov rax, fs:[0]", "ThreadLocal"),
            (&[0x65, 0x48, 0x8b, 0x00], "mov rax, gs:[rax]", "Gs"),
            (&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88], "vpgatherdd ymm0, [rax+ymm1*4], ymm2", "Vector"),
            (&[0x06], "no instruction in 64 bits", "Undecoded"),
        ];
        for (code, text, expected) in cases {
            assert_eq!(told(code), expected, "{text}");
        }
        assert_eq!(Operand::decode(&[]), Operand::Undecoded);
    }
}
