//! The instruction that a thread waited for when a sample was taken, and the memory that it refers to (x86-64).
//!
//! Enters: a way to read code at offsets of an image, and the sampled offset. Leaves: an [`Operand`] that the sample's
//! registers turn into an address. Never here: samples, processes, symbols, I/O.
//!
//! On an out-of-order processor an interrupt is taken as soon as the oldest instruction has retired, so a sample lands on
//! the instruction after the one that waited (docs/measured.md, "Where a sample lands, out of order"). That one is found in
//! the code around the sample: it stands before the sampled instruction, or is a branch that leads there. The registers
//! are those after it, so a load may have overwritten the base of its own address. Then a loop may tell the address to
//! which the same instruction refers next time. What is not certain is an operand of its own: [`Operand::Several`],
//! [`Operand::Overwritten`]. Cost: O(bytes of the window).

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use rustc_hash::FxHashSet;

use super::{
    counts::loops::{Flow, Instruction, InstructionDecoder, Register, RegisterSet},
    operand::Operand,
};
use crate::x86::{Base, INSTRUCTION_BYTES_MAX, MemoryOperand};

/// Number of bytes of code before and after a sample that are decoded. Branches from further away are not seen.
const WINDOW_BYTES: u64 = 1024;
/// Number of instructions that are followed in search of the next execution.
const FOLLOWED_MAX: usize = 256;

/// Returns the operand of the instruction that was waited for at a sample of the instruction at `pc`. `read` fills a buffer
/// with bytes of code from an offset on and returns their number.
pub fn operand(pc: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) -> Operand {
    let Some(window) = Window::around(pc, read) else { return Operand::Undecoded };
    if window.is_repeated(pc) {
        // Such an instruction is interrupted between two of its rounds.
        return Operand::decode(window.bytes(pc));
    }
    let mut found = window.before(pc).into_iter().map(|at| window.operand_after(at, pc));
    let Some(first) = found.next() else { return Operand::Several };
    if found.all(|other| other == first) { first } else { Operand::Several }
}

/// Decoded code around a sample.
struct Window {
    start: u64,
    code: Vec<u8>,
    instructions: BTreeMap<u64, Instruction>,
}

impl Window {
    /// Decodes the code around `pc`. Where instructions begin is not known before it, but decoding that begins at any byte
    /// soon finds the same instructions. Returns `None` if it never finds the one at `pc`.
    fn around(pc: u64, read: &mut dyn FnMut(u64, &mut [u8]) -> usize) -> Option<Window> {
        let start = pc.saturating_sub(WINDOW_BYTES);
        let mut code = vec![0; (pc - start + WINDOW_BYTES) as usize];
        let length = read(start, &mut code);
        code.truncate(length);
        let mut window = Window { start, code, instructions: BTreeMap::new() };
        let starts = (start..=pc).take(INSTRUCTION_BYTES_MAX);
        window.instructions = starts.map(|from| window.decoded(from)).find(|all| all.contains_key(&pc))?;
        Some(window)
    }

    /// Decodes one instruction after the other. Bytes that are none are left out.
    fn decoded(&self, from: u64) -> BTreeMap<u64, Instruction> {
        let mut decoder = InstructionDecoder::default();
        let mut instructions = BTreeMap::new();
        let mut at = from;
        while !self.bytes(at).is_empty() {
            let instruction = decoder.decode(self.bytes(at), at);
            at = instruction.map_or(at + 1, |decoded| decoded.next);
            instructions.extend(instruction.map(|decoded| (decoded.next - decoded.length, decoded)));
        }
        instructions
    }

    fn bytes(&self, at: u64) -> &[u8] {
        let rest = at.checked_sub(self.start).and_then(|begin| self.code.get(begin as usize..));
        rest.map_or(&[], |rest| &rest[..rest.len().min(INSTRUCTION_BYTES_MAX)])
    }

    fn is_repeated(&self, at: u64) -> bool {
        let decoded = Decoder::with_ip(64, self.bytes(at), at, DecoderOptions::NONE).decode();
        decoded.is_string_instruction() && (decoded.has_rep_prefix() || decoded.has_repne_prefix())
    }

    fn mnemonic(&self, at: u64) -> Mnemonic {
        Decoder::with_ip(64, self.bytes(at), at, DecoderOptions::NONE).decode().mnemonic()
    }

