//! Code → the instructions that add a constant to a word in memory, and where registers give the word's address.
//!
//! Enters: bytes of x86-64 code at an instruction's boundary. Leaves: a [`Run`]: the instructions of a straight line of code,
//! the [`Increment`]s among them, and for each instruction the increments whose address is known from the registers there. Never
//! here: memory of the program, samples.
//!
//! An increment is `add`, `sub`, `inc`, `dec` or `xadd` of memory by a constant, or the store of a register that was loaded from
//! the same operand before and changed by constants only. Operands with an index register, an `fs` or `gs` base or the stack
//! pointer are left out: samples rarely agree on the address of such a word.

use dwell_profile::VirtualAddress;

use crate::{
    registers::Registers,
    x86::{Base, MemoryOperand},
};

mod decode;

/// Number of bytes of code that are decoded at a time.
pub const CODE_BYTES: usize = 192;

/// An instruction that adds a constant to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Increment {
    /// The virtual address of the instruction.
    pub pc: VirtualAddress,
    /// The address of the instruction after it, where a watchpoint stops the thread.
    pub next_pc: VirtualAddress,
    pub word: WordOperand,
    /// The constant.
    pub step: i64,
    /// Whether it excludes other threads (`lock`).
    pub is_locked: bool,
}

/// A word in memory as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordOperand {
    /// Its address. An address relative to the instruction is resolved, so it has no base register.
    pub memory: MemoryOperand,
    /// Its size in bytes: 4 or 8.
    pub size: u8,
}

impl WordOperand {
    /// Whether the address depends on no register.
    pub fn is_constant(&self) -> bool {
        self.memory.base == Base::None && self.memory.index.is_none()
    }

    /// Returns the address that registers give it before the instruction at `pc`.
    pub fn address(&self, pc: VirtualAddress, registers: &Registers) -> VirtualAddress {
        VirtualAddress(self.memory.effective_address(pc.0, |number| registers.general(number)))
    }

    /// Whether the address is relative to a register in this set of bits.
    fn depends_on(&self, registers: u16) -> bool {
        matches!(self.memory.base, Base::Register(base) if registers & 1 << base != 0)
    }
}

/// How an instruction writes to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It adds a constant.
    Added(Increment),
    /// It stores a constant.
    Set,
}

/// Returns how the instruction that ends where `code` ends, at `next_pc`, wrote to the word at `address`, if the instruction alone
/// shows that. `registers` are those after it; they show where it begins, because bytes that are decoded from elsewhere rarely
/// refer to the same address.
pub fn written(
    code: &[u8],
    next_pc: VirtualAddress,
    address: VirtualAddress,
    registers: &Registers,
) -> Option<Written> {
    if cfg!(target_arch = "x86_64") { decode::written(code, next_pc, address, registers) } else { None }
}

/// A straight line of code: the path on which conditional branches are not taken and calls return.
#[derive(Clone, Debug, Default)]
pub struct Run {
    instructions: Vec<Decoded>,
    /// Increments, each with the index of its instruction.
    increments: Vec<(usize, Increment)>,
    /// The targets of its direct branches and jumps.
    pub targets: Vec<VirtualAddress>,
}

#[derive(Clone, Copy, Debug)]
struct Decoded {
    pc: VirtualAddress,
    /// The general registers that it, or what it calls, may change, as bits.
    written: u16,
}

impl Run {
    /// Decodes code from the boundary of an instruction at `pc` on. Code of other architectures is not decoded.
    pub fn decode(code: &[u8], pc: VirtualAddress) -> Run {
        if cfg!(target_arch = "x86_64") { decode::run(code, pc) } else { Run::default() }
    }

    /// Returns all increments.
    pub fn increments(&self) -> impl Iterator<Item = &Increment> {
        self.increments.iter().map(|(_, increment)| increment)
    }

