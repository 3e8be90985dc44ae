//! The code that counts executions of a block.
//!
//! Enters: a [`CounterPlace`] and where the counter is. Leaves: machine code for one address: the instructions that were
//! overwritten, with the counter before one of them. No register and no flag that is alive changes.
//!
//! A thread's counters are at its gs register, which programs for x86-64 do not use: 0 in all threads, or a number of bytes of ours.
//! So no thread needs a lock, and a thread that Dwell does not know counts where gs is 0.

use iced_x86::{Code, IcedError, Instruction};
use serde::{Deserialize, Serialize};

use super::place::CounterPlace;
use crate::patch::trampoline::Assembler;

/// Code for one address.
#[derive(Clone, Debug)]
pub struct CounterCode {
    /// The machine code.
    pub code: Vec<u8>,
    /// For each instruction that moved: its address, and the address where a thread that stands before it must continue.
    pub copies: Vec<(u64, u64)>,
    /// What the code consists of, ascending.
    pub spans: Vec<Span>,
}

/// A range of code and the instruction of the program that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// The instruction's address; none for code that the program does not have.
    pub stands_for: Option<u64>,
}

/// Assembles the code at `address`, which must be within 2 GiB of the place. `counter` is the counter's address where gs is 0.
pub fn assemble(place: &CounterPlace, counter: u32, address: u64) -> Result<CounterCode, IcedError> {
    let mut assembler = Assembler { address, code: Vec::new() };
    let (mut copies, mut spans) = (Vec::new(), Vec::new());
    for (at, instruction) in place.region.instructions.iter().enumerate() {
        let mut start = assembler.here();
        copies.push((instruction.ip(), start));
        if at == place.before {
            count(&mut assembler, counter, place.keeps_flags);
            spans.push(Span { start, end: assembler.here(), stands_for: None });
            start = assembler.here();
        }
        assembler.instruction(instruction)?;
        spans.push(Span { start, end: assembler.here(), stands_for: Some(instruction.ip()) });
    }
    let start = assembler.here();
    assembler.instruction(&Instruction::with_branch(Code::Jmp_rel32_64, place.region.end())?)?;
    spans.push(Span { start, end: assembler.here(), stands_for: None });
    Ok(CounterCode { code: assembler.code, copies, spans })
}

fn count(assembler: &mut Assembler, counter: u32, keeps_flags: bool) {
    if keeps_flags {
        assembler.put(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]: below the red zone
        assembler.put(&[0x50, 0x9f, 0x0f, 0x90, 0xc0]); // push rax; lahf; seto al
    }
    assembler.put(&[0x65, 0x48, 0xff, 0x04, 0x25]); // inc qword gs:[counter]
    assembler.put(&counter.to_le_bytes());
    if keeps_flags {
        assembler.put(&[0x04, 0x7f, 0x9e, 0x58]); // add al, 0x7f (sets OF again); sahf; pop rax
        assembler.put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
    }
}
