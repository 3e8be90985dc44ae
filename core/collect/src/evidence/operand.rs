//! The memory that an instruction refers to (x86-64).
//!
//! Enters: the bytes of an instruction. Leaves: an operand that registers turn into an address. Never here: which
//! instruction a sample means (see [`waiting`](super::waiting)), memory, and what is at the address (see
//! `collector/data.rs`).

use iced_x86::{Code, Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, UsedMemory};

use crate::x86::{MemoryOperand, Segment};

/// The memory that an instruction loads from or stores to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The instruction accesses no memory: it computes, jumps or merely names an address (`lea`, a prefetch).
    None,
    /// The address follows from general registers.
    At(MemoryOperand),
    /// The thread's stack, at an address that is not known any more: the instruction moved the stack pointer.
    Stack,
    /// The thread's own data (`fs`), whose address is unknown.
    ThreadLocal,
    /// The address is relative to `gs`, which is not sampled.
    Gs,
    /// Several addresses from vector registers (a gather or scatter), which are not sampled.
    Vector,
    /// The bytes are not a known instruction.
    Undecoded,
    /// The instruction overwrote a register of its own address.
    Overwritten,
    /// Control may have come from several instructions that refer to different memory, or from one that is not known.
    Several,
}

impl Operand {
    /// Decodes the operand of the instruction at the start of `code`. If there are several, as in `movs`, returns the one that
    /// is read.
    pub fn decode(code: &[u8]) -> Operand {
        let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
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
        let Some(used) = used.iter().find(reads).or_else(|| used.iter().find(writes)) else {
            return Operand::None;
        };
        match MemoryOperand::from_used(&instruction, used) {
            None => Operand::Vector,
            Some(MemoryOperand { segment: Segment::Fs, .. }) => Operand::ThreadLocal,
            Some(MemoryOperand { segment: Segment::Gs, .. }) => Operand::Gs,
            Some(operand) => Operand::At(operand),
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The address that an instruction at 0x40_0000 refers to. Each general register holds 0x1000 times its number plus one.
    fn address(code: &[u8]) -> String {
        let general = |number: u8| 0x1000 * (u64::from(number) + 1);
        match Operand::decode(code) {
            Operand::At(operand) => format!("{:x}", operand.effective_address(0x40_0000, general)),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn addresses_follow_from_registers() {
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
            assert_eq!(address(code), expected, "{text}");
        }
        assert_eq!(Operand::decode(&[]), Operand::Undecoded);
    }
}