    /// Returns for each instruction, by its address, the increments whose word's address is known from the registers before it.
    pub fn visible_from(&self) -> impl Iterator<Item = (VirtualAddress, Vec<Increment>)> {
        (0..self.instructions.len()).filter_map(|at| {
            let visible: Vec<Increment> = self
                .increments
                .iter()
                .filter(|(of, increment)| self.is_visible(*of, increment, at))
                .map(|(_, increment)| *increment)
                .collect();
            (!visible.is_empty()).then(|| (self.instructions[at].pc, visible))
        })
    }

    /// Whether the base register has the same value before instruction `at` as before the increment at `of`.
    fn is_visible(&self, of: usize, increment: &Increment, at: usize) -> bool {
        let between = &self.instructions[of.min(at)..of.max(at)];
        !between.iter().any(|instruction| increment.word.depends_on(instruction.written))
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Decodes bytes in hex at 0x1000. Lists each increment, and the instructions from which its address is known.
    fn check(code: &str, expect: Expect) {
        let bytes: Vec<u8> =
            code.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let run = Run::decode(&bytes, VirtualAddress(0x1000));
        let mut text = String::new();
        for increment in run.increments() {
            let WordOperand { memory, size } = increment.word;
            let lock = if increment.is_locked { " locked" } else { "" };
            let base = match memory.base {
                Base::Register(base) => format!("r{base}+"),
                _ => "at ".to_owned(),
            };
            text += &format!(
                "{}: {:+} to {size} bytes {base}{:x}{lock}, seen from",
                increment.pc, increment.step, memory.displacement
            );
            for (pc, visible) in run.visible_from() {
                if visible.contains(increment) {
                    text += &format!(" {pc}");
                }
            }
            text += "\n";
        }
        expect.assert_eq(&text);
    }

    #[test]
    fn constants_added_to_memory() {
        check(
            // add dword [rbx+0x7c], 1; inc qword [rip+0x10]; sub qword [rdi], 8; lock dec dword [rsi]; ret
            "83 43 7c 01 48 ff 05 10 00 00 00 48 83 2f 08 f0 ff 0e c3",
            expect![[r#"
                1000: +1 to 4 bytes r3+7c, seen from 1000 1004 100b 100f 1012
                1004: +1 to 8 bytes at 101b, seen from 1000 1004 100b 100f 1012
                100b: -8 to 8 bytes r7+0, seen from 1000 1004 100b 100f 1012
                100f: -1 to 4 bytes r6+0 locked, seen from 1000 1004 100b 100f 1012
            "#]],
        );
        check(
            // mov eax, 1; lock xadd [rbp], eax; mov ecx, 3; add [rbp], ecx; add [rbp], edx
            "b8 01 00 00 00 f0 0f c1 45 00 b9 03 00 00 00 01 4d 00 01 55 00",
            expect![[r#"
                1005: +1 to 4 bytes r5+0 locked, seen from 1000 1005 100a 100f 1012
                100f: +3 to 4 bytes r5+0, seen from 1000 1005 100a 100f 1012
            "#]],
        );
    }

    #[test]
    fn a_word_that_is_loaded_changed_and_stored() {
        check(
            // mov rax, [rbx+8]; lea rdx, [rax+1]; cmp rcx, rdx; mov [rbx+8], rdx; mov [rbx+16], rdx
            "48 8b 43 08 48 8d 50 01 48 39 d1 48 89 53 08 48 89 53 10",
            expect![[r#"
                100b: +1 to 8 bytes r3+8, seen from 1000 1004 1008 100b 100f
            "#]],
        );
        check(
            // mov eax, [rip+0x100]; sub eax, 2; inc eax; mov [rip+0xf5], eax: the same word
            "8b 05 00 01 00 00 83 e8 02 ff c0 89 05 f5 00 00 00",
            expect![[r#"
                100b: -1 to 4 bytes at 1106, seen from 1000 1006 1009 100b
            "#]],
        );
        check(
            // mov rax, [rbx]; add rbx, 8; inc rax; mov [rbx], rax: another word
            "48 8b 03 48 83 c3 08 48 ff c0 48 89 03",
            expect![[""]],
        );
        check(
            // mov rax, [rbx]; call +0; inc rax; mov [rbx], rax: unknown after the call
            "48 8b 03 e8 00 00 00 00 48 ff c0 48 89 03",
            expect![[""]],
        );
        check(
            // mov rbx, [rbx]; inc rbx; mov [rbx], rbx: a pointer
            "48 8b 1b 48 ff c3 48 89 1b",
            expect![[""]],
        );
    }

    #[test]
    fn words_without_a_shared_address_are_left_out() {
        check(
            // add dword [rsp+8], 1; add dword [rbx+rcx*4], 1; add dword fs:[rbx], 1; add byte [rbx], 1; add word [rbx], 1
            "83 44 24 08 01 83 04 8b 01 64 83 03 01 80 03 01 66 83 03 01",
            expect![[""]],
        );
        check(
            // add dword [rbx], 0; add dword [rbx], 0x2000; adc dword [rbx], 1; or dword [rbx], 1; cmp dword [rbx], 1
            "83 03 00 81 03 00 20 00 00 83 13 01 83 0b 01 83 3b 01",
            expect![[""]],
        );
    }

    #[test]
    fn an_address_is_known_while_its_base_register_is() {
        check(
            // mov rbx, rdi; add dword [rbx], 1; call +0; add dword [rbx], 1; add dword [rdi], 1; pop rbx; nop
            "48 89 fb 83 03 01 e8 00 00 00 00 83 03 01 83 07 01 5b 90",
            expect![[r#"
                1003: +1 to 4 bytes r3+0, seen from 1003 1006 100b 100e 1011
                100b: +1 to 4 bytes r3+0, seen from 1003 1006 100b 100e 1011
                100e: +1 to 4 bytes r7+0, seen from 100b 100e 1011 1012
            "#]],
        );
        check(
            // je +2; add dword [rbx], 1; jmp -7; add dword [rbx], 1
            "74 02 83 03 01 eb f9 83 03 01",
            expect![[r#"
                1002: +1 to 4 bytes r3+0, seen from 1000 1002 1005
            "#]],
        );
    }

    #[test]
    fn the_writing_instruction_is_found_by_its_address() {
        let mut registers = Registers([0; crate::registers::REGISTER_COUNT]);
        (0..16).for_each(|number| registers.set_general(number, 0x1000 * (u64::from(number) + 1)));
        let check = |code: &str, address: u64| {
            let bytes: Vec<u8> = code.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            let next_pc = VirtualAddress(0x1000).offset(bytes.len() as u64);
            match written(&bytes, next_pc, VirtualAddress(address), &registers) {
                Some(Written::Added(increment)) => {
                    format!("{:+} to {} bytes at {}", increment.step, increment.word.size, increment.pc)
                }
                Some(Written::Set) => "set".to_owned(),
                None => "unknown".to_owned(),
            }
        };
        // nop; add qword [rbx+8], 1 and nop; add dword [r13+rcx*4], 1
        assert_eq!(check("90 48 83 43 08 01", 0x4008), "+1 to 8 bytes at 1001");
        assert_eq!(check("90 41 83 44 8d 00 01", 0xe000 + 0x8000), "+1 to 4 bytes at 1001");
        // mov dword [rbx+0x7c], 0; mov [rbx+0x28], ecx; add [rbx], ecx; add dword [rbx+4], 1, not at this address
        assert_eq!(check("c7 43 7c 00 00 00 00", 0x407c), "set");
        assert_eq!(check("89 4b 28", 0x4028), "unknown");
        assert_eq!(check("01 0b", 0x4000), "unknown");
        assert_eq!(check("83 43 04 01", 0x4000), "unknown");
    }

    #[test]
    fn any_bytes_are_decoded() {
        let mut state = 7_u64;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..CODE_BYTES)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (state >> 33) as u8
                })
                .collect();
            let run = Run::decode(&bytes, VirtualAddress(u64::MAX - 20));
            run.visible_from().for_each(drop);
            let registers = Registers([state; crate::registers::REGISTER_COUNT]);
            written(&bytes, VirtualAddress(20), VirtualAddress(state), &registers);
        }
    }
}