    /// Returns the instructions after which control is at `pc`: branches to it, and the one that stands before it.
    fn before(&self, pc: u64) -> Vec<u64> {
        let leads_here = |instruction: &Instruction| match instruction.flow {
            Flow::Next | Flow::Call => instruction.next == pc,
            Flow::Branch(target) => target == pc || instruction.next == pc,
            Flow::Jump(target) => target == pc,
            Flow::End => false,
        };
        let all = self.instructions.iter().filter(|(_, i)| leads_here(i)).map(|(at, _)| *at);
        all.filter(|at| !self.is_padding(*at)).collect()
    }

    /// Whether the instruction is one of those that only fill the space after code that never continues there.
    fn is_padding(&self, at: u64) -> bool {
        let mut back = self.instructions.range(..=at).rev();
        let last = back.find(|(at, _)| self.mnemonic(**at) != Mnemonic::Nop);
        last.is_some_and(|(last, i)| *last != at && matches!(i.flow, Flow::End | Flow::Jump(_)))
    }

    /// Returns what is waited for when `at` was executed and a sample lands on `pc`, as an operand that registers at `pc` turn
    /// into an address.
    fn operand_after(&self, at: u64, pc: u64) -> Operand {
        let Some(instruction) = self.instructions.get(&at) else { return Operand::Undecoded };
        match instruction.flow {
            // The function has returned: the return read the stack.
            Flow::Call => Operand::Stack,
            // A comparison and its branch are one instruction to the processor.
            Flow::Branch(_) => match self.comparison_before(at) {
                Some(comparison) => self.valid_at(comparison, pc),
                None => Operand::None,
            },
            _ => self.valid_at(at, pc),
        }
    }

    fn comparison_before(&self, branch: u64) -> Option<u64> {
        let (at, before) = self.instructions.range(..branch).next_back()?;
        let compares = matches!(self.mnemonic(*at), Mnemonic::Cmp | Mnemonic::Test);
        (before.next == branch && compares).then_some(*at)
    }

    /// Returns the operand of the instruction at `at` with the registers of `pc`, where control is after it.
    fn valid_at(&self, at: u64, pc: u64) -> Operand {
        let operand = match Operand::decode(self.bytes(at)) {
            Operand::At(operand) => operand,
            other => return other,
        };
        let used = registers_used(&operand);
        let writes = self.instructions.get(&at).map_or(RegisterSet::all(), |i| i.writes);
        let is_stack = used == RegisterSet::from_iter([Register::RSP]);
        if !used.intersection(writes).is_empty() {
            if is_stack {
                return Operand::Stack;
            }
            if !self.comes_again(at, pc, used) {
                return Operand::Overwritten;
            }
        }
        let distance = match operand.base {
            Base::Instruction => at.wrapping_sub(pc),
            _ => 0,
        };
        Operand::At(MemoryOperand { displacement: operand.displacement.wrapping_add(distance), ..operand })
    }

    /// Whether control may reach the instruction at `to` from `pc` without a change of these registers.
    fn comes_again(&self, to: u64, pc: u64, registers: RegisterSet) -> bool {
        let (mut left, mut seen) = (vec![pc], FxHashSet::default());
        while let Some(at) = left.pop() {
            if at == to {
                return true;
            }
            let Some(instruction) = self.instructions.get(&at) else { continue };
            if seen.len() >= FOLLOWED_MAX || !seen.insert(at) {
                continue;
            }
            if !instruction.writes.intersection(registers).is_empty() {
                continue;
            }
            match instruction.flow {
                Flow::Next | Flow::Call => left.push(instruction.next),
                Flow::Branch(target) => left.extend([instruction.next, target]),
                Flow::Jump(target) => left.push(target),
                Flow::End => {}
            }
        }
        false
    }
}

fn registers_used(operand: &MemoryOperand) -> RegisterSet {
    let base = match operand.base {
        Base::Register(number) => Some(number),
        Base::None | Base::Instruction => None,
    };
    let numbers = base.into_iter().chain(operand.index.map(|(number, _)| number));
    numbers.filter_map(|number| Register::of_number(number.into())).collect()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Returns the operand for a sample at `pc` of code that begins at 0x1000, between bytes that are no code.
    fn at(pc: u64, code: &[u8]) -> String {
        let mut read = |offset: u64, bytes: &mut [u8]| {
            for (at, byte) in (offset..).zip(bytes.iter_mut()) {
                *byte = at.checked_sub(0x1000).and_then(|at| code.get(at as usize)).copied().unwrap_or(0x06);
            }
            bytes.len()
        };
        // Each general register holds 0x10_0000 times its number plus one.
        let general = |number: u8| 0x10_0000 * (u64::from(number) + 1);
        match operand(pc, &mut read) {
            Operand::At(operand) => format!("{:x}", operand.effective_address(pc, general)),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_sample_means_the_instruction_before_it() {
        // mov rbx, [rax]; mov rcx, [rip+0x10]; mov [rbp+8], rcx; nop
        let code = [0x48, 0x8b, 0x18, 0x48, 0x8b, 0x0d, 0x10, 0, 0, 0, 0x48, 0x89, 0x4d, 8, 0x90];
        assert_eq!(at(0x1003, &code), "100000");
        assert_eq!(at(0x100a, &code), "101a");
        assert_eq!(at(0x100e, &code), "600008");
        assert_eq!(at(0x1000, &code), "Several", "nothing is known of what leads here");
        assert_eq!(at(0x2000, &code), "Undecoded");
    }

    #[test]
    fn a_chase_means_the_node_that_comes_next() {
        // mov rax, [rax]; dec rcx; jne to the start; ret
        let code = [0x48, 0x8b, 0x00, 0x48, 0xff, 0xc9, 0x75, 0xf8, 0xc3];
        assert_eq!(at(0x1003, &code), "100000");
        assert_eq!(at(0x1006, &code), "None");
        assert_eq!(at(0x1000, &code), "None", "the branch is waited for");
        // Without the loop the address is gone.
        assert_eq!(at(0x1003, &code[..6]), "Overwritten");
        // mov rax, [rax]; mov eax, 0; jmp to the start
        assert_eq!(at(0x1003, &[0x48, 0x8b, 0x00, 0xb8, 0, 0, 0, 0, 0xeb, 0xf6]), "Overwritten");
    }

    #[test]
    fn several_ways_to_a_sample_must_agree() {
        // 1000: je 1006; 1002: mov eax, [rdx]; 1004: nop; nop; 1006: nop
        let code = [0x74, 0x04, 0x8b, 0x02, 0x90, 0x90, 0x90];
        assert_eq!(at(0x1006, &code), "None");
        // 1000: je 1004; 1002: mov eax, [rdx]; 1004: nop
        assert_eq!(at(0x1004, &[0x74, 0x02, 0x8b, 0x02, 0x90]), "Several");
        // 1000: cmp eax, [rbx]; 1002: je 1004; 1004: nop
        assert_eq!(at(0x1004, &[0x3b, 0x03, 0x74, 0x00, 0x90]), "400000");
    }

    #[test]
    fn the_first_instruction_of_a_function_is_reached_from_elsewhere() {
        // ret; nop; nop; nop, and the same after an instruction that goes on.
        assert_eq!(at(0x1003, &[0xc3, 0x90, 0x90, 0x90]), "Several");
        assert_eq!(at(0x1003, &[0x50, 0x90, 0x90, 0x90]), "None");
    }

    #[test]
    fn moves_of_the_stack_pointer_refer_to_the_stack() {
        assert_eq!(at(0x1001, &[0x5b, 0x90]), "Stack", "pop rbx");
        assert_eq!(at(0x1005, &[0xe8, 0, 1, 0, 0, 0x90]), "Stack", "after a call");
        assert_eq!(at(0x1005, &[0x48, 0x8b, 0x44, 0x24, 8, 0x90]), "500008", "mov rax, [rsp+8]");
    }

    #[test]
    fn a_repeated_instruction_is_interrupted_in_its_midst() {
        assert_eq!(at(0x1001, &[0x90, 0xf3, 0xa4, 0x90]), "700000", "rep movsb reads at rsi");
    }

    /// In a whole program, the instruction before another one is the one that decoding from the function's start finds.
    #[test]
    fn instructions_are_found_backwards_in_a_whole_program() {
        let image = dwell_image::Image::open(std::env::current_exe().unwrap()).unwrap();
        let (mut seen, mut wrong) = (0, 0);
        for procedure in image.procedures().iter().step_by(29) {
            let all = image.instructions(procedure.address, procedure.size_bytes.min(1 << 16));
            for pair in all.windows(2).step_by(11) {
                let (before, pc) = (pair[0].address.0, pair[1].address.0);
                let mut read = |from: u64, bytes: &mut [u8]| {
                    let is_read = |n: &usize| image.read(dwell_image::ImageAddress(from), &mut bytes[..*n]);
                    [2048, 1024].into_iter().find(is_read).unwrap_or(0)
                };
                let Some(window) = Window::around(pc, &mut read) else { continue };
                seen += 1;
                let found = window.instructions.range(..pc).next_back();
                wrong += usize::from(found.is_none_or(|(at, i)| (*at, i.next) != (before, pc)));
            }
        }
        assert!(seen > 1000 && wrong * 200 < seen, "{wrong} of {seen} are wrong");
    }
}
